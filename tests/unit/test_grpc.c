// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * gRPC's framing: each text whole, a byte at a time and cut at every place gives the messages
 * written down beside it: "[first-last text]", with a ! if broken.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "grpc.h"
#include "tokensnoop/mem.h"

enum { WIRE_MAX = 4096, BASE = 1000 };

struct log {
	char data[8192], text[8192];
	size_t ndata, n;
	uint64_t low, high; /* what is fed */
	bool exact; /* an identity's bytes are the wire's */
	unsigned int messages;
};

/* What goes over the wire. */
struct wire {
	uint8_t p[WIRE_MAX];
	size_t n;
};

static void on_data(void *ctx, const struct tks_slice *s)
{
	struct log *l = ctx;

	assert_true(s->len && l->ndata + s->len < sizeof(l->data));
	assert_true(s->off >= l->low && s->off <= l->high);
	if (l->exact)
		assert_true(s->off + s->len - 1 <= l->high);
	memcpy(l->data + l->ndata, s->data, s->len);
	l->ndata += s->len;
}

static void on_message(void *ctx, const struct tks_grpc_message *m)
{
	struct log *l = ctx;

	assert_int_equal(m->bytes, l->ndata);
	l->n += (size_t)snprintf(l->text + l->n, sizeof(l->text) - l->n,
				 "[%" PRIu64 "-%" PRIu64 "%s %.*s]", m->first_off - BASE,
				 m->last_off - BASE, m->broken ? "!" : "", (int)l->ndata, l->data);
	assert_true(l->n < sizeof(l->text));
	l->ndata = 0;
	l->messages++;
}

static const struct tks_grpc_ops ops = { on_data, on_message };

/* --- feeding --- */

static int feed(struct tks_grpc *g, struct log *l, const void *p, size_t n, uint64_t off)
{
	uint8_t *copy = malloc(n ? n : 1);
	struct tks_slice in = { copy, n, BASE + off };
	int err;

	assert_non_null(copy);
	memcpy(copy, p, n);
	l->low = in.off;
	l->high = in.off + n - 1;
	err = tks_grpc_feed(g, &in);
	free(copy);
	return err;
}

/* All of it, in pieces; the first error. */
static int feed_pieces(struct tks_grpc *g, struct log *l, const struct wire *w, size_t first,
		       size_t piece)
{
	int err = 0;

	for (size_t i = 0; i < w->n;) {
		size_t k = i ? piece : first;

		k = k < w->n - i ? k : w->n - i;
		err = feed(g, l, w->p + i, k, i) ?: err;
		i += k;
	}
	return err;
}

static void run(const char *encoding, const struct wire *w, size_t first, size_t piece,
		const char *want, int want_err)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct log l = { .exact = !*encoding };
	struct tks_grpc g;

	tks_grpc_init(&g, &mem, encoding, &ops, &l);
	assert_int_equal(feed_pieces(&g, &l, w, first, piece), want_err);
	assert_string_equal(l.text, want);
	tks_grpc_free(&g);
	assert_int_equal(mem.used, 0);
}

static void check_err(const char *encoding, const struct wire *w, const char *want, int want_err)
{
	for (size_t first = 1; first <= w->n; first++)
		run(encoding, w, first, w->n, want, want_err);
	run(encoding, w, 1, 1, want, want_err);
}

static void check(const char *encoding, const struct wire *w, const char *want)
{
	check_err(encoding, w, want, 0);
}

/* --- making --- */

static void put(struct wire *w, const void *p, size_t n)
{
	assert_true(w->n + n <= sizeof(w->p));
	memcpy(w->p + w->n, p, n);
	w->n += n;
}

static void put_prefix(struct wire *w, uint8_t flag, size_t n)
{
	uint8_t prefix[] = { flag, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8),
			     (uint8_t)n };

	put(w, prefix, sizeof(prefix));
}

static void put_plain(struct wire *w, const char *text)
{
	put_prefix(w, 0, strlen(text));
	put(w, text, strlen(text));
}

static size_t deflated(const char *text, int bits, uint8_t *out, size_t room)
{
	z_stream z = { 0 };

	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, bits, 8, 0), Z_OK);
	z.next_in = (uint8_t *)text;
	z.avail_in = (uInt)strlen(text);
	z.next_out = out;
	z.avail_out = (uInt)room;
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	deflateEnd(&z);
	return z.total_out;
}

enum { GZIP = 31, ZLIB = 15, RAW = -15 };

/* How many bytes it is. */
static size_t put_deflated(struct wire *w, const char *text, int bits)
{
	uint8_t out[1024];
	size_t n = deflated(text, bits, out, sizeof(out));

	put_prefix(w, 1, n);
	put(w, out, n);
	return n;
}

/* --- tests --- */

static void test_plain(void **state)
{
	struct wire w = { { 0 }, 0 };

	(void)state;
	put(&w, "\0\0\0\0\2hi", 7);
	check("", &w, "[0-6 hi]");
	check("identity", &w, "[0-6 hi]");
	/* A name that says nothing of a message that isn't compressed. */
	check("gzip", &w, "[0-6 hi]");
	check("snappy", &w, "[0-6 hi]");
	put(&w, "\0\0\0\0\0", 5);
	put(&w, "\0\0\0\0\1x", 6);
	check("", &w, "[0-6 hi][7-11 ][12-17 x]");
	/* What isn't whole is not told of. */
	put(&w, "\0\0\0\0\4xyz", 8);
	check("", &w, "[0-6 hi][7-11 ][12-17 x]");
}

static void test_long(void **state)
{
	struct wire w = { { 0 }, 0 };
	char text[0x301], want[1024];

	(void)state;
	for (size_t i = 0; i < sizeof(text) - 1; i++)
		text[i] = (char)('a' + i % 26);
	text[sizeof(text) - 1] = 0;
	put(&w, "\0\0\0\3\0", 5);
	put(&w, text, 0x300);
	put_plain(&w, "b");
	snprintf(want, sizeof(want), "[0-772 %s][773-778 b]", text);
	check("", &w, want);
}

/* A length of more than 16 bits, of which the offsets tell. */
static void test_length_octets(void **state)
{
	static uint8_t big[0x010203];
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_slice s = { (const uint8_t *)"\0\0\1\2\3", 5, BASE };
	struct log l = { 0 };
	struct tks_grpc g;

	(void)state;
	tks_grpc_init(&g, &mem, "", &ops, &l);
	assert_int_equal(tks_grpc_feed(&g, &s), 0);
	/* All but one byte stepped over, which tells that it was no less and no more. */
	tks_grpc_gap(&g, sizeof(big) - 1);
	assert_int_equal(l.messages, 0);
	assert_int_equal(feed(&g, &l, "x", 1, 5 + sizeof(big) - 1), 0);
	assert_string_equal(l.text, "[0-66055! ]");
	tks_grpc_free(&g);
	assert_int_equal(mem.used, 0);
}

static void test_compressed(void **state)
{
	static const struct {
		const char *name;
		int bits;
	} codings[] = { { "gzip", GZIP }, { "deflate", ZLIB }, { "deflate", RAW } };
	const char *text = "one token, one token, one token, another token";

	(void)state;
	for (size_t i = 0; i < sizeof(codings) / sizeof(codings[0]); i++) {
		struct wire w = { { 0 }, 0 };
		char want[256];
		size_t a, b, c;

		a = 5 + put_deflated(&w, text, codings[i].bits);
		put_plain(&w, "plain");
		b = a + 10;
		c = b + 5 + put_deflated(&w, "", codings[i].bits);
		put_deflated(&w, "end", codings[i].bits);
		put_prefix(&w, 1, 0);
		snprintf(want, sizeof(want), "[0-%zu %s][%zu-%zu plain][%zu-%zu ][%zu-%zu end]",
			 a - 1, text, a, b - 1, b, c - 1, c, w.n - 6);
		snprintf(want + strlen(want), sizeof(want) - strlen(want), "[%zu-%zu ]", w.n - 5,
			 w.n - 1);
		check(codings[i].name, &w, want);
	}
}

static void test_compressed_without_encoding(void **state)
{
	struct wire w = { { 0 }, 0 };
	char want[256];
	size_t a = 5 + put_deflated(&w, "hello", GZIP);

	(void)state;
	put_plain(&w, "plain");
	put_prefix(&w, 1, 0);
	snprintf(want, sizeof(want), "[0-%zu! ][%zu-%zu plain][%zu-%zu! ]", a - 1, a, a + 9, a + 10,
		 a + 14);
	check("", &w, want);
	check("identity", &w, want);
	check("snappy", &w, want);
}

/* What can't be inflated breaks its message only. */
static void test_not_inflated(void **state)
{
	struct wire w = { { 0 }, 0 };
	char want[256];
	size_t n;

	(void)state;
	put(&w, "\1\0\0\0\5hello", 10);
	n = 5 + put_deflated(&w, "fine", GZIP);
	snprintf(want, sizeof(want), "[0-9! ][10-%zu fine]", 10 + n - 1);
	check("gzip", &w, want);
}

/* Behind a flag that is none nothing is told of, whatever comes. */
static void test_bad_flag(void **state)
{
	(void)state;
	for (unsigned int flag = 2; flag < 256; flag++) {
		struct tks_mem mem = TKS_MEM_INIT(0);
		struct wire w = { { 0 }, 0 };
		struct log l = { 0 };
		struct tks_grpc g;

		put_plain(&w, "hi");
		put_prefix(&w, (uint8_t)flag, 2);
		put(&w, "ab", 2);
		put_plain(&w, "no");
		check_err("", &w, "[0-6 hi]", -EBADMSG);
		tks_grpc_init(&g, &mem, "", &ops, &l);
		assert_int_equal(feed(&g, &l, w.p, w.n, 0), -EBADMSG);
		feed(&g, &l, "\0\0\0\0\2no", 7, w.n);
		tks_grpc_gap(&g, 3);
		feed(&g, &l, "\0\0\0\0\2no", 7, w.n + 10);
		tks_grpc_gap(&g, 0);
		feed(&g, &l, "\0\0\0\0\2no", 7, w.n + 30);
		assert_string_equal(l.text, "[0-6 hi]");
		tks_grpc_free(&g);
		assert_int_equal(mem.used, 0);
	}
}

/* --- gaps --- */

/* Outside of a message's own bytes: nothing behind it can be framed. */
static void gap_outside(const struct wire *w, size_t at, size_t len, size_t piece)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct log l = { .exact = true };
	struct tks_grpc g;
	char want[64];

	tks_grpc_init(&g, &mem, "", &ops, &l);
	for (size_t i = 0; i < at; i += piece)
		feed(&g, &l, w->p + i, piece < at - i ? piece : at - i, i);
	tks_grpc_gap(&g, len);
	for (size_t i = at + len; i < w->n; i += piece)
		feed(&g, &l, w->p + i, piece < w->n - i ? piece : w->n - i, i);
	snprintf(want, sizeof(want), "%s%s", at >= 10 ? "[0-9 hello]" : "",
		 at >= 15 ? "[10-14 ]" : "");
	assert_string_equal(l.text, want);
	tks_grpc_free(&g);
	assert_int_equal(mem.used, 0);
}

/* Within the first: it is stepped over. Whether the rest of the message is handed on is open. */
static void gap_within(const struct wire *w, size_t at, size_t len)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct log l = { .exact = true };
	struct tks_grpc g;
	const char *end;

	tks_grpc_init(&g, &mem, "", &ops, &l);
	feed(&g, &l, w->p, at, 0);
	tks_grpc_gap(&g, len);
	feed(&g, &l, w->p + at + len, w->n - at - len, at + len);
	end = strchr(l.text, ']');
	assert_int_equal(strncmp(l.text, "[0-9! ", 6), 0);
	assert_non_null(end);
	assert_string_equal(end, "][10-14 ][15-24 world]");
	tks_grpc_free(&g);
	assert_int_equal(mem.used, 0);
}

static void test_gaps(void **state)
{
	struct wire w = { { 0 }, 0 };

	(void)state;
	put_plain(&w, "hello");
	put_plain(&w, "");
	put_plain(&w, "world");
	for (size_t at = 5; at < 10; at++) {
		for (size_t len = 1; at + len <= 10; len++)
			gap_within(&w, at, len);
	}
	for (size_t at = 0; at < 20; at++) {
		for (size_t len = 0; at + len <= w.n && (at < 5 || at >= 10); len++) {
			for (size_t piece = 1; piece < 4; piece++)
				gap_outside(&w, at, len, piece);
		}
	}
}

/* Of unknown length, or longer than the message: that one is broken, and the last. */
static void test_gaps_past_the_end(void **state)
{
	static const uint64_t lens[] = { 0, 4, 5, 1u << 30, (uint64_t)1 << 40 };
	struct wire w = { { 0 }, 0 };

	(void)state;
	put_plain(&w, "hello");
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		struct tks_mem mem = TKS_MEM_INIT(0);
		struct log l = { .exact = true };
		struct tks_grpc g;
		unsigned long long first, last;

		tks_grpc_init(&g, &mem, "", &ops, &l);
		feed(&g, &l, w.p, 7, 0);
		tks_grpc_gap(&g, lens[i]);
		assert_int_equal(l.messages, 1);
		assert_int_equal(sscanf(l.text, "[%llu-%llu! he]", &first, &last), 2);
		assert_int_equal(first, 0);
		assert_true(last < 10);
		feed(&g, &l, w.p, w.n, 100);
		tks_grpc_gap(&g, 0);
		feed(&g, &l, w.p, w.n, 200);
		assert_int_equal(l.messages, 1);
		tks_grpc_free(&g);
		assert_int_equal(mem.used, 0);
	}
}

/* A compressed message with a hole; the next one begins anew. */
static void test_gap_compressed(void **state)
{
	struct wire w = { { 0 }, 0 };
	size_t first = 5 + put_deflated(&w, "hello, hello, hello", GZIP);
	char want[64];

	(void)state;
	put_deflated(&w, "world", GZIP);
	snprintf(want, sizeof(want), "[%zu-%zu world]", first, w.n - 1);
	for (size_t at = 5; at < first; at++) {
		struct tks_mem mem = TKS_MEM_INIT(0);
		struct log l = { 0 };
		struct tks_grpc g;

		tks_grpc_init(&g, &mem, "gzip", &ops, &l);
		feed(&g, &l, w.p, at, 0);
		tks_grpc_gap(&g, 1);
		feed(&g, &l, w.p + at + 1, w.n - at - 1, at + 1);
		assert_int_equal(l.messages, 2);
		assert_non_null(strchr(l.text, '!'));
		assert_string_equal(strchr(l.text, ']') + 1, want);
		tks_grpc_free(&g);
		assert_int_equal(mem.used, 0);
	}
}

/* --- memory --- */

static void test_no_memory(void **state)
{
	struct wire w = { { 0 }, 0 };
	char want[128];
	size_t a = 5 + put_deflated(&w, "hello", GZIP), b = a + 10;
	uint64_t calls;

	(void)state;
	put_plain(&w, "plain");
	put_deflated(&w, "again", GZIP);
	for (uint64_t at = 1;; at++) {
		struct tks_mem mem = { .fail_at = at };
		struct log l = { 0 };
		struct tks_grpc g;
		int err;

		tks_grpc_init(&g, &mem, "gzip", &ops, &l);
		/* Cut within what is deflated: that needs a window. */
		err = feed(&g, &l, w.p, 18, 0);
		err = feed(&g, &l, w.p + 18, b - 18, 18) ?: err;
		calls = mem.calls;
		assert_true(err == -ENOMEM || (!err && calls < at));
		/* The third is tried with memory. */
		mem.fail_at = 0;
		assert_int_equal(feed(&g, &l, w.p + b, w.n - b, b), 0);
		snprintf(want, sizeof(want), "[0-%zu%s][%zu-%zu plain][%zu-%zu again]", a - 1,
			 err ? "! " : " hello", a, b - 1, b, w.n - 1);
		/* What came before memory ran out counts. */
		if (!err || at == 1)
			assert_string_equal(l.text, want);
		assert_non_null(strstr(l.text, "plain]"));
		assert_non_null(strstr(l.text, "again]"));
		assert_int_equal(strchr(l.text, '!') != NULL, err != 0);
		tks_grpc_free(&g);
		assert_int_equal(mem.used, 0);
		if (!err)
			break;
		assert_true(at < 100);
	}
	/* At least the codec, zlib's state and its window. */
	assert_true(calls >= 3);
}

/* brotli starts over by allocating: without memory that message is broken, and not the next. */
static void test_no_memory_br(void **state)
{
	/* By the brotli tool. */
	static const uint8_t hi[] = { 0x8f, 0x00, 0x80, 'h', 'i', 0x03 };
	struct wire w = { { 0 }, 0 };
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct log l = { 0 };
	struct tks_grpc g;

	(void)state;
	put_prefix(&w, 1, sizeof(hi));
	put(&w, hi, sizeof(hi));
	tks_grpc_init(&g, &mem, "br", &ops, &l);
	assert_int_equal(feed(&g, &l, w.p, w.n, 0), 0);
	mem.fail_at = 1;
	assert_int_equal(feed(&g, &l, w.p, w.n, w.n), -ENOMEM);
	mem.fail_at = 0;
	assert_int_equal(feed(&g, &l, w.p, w.n, 2 * w.n), 0);
	assert_string_equal(l.text, "[0-10 hi][11-21! ][22-32 hi]");
	tks_grpc_free(&g);
	assert_int_equal(mem.used, 0);
}

static void test_budget(void **state)
{
	struct wire w = { { 0 }, 0 };
	struct tks_mem mem = TKS_MEM_INIT(1000);
	struct log l = { 0 };
	struct tks_grpc g;

	(void)state;
	/* Takes nothing for what is not compressed. */
	put_plain(&w, "plain");
	tks_grpc_init(&g, &mem, "gzip", &ops, &l);
	assert_int_equal(feed(&g, &l, w.p, w.n, 0), 0);
	assert_int_equal(mem.peak, 0);
	w.n = 0;
	put_deflated(&w, "hello", GZIP);
	assert_int_equal(feed(&g, &l, w.p, w.n, 10), -ENOMEM);
	assert_true(mem.peak <= 1000);
	assert_int_equal(l.messages, 2);
	tks_grpc_free(&g);
	assert_int_equal(mem.used, 0);
	/* Twice does no harm. */
	tks_grpc_free(&g);
}

static void count_data(void *ctx, const struct tks_slice *s)
{
	*(uint64_t *)ctx += s->len;
}

static void count_message(void *ctx, const struct tks_grpc_message *m)
{
	assert_int_equal(m->bytes, *(uint64_t *)ctx);
	*(uint64_t *)ctx = m->broken ? 1 : 2;
}

/* A bomb breaks its message, not the connection. */
static void test_bomb(void **state)
{
	static const struct tks_grpc_ops count = { count_data, count_message };
	static uint8_t zeros[1 << 20], out[16384];
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct wire w = { { 0 }, 0 };
	z_stream z = { .next_out = out, .avail_out = sizeof(out) };
	struct tks_slice s = { out, 0, BASE };
	struct tks_grpc g;
	uint64_t result = 0;

	(void)state;
	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, GZIP, 8, 0), Z_OK);
	for (int i = 0; i < 8; i++) {
		z.next_in = zeros;
		z.avail_in = sizeof(zeros);
		assert_int_equal(deflate(&z, i == 7 ? Z_FINISH : Z_NO_FLUSH), i == 7);
	}
	s.len = z.total_out;
	deflateEnd(&z);
	tks_grpc_init(&g, &mem, "gzip", &count, &result);
	put_prefix(&w, 1, s.len);
	assert_int_equal(tks_grpc_feed(&g, &(struct tks_slice){ w.p, w.n, BASE }), 0);
	assert_int_equal(tks_grpc_feed(&g, &s), 0);
	assert_int_equal(result, 1);
	w.n = 0;
	result = 0;
	put_deflated(&w, "fine", GZIP);
	assert_int_equal(tks_grpc_feed(&g, &(struct tks_slice){ w.p, w.n, BASE }), 0);
	assert_int_equal(result, 2);
	tks_grpc_free(&g);
	assert_int_equal(mem.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_length_octets),
		cmocka_unit_test(test_compressed),
		cmocka_unit_test(test_compressed_without_encoding),
		cmocka_unit_test(test_not_inflated),
		cmocka_unit_test(test_bad_flag),
		cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_gaps_past_the_end),
		cmocka_unit_test(test_gap_compressed),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_no_memory_br),
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_bomb),
	};

	return cmocka_run_group_tests_name("grpc", tests, NULL, NULL);
}
