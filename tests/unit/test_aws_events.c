// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * AWS event streams: each text whole, a byte at a time and cut at every place gives the events
 * written down beside it: "[first-last message-type/type payload]", with a ! if its CRC is wrong,
 * and R where what was begun is void.
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

#include "aws_events.h"

enum {
	WIRE_MAX = 4096,
	BASE = 1000,
	PRELUDE = 12,
	HEADERS_MAX = 128 << 10,
	PAYLOAD_MAX = 24 << 20
};

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

struct log {
	char data[2048], text[8192];
	size_t ndata, n;
	bool begun;
	uint64_t payload_bytes, next_off;
	char what[80]; /* what begin said */
};

struct wire {
	uint8_t p[WIRE_MAX];
	size_t n;
};

static void say(struct log *l, const char *text)
{
	l->n += (size_t)snprintf(l->text + l->n, sizeof(l->text) - l->n, "%s", text);
	assert_true(l->n < sizeof(l->text));
}

static void on_begin(void *ctx, const struct tks_aws_event *e)
{
	struct log *l = ctx;

	assert_false(l->begun);
	assert_int_equal(l->ndata, 0);
	l->begun = true;
	l->payload_bytes = e->payload_bytes;
	l->next_off = 0;
	snprintf(l->what, sizeof(l->what), "%s/%s", e->message_type, e->type);
}

static void on_payload(void *ctx, const struct tks_slice *s)
{
	struct log *l = ctx;

	assert_true(l->begun && s->len);
	assert_true(!l->next_off || s->off == l->next_off);
	l->next_off = s->off + s->len;
	assert_true(l->ndata + s->len <= l->payload_bytes);
	assert_true(l->ndata + s->len < sizeof(l->data));
	memcpy(l->data + l->ndata, s->data, s->len);
	l->ndata += s->len;
}

static void on_event(void *ctx, const struct tks_aws_event *e)
{
	struct log *l = ctx;
	char what[80], text[2300];

	assert_true(l->begun);
	assert_int_equal(e->payload_bytes, l->payload_bytes);
	assert_int_equal(l->ndata, l->payload_bytes);
	/* The CRC is behind it. */
	assert_true(!l->ndata || l->next_off + 3 == e->last_off);
	snprintf(what, sizeof(what), "%s/%s", e->message_type, e->type);
	assert_string_equal(what, l->what);
	snprintf(text, sizeof(text), "[%" PRIu64 "-%" PRIu64 "%s %s %.*s]", e->first_off - BASE,
		 e->last_off - BASE, e->bad_crc ? "!" : "", what, (int)l->ndata, l->data);
	say(l, text);
	l->begun = false;
	l->ndata = 0;
}

static void on_reset(void *ctx)
{
	struct log *l = ctx;

	assert_true(l->begun);
	l->begun = false;
	l->ndata = 0;
	say(l, "R");
}

static const struct tks_aws_ops ops = { on_begin, on_payload, on_event, on_reset };

/* --- feeding --- */

static int feed(struct tks_aws_events *a, const void *p, size_t n, uint64_t off)
{
	uint8_t *copy = malloc(n ? n : 1);
	struct tks_slice in = { copy, n, BASE + off };
	int err;

	assert_non_null(copy);
	memcpy(copy, p, n);
	err = tks_aws_events_feed(a, &in);
	free(copy);
	return err;
}

/* Up to the first error. */
static int feed_pieces(struct tks_aws_events *a, const struct wire *w, size_t from, size_t first,
		       size_t piece)
{
	int err = 0;

	for (size_t i = from; i < w->n && !err;) {
		size_t k = i == from ? first : piece;

		k = k < w->n - i ? k : w->n - i;
		err = feed(a, w->p + i, k, i);
		i += k;
	}
	return err;
}

static void run(const struct wire *w, size_t first, size_t piece, const char *want, int want_err)
{
	struct log l = { .n = 0 };
	struct tks_aws_events a;

	tks_aws_events_init(&a, &ops, &l);
	assert_int_equal(feed_pieces(&a, w, 0, first, piece), want_err);
	assert_string_equal(l.text, want);
	/* Behind an error nothing is left begun. */
	assert_false(want_err && l.begun);
}

static void check_err(const struct wire *w, const char *want, int want_err)
{
	for (size_t first = 1; first <= w->n; first++)
		run(w, first, w->n, want, want_err);
	run(w, 1, 1, want, want_err);
	run(w, 3, 7, want, want_err);
}

static void check(const struct wire *w, const char *want)
{
	check_err(w, want, 0);
}

/* --- making --- */

static void put(struct wire *w, const void *p, size_t n)
{
	assert_true(w->n + n <= sizeof(w->p));
	memcpy(w->p + w->n, p, n);
	w->n += n;
}

static void put_be(struct wire *w, uint32_t v, size_t n)
{
	uint8_t o[] = { (uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v };

	put(w, o + 4 - n, n);
}

static void put_crc(struct wire *w, size_t from)
{
	put_be(w, (uint32_t)crc32(0, w->p + from, (uInt)(w->n - from)), 4);
}

static void put_name(struct wire *w, const char *name, uint8_t type)
{
	put_be(w, (uint32_t)strlen(name), 1);
	put(w, name, strlen(name));
	put(w, &type, 1);
}

static void put_string(struct wire *w, const char *name, const char *value)
{
	put_name(w, name, 7);
	put_be(w, (uint32_t)strlen(value), 2);
	put(w, value, strlen(value));
}

static void put_prelude(struct wire *w, uint32_t total, uint32_t headers)
{
	size_t from = w->n;

	put_be(w, total, 4);
	put_be(w, headers, 4);
	put_crc(w, from);
}

static void put_message(struct wire *w, const struct wire *headers, const char *payload)
{
	size_t from = w->n, n = strlen(payload);

	put_prelude(w, (uint32_t)(headers->n + n + 16), (uint32_t)headers->n);
	put(w, headers->p, headers->n);
	put(w, payload, n);
	put_crc(w, from);
}

static void put_event(struct wire *w, const char *type, const char *payload)
{
	struct wire h = { { 0 }, 0 };

	put_string(&h, ":event-type", type);
	put_string(&h, ":content-type", "application/json");
	put_string(&h, ":message-type", "event");
	put_message(w, &h, payload);
}

/* A message of these headers has this type, wherever it is cut. */
static void check_headers(const struct wire *h, const char *want)
{
	struct wire w = { { 0 }, 0 };
	char text[256];

	put_message(&w, h, "{}");
	snprintf(text, sizeof(text), "[0-%zu %s {}]", w.n - 1, want);
	check(&w, text);
}

/* --- the vectors of botocore's tests/unit/test_eventstream.py --- */

#define VECTOR(literal)                                                                            \
	{                                                                                          \
		literal, sizeof(literal) - 1                                                       \
	}

static const struct wire vec_empty =
	VECTOR("\x00\x00\x00\x10\x00\x00\x00\x00\x05\xc2H\xeb}\x98\xc8\xff");
static const struct wire vec_int32 = VECTOR("\x00\x00\x00+\x00\x00\x00\x0e\x34\x8b\xec{\x08"
					    "event-id\x04\x00\x00\xa0\x0c{'foo':'bar'}\xd3\x89"
					    "\x02\x85");
static const struct wire vec_no_headers = VECTOR("\x00\x00\x00\x1d\x00\x00\x00\x00\xfdR\x8cZ"
						 "{'foo':'bar'}\xc3"
						 "e96");
static const struct wire vec_string = VECTOR("\x00\x00\x00=\x00\x00\x00 \x07\xfd\x83\x96\x0c"
					     "content-type\x07\x00\x10"
					     "application/json{'foo':'bar'}\x8d\x9c\x08\xb1");
static const struct wire vec_all_types =
	VECTOR("\x00\x00\x00\x62\x00\x00\x00\x52\x03\xb5\xcb\x9c"
	       "\x01\x30\x00\x01\x31\x01\x01\x32\x02\x02\x01\x33\x03\x00\x03"
	       "\x01\x34\x04\x00\x00\x00\x04\x01\x35\x05\x00\x00\x00\x00\x00\x00\x00\x05"
	       "\x01\x36\x06\x00\x05"
	       "bytes\x01\x37\x07\x00\x04utf8"
	       "\x01\x38\x08\x00\x00\x00\x00\x00\x00\x00\x08\x01\x39\x09"
	       "0123456789abcdef\x63\x35\x36\x71");
static const struct wire vec_error = VECTOR("\x00\x00\x00\x52\x00\x00\x00\x42\xbf\x23\x63\x7e\x0d"
					    ":message-type\x07\x00\x05"
					    "error\x0b:error-code\x07\x00\x04"
					    "code\x0e:error-message\x07\x00\x07message\x6b\x6c"
					    "\xea\x3d");

static void test_vectors(void **state)
{
	struct wire w = { { 0 }, 0 };

	(void)state;
	check(&vec_empty, "[0-15 / ]");
	check(&vec_int32, "[0-42 / {'foo':'bar'}]");
	check(&vec_no_headers, "[0-28 / {'foo':'bar'}]");
	check(&vec_string, "[0-60 / {'foo':'bar'}]");
	check(&vec_all_types, "[0-97 / ]");
	check(&vec_error, "[0-81 error/code ]");
	put(&w, vec_empty.p, vec_empty.n);
	put(&w, vec_all_types.p, vec_all_types.n);
	put(&w, vec_error.p, vec_error.n);
	put(&w, vec_no_headers.p, vec_no_headers.n);
	put(&w, vec_empty.p, vec_empty.n);
	check(&w, "[0-15 / ][16-113 / ][114-195 error/code ][196-224 / {'foo':'bar'}][225-240 / ]");
}

/* Those with something wrong in them, of the same tests. */
static void test_bad_vectors(void **state)
{
	struct wire w;

	(void)state;
	w = vec_string; /* headers' length */
	memcpy(w.p + 4, "\xff\x00\x01\x02", 4);
	check_err(&w, "", -EBADMSG);
	w = vec_no_headers; /* length */
	w.p[0] = 1;
	check_err(&w, "", -EBADMSG);
	w = vec_string; /* headers */
	memcpy(w.p + 13, "a+ntent-type", 12);
	check(&w, "[0-60! / {'foo':'bar'}]");
	w = vec_no_headers; /* payload */
	memcpy(w.p + 12, "\x91", 1);
	check(&w, "[0-28! / \x91'foo':'bar'}]");
}

/* --- headers --- */

static void test_kinds(void **state)
{
	static const struct {
		const char *message_type, *name, *type, *want;
	} kinds[] = {
		{ "event", ":event-type", "contentBlockDelta", "event/contentBlockDelta" },
		{ "exception", ":exception-type", "throttlingException",
		  "exception/throttlingException" },
		{ "error", ":error-code", "InternalError", "error/InternalError" },
		{ "event", ":event-type", "", "event/" },
		{ "", ":event-type", "chunk", "/chunk" },
		{ "event", "event-type", "chunk", "event/" },
		{ "event", ":Event-Type", "chunk", "event/" },
		{ "event", ":event-typ", "chunk", "event/" },
		{ "event", ":event-types", "chunk", "event/" },
		{ "event", ":error-message", "chunk", "event/" },
		{ "event", ":content-type", "chunk", "event/" },
	};

	(void)state;
	for (size_t i = 0; i < LEN(kinds); i++) {
		struct wire a = { { 0 }, 0 }, b = { { 0 }, 0 };

		/* In either order. */
		put_string(&a, ":message-type", kinds[i].message_type);
		put_string(&a, kinds[i].name, kinds[i].type);
		check_headers(&a, kinds[i].want);
		put_string(&b, kinds[i].name, kinds[i].type);
		put_string(&b, ":message-type", kinds[i].message_type);
		check_headers(&b, kinds[i].want);
	}
}

/* Octets of each type's value; -1: it has a length. */
static const int type_sizes[] = { 0, 0, 1, 2, 4, 8, -1, -1, 8, 16 };

/* Of any type, before and behind those that are asked for, and under their names. */
static void test_types(void **state)
{
	(void)state;
	for (uint8_t type = 0; type < 10; type++) {
		const char *names[] = { "x", ":event-type", ":message-type",
					"a name that is longer than what is kept of one" };

		for (size_t i = 0; i < LEN(names); i++) {
			struct wire h = { { 0 }, 0 };

			if (type == 7 && i)
				break;
			put_string(&h, ":error-code", "c");
			put_name(&h, names[i], type);
			if (type_sizes[type] < 0) {
				put_be(&h, 300, 2);
				for (int k = 0; k < 300; k++)
					put(&h, &"\x07:event-type"[k % 12], 1);
			} else {
				put(&h, "0123456789abcdef", (size_t)type_sizes[type]);
			}
			if (i != 2)
				put_string(&h, ":message-type", "m");
			check_headers(&h, i == 2 ? "/c" : "m/c");
		}
	}
}

/* The last header's value may be of any type, and of no length. */
static void test_last_header(void **state)
{
	(void)state;
	for (uint8_t type = 0; type < 10; type++) {
		struct wire h = { { 0 }, 0 };

		put_string(&h, ":event-type", "t");
		put_name(&h, "x", type);
		if (type_sizes[type] < 0)
			put_be(&h, 0, 2);
		else
			put(&h, "0123456789abcdef", (size_t)type_sizes[type]);
		check_headers(&h, "/t");
	}
}

static void test_names(void **state)
{
	static const size_t lens[] = { 1, 23, 24, 25, 31, 32, 254, 255 };
	char name[256];

	(void)state;
	for (size_t i = 0; i < LEN(lens); i++) {
		for (int k = 0; k < 2; k++) {
			struct wire h = { { 0 }, 0 };

			memset(name, k ? ':' : 'n', lens[i]);
			name[lens[i]] = 0;
			/* One that begins like what is asked for. */
			if (k && lens[i] > 11)
				memcpy(name, ":event-type", 11);
			put_string(&h, name, "other");
			put_string(&h, ":event-type", "t");
			put_string(&h, name, "other");
			put_string(&h, ":message-type", "event");
			put_string(&h, name, "other");
			check_headers(&h, "event/t");
		}
	}
}

/* One without a name is nobody's: not of the header before it, nor of the last message's. */
static void test_no_name(void **state)
{
	struct wire w = { { 0 }, 0 }, h = { { 0 }, 0 };
	char want[128];
	size_t n;

	(void)state;
	put_string(&h, "", "a");
	check_headers(&h, "/");
	put_string(&h, ":event-type", "t");
	put_string(&h, "x", "x");
	put_string(&h, "", "b");
	put_string(&h, ":message-type", "event");
	check_headers(&h, "event/t");
	put_string(&h, "", "c");
	check_headers(&h, "event/t");
	put_message(&w, &h, "1");
	n = w.n;
	put_message(&w, &h, "2");
	snprintf(want, sizeof(want), "[0-%zu event/t 1][%zu-%zu event/t 2]", n - 1, n, w.n - 1);
	check(&w, want);
}

/* Two of a name, which no sender should make: it is one of them, not both in one. */
static void test_twice(void **state)
{
	struct wire w = { { 0 }, 0 }, h = { { 0 }, 0 };
	struct log l = { .n = 0 };
	struct tks_aws_events a;

	(void)state;
	put_string(&h, ":message-type", "event");
	put_string(&h, ":event-type", "one");
	put_string(&h, ":event-type", "two");
	put_message(&w, &h, "");
	tks_aws_events_init(&a, &ops, &l);
	assert_int_equal(feed(&a, w.p, w.n, 0), 0);
	assert_true(strstr(l.text, " event/one ]") || strstr(l.text, " event/two ]"));
}

static void test_long_values(void **state)
{
	char value[301], want[128];

	(void)state;
	for (size_t n = 0; n < sizeof(value); n++) {
		struct wire h = { { 0 }, 0 };
		struct wire w = { { 0 }, 0 };

		for (size_t i = 0; i < n; i++)
			value[i] = (char)('a' + i % 26);
		value[n] = 0;
		put_string(&h, ":message-type", value);
		put_string(&h, ":exception-type", value);
		put_string(&h, "x", value);
		put_message(&w, &h, "");
		/* 16 and 48 bytes with their ends. */
		snprintf(want, sizeof(want), "[0-%zu %.15s/%.47s ]", w.n - 1, value, value);
		run(&w, w.n, w.n, want, 0);
		run(&w, 1, 1, want, 0);
		run(&w, 5, 11, want, 0);
	}
}

/* A value with a zero in it keeps being a string. */
static void test_zero_in_value(void **state)
{
	struct wire h = { { 0 }, 0 };

	(void)state;
	put_name(&h, ":event-type", 7);
	put_be(&h, 3, 2);
	put(&h, "\0\0\0", 3);
	put_string(&h, ":message-type", "event");
	check_headers(&h, "event/");
}

/* --- headers that can't be --- */

static void check_bad_headers(const void *p, size_t n)
{
	struct wire h = { { 0 }, 0 }, w = { { 0 }, 0 };
	char want[64];

	/* Behind a good header, and a good message; a payload that could be taken for the rest. */
	put_event(&w, "t", "good");
	snprintf(want, sizeof(want), "[0-%zu event/t good]", w.n - 1);
	put_string(&h, "x", "y");
	put(&h, p, n);
	put_message(&w, &h, "a payload that is longer than anything that is missing");
	check_err(&w, want, -EBADMSG);
}

static void test_bad_headers(void **state)
{
	static const struct {
		const char *p;
		size_t n;
	} headers[] = {
		{ "\1", 1 }, /* no name */
		{ "\0", 1 }, /* none, and no type */
		{ "\1x", 2 }, /* no type */
		{ "\3xy", 3 },
		{ "\xff:event-type\7\0\1a", 15 },
		{ "\1x\2", 3 }, /* no value */
		{ "\1x\3\0", 4 },
		{ "\1x\4\0\0\0", 6 },
		{ "\1x\5\0\0\0\0\0\0\0", 10 },
		{ "\1x\6", 3 },
		{ "\1x\6\0", 4 },
		{ "\1x\6\0\1", 5 },
		{ "\1x\7", 3 },
		{ "\1x\7\0", 4 },
		{ "\1x\7\0\1", 5 },
		{ "\1x\7\0\3ab", 7 },
		{ "\1x\7\xff\xff"
		  "ab",
		  7 },
		{ "\1x\x08\0\0\0\0\0\0\0", 10 },
		{ "\1x\x09\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 18 },
		{ "\1x\0\1", 4 }, /* a good one, and no name */
	};

	(void)state;
	for (size_t i = 0; i < LEN(headers); i++)
		check_bad_headers(headers[i].p, headers[i].n);
	for (unsigned int type = 10; type < 256; type++) {
		char p[] = { 1, 'x', (char)type, 0, 1, 'a' };

		check_bad_headers(p, sizeof(p));
	}
}

/* --- lengths --- */

static void test_bad_lengths(void **state)
{
	static const struct {
		uint32_t total, headers;
		int err;
	} lengths[] = {
		{ 0, 0, -EBADMSG },
		{ 12, 0, -EBADMSG },
		{ 15, 0, -EBADMSG },
		{ 16, 0, 0 },
		{ 16, 1, -EBADMSG },
		{ 116, 100, 0 },
		{ 116, 101, -EBADMSG },
		{ 116, UINT32_MAX, -EBADMSG },
		{ 116, UINT32_MAX - 15, -EBADMSG },
		{ UINT32_MAX, UINT32_MAX, -EBADMSG },
		{ UINT32_MAX, 0, -EBADMSG },
		{ 16, 0x80000000, -EBADMSG },
		{ PAYLOAD_MAX + 16, 0, 0 },
		{ PAYLOAD_MAX + 17, 0, -EBADMSG },
		{ HEADERS_MAX + 16, HEADERS_MAX, 0 },
		{ HEADERS_MAX + 17, HEADERS_MAX + 1, -EBADMSG },
		{ PAYLOAD_MAX + HEADERS_MAX + 16, HEADERS_MAX, 0 },
		{ PAYLOAD_MAX + HEADERS_MAX + 17, HEADERS_MAX, -EBADMSG },
	};

	(void)state;
	for (size_t i = 0; i < LEN(lengths); i++) {
		struct wire w = { { 0 }, 0 };

		put_prelude(&w, lengths[i].total, lengths[i].headers);
		check_err(&w, "", lengths[i].err);
	}
}

struct count {
	uint64_t bytes, pieces;
	struct tks_aws_event e;
};

static void count_begin(void *ctx, const struct tks_aws_event *e)
{
	struct count *c = ctx;

	c->bytes = 0;
	c->e = *e;
}

static void count_payload(void *ctx, const struct tks_slice *s)
{
	((struct count *)ctx)->bytes += s->len;
}

static void count_event(void *ctx, const struct tks_aws_event *e)
{
	struct count *c = ctx;

	assert_string_equal(c->e.type, e->type);
	c->e = *e;
	c->pieces++;
}

/* The largest that there may be, with the headers it may have. */
static void test_largest(void **state)
{
	static const struct tks_aws_ops count = { count_begin, count_payload, count_event, NULL };
	const uint32_t total = HEADERS_MAX + PAYLOAD_MAX + 16;
	struct wire w = { { 0 }, 0 };
	uint8_t *p = calloc(1, total);
	struct tks_aws_events a;
	size_t at, last;

	(void)state;
	assert_non_null(p);
	put_prelude(&w, total, HEADERS_MAX);
	put_string(&w, ":event-type", "t");
	memcpy(p, w.p, w.n);
	at = w.n;
	memcpy(p + at, "\1x\6\xff\xff", 5);
	at += 5 + 65535;
	memcpy(p + at, "\1y\7", 3);
	last = PRELUDE + HEADERS_MAX - at - 5;
	p[at + 3] = (uint8_t)(last >> 8);
	p[at + 4] = (uint8_t)last;
	at = total - 4;
	w.n = 0;
	put_be(&w, (uint32_t)crc32(0, p, total - 4), 4);
	memcpy(p + at, w.p, 4);
	for (size_t piece = 1000; piece <= total; piece = piece == total ? piece + 1 : total) {
		struct count c = { 0 };

		tks_aws_events_init(&a, &count, &c);
		for (size_t i = 0; i < total; i += piece) {
			struct tks_slice s = { p + i, piece < total - i ? piece : total - i, i };

			assert_int_equal(tks_aws_events_feed(&a, &s), 0);
		}
		assert_int_equal(c.pieces, 1);
		assert_int_equal(c.bytes, PAYLOAD_MAX);
		assert_int_equal(c.e.payload_bytes, PAYLOAD_MAX);
		assert_string_equal(c.e.type, "t");
		assert_int_equal(c.e.first_off, 0);
		assert_int_equal(c.e.last_off, total - 1);
		assert_false(c.e.bad_crc);
	}
	free(p);
}

/* --- checksums --- */

/* Each bit turned round is found: in the prelude at once, behind it at the end. */
static void test_bits(void **state)
{
	struct wire good = { { 0 }, 0 };
	size_t n;

	(void)state;
	put_event(&good, "t", "payload");
	n = good.n;
	put_event(&good, "u", "next");
	for (size_t i = 0; i < n * 8; i++) {
		struct wire w = good;
		struct log l = { .n = 0 };
		struct tks_aws_events a;
		char want[64];

		w.p[i / 8] ^= (uint8_t)(1 << i % 8);
		if (i < (size_t)PRELUDE * 8) {
			check_err(&w, "", -EBADMSG);
			continue;
		}
		tks_aws_events_init(&a, &ops, &l);
		if (feed_pieces(&a, &w, 0, 20, 9)) {
			/* Headers that can't be. */
			assert_true(i / 8 < n - 4 - strlen("payload"));
			check_err(&w, "", -EBADMSG);
			continue;
		}
		snprintf(want, sizeof(want), "[0-%zu! ", n - 1);
		assert_int_equal(strncmp(l.text, want, strlen(want)), 0);
		snprintf(want, sizeof(want), "][%zu-%zu event/u next]", n, w.n - 1);
		assert_non_null(strstr(l.text, want));
		check(&w, l.text);
	}
}

/* --- behind an error --- */

/* A message is taken up only where a slice begins with all of a prelude. */
static void test_seek(void **state)
{
	struct wire w = { { 0 }, 0 };
	struct log l = { .n = 0 };
	struct tks_aws_events a;
	char want[64];

	(void)state;
	put_event(&w, "t", "hello");
	for (size_t first = 1; first <= w.n; first++) {
		l.n = 0;
		l.text[0] = 0;
		tks_aws_events_init(&a, &ops, &l);
		assert_int_equal(feed(&a, "this is none", 12, 0), -EBADMSG);
		/* The same slice's rest is not looked at, nor what does not begin with one. */
		assert_int_equal(feed(&a, "xyz", 3, 12), 0);
		for (size_t i = 1; i < w.n; i++)
			assert_int_equal(feed(&a, w.p + i, w.n - i, 100), 0);
		assert_int_equal(feed(&a, w.p, PRELUDE - 1, 100), 0);
		assert_int_equal(feed(&a, "", 0, 100), 0);
		assert_string_equal(l.text, "");
		assert_int_equal(feed(&a, w.p, first, 500), 0);
		assert_int_equal(feed(&a, w.p + first, w.n - first, 500 + first), 0);
		snprintf(want, sizeof(want), "[500-%zu event/t hello]", 500 + w.n - 1);
		assert_string_equal(l.text, first < PRELUDE ? "" : want);
	}
	/* In the slice whose beginning was good, too. */
	w.n = 0;
	put_event(&w, "t", "hello");
	snprintf(want, sizeof(want), "[0-%zu event/t hello]", w.n - 1);
	put(&w, "this is none", 12);
	put_event(&w, "u", "lost");
	check_err(&w, want, -EBADMSG);
}

/* --- gaps --- */

/* Three messages, and what they are: where each begins, where its headers end. */
struct three {
	struct wire w;
	size_t start[4], body[3];
	char text[3][64];
};

static void make_three(struct three *t)
{
	static const char *const payloads[] = { "hello", "", "world!" };

	memset(t, 0, sizeof(*t));
	for (size_t i = 0; i < 3; i++) {
		struct wire h = { { 0 }, 0 };

		t->start[i] = t->w.n;
		put_string(&h, ":event-type", i == 1 ? "" : "t");
		put_name(&h, "x", 4);
		put(&h, "1234", 4);
		put_message(&t->w, &h, payloads[i]);
		t->body[i] = t->start[i] + PRELUDE + h.n;
		snprintf(t->text[i], sizeof(t->text[i]), "[%zu-%zu /%s %s]", t->start[i],
			 t->w.n - 1, i == 1 ? "" : "t", payloads[i]);
	}
	t->start[3] = t->w.n;
}

/* What comes of them when len bytes at this place are missing and the rest comes in slices that
 * begin at the messages' beginnings (aligned), or in one. */
static void after_gap(const struct three *t, size_t at, size_t len, bool aligned, char *want,
		      size_t size)
{
	size_t i = 0, next = 3, n = 0;

	want[0] = 0;
	for (; i < 3 && t->start[i + 1] <= at; i++)
		n += (size_t)snprintf(want + n, size - n, "%s", t->text[i]);
	if (i < 3 && at >= t->body[i])
		n += (size_t)snprintf(want + n, size - n, "R");
	if (i < 3 && at >= t->start[i] + PRELUDE && at + len <= t->start[i + 1]) {
		next = i + 1; /* within it: stepped over */
	} else {
		/* The first whose beginning a slice has. */
		for (size_t k = 3; k-- > 0;) {
			if (aligned ? t->start[k] >= at + len : t->start[k] == at + len)
				next = k;
		}
	}
	for (; next < 3; next++)
		n += (size_t)snprintf(want + n, size - n, "%s", t->text[next]);
}

static void run_gap(const struct three *t, size_t at, size_t len, size_t piece, bool aligned)
{
	struct log l = { .n = 0 };
	struct tks_aws_events a;
	char want[256];

	after_gap(t, at, len, aligned, want, sizeof(want));
	tks_aws_events_init(&a, &ops, &l);
	for (size_t i = 0; i < at; i += piece)
		assert_int_equal(feed(&a, t->w.p + i, piece < at - i ? piece : at - i, i), 0);
	tks_aws_events_gap(&a, len);
	for (size_t i = at + len; i < t->w.n;) {
		size_t to = t->w.n;

		for (size_t k = 3; aligned && k-- > 0;) {
			if (t->start[k] > i)
				to = t->start[k];
		}
		assert_int_equal(feed(&a, t->w.p + i, to - i, i), 0);
		i = to;
	}
	assert_string_equal(l.text, want);
}

static void test_gaps(void **state)
{
	struct three t;

	(void)state;
	make_three(&t);
	for (size_t at = 0; at <= t.w.n; at++) {
		for (size_t len = 1; at + len <= t.w.n; len++) {
			run_gap(&t, at, len, t.w.n, true);
			run_gap(&t, at, len, t.w.n, false);
			run_gap(&t, at, len, 1, true);
			run_gap(&t, at, len, 1, false);
		}
	}
}

/* Of unknown length, or longer than the message has left: what it has left is not stepped over. */
static void test_gaps_past_the_end(void **state)
{
	static const uint64_t lens[] = {
		0, 1u << 30, UINT32_MAX, (uint64_t)1 << 32, ((uint64_t)1 << 32) + 1, UINT64_MAX
	};
	struct three t;

	(void)state;
	make_three(&t);
	for (size_t i = 0; i < LEN(lens); i++) {
		for (size_t at = 0; at <= t.start[1]; at++) {
			struct log l = { .n = 0 };
			struct tks_aws_events a;
			char want[256];

			tks_aws_events_init(&a, &ops, &l);
			assert_int_equal(feed(&a, t.w.p, at, 0), 0);
			tks_aws_events_gap(&a, lens[i]);
			/* The rest of it is not its rest. */
			assert_int_equal(feed(&a, t.w.p + at, t.start[1] - at, at), 0);
			assert_int_equal(
				feed(&a, t.w.p + t.start[1], t.w.n - t.start[1], t.start[1]), 0);
			snprintf(want, sizeof(want), "%s%s%s%s", at == t.start[1] ? t.text[0] : "",
				 at >= t.body[0] && at < t.start[1] ? "R" : "",
				 at == 0 ? t.text[0] : "", t.text[1]);
			snprintf(want + strlen(want), sizeof(want) - strlen(want), "%s", t.text[2]);
			assert_string_equal(l.text, want);
		}
	}
}

/* Two holes in a message, at every two places. */
static void test_two_gaps(void **state)
{
	struct three t;
	char want[256];

	(void)state;
	make_three(&t);
	for (size_t a = PRELUDE; a < t.start[1]; a++) {
		for (size_t b = a + 1; b < t.start[1]; b++) {
			struct log l = { .n = 0 };
			struct tks_aws_events e;

			tks_aws_events_init(&e, &ops, &l);
			feed(&e, t.w.p, a, 0);
			tks_aws_events_gap(&e, 1);
			feed(&e, t.w.p + a + 1, b - a - 1, a + 1);
			tks_aws_events_gap(&e, 1);
			feed(&e, t.w.p + b + 1, t.w.n - b - 1, b + 1);
			snprintf(want, sizeof(want), "%s%s%s", a >= t.body[0] ? "R" : "", t.text[1],
				 t.text[2]);
			assert_string_equal(l.text, want);
		}
	}
}

/* A hole in what is stepped over, and past its end; and one behind which there is an error. */
static void test_gap_and_seek(void **state)
{
	struct log l = { .n = 0 };
	struct tks_aws_events a;
	struct three t;
	char want[256];

	(void)state;
	make_three(&t);
	tks_aws_events_init(&a, &ops, &l);
	feed(&a, t.w.p, t.body[0] + 1, 0);
	tks_aws_events_gap(&a, 1);
	tks_aws_events_gap(&a, t.start[1] - t.body[0] - 1); /* one more than it has */
	feed(&a, t.w.p + t.start[1] + 1, t.start[2] - t.start[1] - 1, t.start[1] + 1);
	feed(&a, t.w.p + t.start[2], t.w.n - t.start[2], t.start[2]);
	snprintf(want, sizeof(want), "R%s", t.text[2]);
	assert_string_equal(l.text, want);
	/* While it seeks a gap changes nothing. */
	l.n = 0;
	assert_int_equal(feed(&a, "this is none", 12, 200), -EBADMSG);
	tks_aws_events_gap(&a, 5);
	tks_aws_events_gap(&a, 0);
	feed(&a, "nor is this!", 12, 300);
	feed(&a, t.w.p, t.w.n, 0);
	snprintf(want, sizeof(want), "%s%s%s", t.text[0], t.text[1], t.text[2]);
	assert_string_equal(l.text, want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_bad_vectors),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_last_header),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_no_name),
		cmocka_unit_test(test_twice),
		cmocka_unit_test(test_long_values),
		cmocka_unit_test(test_zero_in_value),
		cmocka_unit_test(test_bad_headers),
		cmocka_unit_test(test_bad_lengths),
		cmocka_unit_test(test_largest),
		cmocka_unit_test(test_bits),
		cmocka_unit_test(test_seek),
		cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_gaps_past_the_end),
		cmocka_unit_test(test_two_gaps),
		cmocka_unit_test(test_gap_and_seek),
	};

	return cmocka_run_group_tests_name("aws_events", tests, NULL, NULL);
}
