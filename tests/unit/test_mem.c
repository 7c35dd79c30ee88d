// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The budgeted allocator: its account, its limit at the edge, and the failures asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tokensnoop/mem.h"

static void accounts_for_every_byte(void **state)
{
	struct tks_mem m = TKS_MEM_INIT(0);
	char *a, *b;

	(void)state;
	a = tks_mem_alloc(&m, 100);
	b = tks_mem_alloc(&m, 20);
	assert_non_null(a);
	assert_non_null(b);
	assert_int_equal(m.used, 120);
	tks_mem_free(&m, a, 100);
	assert_int_equal(m.used, 20);
	assert_int_equal(m.peak, 120);
	tks_mem_free(&m, b, 20);
	tks_mem_free(&m, NULL, 77);
	assert_int_equal(m.used, 0);
	assert_int_equal(m.calls, 2);
	assert_int_equal(m.failed, 0);
}

static void new_memory_is_zero(void **state)
{
	static const char zero[64];
	struct tks_mem m = TKS_MEM_INIT(0);
	char *p = tks_mem_alloc(&m, 16);

	(void)state;
	assert_memory_equal(p, zero, 16);
	memset(p, 0xaa, 16);
	p = tks_mem_resize(&m, p, 16, 64);
	assert_int_equal((unsigned char)p[15], 0xaa);
	assert_memory_equal(p + 16, zero, 48);
	assert_int_equal(m.used, 64);
	p = tks_mem_resize(&m, p, 64, 8);
	assert_int_equal((unsigned char)p[7], 0xaa);
	assert_int_equal(m.used, 8);
	assert_int_equal(m.peak, 64);
	tks_mem_free(&m, p, 8);
	assert_int_equal(m.used, 0);
}

static void resize_of_nothing_allocates(void **state)
{
	struct tks_mem m = TKS_MEM_INIT(0);
	char *p = tks_mem_resize(&m, NULL, 0, 10);

	(void)state;
	assert_non_null(p);
	assert_int_equal(m.used, 10);
	assert_int_equal(m.calls, 1);
	tks_mem_free(&m, p, 10);
}

static void limit_is_exact(void **state)
{
	struct tks_mem m = TKS_MEM_INIT(100);
	char *a, *b;

	(void)state;
	assert_null(tks_mem_alloc(&m, 101));
	a = tks_mem_alloc(&m, 99);
	assert_non_null(a);
	assert_null(tks_mem_alloc(&m, 2));
	b = tks_mem_alloc(&m, 1);
	assert_non_null(b);
	assert_int_equal(m.used, 100);
	assert_null(tks_mem_alloc(&m, 1));
	assert_null(tks_mem_resize(&m, a, 99, 100));
	assert_int_equal(m.used, 100);
	assert_int_equal(m.failed, 4);
	a = tks_mem_resize(&m, a, 99, 50);
	assert_int_equal(m.used, 51);
	a = tks_mem_resize(&m, a, 50, 99);
	assert_non_null(a);
	tks_mem_free(&m, a, 99);
	tks_mem_free(&m, b, 1);
	assert_int_equal(m.used, 0);
}

static void huge_size_does_not_wrap(void **state)
{
	struct tks_mem m = TKS_MEM_INIT(100);
	char *a = tks_mem_alloc(&m, 10);

	(void)state;
	assert_null(tks_mem_alloc(&m, SIZE_MAX));
	assert_null(tks_mem_resize(&m, a, 10, SIZE_MAX));
	/* A limit lowered below what is in use refuses everything. */
	m.limit = 5;
	assert_null(tks_mem_alloc(&m, 1));
	assert_int_equal(m.used, 10);
	tks_mem_free(&m, a, 10);
}

static void fails_from_the_call_asked_for(void **state)
{
	struct tks_mem m = { .fail_at = 2 };
	char *a = tks_mem_alloc(&m, 10);

	(void)state;
	assert_non_null(a);
	assert_null(tks_mem_alloc(&m, 10));
	assert_null(tks_mem_resize(&m, a, 10, 20));
	assert_int_equal(m.failed, 2);
	assert_int_equal(m.calls, 3);
	/* Giving back needs no memory. */
	a = tks_mem_resize(&m, a, 10, 5);
	assert_non_null(a);
	assert_int_equal(m.used, 5);
	tks_mem_free(&m, a, 5);
	assert_int_equal(m.used, 0);
}

static void fails_once(void **state)
{
	struct tks_mem m = { .fail_at = 2, .fail_once = true };
	char *a = tks_mem_alloc(&m, 10), *b = tks_mem_alloc(&m, 10), *c = tks_mem_alloc(&m, 10);

	(void)state;
	assert_non_null(a);
	assert_null(b);
	assert_non_null(c);
	assert_int_equal(m.failed, 1);
	assert_int_equal(m.used, 20);
	tks_mem_free(&m, a, 10);
	tks_mem_free(&m, c, 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accounts_for_every_byte),
		cmocka_unit_test(new_memory_is_zero),
		cmocka_unit_test(resize_of_nothing_allocates),
		cmocka_unit_test(limit_is_exact),
		cmocka_unit_test(huge_size_does_not_wrap),
		cmocka_unit_test(fails_from_the_call_asked_for),
		cmocka_unit_test(fails_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
