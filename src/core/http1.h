/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * HTTP/1.x of one connection, both directions: heads (by llhttp), body bytes with the chunked
 * coding taken off, ends. Keeps the methods of open requests, since a response can't be framed
 * without (HEAD, CONNECT).
 *
 * Interim responses (1xx but 101) are not reported. After 101, or CONNECT answered with 2xx, both
 * directions are reported as body up to the end of the connection: the response's as its own, which
 * ends CLOSED; the request's behind the end of the request, without an end of its own.
 *
 * After a gap, or attached in the middle of a message, it looks for the next place it can trust: a
 * message's start at the start of a slice, or, in a chunked response, a chunk's size line at the
 * start of a slice. A gap that lies inside the body bytes that a Content-Length or the current
 * chunk still owes is stepped over exactly, and so is one that ends with such a chunk's CRLF.
 *
 * Responses belong to requests in their order. When bytes of either direction were lost, or came to
 * be known late, the order alone no longer says it: then, where ops->time can tell, and unless the
 * client was seen to pipeline, a request is taken for answered if a later one was sent before the
 * response began. Such a request's response is reported as a resumed head and an end (CUT).
 */
#ifndef TKS_HTTP1_H
#define TKS_HTTP1_H

#include <stdbool.h>
#include <stdint.h>

#include "http_msg.h"
#include "slice.h"
#include "tokensnoop/mem.h"

struct tks_h1_ops {
	/* The first byte of a request was seen (before its head is whole), so that it can be timed
	 * even if it never ends. side is always TKS_REQUEST. */
	void (*begin)(void *ctx, enum tks_side side, uint64_t off);
	int (*head)(void *ctx, const struct tks_http_head *h);
	int (*body)(void *ctx, enum tks_side side, const struct tks_slice *s);
	/* Body bytes that are missing. Where the framing was lost too (len 0) their number is not
	 * known: whatever comes before the next body, or end, is missing then. */
	int (*body_gap)(void *ctx, enum tks_side side, uint64_t off, uint64_t len);
	/* last_off: the message's last byte (final chunk's CRLF included); for CUT the last byte
	 * seen. */
	int (*end)(void *ctx, enum tks_side side, uint64_t last_off, enum tks_msg_end how);
	/* When the byte crossed the boundary; 0: not known. Used to match responses to requests
	 * after a loss; may be NULL. */
	uint64_t (*time)(void *ctx, enum tks_side side, uint64_t off);
};

struct tks_http1;

/* NULL without memory. */
struct tks_http1 *tks_http1_new(struct tks_mem *mem, const struct tks_h1_ops *ops, void *ctx);
void tks_http1_free(struct tks_http1 *h);

/* Before the first feed: the connection was entered in its middle: both directions first look for a
 * place they can trust.
 */
void tks_http1_mid_stream(struct tks_http1 *h);

/*
 * Feeds bytes in order. 0; -EBADMSG: not HTTP/1 (any more), this side then looks for the next
 * message start as after a gap, and other bytes are dropped; -ENOMEM; or what ops returned.
 */
int tks_http1_feed(struct tks_http1 *h, enum tks_side side, const struct tks_slice *s);

/* Bytes are missing. 0, -ENOMEM, or what ops returned. */
int tks_http1_gap(struct tks_http1 *h, enum tks_side side, uint64_t off, uint64_t len);

/* The direction has ended at off (exclusive): ends an open message as CLOSED or CUT. */
int tks_http1_eof(struct tks_http1 *h, enum tks_side side, uint64_t off);

/* Requests whose responses have not ended. */
unsigned int tks_http1_pending(const struct tks_http1 *h);

/* True once there were too many requests that nobody answered (-EBADMSG for ever). */
bool tks_http1_given_up(const struct tks_http1 *h);

/* 1: the bytes can be the start of an HTTP/1 message of that side; 0: they can't; -EAGAIN: too few
 * to tell (a request's first line has not ended, or a response's status is not there). */
int tks_http1_sniff(enum tks_side side, const uint8_t *data, size_t len);

enum {
	TKS_H1_PIPELINE_MAX = 64, /* open requests a connection; past it the connection is given up
				     (-EBADMSG, always) */
	TKS_H1_HEAD_MAX = 256 * 1024, /* bytes of a head */
};

#endif
