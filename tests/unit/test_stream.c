// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * One direction put in order. By hand: each rule of stream.h on its own, as a text of what was
 * handed over. At random: against the oracle of lib_stream.h.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "lib_stream.h"

/* What is handed over, as text: data as it is, "<N>" N lost bytes, "[N]" N skipped ones. */
struct log {
	char text[512];
	size_t n;
	struct tks_stream s;
	struct tks_mem mem;
	int fail_data, fail_gap; /* returned by the callbacks */
	const void *last_data;
};

static int log_data(void *ctx, const struct tks_slice *s)
{
	struct log *l = ctx;

	assert_true(l->n + s->len < sizeof(l->text));
	assert_int_equal(l->s.next, s->off + s->len);
	memcpy(l->text + l->n, s->data, s->len);
	l->n += s->len;
	l->text[l->n] = 0;
	l->last_data = s->data;
	return l->fail_data;
}

static int log_gap(void *ctx, uint64_t off, uint64_t len, enum tks_gap_why why)
{
	struct log *l = ctx;

	(void)off;
	l->n += (size_t)sprintf(l->text + l->n, why == TKS_GAP_LOST ? "<%llu>" : "[%llu]",
				(unsigned long long)len);
	return l->fail_gap;
}

static const struct tks_stream_ops log_ops = { .data = log_data, .gap = log_gap };

static void setup(struct log *l, const struct tks_stream_limits *limits)
{
	memset(l, 0, sizeof(*l));
	tks_stream_init(&l->s, &l->mem, &log_ops, l, limits);
}

static void teardown(struct log *l)
{
	tks_stream_free(&l->s);
	assert_int_equal(l->mem.used, 0);
}

static int add_at(struct log *l, uint32_t seq, const char *text, uint64_t ts)
{
	struct tks_segment seg = { .seq = seq,
				   .len = (uint32_t)strlen(text),
				   .cap = (uint32_t)strlen(text),
				   .data = (const uint8_t *)text,
				   .ts_ns = ts };

	return tks_stream_add(&l->s, &seg);
}

static uint64_t ts(const struct log *l, uint64_t off)
{
	const struct tks_stamp *st = tks_timeline_at(&l->s.timeline, off);

	return st ? st->ts_ns : 0;
}

static void in_order_without_copy(void **state)
{
	static const char text[] = "hello";
	struct log l;

	(void)state;
	setup(&l, NULL);
	tks_stream_start(&l.s, 100);
	add_at(&l, 100, text, 1);
	assert_ptr_equal(l.last_data, text);
	add_at(&l, 105, " world", 2);
	assert_string_equal(l.text, "hello world");
	assert_int_equal(l.mem.calls, 1); /* the timeline's ring */
	assert_int_equal(ts(&l, 4), 1);
	assert_int_equal(ts(&l, 5), 2);
	teardown(&l);
}

static void first_segment_decides_without_start(void **state)
{
	struct log l;

	(void)state;
	setup(&l, NULL);
	add_at(&l, 5000, "abc", 1);
	/* Before what was seen first: as if it had come twice. */
	add_at(&l, 4990, "0123456789", 2);
	add_at(&l, 4998, "xyABCdef", 3);
	assert_string_equal(l.text, "abcdef");
	assert_int_equal(l.s.duplicates, 2);
	assert_int_equal(l.s.next, 6);
	teardown(&l);
}

static void wraps_around(void **state)
{
	struct log l;

	(void)state;
	setup(&l, NULL);
	tks_stream_start(&l.s, 0xfffffffe);
	add_at(&l, 1, "de", 2); /* early, across the wrap */
	add_at(&l, 0xfffffffe, "abc", 1);
	assert_string_equal(l.text, "abcde");
	add_at(&l, 0xffffffff, "bcdef", 3);
	assert_string_equal(l.text, "abcdef");
	teardown(&l);
}

static void offsets_go_past_32_bits(void **state)
{
	struct tks_segment skip = { .len = 1u << 30 };
	struct log l;

	(void)state;
	setup(&l, NULL);
	tks_stream_start(&l.s, 7);
	skip.seq = 7;
	for (int i = 0; i < 5; i++) {
		assert_int_equal(tks_stream_add(&l.s, &skip), 0);
		skip.seq += skip.len;
	}
	add_at(&l, 7 + (uint32_t)(5ull << 30), "x", 1);
	assert_int_equal(l.s.next, (5ull << 30) + 1);
	assert_string_equal(l.text,
			    "[1073741824][1073741824][1073741824][1073741824][1073741824]x");
	teardown(&l);
}

static void out_of_order(void **state)
{
	struct log l;

	(void)state;
	setup(&l, NULL);
	tks_stream_start(&l.s, 0);
	add_at(&l, 6, "ghi", 3);
	add_at(&l, 3, "def", 2);
	assert_string_equal(l.text, "");
	assert_int_equal(l.s.held_segments, 2);
	add_at(&l, 0, "abc", 4);
	assert_string_equal(l.text, "abcdefghi");
	/* A byte crossed when all before it had. */
	assert_int_equal(ts(&l, 0), 4);
	assert_int_equal(ts(&l, 8), 4);
	assert_int_equal(l.s.held_bytes, 0);
	assert_int_equal(l.s.duplicates, 0);
	teardown(&l);
}

static void first_copy_counts(void **state)
{
	struct log l;

	(void)state;
	setup(&l, NULL);
	tks_stream_start(&l.s, 0);
	add_at(&l, 3, "DEF", 1);
	add_at(&l, 2, "cdefg", 2); /* around it */
	add_at(&l, 4, "xx", 3); /* within */
	assert_int_equal(l.s.duplicates, 2);
	add_at(&l, 0, "abcdefgh", 4); /* over all of it */
	assert_string_equal(l.text, "abcDEFgh");
	assert_int_equal(l.s.duplicates, 3);
	assert_int_equal(l.s.held_segments, 0);
	teardown(&l);
}

static void identical_retransmission(void **state)
{
	struct log l;

	(void)state;
	setup(&l, NULL);
	tks_stream_start(&l.s, 0);
	add_at(&l, 0, "abc", 1);
	add_at(&l, 0, "abc", 9);
	add_at(&l, 2, "cd", 10);
	assert_string_equal(l.text, "abcd");
	assert_int_equal(ts(&l, 2), 1);
	assert_int_equal(ts(&l, 3), 10);
	assert_int_equal(l.s.duplicates, 2);
	teardown(&l);
}

static void empty_segments(void **state)
{
	struct log l;

	(void)state;
	setup(&l, NULL);
	assert_int_equal(add_at(&l, 500, "", 1), 0);
	add_at(&l, 7, "ab", 2); /* the empty one decided nothing */
	assert_int_equal(add_at(&l, 9, "", 3), 0);
	assert_int_equal(add_at(&l, 50, "", 3), 0);
	assert_int_equal(l.s.held_segments, 0);
	assert_string_equal(l.text, "ab");
	teardown(&l);
}

static void not_all_captured(void **state)
{
	struct tks_segment seg = {
		.seq = 0, .len = 10, .cap = 4, .data = (const uint8_t *)"abcd", .ts_ns = 5
	};
	struct log l;

	(void)state;
	setup(&l, NULL);
	tks_stream_start(&l.s, 0);
	tks_stream_add(&l.s, &seg);
	assert_string_equal(l.text, "abcd[6]");
	assert_int_equal(ts(&l, 9), 5);
	seg.seq = 20;
	tks_stream_add(&l.s, &seg);
	add_at(&l, 10, "0123456789", 6);
	assert_string_equal(l.text, "abcd[6]0123456789abcd[6]");
	/* A part of it came before. */
	seg.seq = 27;
	seg.ts_ns = 7;
	tks_stream_add(&l.s, &seg);
	assert_string_equal(l.text, "abcd[6]0123456789abcd[6]d[6]");
	seg.cap = 11;
	assert_int_equal(tks_stream_add(&l.s, &seg), -EINVAL);
	teardown(&l);
}

static void lost_bytes_take_no_time_from_neighbours(void **state)
{
	struct log l;

	(void)state;
	setup(&l, NULL);
	tks_stream_start(&l.s, 0);
	add_at(&l, 0, "abc", 10);
	add_at(&l, 5, "fg", 20);
	assert_int_equal(tks_stream_flush(&l.s), 0);
	assert_string_equal(l.text, "abc<2>fg");
	assert_int_equal(ts(&l, 2), 10);
	assert_null(tks_timeline_at(&l.s.timeline, 3));
	assert_null(tks_timeline_at(&l.s.timeline, 4));
	assert_int_equal(ts(&l, 5), 20);
	assert_int_equal(l.s.lost_bytes, 2);
	/* Too late. */
	add_at(&l, 3, "de", 30);
	assert_string_equal(l.text, "abc<2>fg");
	assert_int_equal(l.s.duplicates, 1);
	teardown(&l);
}

static void a_hole_waits_so_long(void **state)
{
	struct tks_stream_limits limits = { .wait_ns = 100 };
	struct log l;

	(void)state;
	setup(&l, &limits);
	tks_stream_start(&l.s, 0);
	tks_stream_advance(&l.s, 1000000);
	add_at(&l, 5, "f", 1000);
	add_at(&l, 1, "b", 1050);
	add_at(&l, 7, "h", 1090);
	tks_stream_advance(&l.s, 500); /* time stands before the event */
	tks_stream_advance(&l.s, 1099);
	assert_string_equal(l.text, "");
	tks_stream_advance(&l.s, 1100);
	/* The hole before "f" was noticed with "f", too; that before "h" at 1090. */
	assert_string_equal(l.text, "<1>b<3>f");
	tks_stream_advance(&l.s, 1189);
	assert_string_equal(l.text, "<1>b<3>f");
	tks_stream_advance(&l.s, 1190);
	assert_string_equal(l.text, "<1>b<3>f<1>h");
	assert_int_equal(l.s.hole_since_ns, 0);
	teardown(&l);
}

static void a_filled_hole_waits_no_more(void **state)
{
	struct tks_stream_limits limits = { .wait_ns = 100 };
	struct log l;

	(void)state;
	setup(&l, &limits);
	tks_stream_start(&l.s, 0);
	add_at(&l, 1, "b", 1000);
	add_at(&l, 0, "a", 1001);
	add_at(&l, 3, "d", 2000);
	tks_stream_advance(&l.s, 2050);
	assert_string_equal(l.text, "ab");
	teardown(&l);
}

static void bytes_held_are_bounded(void **state)
{
	struct tks_stream_limits limits = { .buffer_bytes = 6 };
	struct log l;

	(void)state;
	setup(&l, &limits);
	tks_stream_start(&l.s, 0);
	add_at(&l, 1, "bcd", 1);
	add_at(&l, 5, "fgh", 1);
	assert_int_equal(l.s.held_bytes, 6);
	assert_string_equal(l.text, "");
	add_at(&l, 9, "j", 1); /* one byte too many: the first hole is given up */
	assert_string_equal(l.text, "<1>bcd");
	/* More than may be held at all: every hole before it. */
	add_at(&l, 20, "0123456", 1);
	assert_string_equal(l.text, "<1>bcd<1>fgh<1>j<10>0123456");
	teardown(&l);
}

static void segments_held_are_bounded(void **state)
{
	struct tks_stream_limits limits = { .buffer_segments = 2 };
	struct log l;

	(void)state;
	setup(&l, &limits);
	tks_stream_start(&l.s, 0);
	add_at(&l, 1, "b", 1);
	add_at(&l, 3, "d", 1);
	assert_string_equal(l.text, "");
	add_at(&l, 5, "f", 1);
	assert_string_equal(l.text, "<1>b");
	assert_int_equal(l.s.held_segments, 2);
	teardown(&l);
}

static void unbelievable_segments(void **state)
{
	struct tks_stream_limits limits = { .max_jump = 1000 };
	struct log l;

	(void)state;
	setup(&l, &limits);
	tks_stream_start(&l.s, 0);
	add_at(&l, 0, "ab", 1);
	assert_int_equal(add_at(&l, 1003, "x", 1), -ERANGE);
	assert_int_equal(add_at(&l, 1002, "y", 1), 0);
	assert_int_equal(add_at(&l, 0x70000000, "x", 1), -ERANGE);
	assert_int_equal(l.s.refused, 2);
	tks_stream_flush(&l.s);
	assert_string_equal(l.text, "ab<1000>y");
	teardown(&l);
}

static void the_end_is_known(void **state)
{
	struct log l;

	(void)state;
	setup(&l, NULL);
	assert_int_equal(tks_stream_end_at(&l.s, 99), 0); /* nothing was seen at all */
	assert_string_equal(l.text, "");
	tks_stream_start(&l.s, 0xfffffff0);
	add_at(&l, 0xfffffff0, "ab", 1);
	add_at(&l, 0xfffffff4, "ef", 1);
	add_at(&l, 0xfffffffe, "op", 1); /* behind the end: stays */
	assert_int_equal(tks_stream_end_at(&l.s, 0xfffffff1), 0);
	assert_string_equal(l.text, "ab");
	tks_stream_end_at(&l.s, 0xfffffff9);
	assert_string_equal(l.text, "ab<2>ef<3>");
	assert_int_equal(l.s.next, 9);
	tks_stream_end_at(&l.s, 0xfffffff9);
	assert_string_equal(l.text, "ab<2>ef<3>");
	tks_stream_end_at(&l.s, 2); /* past the wrap */
	assert_string_equal(l.text, "ab<2>ef<3><5>op<2>");
	teardown(&l);
}

static void an_unbelievable_end(void **state)
{
	struct log l;

	(void)state;
	setup(&l, NULL);
	tks_stream_start(&l.s, 0);
	add_at(&l, 1, "b", 1);
	assert_int_equal(tks_stream_end_at(&l.s, 0x60000000), 0);
	assert_string_equal(l.text, "<1>b");
	assert_int_equal(l.s.refused, 1);
	teardown(&l);
}

static void callbacks_end_the_add(void **state)
{
	struct tks_segment seg = {
		.seq = 0, .len = 5, .cap = 2, .data = (const uint8_t *)"ab", .ts_ns = 5
	};
	struct log l;

	(void)state;
	setup(&l, NULL);
	tks_stream_start(&l.s, 0);
	add_at(&l, 5, "f", 1);
	l.fail_data = -EIO;
	assert_int_equal(tks_stream_add(&l.s, &seg), -EIO);
	assert_string_equal(l.text, "ab");
	assert_int_equal(l.s.next, 2);
	/* What was held when a callback failed comes with the next call. */
	l.n = 0;
	l.fail_data = 0;
	add_at(&l, 3, "de", 1);
	add_at(&l, 6, "g", 1);
	l.fail_data = -EIO;
	assert_int_equal(add_at(&l, 2, "c", 1), -EIO);
	assert_string_equal(l.text, "c");
	l.fail_data = 0;
	assert_int_equal(add_at(&l, 3, "DEFGH", 1), 0);
	assert_string_equal(l.text, "cdefgH");
	l.fail_gap = -EPIPE;
	add_at(&l, 9, "j", 1);
	assert_int_equal(tks_stream_flush(&l.s), -EPIPE);
	l.fail_gap = 0;
	assert_int_equal(tks_stream_flush(&l.s), 0);
	assert_int_equal(l.s.held_segments, 0);
	teardown(&l);
}

/* Every allocation fails once, from the first on: errors are told, nothing leaks, bytes that could
 * not be kept or stamped are gaps, and the stream goes on. */
static void without_memory(void **state)
{
	(void)state;
	for (uint64_t fail_at = 1; fail_at < 6; fail_at++) {
		struct lib_oracle *o = lib_oracle_new(0xffffff00, NULL);
		int enomem = 0;

		o->mem.fail_at = fail_at;
		o->unreliable = true;
		for (uint32_t i = 0; i < 40; i += 4) {
			enomem += lib_segment(o, i + 2, 2, 2, 10) == -ENOMEM;
			enomem += lib_segment(o, i, 2, 2, 20) == -ENOMEM;
		}
		assert_true(enomem > 0);
		o->mem.fail_at = 0;
		assert_int_equal(lib_segment(o, 100, 10, 10, 30), 0);
		tks_stream_flush(&o->s);
		assert_int_equal(o->handed, 110);
		lib_oracle_free(o);
	}
}

static uint32_t random_next(uint32_t *x)
{
	*x = *x * 1664525 + 1013904223;
	return *x >> 8;
}

static void random_operations(void **state)
{
	uint32_t x = 1;

	(void)state;
	for (int round = 0; round < 200; round++) {
		struct tks_stream_limits limits = { .buffer_bytes = 1 + random_next(&x) % 600,
						    .buffer_segments = 1 + random_next(&x) % 9,
						    .wait_ns = 50 };
		struct lib_oracle *o = lib_oracle_new(0u - random_next(&x) % 4096, &limits);

		for (uint32_t t = 1; t < 300; t++) {
			uint64_t back = random_next(&x) % 128;
			uint64_t off = o->s.next > back ? o->s.next - back : 0;
			uint32_t len = random_next(&x) % 90;
			uint32_t cap = random_next(&x) % 4 ? len : random_next(&x) % (len + 1);

			lib_segment(o, off + random_next(&x) % 256, len, cap,
				    t + random_next(&x) % 9);
			if (random_next(&x) % 16 == 0)
				tks_stream_advance(&o->s, t);
		}
		assert_true(o->data_calls > 20);
		lib_oracle_free(o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_order_without_copy),
		cmocka_unit_test(first_segment_decides_without_start),
		cmocka_unit_test(wraps_around),
		cmocka_unit_test(offsets_go_past_32_bits),
		cmocka_unit_test(out_of_order),
		cmocka_unit_test(first_copy_counts),
		cmocka_unit_test(identical_retransmission),
		cmocka_unit_test(empty_segments),
		cmocka_unit_test(not_all_captured),
		cmocka_unit_test(lost_bytes_take_no_time_from_neighbours),
		cmocka_unit_test(a_hole_waits_so_long),
		cmocka_unit_test(a_filled_hole_waits_no_more),
		cmocka_unit_test(bytes_held_are_bounded),
		cmocka_unit_test(segments_held_are_bounded),
		cmocka_unit_test(unbelievable_segments),
		cmocka_unit_test(the_end_is_known),
		cmocka_unit_test(an_unbelievable_end),
		cmocka_unit_test(callbacks_end_the_add),
		cmocka_unit_test(without_memory),
		cmocka_unit_test(random_operations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
