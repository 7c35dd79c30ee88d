// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The pipeline's spine: finds the connection of an event, feeds its streams, decides what it
 * speaks, and tells the source how much of it is still wanted.
 *
 * What a connection speaks is looked at once, at its first bytes. Which side is the server is known
 * from its establishment; attached in the middle, it is told by the first message start that either
 * direction shows, and until then the side that sends is taken for the server.
 */
#include "tokensnoop/pipeline.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "blind.h"
#include "conn_tls.h"
#include "exchange_h1.h"
#include "exchange_h2.h"
#include "pipeline_int.h"
#include "tls_record.h"

enum {
	CONNECTIONS_MAX = 65536,
	SEARCH_BYTES =
		4 << 20, /* looked through for a message's start before a connection is given up */
	CLOSE_NS = 200000000, /* a closed connection's missing bytes are waited for so long */
	ACTIVE_NS = 1000000000, /* holes are looked for on connections with events this recently */
	AHEAD_NS = 100000000, /* an answer's request is waited for so long */
	AHEAD_MAX = 64, /* sends kept meanwhile */
};

struct tks_pipeline *tks_pipeline_new(const struct tks_pipeline_config *cfg, int *err)
{
	struct tks_pipeline *p = tks_mem_alloc(cfg->mem, sizeof(*p));

	*err = -ENOMEM;
	if (!p)
		return NULL;
	p->cfg = *cfg;
	p->mem = cfg->mem;
	p->next_id = 1;
	tks_list_init(&p->running);
	tks_early_init(&p->early, p->mem);
	if (tks_conns_init(&p->conns, p->mem,
			   cfg->max_connections ? cfg->max_connections : CONNECTIONS_MAX))
		goto free_pipeline;
	p->conc = tks_conc_new(p->mem);
	if (!p->conc)
		goto free_conns;
	if (p->cfg.plaintext) {
		p->tls = tks_tls_new(p->mem, &tks_conn_tls_ops, p);
		if (!p->tls)
			goto free_conc;
	}
	*err = 0;
	return p;

free_conc:
	tks_conc_free(p->conc);
free_conns:
	tks_conns_free(&p->conns);
free_pipeline:
	tks_mem_free(p->mem, p, sizeof(*p));
	return NULL;
}

/* --- verdicts --- */

static void set_verdict(struct tks_conn *c, enum tks_verdict v)
{
	const struct tks_pipeline_config *cfg = &c->pipeline->cfg;

	if (c->verdict == v)
		return;
	c->verdict = v;
	if (cfg->on_verdict && !c->untied)
		cfg->on_verdict(cfg->ctx, c->key, v);
	tks_conn_tls_verdict(c, v);
}

void tks_pipeline_drop_protocol(struct tks_conn *c, bool open)
{
	tks_exchange_end_all(c, open);
	tks_http1_free(c->http);
	c->http = NULL;
	tks_h2_conn_free(c);
	c->proto = TKS_PROTO_UNKNOWN;
}

/*
 * The connection is of no interest any more; it stays known so that its later events are not taken
 * for news. Its streams may be what is calling, so they are freed by release().
 */
static void ignore(struct tks_conn *c)
{
	tks_pipeline_drop_protocol(c, true);
	c->proto = TKS_PROTO_IGNORED;
	set_verdict(c, TKS_VERDICT_IGNORE);
}

static void release(struct tks_conn *c)
{
	if (c->proto != TKS_PROTO_IGNORED)
		return;
	tks_stream_free(&c->stream[TKS_RX]);
	tks_stream_free(&c->stream[TKS_TX]);
}

/* --- what it speaks --- */

static void no_memory(struct tks_conn *c)
{
	c->pipeline->counters.no_memory++;
}

static bool start_http1(struct tks_conn *c)
{
	c->http = tks_http1_new(c->pipeline->mem, &tks_exchange_h1_ops, c);
	if (!c->http) {
		no_memory(c);
		return false;
	}
	c->proto = TKS_PROTO_HTTP1;
	if (!c->from_start)
		tks_http1_mid_stream(c->http);
	return true;
}

static bool start_http2(struct tks_conn *c)
{
	if (tks_h2_conn_start(c, !c->from_start)) {
		no_memory(c);
		return false;
	}
	c->proto = TKS_PROTO_HTTP2;
	return true;
}

/* The role that the start of a message shows, or unknown. */
static enum tks_role role_shown(enum tks_dir dir, const struct tks_slice *s)
{
	if (tks_http1_sniff(TKS_REQUEST, s->data, s->len) == 1)
		return dir == TKS_RX ? TKS_ROLE_SERVER : TKS_ROLE_CLIENT;
	if (tks_http1_sniff(TKS_RESPONSE, s->data, s->len) == 1)
		return dir == TKS_TX ? TKS_ROLE_SERVER : TKS_ROLE_CLIENT;
	return TKS_ROLE_UNKNOWN;
}

/* A role learnt late: what was parsed under the wrong one is void. */
static void settle_role(struct tks_conn *c, enum tks_role role)
{
	if (c->role == role)
		return;
	c->role = role;
	if (c->proto == TKS_PROTO_HTTP1 || c->proto == TKS_PROTO_HTTP2)
		tks_pipeline_drop_protocol(c, true);
}

/* Entered in the middle, and this is HTTP/2 in its middle. */
static void look_for_http2(struct tks_conn *c, enum tks_dir dir, const struct tks_slice *s)
{
	int side;

	if (c->proto == TKS_PROTO_HTTP2 || tks_http2_sniff_middle(s->data, s->len, &side) != 1)
		return;
	if (side >= 0)
		settle_role(c, (side == TKS_REQUEST) == (dir == TKS_RX) ? TKS_ROLE_SERVER
									: TKS_ROLE_CLIENT);
	else if (c->role == TKS_ROLE_UNKNOWN)
		c->role = dir == TKS_TX ? TKS_ROLE_SERVER : TKS_ROLE_UNKNOWN;
	if (c->role == TKS_ROLE_UNKNOWN)
		return;
	tks_pipeline_drop_protocol(c, true);
	start_http2(c);
}

/* The first bytes of a direction: encrypted? */
static bool look_first(struct tks_conn *c, enum tks_dir dir, const struct tks_slice *s)
{
	c->first_seen[dir] = true;
	if (c->tls || c->untied || !tks_tls_looks_like(s->data, s->len))
		return true;
	c->pipeline->counters.encrypted++;
	ignore(c);
	return false;
}

static bool look(struct tks_conn *c, enum tks_dir dir, const struct tks_slice *s)
{
	enum tks_role shown;

	if (!c->first_seen[dir] && !look_first(c, dir, s))
		return false;
	if (!c->from_start && !c->trusted) {
		shown = role_shown(dir, s);
		if (shown != TKS_ROLE_UNKNOWN)
			settle_role(c, shown);
		else
			look_for_http2(c, dir, s);
		c->searched += s->len;
		if (c->searched > SEARCH_BYTES) {
			ignore(c);
			return false;
		}
	}
	if (c->role == TKS_ROLE_UNKNOWN && dir == TKS_TX)
		c->role = TKS_ROLE_SERVER;
	if (c->role == TKS_ROLE_UNKNOWN)
		return false;
	if (c->role == TKS_ROLE_CLIENT && !c->pipeline->cfg.client_side) {
		ignore(c);
		return false;
	}
	return true;
}

/* --- streams to parser --- */

static struct tks_conn *conn_of(const struct tks_stream *s, enum tks_dir dir)
{
	return tks_list_entry(s, struct tks_conn, stream[dir]);
}

static int feed_http1(struct tks_conn *c, enum tks_dir dir, enum tks_side side,
		      const struct tks_slice *s)
{
	if (dir == TKS_TX && side == TKS_RESPONSE)
		tks_exchange_h1_sent(c, tks_timeline_at(&c->stream[dir].timeline, s->off));
	return tks_http1_feed(c->http, side, s);
}

static void feed(struct tks_conn *c, enum tks_dir dir, const struct tks_slice *s)
{
	enum tks_side side = tks_conn_side(c, dir);
	int err;

	err = c->proto == TKS_PROTO_HTTP2 ? tks_h2_conn_feed(c, side, s)
					  : feed_http1(c, dir, side, s);
	if (err == -EBADMSG) {
		c->pipeline->counters.bad_messages++;
		if (c->http)
			tks_exchange_h1_unreadable(c, side);
	}
	if (err == -ENOMEM)
		no_memory(c);
	/* Seen from its first byte and not HTTP: it will not become so. */
	if (err == -EBADMSG &&
	    ((c->from_start && !c->trusted) || (c->http && tks_http1_given_up(c->http))))
		ignore(c);
}

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum { PREFACE_SURE = 16 }; /* so many bytes of it are nothing else */

/* Starts the protocol. What was held back of what may have been a preface is fed first. */
static bool start(struct tks_conn *c, bool http2)
{
	const struct tks_slice held = { (const uint8_t *)preface, c->npreface, 0 };

	if (!(http2 ? start_http2(c) : start_http1(c)))
		return false;
	if (held.len)
		feed(c, tks_conn_request_dir(c), &held);
	return c->proto != TKS_PROTO_IGNORED;
}

/*
 * The first bytes of a connection seen from its beginning: HTTP/2, if the client begins with its
 * preface, or a server that knows so beforehand with a SETTINGS frame (of a length below 2^16, so
 * that its first byte is 0). True: go on with what is left of s.
 */
static bool look_at_beginning(struct tks_conn *c, enum tks_side side, struct tks_slice *s)
{
	if (side == TKS_RESPONSE)
		return start(c, s->len && !*s->data);
	while (s->len && c->npreface < PREFACE_SURE && s->off == c->npreface &&
	       *s->data == (uint8_t)preface[c->npreface]) {
		c->npreface++;
		s->data++;
		s->off++;
		s->len--;
	}
	if (!s->len && c->npreface < PREFACE_SURE)
		return false;
	return start(c, c->npreface == PREFACE_SURE);
}

static int on_data(struct tks_conn *c, enum tks_dir dir, const struct tks_slice *s)
{
	struct tks_slice rest = *s;
	bool go;

	if (c->proto == TKS_PROTO_IGNORED || !look(c, dir, s))
		return 0;
	if (c->proto != TKS_PROTO_UNKNOWN)
		go = true;
	else if (c->from_start)
		go = look_at_beginning(c, tks_conn_side(c, dir), &rest);
	else
		go = start(c, false);
	if (go && rest.len)
		feed(c, dir, &rest);
	if (!go)
		return 0;
	if (s->off)
		tks_timeline_trim(&c->stream[dir].timeline, s->off - 1);
	return 0;
}

static int on_gap(struct tks_conn *c, enum tks_dir dir, uint64_t off, uint64_t len,
		  enum tks_gap_why why)
{
	enum tks_side side;

	if (why == TKS_GAP_LOST)
		c->pipeline->counters.lost_bytes += len;
	side = tks_conn_side(c, dir);
	if (c->proto == TKS_PROTO_UNKNOWN && c->npreface)
		start(c, false);
	if (c->proto == TKS_PROTO_HTTP2 && tks_h2_conn_gap(c, side, off, len) == -ENOMEM)
		no_memory(c);
	if (c->proto != TKS_PROTO_HTTP1)
		return 0;
	tks_exchange_h1_hole(c, side);
	if (tks_http1_gap(c->http, side, off, len) == -ENOMEM)
		no_memory(c);
	return 0;
}

static int rx_data(void *ctx, const struct tks_slice *s)
{
	return on_data(conn_of(ctx, TKS_RX), TKS_RX, s);
}

static int tx_data(void *ctx, const struct tks_slice *s)
{
	return on_data(conn_of(ctx, TKS_TX), TKS_TX, s);
}

static int rx_gap(void *ctx, uint64_t off, uint64_t len, enum tks_gap_why why)
{
	return on_gap(conn_of(ctx, TKS_RX), TKS_RX, off, len, why);
}

static int tx_gap(void *ctx, uint64_t off, uint64_t len, enum tks_gap_why why)
{
	return on_gap(conn_of(ctx, TKS_TX), TKS_TX, off, len, why);
}

static const struct tks_stream_ops rx_ops = { .data = rx_data, .gap = rx_gap };
static const struct tks_stream_ops tx_ops = { .data = tx_data, .gap = tx_gap };

/* --- want of memory --- */

/*
 * Parsers go on with what they have; that something is missing is said of all that is told of the
 * connection. Events come within events.
 */
static uint64_t begin_work(struct tks_pipeline *p)
{
	uint64_t outer = p->failed_before;

	p->failed_before = p->mem->failed;
	return outer;
}

/* The connection may be gone by then. Of events of TLS libraries nobody says whose they are. */
static void end_work(struct tks_pipeline *p, uint64_t key, bool of_tls, uint64_t outer)
{
	uint64_t failed = p->mem->failed - p->failed_before;
	struct tks_conn *c;
	struct tks_list *l;

	p->failed_before = outer;
	if (!failed)
		return;
	p->counters.no_memory++;
	p->short_of_memory = true;
	c = tks_conns_find(&p->conns, key);
	if (c)
		c->starved = true;
	for (l = p->conns.lru.next; of_tls && l != &p->conns.lru; l = l->next) {
		c = tks_list_entry(l, struct tks_conn, lru);
		c->starved |= c->tls || c->untied;
	}
}

/* --- connections --- */

static void drop(struct tks_conn *c, bool open)
{
	struct tks_pipeline *p = c->pipeline;

	tks_blind_end(c, open);
	/* Its records say that it was TLS. */
	tks_pipeline_drop_protocol(c, open);
	tks_conn_tls_free(c);
	tks_early_free(&c->ahead);
	if (c->unix_name)
		tks_mem_free(p->mem, c->unix_name, strlen(c->unix_name) + 1);
	for (int dir = TKS_RX; dir <= TKS_TX; dir++) {
		p->counters.duplicate_segments += c->stream[dir].duplicates;
		p->counters.refused_segments += c->stream[dir].refused;
		tks_stream_free(&c->stream[dir]);
	}
	tks_conns_remove(&p->conns, c);
	p->counters.open_connections--;
}

void tks_pipeline_streams_init(struct tks_conn *c)
{
	struct tks_mem *mem = c->pipeline->mem;

	tks_stream_free(&c->stream[TKS_RX]);
	tks_stream_free(&c->stream[TKS_TX]);
	tks_stream_init(&c->stream[TKS_RX], mem, &rx_ops, &c->stream[TKS_RX], NULL);
	tks_stream_init(&c->stream[TKS_TX], mem, &tx_ops, &c->stream[TKS_TX], NULL);
}

/* Without memory it stays nameless. */
static void name_unix(struct tks_conn *c, const struct tks_event *ev)
{
	char name[TKS_UNIX_PATH + 1];

	if (ev->kind != TKS_EV_OPEN || ev->local.family != AF_UNIX || ev->cap > TKS_UNIX_PATH)
		return;
	tks_unix_name(ev->data, ev->cap, name);
	c->unix_name = tks_mem_alloc(c->pipeline->mem, strlen(name) + 1);
	if (c->unix_name)
		strcpy(c->unix_name, name);
	c->local.name = c->unix_name;
}

struct tks_conn *tks_pipeline_conn_new(struct tks_pipeline *p, uint64_t key,
				       const struct tks_event *ev)
{
	struct tks_conn *c;

	if (p->conns.count >= p->conns.max) {
		p->counters.evicted++;
		drop(tks_conns_oldest(&p->conns), true);
	}
	c = tks_conns_add(&p->conns, key);
	if (!c)
		return NULL;
	p->counters.connections++;
	p->counters.open_connections++;
	c->pipeline = p;
	c->role = ev->role;
	c->local = ev->local;
	c->peer = ev->peer;
	c->netns = ev->netns;
	/* What came before, or whose connection it is, may be what was not kept. */
	c->starved = p->short_of_memory && ev->kind != TKS_EV_OPEN;
	name_unix(c, ev);
	tks_early_init(&c->ahead, p->mem);
	tks_pipeline_streams_init(c);
	return c;
}

/* --- events --- */

static void on_open(struct tks_conn *c, const struct tks_event *ev, bool fresh)
{
	/* Said twice by some kernels, and late if other records came first. */
	if (!fresh)
		return;
	c->from_start = !ev->met;
	tks_stream_start(&c->stream[TKS_RX], ev->rx_seq);
	tks_stream_start(&c->stream[TKS_TX], ev->tx_seq);
}

static int on_segment(struct tks_conn *c, const struct tks_event *ev)
{
	struct tks_pipeline *p = c->pipeline;
	struct tks_segment seg = {
		.seq = ev->seq,
		.len = ev->len,
		.cap = ev->unsure ? 0 : ev->cap,
		.data = ev->data,
		.ts_ns = ev->ts_ns,
		.ret_ns = ev->ret_ns,
	};
	int err;

	if (ev->proc.pid)
		c->proc = ev->proc;
	if (ev->netns)
		c->netns = ev->netns;
	c->returns_seen |= ev->dir == TKS_TX && ev->ret_ns;
	c->kernel_tls |= ev->kernel_tls;
	/* The kernel goes back to full capture when a request arrives after bulk, unless this
	 * verdict was still on its way then. */
	if (ev->dir == tks_conn_request_dir(c) && c->verdict == TKS_VERDICT_HEADERS)
		set_verdict(c, TKS_VERDICT_FULL);
	if (!c->tls && p->tls && tks_conn_tls_begins(c, ev)) {
		p->counters.encrypted++;
		tks_pipeline_drop_protocol(c, true);
		if (tks_conn_tls_start(c))
			no_memory(c);
	}
	err = c->tls ? tks_tls_cipher(c->tls, ev) : tks_stream_add(&c->stream[ev->dir], &seg);
	if (err == -ENOMEM)
		no_memory(c);
	if (!c->tls && c->proto == TKS_PROTO_HTTP1 && tks_exchange_h1_bulk(c))
		set_verdict(c, TKS_VERDICT_HEADERS);
	release(c);
	return err == -ENOMEM ? err : 0;
}

static void end_direction(struct tks_conn *c, enum tks_dir dir)
{
	if (c->proto == TKS_PROTO_HTTP1)
		tks_http1_eof(c->http, tks_conn_side(c, dir), c->stream[dir].next);
	else if (c->proto == TKS_PROTO_HTTP2)
		tks_h2_conn_eof(c, tks_conn_side(c, dir), c->stream[dir].next);
}

static void on_fin(struct tks_conn *c, const struct tks_event *ev)
{
	if (c->proto == TKS_PROTO_IGNORED)
		return;
	c->fin[ev->dir] = true;
	if (c->tls)
		tks_tls_conn_end(c->tls, ev->dir, ev->seq);
	else
		tks_stream_end_at(&c->stream[ev->dir], ev->seq);
	/* What came over TLS may still be read. */
	if (!c->tls || ev->dir == TKS_TX)
		end_direction(c, ev->dir);
	release(c);
}

/* The stream did not come as far as seq. A FIN that was sent or received counts one. */
static bool incomplete(const struct tks_conn *c, enum tks_dir dir)
{
	const struct tks_stream *s = &c->stream[dir];

	/* Of plaintext nobody can say. */
	if (c->tls)
		return true;
	return s->started && !c->fin[dir] && (int32_t)(c->close_seq[dir] - s->next_seq) > 0;
}

void tks_pipeline_conn_over(struct tks_conn *c)
{
	for (int dir = TKS_RX; dir <= TKS_TX; dir++) {
		if (c->tls)
			tks_tls_conn_end(c->tls, dir, c->close_seq[dir]);
		else if (incomplete(c, dir))
			tks_stream_end_at(&c->stream[dir], c->close_seq[dir]);
		tks_stream_flush(&c->stream[dir]);
	}
	end_direction(c, !tks_conn_request_dir(c));
	end_direction(c, tks_conn_request_dir(c));
	drop(c, false);
}

/*
 * A send's record is written when the send returns. A reset that the send itself brought about (on
 * loopback, within it) closes the connection before that: what is missing is waited for a little.
 */
static void on_close(struct tks_conn *c, const struct tks_event *ev)
{
	if (c->proto == TKS_PROTO_IGNORED) {
		drop(c, false);
		return;
	}
	c->err = ev->err;
	for (int dir = TKS_RX; dir <= TKS_TX; dir++)
		c->close_seq[dir] = c->stream[dir].next_seq;
	if (ev->seq_known) {
		c->close_seq[TKS_RX] = ev->rx_seq;
		c->close_seq[TKS_TX] = ev->tx_seq;
	}
	c->closing = true;
	if (!incomplete(c, TKS_RX) && !incomplete(c, TKS_TX))
		tks_pipeline_conn_over(c);
}

static void feed_kept(void *ctx, const struct tks_event *ev)
{
	const struct tks_conn *c = ctx;

	if (c->proto != TKS_PROTO_IGNORED)
		on_segment(ctx, ev);
}

static void feed_ahead(struct tks_conn *c)
{
	tks_early_take(&c->ahead, NULL, feed_kept, c);
}

/*
 * The record of a send on a unix socket is written when it returns; the other side may have read
 * and answered before.
 */
static bool ahead_of_request(const struct tks_conn *c, const struct tks_event *ev)
{
	return c->local.family == AF_UNIX && ev->dir == TKS_TX && c->role == TKS_ROLE_SERVER &&
	       c->proto != TKS_PROTO_HTTP2 && !c->closing && tks_list_empty(&c->exchanges) &&
	       c->ahead.n < AHEAD_MAX;
}

static int on_data_event(struct tks_conn *c, const struct tks_event *ev)
{
	int err;

	if (c->proto == TKS_PROTO_IGNORED)
		return 0;
	if (ahead_of_request(c, ev)) {
		err = tks_early_add(&c->ahead, ev);
		if (err)
			no_memory(c);
		return err;
	}
	if (c->ahead.n && ev->dir == TKS_TX)
		feed_ahead(c);
	err = on_segment(c, ev);
	/* The request has come. */
	if (c->ahead.n && !tks_list_empty(&c->exchanges))
		feed_ahead(c);
	if (c->closing && !incomplete(c, TKS_RX) && !incomplete(c, TKS_TX))
		tks_pipeline_conn_over(c);
	return err;
}

static int on_early(struct tks_pipeline *p, const struct tks_event *ev)
{
	int err = ev->kind == TKS_EV_DATA ? tks_early_add(&p->early, ev) : 0;

	p->counters.no_memory += err == -ENOMEM;
	return err;
}

static void feed_early(void *ctx, const struct tks_event *packet)
{
	tks_pipeline_feed(ctx, packet);
}

static int on_tls_event(struct tks_pipeline *p, const struct tks_event *ev)
{
	int err = p->tls ? tks_tls_event(p->tls, ev) : 0;

	p->counters.no_memory += err == -ENOMEM;
	return err;
}

static int on_conn_event(struct tks_pipeline *p, const struct tks_event *ev)
{
	struct tks_conn *c;
	bool fresh;

	c = tks_conns_find(&p->conns, ev->conn);
	fresh = !c;
	if (!c && (ev->kind == TKS_EV_FIN || ev->kind == TKS_EV_CLOSE))
		return 0;
	if (!c)
		c = tks_pipeline_conn_new(p, ev->conn, ev);
	if (!c) {
		p->counters.no_memory++;
		return -ENOMEM;
	}
	c->last_ns = ev->ts_ns;
	tks_conns_touch(&p->conns, c);
	if (ev->lost > c->lost) {
		p->counters.lost_records += ev->lost - c->lost;
		c->lost = ev->lost;
	}
	if (ev->kind != TKS_EV_DATA)
		feed_ahead(c);
	switch (ev->kind) {
	case TKS_EV_OPEN:
		on_open(c, ev, fresh);
		if (fresh)
			tks_early_take(&p->early, ev, feed_early, p);
		return 0;
	case TKS_EV_DATA:
		return on_data_event(c, ev);
	case TKS_EV_FIN:
		on_fin(c, ev);
		return 0;
	case TKS_EV_CLOSE:
		on_close(c, ev);
		return 0;
	default:
		break;
	}
	return -EINVAL;
}

int tks_pipeline_feed(struct tks_pipeline *p, const struct tks_event *ev)
{
	uint64_t outer = begin_work(p);
	int err;

	p->counters.events++;
	if (ev->kind >= TKS_EV_PLAIN)
		err = on_tls_event(p, ev);
	else if (!ev->conn)
		err = on_early(p, ev);
	else
		err = on_conn_event(p, ev);
	end_work(p, ev->conn, ev->kind >= TKS_EV_PLAIN, outer);
	return err;
}

static void advance_tls(struct tks_conn *c, uint64_t now_ns)
{
	const struct tks_pipeline_config *cfg = &c->pipeline->cfg;

	tks_tls_conn_advance(c->tls, now_ns);
	if (!tks_blind_noticed(c, now_ns))
		return;
	c->pipeline->counters.tls_blind++;
	if (cfg->on_blind)
		cfg->on_blind(cfg->ctx, &c->proc, &c->local, c->kernel_tls);
}

static void advance_conn(struct tks_conn *c, uint64_t now_ns)
{
	if (c->tls)
		advance_tls(c, now_ns);
	if (c->ahead.n && c->last_ns + AHEAD_NS < now_ns)
		feed_ahead(c);
	tks_stream_advance(&c->stream[TKS_RX], now_ns);
	tks_stream_advance(&c->stream[TKS_TX], now_ns);
	if (c->closing && c->last_ns + CLOSE_NS < now_ns)
		tks_pipeline_conn_over(c);
	else
		release(c);
}

void tks_pipeline_advance(struct tks_pipeline *p, uint64_t now_ns)
{
	struct tks_list *l, *prev;
	uint64_t outer = begin_work(p), key;

	if (p->tls)
		tks_tls_advance(p->tls, now_ns);
	end_work(p, 0, true, outer);
	/* Newest first: a hole comes with an event and does not live longer than its wait. */
	for (l = p->conns.lru.prev; l != &p->conns.lru; l = prev) {
		struct tks_conn *c = tks_list_entry(l, struct tks_conn, lru);

		prev = l->prev;
		if (c->last_ns + ACTIVE_NS < now_ns)
			break;
		if (c->proto == TKS_PROTO_IGNORED)
			continue;
		key = c->key;
		outer = begin_work(p);
		advance_conn(c, now_ns);
		end_work(p, key, false, outer);
	}
}

void tks_pipeline_unix_missed(struct tks_pipeline *p, uint64_t n)
{
	struct tks_list *l, *x;

	p->counters.lost_records += n;
	for (l = p->conns.lru.next; l != &p->conns.lru; l = l->next) {
		struct tks_conn *c = tks_list_entry(l, struct tks_conn, lru);

		if (c->local.family != AF_UNIX)
			continue;
		for (x = c->exchanges.next; x != &c->exchanges; x = x->next)
			tks_list_entry(x, struct tks_exchange, in_conn)->rec->flags |= TKS_F_LOST;
	}
}

static void finish_conn(struct tks_conn *c, uint64_t now_ns)
{
	if (c->closing) {
		tks_pipeline_conn_over(c);
		return;
	}
	if (c->proto != TKS_PROTO_IGNORED) {
		feed_ahead(c);
		tks_stream_flush(&c->stream[TKS_RX]);
		tks_stream_flush(&c->stream[TKS_TX]);
	}
	if (c->last_ns < now_ns)
		c->last_ns = now_ns;
	drop(c, true);
}

void tks_pipeline_finish(struct tks_pipeline *p, uint64_t now_ns)
{
	struct tks_conn *c;

	while ((c = tks_conns_oldest(&p->conns))) {
		uint64_t outer = begin_work(p), key = c->key;

		finish_conn(c, now_ns);
		end_work(p, key, false, outer);
	}
}

void tks_pipeline_counters(const struct tks_pipeline *p, struct tks_pipeline_counters *out)
{
	struct tks_tls_counters tls = { .ties = 0 };

	*out = p->counters;
	if (!p->tls)
		return;
	tks_tls_counters(p->tls, &tls);
	out->tls_ties = tls.ties;
	out->tls_untied = tls.untied;
}

void tks_pipeline_free(struct tks_pipeline *p)
{
	struct tks_conn *c;

	if (!p)
		return;
	p->cfg.on_request = NULL;
	p->cfg.on_verdict = NULL;
	p->cfg.on_obj_verdict = NULL;
	while ((c = tks_conns_oldest(&p->conns)))
		drop(c, true);
	tks_tls_free(p->tls);
	tks_early_free(&p->early);
	tks_conc_free(p->conc);
	tks_conns_free(&p->conns);
	tks_mem_free(p->mem, p, sizeof(*p));
}
