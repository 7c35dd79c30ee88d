// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Quantiles. Expected values are from Python's statistics.quantiles(method="inclusive"), which is
 * the same definition (Hyndman and Fan, type 7) as numpy.percentile's default, or from arithmetic
 * by hand.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tokensnoop/stats.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void assert_near(double got, double want)
{
	if (fabs(got - want) > 1e-12 * fmax(1, fabs(want)))
		fail_msg("got %.17g, want %.17g", got, want);
}

static void test_known_samples(void **state)
{
	static const int64_t v[] = { 15, 20, 35, 40, 50 };
	static const int64_t w[] = { 1, 1, 2, 3, 3, 4, 5, 5, 6, 9 };

	(void)state;
	assert_near(tks_quantile(v, 5, 0.25), 20);
	assert_near(tks_quantile(v, 5, 0.5), 35);
	assert_near(tks_quantile(v, 5, 0.9), 46);
	assert_near(tks_quantile(v, 5, 0.95), 48);
	assert_near(tks_quantile(v, 5, 0.99), 49.6);
	assert_near(tks_quantile(w, 10, 0.5), 3.5);
	assert_near(tks_quantile(w, 10, 0.9), 6.3);
	assert_near(tks_quantile(w, 10, 0.95), 7.65);
	assert_near(tks_quantile(w, 10, 0.99), 8.73);
}

static void test_ends_are_exact(void **state)
{
	static const int64_t v[] = { -7, 3, 1000000000000001 };

	(void)state;
	assert_true(tks_quantile(v, 3, 0) == -7);
	assert_true(tks_quantile(v, 3, 1) == 1000000000000001);
	assert_true(tks_quantile(v, 1, 0.99) == -7);
}

/* Nanoseconds of a machine that has been up for eleven days: the interpolation must not eat the
 * last digits. */
static void test_large_values_stay_exact(void **state)
{
	static const int64_t same[] = { 999999999999999, 999999999999999, 999999999999999 };
	static const int64_t v[] = { 1000000000000001, 1000000000000003, 1000000000000005,
				     1000000000000009 };

	(void)state;
	for (int i = 0; i <= 100; i++)
		assert_true(tks_quantile(same, 3, i / 100.0) == 999999999999999);
	assert_true(tks_quantile(v, 4, 0.5) == 1000000000000004);
	assert_true(tks_quantile(v, 3, 0.5) == 1000000000000003);
}

/* 0, 1, ..., n - 1: the quantile is its own position. */
static void test_positions(void **state)
{
	int64_t v[101];

	(void)state;
	for (int i = 0; i < 101; i++)
		v[i] = i;
	for (size_t n = 1; n <= 101; n++) {
		for (int q = 0; q <= 20; q++)
			assert_near(tks_quantile(v, n, q / 20.0), q * (double)(n - 1) / 20.0);
	}
}

static void test_smallest_sample(void **state)
{
	static const struct {
		double q;
		size_t n;
	} least[] = { { 0.5, 2 },   { 0.75, 4 },   { 0.9, 10 },
		      { 0.95, 20 }, { 0.99, 100 }, { 0.999, 1000 } };

	(void)state;
	for (size_t i = 0; i < COUNT(least); i++) {
		assert_false(tks_quantile_supported(least[i].n - 1, least[i].q));
		assert_true(tks_quantile_supported(least[i].n, least[i].q));
		assert_true(tks_quantile_supported(least[i].n + 1, least[i].q));
	}
	assert_false(tks_quantile_supported(0, 0));
	assert_true(tks_quantile_supported(1, 0));
	assert_false(tks_quantile_supported(1000000, 1));
}

static void test_no_gaps(void **state)
{
	struct tks_gaps g = { 5, 5, 5, 5, 5, 5, 5 };

	(void)state;
	tks_gaps_from(NULL, 0, &g);
	assert_int_equal(g.n, 0);
	assert_true(g.min_ns == TKS_NULL && g.mean_ns == TKS_NULL && g.max_ns == TKS_NULL);
	assert_true(g.p50_ns == TKS_NULL && g.p90_ns == TKS_NULL && g.p99_ns == TKS_NULL);
}

static void test_one_gap(void **state)
{
	int64_t v[] = { 17 };
	struct tks_gaps g;

	(void)state;
	tks_gaps_from(v, 1, &g);
	assert_int_equal(g.n, 1);
	assert_true(g.min_ns == 17 && g.mean_ns == 17 && g.max_ns == 17);
	assert_true(g.p50_ns == TKS_NULL && g.p90_ns == TKS_NULL && g.p99_ns == TKS_NULL);
}

/* Unsorted; mean (3 + 1 + 4) / 3 = 2.67, the median of two 1.5: rounded to the nearest, not cut. */
static void test_gaps_round(void **state)
{
	int64_t v[] = { 3, 1, 4 }, two[] = { 2, 1 };
	struct tks_gaps g;

	(void)state;
	tks_gaps_from(v, 3, &g);
	assert_true(g.min_ns == 1 && g.mean_ns == 3 && g.p50_ns == 3 && g.max_ns == 4);
	tks_gaps_from(two, 2, &g);
	assert_true(g.mean_ns == 2 && g.p50_ns == 2);
	assert_true(g.p90_ns == TKS_NULL);
}

/* 10, 20, ..., 10 n, backwards. p90 of 10 at position 8.1: 91; p99 of 100 at 98.01: 990.1; mean
 * 505. */
static void test_gaps_percentiles(void **state)
{
	int64_t v[100];
	struct tks_gaps g;

	(void)state;
	for (int n = 10; n <= 100; n += 90) {
		for (int i = 0; i < n; i++)
			v[i] = (n - i) * 10;
		tks_gaps_from(v, (size_t)n, &g);
		assert_int_equal(g.n, n);
		assert_int_equal(g.mean_ns, n == 10 ? 55 : 505);
		assert_int_equal(g.p50_ns, n == 10 ? 55 : 505);
		assert_int_equal(g.p90_ns, n == 10 ? 91 : 901);
		assert_true(g.p99_ns == (n == 10 ? TKS_NULL : 990));
	}
}

/* Their sum is more than 64 bits hold. */
static void test_mean_does_not_overflow(void **state)
{
	int64_t v[] = { 4000000000000000000, 4000000000000000000, 4000000000000000003 };
	struct tks_gaps g;

	(void)state;
	tks_gaps_from(v, 3, &g);
	assert_true(g.mean_ns == 4000000000000000001);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known_samples),
		cmocka_unit_test(test_ends_are_exact),
		cmocka_unit_test(test_large_values_stay_exact),
		cmocka_unit_test(test_positions),
		cmocka_unit_test(test_smallest_sample),
		cmocka_unit_test(test_no_gaps),
		cmocka_unit_test(test_one_gap),
		cmocka_unit_test(test_gaps_round),
		cmocka_unit_test(test_gaps_percentiles),
		cmocka_unit_test(test_mean_does_not_overflow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
