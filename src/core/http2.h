/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * HTTP/2 (RFC 9113) of one connection, both directions: the frame layer, header fields by
 * libnghttp2's HPACK inflater (RFC 7541), DATA without its padding.
 *
 * Only watches: nothing is answered, no limits of flow control are kept; what a peer would refuse
 * as a protocol error is read as well as it can be, within bounds.
 *
 * After a gap, or attached in the middle, a direction looks for a frame header at the start of a
 * slice: one that can be valid, and behind it, as far as the slice reaches, others. A gap inside
 * the payload that a DATA frame still owes is stepped over exactly. The HPACK table is then not
 * known: it is started anew, filled with entries that say "not known", so that references to what
 * was sent before yield no value rather than a wrong one; such a head is `unknowable`.
 */
#ifndef TKS_HTTP2_H
#define TKS_HTTP2_H

#include <stdbool.h>
#include <stdint.h>

#include "http_msg.h"
#include "slice.h"
#include "tokensnoop/mem.h"

struct tks_h2_ops {
	/* The first byte of a request's HEADERS frame. */
	void (*begin)(void *ctx, uint32_t stream, uint64_t off);
	/* A head is whole (the block's last frame has ended). Interim (1xx) responses are not
	 * reported. A message entered in its middle is reported with resumed set before its first
	 * body bytes. PUSH_PROMISE is read for the table's sake, and dropped. */
	int (*head)(void *ctx, uint32_t stream, const struct tks_http_head *h);
	int (*body)(void *ctx, uint32_t stream, enum tks_side side, const struct tks_slice *s);
	/* Body bytes are missing; len 0: how many is not known. stream 0: of any stream open. */
	int (*body_gap)(void *ctx, uint32_t stream, enum tks_side side, uint64_t off, uint64_t len);
	/* Trailers of a response (only grpc_status and truncated, unknowable are set). */
	int (*trailers)(void *ctx, uint32_t stream, const struct tks_http_head *t);
	/* last_off: of the frame with END_STREAM, or of RST_STREAM, its last byte. */
	int (*end)(void *ctx, uint32_t stream, enum tks_side side, uint64_t last_off,
		   enum tks_msg_end how);
	/* RST_STREAM of that side ended both messages of the stream; their end calls, CUT, follow
	 * where they were open. NO_ERROR behind a complete response is not reported. code:
	 * TKS_H2_CODE_LOST if octets of it were lost. */
	int (*reset)(void *ctx, uint32_t stream, enum tks_side by, uint32_t code);
};

struct tks_http2;

/* NULL without memory. */
struct tks_http2 *tks_http2_new(struct tks_mem *mem, const struct tks_h2_ops *ops, void *ctx);
void tks_http2_free(struct tks_http2 *h);

/* Before the first feed: entered in its middle. */
void tks_http2_mid_stream(struct tks_http2 *h);

/* Before the first feed: by Upgrade: h2c (RFC 7540, section 3.2): the request was HTTP/1's and is
 * stream 1, half closed. The preface still comes. */
void tks_http2_upgraded(struct tks_http2 *h);

/*
 * Bytes in order. 0; -EBADMSG: not HTTP/2 (that direction then looks for a frame as after a gap);
 * -ENOMEM; or what ops returned.
 */
int tks_http2_feed(struct tks_http2 *h, enum tks_side side, const struct tks_slice *s);
int tks_http2_gap(struct tks_http2 *h, enum tks_side side, uint64_t off, uint64_t len);

/* The direction has ended at off (exclusive): its open messages end CUT, in the order of their
 * streams. */
int tks_http2_eof(struct tks_http2 *h, enum tks_side side, uint64_t off);

/*
 * 1: the bytes begin with the client's preface (request side), or with a server's first SETTINGS
 * frame; 0: they don't; -EAGAIN: too few.
 */
int tks_http2_sniff(enum tks_side side, const uint8_t *data, size_t len);

/* 1: in the middle of a connection: the slice begins with one whole frame at least whose header can
 * be valid, and with nothing else, as far as it reaches. 0: not, or too little to believe it.
 * *side: who sends it, where the frames tell (1) or -1. */
int tks_http2_sniff_middle(const uint8_t *data, size_t len, int *side);

#define TKS_H2_CODE_LOST UINT32_MAX

enum {
	TKS_H2_STREAMS_MAX = 1024, /* open at once; past it the one that was idle longest is ended
				    * (CUT) and forgotten */
	TKS_H2_HEAD_MAX = 256 * 1024, /* bytes of a header block, and of its fields decoded */
};

#endif
