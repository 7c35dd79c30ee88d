// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * An exchange becomes a record if its answer is an LLM's, or if it was a POST to a path that only
 * LLM servers have, so that a request whose client left during prefill, or that was refused, is a
 * record too.
 */
#include "exchange.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "answers.h"
#include "exchange_h2.h"
#include "pipeline_int.h"

const struct tks_stamp *tks_exchange_stamp(const struct tks_conn *c, enum tks_side side,
					   uint64_t off)
{
	enum tks_dir req = tks_conn_request_dir(c);
	enum tks_dir dir = side == TKS_REQUEST ? req : !req;

	return tks_timeline_at(&c->stream[dir].timeline, off);
}

int64_t tks_exchange_time(const struct tks_conn *c, enum tks_side side, uint64_t off)
{
	const struct tks_stamp *st = tks_exchange_stamp(c, side, off);

	return st ? (int64_t)st->ts_ns : TKS_NULL;
}

/* --- life --- */

struct tks_exchange *tks_exchange_new(struct tks_conn *c)
{
	struct tks_pipeline *p = c->pipeline;
	struct tks_exchange *e = tks_mem_alloc(p->mem, sizeof(*e));

	if (!e)
		goto no_memory;
	e->rs = tks_reqstate_new(p->mem, NULL);
	if (!e->rs) {
		tks_mem_free(p->mem, e, sizeof(*e));
		goto no_memory;
	}
	e->conn = c;
	e->rec = tks_reqstate_record(e->rs);
	e->content_length = -1;
	e->begun_ns = TKS_NULL;
	tks_ask_init(&e->ask);
	tks_list_init(&e->answers);
	tks_list_append(&c->exchanges, &e->in_conn);
	tks_list_append(&p->running, &e->running);
	p->counters.open_requests++;
	return e;

no_memory:
	p->counters.no_memory++;
	return NULL;
}

struct tks_exchange *tks_exchange_orphan(struct tks_conn *c)
{
	struct tks_exchange *e = tks_exchange_new(c);

	if (e)
		e->rec->flags |= c->from_start ? TKS_F_LOST : TKS_F_MID_STREAM;
	return e;
}

static void exchange_free(struct tks_exchange *e)
{
	struct tks_conn *c = e->conn;
	struct tks_pipeline *p = c->pipeline;

	if (c->receiving == e)
		c->receiving = NULL;
	if (c->blind == e)
		c->blind = NULL;
	if (e->stream)
		tks_h2_conn_forget(e);
	tks_list_remove(&e->in_conn);
	tks_list_remove(&e->running);
	tks_answers_free(e);
	if (e->parent)
		tks_answers_gone(e->parent);
	tks_decoder_free(e->dec);
	tks_askscan_free(e->askscan);
	tks_reqstate_free(e->rs);
	tks_mem_free(p->mem, e, sizeof(*e));
	p->counters.open_requests--;
}

struct tks_exchange *tks_exchange_first(const struct tks_conn *c)
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

void tks_exchange_count_in(struct tks_exchange *e, int64_t seen_ns)
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

	if (!e->counted || c->pipeline->short_of_memory || tks_pipeline_starved(c) ||
	    tks_conc_query(c->pipeline->conc, c->netns, server_addr(c), at,
			   window ? r->t_first_ns : at, window ? r->t_last_ns : at, &at_start,
			   &mean, &max))
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

		/* A stream of several answers is no request itself. */
		if (t == TKS_NULL || e->asks)
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
	if (!c->untied) {
		tks_endpoint_str(&c->local, r->local);
		tks_endpoint_str(&c->peer, r->peer);
	}
	if (c->tls || c->untied)
		r->transport = "tls";
	else
		r->transport = c->local.family == AF_UNIX ? "unix" : "tcp";
	if (e->parent)
		r->status = e->parent->rec->status;
	r->boundary = c->untied ? TKS_B_TLS : p->cfg.boundary;
	r->max_tokens = e->ask.max_tokens;
	r->n = e->ask.n;
	if (!r->model[0])
		memcpy(r->model, e->ask.model, sizeof(r->model));
	if (r->t_request_ns != TKS_NULL)
		r->start_unix_ns = r->t_request_ns + p->cfg.clock_offset_ns;
	if (!e->answered && e->ask.stream != TKS_NULL)
		r->streamed = TKS_NULL;
}

/* With holes in what was seen or understood, an end that was not seen is not one that was not sent.
 */
static void unsay_end(struct tks_request *r, enum tks_outcome how)
{
	if (!(r->flags & (TKS_F_LOST | TKS_F_OPAQUE | TKS_F_BLIND)) || how == TKS_OUT_COMPLETE)
		return;
	r->t_end_ns = TKS_NULL;
	if (!strcmp(r->finish, "cut") || !strcmp(r->finish, "aborted"))
		r->finish[0] = 0;
}

static void report(struct tks_exchange *e, enum tks_outcome how)
{
	struct tks_pipeline *p = e->conn->pipeline;
	struct tks_request *r = e->rec;
	uint64_t failed;

	fill_identity(e);
	if ((!e->answered && e->maybe_lost) || tks_pipeline_starved(e->conn))
		r->flags |= TKS_F_LOST;
	tks_reqstate_finish(e->rs, how);
	if (tks_pipeline_starved(e->conn))
		r->flags |= TKS_F_LOST;
	unsay_end(r, how);
	concurrency_figures(e, r);
	r->id = p->next_id++;
	p->counters.requests++;
	failed = p->mem->failed;
	if (p->cfg.on_request)
		p->cfg.on_request(p->cfg.ctx, r);
	/* What the receiver could not do is its own affair. */
	p->failed_before += p->mem->failed - failed;
}

/* Of the answers that are open when their stream ends so. */
static enum tks_outcome answers_outcome(const struct tks_exchange *e, enum tks_outcome how)
{
	if (tks_answers_closed(e))
		return TKS_OUT_ABORTED;
	/* Nothing but its close ends a WebSocket, and what is open then is unfinished. */
	return e->rec->status == 101 && how == TKS_OUT_COMPLETE ? tks_exchange_who_left(e->conn)
								: how;
}

void tks_exchange_end(struct tks_exchange *e, enum tks_outcome how)
{
	struct tks_pipeline *p = e->conn->pipeline;
	bool llm = e->parent, silent = false;

	tks_answers_end_all(e, answers_outcome(e, how));
	if (e->dec) {
		tks_decoder_end(e->dec);
		llm = tks_decoder_is_llm(e->dec) == 1;
		silent = tks_decoder_not_generated(e->dec) || tks_decoder_is_other(e->dec);
	}
	/* Its own end must not be in the history yet: it counts in all of its window. */
	if (llm || (e->llm_path && !silent))
		report(e, how);
	count_out(e, (int64_t)e->conn->last_ns);
	exchange_free(e);
	trim_history(p);
}

enum tks_outcome tks_exchange_who_left(const struct tks_conn *c)
{
	bool client = c->fin[tks_conn_request_dir(c)] || c->err == ECONNRESET || c->err == EPIPE;

	return client ? TKS_OUT_ABORTED : TKS_OUT_CUT;
}

void tks_exchange_end_all(struct tks_conn *c, bool open)
{
	struct tks_exchange *e;

	while ((e = tks_exchange_first(c)))
		tks_exchange_end(e, open ? TKS_OUT_OPEN : tks_exchange_who_left(c));
}

/* --- requests --- */

void tks_exchange_request_begin(struct tks_exchange *e, uint64_t off)
{
	e->begin_off = off;
	e->rec->t_request_ns = tks_exchange_time(e->conn, TKS_REQUEST, off);
}

static const char *version(const struct tks_http_head *h)
{
	return h->major == 2 ? "2" : h->minor ? "1.1" : "1.0";
}

void tks_exchange_request_head(struct tks_exchange *e, const struct tks_http_head *h)
{
	char *query;

	if (h->truncated)
		e->rec->flags |= TKS_F_TRUNCATED;
	memcpy(e->rec->method, h->method, sizeof(e->rec->method));
	memcpy(e->target, h->target, sizeof(e->target));
	memcpy(e->rec->path, h->target, sizeof(e->rec->path));
	query = strchr(e->rec->path, '?');
	if (query)
		*query = 0;
	e->rec->http = version(h);
	e->llm_path = !strcmp(h->method, "POST") && tks_path_is_llm(h->target);
	if (e->llm_path)
		e->rec->dialect = tks_path_dialect(h->target);
	if (tks_answers_start(e, h)) {
		e->conn->pipeline->counters.no_memory++;
		return;
	}
	/* A stream that asks for several answers is none itself. */
	e->llm_path &= !e->asks;
	e->askscan = tks_askscan_new(e->conn->pipeline->mem, &e->ask, h);
	if (!e->askscan)
		e->conn->pipeline->counters.no_memory++;
}

void tks_exchange_request_body(struct tks_exchange *e, const struct tks_slice *s)
{
	if (e->asks)
		tks_answers_asked(e, s);
	else if (e->askscan)
		tks_askscan_data(e->askscan, s->data, s->len);
}

void tks_exchange_request_gap(struct tks_exchange *e, uint64_t off, uint64_t len)
{
	if (e->asks)
		tks_answers_asked_gap(e, off, len);
	else if (e->askscan)
		tks_askscan_gap(e->askscan);
}

/* All of it was seen, and nothing of what models are asked is in it: its path means nothing. */
static bool asks_for_other(const struct tks_exchange *e)
{
	return e->ask.is_json && !e->ask.truncated && !e->ask.of_model && !e->ask.empty;
}

void tks_exchange_request_end(struct tks_exchange *e, uint64_t last_off, enum tks_msg_end how)
{
	if (e->askscan) {
		tks_askscan_end(e->askscan);
		tks_askscan_free(e->askscan);
		e->askscan = NULL;
	}
	/* Other services have paths that end so. */
	if (asks_for_other(e))
		e->llm_path = false;
	if (how == TKS_MSG_CUT)
		return;
	e->rec->t_request_end_ns = tks_exchange_time(e->conn, TKS_REQUEST, last_off);
	if (e->llm_path)
		tks_exchange_count_in(e, TKS_NULL);
}

/* --- responses --- */

static void frame_time(void *ctx, struct tks_frame_at *at)
{
	struct tks_exchange *e = ctx;
	const struct tks_stamp *st = tks_exchange_stamp(e->conn, TKS_RESPONSE, at->last_off);

	at->t_ns = st ? (int64_t)st->ts_ns : TKS_NULL;
	at->tls_ns = st ? (int64_t)st->tls_ns : 0;
	at->send_id = st ? st->ts_ns : 0;
}

static struct tks_reqstate *answer(void *ctx, const char *key)
{
	return tks_answers_find(ctx, key);
}

static void answer_over(void *ctx, struct tks_reqstate *rs, uint64_t last_off)
{
	tks_answers_over(ctx, rs, last_off);
}

static void closed(void *ctx)
{
	tks_answers_end_all(ctx, answers_outcome(ctx, TKS_OUT_CUT));
}

static void answers_hole(void *ctx)
{
	tks_answers_hole(ctx);
}

static const struct tks_decoder_host decoder_host = {
	.time_at = frame_time,
	.answer = answer,
	.answer_over = answer_over,
	.closed = closed,
	.hole = answers_hole,
};

void tks_exchange_response_head(struct tks_exchange *e, const struct tks_http_head *h)
{
	const struct tks_decoder_of of = {
		.rs = e->rs,
		.head = h,
		.ask = &e->ask,
		.target = e->target[0] && !asks_for_other(e) ? e->target : NULL,
		.get = !strcmp(e->rec->method, "GET"),
		.mid_connection = !e->conn->from_start,
		.host = &decoder_host,
		.ctx = e,
	};
	struct tks_conn *c = e->conn;

	e->answered = true;
	e->content_length = h->content_length;
	if (h->resumed)
		e->rec->flags |= c->from_start ? TKS_F_LOST : TKS_F_MID_STREAM;
	if (h->status)
		e->rec->status = h->status;
	if (h->truncated)
		e->rec->flags |= TKS_F_TRUNCATED;
	if (!h->resumed || !e->rec->http)
		e->rec->http = h->resumed && h->major != 2 ? "1.1" : version(h);
	e->rec->t_headers_ns = h->resumed ? TKS_NULL
					  : tks_exchange_time(c, TKS_RESPONSE, h->last_off);
	if (h->resumed) {
		tks_reqstate_hole(e->rs);
		tks_answers_hole(e);
	}
	if (h->upgrade && tks_answers_start(e, h))
		c->pipeline->counters.no_memory++;
	e->dec = tks_decoder_new(c->pipeline->mem, &of);
	if (!e->dec)
		c->pipeline->counters.no_memory++;
	if (e->dec && h->grpc_status[0])
		tks_decoder_trailers(e->dec, h->grpc_status);
	if (e->dec && tks_decoder_is_llm(e->dec) == 1)
		tks_exchange_count_in(e, tks_exchange_time(c, TKS_RESPONSE, h->last_off));
}

void tks_exchange_response_body(struct tks_exchange *e, const struct tks_slice *s)
{
	struct tks_conn *c = e->conn;

	e->body_bytes += s->len;
	if (!e->dec)
		return;
	if (tks_decoder_data(e->dec, s)) {
		e->rec->flags |= TKS_F_TRUNCATED;
		c->pipeline->counters.no_memory++;
	}
	if (!e->counted && tks_decoder_is_llm(e->dec) == 1)
		tks_exchange_count_in(e, tks_exchange_time(c, TKS_RESPONSE, s->off));
}

void tks_exchange_response_gap(struct tks_exchange *e, uint64_t off, uint64_t len)
{
	e->body_bytes += len;
	e->rec->flags |= TKS_F_LOST;
	if (e->dec)
		tks_decoder_gap(e->dec, off, len);
}

void tks_exchange_response_end(struct tks_exchange *e, uint64_t last_off, enum tks_msg_end how)
{
	e->rec->t_end_ns = tks_exchange_time(e->conn, TKS_RESPONSE, last_off);
	tks_exchange_end(e, how == TKS_MSG_CUT ? tks_exchange_who_left(e->conn) : TKS_OUT_COMPLETE);
}

/* The hook that sees a unix socket's sends may see their returns only. */
bool tks_exchange_waits_known(const struct tks_conn *c)
{
	return c->pipeline->cfg.boundary == TKS_B_SEND &&
	       (c->local.family != AF_UNIX || c->returns_seen);
}

void tks_exchange_waited(struct tks_exchange *e, const struct tks_stamp *st)
{
	if (!st || !st->ret_ns || st->ts_ns == e->wait_ts_ns)
		return;
	e->wait_ts_ns = st->ts_ns;
	if (e->rec->send_wait_ns == TKS_NULL)
		e->rec->send_wait_ns = 0;
	if (st->ret_ns > st->ts_ns)
		e->rec->send_wait_ns += (int64_t)(st->ret_ns - st->ts_ns);
}
