// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Requests open exchanges, in order; responses are matched to them in that order. A response
 * without a request (attached in its middle, or the request was lost) opens one of its own.
 *
 * After an upgrade both directions are what HTTP/1 calls body: of a WebSocket, or HTTP/2.
 */
#include "exchange_h1.h"

#include <string.h>

#include "exchange_h2.h"
#include "http1.h"
#include "pipeline_int.h"

enum { BULK_BYTES = 1 << 20 }; /* an answer that is not ours is bulk from here on */

static void on_begin(void *ctx, enum tks_side side, uint64_t off)
{
	struct tks_conn *c = ctx;

	if (side != TKS_REQUEST)
		return;
	c->receiving = tks_exchange_new(c);
	if (c->receiving)
		tks_exchange_request_begin(c->receiving, off);
}

static void request_head(struct tks_conn *c, const struct tks_http_head *h)
{
	if (!c->receiving)
		return;
	c->trusted = true;
	tks_exchange_request_head(c->receiving, h);
}

static void response_head(struct tks_conn *c, const struct tks_http_head *h)
{
	struct tks_exchange *e = tks_exchange_first(c);

	c->trusted = true;
	if (h->upgrade && !strcmp(h->upgrade_to, "h2c") && e && !e->answered) {
		if (tks_h2_conn_upgrade(c, e))
			c->pipeline->counters.no_memory++;
		return;
	}
	if (!e || e->answered)
		e = tks_exchange_orphan(c);
	if (!e)
		return;
	if (!h->resumed && tks_exchange_waits_known(c))
		e->rec->send_wait_ns = c->carry_wait_ns;
	c->carry_wait_ns = 0;
	tks_exchange_response_head(e, h);
}

static int on_head(void *ctx, const struct tks_http_head *h)
{
	if (h->side == TKS_REQUEST)
		request_head(ctx, h);
	else
		response_head(ctx, h);
	return 0;
}

/* The exchange whose response is under way. */
static struct tks_exchange *answering(const struct tks_conn *c)
{
	struct tks_exchange *e = tks_exchange_first(c);

	return e && e->answered ? e : NULL;
}

/* Whose request the bytes are: behind an upgrade, that of the one that was upgraded. */
static struct tks_exchange *asking(const struct tks_conn *c)
{
	return c->receiving ?: answering(c);
}

static int on_body(void *ctx, enum tks_side side, const struct tks_slice *s)
{
	struct tks_conn *c = ctx;
	struct tks_exchange *e = side == TKS_REQUEST ? asking(c) : answering(c);

	if (c->h2)
		return tks_h2_conn_feed(c, side, s);
	if (!e)
		return 0;
	if (side == TKS_REQUEST)
		tks_exchange_request_body(e, s);
	else
		tks_exchange_response_body(e, s);
	return 0;
}

static int on_body_gap(void *ctx, enum tks_side side, uint64_t off, uint64_t len)
{
	struct tks_conn *c = ctx;
	struct tks_exchange *e = side == TKS_REQUEST ? asking(c) : answering(c);

	if (c->h2)
		return tks_h2_conn_gap(c, side, off, len);
	if (!e)
		return 0;
	if (side == TKS_REQUEST)
		tks_exchange_request_gap(e, off, len);
	else
		tks_exchange_response_gap(e, off, len);
	return 0;
}

static int on_end(void *ctx, enum tks_side side, uint64_t last_off, enum tks_msg_end how)
{
	struct tks_conn *c = ctx;
	struct tks_exchange *e = side == TKS_REQUEST ? c->receiving : answering(c);

	if (c->h2) {
		tks_h2_conn_eof(c, side, last_off + 1);
		return 0;
	}
	if (side == TKS_REQUEST)
		c->receiving = NULL;
	if (!e)
		return 0;
	if (side == TKS_REQUEST)
		tks_exchange_request_end(e, last_off, how);
	else
		tks_exchange_response_end(e, last_off, how);
	return 0;
}

/* The timeline forgets what was parsed; when each open request began is asked late. */
static uint64_t on_time(void *ctx, enum tks_side side, uint64_t off)
{
	const struct tks_conn *c = ctx;
	const struct tks_stamp *st = tks_exchange_stamp(c, side, off);
	const struct tks_list *l;

	if (st || side == TKS_RESPONSE)
		return st ? st->ts_ns : 0;
	for (l = c->exchanges.next; l != &c->exchanges; l = l->next) {
		const struct tks_exchange *e = tks_list_entry(l, struct tks_exchange, in_conn);

		if (e->begin_off == off && e->rec->t_request_ns != TKS_NULL)
			return (uint64_t)e->rec->t_request_ns;
	}
	return 0;
}

const struct tks_h1_ops tks_exchange_h1_ops = {
	.begin = on_begin,
	.head = on_head,
	.body = on_body,
	.body_gap = on_body_gap,
	.end = on_end,
	.time = on_time,
};

/* --- from the streams --- */

void tks_exchange_h1_hole(struct tks_conn *c, enum tks_side side)
{
	struct tks_exchange *e = side == TKS_REQUEST ? c->receiving : tks_exchange_first(c);
	struct tks_list *l;

	if (c->h2)
		return;
	if (e)
		e->rec->flags |= TKS_F_LOST;
	if (side == TKS_REQUEST)
		return;
	for (l = c->exchanges.next; l != &c->exchanges; l = l->next)
		tks_list_entry(l, struct tks_exchange, in_conn)->maybe_lost = true;
}

void tks_exchange_h1_unreadable(struct tks_conn *c, enum tks_side side)
{
	struct tks_exchange *e = side == TKS_REQUEST ? c->receiving : tks_exchange_first(c);
	struct tks_list *l;

	if (e)
		e->rec->flags |= TKS_F_OPAQUE;
	if (!tks_http1_given_up(c->http))
		return;
	for (l = c->exchanges.next; l != &c->exchanges; l = l->next)
		tks_list_entry(l, struct tks_exchange, in_conn)->rec->flags |= TKS_F_OPAQUE;
}

void tks_exchange_h1_sent(struct tks_conn *c, const struct tks_stamp *st)
{
	struct tks_exchange *e = answering(c);

	if (c->h2 || !st || !st->ret_ns || st->ts_ns == c->wait_ts_ns)
		return;
	c->wait_ts_ns = st->ts_ns;
	if (e && e->rec->send_wait_ns != TKS_NULL)
		tks_exchange_waited(e, st);
	else if (!e && st->ret_ns > st->ts_ns)
		c->carry_wait_ns += (int64_t)(st->ret_ns - st->ts_ns);
}

bool tks_exchange_h1_bulk(const struct tks_conn *c)
{
	const struct tks_exchange *e = answering(c);

	if (c->h2 || !e || !e->dec || e->llm_path || !tks_decoder_wants_no_body(e->dec))
		return false;
	return e->content_length >= BULK_BYTES || e->body_bytes >= BULK_BYTES;
}
