// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tls.h"

#include <errno.h>
#include <string.h>

#include "list.h"
#include "tls_record.h"
#include "tokensnoop/record.h"

enum {
	BUCKETS = 4096,
	OBJECTS_MAX = 65536, /* past it the one idle longest goes */
	PENDING_MAX = 4 << 20, /* bytes of plaintext kept of an object */
	MARKS_MAX = 32, /* ciphertext beginnings remembered of an object */
	MARK_MIN =
		13, /* bytes of a record that make it known again: the header and 8 random ones */
	RECORDS_MAX = 1024, /* records of a direction that wait for their plaintext */
	OVERHEAD_MIN = 8, /* what a record's payload has more than its plaintext: CCM_8 */
	OVERHEAD_MAX = 16 + 64 + 256, /* CBC: the vector, a SHA-512 and the longest padding */
	UNTIED_NS = 1000000000, /* an object that was written to is waited for so long */
};

/* One that was only read from has sent nothing that could show its connection: the answer may take
 * its time. */
#define UNWRITTEN_NS 300000000000ull

/* Plaintext that waits: to be sent, or for its connection to be known. */
struct piece {
	struct tks_list list;
	enum tks_dir dir;
	bool cont;
	uint32_t call, len, cap, asked, at; /* at: bytes of it that were handed on */
	uint32_t last; /* the call that handed it over last, after refusals */
	uint32_t missing; /* bytes that are missing before it */
	uint64_t ts_ns;
	uint8_t data[];
};

struct object {
	struct object *hash_next;
	struct tks_list lru, waiting; /* waiting: in the list of those that have no connection */
	uint32_t pid;
	uint64_t id;
	uint16_t lib;
	struct tks_process proc;
	struct tks_tls_conn *conn; /* tied */
	void *own; /* untied: what stands for its connection */
	bool whole; /* seen from its first byte on */
	bool started[2]; /* by direction: the first piece has come */
	bool marks_writes; /* the ciphertext of its writes is marked */
	bool dead; /* of no interest */
	bool closed; /* its connection is over */
	bool given_up; /* nothing was found once */
	bool written; /* waits, and not only with what was read */
	uint32_t expect[2]; /* the count that the next piece should have */
	uint32_t out[2]; /* number of the next byte handed on */
	struct tks_list pieces[2];
	size_t pending;
	uint64_t since_ns; /* of the oldest piece while untied */
	struct tks_list marks;
	unsigned int nmarks;
};

/* The beginning of ciphertext that an object made. */
struct mark {
	struct mark *hash_next;
	struct tks_list list; /* of the object's */
	struct object *obj;
	uint32_t call;
	uint8_t nhead;
	uint8_t head[TKS_TLS_HEAD];
};

/* A record that was seen on the wire. */
struct seen {
	uint64_t ts_ns, ret_ns; /* of its last byte */
	uint64_t obj; /* that its send was nested in a call of */
	uint32_t pid, call, len;
	uint8_t type, nhead;
	uint8_t head[TKS_TLS_HEAD];
};

struct ring {
	struct seen *at;
	uint32_t size, head, count; /* size: a power of two, or 0 */
};

struct tks_tls_conn {
	struct tks_tls *tls;
	void *owner;
	struct object *obj;
	struct tks_stream stream[2];
	struct tks_tls_framer framer[2];
	struct ring records[2];
	int overhead; /* of a record; 0: not known */
	uint32_t finished; /* TLS 1.3: length of the client's Finished, which is still to come */
	bool from_start;
	bool torn; /* sends were lost */
	uint32_t rx_left; /* bytes of the record read last that were not read yet */
	uint64_t rx_ns; /* when it arrived */
	uint64_t rx_read_ns; /* of the last read whose record was not there: what came before it and
			      * is told of later has been read */
	uint64_t nested; /* the object that the last nested send was in a call of */
	uint32_t nested_pid;
};

struct tks_tls {
	struct tks_mem *mem;
	const struct tks_tls_ops *ops;
	void *ctx;
	struct object *objects[BUCKETS];
	struct mark *marks[BUCKETS];
	struct tks_list lru, waiting, unwritten; /* the last two: by since_ns */
	uint32_t nobjects;
	struct tks_tls_counters counters;
};

/* --- what is remembered of ciphertext --- */

static uint32_t mix(uint64_t v)
{
	v ^= v >> 33;
	v *= 0xff51afd7ed558ccdull;
	return (uint32_t)(v >> 40) & (BUCKETS - 1);
}

/* The header says too little; what follows is as good as random. */
static struct mark **mark_bucket(struct tks_tls *t, const uint8_t *head)
{
	uint64_t v;

	memcpy(&v, head + TKS_TLS_HEADER, sizeof(v));
	return &t->marks[mix(v)];
}

static struct mark *mark_find(struct tks_tls *t, const uint8_t *head, uint8_t nhead)
{
	struct mark *m;

	if (nhead < MARK_MIN)
		return NULL;
	for (m = *mark_bucket(t, head); m; m = m->hash_next) {
		uint8_t n = m->nhead < nhead ? m->nhead : nhead;

		if (!memcmp(m->head, head, n))
			return m;
	}
	return NULL;
}

static void mark_remove(struct tks_tls *t, struct mark *m)
{
	struct mark **p = mark_bucket(t, m->head);

	while (*p != m)
		p = &(*p)->hash_next;
	*p = m->hash_next;
	tks_list_remove(&m->list);
	m->obj->nmarks--;
	tks_mem_free(t->mem, m, sizeof(*m));
}

static struct mark *first_mark(const struct object *o)
{
	return tks_list_entry(o->marks.next, struct mark, list);
}

static int mark_add(struct tks_tls *t, struct object *o, const struct tks_event *ev)
{
	uint8_t n = ev->cap < TKS_TLS_HEAD ? (uint8_t)ev->cap : TKS_TLS_HEAD;
	struct mark *m, **bucket;

	/* A library hands the same bytes to a BIO again, and from one BIO to the next. */
	if (n < MARK_MIN || mark_find(t, ev->data, n))
		return 0;
	if (o->nmarks == MARKS_MAX)
		mark_remove(t, first_mark(o));
	m = tks_mem_alloc(t->mem, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->obj = o;
	m->call = ev->call;
	m->nhead = n;
	memcpy(m->head, ev->data, n);
	bucket = mark_bucket(t, m->head);
	m->hash_next = *bucket;
	*bucket = m;
	tks_list_append(&o->marks, &m->list);
	o->nmarks++;
	o->marks_writes |= ev->call != 0;
	return 0;
}

/* --- pieces --- */

static struct piece *first_piece(const struct object *o, enum tks_dir dir)
{
	if (tks_list_empty(&o->pieces[dir]))
		return NULL;
	return tks_list_entry(o->pieces[dir].next, struct piece, list);
}

static void piece_free(struct tks_tls *t, struct object *o, struct piece *p)
{
	tks_list_remove(&p->list);
	o->pending -= p->cap;
	tks_mem_free(t->mem, p, sizeof(*p) + p->cap);
}

/* Hands on up to n bytes of the piece, stamped. */
static void hand_on(struct tks_tls *t, struct object *o, struct piece *p, uint32_t n,
		    const struct tks_stamp *st)
{
	uint32_t cap = p->cap > p->at ? p->cap - p->at : 0;
	struct tks_segment seg = {
		.len = n,
		.cap = cap < n ? cap : n,
		.data = p->data + (p->at < p->cap ? p->at : p->cap),
		.ts_ns = st->ts_ns,
		.ret_ns = st->ret_ns,
		.tls_ns = st->tls_ns,
	};
	void *conn = o->conn ? o->conn->owner : o->own;

	o->out[p->dir] += p->missing;
	p->missing = 0;
	seg.seq = o->out[p->dir];
	o->out[p->dir] += n;
	p->at += n;
	if (conn && n)
		t->ops->plain(t->ctx, conn, p->dir, &seg);
}

/* --- objects --- */

static struct object **object_bucket(struct tks_tls *t, uint32_t pid, uint64_t id)
{
	return &t->objects[mix(id ^ (uint64_t)pid << 40)];
}

static struct object *object_find(struct tks_tls *t, uint32_t pid, uint64_t id)
{
	struct object *o = *object_bucket(t, pid, id);

	while (o && (o->id != id || o->pid != pid))
		o = o->hash_next;
	return o;
}

/* What waits is not handed on: its bytes are missing. */
static void drop_pieces(struct tks_tls *t, struct object *o)
{
	struct piece *p;

	for (int dir = TKS_RX; dir <= TKS_TX; dir++) {
		while ((p = first_piece(o, dir))) {
			o->out[dir] += p->missing + p->len - p->at;
			piece_free(t, o, p);
		}
	}
	tks_list_remove(&o->waiting);
}

/* Its connection is over, or another's: what is written or read from now on belongs to none, until
 * it shows up on one again. */
static void untie(struct tks_tls *t, struct object *o)
{
	if (!o->conn)
		return;
	o->conn->obj = NULL;
	o->conn = NULL;
	o->closed = true;
	drop_pieces(t, o);
}

static void object_free(struct tks_tls *t, struct object *o)
{
	struct object **p = object_bucket(t, o->pid, o->id);

	while (*p != o)
		p = &(*p)->hash_next;
	*p = o->hash_next;
	untie(t, o);
	drop_pieces(t, o);
	while (!tks_list_empty(&o->marks))
		mark_remove(t, first_mark(o));
	tks_list_remove(&o->lru);
	if (o->own)
		t->ops->gone(t->ctx, o->own);
	t->nobjects--;
	tks_mem_free(t->mem, o, sizeof(*o));
}

static struct object *object_new(struct tks_tls *t, uint32_t pid, uint64_t id)
{
	struct object **bucket = object_bucket(t, pid, id), *o;

	if (t->nobjects == OBJECTS_MAX)
		object_free(t, tks_list_entry(t->lru.next, struct object, lru));
	o = tks_mem_alloc(t->mem, sizeof(*o));
	if (!o)
		return NULL;
	o->pid = pid;
	o->id = id;
	o->whole = true;
	tks_list_init(&o->waiting);
	tks_list_init(&o->pieces[TKS_RX]);
	tks_list_init(&o->pieces[TKS_TX]);
	tks_list_init(&o->marks);
	tks_list_append(&t->lru, &o->lru);
	o->hash_next = *bucket;
	*bucket = o;
	t->nobjects++;
	t->counters.objects++;
	return o;
}

static struct object *object_of(struct tks_tls *t, const struct tks_event *ev)
{
	struct object *o = object_find(t, ev->proc.pid, ev->obj);

	/* Its first call again: the one that had this address is gone. */
	if (o && ev->kind == TKS_EV_PLAIN && !ev->cont && ev->call == 1 && o->started[ev->dir]) {
		object_free(t, o);
		o = NULL;
	}
	if (!o)
		o = object_new(t, ev->proc.pid, ev->obj);
	if (!o)
		return NULL;
	tks_list_remove(&o->lru);
	tks_list_append(&t->lru, &o->lru);
	o->proc = ev->proc;
	return o;
}

/* --- the wire's records --- */

static struct seen *nth(const struct ring *r, uint32_t i)
{
	return &r->at[(r->head + i) & (r->size - 1)];
}

static void ring_drop(struct ring *r, uint32_t n)
{
	r->head = (r->head + n) & (r->size - 1);
	r->count -= n;
}

static int ring_push(struct ring *r, struct tks_mem *mem, const struct seen *s)
{
	if (r->count == r->size && r->size < RECORDS_MAX) {
		uint32_t size = r->size ? 2 * r->size : 8;
		struct seen *at = tks_mem_alloc(mem, size * sizeof(*at));

		if (!at && !r->size)
			return -ENOMEM;
		for (uint32_t i = 0; at && i < r->count; i++)
			at[i] = *nth(r, i);
		if (at) {
			tks_mem_free(mem, r->at, r->size * sizeof(*at));
			r->at = at;
			r->size = size;
			r->head = 0;
		}
	}
	if (r->count == r->size)
		ring_drop(r, 1);
	r->count++;
	*nth(r, r->count - 1) = *s;
	return 0;
}

/* How much plaintext a record may have that has this much payload, if it was to hold `want`; 0: it
 * can't be. */
static uint32_t plain_of(const struct tks_tls_conn *c, uint32_t len, uint32_t want)
{
	uint32_t most = want < TKS_TLS_PLAIN_MAX ? want : TKS_TLS_PLAIN_MAX;

	if (c->overhead)
		return len > (uint32_t)c->overhead ? len - (uint32_t)c->overhead : 0;
	if (len < most + OVERHEAD_MIN || len > most + OVERHEAD_MAX)
		return 0;
	return most;
}

/* Authenticated encryption adds the same to every record: the tag, in TLS 1.2 the nonce's visible
 * part, in TLS 1.3 the type. With CBC it differs and stays not known. */
static void learn_overhead(struct tks_tls_conn *c, uint32_t len, uint32_t plain)
{
	uint32_t more = len > plain ? len - plain : 0;

	if (!c->overhead && (more == 16 || more == 17 || more == 24))
		c->overhead = (int)more;
}

/* --- reads --- */

/* Whether a record of this payload was read by a call that got n bytes of `asked`. */
static bool was_read_as(const struct tks_tls_conn *c, const struct seen *s, uint32_t n,
			uint32_t asked)
{
	uint32_t plain = plain_of(c, s->len, n);

	if (s->type != TKS_TLS_DATA)
		return false;
	if (n < asked)
		return plain == n;
	return c->overhead ? plain >= n : s->len >= n + OVERHEAD_MIN;
}

/* When the bytes of a read arrived. */
static uint64_t arrival(struct tks_tls_conn *c, uint32_t n, uint32_t asked, uint64_t read_ns)
{
	struct ring *r = &c->records[TKS_RX];
	const struct seen *s;

	if (c->rx_left >= n) {
		c->rx_left -= n < asked ? c->rx_left : n;
		return c->rx_ns;
	}
	for (uint32_t i = 0; i < r->count; i++) {
		s = nth(r, i);
		if (s->ts_ns > read_ns || !was_read_as(c, s, n, asked))
			continue;
		if (n < asked)
			learn_overhead(c, s->len, n);
		c->rx_left = n < asked ? 0 : s->len - n - (uint32_t)(c->overhead ?: OVERHEAD_MIN);
		c->rx_ns = s->ts_ns;
		ring_drop(r, i + 1);
		return c->rx_ns;
	}
	c->tls->counters.unmatched++;
	c->rx_read_ns = read_ns;
	for (uint32_t i = r->count; i > 0; i--) {
		s = nth(r, i - 1);
		if (s->ts_ns <= read_ns)
			return s->ts_ns;
	}
	return read_ns;
}

static void deliver_read(struct tks_tls *t, struct object *o, struct piece *p)
{
	struct tks_stamp st = { .ts_ns = p->ts_ns };

	if (o->conn)
		st.ts_ns = arrival(o->conn, p->len, p->asked, p->ts_ns);
	hand_on(t, o, p, p->len, &st);
	piece_free(t, o, p);
}

/* --- writes --- */

/* Pieces of earlier calls, whose records were not seen: their bytes are missing. */
static void skip_to_call(struct tks_tls *t, struct object *o, uint32_t call)
{
	uint32_t missing = 0;
	struct piece *p;

	while ((p = first_piece(o, TKS_TX)) && p->last < call) {
		missing += p->missing + p->len - p->at;
		piece_free(t, o, p);
	}
	if (p)
		p->missing += missing;
	else
		o->out[TKS_TX] += missing;
}

/* Bytes of the call that the piece belongs to, which wait to be sent. */
static uint32_t left_of_call(const struct object *o, const struct piece *p)
{
	const struct tks_list *l = &p->list;
	uint32_t call = p->call, n = 0;

	for (; l != &o->pieces[TKS_TX]; l = l->next) {
		p = tks_list_entry(l, struct piece, list);
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
static uint32_t gathered(struct tks_tls_conn *c, const struct object *o, uint32_t len,
			 uint64_t ts_ns)
{
	uint32_t n = 0;

	for (const struct tks_list *l = o->pieces[TKS_TX].next; l != &o->pieces[TKS_TX];
	     l = l->next) {
		const struct piece *p = tks_list_entry(l, struct piece, list);

		n += p->len - p->at;
		if (n > len || p->ts_ns > ts_ns)
			break;
		learn_overhead(c, len, n);
		if (c->overhead)
			return n;
	}
	return 0;
}

/* A record takes n bytes of plaintext with it. */
static void take_along(struct tks_tls *t, struct object *o, const struct seen *s, uint32_t n)
{
	struct piece *p;

	while (n && (p = first_piece(o, TKS_TX)) && p->ts_ns <= s->ts_ns) {
		struct tks_stamp st = { .ts_ns = s->ts_ns,
					.ret_ns = s->ret_ns,
					.tls_ns = p->ts_ns };
		uint32_t part = p->len - p->at < n ? p->len - p->at : n;

		hand_on(t, o, p, part, &st);
		n -= part;
		if (p->at == p->len)
			piece_free(t, o, p);
	}
}

/* The write that a record is of, as far as something shows that; 0: not known. */
static uint32_t call_of(struct tks_tls *t, struct tks_tls_conn *c, const struct seen *s)
{
	struct mark *m = mark_find(t, s->head, s->nhead);
	struct object *o = c->obj;
	uint32_t call = 0;

	if (m) {
		call = m->obj == o ? m->call : 0;
		mark_remove(t, m);
	}
	return call;
}

/* How much of what waits, first a piece of o's, is in the record. */
static uint32_t plain_in(struct tks_tls_conn *c, const struct object *o, const struct piece *p,
			 const struct seen *s, bool marked)
{
	uint32_t left = left_of_call(o, p), n = 0;

	if (!marked && !c->overhead)
		n = gathered(c, o, s->len, s->ts_ns);
	if (!n)
		n = plain_of(c, s->len, left);
	if (!n && marked)
		n = left < TKS_TLS_PLAIN_MAX ? left : TKS_TLS_PLAIN_MAX;
	if (left <= TKS_TLS_PLAIN_MAX)
		learn_overhead(c, s->len, left);
	/* Padding (TLS 1.3) is no plaintext. */
	return marked && n > left ? left : n;
}

/* A record of a tied connection left. */
static void sent(struct tks_tls *t, struct tks_tls_conn *c, const struct seen *s)
{
	struct object *o = c->obj;
	uint32_t call = call_of(t, c, s);
	bool mine = s->obj == o->id && s->pid == o->pid && s->call;
	struct piece *p;

	/* Handshakes, alerts, and in TLS 1.3 tickets and key updates. */
	if (s->type != TKS_TLS_DATA || (o->marks_writes && !call))
		return;
	if (call) {
		skip_to_call(t, o, call);
	} else if (c->torn && mine) {
		skip_to_call(t, o, s->call);
		c->torn = false;
	}
	p = first_piece(o, TKS_TX);
	if (!p || p->ts_ns > s->ts_ns || (call && p->call > call))
		return;
	take_along(t, o, s, plain_in(c, o, p, s, call));
}

/* --- ties --- */

/* What waited on both sides goes on, in the order of its times. */
static void settle(struct tks_tls *t, struct object *o)
{
	struct ring *r = &o->conn->records[TKS_TX];

	tks_list_remove(&o->waiting);
	while (o->conn) {
		struct piece *p = first_piece(o, TKS_RX);

		if (p && (!r->count || p->ts_ns <= nth(r, 0)->ts_ns)) {
			deliver_read(t, o, p);
		} else if (r->count) {
			struct seen s = *nth(r, 0);

			ring_drop(r, 1);
			sent(t, o->conn, &s);
		} else {
			break;
		}
	}
}

static void tie(struct tks_tls *t, struct object *o, struct tks_tls_conn *c)
{
	untie(t, o);
	if (c->obj)
		untie(t, c->obj);
	if (o->closed) {
		/* Used again for another connection. */
		o->closed = o->whole = false;
		o->out[TKS_RX] = o->out[TKS_TX] = 0;
	}
	o->conn = c;
	c->obj = o;
	t->counters.ties++;
	t->ops->tied(t->ctx, c->owner, &o->proc, o->whole);
	if (o->conn)
		settle(t, o);
}

/* The record can be what the object's call has sent: a handshake's, or no larger than what was
 * written. */
static bool could_hold(const struct object *o, const struct seen *s)
{
	const struct piece *p = first_piece(o, TKS_TX);

	if (s->type != TKS_TLS_DATA)
		return true;
	if (!p || p->ts_ns > s->ts_ns)
		return false;
	/* Several writes' (corked) leave in a call that is none. */
	if (!s->call)
		return s->len <= o->pending + OVERHEAD_MAX;
	return p->call <= s->call && s->len <= left_of_call(o, p) + OVERHEAD_MAX;
}

/* Whose record it is, if something shows that. */
static struct object *shown_by(struct tks_tls *t, const struct seen *s)
{
	struct mark *m = mark_find(t, s->head, s->nhead);
	struct object *o;

	if (m)
		return m->obj;
	o = s->obj ? object_find(t, s->pid, s->obj) : NULL;
	/* Where ciphertext is marked nothing less is believed. */
	return o && o->lib != TKS_TLS_OPENSSL && could_hold(o, s) ? o : NULL;
}

static void tell_closed(struct tks_tls_conn *c, enum tks_dir dir, const struct seen *s)
{
	const struct tks_stamp st = { .ts_ns = s->ts_ns, .ret_ns = s->ret_ns };

	if (s->type == TKS_TLS_DATA && s->ts_ns && !c->obj)
		c->tls->ops->closed(c->tls->ctx, c->owner, dir, &st, s->len);
}

/*
 * The server's hello (RFC 8446, 4.1.3) says by its cipher suite what a record has more than its
 * plaintext: TLS 1.3's suites (B.4) the type and the tag; of TLS 1.2's, those with ChaCha20 the tag
 * (RFC 7905), with GCM the tag and the visible part of the nonce (RFC 5288). Others are not known
 * here.
 */
static void read_hello(struct tks_tls_conn *c, const struct tks_tls_record *r)
{
	enum { AT_SESSION = TKS_TLS_HEADER + 4 + 2 + 32, SERVER_HELLO = 2 };
	uint16_t suite;
	size_t at;

	if (r->type != TKS_TLS_HANDSHAKE || r->nhead <= AT_SESSION ||
	    r->head[TKS_TLS_HEADER] != SERVER_HELLO)
		return;
	at = (size_t)AT_SESSION + 1 + r->head[AT_SESSION];
	if (at + 2 > r->nhead)
		return;
	suite = (uint16_t)(r->head[at] << 8 | r->head[at + 1]);
	if (suite >> 8 == 0x13) {
		c->overhead = suite >= 0x1305 ? 9 : 17;
		c->finished = c->from_start ? 4 + (suite == 0x1302 ? 48 : 32) : 0;
	} else if (suite >= 0xcca8 && suite <= 0xccae) {
		c->overhead = 16;
	} else if ((suite >= 0x9c && suite <= 0xa7) || (suite >= 0xc02b && suite <= 0xc032)) {
		c->overhead = 24;
	}
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
	struct seen s = { .ts_ns = st ? st->ts_ns : 0,
			  .ret_ns = st ? st->ret_ns : 0,
			  .obj = st && st->tls_ns ? c->nested : 0,
			  .pid = c->nested_pid,
			  .call = st ? (uint32_t)(st->tls_ns >> 1) : 0,
			  .len = r->len,
			  .type = r->type,
			  .nhead = r->nhead < TKS_TLS_HEAD ? r->nhead : TKS_TLS_HEAD };
	struct object *o;

	read_hello(c, r);
	memcpy(s.head, r->head, sizeof(s.head));
	o = shown_by(c->tls, &s);
	/* It has been given up on, and has a connection that stands for it, or is of no interest.
	 */
	if (o && (o->own || o->dead))
		return;
	if (o && o != c->obj) {
		ring_push(&c->records[TKS_TX], c->tls->mem, &s);
		tie(c->tls, o, c);
		return;
	}
	if (c->obj) {
		sent(c->tls, c, &s);
		return;
	}
	tell_closed(c, TKS_TX, &s);
	ring_push(&c->records[TKS_TX], c->tls->mem, &s);
}

static void on_arrived(void *ctx, const struct tks_tls_record *r)
{
	struct tks_tls_conn *c = ctx;
	const struct tks_stamp *st = tks_timeline_at(&c->stream[TKS_RX].timeline, r->end - 1);
	struct seen s = { .ts_ns = st ? st->ts_ns : 0, .len = r->len, .type = r->type };

	/* A certificate may come before it. */
	if (s.type == TKS_TLS_DATA && c->finished) {
		c->finished = s.len == c->finished + (uint32_t)c->overhead ? 0 : c->finished;
		return;
	}
	if (s.type == TKS_TLS_DATA && st && s.ts_ns > c->rx_read_ns)
		ring_push(&c->records[TKS_RX], c->tls->mem, &s);
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
		untie(c->tls, c->obj);
	for (int dir = TKS_RX; dir <= TKS_TX; dir++) {
		tks_stream_free(&c->stream[dir]);
		tks_mem_free(c->tls->mem, c->records[dir].at,
			     c->records[dir].size * sizeof(struct seen));
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
static uint32_t missing_before(struct object *o, const struct tks_event *ev)
{
	/* Numbers begin with what is seen first, unless all was promised. */
	uint32_t missing = o->started[ev->dir] || o->conn ? ev->seq - o->expect[ev->dir] : 0;

	if (!o->started[ev->dir])
		o->whole &= ev->call == 1 && !ev->cont;
	o->started[ev->dir] = true;
	o->expect[ev->dir] = ev->seq + ev->len;
	return missing < 1u << 30 ? missing : 0;
}

/*
 * A library that takes a long write in parts (SSL_MODE_ENABLE_PARTIAL_WRITE) returns behind the
 * first record, and is handed the rest by a further call: what waits of the earlier call behind
 * that record is this again.
 */
static void drop_resumed(struct tks_tls *t, struct object *o, const struct tks_event *ev)
{
	struct tks_list *l, *next;
	bool resumed = false;

	for (l = o->pieces[TKS_TX].next; l != &o->pieces[TKS_TX]; l = next) {
		struct piece *p = tks_list_entry(l, struct piece, list);

		next = l->next;
		if (p->last != ev->call - 1 || !p->cont || p->at)
			continue;
		resumed |= p->len == ev->len && p->cap == ev->cap &&
			   !memcmp(p->data, ev->data, p->cap);
		if (!resumed)
			return;
		piece_free(t, o, p);
	}
}

static int piece_add(struct tks_tls *t, struct object *o, const struct tks_event *ev,
		     struct piece **out)
{
	uint32_t missing = missing_before(o, ev);
	struct piece *p;

	*out = NULL;
	/* Of one whose connection is over only the last write may turn out to be another's. */
	if (o->pending + ev->cap > PENDING_MAX || (o->closed && !o->conn && !ev->cont))
		drop_pieces(t, o);
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
	*out = p;
	return 0;
}

/* Without a connection: a piece is what it is, at the library's door. */
static void deliver_untied(struct tks_tls *t, struct object *o, struct piece *p)
{
	struct tks_stamp st = { .ts_ns = p->ts_ns };

	hand_on(t, o, p, p->len - p->at, &st);
	piece_free(t, o, p);
}

static void wait_for_tie(struct tks_tls *t, struct object *o, const struct tks_event *ev)
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
static void hand_over_again(struct tks_tls *t, struct object *o, const struct tks_event *ev)
{
	t->counters.retries += !ev->cont;
	o->expect[ev->dir] += ev->len;
	for (struct tks_list *l = o->pieces[TKS_TX].next; l != &o->pieces[TKS_TX]; l = l->next) {
		struct piece *p = tks_list_entry(l, struct piece, list);

		if (p->last == ev->call - 1)
			p->last = ev->call;
	}
}

static int on_plain(struct tks_tls *t, struct object *o, const struct tks_event *ev)
{
	struct piece *p;
	int err;

	if (o->dead)
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
	struct object *o;

	if (ev->kind == TKS_EV_OBJ_GONE) {
		o = object_find(t, ev->proc.pid, ev->obj);
		if (o)
			object_free(t, o);
		return 0;
	}
	o = object_of(t, ev);
	if (!o)
		return -ENOMEM;
	o->lib = ev->lib;
	return ev->kind == TKS_EV_CIPHER ? mark_add(t, o, ev) : on_plain(t, o, ev);
}

void tks_tls_disown(struct tks_tls *t, uint32_t pid, uint64_t obj)
{
	struct object *o = object_find(t, pid, obj);

	if (!o)
		return;
	o->own = NULL;
	o->dead = true;
	drop_pieces(t, o);
}

static void give_up(struct tks_tls *t, struct object *o)
{
	struct piece *rx, *tx;

	tks_list_remove(&o->waiting);
	t->counters.untied += !o->given_up;
	o->given_up = true;
	o->own = t->ops->untied(t->ctx, &o->proc, o->id, o->whole);
	if (!o->own) {
		/* Its connection may show itself yet. */
		o->whole = false;
		drop_pieces(t, o);
		return;
	}
	while ((rx = first_piece(o, TKS_RX), tx = first_piece(o, TKS_TX), rx || tx))
		deliver_untied(t, o, !tx || (rx && rx->ts_ns <= tx->ts_ns) ? rx : tx);
}

static void give_up_late(struct tks_tls *t, struct tks_list *waiting, uint64_t wait_ns,
			 uint64_t now_ns)
{
	while (!tks_list_empty(waiting)) {
		struct object *o = tks_list_entry(waiting->next, struct object, waiting);

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
		object_free(t, tks_list_entry(t->lru.next, struct object, lru));
	tks_mem_free(t->mem, t, sizeof(*t));
}

void tks_tls_counters(const struct tks_tls *t, struct tks_tls_counters *out)
{
	*out = t->counters;
}
