// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Concurrency against figures by hand, and against a model that keeps every interval and looks at
 * each of a hundred instants.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "concurrency.h"

static const struct tks_endpoint a4 = { .family = AF_INET, .port = 8000, .addr = { 127, 0, 0, 1 } };

struct got {
	int err;
	int64_t at, max;
	double mean;
};

static struct got ask(const struct tks_conc *c, int64_t at, int64_t from, int64_t to)
{
	struct got g = { .at = -1, .max = -1, .mean = -1 };

	g.err = tks_conc_query(c, 1, &a4, at, from, to, &g.at, &g.mean, &g.max);
	return g;
}

static void enter(struct tks_conc *c, int64_t begin, int64_t end)
{
	assert_int_equal(tks_conc_begin(c, 1, &a4, begin), 0);
	assert_int_equal(tks_conc_end(c, 1, &a4, end), 0);
}

/* [0, 100), [20, 60), [40, 100). In [10, 70]: 1 for 10, 2 for 20, 3 for 20, 2 for 10: 130 / 60. */
static void fill(struct tks_conc *c)
{
	enter(c, 40, 100);
	enter(c, 0, 100);
	enter(c, 20, 60);
}

static void test_by_hand(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_conc *c = tks_conc_new(&mem);
	struct got g;

	(void)state;
	fill(c);
	g = ask(c, 0, 10, 70);
	assert_int_equal(g.err, 0);
	assert_int_equal(g.at, 1);
	assert_int_equal(g.max, 3);
	assert_true(fabs(g.mean - 130.0 / 60) < 1e-12);
	tks_conc_free(c);
	assert_int_equal(mem.used, 0);
}

/* At the instant of its begin a request counts, at that of its end no more. */
static void test_edges(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_conc *c = tks_conc_new(&mem);
	struct got g;

	(void)state;
	fill(c);
	assert_int_equal(ask(c, 19, 19, 19).at, 1);
	assert_int_equal(ask(c, 20, 20, 20).at, 2);
	assert_int_equal(ask(c, 59, 59, 59).at, 3);
	assert_int_equal(ask(c, 60, 60, 60).at, 2);
	assert_int_equal(ask(c, 100, 100, 100).at, 0);
	assert_int_equal(ask(c, -5, -5, -5).at, 0);
	/* A window without width: the value there. */
	g = ask(c, 0, 40, 40);
	assert_true(g.mean == 3 && g.max == 3);
	/* One that begins at the window's end adds to the maximum, not to the mean. */
	g = ask(c, 0, 10, 20);
	assert_true(g.mean == 1 && g.max == 2);
	tks_conc_free(c);
}

/* One ends at the instant at which the next begins: never two at once, in whatever order they are
 * entered. */
static void test_hand_over(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_conc *c = tks_conc_new(&mem);
	struct got g;

	(void)state;
	assert_int_equal(tks_conc_begin(c, 1, &a4, 0), 0);
	assert_int_equal(tks_conc_begin(c, 1, &a4, 10), 0);
	assert_int_equal(tks_conc_end(c, 1, &a4, 10), 0);
	assert_int_equal(tks_conc_end(c, 1, &a4, 30), 0);
	g = ask(c, 10, 0, 20);
	assert_true(g.at == 1 && g.max == 1 && g.mean == 1);
	tks_conc_free(c);
}

static void test_addresses_are_apart(void **state)
{
	struct tks_endpoint others[] = { a4, a4, a4, a4 };
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_conc *c = tks_conc_new(&mem);
	int64_t at, max;
	double mean;

	(void)state;
	others[0].port = 8001;
	others[1].addr[3] = 2;
	others[2].family = AF_INET6;
	/* Behind an IPv4 address nothing counts. */
	others[3].addr[9] = 77;
	enter(c, 0, 10);
	for (int i = 0; i < 3; i++)
		assert_int_equal(tks_conc_query(c, 1, &others[i], 5, 5, 5, &at, &mean, &max),
				 -ENOENT);
	assert_int_equal(tks_conc_query(c, 2, &a4, 5, 5, 5, &at, &mean, &max), -ENOENT);
	assert_int_equal(tks_conc_query(c, 1, &others[3], 5, 5, 5, &at, &mean, &max), 0);
	assert_int_equal(at, 1);
	assert_int_equal(tks_conc_begin(c, 2, &a4, 0), 0);
	assert_int_equal(ask(c, 5, 5, 5).at, 1);
	tks_conc_free(c);
	assert_int_equal(mem.used, 0);
}

static void test_trim(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_conc *c = tks_conc_new(&mem);
	size_t empty = mem.used;

	(void)state;
	fill(c);
	tks_conc_trim(c, 40);
	assert_int_equal(ask(c, 40, 40, 70).err, 0);
	assert_int_equal(ask(c, 40, 40, 70).at, 3);
	assert_int_equal(ask(c, 39, 40, 70).err, -ENOENT);
	assert_int_equal(ask(c, 40, 39, 70).err, -ENOENT);
	/* Entered late, before what is kept: still counted from there on. */
	assert_int_equal(tks_conc_begin(c, 1, &a4, 30), 0);
	assert_int_equal(ask(c, 40, 40, 70).at, 4);
	assert_int_equal(tks_conc_end(c, 1, &a4, 50), 0);
	assert_int_equal(ask(c, 50, 50, 50).at, 3);
	tks_conc_trim(c, 20);
	assert_int_equal(ask(c, 30, 40, 70).err, -ENOENT);
	/* With nobody in flight and nothing remembered nothing is kept. */
	tks_conc_trim(c, 101);
	assert_int_equal(mem.used, empty);
	assert_int_equal(ask(c, 200, 200, 200).err, -ENOENT);
	tks_conc_free(c);
}

static void test_bad_window(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_conc *c = tks_conc_new(&mem);

	(void)state;
	fill(c);
	assert_int_equal(ask(c, 10, 20, 19).err, -ENOENT);
	tks_conc_free(c);
	tks_conc_free(NULL);
}

/* --- against a model --- */

enum { SPAN = 100, REQUESTS = 60 };

struct interval {
	int64_t begin, end;
};

static int level(const struct interval *v, int n, int64_t t)
{
	int k = 0;

	for (int i = 0; i < n; i++)
		k += v[i].begin <= t && t < v[i].end;
	return k;
}

static void compare(const struct tks_conc *c, const struct interval *v, int n, int64_t from,
		    int64_t to)
{
	struct got g = ask(c, from, from, to);
	int area = 0, max = level(v, n, to);

	for (int64_t t = from; t < to; t++) {
		area += level(v, n, t);
		max = level(v, n, t) > max ? level(v, n, t) : max;
	}
	assert_int_equal(g.err, 0);
	assert_int_equal(g.at, level(v, n, from));
	assert_int_equal(g.max, max);
	assert_true(fabs(g.mean - (to > from ? (double)area / (double)(to - from) : max)) < 1e-9);
}

static void test_model(void **state)
{
	struct interval v[REQUESTS];

	(void)state;
	srandom(1);
	for (int round = 0; round < 50; round++) {
		struct tks_mem mem = TKS_MEM_INIT(0);
		struct tks_conc *c = tks_conc_new(&mem);
		int64_t trimmed = 0;

		for (int i = 0; i < REQUESTS; i++) {
			v[i].begin = random() % SPAN;
			v[i].end = v[i].begin + random() % (SPAN - v[i].begin);
			enter(c, v[i].begin, v[i].end);
		}
		for (int i = 0; i < 40; i++) {
			int64_t from = trimmed + random() % (SPAN - trimmed);

			compare(c, v, REQUESTS, from, from + random() % (SPAN - from));
			if (i % 8 == 7) {
				trimmed += random() % (SPAN - trimmed);
				tks_conc_trim(c, trimmed);
			}
			if (trimmed == SPAN - 1)
				break;
		}
		tks_conc_free(c);
		assert_int_equal(mem.used, 0);
	}
}

/* --- bounds --- */

/* One that never ends holds the history back; two million steps behind it must not be kept for
 * ever. */
static void test_history_is_bounded(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_conc *c = tks_conc_new(&mem);
	enum { N = 1000000 };

	(void)state;
	assert_int_equal(tks_conc_begin(c, 1, &a4, 0), 0);
	for (int64_t i = 1; i <= N; i++)
		enter(c, 10 * i, 10 * i + 5);
	assert_true(mem.peak <= (size_t)17 << 20);
	/* What is forgotten is not made up, what is kept is right. */
	assert_int_equal(ask(c, 0, 10, 20).err, -ENOENT);
	assert_int_equal(ask(c, 10 * N, 10 * N, 10 * N + 5).at, 2);
	assert_true(ask(c, 10 * N - 1000, 10 * N - 1000, 10 * N).mean == 1.5);
	tks_conc_free(c);
	assert_int_equal(mem.used, 0);
}

/* Without memory for more steps old ones go; the level stays right. */
static void test_no_memory(void **state)
{
	(void)state;
	for (uint64_t fail = 1; fail <= 6; fail++) {
		struct tks_mem mem = { .fail_at = fail };
		struct tks_conc *c = tks_conc_new(&mem);
		int64_t in_flight = 0;

		for (int64_t t = 0; c && t < 500; t++)
			in_flight += tks_conc_begin(c, 1, &a4, t) == 0;
		if (in_flight)
			assert_int_equal(in_flight, 500);
		if (in_flight)
			assert_int_equal(ask(c, 499, 499, 499).at, 500);
		assert_true(fail > 3 || !in_flight);
		tks_conc_free(c);
		assert_int_equal(mem.used, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_hand),	  cmocka_unit_test(test_edges),
		cmocka_unit_test(test_hand_over), cmocka_unit_test(test_addresses_are_apart),
		cmocka_unit_test(test_trim),	  cmocka_unit_test(test_bad_window),
		cmocka_unit_test(test_model),	  cmocka_unit_test(test_history_is_bounded),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
