/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One HTTP/1 message head, from its first byte to the LF that ends it, through llhttp. Bounded:
 * what does not fit is cut off, and the head says so.
 */
#ifndef TKS_HTTP1_HEAD_H
#define TKS_HTTP1_HEAD_H

#include <llhttp.h>

#include "http1.h"

enum tks_headp_event {
	TKS_HEADP_MORE = 0,
	TKS_HEADP_LINE, /* the first line proved to be one of HTTP/1.x; reported once */
	TKS_HEADP_DONE,
};

/* Must not move once started. */
struct tks_headp {
	struct tks_http_head head; /* but for the offsets, upgrade and resumed; valid when DONE */
	llhttp_t parser;
	bool other_coding; /* a Transfer-Encoding that does not end in chunked */
	bool line; /* pause at the first line */
	const struct tks_http_field *field; /* whose value is being read, or NULL */
	size_t len; /* of that value so far */
	bool value_over; /* no more of that value is wanted */
	size_t name_len;
	char name[32];
};

void tks_headp_start(struct tks_headp *p, enum tks_side side);

/* Takes *used of len bytes. An event, or -EBADMSG. */
int tks_headp_feed(struct tks_headp *p, const uint8_t *data, size_t len, size_t *used);

#endif
