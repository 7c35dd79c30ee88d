// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "blind.h"

#include "exchange.h"
#include "pipeline_int.h"
#include "tls_record.h"

enum {
	SMALL = 64, /* payload of what a client sends while it is answered (HTTP/2's windows) */
	NOTICE_NS = 900000000, /* less than the pipeline takes a connection for active */
};

/* Who is the server shows nowhere: it has the lower port, mostly. */
static bool is_server(const struct tks_conn *c)
{
	if (c->role != TKS_ROLE_UNKNOWN)
		return c->role == TKS_ROLE_SERVER;
	return c->local.port < c->peer.port;
}

static void finish(struct tks_conn *c, bool report, enum tks_outcome how)
{
	struct tks_exchange *e = c->blind;

	c->blind = NULL;
	/* One that is no LLM's makes no record. */
	e->llm_path = report && e->rec->frames >= TKS_BLIND_FRAMES;
	tks_exchange_end(e, how);
}

static void begin(struct tks_conn *c, const struct tks_stamp *st)
{
	struct tks_exchange *e = tks_exchange_new(c);

	c->blind = e;
	if (!e)
		return;
	e->answered = true;
	e->rec->dialect = "unknown";
	e->rec->streamed = 1;
	e->rec->flags |= TKS_F_BLIND | TKS_F_ESTIMATED;
	e->rec->t_request_ns = (int64_t)st->ts_ns;
}

static void request(struct tks_conn *c, const struct tks_stamp *st, uint32_t len)
{
	if (c->blind && c->blind->rec->frames) {
		if (len <= SMALL)
			return;
		finish(c, true, TKS_OUT_COMPLETE);
	}
	if (!c->blind)
		begin(c, st);
	if (c->blind)
		c->blind->rec->t_request_end_ns = (int64_t)st->ts_ns;
}

static void answer(struct tks_conn *c, const struct tks_stamp *st)
{
	struct tks_frame_at at = { .t_ns = (int64_t)st->ts_ns, .send_id = st->ts_ns };

	if (!c->blind)
		return;
	c->blind->rec->frames++;
	c->blind->rec->t_end_ns = at.t_ns;
	if (tks_reqstate_bytes(c->blind->rs, &at))
		c->pipeline->counters.no_memory++;
}

void tks_blind_record(struct tks_conn *c, enum tks_dir dir, const struct tks_stamp *st,
		      uint32_t len)
{
	if (!is_server(c))
		return;
	if (dir == TKS_TX && !c->blind_since_ns)
		c->blind_since_ns = st->ts_ns;
	if (dir == TKS_RX)
		request(c, st, len);
	else
		answer(c, st);
}

void tks_blind_past(struct tks_conn *c, const struct tks_stamp *st)
{
	if (!c->blind_since_ns)
		c->blind_since_ns = st->ts_ns;
	for (struct tks_list *l = c->exchanges.next; l != &c->exchanges; l = l->next)
		tks_list_entry(l, struct tks_exchange, in_conn)->rec->flags |= TKS_F_BLIND;
}

void tks_blind_void(struct tks_conn *c)
{
	if (c->blind)
		finish(c, false, TKS_OUT_COMPLETE);
	c->blind_since_ns = 0;
}

void tks_blind_end(struct tks_conn *c, bool open)
{
	if (c->blind)
		finish(c, true, open ? TKS_OUT_OPEN : TKS_OUT_COMPLETE);
}

bool tks_blind_noticed(struct tks_conn *c, uint64_t now_ns)
{
	if (c->blind_told || !c->blind_since_ns || c->blind_since_ns + NOTICE_NS > now_ns)
		return false;
	c->blind_told = true;
	return true;
}
