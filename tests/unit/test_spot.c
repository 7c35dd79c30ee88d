// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Where a probe goes: functions by their bytes, the spot as read off a disassembly of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "spot.h"

enum { ENTRY = 24 }; /* where in the file the function begins */

#define FIND(calls, ...)                                                                           \
	find((const uint8_t[]){ __VA_ARGS__ }, sizeof((const uint8_t[]){ __VA_ARGS__ }), calls)

static struct tks_spot find(const uint8_t *code, size_t n, bool calls)
{
	FILE *f = tmpfile();
	struct tks_spot spot;

	assert_non_null(f);
	assert_int_equal(pwrite(fileno(f), code, n, ENTRY), n);
	spot = tks_spot_find(fileno(f), ENTRY, calls);
	fclose(f);
	return spot;
}

static void assert_spot(struct tks_spot spot, uint64_t behind_entry, uint32_t below)
{
	assert_int_equal(spot.offset, ENTRY + behind_entry);
	assert_int_equal(spot.below, below);
}

/* SSL_write of OpenSSL 3.0: sub $0x18,%rsp; mov %fs:0x28,%rax; mov %rax,8(%rsp); xor %eax,%eax;
 * test %edx,%edx; js */
static void conditional_jump(void **state)
{
	(void)state;
	assert_spot(FIND(false, 0x48, 0x83, 0xec, 0x18, 0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0,
			 0x48, 0x89, 0x44, 0x24, 0x08, 0x31, 0xc0, 0x85, 0xd2, 0x78, 0x2f, 0xc3),
		    22, 0x18);
}

/* endbr64; push %r15 */
static void behind_endbr(void **state)
{
	(void)state;
	assert_spot(FIND(false, 0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x57, 0xc3), 4, 0);
}

/* push %rbp: the entry itself */
static void first_instruction(void **state)
{
	(void)state;
	assert_spot(FIND(false, 0x55, 0x90, 0x55, 0xc3), 0, 0);
}

/* sub $8,%rsp; call: SSL_write_ex */
static void call(void **state)
{
	(void)state;
	assert_spot(FIND(true, 0x48, 0x83, 0xec, 0x08, 0xe8, 0x87, 0xfb, 0xff, 0xff, 0x31, 0xd2), 4,
		    8);
	assert_spot(FIND(false, 0x48, 0x83, 0xec, 0x08, 0xe8, 0x87, 0xfb, 0xff, 0xff, 0x31, 0xd2),
		    0, 0);
}

/* movslq %edx,%rdx; push %rbp: an argument is not what it was */
static void argument_changed(void **state)
{
	(void)state;
	assert_spot(FIND(true, 0x48, 0x63, 0xd2, 0x55, 0xc3), 0, 0);
	/* mov %rdi,%rax; push %rbp: it is only read */
	assert_spot(FIND(true, 0x48, 0x89, 0xf8, 0x55, 0xc3), 3, 0);
	/* xor %esi,%esi; push %rbp */
	assert_spot(FIND(true, 0x31, 0xf6, 0x55, 0xc3), 0, 0);
	/* and $-16,%rsp; push %rbp: nobody knows how far the stack went down */
	assert_spot(FIND(true, 0x48, 0x83, 0xe4, 0xf0, 0x55, 0xc3), 0, 0);
}

/* xor %eax,%eax; test %edx,%edx; je +2; jmp back to the test: passed again and again */
static void jumped_back_to(void **state)
{
	(void)state;
	assert_spot(FIND(true, 0x31, 0xc0, 0x85, 0xd2, 0x74, 0x02, 0xeb, 0xfa, 0xc3), 0, 0);
	/* To the entry: as often as a probe there. */
	assert_spot(FIND(true, 0x31, 0xc0, 0x85, 0xd2, 0x74, 0x02, 0xeb, 0xf8, 0xc3), 4, 0);
}

/* mov (%rdi),%rax; jmp *0x18(%rax): PR_Write; and what is no code, or none at all */
static void none(void **state)
{
	(void)state;
	assert_spot(FIND(true, 0x48, 0x8b, 0x07, 0xff, 0x60, 0x18, 0x55, 0xc3), 0, 0);
	assert_spot(FIND(true, 0x06, 0x55), 0, 0);
	assert_spot(FIND(true, 0x31), 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(conditional_jump),
		cmocka_unit_test(behind_endbr),
		cmocka_unit_test(first_instruction),
		cmocka_unit_test(call),
		cmocka_unit_test(argument_changed),
		cmocka_unit_test(jumped_back_to),
		cmocka_unit_test(none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
