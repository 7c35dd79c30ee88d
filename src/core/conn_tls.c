// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "conn_tls.h"

#include <errno.h>

#include "blind.h"
#include "http2.h"
#include "pipeline_int.h"
#include "tls_record.h"

bool tks_conn_tls_begins(const struct tks_conn *c, const struct tks_event *ev)
{
	const struct tks_stream *s = &c->stream[ev->dir];

	if (c->trusted || c->untied || (c->proto != TKS_PROTO_UNKNOWN && c->from_start))
		return false;
	if (c->from_start && (s->next || ev->seq != s->next_seq))
		return false;
	return tks_tls_begins(ev->data, ev->cap);
}

int tks_conn_tls_start(struct tks_conn *c)
{
	c->tls = tks_tls_conn_new(c->pipeline->tls, c);
	if (!c->tls)
		return -ENOMEM;
	for (int dir = TKS_RX; c->from_start && dir <= TKS_TX; dir++)
		tks_tls_conn_start(c->tls, dir, c->stream[dir].next_seq);
	tks_pipeline_streams_init(c);
	return 0;
}

void tks_conn_tls_verdict(const struct tks_conn *c, enum tks_verdict v)
{
	const struct tks_pipeline_config *cfg = &c->pipeline->cfg;
	uint32_t pid = c->proc.pid;
	uint64_t obj = c->untied;

	if (cfg->on_obj_verdict && (obj || (c->tls && tks_tls_conn_obj(c->tls, &pid, &obj))))
		cfg->on_obj_verdict(cfg->ctx, pid, obj, v);
}

void tks_conn_tls_free(struct tks_conn *c)
{
	tks_tls_conn_free(c->tls);
	c->tls = NULL;
	if (c->untied)
		tks_tls_disown(c->pipeline->tls, c->proc.pid, c->untied);
}

/* --- what tls.c finds --- */

static void start_plain(struct tks_conn *c, bool whole)
{
	c->from_start = whole;
	if (!whole)
		return;
	tks_stream_start(&c->stream[TKS_RX], 0);
	tks_stream_start(&c->stream[TKS_TX], 0);
}

static void on_tied(void *ctx, void *conn, const struct tks_process *proc, bool whole)
{
	struct tks_conn *c = conn;

	(void)ctx;
	tks_blind_void(c);
	c->proc = *proc;
	/* Another object's came before (one that was freed unseen): what it said is over. */
	if (c->stream[TKS_RX].started || c->stream[TKS_TX].started) {
		if (c->proto != TKS_PROTO_IGNORED)
			tks_pipeline_drop_protocol(c, true);
		tks_pipeline_streams_init(c);
		whole = false;
	}
	start_plain(c, whole && c->from_start);
}

/* Who asks and who answers shows with the first bytes, where nothing was seen of a connection. */
static void guess_role(struct tks_conn *c, enum tks_dir dir, const struct tks_segment *seg)
{
	bool asks = tks_http1_sniff(TKS_REQUEST, seg->data, seg->cap) == 1 ||
		    tks_http2_sniff(TKS_REQUEST, seg->data, seg->cap) == 1;

	if (c->role == TKS_ROLE_UNKNOWN && c->from_start)
		c->role = asks == (dir == TKS_RX) ? TKS_ROLE_SERVER : TKS_ROLE_CLIENT;
}

static void on_plain(void *ctx, void *conn, enum tks_dir dir, const struct tks_segment *seg)
{
	struct tks_pipeline *p = ctx;
	struct tks_conn *c = conn;

	if (c->proto == TKS_PROTO_IGNORED)
		return;
	if (c->last_ns < seg->ts_ns)
		c->last_ns = seg->ts_ns;
	tks_conns_touch(&p->conns, c);
	if (c->untied)
		guess_role(c, dir, seg);
	if (tks_stream_add(&c->stream[dir], seg) == -ENOMEM)
		p->counters.no_memory++;
}

static void *on_untied(void *ctx, const struct tks_process *proc, uint64_t obj, bool whole)
{
	const struct tks_event nobody = { .role = TKS_ROLE_UNKNOWN };
	struct tks_pipeline *p = ctx;
	struct tks_conn *c;

	if (!p->cfg.untied)
		return NULL;
	/* Socket cookies are counted from 1 on. */
	c = tks_pipeline_conn_new(p, 1ull << 63 | ++p->next_untied, &nobody);
	if (!c)
		return NULL;
	c->untied = obj;
	c->proc = *proc;
	start_plain(c, whole);
	return c;
}

static void on_unwanted(void *ctx, const struct tks_process *proc, uint64_t obj)
{
	const struct tks_pipeline_config *cfg = &((struct tks_pipeline *)ctx)->cfg;

	if (cfg->on_obj_verdict)
		cfg->on_obj_verdict(cfg->ctx, proc->pid, obj, TKS_VERDICT_IGNORE);
}

static void on_gone(void *ctx, void *conn)
{
	struct tks_conn *c = conn;

	(void)ctx;
	c->untied = 0;
	tks_pipeline_conn_over(c);
}

static void on_closed(void *ctx, void *conn, enum tks_dir dir, const struct tks_stamp *st,
		      uint32_t len)
{
	struct tks_conn *c = conn;

	(void)ctx;
	if (c->proto != TKS_PROTO_IGNORED)
		tks_blind_record(c, dir, st, len);
}

static void on_past(void *ctx, void *conn, const struct tks_stamp *st)
{
	struct tks_conn *c = conn;

	(void)ctx;
	if (c->proto != TKS_PROTO_IGNORED)
		tks_blind_past(c, st);
}

const struct tks_tls_ops tks_conn_tls_ops = {
	.tied = on_tied,
	.plain = on_plain,
	.untied = on_untied,
	.unwanted = on_unwanted,
	.gone = on_gone,
	.closed = on_closed,
	.past = on_past,
};
