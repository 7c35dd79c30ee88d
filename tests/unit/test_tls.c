// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Plaintext and its connection. The tests play the kernel: they tell of calls of TLS libraries, of
 * the ciphertext that these make and of sends and packets, in the order and with the counts that
 * bpf/tls.bpf.c gives them. What comes out is one text, a line each:
 *
 *   A tied 7 whole            the connection A is that of an object in process 7
 *   A> 5 text @102-107 t100   written: sent at 102, the send returned at 107, in the library at 100
 *   A< 0 text @200            read: arrived at 200
 *   U untied 7:1 whole        nothing carries the object 1; U stands for it
 *   U gone
 *   A> closed 100 @20         a record of data of 100 bytes, whose plaintext is not known
 *
 * Long texts are written as their length; each byte of theirs says where it belongs.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib_pipeline.h"
#include "tls.h"
#include "tls_record.h"

enum { CONNS = 64, LOG_MAX = 1 << 16, LINE_TEXT = 48, SEND_NS = 5, PID = 7 };
enum { ALERT = TKS_TLS_ALERT, HANDSHAKE = TKS_TLS_HANDSHAKE, DATA = TKS_TLS_DATA };

struct owner {
	bool kernel_tls; /* the kernel makes what it sends now */
	char name[4];
	struct tks_tls_conn *c;
	uint32_t seq[2]; /* of the next byte of ciphertext */
	bool whole; /* so its plaintext is said to be */
};

struct world {
	struct tks_mem mem;
	struct tks_tls *t;
	struct owner conn[CONNS], nobody;
	bool wants_untied, wants_closed;
	bool exact; /* every byte says where it belongs */
	uint64_t random;
	char log[LOG_MAX];
	size_t n;
	size_t got[2]; /* bytes handed on */
};

/* An object of a library, and what the kernel's table counts of it. */
struct obj {
	uint64_t id;
	uint16_t lib;
	uint32_t calls[2], bytes[2];
};

struct record {
	uint8_t b[TKS_TLS_HEADER + TKS_TLS_PLAIN_MAX + 2048];
	size_t n;
};

/* --- what comes out --- */

static void say(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct world *w, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	w->n += (size_t)vsnprintf(w->log + w->n, sizeof(w->log) - w->n, format, ap);
	va_end(ap);
	assert_true(w->n < sizeof(w->log));
}

/* The byte at `at` of long texts. */
static uint8_t pattern(uint32_t at)
{
	return (uint8_t)(at * 7 + at / 251 + at / 65521);
}

static void on_tied(void *ctx, void *conn, const struct tks_process *proc, bool whole)
{
	struct owner *a = conn;

	a->whole = whole;
	say(ctx, "%s tied %u%s\n", a->name, proc->pid, whole ? " whole" : "");
}

static void on_plain(void *ctx, void *conn, enum tks_dir dir, const struct tks_segment *seg)
{
	struct world *w = ctx;
	struct owner *a = conn;
	bool text = seg->len <= LINE_TEXT && seg->cap == seg->len;
	bool check = w->exact ? a->whole : !text;

	assert_true(seg->len && seg->cap <= seg->len);
	for (uint32_t i = 0; check && i < seg->cap; i++)
		assert_int_equal(seg->data[i], pattern(seg->seq + i));
	w->got[dir] += seg->len;
	if (w->exact)
		return;
	say(w, "%s%c %u ", a->name, dir == TKS_TX ? '>' : '<', seg->seq);
	if (text)
		say(w, "%.*s", (int)seg->len, (const char *)seg->data);
	else if (seg->cap == seg->len)
		say(w, "[%u]", seg->len);
	else
		say(w, "[%u of %u]", seg->cap, seg->len);
	say(w, " @%" PRIu64, seg->ts_ns);
	if (seg->ret_ns)
		say(w, "-%" PRIu64, seg->ret_ns);
	if (seg->tls_ns)
		say(w, " t%" PRIu64, seg->tls_ns);
	say(w, "\n");
}

static void *on_untied(void *ctx, const struct tks_process *proc, uint64_t obj, bool whole)
{
	struct world *w = ctx;

	say(w, "U untied %u:%" PRIu64 "%s\n", proc->pid, obj, whole ? " whole" : "");
	w->nobody.whole = whole;
	return w->wants_untied ? &w->nobody : NULL;
}

static void on_unwanted(void *ctx, const struct tks_process *proc, uint64_t obj)
{
	say(ctx, "unwanted %u:%" PRIu64 "\n", proc->pid, obj);
}

static void on_gone(void *ctx, void *conn)
{
	say(ctx, "%s gone\n", ((struct owner *)conn)->name);
}

static void on_closed(void *ctx, void *conn, enum tks_dir dir, const struct tks_stamp *st,
		      uint32_t len)
{
	struct world *w = ctx;

	if (w->wants_closed)
		say(w, "%s%c closed %u @%" PRIu64 "\n", ((struct owner *)conn)->name,
		    dir == TKS_TX ? '>' : '<', len, st->ts_ns);
}

static void on_past(void *ctx, void *conn, const struct tks_stamp *st)
{
	say(ctx, "%s> past @%" PRIu64 "\n", ((struct owner *)conn)->name, st->ts_ns);
}

static const struct tks_tls_ops ops = { .tied = on_tied,
					.plain = on_plain,
					.untied = on_untied,
					.unwanted = on_unwanted,
					.gone = on_gone,
					.closed = on_closed,
					.past = on_past };

#define EXPECT(w, text)                                                                            \
	do {                                                                                       \
		assert_string_equal((w)->log, text);                                               \
		forget(w);                                                                         \
	} while (0)

static void forget(struct world *w)
{
	w->n = 0;
	w->log[0] = 0;
}

/* --- the world --- */

static struct world *world(void)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->random = 88172645463325252ull;
	w->t = tks_tls_new(&w->mem, &ops, w);
	assert_non_null(w->t);
	for (int i = 0; i < CONNS; i++)
		snprintf(w->conn[i].name, sizeof(w->conn[i].name), i < 26 ? "%c" : "%c%d",
			 'A' + i % 26, i / 26);
	strcpy(w->nobody.name, "U");
	return w;
}

static struct owner *middle(struct world *w, int i)
{
	struct owner *a = &w->conn[i];

	a->seq[TKS_RX] = 1000;
	a->seq[TKS_TX] = 0xfffffff0; /* wraps after 16 bytes */
	a->c = tks_tls_conn_new(w->t, a);
	return a;
}

static struct owner *opened(struct world *w, int i)
{
	struct owner *a = middle(w, i);

	for (int dir = TKS_RX; a->c && dir <= TKS_TX; dir++)
		tks_tls_conn_start(a->c, dir, a->seq[dir]);
	return a;
}

static void closed(struct owner *a)
{
	tks_tls_conn_free(a->c);
	a->c = NULL;
}

static void over(struct world *w)
{
	for (int i = 0; i < CONNS; i++)
		closed(&w->conn[i]);
	tks_tls_free(w->t);
	assert_int_equal(w->mem.used, 0);
	free(w);
}

static uint64_t unmatched(const struct world *w)
{
	struct tks_tls_counters c;

	tks_tls_counters(w->t, &c);
	return c.unmatched;
}

/* --- what goes in --- */

static uint8_t *copy_of(const void *p, size_t n)
{
	uint8_t *copy = malloc(n ? n : 1);

	assert_non_null(copy);
	memcpy(copy, p, n);
	return copy;
}

/* A record of so many bytes of payload, which no other record has. */
static struct record *record(struct world *w, struct record *r, uint8_t type, size_t len)
{
	r->n = TKS_TLS_HEADER + len;
	assert_true(r->n <= sizeof(r->b));
	memcpy(r->b, (uint8_t[]){ type, 3, 3, (uint8_t)(len >> 8), (uint8_t)len }, TKS_TLS_HEADER);
	for (size_t i = TKS_TLS_HEADER; i < r->n; i++) {
		w->random ^= w->random << 13;
		w->random ^= w->random >> 7;
		w->random ^= w->random << 17;
		r->b[i] = (uint8_t)(w->random >> 32);
	}
	return r;
}

static int event(struct world *w, struct obj *o, struct tks_event *ev)
{
	uint8_t *copy = copy_of(ev->data, ev->cap);
	int err;

	ev->proc.pid = PID;
	ev->obj = o->id;
	ev->lib = o->lib;
	ev->data = copy;
	err = tks_tls_event(w->t, ev);
	free(copy);
	return err;
}

enum { AGAIN = 1, LOST = 2 };

/* A call of the library that takes (TX) or gives (RX) the bytes: in pieces of 16384 bytes, 64 at
 * most, of which the last stands for the rest. */
static int call(struct world *w, struct obj *o, enum tks_dir dir, uint64_t ts, const void *p,
		size_t len, uint32_t asked, int flags)
{
	int err = 0;

	o->calls[dir]++;
	for (size_t at = 0, part = 1; at < len; part++) {
		struct tks_event ev = { .kind = TKS_EV_PLAIN, .dir = dir, .ts_ns = ts };

		ev.cap = (uint32_t)(len - at < TKS_DATA_CAP ? len - at : TKS_DATA_CAP);
		ev.len = part == TKS_SEND_RECS ? (uint32_t)(len - at) : ev.cap;
		ev.data = (const uint8_t *)p + at;
		ev.seq = o->bytes[dir] + (uint32_t)at;
		ev.call = o->calls[dir];
		ev.asked = asked;
		ev.again = flags & AGAIN;
		ev.cont = at > 0;
		if (!(flags & LOST))
			err = event(w, o, &ev) ?: err;
		at += ev.len;
	}
	o->bytes[dir] += (uint32_t)len;
	return err;
}

static int put(struct world *w, struct obj *o, uint64_t ts, const char *text)
{
	return call(w, o, TKS_TX, ts, text, strlen(text), 0, 0);
}

static int put_again(struct world *w, struct obj *o, uint64_t ts, const char *text)
{
	return call(w, o, TKS_TX, ts, text, strlen(text), 0, AGAIN);
}

/* len bytes that belong at `at`. */
static int put_long(struct world *w, struct obj *o, uint64_t ts, uint32_t at, size_t len, int flags)
{
	uint8_t *p = malloc(len);
	int err;

	assert_non_null(p);
	for (size_t i = 0; i < len; i++)
		p[i] = pattern(at + (uint32_t)i);
	err = call(w, o, TKS_TX, ts, p, len, 0, flags);
	free(p);
	return err;
}

static int get(struct world *w, struct obj *o, uint64_t ts, const char *text, uint32_t asked)
{
	return call(w, o, TKS_RX, ts, text, strlen(text), asked, 0);
}

static int get_long(struct world *w, struct obj *o, uint64_t ts, uint32_t at, size_t len,
		    uint32_t asked)
{
	uint8_t *p = malloc(len);
	int err;

	assert_non_null(p);
	for (size_t i = 0; i < len; i++)
		p[i] = pattern(at + (uint32_t)i);
	err = call(w, o, TKS_RX, ts, p, len, asked, 0);
	free(p);
	return err;
}

/* The library hands ciphertext to a BIO, in a write or (0) in another call. */
static int mark(struct world *w, struct obj *o, uint64_t ts, uint32_t in_call, const void *p,
		size_t n)
{
	struct tks_event ev = { .kind = TKS_EV_CIPHER, .ts_ns = ts, .call = in_call };

	ev.len = (uint32_t)n;
	ev.cap = (uint32_t)(n < TKS_TLS_OUT_CAP ? n : TKS_TLS_OUT_CAP);
	ev.data = p;
	return event(w, o, &ev);
}

static int gone(struct world *w, struct obj *o, uint64_t ts)
{
	struct tks_event ev = { .kind = TKS_EV_OBJ_GONE, .ts_ns = ts, .data = (uint8_t *)"" };
	int err = event(w, o, &ev);

	memset(o->calls, 0, sizeof(o->calls));
	memset(o->bytes, 0, sizeof(o->bytes));
	return err;
}

static int bytes(struct owner *a, enum tks_dir dir, uint64_t ts, const void *p, size_t n,
		 const struct obj *o, uint32_t in_call)
{
	struct tks_event ev = { .kind = TKS_EV_DATA, .dir = dir, .ts_ns = ts };
	uint8_t *copy = copy_of(p, n);
	int err;

	ev.seq = a->seq[dir];
	ev.len = ev.cap = (uint32_t)n;
	ev.data = copy;
	ev.kernel_tls = dir == TKS_TX && a->kernel_tls;
	if (dir == TKS_TX) {
		ev.ret_ns = ts + SEND_NS;
		ev.proc.pid = PID;
		ev.obj = o ? o->id : 0;
		ev.call = in_call;
	}
	a->seq[dir] += (uint32_t)n;
	err = tks_tls_cipher(a->c, &ev);
	free(copy);
	return err;
}

/* A send, nested in a call of o (NULL: of none). */
static int send_in(struct owner *a, uint64_t ts, const struct record *r, const struct obj *o,
		   uint32_t in_call)
{
	return bytes(a, TKS_TX, ts, r->b, r->n, o, in_call);
}

static int send_out(struct owner *a, uint64_t ts, const struct record *r)
{
	return send_in(a, ts, r, NULL, 0);
}

static int arrive(struct owner *a, uint64_t ts, const struct record *r)
{
	return bytes(a, TKS_RX, ts, r->b, r->n, NULL, 0);
}

/* A record of the type and payload that arrives. */
static int arrive_new(struct world *w, struct owner *a, uint64_t ts, uint8_t type, size_t len)
{
	struct record r;

	return arrive(a, ts, record(w, &r, type, len));
}

/* A record that the library makes outside of writes and sends at once. */
static void other(struct world *w, struct owner *a, struct obj *o, uint64_t ts, uint8_t type,
		  size_t len)
{
	struct record r;

	record(w, &r, type, len);
	if (o->lib == TKS_TLS_OPENSSL)
		mark(w, o, ts, 0, r.b, r.n);
	send_in(a, ts + 1, &r, o, 0);
}

/* A server's hello (RFC 8446, 4.1.3; RFC 5246, 7.4.1.3) with a session of so many bytes. */
static void hello(struct world *w, struct owner *a, struct obj *o, uint64_t ts, uint16_t suite,
		  uint8_t session)
{
	struct record r;
	uint8_t *p = record(w, &r, HANDSHAKE, 90 + session)->b + TKS_TLS_HEADER;

	memcpy(p, (uint8_t[]){ 2, 0, 0, (uint8_t)(86 + session), 3, 3 }, 6);
	p[38] = session;
	p[39 + session] = (uint8_t)(suite >> 8);
	p[40 + session] = (uint8_t)suite;
	if (o->lib == TKS_TLS_OPENSSL)
		mark(w, o, ts, 0, r.b, r.n);
	send_in(a, ts + 1, &r, o, 0);
}

/* A server's handshake in TLS 1.3 on a socket BIO, at 10 to 39: what it sends, the client's
 * Finished (SHA-256: 36 bytes and 17 more), two tickets. */
static void handshake(struct world *w, struct owner *a, struct obj *o)
{
	arrive_new(w, a, 10, HANDSHAKE, 517);
	hello(w, a, o, 20, 0x1301, 32);
	other(w, a, o, 22, TKS_TLS_CHANGE_CIPHER, 1);
	other(w, a, o, 24, DATA, 1200);
	arrive_new(w, a, 30, TKS_TLS_CHANGE_CIPHER, 1);
	arrive_new(w, a, 31, DATA, 53);
	other(w, a, o, 36, DATA, 234);
	other(w, a, o, 38, DATA, 234);
}

/* A write on a socket BIO: called at ts, made at ts + 1, sent from ts + 2 to ts + 7. */
static void put_and_send(struct world *w, struct owner *a, struct obj *o, uint64_t ts,
			 const char *text, size_t overhead)
{
	struct record r;

	put(w, o, ts, text);
	record(w, &r, DATA, strlen(text) + overhead);
	if (o->lib == TKS_TLS_OPENSSL)
		mark(w, o, ts + 1, o->calls[TKS_TX], r.b, r.n);
	send_in(a, ts + 2, &r, o, o->calls[TKS_TX]);
}

/* --- ways to write --- */

static void test_socket_bio(void **state)
{
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };

	(void)state;
	handshake(w, a, &o);
	EXPECT(w, "A tied 7 whole\n");
	arrive_new(w, a, 50, DATA, 100 + 17);
	get_long(w, &o, 60, 0, 100, 4096);
	EXPECT(w, "A< 0 [100] @50\n");
	put_and_send(w, a, &o, 100, "hello", 17);
	EXPECT(w, "A> 0 hello @102-107 t100\n");
	put_and_send(w, a, &o, 200, "abc", 17);
	EXPECT(w, "A> 5 abc @202-207 t200\n");
	arrive_new(w, a, 300, DATA, 4 + 17);
	get(w, &o, 310, "more", 4096);
	EXPECT(w, "A< 100 more @300\n");
	assert_int_equal(unmatched(w), 0);
	gone(w, &o, 400);
	EXPECT(w, "");
	over(w);
}

/* The client's side: the first thing is a write. */
static void test_client(void **state)
{
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };

	(void)state;
	other(w, a, &o, 10, HANDSHAKE, 517);
	EXPECT(w, "A tied 7 whole\n");
	arrive_new(w, a, 20, HANDSHAKE, 122);
	arrive_new(w, a, 20, DATA, 1200);
	other(w, a, &o, 30, DATA, 53);
	put_and_send(w, a, &o, 100, "GET /", 17);
	/* Two tickets, then the answer. */
	arrive_new(w, a, 110, DATA, 234);
	arrive_new(w, a, 110, DATA, 234);
	arrive_new(w, a, 120, DATA, 6 + 17);
	get(w, &o, 125, "answer", 4096);
	EXPECT(w, "A> 0 GET / @102-107 t100\nA< 0 answer @120\n");
	assert_int_equal(unmatched(w), 0);
	over(w);
}

/*
 * 64 objects on one thread write texts of one length to memory BIOs, and all is sent later, in
 * another order, by one loop whose sends seem nested in the last write. No byte goes to another's
 * connection.
 */
static void test_memory_bio(void **state)
{
	static const int stride[] = { 1, 63, 37, 5 };
	static struct record r[CONNS];
	struct world *w = world();
	struct obj o[CONNS];
	char text[16];

	(void)state;
	for (int i = 0; i < CONNS; i++) {
		o[i] = (struct obj){ (uint64_t)i + 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
		opened(w, i);
	}
	for (uint64_t round = 0; round < 4; round++) {
		uint64_t base = 10000 * (round + 1);

		for (int i = 0; i < CONNS; i++) {
			snprintf(text, sizeof(text), "%02d of %03u", i, (unsigned int)round);
			put(w, &o[i], base + 10 * (uint64_t)i, text);
			record(w, &r[i], DATA, 9 + 17);
			mark(w, &o[i], base + 10 * (uint64_t)i + 1, o[i].calls[TKS_TX], r[i].b,
			     r[i].n);
		}
		EXPECT(w, "");
		for (int k = 0; k < CONNS; k++) {
			int i = k * stride[round] % CONNS;
			uint64_t at = base + 5000 + 10 * (uint64_t)k;
			char want[128];

			snprintf(want, sizeof(want),
				 "%s%s%s> %u %02d of %03u @%" PRIu64 "-%" PRIu64 " t%" PRIu64 "\n",
				 round ? "" : w->conn[i].name, round ? "" : " tied 7 whole\n",
				 w->conn[i].name, 9 * (unsigned int)round, i, (unsigned int)round,
				 at, at + 5, base + 10 * (uint64_t)i);
			send_in(&w->conn[i], at, &r[i], &o[CONNS - 1], o[CONNS - 1].calls[TKS_TX]);
			EXPECT(w, want);
		}
	}
	over(w);
}

/* One memory BIO, several writes, one send of all: each has its own time in the library. */
static void test_memory_bio_coalesced(void **state)
{
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	static uint8_t wire[4096];
	struct record r;
	size_t n = 0;

	(void)state;
	handshake(w, a, &o);
	forget(w);
	for (int i = 0; i < 3; i++) {
		static const char *const text[] = { "one", "two!", "three" };

		put(w, &o, 100 + 10 * (uint64_t)i, text[i]);
		record(w, &r, DATA, strlen(text[i]) + 17);
		mark(w, &o, 101 + 10 * (uint64_t)i, o.calls[TKS_TX], r.b, r.n);
		memcpy(wire + n, r.b, r.n);
		n += r.n;
	}
	/* 25 + 26 + 27 bytes; the send is cut within the third. */
	assert_int_equal(n, 78);
	bytes(a, TKS_TX, 150, wire, 60, NULL, 0);
	EXPECT(w, "A> 0 one @150-155 t100\nA> 3 two! @150-155 t110\n");
	bytes(a, TKS_TX, 160, wire + 60, 17, NULL, 0);
	EXPECT(w, "");
	bytes(a, TKS_TX, 170, wire + 77, 1, NULL, 0);
	EXPECT(w, "A> 7 three @170-175 t120\n");
	over(w);
}

/* A record sent a byte at a time, or cut anywhere: the last byte's send counts. */
static void test_split_sends(void **state)
{
	(void)state;
	for (size_t cut = 1; cut < 27; cut++) {
		struct world *w = world();
		struct owner *a = opened(w, 0);
		struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
		struct record r;

		handshake(w, a, &o);
		forget(w);
		put(w, &o, 100, "hello");
		record(w, &r, DATA, 5 + 17);
		mark(w, &o, 101, 1, r.b, r.n);
		bytes(a, TKS_TX, 102, r.b, cut, &o, 1);
		EXPECT(w, "");
		bytes(a, TKS_TX, 110, r.b + cut, r.n - cut, &o, 1);
		EXPECT(w, "A> 0 hello @110-115 t100\n");
		over(w);
	}
}

/* No ciphertext is told of; the sends are nested in the write. */
static void nested(uint16_t lib)
{
	struct world *w = world();
	struct owner *a = opened(w, 0), *b = opened(w, 1);
	struct obj o = { 1, lib, { 0 }, { 0 } }, p = { 2, lib, { 0 }, { 0 } };

	handshake(w, a, &o);
	handshake(w, b, &p);
	arrive_new(w, a, 50, DATA, 100 + 17);
	get_long(w, &o, 60, 0, 100, 4096);
	arrive_new(w, b, 70, DATA, 60 + 17);
	get_long(w, &p, 80, 0, 60, 4096);
	EXPECT(w, "");
	put_and_send(w, a, &o, 100, "hello", 17);
	EXPECT(w, "A tied 7 whole\nA< 0 [100] @50\nA> 0 hello @102-107 t100\n");
	put_and_send(w, a, &o, 120, "abc", 17);
	EXPECT(w, "A> 5 abc @122-127 t120\n");
	put_and_send(w, b, &p, 130, "hello", 17);
	EXPECT(w, "B tied 7 whole\nB< 0 [60] @70\nB> 0 hello @132-137 t130\n");
	put_and_send(w, a, &o, 140, "defgh", 17);
	EXPECT(w, "A> 8 defgh @142-147 t140\n");
	arrive_new(w, a, 200, DATA, 7 + 17);
	get(w, &o, 210, "request", 7);
	EXPECT(w, "A< 100 request @200\n");
	assert_int_equal(unmatched(w), 0);
	over(w);
}

static void test_nested(void **state)
{
	(void)state;
	nested(TKS_TLS_GNUTLS);
	nested(TKS_TLS_NSS);
	nested(TKS_TLS_GO);
}

/* An answer that takes long to begin (a long prompt): the object is still its connection's. */
static void slow_answer(uint16_t lib)
{
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, lib, { 0 }, { 0 } };
	uint64_t s = 1000000000;

	handshake(w, a, &o);
	forget(w);
	arrive_new(w, a, 50, DATA, 100 + 17);
	get_long(w, &o, 60, 0, 100, 4096);
	forget(w);
	for (uint64_t now = s / 10; now < 30 * s; now += s / 10) {
		tks_tls_advance(w->t, now);
		tks_tls_conn_advance(a->c, now);
	}
	put_and_send(w, a, &o, 30 * s, "hello", 17);
	if (!strstr(w->log, "A> 0 hello @30000000002-30000000007 t30000000000\n"))
		fail_msg("%d: %s", lib, w->log);
	assert_int_equal(w->got[TKS_RX], 100);
	over(w);
}

static void test_slow_answer(void **state)
{
	(void)state;
	slow_answer(TKS_TLS_OPENSSL);
	slow_answer(TKS_TLS_GNUTLS);
	slow_answer(TKS_TLS_NSS);
	slow_answer(TKS_TLS_GO);
}

/* --- refused, partial and long writes --- */

static void test_again(void **state)
{
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct tks_tls_counters c;
	struct record r;

	(void)state;
	handshake(w, a, &o);
	forget(w);
	put(w, &o, 100, "hello");
	record(w, &r, DATA, 5 + 17);
	mark(w, &o, 101, 1, r.b, r.n);
	/* The send takes nothing; twice more the write is called with the same. */
	put_again(w, &o, 110, "hello");
	mark(w, &o, 111, 2, r.b, r.n);
	put_again(w, &o, 120, "hello");
	mark(w, &o, 121, 3, r.b, r.n);
	EXPECT(w, "");
	send_in(a, 122, &r, &o, 3);
	EXPECT(w, "A> 0 hello @122-127 t100\n");
	put_and_send(w, a, &o, 200, "abc", 17);
	EXPECT(w, "A> 5 abc @202-207 t200\n");
	tks_tls_counters(w->t, &c);
	assert_int_equal(c.retries, 2);
	over(w);
}

/* 40000 bytes in three records; within the second the socket is full, and the write is called
 * again: the rest of the second and the third leave then. */
static void again_long(uint16_t lib)
{
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, lib, { 0 }, { 0 } };
	struct record r[3];
	bool marks = lib == TKS_TLS_OPENSSL;

	handshake(w, a, &o);
	forget(w);
	put_long(w, &o, 100, 0, 40000, 0);
	record(w, &r[0], DATA, 16384 + 17);
	record(w, &r[1], DATA, 16384 + 17);
	record(w, &r[2], DATA, 7232 + 17);
	if (marks)
		mark(w, &o, 101, 1, r[0].b, r[0].n);
	send_in(a, 102, &r[0], &o, 1);
	EXPECT(w, marks ? "A> 0 [16384] @102-107 t100\n"
			: "A tied 7 whole\nA> 0 [16384] @102-107 t100\n");
	if (marks)
		mark(w, &o, 103, 1, r[1].b, r[1].n);
	bytes(a, TKS_TX, 104, r[1].b, 1000, &o, 1);
	put_long(w, &o, 200, 0, 40000, AGAIN);
	bytes(a, TKS_TX, 202, r[1].b + 1000, r[1].n - 1000, &o, 2);
	EXPECT(w, "A> 16384 [16384] @202-207 t100\n");
	if (marks)
		mark(w, &o, 203, 2, r[2].b, r[2].n);
	send_in(a, 204, &r[2], &o, 2);
	EXPECT(w, "A> 32768 [7232] @204-209 t100\n");
	put_and_send(w, a, &o, 300, "abc", 17);
	EXPECT(w, "A> 40000 abc @302-307 t300\n");
	over(w);
}

static void test_again_long(void **state)
{
	(void)state;
	again_long(TKS_TLS_GNUTLS);
	again_long(TKS_TLS_OPENSSL);
}

/* SSL_MODE_ENABLE_PARTIAL_WRITE: each call returns behind the first record, and the rest is handed
 * over anew. */
static void test_partial_writes(void **state)
{
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	static const uint32_t len[] = { 16384, 16384, 7232 };
	struct record r;

	(void)state;
	handshake(w, a, &o);
	forget(w);
	for (uint32_t i = 0; i < 3; i++) {
		uint64_t at = 100 * (i + 1);

		put_long(w, &o, at, 16384 * i, 40000 - 16384 * i, 0);
		record(w, &r, DATA, len[i] + 17);
		mark(w, &o, at + 1, i + 1, r.b, r.n);
		send_in(a, at + 2, &r, &o, i + 1);
	}
	EXPECT(w, "A> 0 [16384] @102-107 t100\n"
		  "A> 16384 [16384] @202-207 t200\n"
		  "A> 32768 [7232] @302-307 t300\n");
	put_and_send(w, a, &o, 400, "abc", 17);
	EXPECT(w, "A> 40000 abc @402-407 t400\n");
	over(w);
}

/* One long write whose records each have a send of their own. */
static void long_write(uint16_t lib)
{
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, lib, { 0 }, { 0 } };
	static const uint32_t len[] = { 16384, 16384, 16384, 848 };
	struct record r;

	handshake(w, a, &o);
	put_and_send(w, a, &o, 50, "x", 17);
	forget(w);
	/* The bytes say where they belong; the one before is at 0. */
	put_long(w, &o, 100, 1, 50000, 0);
	for (uint64_t i = 0; i < 4; i++) {
		record(w, &r, DATA, len[i] + 17);
		if (lib == TKS_TLS_OPENSSL)
			mark(w, &o, 101 + 10 * i, 2, r.b, r.n);
		send_in(a, 102 + 10 * i, &r, &o, 2);
	}
	EXPECT(w, "A> 1 [16384] @102-107 t100\n"
		  "A> 16385 [16384] @112-117 t100\n"
		  "A> 32769 [16384] @122-127 t100\n"
		  "A> 49153 [848] @132-137 t100\n");
	over(w);
}

static void test_long_write(void **state)
{
	(void)state;
	long_write(TKS_TLS_OPENSSL);
	long_write(TKS_TLS_GNUTLS);
	long_write(TKS_TLS_GO);
}

/* Of more than 1 MiB the rest is known but not captured. */
static void test_very_long_write(void **state)
{
	enum { LEN = 70 * 16384 };
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct record r;
	char want[4096];
	size_t n = 0;

	(void)state;
	handshake(w, a, &o);
	forget(w);
	put_long(w, &o, 100, 0, LEN, 0);
	for (uint32_t i = 0; i < 70; i++) {
		uint64_t at = 102 + 10 * i;

		record(w, &r, DATA, 16384 + 17);
		mark(w, &o, at - 1, 1, r.b, r.n);
		send_in(a, at, &r, &o, 1);
		n += (size_t)snprintf(want + n, sizeof(want) - n,
				      "A> %u %s @%" PRIu64 "-%" PRIu64 " t100\n", 16384 * i,
				      i < 64 ? "[16384]" : "[0 of 16384]", at, at + 5);
	}
	EXPECT(w, want);
	put_and_send(w, a, &o, 2000, "abc", 17);
	EXPECT(w, "A> 1146880 abc @2002-2007 t2000\n");
	over(w);
}

/* --- what a record's payload has more --- */

/* AES-GCM in TLS 1.2: 8 and 16 bytes; ChaCha20 in TLS 1.2: 16; TLS 1.3: 17; CCM_8: 8 and 8 */
static void test_overhead(void **state)
{
	static const size_t more[] = { 24, 16, 17 };
	static const uint16_t lib[] = { TKS_TLS_OPENSSL, TKS_TLS_GNUTLS };

	(void)state;
	for (size_t i = 0; i < 6; i++) {
		struct world *w = world();
		struct owner *a = opened(w, 0);
		struct obj o = { 1, lib[i / 3], { 0 }, { 0 } };

		put_and_send(w, a, &o, 100, "hello", more[i % 3]);
		put_and_send(w, a, &o, 200, "a", more[i % 3]);
		EXPECT(w, "A tied 7 whole\n"
			  "A> 0 hello @102-107 t100\nA> 5 a @202-207 t200\n");
		/* A read of just the buffer's size, then the rest. */
		arrive_new(w, a, 300, DATA, 10 + more[i % 3]);
		arrive_new(w, a, 301, DATA, 3 + more[i % 3]);
		get(w, &o, 310, "012345", 6);
		get(w, &o, 311, "6789", 6);
		get(w, &o, 312, "abc", 6);
		EXPECT(w, "A< 0 012345 @300\nA< 6 6789 @300\nA< 10 abc @301\n");
		assert_int_equal(unmatched(w), 0);
		over(w);
	}
}

/* CBC with SHA-1: the vector (16), then text, hash (20) and padding, a multiple of 16. */
static size_t cbc(size_t len)
{
	return 16 + (len + 20 + 16) / 16 * 16;
}

static void test_cbc(void **state)
{
	static const uint16_t lib[] = { TKS_TLS_OPENSSL, TKS_TLS_GNUTLS };

	(void)state;
	for (size_t k = 0; k < 2; k++) {
		struct world *w = world();
		struct owner *a = opened(w, 0);
		struct obj o = { 1, lib[k], { 0 }, { 0 } };
		char text[41] = "";
		uint32_t at = 0;

		for (uint32_t i = 1; i <= 40; i++) {
			char want[256];

			text[i - 1] = (char)('a' + i % 26);
			put_and_send(w, a, &o, 100 * i, text, cbc(i) - i);
			snprintf(want, sizeof(want), "%sA> %u %s @%u-%u t%u\n",
				 i > 1 ? "" : "A tied 7 whole\n", at, text, 100 * i + 2,
				 100 * i + 7, 100 * i);
			EXPECT(w, want);
			at += i;
		}
		for (uint32_t i = 1; i <= 40; i++)
			arrive_new(w, a, 5000 + i, DATA, cbc(i));
		for (uint32_t i = 1; i <= 40; i++) {
			char want[256];

			snprintf(want, sizeof(want), "A< %u %.*s @%u\n", i * (i - 1) / 2, (int)i,
				 text, 5000 + i);
			call(w, &o, TKS_RX, 6000 + i, text, i, 4096, 0);
			EXPECT(w, want);
		}
		assert_int_equal(unmatched(w), 0);
		over(w);
	}
}

/* gnutls_record_cork: writes first, then all of it in one record, sent by a call that is no write
 * of its own. */
static void test_corked(void **state)
{
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, TKS_TLS_GNUTLS, { 0 }, { 0 } };
	struct record r;

	(void)state;
	handshake(w, a, &o);
	put_and_send(w, a, &o, 50, "x", 17);
	forget(w);
	put(w, &o, 100, "hello");
	put(w, &o, 110, "abc");
	send_in(a, 120, record(w, &r, DATA, 8 + 17), &o, 0);
	EXPECT(w, "A> 1 hello @120-125 t100\nA> 6 abc @120-125 t110\n");
	put_and_send(w, a, &o, 200, "next", 17);
	EXPECT(w, "A> 9 next @202-207 t200\n");
	over(w);
}

/* ... and so it is from the first record on. */
static void test_corked_first(void **state)
{
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, TKS_TLS_GNUTLS, { 0 }, { 0 } };
	struct record r;

	(void)state;
	handshake(w, a, &o);
	put(w, &o, 100, "hello");
	put(w, &o, 110, "abc");
	send_in(a, 120, record(w, &r, DATA, 8 + 17), &o, 0);
	EXPECT(w, "A tied 7 whole\nA> 0 hello @120-125 t100\nA> 5 abc @120-125 t110\n");
	put(w, &o, 200, "more");
	put(w, &o, 210, "and more");
	send_in(a, 220, record(w, &r, DATA, 12 + 17), &o, 0);
	EXPECT(w, "A> 8 more @220-225 t200\nA> 12 and more @220-225 t210\n");
	over(w);
}

/* --- records that are nobody's plaintext --- */

static void test_alerts_and_tickets(void **state)
{
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	static uint8_t wire[2048];
	struct record r, s;

	(void)state;
	handshake(w, a, &o);
	forget(w);
	/* Two tickets leave the library as one: the second is not marked. */
	record(w, &r, DATA, 5 + 17);
	record(w, &s, DATA, 234);
	memcpy(wire, s.b, s.n);
	record(w, &s, DATA, 234);
	memcpy(wire + s.n, s.b, s.n);
	mark(w, &o, 90, 0, wire, 2 * s.n);
	put(w, &o, 100, "hello");
	mark(w, &o, 101, 1, r.b, r.n);
	bytes(a, TKS_TX, 102, wire, 2 * s.n, &o, 0);
	EXPECT(w, "");
	send_in(a, 104, &r, &o, 1);
	EXPECT(w, "A> 0 hello @104-109 t100\n");
	/* An answer to a key update that a read has met; its payload is 5 and 17 bytes. */
	put(w, &o, 200, "world");
	record(w, &r, DATA, 5 + 17);
	mark(w, &o, 201, 2, r.b, r.n);
	other(w, a, &o, 202, DATA, 5 + 17);
	EXPECT(w, "");
	send_in(a, 204, &r, &o, 2);
	EXPECT(w, "A> 5 world @204-209 t200\n");
	/* Renegotiation and close_notify. */
	put(w, &o, 300, "end");
	record(w, &r, DATA, 3 + 17);
	mark(w, &o, 301, 3, r.b, r.n);
	other(w, a, &o, 302, HANDSHAKE, 40);
	other(w, a, &o, 304, ALERT, 26);
	other(w, a, &o, 306, DATA, 2 + 17);
	EXPECT(w, "");
	send_in(a, 310, &r, &o, 3);
	EXPECT(w, "A> 10 end @310-315 t300\n");
	over(w);
}

/* A key update within a write, marked as that write's: the bytes stay in order, and the last one
 * has the time of the last record. */
static void test_key_update_in_write(void **state)
{
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct record r;

	(void)state;
	handshake(w, a, &o);
	put_and_send(w, a, &o, 50, "x", 17);
	forget(w);
	put(w, &o, 100, "hello world");
	record(w, &r, DATA, 5 + 17);
	mark(w, &o, 101, 2, r.b, r.n);
	send_in(a, 102, &r, &o, 2);
	record(w, &r, DATA, 11 + 17);
	mark(w, &o, 103, 2, r.b, r.n);
	send_in(a, 104, &r, &o, 2);
	assert_int_equal(w->got[TKS_TX], 12);
	assert_non_null(strstr(w->log, "world @104-109 t100\n"));
	forget(w);
	put_and_send(w, a, &o, 200, "abc", 17);
	EXPECT(w, "A> 12 abc @202-207 t200\n");
	over(w);
}

/* TLS 1.3 pads records with zeros, which nobody wrote. */
static void test_padding(void **state)
{
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct record r[2];

	(void)state;
	handshake(w, a, &o);
	put_and_send(w, a, &o, 50, "x", 17);
	forget(w);
	put(w, &o, 100, "hello");
	record(w, &r[0], DATA, 64 + 17);
	mark(w, &o, 101, 2, r[0].b, r[0].n);
	put(w, &o, 110, "abc");
	record(w, &r[1], DATA, 64 + 17);
	mark(w, &o, 111, 3, r[1].b, r[1].n);
	send_out(a, 120, &r[0]);
	EXPECT(w, "A> 1 hello @120-125 t100\n");
	send_out(a, 130, &r[1]);
	EXPECT(w, "A> 6 abc @130-135 t110\n");
	over(w);
}

/* --- reads --- */

/* An object on a socket BIO, whose record of 17 bytes more has been seen. */
static struct owner *talking(struct world *w, struct obj *o)
{
	struct owner *a = opened(w, 0);

	handshake(w, a, o);
	put_and_send(w, a, o, 90, "x", 17);
	forget(w);
	return a;
}

static void test_read_in_parts(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct owner *a = talking(w, &o);

	(void)state;
	arrive_new(w, a, 100, DATA, 10 + 17);
	arrive_new(w, a, 110, DATA, 6 + 17);
	get(w, &o, 120, "0123", 4);
	get(w, &o, 121, "4567", 4);
	get(w, &o, 122, "89", 4);
	get(w, &o, 123, "abcd", 4);
	get(w, &o, 124, "ef", 4);
	EXPECT(w, "A< 0 0123 @100\nA< 4 4567 @100\nA< 8 89 @100\nA< 10 abcd @110\nA< 14 ef @110\n");
	/* Buffers of just the record's size, and of one byte. */
	arrive_new(w, a, 200, DATA, 4 + 17);
	arrive_new(w, a, 210, DATA, 4 + 17);
	arrive_new(w, a, 220, DATA, 2 + 17);
	get(w, &o, 230, "abcd", 4);
	get(w, &o, 231, "efgh", 4);
	get(w, &o, 232, "i", 1);
	get(w, &o, 233, "j", 1);
	EXPECT(w, "A< 16 abcd @200\nA< 20 efgh @210\nA< 24 i @220\nA< 25 j @220\n");
	assert_int_equal(unmatched(w), 0);
	over(w);
}

/* Long records, of which each read takes a part; a record of the largest size. */
static void test_read_long(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct owner *a = talking(w, &o);

	(void)state;
	arrive_new(w, a, 100, DATA, 16384 + 17);
	arrive_new(w, a, 110, DATA, 1000 + 17);
	for (uint32_t i = 0; i < 4; i++)
		get_long(w, &o, 120 + i, 4096 * i, 4096, 4096);
	get_long(w, &o, 130, 16384, 1000, 4096);
	EXPECT(w, "A< 0 [4096] @100\nA< 4096 [4096] @100\nA< 8192 [4096] @100\n"
		  "A< 12288 [4096] @100\nA< 16384 [1000] @110\n");
	assert_int_equal(unmatched(w), 0);
	over(w);
}

/* Both waited when the first was read; a record that came in two packets counts by the second. */
static void test_read_waiting(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct owner *a = talking(w, &o);
	struct record r;

	(void)state;
	record(w, &r, DATA, 5 + 17);
	bytes(a, TKS_RX, 100, r.b, 26, NULL, 0);
	bytes(a, TKS_RX, 110, r.b + 26, 1, NULL, 0);
	arrive_new(w, a, 120, DATA, 5 + 17);
	arrive_new(w, a, 130, HANDSHAKE, 40);
	arrive_new(w, a, 140, DATA, 3 + 17);
	get(w, &o, 150, "first", 100);
	get(w, &o, 151, "other", 100);
	get(w, &o, 152, "end", 100);
	EXPECT(w, "A< 0 first @110\nA< 5 other @120\nA< 10 end @140\n");
	assert_int_equal(unmatched(w), 0);
	over(w);
}

/* The client's Finished (in TLS 1.3 a record of data) comes before a request that is shorter,
 * and nobody reads it. */
static void test_finished_first(void **state)
{
	static const uint32_t len[] = { 24, 40, 60, 120 };

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		struct world *w = world();
		struct owner *a = opened(w, 0);
		struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
		char want[64];

		handshake(w, a, &o);
		forget(w);
		arrive_new(w, a, 500, DATA, len[i] + 17);
		get_long(w, &o, 510, 0, len[i], 4096);
		if (len[i] > LINE_TEXT) {
			snprintf(want, sizeof(want), "A< 0 [%u] @500\n", len[i]);
			EXPECT(w, want);
		} else if (!strstr(w->log, " @500\n")) {
			fail_msg("%u bytes: not of 500", len[i]);
		}
		arrive_new(w, a, 600, DATA, 70 + 17);
		forget(w);
		get_long(w, &o, 610, len[i], 70, 4096);
		snprintf(want, sizeof(want), "A< %u [70] @600\n", len[i]);
		EXPECT(w, want);
		assert_int_equal(unmatched(w), 0);
		over(w);
	}
}

/* What the cipher suite says (RFC 8446, B.4; RFC 7905) is known before anything was read or
 * written: of a record and a half read in small parts each part is its own record's. */
static void test_suites(void **state)
{
	static const struct {
		uint16_t suite;
		uint32_t more, finished;
	} suites[] = {
		{ 0x1301, 17, 36 }, /* AES_128_GCM_SHA256 */
		{ 0x1302, 17, 52 }, /* AES_256_GCM_SHA384 */
		{ 0x1303, 17, 36 }, /* CHACHA20_POLY1305_SHA256 */
		{ 0x1304, 17, 36 }, /* AES_128_CCM_SHA256 */
		{ 0x1305, 9, 36 }, /* AES_128_CCM_8_SHA256 */
		{ 0xcca8, 16, 0 }, /* TLS 1.2: ECDHE_RSA_WITH_CHACHA20_POLY1305 */
		{ 0xccaa, 16, 0 },
	};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(suites) / sizeof(*suites); i++) {
		uint32_t more = suites[i / 2].more, finished = suites[i / 2].finished;
		struct world *w = world();
		struct owner *a = opened(w, 0);
		struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };

		hello(w, a, &o, 20, suites[i / 2].suite, i % 2 ? 32 : 0);
		/* The client's certificate, too. */
		if (finished)
			arrive_new(w, a, 30, DATA, 800 + more);
		if (finished)
			arrive_new(w, a, 31, DATA, finished + more);
		arrive_new(w, a, 100, DATA, 12 + more);
		arrive_new(w, a, 110, DATA, 6 + more);
		get(w, &o, 120, "0123456789", 10);
		get(w, &o, 121, "ab", 10);
		get(w, &o, 122, "cdef", 4);
		get(w, &o, 123, "gh", 4);
		EXPECT(w, "A tied 7 whole\nA< 0 0123456789 @100\nA< 10 ab @100\n"
			  "A< 12 cdef @110\nA< 16 gh @110\n");
		assert_int_equal(unmatched(w), 0);
		over(w);
	}
}

/* A read whose record was not seen has the newest one's time, or its own where there is none; a
 * record from before it that is told of later is that one, and nobody else's. */
static void test_unmatched(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct owner *a = talking(w, &o);

	(void)state;
	arrive_new(w, a, 100, DATA, 7 + 17);
	get(w, &o, 105, "seventh", 100);
	EXPECT(w, "A< 0 seventh @100\n");
	get(w, &o, 110, "late", 100);
	EXPECT(w, "A< 7 late @110\n");
	assert_int_equal(unmatched(w), 1);
	arrive_new(w, a, 108, DATA, 4 + 17);
	arrive_new(w, a, 120, DATA, 9 + 17);
	get(w, &o, 130, "none", 100);
	EXPECT(w, "A< 11 none @120\n");
	assert_int_equal(unmatched(w), 2);
	arrive_new(w, a, 125, DATA, 4 + 17);
	arrive_new(w, a, 140, DATA, 4 + 17);
	get(w, &o, 150, "four", 100);
	EXPECT(w, "A< 15 four @140\n");
	assert_int_equal(unmatched(w), 2);
	over(w);
}

/* --- what was not seen --- */

/* Neither the connection's beginning nor the object's. */
static void test_middle(void **state)
{
	struct world *w = world();
	struct owner *a = middle(w, 0);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 4, 9 }, { 400, 900 } };
	struct record r;

	(void)state;
	/* The first bytes seen are a record's end. */
	record(w, &r, DATA, 100);
	a->seq[TKS_TX] += 50;
	bytes(a, TKS_TX, 10, r.b + 50, r.n - 50, NULL, 0);
	a->seq[TKS_RX] += 50;
	bytes(a, TKS_RX, 20, r.b + 50, r.n - 50, NULL, 0);
	EXPECT(w, "");
	put_and_send(w, a, &o, 100, "hello", 17);
	assert_int_equal(w->got[TKS_TX], 5);
	assert_true(!strncmp(w->log, "A tied 7\nA> ", 12));
	assert_non_null(strstr(w->log, " hello @102-107 t100\n"));
	forget(w);
	arrive_new(w, a, 200, DATA, 4 + 17);
	get(w, &o, 210, "more", 100);
	assert_non_null(strstr(w->log, " more @200\n"));
	over(w);
}

/* The telling of a write is lost; what comes behind is where it belongs. */
static void lost_write(bool tied)
{
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct record r;

	handshake(w, a, &o);
	if (tied)
		put_and_send(w, a, &o, 50, "start", 17);
	forget(w);
	call(w, &o, TKS_TX, 100, "lost", 4, 0, LOST);
	record(w, &r, DATA, 4 + 17);
	mark(w, &o, 101, o.calls[TKS_TX], r.b, r.n);
	send_in(a, 102, &r, &o, o.calls[TKS_TX]);
	EXPECT(w, "");
	put_and_send(w, a, &o, 200, "hello", 17);
	EXPECT(w, tied ? "A> 9 hello @202-207 t200\n" : "A> 4 hello @202-207 t200\n");
	over(w);
}

static void test_lost_write(void **state)
{
	(void)state;
	lost_write(true);
	/* The tie was said to be whole: the first bytes are missing, and not somebody else's. */
	lost_write(false);
}

/* The same where both wait to be sent: the one that is known keeps its own time. */
static void test_lost_write_waiting(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct owner *a = talking(w, &o);
	struct record r[2];

	(void)state;
	call(w, &o, TKS_TX, 100, "lost!", 5, 0, LOST);
	record(w, &r[0], DATA, 5 + 17);
	mark(w, &o, 101, 2, r[0].b, r[0].n);
	put(w, &o, 110, "known");
	record(w, &r[1], DATA, 5 + 17);
	mark(w, &o, 111, 3, r[1].b, r[1].n);
	send_out(a, 200, &r[0]);
	EXPECT(w, "");
	send_out(a, 210, &r[1]);
	EXPECT(w, "A> 6 known @210-215 t110\n");
	over(w);
}

static void test_lost_read(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct owner *a = talking(w, &o);

	(void)state;
	arrive_new(w, a, 100, DATA, 3 + 17);
	get(w, &o, 110, "one", 100);
	arrive_new(w, a, 120, DATA, 4 + 17);
	call(w, &o, TKS_RX, 130, "lost", 4, 100, LOST);
	arrive_new(w, a, 140, DATA, 5 + 17);
	get(w, &o, 150, "three", 100);
	EXPECT(w, "A< 0 one @100\nA< 7 three @140\n");
	assert_int_equal(unmatched(w), 0);
	over(w);
}

/* The telling of a send is lost: what it carried is missing, what comes behind is not late. */
static void lost_send(uint16_t lib)
{
	struct world *w = world();
	struct obj o = { 1, lib, { 0 }, { 0 } };
	struct owner *a = talking(w, &o);
	struct record r;

	put(w, &o, 100, "lost");
	record(w, &r, DATA, 4 + 17);
	if (lib == TKS_TLS_OPENSSL)
		mark(w, &o, 101, 2, r.b, r.n);
	a->seq[TKS_TX] += (uint32_t)r.n;
	put_and_send(w, a, &o, 200, "hello", 17);
	EXPECT(w, "");
	/* A hole is waited at for 200 ms. */
	tks_tls_conn_advance(a->c, 200000202);
	EXPECT(w, "A> 5 hello @202-207 t200\n");
	put_and_send(w, a, &o, 300, "next", 17);
	EXPECT(w, "A> 10 next @302-307 t300\n");
	over(w);
}

static void test_lost_send(void **state)
{
	(void)state;
	lost_send(TKS_TLS_OPENSSL);
	lost_send(TKS_TLS_GNUTLS);
	lost_send(TKS_TLS_GO);
}

static void test_lost_mark(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct owner *a = talking(w, &o);
	struct record r;

	(void)state;
	put(w, &o, 100, "hello");
	send_in(a, 102, record(w, &r, DATA, 5 + 17), &o, 2);
	put_and_send(w, a, &o, 200, "world", 17);
	/* Whether the first is told of or missing: the second is where and when it was. */
	if (w->got[TKS_TX] == 1 + 5)
		EXPECT(w, "A> 6 world @202-207 t200\n");
	else
		EXPECT(w, "A> 1 hello @102-107 t100\nA> 6 world @202-207 t200\n");
	over(w);
}

/* The handshake of another connection, whose marks are lost, seems nested in a call of an object
 * that has not written yet: nothing is believed of that. */
static void test_stale_nesting(void **state)
{
	struct world *w = world();
	struct owner *b = opened(w, 1);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct record r, s;

	(void)state;
	record(w, &r, HANDSHAKE, 122);
	mark(w, &o, 10, 0, r.b, r.n);
	send_in(b, 20, record(w, &s, HANDSHAKE, 122), &o, 0);
	EXPECT(w, "");
	over(w);
}

/* Bytes that nobody could read: the records around keep their plaintext. */
static void test_unsure(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct owner *a = talking(w, &o);
	struct tks_event ev = { .kind = TKS_EV_DATA, .dir = TKS_TX, .ts_ns = 102, .ret_ns = 107 };
	struct record r;

	(void)state;
	put(w, &o, 100, "hello");
	record(w, &r, DATA, 5 + 17);
	mark(w, &o, 101, 2, r.b, r.n);
	ev.seq = a->seq[TKS_TX];
	ev.len = ev.cap = (uint32_t)r.n;
	ev.data = r.b;
	ev.unsure = true;
	tks_tls_cipher(a->c, &ev);
	a->seq[TKS_TX] += ev.len;
	put_and_send(w, a, &o, 200, "world", 17);
	EXPECT(w, "A> 6 world @202-207 t200\n");
	over(w);
}

/* The probes come when a request has been read and is being answered: the next one, of the same
 * size, is not taken for it. */
static void test_read_before(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_GNUTLS, { 0 }, { 0 } };
	struct owner *a = opened(w, 0);
	struct record r;

	(void)state;
	arrive_new(w, a, 100, DATA, 4 + 17);
	put(w, &o, 150, "answer");
	send_in(a, 151, record(w, &r, DATA, 6 + 17), &o, 1);
	forget(w);
	arrive_new(w, a, 200, DATA, 4 + 17);
	get(w, &o, 210, "next", 100);
	EXPECT(w, "A< 0 next @200\n");
	over(w);
}

/* Kernel TLS: no ciphertext passes the library, what it writes and says leaves in sends nested in
 * its calls. What leaves otherwise, and finds nothing written, was written past it. */
static void test_kernel_tls(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct owner *a = talking(w, &o);
	struct record r;

	(void)state;
	a->kernel_tls = true;
	put(w, &o, 100, "hello");
	send_in(a, 102, record(w, &r, DATA, 5 + 17), &o, 2);
	EXPECT(w, "A> 1 hello @102-107 t100\n");
	put(w, &o, 200, "late");
	send_out(a, 202, record(w, &r, DATA, 4 + 17));
	EXPECT(w, "A> 6 late @202-207 t200\n");
	send_in(a, 300, record(w, &r, DATA, 250), &o, 0);
	EXPECT(w, "");
	send_out(a, 400, record(w, &r, DATA, 60));
	EXPECT(w, "A> past @400\n");
	over(w);
}

/* Of each send its first 512 bytes only. */
static void test_headers_only(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct owner *a = talking(w, &o);
	struct record r;

	(void)state;
	put_long(w, &o, 100, 1, 32768, 0);
	for (uint64_t i = 0; i < 2; i++) {
		struct tks_event ev = { .kind = TKS_EV_DATA, .dir = TKS_TX };

		record(w, &r, DATA, 16384 + 17);
		mark(w, &o, 101 + 10 * i, 2, r.b, r.n);
		ev.ts_ns = 102 + 10 * i;
		ev.ret_ns = ev.ts_ns + SEND_NS;
		ev.seq = a->seq[TKS_TX];
		ev.len = (uint32_t)r.n;
		ev.cap = 512;
		ev.data = r.b;
		tks_tls_cipher(a->c, &ev);
		a->seq[TKS_TX] += ev.len;
	}
	EXPECT(w, "A> 1 [16384] @102-107 t100\nA> 16385 [16384] @112-117 t100\n");
	over(w);
}

/* --- objects come and go --- */

static void test_address_again(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct owner *a = talking(w, &o), *b = opened(w, 1);

	(void)state;
	/* What the old one wrote and never sent is nobody's. */
	put(w, &o, 100, "never");
	gone(w, &o, 110);
	handshake(w, b, &o);
	EXPECT(w, "B tied 7 whole\n");
	arrive_new(w, b, 200, DATA, 50 + 17);
	get_long(w, &o, 210, 0, 50, 4096);
	put_and_send(w, b, &o, 220, "hello", 17);
	EXPECT(w, "B< 0 [50] @200\nB> 0 hello @222-227 t220\n");
	closed(a);
	put_and_send(w, b, &o, 320, "world", 17);
	EXPECT(w, "B> 5 world @322-327 t320\n");
	over(w);
}

/* Its end was not told of, and the old connection is still open. The kernel counts anew. */
static void test_address_again_untold(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct owner *a = talking(w, &o), *b = opened(w, 1);

	(void)state;
	put(w, &o, 100, "never");
	arrive_new(w, a, 100, DATA, 50 + 17);
	get_long(w, &o, 110, 0, 50, 4096);
	forget(w);
	o = (struct obj){ 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	handshake(w, b, &o);
	arrive_new(w, b, 200, DATA, 60 + 17);
	get_long(w, &o, 210, 0, 60, 4096);
	put_and_send(w, b, &o, 220, "hello", 17);
	assert_null(strstr(w->log, "A"));
	assert_null(strstr(w->log, "never"));
	assert_non_null(strstr(w->log, "B< 0 [60] @200\n"));
	assert_non_null(strstr(w->log, "B> 0 hello @222-227 t220\n"));
	forget(w);
	put_and_send(w, b, &o, 320, "world", 17);
	EXPECT(w, "B> 5 world @322-327 t320\n");
	closed(a);
	over(w);
}

/* The same numbers in two processes are two objects. */
static void test_processes(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_GNUTLS, { 0 }, { 0 } };
	struct owner *a = opened(w, 0), *b = opened(w, 1);
	struct tks_event ev = { .kind = TKS_EV_PLAIN, .dir = TKS_TX, .ts_ns = 95, .obj = 1 };
	struct record r;

	(void)state;
	ev.lib = TKS_TLS_GNUTLS;
	ev.proc.pid = PID + 1;
	ev.call = 1;
	ev.data = (const uint8_t *)"other";
	ev.len = ev.cap = 5;
	tks_tls_event(w->t, &ev);
	put_and_send(w, a, &o, 100, "hello", 17);
	EXPECT(w, "A tied 7 whole\nA> 0 hello @102-107 t100\n");
	record(w, &r, DATA, 5 + 17);
	ev = (struct tks_event){ .kind = TKS_EV_DATA, .dir = TKS_TX, .ts_ns = 200, .obj = 1 };
	ev.ret_ns = 205;
	ev.proc.pid = PID + 1;
	ev.call = 1;
	ev.seq = b->seq[TKS_TX];
	ev.len = ev.cap = (uint32_t)r.n;
	ev.data = r.b;
	tks_tls_cipher(b->c, &ev);
	EXPECT(w, "B tied 8 whole\nB> 0 other @200-205 t95\n");
	over(w);
}

/* The connection goes first, then the object. */
static void test_connection_over(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct owner *a = talking(w, &o);
	uint64_t obj;
	uint32_t pid;

	(void)state;
	assert_true(tks_tls_conn_obj(a->c, &pid, &obj));
	assert_int_equal(pid, PID);
	assert_int_equal(obj, 1);
	put(w, &o, 100, "hello");
	closed(a);
	put(w, &o, 200, "hello");
	gone(w, &o, 300);
	EXPECT(w, "");
	a = opened(w, 1);
	assert_false(tks_tls_conn_obj(a->c, &pid, &obj));
	over(w);
}

/* Nobody's connection: after a second it is said. */
static void test_untied(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct tks_tls_counters c;

	(void)state;
	w->wants_untied = true;
	put(w, &o, 100, "hello");
	get(w, &o, 200, "answer", 100);
	put(w, &o, 300, "more");
	tks_tls_advance(w->t, 1000000099);
	EXPECT(w, "");
	tks_tls_advance(w->t, 1000000100);
	EXPECT(w, "U untied 7:1 whole\nU> 0 hello @100\nU< 0 answer @200\nU> 5 more @300\n");
	get(w, &o, 1000000200, "again", 100);
	EXPECT(w, "U< 6 again @1000000200\n");
	tks_tls_counters(w->t, &c);
	assert_int_equal(c.untied, 1);
	assert_int_equal(c.ties, 0);
	gone(w, &o, 2000000000);
	EXPECT(w, "U gone\n");
	over(w);
}

/* The connection ends within a write: the rest of it is nobody's, and what follows, until the
 * object is used for another connection. */
static void test_connection_over_within_write(void **state)
{
	struct world *w = world();
	struct owner *a = opened(w, 0), *b = opened(w, 1);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct record r;

	(void)state;
	w->wants_untied = true;
	handshake(w, a, &o);
	forget(w);
	put(w, &o, 200, "0123456789");
	record(w, &r, DATA, 4 + 17);
	mark(w, &o, 201, 1, r.b, r.n);
	send_in(a, 202, &r, &o, 1);
	EXPECT(w, "A> 0 0123 @202-207 t200\n");
	closed(a);
	put(w, &o, 300, "more");
	get(w, &o, 310, "rest", 100);
	tks_tls_advance(w->t, 2000000000);
	EXPECT(w, "");
	put_and_send(w, b, &o, 2000000100, "again", 17);
	EXPECT(w, "B tied 7\nB> 0 again @2000000102-2000000107 t2000000100\n");
	over(w);
}

static void test_disown(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };

	(void)state;
	w->wants_untied = true;
	put(w, &o, 100, "hello");
	tks_tls_advance(w->t, 2000000000);
	EXPECT(w, "U untied 7:1 whole\nU> 0 hello @100\n");
	tks_tls_disown(w->t, PID, 1);
	put(w, &o, 2000000100, "more");
	tks_tls_advance(w->t, 4000000000);
	gone(w, &o, 4000000001);
	EXPECT(w, "");
	/* Of objects that are not known there is nothing to say. */
	tks_tls_disown(w->t, PID, 2);
	put(w, &o, 4000000100, "new");
	tks_tls_advance(w->t, 6000000000);
	EXPECT(w, "U untied 7:1 whole\nU> 0 new @4000000100\n");
	over(w);
	/* ("U gone" came with the end.) */
}

/* Where untied objects are of no interest, and the trace began in the middle: the object is given
 * up during a long prompt, and yet the connection that shows itself later is its own. */
static void test_late_tie(void **state)
{
	struct world *w = world();
	struct owner *a = middle(w, 0);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	uint64_t s = 1000000000;

	(void)state;
	arrive_new(w, a, 50, DATA, 100 + 17);
	get_long(w, &o, 60, 0, 100, 4096);
	for (uint64_t now = s / 10; now < 5 * s; now += s / 10)
		tks_tls_advance(w->t, now);
	forget(w);
	put_and_send(w, a, &o, 5 * s, "hello", 17);
	assert_non_null(strstr(w->log, "A tied 7"));
	assert_non_null(strstr(w->log, "hello @5000000002-5000000007 t5000000000\n"));
	over(w);
}

/* What no connection carries is looked at for so long, and then no more. */
static void test_unwanted(void **state)
{
	(void)state;
	for (int written = 0; written < 2; written++) {
		struct world *w = world();
		struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
		/* 8 MiB from the first byte on, or 1 MiB that was looked at in vain for a second.
		 */
		int last = written ? 16 : 128;

		if (written) {
			put(w, &o, 100, "hello");
			tks_tls_advance(w->t, 2000000000);
			EXPECT(w, "U untied 7:1 whole\n");
			put_long(w, &o, 2000000100, 0, 65536 - 5, 0);
			last--;
		}
		for (int i = 0; i < last - 1; i++)
			get_long(w, &o, 2000000200 + i, 0, 65536, 65536);
		EXPECT(w, "");
		get_long(w, &o, 2000000500, 0, 65536, 65536);
		EXPECT(w, "unwanted 7:1\n");
		get_long(w, &o, 2000000600, 0, 65536, 65536);
		put(w, &o, 2000000700, "more");
		tks_tls_advance(w->t, 9000000000);
		EXPECT(w, "");
		over(w);
	}
}

/* Records of data are told of while nobody's plaintext is known, and only then. */
static void test_closed(void **state)
{
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct record r;

	(void)state;
	w->wants_closed = true;
	send_out(a, 10, record(w, &r, HANDSHAKE, 100));
	arrive_new(w, a, 15, DATA, 30);
	send_out(a, 20, record(w, &r, DATA, 100));
	bytes(a, TKS_TX, 30, record(w, &r, DATA, 50)->b, 40, NULL, 0);
	bytes(a, TKS_TX, 40, r.b + 40, r.n - 40, NULL, 0);
	send_out(a, 50, record(w, &r, ALERT, 2));
	EXPECT(w, "A< closed 30 @15\nA> closed 100 @20\nA> closed 50 @40\n");
	put_and_send(w, a, &o, 100, "hello", 17);
	arrive_new(w, a, 110, DATA, 30);
	send_out(a, 120, record(w, &r, DATA, 100));
	EXPECT(w, "A tied 7 whole\nA> 0 hello @102-107 t100\n");
	gone(w, &o, 130);
	send_out(a, 140, record(w, &r, DATA, 60));
	EXPECT(w, "A> closed 60 @140\n");
	over(w);
}

/* --- limits --- */

/* 65536 objects, then the one idle longest goes. */
static void test_objects_max(void **state)
{
	struct world *w = world();
	struct owner *a = opened(w, 0), *b = opened(w, 1);
	struct obj o = { 0, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct tks_tls_counters c;
	struct record first[2], r;
	size_t used;

	(void)state;
	for (uint64_t i = 0; i < 65536; i++) {
		o.id = i + 1;
		record(w, i < 2 ? &first[i] : &r, HANDSHAKE, 64);
		mark(w, &o, 100 + i, 0, i < 2 ? first[i].b : r.b, 69);
	}
	used = w->mem.used;
	o.id = 1; /* it is the youngest now */
	put(w, &o, 100000, "hello");
	for (uint64_t i = 0; i < 1000; i++) {
		o.id = 65537 + i;
		record(w, &r, HANDSHAKE, 64);
		mark(w, &o, 200000 + i, 0, r.b, r.n);
	}
	assert_true(w->mem.used < used + 1000);
	send_out(a, 300000, &first[1]);
	EXPECT(w, "");
	send_out(b, 300000, &first[0]);
	EXPECT(w, "B tied 7 whole\n");
	tks_tls_counters(w->t, &c);
	assert_int_equal(c.objects, 66536);
	over(w);
}

/* What is written and not sent is kept up to 4 MiB; what was dropped is missing, not glued. */
static void test_pending_max(void **state)
{
	enum { LEN = 65536, N = 100 };
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct record r;

	(void)state;
	w->exact = true;
	for (uint32_t i = 0; i < N; i++) {
		put_long(w, &o, 100 + i, LEN * i, LEN, 0);
		assert_true(w->mem.used < 5 << 20);
	}
	put_long(w, &o, 300, LEN * N, 5, 0);
	record(w, &r, DATA, 5 + 17);
	mark(w, &o, 301, N + 1, r.b, r.n);
	/* Each byte handed on is where it belongs (on_plain sees to it). */
	send_out(a, 302, &r);
	assert_int_equal(w->got[TKS_TX], 5);
	over(w);
}

/* The same of a connection that is known, and which lags behind. */
static void test_pending_max_tied(void **state)
{
	enum { LEN = 16384, N = 300 };
	static struct record r[N];
	struct world *w = world();
	struct owner *a = opened(w, 0);
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };

	(void)state;
	w->exact = true;
	handshake(w, a, &o);
	for (uint32_t i = 0; i < N; i++) {
		put_long(w, &o, 100 + i, LEN * i, LEN, 0);
		record(w, &r[i], DATA, LEN + 17);
		mark(w, &o, 100 + i, i + 1, r[i].b, r[i].n);
		assert_true(w->mem.used < 5 << 20);
	}
	for (uint32_t i = 0; i < N; i++)
		send_out(a, 1000 + i, &r[i]);
	/* At least those whose marks were kept. */
	assert_true(w->got[TKS_TX] >= 32 * LEN);
	over(w);
}

/* 40 writes and 32 marks kept: the last 32 are told of, where and when they were. */
static void test_marks_max(void **state)
{
	static struct record r[40];
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct owner *a = talking(w, &o);
	char want[64];

	(void)state;
	for (uint32_t i = 0; i < 40; i++) {
		put(w, &o, 100 + 10 * i, "hello");
		record(w, &r[i], DATA, 5 + 17);
		mark(w, &o, 101 + 10 * i, i + 2, r[i].b, r[i].n);
	}
	for (uint32_t i = 0; i < 40; i++) {
		forget(w);
		send_out(a, 1000 + 10 * i, &r[i]);
		snprintf(want, sizeof(want), "A> %u hello @%u-%u t%u\n", 1 + 5 * i, 1000 + 10 * i,
			 1005 + 10 * i, 100 + 10 * i);
		if (i >= 8)
			EXPECT(w, want);
	}
	over(w);
}

/* Records that wait for their plaintext: 1024 of a direction. */
static void test_records_max(void **state)
{
	struct world *w = world();
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
	struct owner *a = talking(w, &o), *b = opened(w, 1);
	size_t used[2] = { 0, 0 };
	struct record r;

	(void)state;
	for (uint32_t i = 0; i < 3000; i++) {
		record(w, &r, DATA, 5 + 17);
		arrive(a, 1000 + i, &r);
		send_out(b, 1000 + i, &r);
		used[i >= 2000] = w->mem.used;
	}
	assert_int_equal(used[0], used[1]);
	/* 3000 unread: the oldest that is known of is the 1977th. */
	get(w, &o, 5000, "hello", 100);
	EXPECT(w, "A< 0 hello @2976\n");
	over(w);
}

/* --- without memory --- */

/* Two connections by marks and by nesting, writes, reads, retries, objects that go. */
static void much(struct world *w)
{
	struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } },
		   p = { 2, TKS_TLS_GNUTLS, { 0 }, { 0 } };
	struct owner *a = opened(w, 0), *b = opened(w, 1);
	uint32_t at[2] = { 0, 0 };
	struct record r;

	if (!a->c || !b->c)
		return;
	handshake(w, a, &o);
	for (uint32_t i = 0; i < 12; i++) {
		uint64_t ts = 1000 * (i + 1);
		uint32_t len = 3 + 5 * i;

		arrive_new(w, a, ts, DATA, 10 + i + 17);
		get_long(w, &o, ts + 10, at[TKS_RX], 10 + i, 4096);
		at[TKS_RX] += 10 + i;
		put_long(w, &o, ts + 100, at[TKS_TX], len, 0);
		record(w, &r, DATA, len + 17);
		mark(w, &o, ts + 101, o.calls[TKS_TX], r.b, r.n);
		if (i % 3 == 0)
			put_long(w, &o, ts + 102, at[TKS_TX], len, AGAIN);
		send_in(a, ts + 110, &r, &o, o.calls[TKS_TX]);
		put_long(w, &p, ts + 200, at[TKS_TX], len, 0);
		send_in(b, ts + 210, record(w, &r, DATA, len + 17), &p, p.calls[TKS_TX]);
		at[TKS_TX] += len;
		if (i == 6)
			tks_tls_conn_advance(a->c, ts + 300);
	}
	p.id = 3;
	p.calls[TKS_TX] = p.bytes[TKS_TX] = 0;
	put_long(w, &p, 20000, 0, 30, 0);
	tks_tls_advance(w->t, 2000000000);
	gone(w, &o, 2000000001);
}

/* From each allocation on all fail, or only that one: no byte is where it does not belong, and all
 * is given back. */
static void test_no_memory(void **state)
{
	struct world *w = world();
	uint64_t calls;

	(void)state;
	w->exact = w->wants_untied = true;
	much(w);
	/* 3 + 8 + ... + 58 = 366 by each of two, and 30; 10 + ... + 21 = 186 */
	assert_int_equal(w->got[TKS_TX], 366 + 366 + 30);
	assert_int_equal(w->got[TKS_RX], 186);
	calls = w->mem.calls;
	over(w);
	for (uint64_t i = 2; i <= calls; i++) {
		w = world();
		w->exact = w->wants_untied = true;
		w->mem.fail_at = i;
		much(w);
		assert_true(w->mem.failed > 0);
		over(w);
	}
}

/* Memory comes back after one event: what was lost is a hole. */
static void test_no_memory_once(void **state)
{
	(void)state;
	for (int lost = 0; lost < 6; lost++) {
		struct world *w = world();
		struct obj o = { 1, TKS_TLS_OPENSSL, { 0 }, { 0 } };
		struct owner *a = talking(w, &o);
		struct record r[6];
		char want[512] = "";
		size_t n = 0;

		for (int i = 0; i < 6; i++) {
			w->mem.fail_at = i == lost;
			assert_int_equal(put(w, &o, 100 + 10 * (uint64_t)i, "hello"),
					 i == lost ? -ENOMEM : 0);
			w->mem.fail_at = 0;
			record(w, &r[i], DATA, 5 + 17);
			mark(w, &o, 101 + 10 * (uint64_t)i, (uint32_t)i + 2, r[i].b, r[i].n);
		}
		for (int i = 0; i < 6; i++) {
			send_out(a, 200 + 10 * (uint64_t)i, &r[i]);
			if (i != lost)
				n += (size_t)snprintf(want + n, sizeof(want) - n,
						      "A> %d hello @%d-%d t%d\n", 1 + 5 * i,
						      200 + 10 * i, 205 + 10 * i, 100 + 10 * i);
		}
		EXPECT(w, want);
		over(w);
	}
}

/* --- through the pipeline --- */

#define MS 1000000ull

static const char request[] =
	"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 63\r\n\r\n"
	"{\"model\":\"m\",\"stream\":true,\"max_tokens\":9,\"messages\":[\"hello\"]}";
static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
			   "Transfer-Encoding: chunked\r\n\r\n";
static const char token[] =
	"data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\","
	"\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},"
	"\"finish_reason\":null}]}\n\n";
static const char finish[] =
	"data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\","
	"\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n";
static const char usage3[] =
	"data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[],"
	"\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3,\"total_tokens\":8}}\n\n";
static const char done[] = "data: [DONE]\n\n";

/* A pipeline, and the connection 1 of it with an object behind. */
struct tls_pipe {
	struct lib_pipe l;
	struct world w; /* for its records' random bytes */
	struct obj o;
	bool plain; /* no TLS: what the records are compared with */
};

static void pipe_event(struct tls_pipe *p, struct tks_event *ev, const void *data, size_t len)
{
	ev->ts_ns = p->l.now;
	ev->obj = p->o.id;
	ev->lib = p->o.lib;
	ev->proc.pid = 77;
	memcpy(ev->proc.comm, "srv", 4);
	ev->data = data;
	ev->len = ev->cap = (uint32_t)len;
	assert_int_equal(tks_pipeline_feed(p->l.p, ev), 0);
}

/* A record of ours, made in this call of the library and sent at `at`. */
static void pipe_send(struct tls_pipe *p, uint64_t at, const struct record *r, uint32_t in_call)
{
	struct tks_event mark_ev = { .kind = TKS_EV_CIPHER, .call = in_call };
	struct tks_event ev = { .kind = TKS_EV_DATA, .dir = TKS_TX, .call = in_call };

	if (p->o.lib == TKS_TLS_OPENSSL)
		pipe_event(p, &mark_ev, r->b, r->n < TKS_TLS_OUT_CAP ? r->n : TKS_TLS_OUT_CAP);
	p->l.now = at;
	lib_event(&p->l, 1, &ev);
	ev.ret_ns = at + 500;
	ev.seq = p->l.tx_seq[1];
	pipe_event(p, &ev, r->b, r->n);
	p->l.tx_seq[1] += (uint32_t)r->n;
}

/* Bytes of the answer: at the library's door at `door`, sent at `at`. */
static void pipe_write(struct tls_pipe *p, uint64_t door, uint64_t at, const char *text)
{
	struct tks_event ev = { .kind = TKS_EV_PLAIN, .dir = TKS_TX };
	size_t len = strlen(text);
	struct record r;

	p->l.now = door * MS;
	if (p->plain) {
		p->l.now = at * MS;
		lib_tx(&p->l, 1, text);
		return;
	}
	ev.call = ++p->o.calls[TKS_TX];
	ev.seq = p->o.bytes[TKS_TX];
	p->o.bytes[TKS_TX] += (uint32_t)len;
	pipe_event(p, &ev, text, len);
	pipe_send(p, at * MS, record(&p->w, &r, DATA, len + 17), ev.call);
}

static void pipe_chunk(struct tls_pipe *p, uint64_t door, uint64_t at, const char *text)
{
	char buf[1024];

	pipe_write(p, door, at, lib_chunk(buf, sizeof(buf), text));
}

static void pipe_arrive(struct tls_pipe *p, uint8_t type, size_t len)
{
	struct record r;

	record(&p->w, &r, type, len);
	lib_bytes(&p->l, 1, TKS_RX, r.b, r.n, true);
}

/* The request arrives at 100 ms and is read at 120. */
static void pipe_request(struct tls_pipe *p)
{
	struct tks_event ev = { .kind = TKS_EV_PLAIN, .dir = TKS_RX, .asked = 65536 };

	p->l.now = 100 * MS;
	if (p->plain) {
		lib_rx(&p->l, 1, request);
		return;
	}
	pipe_arrive(p, DATA, sizeof(request) - 1 + 17);
	p->l.now = 120 * MS;
	ev.call = ++p->o.calls[TKS_RX];
	ev.seq = p->o.bytes[TKS_RX];
	p->o.bytes[TKS_RX] += sizeof(request) - 1;
	pipe_event(p, &ev, request, sizeof(request) - 1);
}

/* Opens at 90 ms; the handshake is over at 94. early: the client's hello came at 89 ms, when only
 * the listener had a socket. */
static void pipe_open(struct tls_pipe *p, bool early)
{
	struct tks_event ev = { .kind = TKS_EV_DATA, .dir = TKS_RX, .seq = 1000 };
	struct record r;

	record(&p->w, &r, HANDSHAKE, 517);
	p->l.now = 89 * MS;
	if (early && !p->plain) {
		ev.len = ev.cap = (uint32_t)r.n;
		ev.data = r.b;
		lib_event(&p->l, 1, &ev);
		ev.conn = 0;
		assert_int_equal(tks_pipeline_feed(p->l.p, &ev), 0);
	}
	p->l.now = 90 * MS;
	lib_open(&p->l, 1);
	if (p->plain)
		return;
	if (early)
		p->l.rx_seq[1] += (uint32_t)r.n;
	else
		lib_bytes(&p->l, 1, TKS_RX, r.b, r.n, true);
	record(&p->w, &r, HANDSHAKE, 122);
	memcpy(r.b + TKS_TLS_HEADER, (uint8_t[]){ 2, 0, 0, 118, 3, 3 }, 6);
	memcpy(r.b + TKS_TLS_HEADER + 38 + 33, (uint8_t[]){ 0x13, 1 }, 2);
	r.b[TKS_TLS_HEADER + 38] = 32;
	pipe_send(p, 91 * MS, &r, 0);
	pipe_send(p, 92 * MS, record(&p->w, &r, DATA, 1200), 0);
	p->l.now = 93 * MS;
	pipe_arrive(p, DATA, 53);
	pipe_send(p, 94 * MS, record(&p->w, &r, DATA, 234), 0);
}

/* Sent as test_pipeline.c's answer is; at the library's door 5 ms, 6 ms and 2 ms before that. */
static void pipe_answer(struct tls_pipe *p)
{
	pipe_write(p, 150, 150, head);
	pipe_chunk(p, 195, 200, token);
	pipe_chunk(p, 204, 210, token);
	pipe_chunk(p, 228, 230, token);
	pipe_chunk(p, 240, 240, finish);
	pipe_chunk(p, 240, 240, usage3);
	pipe_chunk(p, 250, 250, done);
	pipe_write(p, 250, 250, "0\r\n\r\n");
}

static struct tls_pipe *pipe_run(uint16_t lib, bool plain, bool early)
{
	struct tks_pipeline_config cfg = { .boundary = TKS_B_SEND, .plaintext = !plain };
	struct tls_pipe *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	assert_int_equal(lib_open_pipe(&p->l, cfg), 0);
	p->w.random = 88172645463325252ull;
	p->o.id = 0x1000;
	p->o.lib = lib;
	p->plain = plain;
	pipe_open(p, early);
	pipe_request(p);
	pipe_answer(p);
	return p;
}

static void pipe_over(struct tls_pipe *p)
{
	tks_pipeline_free(p->l.p);
	assert_int_equal(p->l.mem.used, 0);
	free(p);
}

/* The figures of the plaintext's record are test_pipeline.c's, by hand; here that nothing of them
 * is different. */
static void check_same(const struct lib_record *a, const struct lib_record *b)
{
	const struct tks_request *r = &a->r, *s = &b->r;

	assert_int_equal(r->t_request_ns, s->t_request_ns);
	assert_int_equal(r->t_request_end_ns, s->t_request_end_ns);
	assert_int_equal(r->t_headers_ns, s->t_headers_ns);
	assert_int_equal(r->t_first_ns, s->t_first_ns);
	assert_int_equal(r->t_last_ns, s->t_last_ns);
	assert_int_equal(r->t_finish_ns, s->t_finish_ns);
	assert_int_equal(r->t_end_ns, s->t_end_ns);
	assert_int_equal(r->ttft_ns, s->ttft_ns);
	assert_int_equal(r->tpot_ns, s->tpot_ns);
	assert_int_equal(r->e2e_ns, s->e2e_ns);
	assert_int_equal(r->send_wait_ns, s->send_wait_ns);
	assert_int_equal(r->tokens, s->tokens);
	assert_int_equal(r->frames, s->frames);
	assert_int_equal(r->flags, s->flags);
	assert_int_equal(r->status, s->status);
	assert_int_equal(r->pid, s->pid);
	assert_memory_equal(&r->itl, &s->itl, sizeof(r->itl));
	assert_string_equal(r->comm, s->comm);
	assert_string_equal(r->model, s->model);
	assert_string_equal(r->path, s->path);
	assert_string_equal(r->finish, s->finish);
	assert_string_equal(r->local, s->local);
	assert_string_equal(r->peer, s->peer);
	assert_memory_equal(a->at, b->at, sizeof(a->at));
}

static void check_boundaries(const struct tks_request *r)
{
	assert_int_equal(r->nboundaries, 2);
	assert_int_equal(r->at_boundary[0].boundary, TKS_B_SEND);
	assert_int_equal(r->at_boundary[0].ttft_ns, 100 * MS);
	assert_int_equal(r->at_boundary[0].tpot_ns, 15 * MS);
	assert_int_equal(r->at_boundary[0].itl.n, 2);
	assert_int_equal(r->at_boundary[0].itl.min_ns, 10 * MS);
	assert_int_equal(r->at_boundary[0].itl.max_ns, 20 * MS);
	/* In the library at 195, 204 and 228. */
	assert_int_equal(r->at_boundary[1].boundary, TKS_B_TLS);
	assert_int_equal(r->at_boundary[1].ttft_ns, 95 * MS);
	assert_int_equal(r->at_boundary[1].tpot_ns, 33 * MS / 2);
	assert_int_equal(r->at_boundary[1].itl.n, 2);
	assert_int_equal(r->at_boundary[1].itl.min_ns, 9 * MS);
	assert_int_equal(r->at_boundary[1].itl.max_ns, 24 * MS);
	assert_int_equal(r->at_boundary[1].itl.mean_ns, 33 * MS / 2);
}

static void test_pipeline(void **state)
{
	static const uint16_t lib[] = { TKS_TLS_OPENSSL, TKS_TLS_GNUTLS, TKS_TLS_NSS, TKS_TLS_GO };
	struct tls_pipe *plain = pipe_run(0, true, false);

	(void)state;
	assert_int_equal(plain->l.n, 1);
	assert_string_equal(plain->l.rec[0].r.transport, "tcp");
	assert_int_equal(plain->l.rec[0].r.flags, 0);
	assert_int_equal(plain->l.rec[0].r.ttft_ns, 100 * MS);
	assert_int_equal(plain->l.rec[0].r.tpot_ns, 15 * MS);
	assert_int_equal(plain->l.rec[0].r.nboundaries, 0);
	for (size_t i = 0; i < 8; i++) {
		struct tls_pipe *p = pipe_run(lib[i / 2], false, i % 2);
		struct tks_pipeline_counters c;

		assert_int_equal(p->l.n, 1);
		assert_string_equal(p->l.rec[0].r.transport, "tls");
		check_same(&p->l.rec[0], &plain->l.rec[0]);
		check_boundaries(&p->l.rec[0].r);
		tks_pipeline_counters(p->l.p, &c);
		assert_int_equal(c.encrypted, 1);
		assert_int_equal(c.tls_ties, 1);
		assert_int_equal(c.tls_untied, 0);
		assert_int_equal(c.lost_bytes, 0);
		pipe_over(p);
	}
	pipe_over(plain);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_socket_bio),
		cmocka_unit_test(test_client),
		cmocka_unit_test(test_memory_bio),
		cmocka_unit_test(test_memory_bio_coalesced),
		cmocka_unit_test(test_split_sends),
		cmocka_unit_test(test_nested),
		cmocka_unit_test(test_slow_answer),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_again_long),
		cmocka_unit_test(test_partial_writes),
		cmocka_unit_test(test_long_write),
		cmocka_unit_test(test_very_long_write),
		cmocka_unit_test(test_overhead),
		cmocka_unit_test(test_cbc),
		cmocka_unit_test(test_corked),
		cmocka_unit_test(test_corked_first),
		cmocka_unit_test(test_alerts_and_tickets),
		cmocka_unit_test(test_key_update_in_write),
		cmocka_unit_test(test_padding),
		cmocka_unit_test(test_read_in_parts),
		cmocka_unit_test(test_read_long),
		cmocka_unit_test(test_read_waiting),
		cmocka_unit_test(test_finished_first),
		cmocka_unit_test(test_suites),
		cmocka_unit_test(test_unmatched),
		cmocka_unit_test(test_middle),
		cmocka_unit_test(test_lost_write),
		cmocka_unit_test(test_lost_write_waiting),
		cmocka_unit_test(test_lost_read),
		cmocka_unit_test(test_lost_send),
		cmocka_unit_test(test_lost_mark),
		cmocka_unit_test(test_stale_nesting),
		cmocka_unit_test(test_unsure),
		cmocka_unit_test(test_kernel_tls),
		cmocka_unit_test(test_read_before),
		cmocka_unit_test(test_headers_only),
		cmocka_unit_test(test_address_again),
		cmocka_unit_test(test_address_again_untold),
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_connection_over),
		cmocka_unit_test(test_untied),
		cmocka_unit_test(test_unwanted),
		cmocka_unit_test(test_connection_over_within_write),
		cmocka_unit_test(test_disown),
		cmocka_unit_test(test_late_tie),
		cmocka_unit_test(test_closed),
		cmocka_unit_test(test_objects_max),
		cmocka_unit_test(test_pending_max),
		cmocka_unit_test(test_pending_max_tied),
		cmocka_unit_test(test_marks_max),
		cmocka_unit_test(test_records_max),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_no_memory_once),
		cmocka_unit_test(test_pipeline),
	};

	return cmocka_run_group_tests_name("tls", tests, NULL, NULL);
}
