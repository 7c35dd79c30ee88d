// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The file that -o names: its rights, and what is not written to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <sys/stat.h>

/* The code under test. */
#include "output.c"

static char folder[] = "/tmp/test_output.XXXXXX";

static int enter(void **state)
{
	(void)state;
	return mkdtemp(folder) ? chdir(folder) : -1;
}

static int leave(void **state)
{
	static const char *const names[] = { "out", "victim", "link", "fifo" };

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlink(names[i]);
	return chdir("/") || rmdir(folder);
}

/* A file with one byte, open to all. */
static void make(const char *name)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "v", 1), 1);
	assert_int_equal(fchmod(fd, 0666), 0);
	close(fd);
}

static void assert_untouched(const char *name)
{
	struct stat st;

	assert_int_equal(stat(name, &st), 0);
	assert_int_equal(st.st_size, 1);
	assert_int_equal(st.st_mode & 07777, 0666);
}

static void assert_written(const char *name)
{
	const char *why;
	FILE *f = tks_output_open(name, &why);
	struct stat st;

	assert_non_null(f);
	fputs("abc", f);
	assert_int_equal(tks_output_close(f), 0);
	assert_int_equal(stat(name, &st), 0);
	assert_int_equal(st.st_size, 3);
	assert_int_equal(st.st_mode & 07777, 0600);
}

static void assert_refused(const char *name, const char *words)
{
	const char *why = NULL;

	assert_null(tks_output_open(name, &why));
	assert_non_null(why);
	assert_non_null(strstr(why, words));
}

static void test_for_its_owner_alone(void **state)
{
	mode_t old = umask(0);

	(void)state;
	assert_written("out");
	umask(old);
	/* One that was longer, and open to all. */
	make("out");
	assert_int_equal(truncate("out", 100), 0);
	assert_written("out");
	unlink("out");
}

static void test_links(void **state)
{
	(void)state;
	make("victim");
	assert_int_equal(symlink("victim", "link"), 0);
	assert_refused("link", "is a symbolic link");
	unlink("link");
	assert_int_equal(symlink("nothing", "link"), 0);
	assert_refused("link", "is a symbolic link");
	assert_int_equal(access("nothing", F_OK), -1);
	unlink("link");
	assert_int_equal(link("victim", "link"), 0);
	assert_refused("link", "hard links");
	assert_untouched("victim");
	unlink("link");
	unlink("victim");
}

static void test_of_another_user(void **state)
{
	(void)state;
	if (geteuid()) {
		skip();
		return;
	}
	make("victim");
	assert_int_equal(chown("victim", 61001, 61001), 0);
	assert_refused("victim", "belongs to another user");
	assert_untouched("victim");
	unlink("victim");
}

static void test_no_files(void **state)
{
	int reader;

	(void)state;
	assert_refused(".", "Is a directory");
	assert_refused("missing/out", "No such file or directory");
	assert_int_equal(mkfifo("fifo", 0600), 0);
	assert_refused("fifo", "is no regular file");
	reader = open("fifo", O_RDONLY | O_NONBLOCK);
	assert_true(reader >= 0);
	assert_refused("fifo", "is no regular file");
	close(reader);
	unlink("fifo");
	assert_refused("/dev/zero", "is no regular file");
}

static void test_devices(void **state)
{
	const char *why;
	struct stat st;
	FILE *f;

	(void)state;
	assert_ptr_equal(tks_output_open(NULL, &why), stdout);
	assert_ptr_equal(tks_output_open("-", &why), stdout);
	assert_ptr_equal(tks_output_open("/dev/stdout", &why), stdout);
	f = tks_output_open("/dev/null", &why);
	assert_non_null(f);
	fputs("x", f);
	assert_int_equal(tks_output_close(f), 0);
	assert_int_equal(stat("/dev/null", &st), 0);
	assert_int_equal(st.st_mode & 0777, 0666);
	f = tks_output_open("/dev/full", &why);
	assert_non_null(f);
	fputs("x", f);
	assert_int_equal(tks_output_close(f), -ENOSPC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_for_its_owner_alone),
		cmocka_unit_test(test_links),
		cmocka_unit_test(test_of_another_user),
		cmocka_unit_test(test_no_files),
		cmocka_unit_test(test_devices),
	};

	return cmocka_run_group_tests(tests, enter, leave);
}
