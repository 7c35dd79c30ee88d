// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Figures over requests, and the buckets. Samples are small enough to be worked out by hand. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "buckets.h"
#include "tokensnoop/stats.h"

#define MS 1000000ll

static struct tks_request request(int64_t ttft_ms)
{
	struct tks_request r;

	tks_request_init(&r);
	r.streamed = 1;
	r.status = 200;
	r.t_request_ns = 0;
	r.t_end_ns = 1000 * MS;
	r.tokens = r.token_frames = 10;
	r.tokens_source = TKS_SRC_USAGE;
	r.ttft_ns = r.ttft_visible_ns = ttft_ms * MS;
	r.tpot_ns = ttft_ms * MS / 10;
	r.e2e_ns = 2 * ttft_ms * MS;
	r.conc_mean = 1;
	strcpy(r.finish, "stop");
	strcpy(r.model, "m");
	return r;
}

static struct tks_stats *stats_new(struct tks_mem *mem, const struct tks_slo *slo, bool flagged)
{
	struct tks_stats *s = tks_stats_new(mem, slo, flagged);

	assert_non_null(s);
	return s;
}

static void add(struct tks_stats *s, const struct tks_request *r)
{
	assert_int_equal(tks_stats_add(s, r), 0);
}

static struct tks_dist dist(struct tks_stats *s, enum tks_metric m)
{
	struct tks_dist d;

	tks_stats_dist(s, m, &d);
	return d;
}

static struct tks_stats_totals totals(const struct tks_stats *s)
{
	struct tks_stats_totals t;

	tks_stats_totals(s, &t);
	return t;
}

static void test_nothing(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_stats *s = stats_new(&mem, NULL, false);
	struct tks_stats_totals t = totals(s);

	(void)state;
	assert_int_equal(t.requests, 0);
	assert_true(t.first_ns == TKS_NULL && t.last_ns == TKS_NULL);
	assert_null(tks_stats_slo(s));
	for (int m = 0; m < TKS_METRICS; m++) {
		struct tks_dist d = dist(s, m);

		assert_int_equal(d.n, 0);
		assert_true(isnan(d.mean_ns) && isnan(d.p50_ns) && isnan(d.max_ns));
	}
	tks_stats_free(s);
	tks_stats_free(NULL);
	assert_int_equal(mem.used, 0);
}

/* 1 ... 10 ms, not in order: mean 5.5, p50 5.5, p90 at position 8.1: 9.1; p95 and p99 want 20 and
 * 100. */
static void test_ten(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_stats *s = stats_new(&mem, NULL, false);
	struct tks_dist d;

	(void)state;
	for (int i = 0; i < 10; i++) {
		struct tks_request r = request(1 + i * 7 % 10);

		add(s, &r);
	}
	d = dist(s, TKS_M_TTFT);
	assert_int_equal(d.n, 10);
	assert_true(d.mean_ns == 5.5 * MS);
	assert_true(d.p50_ns == 5.5 * MS);
	assert_true(fabs(d.p90_ns - 9.1 * MS) < 1);
	assert_true(isnan(d.p95_ns) && isnan(d.p99_ns));
	assert_true(d.max_ns == 10.0 * MS);
	assert_true(dist(s, TKS_M_TPOT).max_ns == 1.0 * MS);
	assert_true(dist(s, TKS_M_E2E).max_ns == 20.0 * MS);
	assert_int_equal(dist(s, TKS_M_SEND_WAIT).n, 0);
	tks_stats_free(s);
	assert_int_equal(mem.used, 0);
}

/* p99 of 99 does not exist, of 100 it does: 1 ... 100 at position 98.01: 99.01. */
static void test_support(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_stats *s = stats_new(&mem, NULL, false);

	(void)state;
	for (int i = 1; i <= 100; i++) {
		struct tks_request r = request(i);

		if (i == 100)
			assert_true(isnan(dist(s, TKS_M_TTFT).p99_ns));
		add(s, &r);
	}
	assert_true(fabs(dist(s, TKS_M_TTFT).p99_ns - 99.01 * MS) < 1);
	assert_true(fabs(dist(s, TKS_M_TTFT).p95_ns - 95.05 * MS) < 1);
	tks_stats_free(s);
}

/* Nulls are no values. */
static void test_nulls(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_stats *s = stats_new(&mem, NULL, false);
	struct tks_request r = request(5);

	(void)state;
	r.tpot_ns = r.e2e_ns = r.tokens = TKS_NULL;
	r.conc_mean = NAN;
	add(s, &r);
	assert_int_equal(dist(s, TKS_M_TTFT).n, 1);
	assert_int_equal(dist(s, TKS_M_TPOT).n, 0);
	assert_int_equal(dist(s, TKS_M_E2E).n, 0);
	assert_int_equal(totals(s).tokens, 0);
	tks_stats_free(s);
}

static void test_outcomes(void **state)
{
	static const struct {
		const char *finish, *error;
		int64_t status;
	} cases[] = {
		{ "stop", "", 200 },	  { "length", "", 200 }, { "", "", TKS_NULL },
		{ "error", "", 200 },	  { "stop", "x", 200 },	 { "", "", 500 },
		{ "aborted", "", 200 },	  { "cut", "", 200 },	 { "open", "", 200 },
		{ "open", "", TKS_NULL },
	};
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_stats *s = stats_new(&mem, NULL, false);
	struct tks_stats_totals t;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tks_request r = request(1);

		strcpy(r.finish, cases[i].finish);
		strcpy(r.error, cases[i].error);
		r.status = cases[i].status;
		add(s, &r);
	}
	t = totals(s);
	assert_int_equal(t.requests, 10);
	assert_int_equal(t.completed, 3);
	assert_int_equal(t.errors, 3);
	assert_int_equal(t.aborted, 1);
	assert_int_equal(t.cut, 1);
	assert_int_equal(t.open, 2);
	tks_stats_free(s);
}

static void test_totals(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_stats *s = stats_new(&mem, NULL, false);
	struct tks_request r = request(1);
	struct tks_stats_totals t;

	(void)state;
	r.t_request_ns = 700;
	r.t_end_ns = 900;
	add(s, &r);
	r.t_request_ns = 500;
	r.t_end_ns = TKS_NULL;
	r.tokens_source = TKS_SRC_PER_FRAME;
	r.boundary = TKS_B_WIRE;
	r.streamed = 0;
	add(s, &r);
	r.t_request_ns = TKS_NULL;
	r.t_end_ns = 800;
	r.tokens_source = TKS_SRC_NONE;
	r.tokens = TKS_NULL;
	add(s, &r);
	t = totals(s);
	assert_int_equal(t.first_ns, 500);
	assert_int_equal(t.last_ns, 900);
	assert_int_equal(t.tokens, 20);
	assert_int_equal(t.streamed, 1);
	assert_int_equal(t.src_usage, 1);
	assert_int_equal(t.src_per_frame, 1);
	assert_int_equal(t.src_none, 1);
	assert_int_equal(t.boundaries, 1 << TKS_B_SEND | 1 << TKS_B_WIRE);
	assert_int_equal(t.nmodels, 1);
	tks_stats_free(s);
}

static void test_models(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_stats *s = stats_new(&mem, NULL, false);
	struct tks_request r = request(1);

	(void)state;
	for (int i = 0; i < 18; i++) {
		snprintf(r.model, sizeof(r.model), "m%d", i / 2);
		add(s, &r);
		assert_int_equal(totals(s).nmodels, i < 16 ? i / 2 + 1 : 8);
		assert_int_equal(totals(s).more_models, i >= 16);
	}
	r.model[0] = 0;
	add(s, &r);
	assert_string_equal(totals(s).models[7], "m7");
	tks_stats_free(s);
}

/* Lost and mid_stream stay out of everything, estimated ones out of TPOT; all of them count. */
static void test_flagged(void **state)
{
	static const uint32_t flags[] = { 0,
					  TKS_F_LOST,
					  TKS_F_MID_STREAM,
					  TKS_F_ESTIMATED,
					  TKS_F_LOST | TKS_F_ESTIMATED,
					  TKS_F_COALESCED };

	(void)state;
	for (int with = 0; with < 2; with++) {
		struct tks_mem mem = TKS_MEM_INIT(0);
		struct tks_stats *s = stats_new(&mem, NULL, with);
		struct tks_stats_totals t;

		for (size_t i = 0; i < 6; i++) {
			struct tks_request r = request(10 * (int)i + 10);

			r.flags = flags[i];
			add(s, &r);
		}
		t = totals(s);
		assert_int_equal(t.requests, 6);
		assert_int_equal(t.lost, 2);
		assert_int_equal(t.mid_stream, 1);
		assert_int_equal(t.estimated, 2);
		assert_int_equal(t.left_out, with ? 0 : 3);
		assert_int_equal(dist(s, TKS_M_TTFT).n, with ? 6 : 3);
		assert_true(dist(s, TKS_M_TTFT).p50_ns == (with ? 35.0 : 40.0) * MS);
		assert_int_equal(dist(s, TKS_M_TPOT).n, with ? 6 : 2);
		tks_stats_free(s);
		assert_int_equal(mem.used, 0);
	}
}

/* --- ITL, two ways --- */

static void set_series(struct tks_request *r, const int64_t *at, size_t n)
{
	int64_t gaps[16];

	r->token_at_ns = at;
	r->ntoken_at = n;
	for (size_t i = 1; i < n; i++)
		gaps[i - 1] = at[i] - at[i - 1];
	tks_gaps_from(gaps, n - 1, &r->itl);
}

/* Gaps 10, 10, 10, 10, 10 and 30: the median over requests of their maxima is 20, the pooled
 * one 10. */
static void test_itl_two_ways(void **state)
{
	static const int64_t a[] = { 0, 10, 20, 30, 40, 50 }, b[] = { 100, 130 };
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_stats *s = stats_new(&mem, NULL, false);
	struct tks_request r = request(1);
	struct tks_dist d;

	(void)state;
	set_series(&r, a, 6);
	add(s, &r);
	set_series(&r, b, 2);
	add(s, &r);
	d = dist(s, TKS_M_ITL_MAX);
	assert_int_equal(d.n, 2);
	assert_true(d.p50_ns == 20 && d.max_ns == 30);
	/* One gap carries no p50. */
	assert_int_equal(dist(s, TKS_M_ITL_P50).n, 1);
	d = dist(s, TKS_M_ITL_POOLED);
	assert_int_equal(d.n, 6);
	assert_true(d.p50_ns == 10 && d.max_ns == 30);
	assert_true(fabs(d.mean_ns - 80.0 / 6) < 1e-9);
	assert_true(totals(s).pooled_complete);
	tks_stats_free(s);
}

/* A record without its series, or with a hole in it, is not in the pool, and that is said. */
static void test_pool_is_not_complete(void **state)
{
	static const int64_t at[] = { 0, 10, 50, 60 }, odd[] = { 0, TKS_NULL, 5 };
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_stats *s = stats_new(&mem, NULL, true);
	struct tks_request r = request(1);

	(void)state;
	add(s, &r);
	assert_true(totals(s).pooled_complete);
	set_series(&r, at, 4);
	r.itl.n = 2;
	add(s, &r);
	assert_false(totals(s).pooled_complete);
	r.ntoken_at = 0;
	r.token_at_ns = NULL;
	add(s, &r);
	assert_int_equal(dist(s, TKS_M_ITL_POOLED).n, 0);
	/* A series that contradicts its own summary (a file's) does no harm. */
	r.token_at_ns = odd;
	r.ntoken_at = 3;
	r.itl.n = 2;
	add(s, &r);
	assert_int_equal(dist(s, TKS_M_ITL_POOLED).n, 0);
	tks_stats_free(s);
}

/* --- cells --- */

static void test_cells(void **state)
{
	static const struct {
		int64_t ttft, tokens;
		double conc;
	} rows[] = { { 10, 16, 1 },   { 20, 16, 1.4 },	   { 30, 17, 1 },
		     { 40, 17, 4.6 }, { 50, TKS_NULL, 1 }, { 60, 16, NAN } };
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_stats *s = stats_new(&mem, NULL, false);
	struct tks_dist d;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tks_request r = request(rows[i].ttft);

		r.tokens = rows[i].tokens;
		r.conc_mean = rows[i].conc;
		add(s, &r);
	}
	tks_stats_cell(s, TKS_M_TTFT, 0, 0, &d);
	assert_int_equal(d.n, 2);
	assert_true(d.p50_ns == 15.0 * MS && d.max_ns == 20.0 * MS);
	tks_stats_cell(s, TKS_M_TTFT, 1, -1, &d);
	assert_int_equal(d.n, 2);
	assert_true(d.mean_ns == 35.0 * MS);
	tks_stats_cell(s, TKS_M_TTFT, 1, 2, &d);
	assert_int_equal(d.n, 1);
	assert_true(isnan(d.p50_ns) && d.max_ns == 40.0 * MS);
	tks_stats_cell(s, TKS_M_TTFT, -1, 0, &d);
	assert_int_equal(d.n, 4);
	tks_stats_cell(s, TKS_M_TTFT, 0, -1, &d);
	assert_int_equal(d.n, 3);
	tks_stats_cell(s, TKS_M_TTFT, 4, 6, &d);
	assert_int_equal(d.n, 0);
	assert_true(isnan(d.mean_ns) && isnan(d.max_ns));
	tks_stats_cell(s, TKS_M_TTFT, -1, -1, &d);
	assert_int_equal(d.n, 6);
	tks_stats_free(s);
}

static void test_buckets(void **state)
{
	static const struct {
		int64_t tokens;
		int bucket;
		const char *name;
	} len[] = { { 1, 0, "1-16" },	      { 16, 0, "1-16" },       { 17, 1, "17-64" },
		    { 64, 1, "17-64" },	      { 65, 2, "65-256" },     { 256, 2, "65-256" },
		    { 257, 3, "257-1024" },   { 1024, 3, "257-1024" }, { 1025, 4, "1025+" },
		    { INT64_MAX, 4, "1025+" } };
	static const struct {
		double mean;
		int bucket;
		const char *name;
	} conc[] = { { 1, 0, "1" },	 { 1.49, 0, "1" },    { 1.5, 1, "2-4" },
		     { 4.49, 1, "2-4" }, { 4.5, 2, "5-8" },   { 8, 2, "5-8" },
		     { 9, 3, "9-16" },	 { 16, 3, "9-16" },   { 17, 4, "17-32" },
		     { 32, 4, "17-32" }, { 33, 5, "33-64" },  { 64, 5, "33-64" },
		     { 65, 6, "65+" },	 { 1e300, 6, "65+" }, { INFINITY, 6, "65+" } };

	(void)state;
	for (size_t i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
		assert_int_equal(tks_len_bucket(len[i].tokens), len[i].bucket);
		assert_string_equal(tks_len_bucket_name(len[i].bucket), len[i].name);
	}
	for (size_t i = 0; i < sizeof(conc) / sizeof(conc[0]); i++) {
		assert_int_equal(tks_conc_bucket(conc[i].mean), conc[i].bucket);
		assert_string_equal(tks_conc_bucket_name(conc[i].bucket), conc[i].name);
	}
	assert_int_equal(tks_len_bucket(0), -1);
	assert_int_equal(tks_len_bucket(TKS_NULL), -1);
	assert_int_equal(tks_conc_bucket(NAN), -1);
}

/* --- goodput --- */

static void test_goodput(void **state)
{
	static const char *const finish[] = { "stop", "stop", "stop", "aborted" };
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_slo slo;
	struct tks_stats_totals t;
	struct tks_stats *s;
	const char *bad;

	(void)state;
	assert_int_equal(tks_slo_parse("ttft=20ms,tpot=2ms", &slo, &bad), 0);
	s = stats_new(&mem, &slo, false);
	assert_int_equal(tks_stats_slo(s)->limit_ns[TKS_SLO_TPOT], 2 * MS);
	/* TTFT 10, 20, 30, 10 and TPOT 1, 2, 3, 1 ms; the last one is fast, but its client left. */
	for (int i = 0; i < 4; i++) {
		struct tks_request r = request(i == 3 ? 10 : 10 * i + 10);

		strcpy(r.finish, finish[i]);
		add(s, &r);
	}
	t = totals(s);
	assert_int_equal(t.judged, 4);
	assert_int_equal(t.good, 2);
	assert_int_equal(t.missed[TKS_SLO_TTFT], 1);
	assert_int_equal(t.missed[TKS_SLO_TPOT], 1);
	assert_int_equal(t.missed[TKS_SLO_E2E], 0);
	tks_stats_free(s);
}

/* --- memory --- */

static bool add_some(struct tks_mem *mem)
{
	static const int64_t at[] = { 0, 10, 20 };
	struct tks_stats *s = tks_stats_new(mem, NULL, false);
	bool ok = true;

	if (!s)
		return false;
	for (int i = 0; i < 100; i++) {
		struct tks_request r = request(i);
		int err;

		set_series(&r, at, 3);
		err = tks_stats_add(s, &r);
		assert_true(!err || err == -ENOMEM);
		ok = ok && !err;
	}
	assert_int_equal(totals(s).requests, 100);
	tks_stats_free(s);
	assert_int_equal(mem->used, 0);
	return ok;
}

static void test_no_memory(void **state)
{
	uint64_t calls;

	(void)state;
	for (calls = 1;; calls++) {
		struct tks_mem mem = { .fail_at = calls };

		if (add_some(&mem))
			break;
	}
	/* Itself; two sizes each of six series, three of the pooled one. */
	assert_int_equal(calls, 17);
}

/* With none left for sorting the percentiles are not known, count, mean and maximum are. */
static void test_no_memory_for_a_summary(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_stats *s = stats_new(&mem, NULL, false);
	struct tks_dist d;

	(void)state;
	for (int i = 1; i <= 3; i++) {
		struct tks_request r = request(i);

		add(s, &r);
	}
	mem.fail_at = 1;
	d = dist(s, TKS_M_TTFT);
	assert_int_equal(d.n, 3);
	assert_true(d.mean_ns == 2.0 * MS && d.max_ns == 3.0 * MS);
	assert_true(isnan(d.p50_ns));
	mem.fail_at = 0;
	assert_true(dist(s, TKS_M_TTFT).p50_ns == 2.0 * MS);
	tks_stats_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_ten),
		cmocka_unit_test(test_support),
		cmocka_unit_test(test_nulls),
		cmocka_unit_test(test_outcomes),
		cmocka_unit_test(test_totals),
		cmocka_unit_test(test_models),
		cmocka_unit_test(test_flagged),
		cmocka_unit_test(test_itl_two_ways),
		cmocka_unit_test(test_pool_is_not_complete),
		cmocka_unit_test(test_cells),
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_goodput),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_no_memory_for_a_summary),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
