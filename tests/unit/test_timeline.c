// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Offset to time: edges of stamps, lost bytes, trimming, the bound, failing memory. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "timeline.h"

static int push(struct tks_timeline *t, struct tks_mem *m, uint64_t end, uint64_t ts_ns,
		uint64_t ret_ns)
{
	return tks_timeline_push(
		t, m, &(struct tks_stamp){ .end = end, .ts_ns = ts_ns, .ret_ns = ret_ns });
}

static uint64_t ts(const struct tks_timeline *t, uint64_t off)
{
	const struct tks_stamp *st = tks_timeline_at(t, off);

	return st ? st->ts_ns : 0;
}

static void empty_knows_nothing(void **state)
{
	struct tks_timeline t = { 0 };

	(void)state;
	assert_null(tks_timeline_at(&t, 0));
	assert_null(tks_timeline_at(&t, UINT64_MAX));
	tks_timeline_trim(&t, 10);
	assert_null(tks_timeline_at(&t, 0));
}

static void each_byte_has_its_stamp(void **state)
{
	struct tks_mem m = TKS_MEM_INIT(0);
	struct tks_timeline t = { 0 };

	(void)state;
	assert_int_equal(push(&t, &m, 10, 1000, 1500), 0);
	assert_int_equal(push(&t, &m, 11, 2000, 0), 0);
	assert_int_equal(push(&t, &m, 50, 3000, 3001), 0);
	assert_int_equal(ts(&t, 0), 1000);
	assert_int_equal(ts(&t, 9), 1000);
	assert_int_equal(ts(&t, 10), 2000);
	assert_int_equal(ts(&t, 11), 3000);
	assert_int_equal(ts(&t, 49), 3000);
	assert_null(tks_timeline_at(&t, 50));
	assert_int_equal(tks_timeline_at(&t, 5)->ret_ns, 1500);
	assert_int_equal(tks_timeline_at(&t, 10)->ret_ns, 0);
	assert_int_equal(tks_timeline_at(&t, 49)->end, 50);
	tks_timeline_free(&t, &m);
	assert_int_equal(m.used, 0);
}

static void times_do_not_run_backwards(void **state)
{
	struct tks_mem m = TKS_MEM_INIT(0);
	struct tks_timeline t = { 0 };

	(void)state;
	push(&t, &m, 10, 1000, 0);
	push(&t, &m, 20, 900, 0);
	push(&t, &m, 30, 1100, 0);
	assert_int_equal(ts(&t, 15), 1000);
	assert_int_equal(ts(&t, 25), 1100);
	/* Over lost bytes too. */
	push(&t, &m, 40, 0, 0);
	push(&t, &m, 50, 1050, 0);
	assert_int_equal(ts(&t, 45), 1100);
	tks_timeline_free(&t, &m);
}

static void lost_bytes_have_no_stamp(void **state)
{
	struct tks_mem m = TKS_MEM_INIT(0);
	struct tks_timeline t = { 0 };

	(void)state;
	push(&t, &m, 10, 1000, 0);
	push(&t, &m, 20, 0, 0);
	push(&t, &m, 30, 2000, 0);
	assert_int_equal(ts(&t, 9), 1000);
	assert_null(tks_timeline_at(&t, 10));
	assert_null(tks_timeline_at(&t, 19));
	assert_int_equal(ts(&t, 20), 2000);
	tks_timeline_free(&t, &m);
}

static void records_of_one_send_are_one_stamp(void **state)
{
	struct tks_mem m = TKS_MEM_INIT(0);
	struct tks_timeline t = { 0 };

	(void)state;
	push(&t, &m, 10, 1000, 1200);
	push(&t, &m, 20, 1000, 1200);
	push(&t, &m, 30, 1000, 1300);
	assert_int_equal(t.count, 2);
	assert_int_equal(tks_timeline_at(&t, 0)->end, 20);
	assert_int_equal(tks_timeline_at(&t, 29)->ret_ns, 1300);
	/* Nothing new is no stamp. */
	push(&t, &m, 30, 5000, 0);
	assert_int_equal(t.count, 2);
	tks_timeline_free(&t, &m);
}

static void trim_forgets_but_the_last(void **state)
{
	struct tks_mem m = TKS_MEM_INIT(0);
	struct tks_timeline t = { 0 };

	(void)state;
	for (uint64_t i = 1; i <= 5; i++)
		push(&t, &m, 10 * i, 100 * i, 0);
	tks_timeline_trim(&t, 19);
	assert_null(tks_timeline_at(&t, 9));
	assert_int_equal(ts(&t, 10), 200);
	tks_timeline_trim(&t, 20);
	assert_null(tks_timeline_at(&t, 19));
	assert_int_equal(ts(&t, 20), 300);
	tks_timeline_trim(&t, 1000);
	assert_null(tks_timeline_at(&t, 39));
	assert_int_equal(ts(&t, 40), 500);
	assert_int_equal(t.count, 1);
	tks_timeline_free(&t, &m);
}

static void keeps_so_many_and_no_more(void **state)
{
	struct tks_mem m = TKS_MEM_INIT(0);
	struct tks_timeline t = { 0 };
	uint64_t n = TKS_TIMELINE_MAX;

	(void)state;
	for (uint64_t i = 1; i <= n; i++)
		push(&t, &m, i, 7 + i, 0);
	assert_int_equal(ts(&t, 0), 8);
	assert_int_equal(t.count, n);
	push(&t, &m, n + 1, 8 + n, 0);
	assert_int_equal(t.count, n);
	assert_null(tks_timeline_at(&t, 0));
	for (uint64_t off = 1; off <= n; off++)
		assert_int_equal(ts(&t, off), 8 + off);
	assert_true(m.peak <= 2 * n * sizeof(struct tks_stamp));
	tks_timeline_free(&t, &m);
	assert_int_equal(m.used, 0);
}

static void without_memory_bytes_have_no_stamp(void **state)
{
	struct tks_mem m = { .fail_at = 1 };
	struct tks_timeline t = { 0 };

	(void)state;
	assert_int_equal(push(&t, &m, 10, 1000, 0), -ENOMEM);
	assert_null(tks_timeline_at(&t, 5));
	m.fail_at = 0;
	assert_int_equal(push(&t, &m, 20, 2000, 0), 0);
	assert_null(tks_timeline_at(&t, 9));
	assert_int_equal(ts(&t, 10), 2000);
	tks_timeline_free(&t, &m);
	assert_int_equal(m.used, 0);
}

static void a_ring_that_cannot_grow_drops_the_oldest(void **state)
{
	struct tks_mem m = { .fail_at = 2 };
	struct tks_timeline t = { 0 };
	uint32_t size;

	(void)state;
	for (uint64_t i = 1; i <= 100; i++)
		assert_int_equal(push(&t, &m, i, i, 0), 0);
	size = t.size;
	assert_true(size < 100);
	assert_null(tks_timeline_at(&t, 99 - size));
	for (uint64_t off = 100 - size; off < 100; off++)
		assert_int_equal(ts(&t, off), off + 1);
	tks_timeline_free(&t, &m);
	assert_int_equal(m.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(empty_knows_nothing),
		cmocka_unit_test(each_byte_has_its_stamp),
		cmocka_unit_test(times_do_not_run_backwards),
		cmocka_unit_test(lost_bytes_have_no_stamp),
		cmocka_unit_test(records_of_one_send_are_one_stamp),
		cmocka_unit_test(trim_forgets_but_the_last),
		cmocka_unit_test(keeps_so_many_and_no_more),
		cmocka_unit_test(without_memory_bytes_have_no_stamp),
		cmocka_unit_test(a_ring_that_cannot_grow_drops_the_oldest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
