// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Input files: their kind by their first bytes, reading from files and pipes, lines of any length.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* The commands' code is in no library. */
#include "source.c"

/* A source over a pipe that holds these bytes. */
static void open_pipe(struct tks_source *s, const char *data, size_t n)
{
	int fd[2], stdin_was = dup(STDIN_FILENO);

	assert_int_equal(pipe(fd), 0);
	assert_int_equal(write(fd[1], data, n), n);
	close(fd[1]);
	dup2(fd[0], STDIN_FILENO);
	close(fd[0]);
	assert_int_equal(tks_source_open(s, "-"), 0);
	s->fd = dup(STDIN_FILENO);
	s->own_fd = true;
	dup2(stdin_was, STDIN_FILENO);
	close(stdin_was);
}

static void test_kinds(void **state)
{
	static const struct {
		const char *data;
		size_t n;
		enum tks_source_kind want;
	} cases[] = {
		{ "", 0, TKS_SOURCE_EMPTY },
		{ "\xa1\xb2\xc3\xd4", 4, TKS_SOURCE_PACKETS },
		{ "\xd4\xc3\xb2\xa1\2\0\4\0", 8, TKS_SOURCE_PACKETS },
		{ "\x4d\x3c\xb2\xa1", 4, TKS_SOURCE_PACKETS },
		{ "\x0a\x0d\x0d\x0a", 4, TKS_SOURCE_PACKETS },
		{ "\xa1\xb2\xc3", 3, TKS_SOURCE_FOREIGN },
		{ "{\"type\":\"request\"}\n", 19, TKS_SOURCE_RECORDS },
		{ "\n \r\n\t{", 6, TKS_SOURCE_RECORDS },
		{ "\n\n", 2, TKS_SOURCE_RECORDS },
		{ "\0{", 2, TKS_SOURCE_FOREIGN },
		{ "[]", 2, TKS_SOURCE_FOREIGN },
		{ "\x1f\x8b\x08", 3, TKS_SOURCE_COMPRESSED },
		{ "\x28\xb5\x2f\xfd", 4, TKS_SOURCE_COMPRESSED },
		{ "\xfd"
		  "7zXZ\0",
		  6, TKS_SOURCE_COMPRESSED },
		{ "BZh9", 4, TKS_SOURCE_COMPRESSED },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tks_source s;

		open_pipe(&s, cases[i].data, cases[i].n);
		assert_int_equal(tks_source_kind(&s), cases[i].want);
		tks_source_close(&s);
	}
}

/* What was read ahead is not lost, whatever the input's length around its size. */
static void test_pipe_is_read_from_its_first_byte(void **state)
{
	char data[200], got[300];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)i;
	for (size_t n = 0; n <= sizeof(data); n++) {
		struct tks_source s;
		FILE *f;

		open_pipe(&s, data, n);
		f = tks_source_stream(&s);
		assert_non_null(f);
		assert_int_equal(fread(got, 1, sizeof(got), f), n);
		assert_memory_equal(got, data, n);
		assert_int_equal(s.done, n);
		fclose(f);
		tks_source_close(&s);
	}
}

static void test_files_that_cannot_be(void **state)
{
	struct tks_source s;

	(void)state;
	assert_int_equal(tks_source_open(&s, "/nonexistent"), -ENOENT);
	tks_source_close(&s);
	assert_int_equal(tks_source_open(&s, "/"), -EISDIR);
	tks_source_close(&s);
}

static void expect_line(struct tks_lines *l, enum tks_line kind, const char *text, size_t n)
{
	char *line;
	size_t len;

	assert_int_equal(tks_lines_next(l, &line, &len), kind);
	if (kind != TKS_LINE_WHOLE && kind != TKS_LINE_LAST)
		return;
	assert_int_equal(len, n);
	assert_memory_equal(line, text, n);
}

static void test_lines(void **state)
{
	char text[] = "one\n\ntwo\r\nt\0hree\nlast";
	struct tks_lines l = { .f = fmemopen(text, sizeof(text) - 1, "r") };

	(void)state;
	expect_line(&l, TKS_LINE_WHOLE, "one", 3);
	expect_line(&l, TKS_LINE_WHOLE, "", 0);
	expect_line(&l, TKS_LINE_WHOLE, "two\r", 4);
	expect_line(&l, TKS_LINE_WHOLE, "t\0hree", 6);
	expect_line(&l, TKS_LINE_LAST, "last", 4);
	expect_line(&l, TKS_LINE_END, "", 0);
	expect_line(&l, TKS_LINE_END, "", 0);
	fclose(l.f);
	tks_lines_free(&l);
}

/* Lines of many lengths around the buffer's sizes, which begin at 64 KiB. */
static void test_long_lines(void **state)
{
	static const size_t lengths[] = {
		65534, 65535, 65536, 65537, 1, 131071, 131072, 0, 300000
	};
	enum { N = sizeof(lengths) / sizeof(lengths[0]) };
	size_t size = 0;
	char *text = malloc(1000000);
	struct tks_lines l = { 0 };

	(void)state;
	assert_non_null(text);
	for (int i = 0; i < N; i++) {
		memset(text + size, 'a' + i, lengths[i]);
		size += lengths[i];
		text[size++] = '\n';
	}
	l.f = fmemopen(text, size, "r");
	size = 0;
	for (int i = 0; i < N; i++) {
		expect_line(&l, TKS_LINE_WHOLE, text + size, lengths[i]);
		size += lengths[i] + 1;
	}
	expect_line(&l, TKS_LINE_END, "", 0);
	fclose(l.f);
	tks_lines_free(&l);
	free(text);
}

/* At the limit a line is still read; one byte more is stepped over, and the next line is whole. */
static void test_line_limit(void **state)
{
	size_t max = TKS_LINE_MAX;
	char *text = malloc(2 * max + 100);
	struct tks_lines l = { 0 };

	(void)state;
	assert_non_null(text);
	memset(text, 'x', 2 * max + 100);
	text[max - 1] = '\n'; /* with its LF it just fits */
	text[max + max] = '\n';
	memcpy(text + max + max + 1, "next\n", 5);
	l.f = fmemopen(text, 2 * max + 6, "r");
	expect_line(&l, TKS_LINE_WHOLE, text, max - 1);
	expect_line(&l, TKS_LINE_LONG, NULL, 0);
	expect_line(&l, TKS_LINE_WHOLE, "next", 4);
	expect_line(&l, TKS_LINE_END, "", 0);
	fclose(l.f);
	tks_lines_free(&l);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_pipe_is_read_from_its_first_byte),
		cmocka_unit_test(test_files_that_cannot_be),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_long_lines),
		cmocka_unit_test(test_line_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
