// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * TLS records: those of RFC 8448's first handshake, cut and torn at every place. What comes out is
 * one text, "[type first-end payload bytes-kept]" a record; the bytes kept are compared with the
 * wire's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tls_record.h"

enum { BASE = 1000 };

/* RFC 8448, section 3: the server's hello (95 octets), the change of cipher that RFC 8446, D.4
 * puts behind it (6), the client's 50 octets of data (72), its alert (24). */
static const uint8_t wire[] = {
	/* at 0 */
	0x16, 0x03, 0x03, 0x00, 0x5a, 0x02, 0x00, 0x00, 0x56, 0x03, 0x03, 0xa6, 0xaf, 0x06, 0xa4,
	0x12, 0x18, 0x60, 0xdc, 0x5e, 0x6e, 0x60, 0x24, 0x9c, 0xd3, 0x4c, 0x95, 0x93, 0x0c, 0x8a,
	0xc5, 0xcb, 0x14, 0x34, 0xda, 0xc1, 0x55, 0x77, 0x2e, 0xd3, 0xe2, 0x69, 0x28, 0x00, 0x13,
	0x01, 0x00, 0x00, 0x2e, 0x00, 0x33, 0x00, 0x24, 0x00, 0x1d, 0x00, 0x20, 0xc9, 0x82, 0x88,
	0x76, 0x11, 0x20, 0x95, 0xfe, 0x66, 0x76, 0x2b, 0xdb, 0xf7, 0xc6, 0x72, 0xe1, 0x56, 0xd6,
	0xcc, 0x25, 0x3b, 0x83, 0x3d, 0xf1, 0xdd, 0x69, 0xb1, 0xb0, 0x4e, 0x75, 0x1f, 0x0f, 0x00,
	0x2b, 0x00, 0x02, 0x03, 0x04,
	/* at 95 */
	0x14, 0x03, 0x03, 0x00, 0x01, 0x01,
	/* at 101 */
	0x17, 0x03, 0x03, 0x00, 0x43, 0xa2, 0x3f, 0x70, 0x54, 0xb6, 0x2c, 0x94, 0xd0, 0xaf, 0xfa,
	0xfe, 0x82, 0x28, 0xba, 0x55, 0xcb, 0xef, 0xac, 0xea, 0x42, 0xf9, 0x14, 0xaa, 0x66, 0xbc,
	0xab, 0x3f, 0x2b, 0x98, 0x19, 0xa8, 0xa5, 0xb4, 0x6b, 0x39, 0x5b, 0xd5, 0x4a, 0x9a, 0x20,
	0x44, 0x1e, 0x2b, 0x62, 0x97, 0x4e, 0x1f, 0x5a, 0x62, 0x92, 0xa2, 0x97, 0x70, 0x14, 0xbd,
	0x1e, 0x3d, 0xea, 0xe6, 0x3a, 0xee, 0xbb, 0x21, 0x69, 0x49, 0x15, 0xe4,
	/* at 173 */
	0x17, 0x03, 0x03, 0x00, 0x13, 0xc9, 0x87, 0x27, 0x60, 0x65, 0x56, 0x66, 0xb7, 0x4d, 0x7f,
	0xf1, 0x15, 0x3e, 0xfd, 0x6d, 0xb6, 0xd0, 0xb0, 0xe3
};

static const size_t border[] = { 0, 95, 101, 173, 197 };
enum { RECORDS = 4, WIRE = sizeof(wire) };

static const char all[] = "[22 0-95 90 80][20 95-101 1 6][23 101-173 67 72][23 173-197 19 24]";

struct log {
	struct tks_tls_framer f;
	const uint8_t *from; /* what the heads are compared with */
	char text[1024];
	size_t n;
};

static void on_record(void *ctx, const struct tks_tls_record *r)
{
	struct log *l = ctx;

	assert_true(r->nhead >= TKS_TLS_HEADER && r->nhead <= TKS_TLS_KEPT);
	assert_memory_equal(r->head, l->from + (r->off - BASE), r->nhead);
	l->n += (size_t)snprintf(l->text + l->n, sizeof(l->text) - l->n, "[%u %u-%u %u %u]",
				 r->type, (unsigned int)(r->off - BASE),
				 (unsigned int)(r->end - BASE), r->len, r->nhead);
	assert_true(l->n < sizeof(l->text));
}

/* Bytes from..to-1 as one slice, in memory of just that size. */
static void feed(struct log *l, size_t from, size_t to)
{
	size_t n = to - from;
	uint8_t *copy;

	if (!n)
		return;
	copy = malloc(n);
	assert_non_null(copy);
	memcpy(copy, l->from + from, n);
	tks_tls_framer_feed(&l->f, &(struct tks_slice){ copy, n, BASE + from }, on_record, l);
	free(copy);
}

static void gap(struct log *l, size_t from, size_t to)
{
	tks_tls_framer_gap(&l->f, BASE + from, to - from, on_record, l);
}

static void pieces(struct log *l, size_t from, size_t to, size_t piece)
{
	for (size_t i = from; i < to; i += piece)
		feed(l, i, i + piece < to ? i + piece : to);
}

/* --- whole and cut --- */

static void test_whole(void **state)
{
	struct log l = { .from = wire };

	(void)state;
	assert_int_equal(WIRE, 197);
	feed(&l, 0, WIRE);
	assert_string_equal(l.text, all);
}

static void test_pieces(void **state)
{
	(void)state;
	for (size_t piece = 1; piece <= WIRE; piece++) {
		struct log l = { .from = wire };

		pieces(&l, 0, WIRE, piece);
		assert_string_equal(l.text, all);
	}
}

static void test_every_two_cuts(void **state)
{
	(void)state;
	for (size_t a = 1; a < WIRE; a++) {
		for (size_t b = a; b < WIRE; b++) {
			struct log l = { .from = wire };

			feed(&l, 0, a);
			feed(&l, a, b);
			feed(&l, b, WIRE);
			assert_string_equal(l.text, all);
		}
	}
}

/* A record is told of with its last byte, not before, not later. */
static void test_when(void **state)
{
	struct log l = { .from = wire };
	size_t told = 0;

	(void)state;
	for (size_t i = 0; i < WIRE; i++) {
		size_t before = l.n;

		feed(&l, i, i + 1);
		if (l.n != before)
			assert_int_equal(i + 1, border[++told]);
	}
	assert_int_equal(told, RECORDS);
}

/* --- gaps --- */

static bool is_border(size_t at)
{
	for (size_t i = 0; i <= RECORDS; i++) {
		if (border[i] == at)
			return true;
	}
	return false;
}

/* All records from the border `at` on. */
static void want_from(char *text, size_t room, size_t at)
{
	static const unsigned int type[] = { 22, 20, 23, 23 }, len[] = { 90, 1, 67, 19 },
				  kept[] = { 80, 6, 72, 24 };
	size_t n = strlen(text);

	for (size_t i = 0; i < RECORDS; i++) {
		if (border[i] < at)
			continue;
		n += (size_t)snprintf(text + n, room - n, "[%u %zu-%zu %u %u]", type[i], border[i],
				      border[i + 1], len[i], kept[i]);
	}
}

/*
 * What a hole a..b leaves: the records before it; the one it lies in, if it lies in that one's
 * payload, with the head's bytes that came before; and then, where the reader kept its footing or
 * finds a record at the start of a slice, the rest. resumes: such a start, or WIRE.
 */
static void want_of(char *text, size_t room, size_t a, size_t b, size_t resumes)
{
	static const char *const each[] = { "[22 0-95 90 80]", "[20 95-101 1 6]",
					    "[23 101-173 67 72]", "[23 173-197 19 24]" };
	static const unsigned int type[] = { 22, 20, 23, 23 }, len[] = { 90, 1, 67, 19 };
	size_t i;

	*text = 0;
	for (i = 0; i < RECORDS && border[i + 1] <= a; i++)
		strcat(text, each[i]);
	if (i < RECORDS && a >= border[i] + TKS_TLS_HEADER && b <= border[i + 1]) {
		size_t n = strlen(text), kept = a - border[i];

		snprintf(text + n, room - n, "[%u %zu-%zu %u %zu]", type[i], border[i],
			 border[i + 1], len[i], kept < TKS_TLS_KEPT ? kept : TKS_TLS_KEPT);
		resumes = border[i + 1];
	}
	want_from(text, room, resumes);
}

static void test_gaps(void **state)
{
	char want[1024];

	(void)state;
	for (size_t a = 0; a < WIRE; a++) {
		for (size_t b = a + 1; b <= WIRE; b++) {
			struct log l = { .from = wire };

			feed(&l, 0, a);
			gap(&l, a, b);
			feed(&l, b, WIRE);
			want_of(want, sizeof(want), a, b, is_border(b) ? b : WIRE);
			assert_string_equal(l.text, want);
		}
	}
}

/* Behind the hole two slices, of which the second begins with a record. */
static void test_gaps_then_border(void **state)
{
	char want[1024];

	(void)state;
	for (size_t a = 0; a < WIRE; a++) {
		for (size_t b = a + 1; b <= WIRE; b++) {
			struct log l = { .from = wire };
			size_t next = 0;

			while (border[next] < b)
				next++;
			feed(&l, 0, a);
			gap(&l, a, b);
			feed(&l, b, border[next]);
			feed(&l, border[next], WIRE);
			want_of(want, sizeof(want), a, b, border[next]);
			assert_string_equal(l.text, want);
		}
	}
}

/* Two holes in one payload, and a byte between. */
static void test_two_gaps(void **state)
{
	(void)state;
	for (size_t a = 101 + TKS_TLS_HEADER; a < 170; a++) {
		struct log l = { .from = wire };
		char want[1024] = "[22 0-95 90 80][20 95-101 1 6]";

		feed(&l, 0, a);
		gap(&l, a, a + 1);
		feed(&l, a + 1, a + 2);
		gap(&l, a + 2, a + 3);
		feed(&l, a + 3, WIRE);
		snprintf(want + strlen(want), 64, "[23 101-173 67 %zu][23 173-197 19 24]", a - 101);
		assert_string_equal(l.text, want);
	}
}

/* Entered in the middle: nothing until a slice begins with records. */
static void test_seeking(void **state)
{
	for (size_t at = 1; at < WIRE; at++) {
		struct log l = { .from = wire, .f = { .seeking = true } };
		char want[1024] = "";

		(void)state;
		feed(&l, at, WIRE);
		want_from(want, sizeof(want), is_border(at) ? at : WIRE);
		assert_string_equal(l.text, want);
		feed(&l, 0, WIRE);
		strcat(want, all);
		assert_string_equal(l.text, want);
	}
}

/* --- headers --- */

struct begin {
	const char *bytes;
	size_t len;
	bool is;
};

#define BYTES(s) s, sizeof(s) - 1

static void test_begins(void **state)
{
	static const struct begin cases[] = {
		/* One record: whole, its beginning, with more of it to come. */
		{ BYTES("\x14\x03\x03\x00\x01\x01"), true },
		{ BYTES("\x16\x03\x01\x02\x00"), true },
		{ BYTES("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), true },
		{ BYTES("\x17\x03\x03"), true },
		{ BYTES("\x17\x03\x03\x00"), true },
		/* Types 20 to 23 of versions 3.0 to 3.4. */
		{ BYTES("\x15\x03\x00\x00\x02\x01\x00"), true },
		{ BYTES("\x17\x03\x04\x00\x20"), true },
		{ BYTES("\x13\x03\x03\x00\x20"), false },
		{ BYTES("\x18\x03\x03\x00\x20"), false },
		{ BYTES("\x17\x02\x03\x00\x20"), false },
		{ BYTES("\x17\x04\x03\x00\x20"), false },
		{ BYTES("\x17\x03\x05\x00\x20"), false },
		/* RFC 5246, 6.2.3: at most 2^14 + 2048; none is empty. */
		{ BYTES("\x17\x03\x03\x48\x00"), true },
		{ BYTES("\x17\x03\x03\x48\x01"), false },
		{ BYTES("\x17\x03\x03\x00\x00"), false },
		/* Headers chain, the last one cut off anywhere. */
		{ BYTES("\x14\x03\x03\x00\x01\x01\x17\x03\x03\x00\x20\xaa"), true },
		{ BYTES("\x14\x03\x03\x00\x01\x01\x17\x03\x03\x00"), true },
		{ BYTES("\x14\x03\x03\x00\x01\x01\x17\x03\x03"), true },
		{ BYTES("\x14\x03\x03\x00\x01\x01\x17\x03"), true },
		{ BYTES("\x14\x03\x03\x00\x01\x01\x17"), true },
		/* ... or they don't. */
		{ BYTES("\x14\x03\x03\x00\x01\x01\x18\x03\x03\x00\x20\xaa"), false },
		{ BYTES("\x14\x03\x03\x00\x01\x01\x17\x03\x03\x60\x00"), false },
		{ BYTES("\x14\x03\x03\x00\x01\x01\x17\x03\x09"), false },
		{ BYTES("\x14\x03\x03\x00\x01\x01\x17\x01"), false },
		{ BYTES("\x14\x03\x03\x00\x01\x01G"), false },
		/* Too little, and other things. */
		{ BYTES(""), false },
		{ BYTES("\x17"), false },
		{ BYTES("\x17\x03"), false },
		{ BYTES("GET / HTTP/1.1\r\n"), false },
		{ BYTES("SSH-2.0-OpenSSH_9.2\r\n"), false },
		{ BYTES("\0\0\0\0\0\0\0\0"), false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint8_t *copy = malloc(cases[i].len + 1);

		/* At the very end of the memory, so that reading on is seen. */
		memcpy(copy + 1, cases[i].bytes, cases[i].len);
		if (tks_tls_begins(copy + 1, cases[i].len) != cases[i].is)
			fail_msg("case %zu", i);
		free(copy);
	}
}

/* What is no header ends the reading of the slice; the next that begins with records goes on. */
static void test_bad_header(void **state)
{
	static const char *const bad[] = { "\x18\x03\x03\x00\x05", "\x17\x02\x03\x00\x05",
					   "\x17\x03\x05\x00\x05", "\x17\x03\x03\x48\x01",
					   "\x17\x03\x03\x00\x00", "GET /" };

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		uint8_t bytes[23];
		struct log l = { .from = bytes };

		memcpy(bytes, "\x14\x03\x03\x00\x01\x01", 6);
		memcpy(bytes + 6, bad[i], 5);
		/* In the slice of the bad header this one is nobody's. */
		memcpy(bytes + 11, "\x15\x03\x03\x00\x01\x02", 6);
		memcpy(bytes + 17, "\x16\x03\x03\x00\x01\x0e", 6);
		feed(&l, 0, 17);
		assert_string_equal(l.text, "[20 0-6 1 6]");
		feed(&l, 17, 23);
		assert_string_equal(l.text, "[20 0-6 1 6][22 17-23 1 6]");
	}
}

/* The longest payload, in pieces, with holes of every length at its begin and up to its end. */
static void test_longest(void **state)
{
	enum { LEN = 16384 + 2048, N = TKS_TLS_HEADER + LEN + 6 };
	uint8_t *bytes = malloc(N);

	(void)state;
	assert_non_null(bytes);
	for (size_t i = 0; i < N; i++)
		bytes[i] = (uint8_t)(i * 7 + (i >> 8));
	memcpy(bytes, "\x17\x03\x03\x48\x00", 5);
	memcpy(bytes + N - 6, "\x15\x03\x03\x00\x01\x02", 6);
	for (size_t piece = 1000; piece < 17000; piece += 997) {
		struct log l = { .from = bytes };

		pieces(&l, 0, N, piece);
		assert_string_equal(l.text, "[23 0-18437 18432 80][21 18437-18443 1 6]");
	}
	for (size_t n = 1; n <= LEN; n = n * 3 + 1) {
		struct log l = { .from = bytes };

		feed(&l, 0, 5);
		gap(&l, 5, 5 + n);
		feed(&l, 5 + n, N);
		assert_string_equal(l.text, "[23 0-18437 18432 5][21 18437-18443 1 6]");
	}
	for (size_t n = 1; n <= LEN - 8; n = n * 3 + 1) {
		struct log l = { .from = bytes };

		pieces(&l, 0, N - 6 - n, 1500);
		gap(&l, N - 6 - n, N - 6);
		feed(&l, N - 6, N);
		assert_string_equal(l.text, "[23 0-18437 18432 80][21 18437-18443 1 6]");
	}
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),	       cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_every_two_cuts), cmocka_unit_test(test_when),
		cmocka_unit_test(test_gaps),	       cmocka_unit_test(test_gaps_then_border),
		cmocka_unit_test(test_two_gaps),       cmocka_unit_test(test_seeking),
		cmocka_unit_test(test_begins),	       cmocka_unit_test(test_bad_header),
		cmocka_unit_test(test_longest),
	};

	return cmocka_run_group_tests_name("tls_record", tests, NULL, NULL);
}
