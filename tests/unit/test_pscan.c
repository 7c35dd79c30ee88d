// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The protobuf scanner: each message, in hexadecimal, whole, a byte at a time and cut at every
 * place gives the values written down beside it: "1=150" for an integer, "2'text'7" for a string
 * and its length, "5#3" for so many packed ones, "3{" and "3}" for a message entered and left.
 * Where a comment doesn't say otherwise the bytes are those of protobuf.dev, "Encoding".
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pscan.h"

enum { BYTES_MAX = 1024 };

struct log {
	char text[4096];
	size_t n;
};

static void on_value(void *ctx, const struct tks_pvalue *v)
{
	struct log *l = ctx;
	char *out = l->text + l->n;
	size_t room = sizeof(l->text) - l->n;
	const char *gap = l->n ? " " : "";
	int n = 0;

	switch (v->type) {
	case TKS_PS_INT:
		n = snprintf(out, room, "%s%u=%" PRIu64, gap, v->id, v->num);
		break;
	case TKS_PS_BYTES:
		assert_true(v->len <= TKS_PS_STR_MAX && v->len <= v->num);
		n = snprintf(out, room, "%s%u'%.*s'%" PRIu64, gap, v->id, (int)v->len, v->str,
			     v->num);
		break;
	case TKS_PS_PACKED:
		n = snprintf(out, room, "%s%u#%" PRIu64, gap, v->id, v->num);
		break;
	case TKS_PS_BEGIN:
	case TKS_PS_END:
		n = snprintf(out, room, "%s%u%c", gap, v->id, v->type == TKS_PS_END ? '}' : '{');
		break;
	}
	l->n += (size_t)n;
	assert_true(l->n < sizeof(l->text));
}

/* --- runs --- */

static const struct tks_pfield fields[] = {
	{ { 1 }, 1, 0 },       { { 2 }, 2, 0 },
	{ { 3 }, 3, 0 },       { { 3, 1 }, 31, 0 },
	{ { 3, 2 }, 32, 0 },   { { 3, 3, 1 }, 33, 0 },
	{ { 4 }, 4, 0 },       { { 5 }, 5, TKS_PF_PACKED },
	{ { 7, 1 }, 71, 0 },   { { 255 }, 255, 0 },
	{ { 3, 255 }, 35, 0 },
};

enum { NFIELDS = sizeof(fields) / sizeof(fields[0]) };

static size_t unhex(const char *text, uint8_t *out)
{
	size_t n = 0;
	int used;
	unsigned int octet;

	while (sscanf(text, " %2x%n", &octet, &used) == 1) {
		assert_true(n < BYTES_MAX);
		out[n++] = (uint8_t)octet;
		text += used;
	}
	return n;
}

static bool run(const struct tks_pfield *f, size_t nf, const uint8_t *p, size_t n, size_t first,
		size_t piece, struct log *l)
{
	struct tks_pscan scan;

	memset(l, 0, sizeof(*l));
	tks_pscan_begin(&scan, f, nf, on_value, l);
	for (size_t i = 0; i < n;) {
		size_t k = i ? piece : first;
		uint8_t *copy;

		k = k < n - i ? k : n - i;
		/* Of its own, so that reading past its end is seen. */
		copy = malloc(k);
		assert_non_null(copy);
		memcpy(copy, p + i, k);
		tks_pscan_feed(&scan, copy, k);
		free(copy);
		i += k;
	}
	return tks_pscan_end(&scan);
}

static void check_fields(const struct tks_pfield *f, size_t nf, const uint8_t *p, size_t n,
			 const char *want, bool good)
{
	struct log l;

	for (size_t first = 1; first <= n; first++) {
		assert_int_equal(run(f, nf, p, n, first, n, &l), good);
		assert_string_equal(l.text, want);
	}
	assert_int_equal(run(f, nf, p, n, 1, 1, &l), good);
	assert_string_equal(l.text, want);
}

static void check(const char *hex, const char *want)
{
	uint8_t p[BYTES_MAX];

	check_fields(fields, NFIELDS, p, unhex(hex, p), want, true);
}

static void check_bad(const char *hex, const char *want)
{
	uint8_t p[BYTES_MAX];

	check_fields(fields, NFIELDS, p, unhex(hex, p), want, false);
}

/* --- tests --- */

static void test_examples(void **state)
{
	(void)state;
	check("08 96 01", "1=150");
	check("12 07 74 65 73 74 69 6e 67", "2'testing'7");
	check("1a 03 08 96 01", "3{ 31=150 3}");
	/* repeated int32, packed: 3, 270 and 86942 */
	check("2a 06 03 8e 02 9e a7 05", "5#3");
	/* d: "hello", and e unpacked: 1, 2, 3 */
	check("22 05 68 65 6c 6c 6f 28 01 28 02 28 03", "4'hello'5 5#1 5#1 5#1");
	/* -2 as an int32 has ten bytes */
	check("08 fe ff ff ff ff ff ff ff ff 01", "1=18446744073709551614");
}

static void test_numbers(void **state)
{
	(void)state;
	check("08 00", "1=0");
	check("08 7f 08 80 01", "1=127 1=128");
	check("08 ff ff ff ff ff ff ff ff 7f", "1=9223372036854775807");
	check("08 ff ff ff ff ff ff ff ff ff 01", "1=18446744073709551615");
	/* fixed64 and fixed32, little endian */
	check("09 15 cd 5b 07 00 00 00 00", "1=123456789");
	check("09 ff ff ff ff ff ff ff ff", "1=18446744073709551615");
	check("0d 04 03 02 01", "1=16909060");
	/* 1.5f and 1.5 by IEEE 754 */
	check("0d 00 00 c0 3f", "1=1069547520");
	check("09 00 00 00 00 00 00 f8 3f", "1=4609434218613702656");
	/* Fields in any order, and twice. */
	check("12 01 61 08 01 12 01 62 08 02", "2'a'1 1=1 2'b'1 1=2");
}

/* A varint may be longer than it needs to be, but not pass ten bytes or 64 bits. */
static void test_varints(void **state)
{
	(void)state;
	check("08 81 00", "1=1");
	check("08 81 80 80 80 80 80 80 80 80 00", "1=1");
	check("88 00 05", "1=5");
	check("12 81 00 61", "2'a'1");
	check_bad("08 81 80 80 80 80 80 80 80 80 80 00", "");
	check_bad("08 ff ff ff ff ff ff ff ff ff 02", "");
	check_bad("08 ff ff ff ff ff ff ff ff ff ff 01", "");
	check_bad("12 81 80 80 80 80 80 80 80 80 80 00 61", "");
	check_bad("88 80 80 80 80 80 80 80 80 80 00 05", "");
	/* Unfinished. */
	check_bad("08 96", "");
	check_bad("88", "");
	check_bad("08", "");
	check_bad("12 81", "");
	check_bad("12", "");
	check_bad("09 15 cd 5b 07 00 00 00", "");
	check_bad("0d 04 03 02", "");
}

static void test_field_numbers(void **state)
{
	(void)state;
	/* 255; 256 and 257 can't be asked for, and are not 0 or 1. */
	check("f8 0f 07", "255=7");
	check("80 10 07", "");
	check("88 10 07", "");
	check("8a 10 01 61 08 01", "1=1");
	/* 259: not 3, so not entered. */
	check("9a 10 02 08 01", "");
	/* 511 and, within 3, 255 and 511. */
	check("f8 1f 07", "");
	check("1a 06 f8 0f 01 f8 1f 02", "3{ 35=1 3}");
	/* 2^29 - 1 is the largest one. */
	check("f8 ff ff ff 0f 01 08 01", "1=1");
	check_bad("80 80 80 80 10 01 08 01", "");
	check_bad("00 01", "");
	check_bad("02 00", "");
	check_bad("1a 02 00 01", "3{");
}

static void test_unknown(void **state)
{
	(void)state;
	check("30 96 01 08 01", "1=1");
	check("32 03 08 96 01 08 01", "1=1");
	check("31 01 02 03 04 05 06 07 08 08 01", "1=1");
	check("35 01 02 03 04 08 01", "1=1");
	check("32 00 08 01", "1=1");
	/* Within a message; one that is asked into, but not for itself. */
	check("1a 06 22 02 08 01 08 02 20 01", "3{ 31=2 3} 4=1");
	check("3a 04 08 01 10 02", "71=1");
	check("", "");
}

/* What is reported is what is on the wire. */
static void test_wrong_wire_types(void **state)
{
	(void)state;
	check("0a 02 68 69", "1'hi'2");
	check("10 05", "2=5");
	check("15 01 00 00 00", "2=1");
	check("18 05 1a 02 08 01", "3=5 3{ 31=1 3}");
	/* Only a longer path goes there. */
	check("38 05", "");
}

static void test_groups(void **state)
{
	(void)state;
	check_bad("0b 08 01 0c", "");
	check_bad("08 01 33 34", "1=1");
	check_bad("08 01 0c", "1=1");
	check_bad("1a 03 0b 0c 08", "3{");
	/* Wire types that are none. */
	check_bad("0e 01", "");
	check_bad("0f 01", "");
	/* Further bytes are ignored. */
	check_bad("08 01 0f 08 02 08 03", "1=1");
}

static void test_nesting(void **state)
{
	(void)state;
	check("1a 00", "3{ 3}");
	check("1a 00 1a 00 08 01", "3{ 3} 3{ 3} 1=1");
	/* c.c.a = 7, and what ends with it */
	check("1a 04 1a 02 08 07 08 01", "3{ 33=7 3} 1=1");
	check("1a 02 1a 00 08 01", "3{ 3} 1=1");
	check("1a 06 08 01 12 02 68 69", "3{ 31=1 32'hi'2 3}");
	/* An empty string at the end of a message. */
	check("1a 02 12 00 08 01", "3{ 32''0 3} 1=1");
	check("1a 04 12 00 08 05", "3{ 32''0 31=5 3}");
}

/* A length that passes the end of what holds it, and what is left over at the end. */
static void test_lengths(void **state)
{
	(void)state;
	check_bad("12 05 68 69", "");
	check_bad("1a 03 08 01", "3{ 31=1");
	check_bad("1a 03 12 02 68 69 08 01", "3{");
	check_bad("1a 03 1a 02 08 01 08 01", "3{");
	/* The varint, the fixed one and the key of a field pass it. */
	check_bad("1a 02 08 96 01 08 01", "3{");
	check_bad("1a 04 0d 01 02 03 04 08 01", "3{");
	check_bad("1a 01 88 00 01", "3{");
	check_bad("1a 01 08 05 08 01", "3{");
	/* At most 2 GiB. */
	check_bad("12 80 80 80 80 08 61", "");
	check_bad("12 ff ff ff ff ff ff ff ff ff 01 61", "");
	check_bad("1a ff ff ff ff 07 08 01", "3{ 31=1");
	/* An unknown one is counted too. */
	check_bad("32 05 61", "");
	check_bad("1a 03 32 02 61 62", "3{");
}

static void test_packed(void **state)
{
	(void)state;
	check("2a 00", "5#0");
	check("2a 00 08 01", "5#0 1=1");
	check("2a 03 01 02 03 2a 02 80 01 28 09", "5#3 5#1 5#1");
	check("2a 0a ff ff ff ff ff ff ff ff ff 01", "5#1");
	/* The last one is unfinished: the message is bad, and there is no count to report. */
	check_bad("2a 02 01 80", "");
	check_bad("2a 02 01 80 08 01", "");
	/* One of eleven bytes; what is behind it is ignored. */
	check_bad("2a 0c 80 80 80 80 80 80 80 80 80 80 00 01 08 01", "");
	check_bad("2a 0b ff ff ff ff ff ff ff ff ff ff 01", "");
}

static void test_long_strings(void **state)
{
	uint8_t p[BYTES_MAX];
	char want[TKS_PS_STR_MAX + 16];

	(void)state;
	for (unsigned int n = TKS_PS_STR_MAX - 1; n < TKS_PS_STR_MAX + 3; n++) {
		unsigned int kept = n < TKS_PS_STR_MAX ? n : TKS_PS_STR_MAX;

		p[0] = 0x12;
		p[1] = (uint8_t)(0x80 | (n & 0x7f));
		p[2] = (uint8_t)(n >> 7);
		for (unsigned int i = 0; i < n; i++)
			p[3 + i] = (uint8_t)('a' + i % 26);
		snprintf(want, sizeof(want), "2'%.*s'%u", (int)kept, (char *)p + 3, n);
		check_fields(fields, NFIELDS, p, 3 + n, want, true);
	}
}

/* The whole depth of a path, and a message deeper than that, which is then a string. */
static void test_depth(void **state)
{
	static const struct tks_pfield deep[] = {
		{ { 1, 1, 1, 1, 1, 1, 1, 1 }, 8, 0 },
		{ { 1, 1, 1, 1, 1, 1, 1 }, 7, 0 },
		{ { 1 }, 1, 0 },
	};
	uint8_t p[BYTES_MAX];

	(void)state;
	check_fields(deep, 3, p, unhex("0a 0e 0a 0c 0a 0a 0a 08 0a 06 0a 04 0a 02 08 09", p),
		     "1{ 7{ 8=9 7} 1}", true);
	check_fields(deep, 3, p,
		     unhex("0a 12 0a 10 0a 0e 0a 0c 0a 0a 0a 08 0a 06 0a 02 68 69 08 09", p),
		     "1{ 7{ 8'hi'2 8=9 7} 1}", true);
	/* All eight end at one byte; the ninth is only bytes. */
	check_fields(deep, 3, p, unhex("0a 10 0a 0e 0a 0c 0a 0a 0a 08 0a 06 0a 04 0a 02 0a 00", p),
		     "1{ 7{ 8'\n'2 7} 1}", true);
	check_fields(deep, 3, p, unhex("0a 0e 0a 0c 0a 0a 0a 08 0a 06 0a 04 0a 00 08 09", p),
		     "1{ 7{ 7} 7=9 1}", true);
}

static void test_table_sizes(void **state)
{
	struct tks_pfield all[TKS_PS_FIELDS_MAX];
	uint8_t p[BYTES_MAX];

	(void)state;
	for (unsigned int i = 0; i < TKS_PS_FIELDS_MAX; i++)
		all[i] = (struct tks_pfield){ { (uint8_t)(i + 1) }, (uint8_t)(i + 1), 0 };
	/* 64: 80 04 */
	check_fields(all, TKS_PS_FIELDS_MAX, p, unhex("08 01 80 04 02 88 04 03", p), "1=1 64=2",
		     true);
	check_fields(all, 0, p, unhex("08 01 12 01 61", p), "", true);
	check_fields(all, 0, p, unhex("08 01 12 02 61", p), "", false);
}

/* The scanner is begun anew over a broken message. */
static void test_again(void **state)
{
	static const uint8_t bad[] = { 0x1a, 0x05, 0x0b }, good[] = { 0x08, 0x01 };
	struct tks_pscan scan;
	struct log l = { 0 };

	(void)state;
	tks_pscan_begin(&scan, fields, NFIELDS, on_value, &l);
	tks_pscan_feed(&scan, bad, sizeof(bad));
	tks_pscan_feed(&scan, good, sizeof(good));
	assert_false(tks_pscan_end(&scan));
	assert_string_equal(l.text, "3{");
	tks_pscan_begin(&scan, fields, NFIELDS, on_value, &l);
	tks_pscan_feed(&scan, good, 0);
	tks_pscan_feed(&scan, good, sizeof(good));
	assert_true(tks_pscan_end(&scan));
	assert_string_equal(l.text, "3{ 1=1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_examples),     cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_varints),	     cmocka_unit_test(test_field_numbers),
		cmocka_unit_test(test_unknown),	     cmocka_unit_test(test_wrong_wire_types),
		cmocka_unit_test(test_groups),	     cmocka_unit_test(test_nesting),
		cmocka_unit_test(test_lengths),	     cmocka_unit_test(test_packed),
		cmocka_unit_test(test_long_strings), cmocka_unit_test(test_depth),
		cmocka_unit_test(test_table_sizes),  cmocka_unit_test(test_again),
	};

	return cmocka_run_group_tests_name("pscan", tests, NULL, NULL);
}
