// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Exchanges. Requests open them, in order; responses are matched to them in that order (RFC 9112,
 * section 9.3). A response without a request (attached in its middle, or the request was lost)
 * opens one of its own, flagged.
 *
 * An exchange becomes a record if its answer is an LLM's, or if it was a POST to a path that only
 * LLM servers have, so that a request whose client left during prefill, or that was refused, is a
 * record too.
 */
#include "exchange.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "decoder.h"
#include "pipeline_int.h"
#include "reqstate.h"

enum { BULK_BYTES = 1 << 20 }; /* an answer that is not ours is bulk from here on */

struct tks_exchange {
	struct tks_list in_conn, running;
	struct tks_conn *conn;
	struct tks_reqstate *rs;
	struct tks_request *rec;
	struct tks_decoder *dec;
	struct tks_askscan *askscan;
	struct tks_ask ask;
	char target[256];
	uint64_t begin_off; /* of the request's first byte, where seen */
	uint64_t body_bytes;
	int64_t content_length; /* of the response, -1: not said */
	bool llm_path;
	bool answered; /* the response's head was seen */
	bool maybe_lost; /* bytes of the response direction were, while it waited */
	bool counted; /* entered into the concurrency history, from begun_ns on */
	int64_t begun_ns;
};

static const struct tks_stamp *stamp_at(const struct tks_conn *c, enum tks_side side, uint64_t off)
{
	enum tks_dir req = tks_conn_request_dir(c);
	enum tks_dir dir = side == TKS_REQUEST ? req : !req;

	return tks_timeline_at(&c->stream[dir].timeline, off);
}

static int64_t time_at(const struct tks_conn *c, enum tks_side side, uint64_t off)
{
	const struct tks_stamp *st = stamp_at(c, side, off);

	return st ? (int64_t)st->ts_ns : TKS_NULL;
}

/* --- life --- */

static struct tks_exchange *exchange_new(struct tks_conn *c)
{
	struct tks_pipeline *p = c->pipeline;
	struct tks_exchange *e = tks_mem_alloc(p->mem, sizeof(*e));

	if (!e)
		return NULL;
	e->rs = tks_reqstate_new(p->mem, NULL);
	if (!e->rs) {
		tks_mem_free(p->mem, e, sizeof(*e));
		return NULL;
	}
	e->conn = c;
	e->rec = tks_reqstate_record(e->rs);
	e->content_length = -1;
	e->begun_ns = TKS_NULL;
	tks_ask_init(&e->ask);
	tks_list_append(&c->exchanges, &e->in_conn);
	tks_list_append(&p->running, &e->running);
	p->counters.open_requests++;
	return e;
}

static void exchange_free(struct tks_exchange *e)
{
	struct tks_conn *c = e->conn;
	struct tks_pipeline *p = c->pipeline;

	if (c->receiving == e)
		c->receiving = NULL;
	tks_list_remove(&e->in_conn);
	tks_list_remove(&e->running);
	tks_decoder_free(e->dec);
	tks_askscan_free(e->askscan);
	tks_reqstate_free(e->rs);
	tks_mem_free(p->mem, e, sizeof(*e));
	p->counters.open_requests--;
}

/* The one whose response is under way or comes next, or NULL. */
static struct tks_exchange *first(const struct tks_conn *c)
{
	if (tks_list_empty(&c->exchanges))
		return NULL;
	return tks_list_entry(c->exchanges.next, struct tks_exchange, in_conn);
}

/* --- concurrency --- */

static const struct tks_endpoint *server_addr(const struct tks_conn *c)
{
	return c->role == TKS_ROLE_CLIENT ? &c->peer : &c->local;
}

/* Enters the exchange into the history as soon as it is known to be of interest. */
static void count_in(struct tks_exchange *e, int64_t seen_ns)
{
	struct tks_conn *c = e->conn;
	int64_t t = e->rec->t_request_end_ns;

	if (e->counted)
		return;
	if (t == TKS_NULL)
		t = seen_ns;
	if (t == TKS_NULL || tks_conc_begin(c->pipeline->conc, c->netns, server_addr(c), t))
		return;
	e->counted = true;
	e->begun_ns = t;
}

static void count_out(struct tks_exchange *e, int64_t now)
{
	struct tks_conn *c = e->conn;
	int64_t t = e->rec->t_end_ns;

	if (!e->counted)
		return;
	if (t == TKS_NULL || t < e->begun_ns)
		t = now > e->begun_ns ? now : e->begun_ns;
	if (tks_conc_end(c->pipeline->conc, c->netns, server_addr(c), t))
		c->pipeline->counters.no_memory++;
}

static void concurrency_figures(struct tks_exchange *e, struct tks_request *r)
{
	struct tks_conn *c = e->conn;
	bool window = r->t_first_ns != TKS_NULL && r->t_last_ns != TKS_NULL;
	int64_t at = e->begun_ns, at_start, max;
	double mean;

	if (!e->counted || tks_conc_query(c->pipeline->conc, c->netns, server_addr(c), at,
					  window ? r->t_first_ns : at, window ? r->t_last_ns : at,
					  &at_start, &mean, &max))
		return;
	if (r->t_request_end_ns != TKS_NULL)
		r->conc_at_start = at_start;
	if (!window)
		return;
	r->conc_mean = mean;
	r->conc_max = max;
}

/* History before the oldest exchange still running will not be asked for again. */
static void trim_history(struct tks_pipeline *p)
{
	struct tks_list *l;

	for (l = p->running.next; l != &p->running; l = l->next) {
		struct tks_exchange *e = tks_list_entry(l, struct tks_exchange, running);
		int64_t t = e->rec->t_request_ns != TKS_NULL ? e->rec->t_request_ns : e->begun_ns;

		if (t == TKS_NULL)
			continue;
		tks_conc_trim(p->conc, t);
		return;
	}
}

/* --- the record --- */

static void fill_identity(struct tks_exchange *e)
{
	struct tks_conn *c = e->conn;
	struct tks_pipeline *p = c->pipeline;
	struct tks_request *r = e->rec;

	if (c->proc.pid) {
		r->pid = c->proc.pid;
		r->cgroup_id = c->proc.cgroup;
		memcpy(r->comm, c->proc.comm, sizeof(r->comm));
	}
	tks_endpoint_str(&c->local, r->local);
	tks_endpoint_str(&c->peer, r->peer);
	r->transport = "tcp";
	r->boundary = p->cfg.boundary;
	r->max_tokens = e->ask.max_tokens;
	r->n = e->ask.n;
	if (!r->model[0])
		memcpy(r->model, e->ask.model, sizeof(r->model));
	if (r->t_request_ns != TKS_NULL)
		r->start_unix_ns = r->t_request_ns + p->cfg.clock_offset_ns;
	if (!e->answered && e->ask.stream != TKS_NULL)
		r->streamed = TKS_NULL;
}

/* With holes in what was seen, an end that was not seen is not one that was not sent. */
static void unsay_end(struct tks_request *r, enum tks_outcome how)
{
	if (!(r->flags & TKS_F_LOST) || how == TKS_OUT_COMPLETE)
		return;
	r->t_end_ns = TKS_NULL;
	if (!strcmp(r->finish, "cut") || !strcmp(r->finish, "aborted"))
		r->finish[0] = 0;
}

static void report(struct tks_exchange *e, enum tks_outcome how)
{
	struct tks_pipeline *p = e->conn->pipeline;
	struct tks_request *r = e->rec;

	fill_identity(e);
	if (!e->answered && e->maybe_lost)
		r->flags |= TKS_F_LOST;
	tks_reqstate_finish(e->rs, how);
	unsay_end(r, how);
	concurrency_figures(e, r);
	r->id = p->next_id++;
	p->counters.requests++;
	if (p->cfg.on_request)
		p->cfg.on_request(p->cfg.ctx, r);
}

static void exchange_end(struct tks_exchange *e, enum tks_outcome how)
{
	struct tks_pipeline *p = e->conn->pipeline;
	int llm = 0;

	if (e->dec) {
		tks_decoder_end(e->dec);
		llm = tks_decoder_is_llm(e->dec) == 1;
	}
	/* Its own end must not be in the history yet: it counts in all of its window. */
	if (llm || (e->llm_path && !(e->dec && tks_decoder_not_generated(e->dec))))
		report(e, how);
	count_out(e, (int64_t)e->conn->last_ns);
	exchange_free(e);
	trim_history(p);
}

/* Nothing more will come of the response, which was not whole. */
static enum tks_outcome who_left(const struct tks_conn *c)
{
	bool client = c->fin[tks_conn_request_dir(c)] || c->err == ECONNRESET || c->err == EPIPE;

	return client ? TKS_OUT_ABORTED : TKS_OUT_CUT;
}

void tks_exchange_end_all(struct tks_conn *c, bool open)
{
	struct tks_exchange *e;

	while ((e = first(c)))
		exchange_end(e, open ? TKS_OUT_OPEN : who_left(c));
}

/* --- requests --- */

static void on_begin(void *ctx, enum tks_side side, uint64_t off)
{
	struct tks_conn *c = ctx;
	struct tks_exchange *e;

	if (side != TKS_REQUEST)
		return;
	e = exchange_new(c);
	c->receiving = e;
	if (!e) {
		c->pipeline->counters.no_memory++;
		return;
	}
	e->begin_off = off;
	e->rec->t_request_ns = time_at(c, side, off);
}

static int request_head(struct tks_conn *c, const struct tks_http_head *h)
{
	struct tks_exchange *e = c->receiving;
	char *query;

	if (!e)
		return 0;
	c->trusted = true;
	if (h->truncated)
		e->rec->flags |= TKS_F_TRUNCATED;
	memcpy(e->rec->method, h->method, sizeof(e->rec->method));
	memcpy(e->target, h->target, sizeof(e->target));
	memcpy(e->rec->path, h->target, sizeof(e->rec->path));
	query = strchr(e->rec->path, '?');
	if (query)
		*query = 0;
	e->rec->http = h->minor ? "1.1" : "1.0";
	e->llm_path = !strcmp(h->method, "POST") && tks_path_is_llm(h->target);
	if (e->llm_path)
		e->rec->dialect = tks_path_dialect(h->target);
	e->askscan = tks_askscan_new(c->pipeline->mem, &e->ask);
	if (!e->askscan)
		c->pipeline->counters.no_memory++;
	return 0;
}

static void request_end(struct tks_conn *c, uint64_t last_off, enum tks_msg_end how)
{
	struct tks_exchange *e = c->receiving;

	if (!e)
		return;
	c->receiving = NULL;
	if (e->askscan) {
		tks_askscan_end(e->askscan);
		tks_askscan_free(e->askscan);
		e->askscan = NULL;
	}
	if (how == TKS_MSG_CUT)
		return;
	e->rec->t_request_end_ns = time_at(c, TKS_REQUEST, last_off);
	if (e->llm_path)
		count_in(e, TKS_NULL);
}

/* --- responses --- */

static void frame_time(void *ctx, struct tks_frame_at *at)
{
	struct tks_exchange *e = ctx;
	const struct tks_stamp *st = stamp_at(e->conn, TKS_RESPONSE, at->last_off);

	at->t_ns = st ? (int64_t)st->ts_ns : TKS_NULL;
	at->send_id = st ? st->ts_ns : 0;
}

static const struct tks_decoder_host decoder_host = { .time_at = frame_time };

/* A response nobody asked for, as far as was seen. */
static struct tks_exchange *orphan(struct tks_conn *c)
{
	struct tks_exchange *e = exchange_new(c);

	if (!e) {
		c->pipeline->counters.no_memory++;
		return NULL;
	}
	e->rec->flags |= c->from_start ? TKS_F_LOST : TKS_F_MID_STREAM;
	return e;
}

static int response_head(struct tks_conn *c, const struct tks_http_head *h)
{
	struct tks_exchange *e = first(c);
	struct tks_decoder_of of = { .head = h, .host = &decoder_host };

	c->trusted = true;
	if (!e || e->answered)
		e = orphan(c);
	if (!e)
		return 0;
	of.rs = e->rs;
	of.ask = &e->ask;
	of.target = e->target[0] ? e->target : NULL;
	of.get = !strcmp(e->rec->method, "GET");
	of.ctx = e;
	e->answered = true;
	e->content_length = h->content_length;
	if (h->resumed)
		e->rec->flags |= c->from_start ? TKS_F_LOST : TKS_F_MID_STREAM;
	else
		e->rec->status = h->status;
	if (!h->resumed || !e->rec->http)
		e->rec->http = h->minor || h->resumed ? "1.1" : "1.0";
	e->rec->t_headers_ns = h->resumed ? TKS_NULL : time_at(c, TKS_RESPONSE, h->last_off);
	if (h->resumed)
		tks_reqstate_hole(e->rs);
	else if (c->pipeline->cfg.boundary == TKS_B_SEND)
		e->rec->send_wait_ns = c->carry_wait_ns;
	c->carry_wait_ns = 0;
	e->dec = tks_decoder_new(c->pipeline->mem, &of);
	if (!e->dec)
		c->pipeline->counters.no_memory++;
	if (e->dec && tks_decoder_is_llm(e->dec) == 1)
		count_in(e, time_at(c, TKS_RESPONSE, h->last_off));
	return 0;
}

static int response_body(struct tks_conn *c, const struct tks_slice *s)
{
	struct tks_exchange *e = first(c);

	if (!e || !e->answered)
		return 0;
	e->body_bytes += s->len;
	if (!e->dec)
		return 0;
	if (tks_decoder_data(e->dec, s)) {
		e->rec->flags |= TKS_F_TRUNCATED;
		c->pipeline->counters.no_memory++;
	}
	if (!e->counted && tks_decoder_is_llm(e->dec) == 1)
		count_in(e, time_at(c, TKS_RESPONSE, s->off));
	return 0;
}

static void response_end(struct tks_conn *c, uint64_t last_off, enum tks_msg_end how)
{
	struct tks_exchange *e = first(c);

	if (!e || !e->answered)
		return;
	e->rec->t_end_ns = time_at(c, TKS_RESPONSE, last_off);
	exchange_end(e, how == TKS_MSG_CUT ? who_left(c) : TKS_OUT_COMPLETE);
}

/* --- what http1.c calls --- */

static int on_head(void *ctx, const struct tks_http_head *h)
{
	return h->side == TKS_REQUEST ? request_head(ctx, h) : response_head(ctx, h);
}

static int on_body(void *ctx, enum tks_side side, const struct tks_slice *s)
{
	struct tks_conn *c = ctx;

	if (side == TKS_RESPONSE)
		return response_body(c, s);
	if (c->receiving && c->receiving->askscan)
		tks_askscan_data(c->receiving->askscan, s->data, s->len);
	return 0;
}

static int on_body_gap(void *ctx, enum tks_side side, uint64_t off, uint64_t len)
{
	struct tks_conn *c = ctx;
	struct tks_exchange *e = first(c);

	if (side == TKS_REQUEST) {
		if (c->receiving && c->receiving->askscan)
			tks_askscan_gap(c->receiving->askscan);
		return 0;
	}
	if (!e || !e->answered)
		return 0;
	e->body_bytes += len;
	e->rec->flags |= TKS_F_LOST;
	if (e->dec)
		tks_decoder_gap(e->dec, off, len);
	return 0;
}

static int on_end(void *ctx, enum tks_side side, uint64_t last_off, enum tks_msg_end how)
{
	if (side == TKS_REQUEST)
		request_end(ctx, last_off, how);
	else
		response_end(ctx, last_off, how);
	return 0;
}

/* The timeline forgets what was parsed; when each open request began is asked late. */
static uint64_t on_time(void *ctx, enum tks_side side, uint64_t off)
{
	const struct tks_stamp *st = stamp_at(ctx, side, off);
	const struct tks_conn *c = ctx;
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

const struct tks_h1_ops tks_exchange_ops = {
	.begin = on_begin,
	.head = on_head,
	.body = on_body,
	.body_gap = on_body_gap,
	.end = on_end,
	.time = on_time,
};

/* --- from the streams --- */

void tks_exchange_hole(struct tks_conn *c, enum tks_side side)
{
	struct tks_exchange *e = side == TKS_REQUEST ? c->receiving : first(c);
	struct tks_list *l;

	if (e)
		e->rec->flags |= TKS_F_LOST;
	if (side == TKS_REQUEST)
		return;
	for (l = c->exchanges.next; l != &c->exchanges; l = l->next)
		tks_list_entry(l, struct tks_exchange, in_conn)->maybe_lost = true;
}

void tks_exchange_sent(struct tks_conn *c, const struct tks_stamp *st)
{
	struct tks_exchange *e = first(c);
	int64_t wait;

	if (!st || !st->ret_ns || st->ts_ns == c->wait_ts_ns)
		return;
	c->wait_ts_ns = st->ts_ns;
	wait = st->ret_ns > st->ts_ns ? (int64_t)(st->ret_ns - st->ts_ns) : 0;
	if (!e || !e->answered)
		c->carry_wait_ns += wait;
	else if (e->rec->send_wait_ns != TKS_NULL)
		e->rec->send_wait_ns += wait;
}

bool tks_exchange_bulk(const struct tks_conn *c)
{
	const struct tks_exchange *e = first(c);

	if (!e || !e->answered || !e->dec || e->llm_path || !tks_decoder_wants_no_body(e->dec))
		return false;
	return e->content_length >= BULK_BYTES || e->body_bytes >= BULK_BYTES;
}
