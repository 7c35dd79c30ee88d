/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * WebSocket (RFC 6455) of one direction: frames in any pieces -> messages. Fragments are joined,
 * control frames between them stepped over, masks taken off, permessage-deflate (RFC 7692) inflated
 * with or without context takeover.
 */
#ifndef TKS_WEBSOCKET_H
#define TKS_WEBSOCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "http_msg.h"
#include "slice.h"
#include "tokensnoop/mem.h"

struct tks_ws_message {
	uint64_t first_off, last_off; /* the first frame's first byte, the final frame's last */
	uint64_t bytes; /* of its text, inflated */
	bool text; /* opcode 1; false: binary */
	bool broken; /* could not be inflated whole, or bytes of it are missing */
};

struct tks_ws_ops {
	/* Bytes of the message under way; their offset is that of the wire byte that made them
	 * known. */
	void (*data)(void *ctx, const struct tks_slice *s);
	void (*message)(void *ctx, const struct tks_ws_message *m);
	/* A close frame; code 0: none given. */
	void (*close)(void *ctx, uint16_t code, uint64_t last_off);
};

struct tks_ws;

/*
 * side: whose frames these are (for the parameters of the extension). extensions: what the 101's
 * Sec-WebSocket-Extensions says, lower case. NULL without memory.
 */
struct tks_ws *tks_ws_new(struct tks_mem *mem, enum tks_side side, const char *extensions,
			  const struct tks_ws_ops *ops, void *ctx);
void tks_ws_free(struct tks_ws *w);

/* 0; -EBADMSG: not WebSocket (a reserved opcode, a fragment without a beginning, a length with its
 * top bit set); from then on all is dropped. -ENOMEM: the message under way is broken, the next
 * ones are tried. */
int tks_ws_feed(struct tks_ws *w, const struct tks_slice *s);

/* Bytes are missing: stepped over where they lie within a payload (the message is then broken; with
 * context takeover all compressed ones behind it are too); otherwise a frame is looked for at the
 * starts of slices. */
void tks_ws_gap(struct tks_ws *w, uint64_t off, uint64_t len);

/* In the middle of a connection nobody knows: true if the slice begins with a whole text frame of a
 * server's which says a JSON object, and what follows, as far as it reaches, are frames too. */
bool tks_ws_sniff_middle(const uint8_t *data, size_t len);

#endif
