// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tls_int.h"

#include <errno.h>
#include <string.h>

#include "tokensnoop/record.h"

enum {
	PENDING_MAX = 4 << 20, /* bytes of plaintext kept of an object */
	PIECES_MAX = 16384, /* in as many pieces */
	UNTIED_NS = 1000000000, /* an object that was written to is waited for so long */
	UNTIED_BYTES = 8 << 20, /* and no longer than it takes for so much */
	GIVEN_UP_BYTES = 1 << 20, /* the same of one whose connection may still show itself */
};

/* One that was only read from has sent nothing that could show its connection: the answer may take
 * its time. */
#define UNWRITTEN_NS 300000000000ull

/* Of an object whose connection is known. */
static void deliver_read(struct tks_tls *t, struct tks_tls_object *o, struct tks_tls_piece *p)
{
	struct tks_stamp st = { .ts_ns = tks_tls_arrival(o->conn, p->len, p->asked, p->ts_ns) };

	tks_tls_hand_on(t, o, p, p->len, &st);
	tks_tls_piece_free(t, o, p);
}

/* --- writes --- */

/* Pieces of earlier calls, whose records were not seen: their bytes are missing. */
static void skip_to_call(struct tks_tls *t, struct tks_tls_object *o, uint32_t call)
{
	uint32_t missing = 0;
	struct tks_tls_piece *p;

	while ((p = tks_tls_first_piece(o, TKS_TX)) && p->last < call) {
		missing += p->missing + p->len - p->at;
		tks_tls_piece_free(t, o, p);
	}
	if (p)
		p->missing += missing;
	else
		o->out[TKS_TX] += missing;
}

/* Bytes of the call that the piece belongs to, which wait to be sent. */
static uint32_t left_of_call(const struct tks_tls_object *o, const struct tks_tls_piece *p)
{
	const struct tks_list *l = &p->list;
	uint32_t call = p->call, n = 0;

	for (; l != &o->pieces[TKS_TX]; l = l->next) {
		p = tks_list_entry(l, struct tks_tls_piece, list);
		if (p->call != call)
			break;
		n += p->len - p->at;
		if (n > TKS_TLS_PLAIN_MAX)
			break;
	}
	return n;
}

/* What was gathered from several writes leaves in one record (GnuTLS, corked): the first so many
 * whole writes that fit it exactly. 0: none do. */
static uint32_t gathered(struct tks_tls_conn *c, const struct tks_tls_object *o, uint32_t len,
			 uint64_t ts_ns)
{
	uint32_t n = 0;

	for (const struct tks_list *l = o->pieces[TKS_TX].next; l != &o->pieces[TKS_TX];
	     l = l->next) {
		const struct tks_tls_piece *p = tks_list_entry(l, struct tks_tls_piece, list);

		n += p->len - p->at;
		if (n > len || p->ts_ns > ts_ns)
			break;
		tks_tls_learn_overhead(c, len, n);
		if (c->overhead)
			return n;
	}
	return 0;
}

/* A record takes n bytes of plaintext with it. */
static void take_along(struct tks_tls *t, struct tks_tls_object *o, const struct tks_tls_seen *s,
		       uint32_t n)
{
	struct tks_tls_piece *p;

	while (n && (p = tks_tls_first_piece(o, TKS_TX)) && p->ts_ns <= s->ts_ns) {
		struct tks_stamp st = { .ts_ns = s->ts_ns,
					.ret_ns = s->ret_ns,
					.tls_ns = p->ts_ns };
		uint32_t part = p->len - p->at < n ? p->len - p->at : n;

		tks_tls_hand_on(t, o, p, part, &st);
		n -= part;
		if (p->at == p->len)
			tks_tls_piece_free(t, o, p);
	}
}

/* The write that a record is of, as far as something shows that; 0: not known. */
static uint32_t call_of(struct tks_tls *t, struct tks_tls_conn *c, const struct tks_tls_seen *s)
{
	struct tks_tls_mark *m = tks_tls_mark_find(t, s->head, s->nhead);
	struct tks_tls_object *o = c->obj;
	uint32_t call = 0;

	if (m && m->obj == o) {
		call = m->call;
		tks_tls_mark_remove(t, m);
	}
	return call;
}

/* How much of what waits, first a piece of o's, is in the record. */
static uint32_t plain_in(struct tks_tls_conn *c, const struct tks_tls_object *o,
			 const struct tks_tls_piece *p, const struct tks_tls_seen *s, bool marked)
{
	uint32_t left = left_of_call(o, p), n = 0;

	if (!marked && !c->overhead)
		n = gathered(c, o, s->len, s->ts_ns);
	if (!n)
		n = tks_tls_plain_of(c, s->len, left);
	if (!n && marked)
		n = left < TKS_TLS_PLAIN_MAX ? left : TKS_TLS_PLAIN_MAX;
	if (left <= TKS_TLS_PLAIN_MAX)
		tks_tls_learn_overhead(c, s->len, left);
	/* Padding (TLS 1.3) is no plaintext. */
	return marked && n > left ? left : n;
}

/* A record of a tied connection left. */
static void sent(struct tks_tls *t, struct tks_tls_conn *c, const struct tks_tls_seen *s)
{
	struct tks_tls_object *o = c->obj;
	uint32_t call = call_of(t, c, s);
	bool mine = s->obj == o->id && s->pid == o->pid && s->call;
	struct tks_tls_piece *p;

	/* Handshakes, alerts, and in TLS 1.3 tickets and key updates. */
	if (s->type != TKS_TLS_DATA || (o->marks_writes && !call && !c->in_kernel))
		return;
	if (call) {
		skip_to_call(t, o, call);
	} else if (c->torn && mine) {
		skip_to_call(t, o, s->call);
		c->torn = false;
	}
	p = tks_tls_first_piece(o, TKS_TX);
	/* Nested are also what the library says for itself, and what the kernel was late with. */
	if (!p && c->in_kernel && !s->obj)
		t->ops->past(t->ctx, c->owner,
			     &(struct tks_stamp){ .ts_ns = s->ts_ns, .ret_ns = s->ret_ns });
	if (!p || p->ts_ns > s->ts_ns || (call && p->call > call))
		return;
	take_along(t, o, s, plain_in(c, o, p, s, call));
}

/* --- ties --- */

/* What waited on both sides goes on, in the order of its times. */
static void settle(struct tks_tls *t, struct tks_tls_object *o)
{
	struct tks_tls_ring *r = &o->conn->records[TKS_TX];

	tks_list_remove(&o->waiting);
	while (o->conn) {
		struct tks_tls_piece *p = tks_tls_first_piece(o, TKS_RX);

		if (p && (!r->count || p->ts_ns <= tks_tls_nth(r, 0)->ts_ns)) {
			deliver_read(t, o, p);
		} else if (r->count) {
			struct tks_tls_seen s = *tks_tls_nth(r, 0);

			tks_tls_ring_drop(r, 1);
			sent(t, o->conn, &s);
		} else {
			break;
		}
	}
}

static void tie(struct tks_tls *t, struct tks_tls_object *o, struct tks_tls_conn *c)
{
	tks_tls_untie(t, o);
	if (c->obj)
		tks_tls_untie(t, c->obj);
	if (o->closed) {
		/* Used again for another connection. */
		o->closed = o->whole = false;
		o->out[TKS_RX] = o->out[TKS_TX] = 0;
	}
	o->conn = c;
	c->obj = o;
	c->rx_begun = false;
	t->counters.ties++;
	t->ops->tied(t->ctx, c->owner, &o->proc, o->whole);
	if (o->conn)
		settle(t, o);
}

/* The record can be what the object's call has sent: a handshake's, or no larger than what was
 * written. */
static bool could_hold(const struct tks_tls_object *o, const struct tks_tls_seen *s)
{
	const struct tks_tls_piece *p = tks_tls_first_piece(o, TKS_TX);

	if (s->type != TKS_TLS_DATA)
		return true;
	if (!p || p->ts_ns > s->ts_ns)
		return false;
	/* Several writes' (corked) leave in a call that is none. */
	if (!s->call)
		return s->len <= o->pending + TKS_TLS_OVERHEAD_MAX;
	return p->call <= s->call && s->len <= left_of_call(o, p) + TKS_TLS_OVERHEAD_MAX;
}

/* Whose record it is, if something shows that. */
static struct tks_tls_object *shown_by(struct tks_tls *t, const struct tks_tls_seen *s,
				       uint32_t pid)
{
	struct tks_tls_mark *m = tks_tls_mark_find(t, s->head, s->nhead);
	struct tks_tls_object *o;

	/* A proxy that passes TLS on (TCP mode) sends the same bytes, sometimes earlier. */
	if (m)
		return !pid || m->obj->pid == pid ? m->obj : NULL;
	o = s->obj ? tks_tls_object_find(t, s->pid, s->obj) : NULL;
	/* Where ciphertext is marked nothing less is believed. */
	return o && !o->marked && could_hold(o, s) ? o : NULL;
}

static void tell_closed(struct tks_tls_conn *c, enum tks_dir dir, const struct tks_tls_seen *s)
{
	const struct tks_stamp st = { .ts_ns = s->ts_ns, .ret_ns = s->ret_ns };

	if (s->type == TKS_TLS_DATA && s->ts_ns && !c->obj)
		c->tls->ops->closed(c->tls->ctx, c->owner, dir, &st, s->len);
}

/* What a send was nested in has to wait with its bytes where they come early; ciphertext has no use
 * for that field of their stamp. */
static uint64_t nesting(const struct tks_event *ev)
{
	return ev->dir == TKS_TX && ev->obj ? (uint64_t)ev->call << 1 | 1 : 0;
}

static void on_sent(void *ctx, const struct tks_tls_record *r)
{
	struct tks_tls_conn *c = ctx;
	const struct tks_stamp *st = tks_timeline_at(&c->stream[TKS_TX].timeline, r->end - 1);
	struct tks_tls_seen s = { .ts_ns = st ? st->ts_ns : 0,
				  .ret_ns = st ? st->ret_ns : 0,
				  .obj = st && st->tls_ns ? c->nested : 0,
				  .pid = c->nested_pid,
				  .call = st ? (uint32_t)(st->tls_ns >> 1) : 0,
				  .len = r->len,
				  .type = r->type,
				  .nhead = r->nhead < TKS_TLS_HEAD ? r->nhead : TKS_TLS_HEAD };
	struct tks_tls_object *o;

	if (s.type == TKS_TLS_DATA)
		c->tx_data_ns = s.ts_ns;
	tks_tls_read_hello(c, r);
	memcpy(s.head, r->head, sizeof(s.head));
	o = shown_by(c->tls, &s, c->tx_pid);
	/* It has been given up on, and has a connection that stands for it, or is of no interest.
	 */
	if (o && (o->own || o->dead))
		return;
	if (o && o != c->obj) {
		tks_tls_ring_push(&c->records[TKS_TX], c->tls->mem, &s);
		tie(c->tls, o, c);
		return;
	}
	if (c->obj) {
		sent(c->tls, c, &s);
		return;
	}
	tell_closed(c, TKS_TX, &s);
	tks_tls_ring_push(&c->records[TKS_TX], c->tls->mem, &s);
}

static void on_arrived(void *ctx, const struct tks_tls_record *r)
{
	struct tks_tls_conn *c = ctx;
	const struct tks_stamp *st = tks_timeline_at(&c->stream[TKS_RX].timeline, r->end - 1);
	struct tks_tls_seen s = {
		.ts_ns = st ? st->ts_ns : 0, .ret_ns = c->tx_data_ns, .len = r->len, .type = r->type
	};

	/* A certificate may come before it. */
	if (s.type == TKS_TLS_DATA && c->finished) {
		c->finished = s.len == c->finished + (uint32_t)c->overhead ? 0 : c->finished;
		return;
	}
	if (s.type == TKS_TLS_DATA && st && s.ts_ns > c->rx_read_ns)
		tks_tls_ring_push(&c->records[TKS_RX], c->tls->mem, &s);
	tell_closed(c, TKS_RX, &s);
}

/* --- connections --- */

static int cipher_data(struct tks_tls_conn *c, enum tks_dir dir, const struct tks_slice *s)
{
	tks_tls_framer_feed(&c->framer[dir], s, dir == TKS_TX ? on_sent : on_arrived, c);
	tks_timeline_trim(&c->stream[dir].timeline, c->framer[dir].cur.off);
	return 0;
}

static int cipher_gap(struct tks_tls_conn *c, enum tks_dir dir, uint64_t off, uint64_t len)
{
	tks_tls_framer_gap(&c->framer[dir], off, len, dir == TKS_TX ? on_sent : on_arrived, c);
	return 0;
}

static int rx_data(void *ctx, const struct tks_slice *s)
{
	return cipher_data(tks_list_entry(ctx, struct tks_tls_conn, stream[TKS_RX]), TKS_RX, s);
}

static int tx_data(void *ctx, const struct tks_slice *s)
{
	return cipher_data(tks_list_entry(ctx, struct tks_tls_conn, stream[TKS_TX]), TKS_TX, s);
}

static int rx_gap(void *ctx, uint64_t off, uint64_t len, enum tks_gap_why why)
{
	(void)why;
	return cipher_gap(tks_list_entry(ctx, struct tks_tls_conn, stream[TKS_RX]), TKS_RX, off,
			  len);
}

static int tx_gap(void *ctx, uint64_t off, uint64_t len, enum tks_gap_why why)
{
	struct tks_tls_conn *c = tks_list_entry(ctx, struct tks_tls_conn, stream[TKS_TX]);

	c->torn |= why == TKS_GAP_LOST;
	return cipher_gap(c, TKS_TX, off, len);
}

static const struct tks_stream_ops rx_ops = { .data = rx_data, .gap = rx_gap };
static const struct tks_stream_ops tx_ops = { .data = tx_data, .gap = tx_gap };

struct tks_tls_conn *tks_tls_conn_new(struct tks_tls *t, void *conn)
{
	struct tks_tls_conn *c = tks_mem_alloc(t->mem, sizeof(*c));

	if (!c)
		return NULL;
	c->tls = t;
	c->owner = conn;
	/* Unless it is seen from its start. */
	c->framer[TKS_RX].seeking = c->framer[TKS_TX].seeking = true;
	tks_stream_init(&c->stream[TKS_RX], t->mem, &rx_ops, &c->stream[TKS_RX], NULL);
	tks_stream_init(&c->stream[TKS_TX], t->mem, &tx_ops, &c->stream[TKS_TX], NULL);
	return c;
}

void tks_tls_conn_free(struct tks_tls_conn *c)
{
	if (!c)
		return;
	if (c->obj)
		tks_tls_untie(c->tls, c->obj);
	for (int dir = TKS_RX; dir <= TKS_TX; dir++) {
		tks_stream_free(&c->stream[dir]);
		tks_mem_free(c->tls->mem, c->records[dir].at,
			     c->records[dir].size * sizeof(struct tks_tls_seen));
	}
	tks_mem_free(c->tls->mem, c, sizeof(*c));
}

void tks_tls_conn_start(struct tks_tls_conn *c, enum tks_dir dir, uint32_t seq)
{
	tks_stream_start(&c->stream[dir], seq);
	c->from_start = true;
	c->framer[dir].seeking = false;
}

int tks_tls_cipher(struct tks_tls_conn *c, const struct tks_event *ev)
{
	struct tks_segment seg = {
		.seq = ev->seq,
		.len = ev->len,
		.cap = ev->unsure ? 0 : ev->cap,
		.data = ev->data,
		.ts_ns = ev->ts_ns,
		.ret_ns = ev->ret_ns,
		.tls_ns = nesting(ev),
	};

	if (ev->dir == TKS_TX && ev->proc.pid)
		c->tx_pid = ev->proc.pid;
	c->in_kernel |= ev->kernel_tls;
	if (seg.tls_ns) {
		c->nested = ev->obj;
		c->nested_pid = ev->proc.pid;
	}
	return tks_stream_add(&c->stream[ev->dir], &seg);
}

void tks_tls_conn_advance(struct tks_tls_conn *c, uint64_t now_ns)
{
	tks_stream_advance(&c->stream[TKS_RX], now_ns);
	tks_stream_advance(&c->stream[TKS_TX], now_ns);
}

void tks_tls_conn_end(struct tks_tls_conn *c, enum tks_dir dir, uint32_t seq)
{
	tks_stream_end_at(&c->stream[dir], seq);
	tks_stream_flush(&c->stream[dir]);
}

bool tks_tls_conn_obj(const struct tks_tls_conn *c, uint32_t *pid, uint64_t *obj)
{
	if (!c->obj)
		return false;
	*pid = c->obj->pid;
	*obj = c->obj->id;
	return true;
}

/* --- events --- */

/* How many bytes are missing before this one; the first one seen tells whether it is the first. */
static uint32_t missing_before(struct tks_tls_object *o, const struct tks_event *ev)
{
	/* Numbers begin with what is seen first, unless all was promised. */
	uint32_t missing = o->started[ev->dir] || o->conn ? ev->seq - o->expect[ev->dir] : 0;

	if (!o->started[ev->dir])
		o->whole &= ev->call == 1 && !ev->cont;
	o->started[ev->dir] = true;
	o->expect[ev->dir] = ev->seq + ev->len;
	return missing < 1u << 30 ? missing : 0;
}

/* The first piece that the call handed over last, or the list's head; they are at its end, and
 * those before them may be many. */
static struct tks_list *first_of_last(struct tks_tls_object *o, uint32_t call)
{
	struct tks_list *l = &o->pieces[TKS_TX];

	while (l->prev != &o->pieces[TKS_TX] &&
	       tks_list_entry(l->prev, struct tks_tls_piece, list)->last >= call)
		l = l->prev;
	return l;
}

/*
 * A library that takes a long write in parts (SSL_MODE_ENABLE_PARTIAL_WRITE) returns behind the
 * first record, and is handed the rest by a further call: what waits of the earlier call behind
 * that record is this again.
 */
static void drop_resumed(struct tks_tls *t, struct tks_tls_object *o, const struct tks_event *ev)
{
	struct tks_list *l = first_of_last(o, ev->call - 1), *next;
	bool resumed = false;

	for (; l != &o->pieces[TKS_TX]; l = next) {
		struct tks_tls_piece *p = tks_list_entry(l, struct tks_tls_piece, list);

		next = l->next;
		if (p->last != ev->call - 1 || !p->cont || p->at)
			continue;
		resumed |= p->len == ev->len && p->cap == ev->cap &&
			   !memcmp(p->data, ev->data, p->cap);
		if (!resumed)
			return;
		tks_tls_piece_free(t, o, p);
	}
}

static int piece_add(struct tks_tls *t, struct tks_tls_object *o, const struct tks_event *ev,
		     struct tks_tls_piece **out)
{
	uint32_t missing = missing_before(o, ev);
	struct tks_tls_piece *p;

	*out = NULL;
	/* Of one whose connection is over only the last write may turn out to be another's. */
	if (o->pending + ev->cap > PENDING_MAX || o->npieces == PIECES_MAX ||
	    (o->closed && !o->conn && !ev->cont))
		tks_tls_drop_pieces(t, o);
	p = tks_mem_alloc(t->mem, sizeof(*p) + ev->cap);
	if (!p) {
		/* Missing before the next. */
		o->expect[ev->dir] = ev->seq - missing;
		return -ENOMEM;
	}
	p->dir = ev->dir;
	p->cont = ev->cont;
	p->call = p->last = ev->call;
	p->len = ev->len;
	p->cap = ev->cap;
	p->asked = ev->asked;
	p->missing = missing;
	p->ts_ns = ev->ts_ns;
	memcpy(p->data, ev->data, ev->cap);
	tks_list_append(&o->pieces[ev->dir], &p->list);
	o->pending += p->cap;
	o->npieces++;
	*out = p;
	return 0;
}

/* Without a connection: a piece is what it is, at the library's door. */
static void deliver_untied(struct tks_tls *t, struct tks_tls_object *o, struct tks_tls_piece *p)
{
	struct tks_stamp st = { .ts_ns = p->ts_ns };

	tks_tls_hand_on(t, o, p, p->len - p->at, &st);
	tks_tls_piece_free(t, o, p);
}

static void wait_for_tie(struct tks_tls *t, struct tks_tls_object *o, const struct tks_event *ev)
{
	bool waits = !tks_list_empty(&o->waiting);

	if (waits && (o->written || ev->dir == TKS_RX))
		return;
	tks_list_remove(&o->waiting);
	o->written = ev->dir == TKS_TX;
	o->since_ns = ev->ts_ns;
	tks_list_append(o->written ? &t->waiting : &t->unwritten, &o->waiting);
}

/* What a refused write had is handed over by this one. */
static void hand_over_again(struct tks_tls *t, struct tks_tls_object *o, const struct tks_event *ev)
{
	t->counters.retries += !ev->cont;
	o->expect[ev->dir] += ev->len;
	for (struct tks_list *l = first_of_last(o, ev->call - 1); l != &o->pieces[TKS_TX];
	     l = l->next) {
		struct tks_tls_piece *p = tks_list_entry(l, struct tks_tls_piece, list);

		if (p->last == ev->call - 1)
			p->last = ev->call;
	}
}

/*
 * An object of a connection that is filtered out, or no TCP, would send all its plaintext for
 * nothing. True: this is over.
 */
static bool unwanted(struct tks_tls *t, struct tks_tls_object *o, const struct tks_event *ev)
{
	if (o->conn || o->own || o->closed)
		return false;
	o->untied_bytes += ev->len;
	if (o->untied_bytes < (o->given_up ? GIVEN_UP_BYTES : UNTIED_BYTES))
		return false;
	o->dead = true;
	tks_tls_drop_pieces(t, o);
	t->ops->unwanted(t->ctx, &o->proc, o->id);
	return true;
}

static int on_plain(struct tks_tls *t, struct tks_tls_object *o, const struct tks_event *ev)
{
	struct tks_tls_piece *p;
	int err;

	if (o->dead || unwanted(t, o, ev))
		return 0;
	if (o->closed && ev->dir == TKS_RX) {
		o->expect[ev->dir] = ev->seq + ev->len;
		return 0;
	}
	if (ev->again) {
		/* Bytes that are waiting already, or were sent in part. */
		hand_over_again(t, o, ev);
		return 0;
	}
	if (ev->dir == TKS_TX && !ev->cont)
		drop_resumed(t, o, ev);
	err = piece_add(t, o, ev, &p);
	if (err)
		return err;
	if (o->own)
		deliver_untied(t, o, p);
	else if (!o->conn && !o->closed)
		wait_for_tie(t, o, ev);
	else if (ev->dir == TKS_RX)
		deliver_read(t, o, p);
	return 0;
}

int tks_tls_event(struct tks_tls *t, const struct tks_event *ev)
{
	struct tks_tls_object *o;

	if (ev->kind == TKS_EV_OBJ_GONE) {
		o = tks_tls_object_find(t, ev->proc.pid, ev->obj);
		if (o)
			tks_tls_object_free(t, o);
		return 0;
	}
	o = tks_tls_object_of(t, ev);
	if (!o)
		return -ENOMEM;
	o->lib = ev->lib;
	return ev->kind == TKS_EV_CIPHER ? tks_tls_mark_add(t, o, ev) : on_plain(t, o, ev);
}

void tks_tls_disown(struct tks_tls *t, uint32_t pid, uint64_t obj)
{
	struct tks_tls_object *o = tks_tls_object_find(t, pid, obj);

	if (!o)
		return;
	o->own = NULL;
	o->dead = true;
	tks_tls_drop_pieces(t, o);
}

static void give_up(struct tks_tls *t, struct tks_tls_object *o)
{
	struct tks_tls_piece *rx, *tx;

	tks_list_remove(&o->waiting);
	t->counters.untied += !o->given_up;
	o->given_up = true;
	/* NSPR's descriptors are files and plain sockets as well, whose connections tell of
	 * themselves. */
	if (o->lib != TKS_TLS_NSS)
		o->own = t->ops->untied(t->ctx, &o->proc, o->id, o->whole);
	if (!o->own) {
		/* Its connection may show itself yet. */
		o->whole = false;
		tks_tls_drop_pieces(t, o);
		return;
	}
	while ((rx = tks_tls_first_piece(o, TKS_RX), tx = tks_tls_first_piece(o, TKS_TX), rx || tx))
		deliver_untied(t, o, !tx || (rx && rx->ts_ns <= tx->ts_ns) ? rx : tx);
}

static void give_up_late(struct tks_tls *t, struct tks_list *waiting, uint64_t wait_ns,
			 uint64_t now_ns)
{
	while (!tks_list_empty(waiting)) {
		struct tks_tls_object *o =
			tks_list_entry(waiting->next, struct tks_tls_object, waiting);

		if (o->since_ns + wait_ns > now_ns)
			break;
		give_up(t, o);
	}
}

void tks_tls_advance(struct tks_tls *t, uint64_t now_ns)
{
	give_up_late(t, &t->waiting, UNTIED_NS, now_ns);
	give_up_late(t, &t->unwritten, UNWRITTEN_NS, now_ns);
}

/* --- life --- */

struct tks_tls *tks_tls_new(struct tks_mem *mem, const struct tks_tls_ops *ops, void *ctx)
{
	struct tks_tls *t = tks_mem_alloc(mem, sizeof(*t));

	if (!t)
		return NULL;
	t->mem = mem;
	t->ops = ops;
	t->ctx = ctx;
	tks_list_init(&t->lru);
	tks_list_init(&t->waiting);
	tks_list_init(&t->unwritten);
	return t;
}

void tks_tls_free(struct tks_tls *t)
{
	if (!t)
		return;
	while (!tks_list_empty(&t->lru))
		tks_tls_object_free(t, tks_list_entry(t->lru.next, struct tks_tls_object, lru));
	tks_mem_free(t->mem, t, sizeof(*t));
}

void tks_tls_counters(const struct tks_tls *t, struct tks_tls_counters *out)
{
	*out = t->counters;
}
