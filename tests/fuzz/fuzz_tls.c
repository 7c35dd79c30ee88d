// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Objects of TLS libraries and connections, as any kernel might tell of them: the input is a list
 * of events, four bytes each, of which the first's lower half says what it is (step()). Most make
 * what libraries do, with the counts that belong to it; some say things that don't fit. Whatever
 * comes: of a direction no byte is handed on twice or before an earlier one, no more bytes come out
 * than went in, nothing goes to what is over, and all memory is given back.
 */
#include <stdlib.h>
#include <string.h>

#include "tls.h"
#include "tls_record.h"
#include "tokensnoop/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OBJECTS = 6, CONNS = 3, MADE = 8, OWNERS = 256, STEP = 4, BUDGET = 16 << 20 };

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond))                                                                       \
			abort();                                                                   \
	} while (0)

struct owner {
	struct tks_tls_conn *c;
	bool alive, started[2];
	uint32_t end[2]; /* of what was handed on */
	uint32_t seq[2]; /* of the next byte of ciphertext */
};

struct obj {
	uint32_t calls[2], bytes[2];
};

struct record {
	uint8_t b[TKS_TLS_HEADER + TKS_TLS_PLAIN_MAX + 2048];
	size_t n;
};

struct world {
	struct tks_mem mem;
	struct tks_tls *t;
	struct owner conn[CONNS], nobody[OWNERS];
	unsigned int nnobody, alive;
	struct obj obj[OBJECTS];
	struct record made[MADE];
	uint64_t now, given, handed;
	uint32_t random;
};

static uint8_t text[1 << 15]; /* what is written and read */

/* --- what comes out --- */

static void on_tied(void *ctx, void *conn, const struct tks_process *proc, bool whole)
{
	struct owner *a = conn;

	(void)ctx;
	(void)whole;
	CHECK(a->alive && a->c && proc->pid);
	/* Another object's numbers are its own. */
	a->started[TKS_RX] = a->started[TKS_TX] = false;
}

static void on_plain(void *ctx, void *conn, enum tks_dir dir, const struct tks_segment *seg)
{
	struct world *w = ctx;
	struct owner *a = conn;
	volatile uint8_t sum = 0;

	CHECK(a->alive && seg->len && seg->cap <= seg->len);
	CHECK(!a->started[dir] || (int32_t)(seg->seq - a->end[dir]) >= 0);
	a->started[dir] = true;
	a->end[dir] = seg->seq + seg->len;
	w->handed += seg->len;
	CHECK(w->handed <= w->given);
	for (uint32_t i = 0; i < seg->cap; i++)
		sum = (uint8_t)(sum + seg->data[i]);
}

static void *on_untied(void *ctx, const struct tks_process *proc, uint64_t obj, bool whole)
{
	struct world *w = ctx;
	struct owner *a;

	(void)whole;
	CHECK(proc->pid && obj);
	if (w->nnobody == OWNERS || obj % 3 == 0)
		return NULL;
	a = &w->nobody[w->nnobody++];
	a->alive = true;
	w->alive++;
	return a;
}

static void on_gone(void *ctx, void *conn)
{
	struct world *w = ctx;
	struct owner *a = conn;

	CHECK(a->alive && !a->c);
	a->alive = false;
	w->alive--;
}

static void on_closed(void *ctx, void *conn, enum tks_dir dir, const struct tks_stamp *st,
		      uint32_t len)
{
	struct owner *a = conn;

	(void)ctx;
	(void)dir;
	CHECK(a->alive && a->c && st->ts_ns && len);
}

static void on_past(void *ctx, void *conn, const struct tks_stamp *st)
{
	struct owner *a = conn;

	(void)ctx;
	CHECK(a->alive && a->c && st->ts_ns);
}

static void on_unwanted(void *ctx, const struct tks_process *proc, uint64_t obj)
{
	(void)ctx;
	CHECK(proc->pid && obj);
}

static const struct tks_tls_ops ops = { .tied = on_tied,
					.plain = on_plain,
					.untied = on_untied,
					.gone = on_gone,
					.closed = on_closed,
					.unwanted = on_unwanted,
					.past = on_past };

/* --- what goes in --- */

/* Objects 4 and 5 have the numbers of 0 and 1, in another process. */
static void fill(struct tks_event *ev, unsigned int o, uint64_t now)
{
	ev->proc.pid = 7 + o / 4;
	ev->obj = 1 + o % 4;
	ev->lib = (uint16_t)(1 + o % 4);
	ev->ts_ns = now;
}

static void feed(struct world *w, const struct tks_event *ev)
{
	uint8_t *copy = malloc(ev->cap ? ev->cap : 1); /* exact, so that reading beyond is seen */
	struct tks_event e = *ev;

	CHECK(copy);
	if (ev->cap)
		memcpy(copy, ev->data, ev->cap);
	e.data = copy;
	if (ev->kind == TKS_EV_PLAIN)
		w->given += ev->len;
	tks_tls_event(w->t, &e);
	free(copy);
}

enum { AGAIN = 1, LOST = 2 };

static void call(struct world *w, unsigned int o, enum tks_dir dir, uint32_t len, uint32_t asked,
		 unsigned int flags)
{
	struct obj *obj = &w->obj[o];

	obj->calls[dir]++;
	for (uint32_t at = 0; at < len;) {
		struct tks_event ev = { .kind = TKS_EV_PLAIN, .dir = dir };

		fill(&ev, o, w->now);
		ev.len = ev.cap = len - at < TKS_DATA_CAP ? len - at : TKS_DATA_CAP;
		ev.data = text + at;
		ev.seq = obj->bytes[dir] + at;
		ev.call = obj->calls[dir];
		ev.asked = asked;
		ev.again = flags & AGAIN;
		ev.cont = at > 0;
		if (!(flags & LOST))
			feed(w, &ev);
		at += ev.len;
	}
	obj->bytes[dir] += len;
}

static void make(struct world *w, struct record *r, uint8_t type, uint32_t len)
{
	if (len > sizeof(r->b) - TKS_TLS_HEADER)
		len = sizeof(r->b) - TKS_TLS_HEADER;
	r->n = TKS_TLS_HEADER + len;
	memcpy(r->b, (uint8_t[]){ type, 3, 3, (uint8_t)(len >> 8), (uint8_t)len }, TKS_TLS_HEADER);
	for (size_t i = TKS_TLS_HEADER; i < r->n; i++) {
		w->random = w->random * 1664525 + 1013904223;
		r->b[i] = (uint8_t)(w->random >> 24);
	}
	/* A server's hello, now and then. */
	if (type == TKS_TLS_HANDSHAKE && len > 80 && len & 1) {
		memset(r->b + TKS_TLS_HEADER, 0, 80);
		r->b[TKS_TLS_HEADER] = 2;
		memcpy(r->b + TKS_TLS_HEADER + 39, (uint8_t[]){ 0x13, (uint8_t)(len >> 1 & 7) }, 2);
	}
}

static void mark(struct world *w, unsigned int o, uint32_t in_call, const struct record *r)
{
	struct tks_event ev = { .kind = TKS_EV_CIPHER, .call = in_call };

	fill(&ev, o, w->now);
	ev.len = (uint32_t)r->n;
	ev.cap = ev.len < TKS_TLS_OUT_CAP ? ev.len : TKS_TLS_OUT_CAP;
	ev.data = r->b;
	feed(w, &ev);
}

/* n bytes; nested: in a call of object o, numbered in_call. */
static void bytes(struct world *w, struct owner *a, enum tks_dir dir, const uint8_t *p, uint32_t n,
		  int nested, uint32_t in_call)
{
	struct tks_event ev = { .kind = TKS_EV_DATA, .dir = dir, .len = n, .cap = n };
	uint8_t *copy = malloc(n ? n : 1);

	CHECK(copy);
	memcpy(copy, p, n);
	if (nested >= 0)
		fill(&ev, (unsigned int)nested, w->now);
	ev.ts_ns = w->now;
	ev.ret_ns = dir == TKS_TX ? w->now + 5 : 0;
	ev.call = in_call;
	ev.data = copy;
	ev.seq = a->seq[dir];
	a->seq[dir] += n;
	if (a->c)
		tks_tls_cipher(a->c, &ev);
	free(copy);
}

static void conn_free(struct owner *a)
{
	tks_tls_conn_free(a->c);
	memset(a, 0, sizeof(*a));
}

static void conn_new(struct world *w, struct owner *a, bool start)
{
	conn_free(a);
	a->c = tks_tls_conn_new(w->t, a);
	a->alive = a->c;
	a->seq[TKS_TX] = 0xffffff00;
	for (int dir = TKS_RX; start && a->c && dir <= TKS_TX; dir++)
		tks_tls_conn_start(a->c, dir, a->seq[dir]);
}

static void disown(struct world *w)
{
	/* What untied gave is disowned by who keeps it, all at once here. */
	for (unsigned int i = 0; i < OBJECTS; i++)
		tks_tls_disown(w->t, 7 + i / 4, 1 + i % 4);
	for (unsigned int i = 0; i < w->nnobody; i++)
		w->nobody[i].alive = false;
	w->alive = 0;
}

static void advance(struct world *w, uint8_t by)
{
	w->now += 1ull << by % 40;
	tks_tls_advance(w->t, w->now);
	for (int i = 0; i < CONNS; i++) {
		if (w->conn[i].c)
			tks_tls_conn_advance(w->conn[i].c, w->now);
	}
}

/* What no kernel says: any numbers, few bytes. */
static void odd(struct world *w, const uint8_t *p)
{
	struct tks_event ev = { .kind = p[1] & 1 ? TKS_EV_CIPHER : TKS_EV_PLAIN };

	fill(&ev, p[1] / 2 % OBJECTS, w->now);
	ev.dir = p[1] & 16 ? TKS_TX : TKS_RX;
	ev.again = p[1] & 32 && ev.dir == TKS_TX;
	ev.cont = p[1] & 64;
	ev.seq = p[2] * 16u;
	ev.call = p[2] & 15;
	ev.asked = p[3];
	ev.len = p[3] * (p[1] & 128 ? 300u : 1);
	ev.cap = p[3];
	ev.data = text;
	if (ev.kind == TKS_EV_CIPHER || ev.len)
		feed(w, &ev);
}

static void step_conn(struct world *w, const uint8_t *p, struct owner *a)
{
	struct record *r = &w->made[p[2] % MADE];
	uint32_t half = (uint32_t)r->n * p[3] / 256;

	switch (p[0] & 15) {
	case 2: /* a record that was made is sent, nested or not */
		bytes(w, a, TKS_TX, r->b, (uint32_t)r->n, p[3] & 1 ? p[3] / 2 % OBJECTS : -1,
		      w->obj[p[3] / 2 % OBJECTS].calls[TKS_TX] & (p[3] & 128 ? 0 : ~0u));
		return;
	case 3: /* ... in two parts */
		bytes(w, a, TKS_TX, r->b, half, -1, 0);
		w->now++;
		bytes(w, a, TKS_TX, r->b + half, (uint32_t)r->n - half, -1, 0);
		return;
	case 4: /* one arrives, whole or cut off */
		bytes(w, a, TKS_RX, r->b, p[3] & 1 ? half : (uint32_t)r->n, -1, 0);
		return;
	case 7:
		conn_new(w, a, p[2] & 1);
		return;
	case 8: /* bytes are lost, or come again */
		a->seq[p[2] & 1] += p[3] * (p[2] & 2 ? 1u : 64u) - (p[2] & 4 ? 256u : 0);
		return;
	case 10:
		if (a->c)
			tks_tls_conn_end(a->c, p[2] & 1, a->seq[p[2] & 1] + p[3] / 16);
		return;
	default:
		bytes(w, a, p[1] & 1, p, STEP, -1, 0);
	}
}

static void step(struct world *w, const uint8_t *p)
{
	unsigned int o = p[1] % OBJECTS;
	uint32_t n = p[2] * (p[1] & 128 ? 120u : 1) + 1;
	struct record *r = &w->made[p[3] % MADE];

	w->now += 1 + p[3] / 16;
	switch (p[0] & 15) {
	case 0:
		call(w, o, TKS_TX, n, 0, p[3] & 3);
		return;
	case 1: /* a record for so much, and its mark */
		make(w, r, (uint8_t)(23 - (p[3] / 8 & 3)), n + 16 + (p[3] / 32 & 1));
		if (p[3] & 128)
			mark(w, o, p[3] & 64 ? w->obj[o].calls[TKS_TX] : 0, r);
		return;
	case 5:
		call(w, o, TKS_RX, n, n + (p[3] & 1 ? 0 : 100), p[3] & LOST);
		return;
	case 6: {
		struct tks_event ev = { .kind = TKS_EV_OBJ_GONE };

		fill(&ev, o, w->now);
		if (!(p[3] & 1))
			feed(w, &ev);
		memset(&w->obj[o], 0, sizeof(w->obj[o]));
		return;
	}
	case 9:
		advance(w, p[3]);
		return;
	case 11:
		disown(w);
		return;
	case 12:
		w->mem.fail_at = p[2] & 1 ? w->mem.calls + 1 + p[3] % 8 : 0;
		return;
	case 13:
		odd(w, p);
		return;
	default:
		step_conn(w, p, &w->conn[p[1] % CONNS]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world w;

	memset(&w, 0, sizeof(w));
	w.mem.limit = BUDGET;
	w.now = 1000;
	w.t = tks_tls_new(&w.mem, &ops, &w);
	CHECK(w.t);
	for (size_t i = 0; !text[1] && i < sizeof(text); i++)
		text[i] = (uint8_t)(i * 7 + i / 251);
	for (int i = 0; i < CONNS; i++)
		conn_new(&w, &w.conn[i], true);
	for (size_t i = 0; i + STEP <= size; i += STEP)
		step(&w, data + i);
	for (int i = 0; i < CONNS; i++)
		conn_free(&w.conn[i]);
	tks_tls_free(w.t);
	CHECK(!w.alive && !w.mem.used);
	return 0;
}
