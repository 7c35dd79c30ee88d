// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "exchange_h2.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "pipeline_int.h"

enum { BUCKETS = 64, H2_NO_ERROR = 0, H2_CANCEL = 8 };

struct tks_h2_conn {
	struct tks_http2 *http2;
	struct tks_exchange *by_stream[BUCKETS];
};

/* Streams of one side have numbers of one parity. */
static struct tks_exchange **bucket(const struct tks_conn *c, uint32_t stream)
{
	return &c->h2->by_stream[(stream >> 1) % BUCKETS];
}

static struct tks_exchange *find(const struct tks_conn *c, uint32_t stream)
{
	struct tks_exchange *e = *bucket(c, stream);

	while (e && e->stream != stream)
		e = e->stream_next;
	return e;
}

static void enter(struct tks_exchange *e, uint32_t stream)
{
	struct tks_exchange **b = bucket(e->conn, stream);

	e->stream = stream;
	e->rec->stream_id = stream;
	e->stream_next = *b;
	*b = e;
}

void tks_h2_conn_forget(struct tks_exchange *e)
{
	struct tks_exchange **p;

	/* An answer within the stream has its number, but is not the stream. */
	if (!e->conn->h2 || e->parent)
		return;
	for (p = bucket(e->conn, e->stream); *p; p = &(*p)->stream_next) {
		if (*p != e)
			continue;
		*p = e->stream_next;
		return;
	}
}

/* --- what http2.c finds --- */

static void on_begin(void *ctx, uint32_t stream, uint64_t off)
{
	struct tks_exchange *e = tks_exchange_new(ctx);

	if (!e)
		return;
	enter(e, stream);
	tks_exchange_request_begin(e, off);
}

static int on_head(void *ctx, uint32_t stream, const struct tks_http_head *h)
{
	struct tks_conn *c = ctx;
	struct tks_exchange *e = find(c, stream);

	c->trusted |= !h->resumed;
	if (h->side == TKS_REQUEST) {
		if (e && !h->resumed)
			tks_exchange_request_head(e, h);
		return 0;
	}
	if (!e) {
		e = tks_exchange_orphan(c);
		if (!e)
			return 0;
		enter(e, stream);
	}
	tks_exchange_response_head(e, h);
	if (!h->resumed && tks_exchange_waits_known(c))
		tks_exchange_waited(e, tks_exchange_stamp(c, TKS_RESPONSE, h->last_off));
	return 0;
}

static int on_body(void *ctx, uint32_t stream, enum tks_side side, const struct tks_slice *s)
{
	struct tks_conn *c = ctx;
	struct tks_exchange *e = find(c, stream);

	if (!e)
		return 0;
	if (side == TKS_REQUEST) {
		tks_exchange_request_body(e, s);
		return 0;
	}
	if (e->rec->send_wait_ns != TKS_NULL)
		tks_exchange_waited(e, tks_exchange_stamp(c, TKS_RESPONSE, s->off));
	if (!e->answered)
		return 0;
	tks_exchange_response_body(e, s);
	/* Of one that is reset this is the last that is known. */
	e->rec->t_end_ns = tks_exchange_time(c, TKS_RESPONSE, s->off + s->len - 1);
	return 0;
}

static void gap(struct tks_exchange *e, enum tks_side side, uint64_t off, uint64_t len)
{
	e->rec->flags |= TKS_F_LOST;
	if (side == TKS_REQUEST)
		tks_exchange_request_gap(e, off, len);
	else if (e->answered)
		tks_exchange_response_gap(e, off, len);
	else
		e->maybe_lost = true;
}

static int on_body_gap(void *ctx, uint32_t stream, enum tks_side side, uint64_t off, uint64_t len)
{
	struct tks_conn *c = ctx;
	struct tks_exchange *e = stream ? find(c, stream) : NULL;
	struct tks_list *l;

	if (e)
		gap(e, side, off, len);
	for (l = c->exchanges.next; !stream && l != &c->exchanges; l = l->next)
		gap(tks_list_entry(l, struct tks_exchange, in_conn), side, off, 0);
	return 0;
}

static int on_trailers(void *ctx, uint32_t stream, const struct tks_http_head *t)
{
	struct tks_exchange *e = find(ctx, stream);

	if (e && e->dec)
		tks_decoder_trailers(e->dec, t->grpc_status);
	return 0;
}

static int on_end(void *ctx, uint32_t stream, enum tks_side side, uint64_t last_off,
		  enum tks_msg_end how)
{
	struct tks_exchange *e = find(ctx, stream);

	if (!e)
		return 0;
	if (side == TKS_REQUEST)
		tks_exchange_request_end(e, last_off, how);
	else
		tks_exchange_response_end(e, last_off, how);
	return 0;
}

static int on_reset(void *ctx, uint32_t stream, enum tks_side by, uint32_t code)
{
	struct tks_conn *c = ctx;
	const struct tks_stream *answers = &c->stream[!tks_conn_request_dir(c)];
	struct tks_exchange *e = find(c, stream);
	char text[16] = "";

	if (!e)
		return 0;
	if (by == TKS_REQUEST) {
		/* What was sent before is still waiting for a segment that may be lost. */
		if (answers->held_segments)
			gap(e, TKS_RESPONSE, answers->next, 0);
		tks_exchange_end(e, TKS_OUT_ABORTED);
		return 0;
	}
	if (code != H2_NO_ERROR && code != H2_CANCEL) {
		if (code != TKS_H2_CODE_LOST)
			snprintf(text, sizeof(text), "%u", code);
		tks_reqstate_error(e->rs, "http2", text);
	}
	/* Its ends follow. */
	return 0;
}

static const struct tks_h2_ops ops = {
	.begin = on_begin,
	.head = on_head,
	.body = on_body,
	.body_gap = on_body_gap,
	.trailers = on_trailers,
	.end = on_end,
	.reset = on_reset,
};

/* --- life --- */

int tks_h2_conn_start(struct tks_conn *c, bool mid)
{
	struct tks_mem *mem = c->pipeline->mem;
	struct tks_h2_conn *h = tks_mem_alloc(mem, sizeof(*h));

	if (!h)
		return -ENOMEM;
	h->http2 = tks_http2_new(mem, &ops, c);
	if (!h->http2) {
		tks_mem_free(mem, h, sizeof(*h));
		return -ENOMEM;
	}
	if (mid)
		tks_http2_mid_stream(h->http2);
	c->h2 = h;
	return 0;
}

int tks_h2_conn_upgrade(struct tks_conn *c, struct tks_exchange *e)
{
	int err = tks_h2_conn_start(c, false);

	if (err)
		return err;
	tks_http2_upgraded(c->h2->http2);
	enter(e, 1);
	return 0;
}

void tks_h2_conn_free(struct tks_conn *c)
{
	if (!c->h2)
		return;
	tks_http2_free(c->h2->http2);
	tks_mem_free(c->pipeline->mem, c->h2, sizeof(*c->h2));
	c->h2 = NULL;
}

int tks_h2_conn_feed(struct tks_conn *c, enum tks_side side, const struct tks_slice *s)
{
	return tks_http2_feed(c->h2->http2, side, s);
}

int tks_h2_conn_gap(struct tks_conn *c, enum tks_side side, uint64_t off, uint64_t len)
{
	return tks_http2_gap(c->h2->http2, side, off, len);
}

void tks_h2_conn_eof(struct tks_conn *c, enum tks_side side, uint64_t off)
{
	tks_http2_eof(c->h2->http2, side, off);
}
