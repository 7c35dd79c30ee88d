/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Newline-delimited JSON: body bytes in any pieces -> lines. A line ends in LF (a CR before it is
 * white space to JSON); empty lines are nothing; the last one may end with the body.
 */
#ifndef TKS_LINES_H
#define TKS_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"

struct tks_lines_ops {
	/* Bytes of the line under way, without its LF. */
	void (*data)(void *ctx, const struct tks_slice *s);
	/* The line ended; last_off is that of its LF. */
	void (*line)(void *ctx, uint64_t first_off, uint64_t last_off);
	/* What was handed on of the line under way is void (a gap). */
	void (*reset)(void *ctx);
};

struct tks_lines {
	const struct tks_lines_ops *ops;
	void *ctx;
	uint64_t first_off, last_off;
	bool begun; /* the line has a byte that is not white space */
	bool maybe; /* right behind a gap: a line may begin here */
	bool resync; /* drop everything up to the next LF */
};

void tks_lines_init(struct tks_lines *l, const struct tks_lines_ops *ops, void *ctx);
void tks_lines_feed(struct tks_lines *l, const struct tks_slice *in);

/* Bytes are missing: the next line is the one behind the next LF, or what is fed next if it begins
 * with a brace. */
void tks_lines_gap(struct tks_lines *l);

/* The body ended, and a line without LF with it. */
void tks_lines_end(struct tks_lines *l);

#endif
