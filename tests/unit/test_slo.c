// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The language of --slo, and who meets it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tokensnoop/stats.h"

#define MS 1000000ll
#define BIT(m) (1u << (m))

static struct tks_slo slo_of(const char *text)
{
	struct tks_slo slo;
	const char *bad;

	if (tks_slo_parse(text, &slo, &bad))
		fail_msg("\"%s\" refused at \"%s\"", text, bad);
	return slo;
}

static void test_example(void **state)
{
	struct tks_slo s = slo_of("ttft=500ms,tpot=50ms,e2e=10s,itl_p99=200ms");

	(void)state;
	assert_true(s.any);
	assert_int_equal(s.limit_ns[TKS_SLO_TTFT], 500 * MS);
	assert_int_equal(s.limit_ns[TKS_SLO_TPOT], 50 * MS);
	assert_int_equal(s.limit_ns[TKS_SLO_E2E], 10000 * MS);
	assert_int_equal(s.limit_ns[TKS_SLO_ITL_P99], 200 * MS);
	assert_true(s.limit_ns[TKS_SLO_TTFT_VISIBLE] == TKS_NULL);
	assert_true(s.limit_ns[TKS_SLO_ITL_MAX] == TKS_NULL);
}

static void test_units_and_fractions(void **state)
{
	(void)state;
	assert_int_equal(slo_of("ttft=7ns").limit_ns[TKS_SLO_TTFT], 7);
	assert_int_equal(slo_of("ttft=7us").limit_ns[TKS_SLO_TTFT], 7000);
	assert_int_equal(slo_of("ttft=1.5s").limit_ns[TKS_SLO_TTFT], 1500000000);
	assert_int_equal(slo_of("ttft=0.25ms").limit_ns[TKS_SLO_TTFT], 250000);
	assert_int_equal(slo_of("ttft=2.6ns").limit_ns[TKS_SLO_TTFT], 3);
}

static void test_every_name(void **state)
{
	char text[64];

	(void)state;
	for (int m = 0; m < TKS_SLO_METRICS; m++) {
		snprintf(text, sizeof(text), "%s=%dms", tks_slo_name(m), m + 1);
		assert_int_equal(slo_of(text).limit_ns[m], (m + 1) * MS);
	}
}

/* Text, and where the offending part begins. */
static void test_refused(void **state)
{
	static const struct {
		const char *text;
		size_t at;
	} cases[] = {
		{ "", 0 },
		{ "ttft", 0 },
		{ "ttft=", 0 },
		{ "ttft=5", 0 },
		{ "ttft=ms", 0 },
		{ "ttft=5m", 0 },
		{ "ttft=5 ms", 0 },
		{ "ttft=5msx", 0 },
		{ "ttft=-5ms", 0 },
		{ "ttft=+5ms", 0 },
		{ "ttft=.5ms", 0 },
		{ "ttft=1.2.3ms", 0 },
		{ "ttft=1e3ms", 0 },
		{ "ttft=0x10ms", 0 },
		{ "ttft=infs", 0 },
		{ "ttft=0ms", 0 },
		{ "ttft=999999999999s", 0 },
		{ "ttft=1111111111111111111ns", 0 },
		{ "TTFT=5ms", 0 },
		{ "ttf=5ms", 0 },
		{ "itl=5ms", 0 },
		{ "=5ms", 0 },
		{ ",ttft=5ms", 0 },
		{ "ttft=5ms,", 9 },
		{ "ttft=5ms,,e2e=1s", 9 },
		{ "ttft=5ms,ttft=6ms", 9 },
		{ "ttft=5ms;e2e=1s", 0 },
		{ "e2e=1s,tpot=5", 7 },
	};
	const char *bad;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tks_slo slo = { .any = false, .limit_ns = { 42 } };

		if (tks_slo_parse(cases[i].text, &slo, &bad) != -EINVAL)
			fail_msg("\"%s\" taken", cases[i].text);
		assert_ptr_equal(bad, cases[i].text + cases[i].at);
		/* What was there stays. */
		assert_true(!slo.any && slo.limit_ns[0] == 42);
	}
}

static struct tks_request good_request(void)
{
	struct tks_request r;

	tks_request_init(&r);
	r.streamed = 1;
	r.status = 200;
	r.token_frames = r.tokens = 4;
	r.ttft_ns = r.ttft_visible_ns = 100 * MS;
	r.tpot_ns = 20 * MS;
	r.e2e_ns = 160 * MS;
	r.itl = (struct tks_gaps){ .n = 3,
				   .min_ns = 10 * MS,
				   .mean_ns = 20 * MS,
				   .p50_ns = 20 * MS,
				   .p90_ns = TKS_NULL,
				   .p99_ns = TKS_NULL,
				   .max_ns = 30 * MS };
	strcpy(r.finish, "stop");
	return r;
}

static int met(const char *slo, const struct tks_request *r)
{
	struct tks_slo s = slo_of(slo);

	return tks_slo_met(&s, r, NULL);
}

static uint32_t missed(const char *slo, const struct tks_request *r)
{
	struct tks_slo s = slo_of(slo);
	uint32_t bits = ~0u;
	int good = tks_slo_met(&s, r, &bits);

	assert_int_equal(good, !bits);
	return bits;
}

static void test_limits_are_inclusive(void **state)
{
	struct tks_request r = good_request();

	(void)state;
	assert_int_equal(missed("ttft=100ms", &r), 0);
	assert_int_equal(missed("ttft=99.999999ms", &r), BIT(TKS_SLO_TTFT));
	assert_int_equal(missed("ttft_visible=99ms", &r), BIT(TKS_SLO_TTFT_VISIBLE));
	assert_int_equal(missed("tpot=20ms,e2e=160ms,itl_p50=20ms,itl_max=30ms", &r), 0);
	assert_int_equal(missed("tpot=19ms,e2e=159ms,itl_p50=19ms,itl_max=29ms,ttft=1s", &r),
			 BIT(TKS_SLO_TPOT) | BIT(TKS_SLO_E2E) | BIT(TKS_SLO_ITL_P50) |
				 BIT(TKS_SLO_ITL_MAX));
}

/* Three gaps carry no p90 or p99: the largest is judged. */
static void test_small_sample_is_judged_by_its_max(void **state)
{
	struct tks_request r = good_request();

	(void)state;
	assert_int_equal(missed("itl_p90=30ms,itl_p99=30ms", &r), 0);
	assert_int_equal(missed("itl_p90=29ms,itl_p99=29ms", &r),
			 BIT(TKS_SLO_ITL_P90) | BIT(TKS_SLO_ITL_P99));
	r.itl.p99_ns = 25 * MS;
	assert_int_equal(missed("itl_p99=29ms", &r), 0);
}

static void test_failed_is_never_good(void **state)
{
	static const char *const finishes[] = { "aborted", "cut", "error", "open" };
	struct tks_request r;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		r = good_request();
		strcpy(r.finish, finishes[i]);
		assert_int_equal(met("ttft=1s", &r), 0);
	}
	r = good_request();
	r.status = 429;
	assert_int_equal(met("ttft=1s", &r), 0);
	r = good_request();
	strcpy(r.error, "overloaded");
	assert_int_equal(met("ttft=1s", &r), 0);
	r = good_request();
	r.finish[0] = 0;
	assert_int_equal(met("ttft=1s", &r), 1);
}

/* One token: no TPOT, no gaps; an answer in one piece: none of them. */
static void test_what_does_not_exist_holds(void **state)
{
	static const char all[] = "ttft=1ns,tpot=1ns,itl_p50=1ns,itl_p99=1ns,itl_max=1ns";
	struct tks_request r = good_request();

	(void)state;
	r.tokens = r.token_frames = 1;
	r.tpot_ns = TKS_NULL;
	tks_gaps_from(NULL, 0, &r.itl);
	assert_int_equal(met("tpot=1ns,itl_p50=1ns,itl_p99=1ns,itl_max=1ns", &r), 1);
	r.streamed = 0;
	r.token_frames = 0;
	r.ttft_ns = r.ttft_visible_ns = TKS_NULL;
	assert_int_equal(met(all, &r), 1);
	assert_int_equal(missed("e2e=159ms,ttft=1ns", &r), BIT(TKS_SLO_E2E));
	/* A name that was cut off costs no figure. */
	r.flags = TKS_F_TRUNCATED;
	assert_int_equal(met(all, &r), 1);
}

static void test_what_was_not_measured_does_not_hold(void **state)
{
	static const uint32_t flags[] = { TKS_F_BLIND, TKS_F_LOST, TKS_F_MID_STREAM, TKS_F_OPAQUE };
	struct tks_request r = good_request();

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		r = good_request();
		r.flags = flags[i];
		/* What is there is there, but the worst gap may be the one that was not seen. */
		assert_int_equal(missed("ttft=100ms,tpot=20ms", &r), 0);
		assert_int_equal(missed("itl_max=1s", &r), BIT(TKS_SLO_ITL_MAX));
		r.ttft_ns = r.tpot_ns = TKS_NULL;
		assert_int_equal(missed("ttft=1s,tpot=1s,e2e=1s", &r),
				 BIT(TKS_SLO_TTFT) | BIT(TKS_SLO_TPOT));
	}
	/* The token series was longer than the limit. */
	r = good_request();
	r.flags = TKS_F_TRUNCATED;
	tks_gaps_from(NULL, 0, &r.itl);
	assert_int_equal(missed("itl_p99=1s,ttft=1s", &r), BIT(TKS_SLO_ITL_P99));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_example),
		cmocka_unit_test(test_units_and_fractions),
		cmocka_unit_test(test_every_name),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_limits_are_inclusive),
		cmocka_unit_test(test_small_sample_is_judged_by_its_max),
		cmocka_unit_test(test_failed_is_never_good),
		cmocka_unit_test(test_what_does_not_exist_holds),
		cmocka_unit_test(test_what_was_not_measured_does_not_hold),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
