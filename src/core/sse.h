/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Server-sent events (WHATWG HTML, section 9.2.6 "Interpreting an event stream"): body bytes in any
 * pieces -> frames. Lines end in LF, CRLF or CR. The data of a frame is handed on in pieces as it
 * comes; nothing is buffered but field names and the event's type.
 */
#ifndef TKS_SSE_H
#define TKS_SSE_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"

struct tks_sse_frame {
	uint64_t first_off,
		last_off; /* its first byte and the last byte of the blank line that ends it */
	bool has_data; /* at least one data field */
	bool has_comment;
	bool truncated; /* the event's type did not fit */
	uint64_t data_bytes;
	char event[48]; /* "" : none given */
};

struct tks_sse_ops {
	/* Data of the frame under way; a LF between two data lines is handed on as a piece of its
	 * own. */
	void (*data)(void *ctx, const struct tks_slice *s);
	/* The frame ended. Called for blocks with data or an event type; for a block of comments
	 * only, too, with has_data false and event "". */
	void (*frame)(void *ctx, const struct tks_sse_frame *f);
	/* What was handed on of the frame under way is void (a gap). */
	void (*reset)(void *ctx);
};

struct tks_sse {
	const struct tks_sse_ops *ops;
	void *ctx;
	struct tks_sse_frame cur;
	uint8_t state;
	bool cr; /* the last byte was a CR that ended a line */
	bool begun; /* cur has a byte */
	bool maybe; /* right behind a gap: the next bytes may begin a line, and a frame */
	bool resync; /* after a gap: drop everything up to a blank line */
	uint8_t field; /* which field the line's value belongs to */
	uint8_t name_len, bom;
	char name[8];
};

void tks_sse_init(struct tks_sse *s, const struct tks_sse_ops *ops, void *ctx);
void tks_sse_feed(struct tks_sse *s, const struct tks_slice *in);

/*
 * Bytes are missing before the next feed: the frame under way is void. The next frame is one that
 * begins behind a blank line, or at once, if what is fed next begins with a data or event field.
 */
void tks_sse_gap(struct tks_sse *s);

/* The body ended; a frame without its blank line is not dispatched (the standard's rule). */
void tks_sse_end(struct tks_sse *s);

#endif
