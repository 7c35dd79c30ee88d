// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Functions in ELF files: the files are made by elfsym_files.sh with compiler and binutils, which
 * also say what is to be found. Then the same files with each byte of their headers changed, cut
 * short, and with sizes that no memory has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "elfdebug.h"
#include "elfsym.h"
#include "gofunc.h"
#include "maps.h"

enum { MAX = 16, LINE = 256, TEXT = 4096 };

static const char *const names[] = { "SSL_write", "SSL_read", "BIO_write" };
enum { NNAMES = sizeof(names) / sizeof(names[0]) };

static bool can_open_below; /* valgrind 3.19 has no openat2 */

static char folder[] = "/tmp/tks-elfsym-XXXXXX";

static int run(const char *what)
{
	char command[LINE];

	snprintf(command, sizeof(command), "%s %s", what, folder);
	return system(command);
}

static int make_files(void **state)
{
	int fd = tks_open_below("/", "/etc/passwd");

	(void)state;
	can_open_below = fd >= 0;
	if (fd >= 0)
		close(fd);
	else if (fd != -ENOSYS)
		return -1;
	if (!mkdtemp(folder))
		return -1;
	return run("sh tests/unit/elfsym_files.sh");
}

static int remove_files(void **state)
{
	(void)state;
	return run("rm -rf");
}

static int open_file(const char *file)
{
	char path[LINE];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

/* As the tracer does: by its own symbols, else by those put aside. */
static int find(Elf *elf, int fd, const char *file, struct tks_elfsym *out, size_t max)
{
	char path[LINE], root[LINE];
	const char *const roots[] = { "/nowhere", root };
	struct tks_elfdebug d = { elf, fd, path, roots, can_open_below ? 2 : 0 };
	int n = tks_elfsym_find(elf, elf, names, NNAMES, out, max);

	snprintf(path, sizeof(path), "/opt/made/%s", file);
	snprintf(root, sizeof(root), "%s/root", folder);
	return n ?: tks_elfdebug_find(&d, names, NNAMES, out, max);
}

static int find_file(const char *file, struct tks_elfsym *out)
{
	int fd = open_file(file), n;
	Elf *elf = tks_elfsym_open(fd);

	assert_non_null(elf);
	n = find(elf, fd, file, out, MAX);
	elf_end(elf);
	close(fd);
	return n;
}

/* --- what is found --- */

static bool is_told(const struct tks_elfsym *out, int n, const char *name, uint64_t offset)
{
	for (int i = 0; i < n; i++) {
		if (!strcmp(names[out[i].name], name) && out[i].offset == offset)
			return true;
	}
	return false;
}

/* Where `expected` has the name in the file; 0: no more than nth lines do. */
static uint64_t expected_offset(const char *file, const char *name, int nth)
{
	char path[LINE], line[LINE], f[LINE], have[LINE];
	unsigned long offset, found = 0;
	FILE *in;

	snprintf(path, sizeof(path), "%s/expected", folder);
	in = fopen(path, "r");
	assert_non_null(in);
	while (!found && fgets(line, sizeof(line), in)) {
		assert_int_equal(sscanf(line, "%255s %255s %lu", f, have, &offset), 3);
		if (!strcmp(f, file) && !strcmp(have, name) && !nth--)
			found = offset;
	}
	fclose(in);
	return found;
}

/* Exactly the lines of `expected` that begin with the file's name; returns how many. */
static int assert_expected(const char *file, const struct tks_elfsym *out, int n)
{
	char path[LINE], line[LINE], f[LINE], name[LINE];
	unsigned long offset;
	int wanted = 0;
	FILE *in;

	snprintf(path, sizeof(path), "%s/expected", folder);
	in = fopen(path, "r");
	assert_non_null(in);
	while (fgets(line, sizeof(line), in)) {
		assert_int_equal(sscanf(line, "%255s %255s %lu", f, name, &offset), 3);
		if (strcmp(f, file) != 0)
			continue;
		wanted++;
		if (!is_told(out, n, name, offset))
			fail_msg("%s: %s is not found at %lu", file, name, offset);
	}
	fclose(in);
	assert_int_equal(n, wanted);
	return wanted;
}

static void assert_found(const char *file, int count)
{
	struct tks_elfsym out[MAX];
	int n = find_file(file, out);

	if (n < 0)
		fail_msg("%s: %s", file, strerror(-n));
	assert_int_equal(assert_expected(file, out, n), count);
}

static void own_symbols(void **state)
{
	(void)state;
	assert_found("full", 3);
	assert_found("static_pie", 3);
	assert_found("library.so", 3);
}

static void symbols_packed(void **state)
{
	(void)state;
	assert_found("mini_debug", 3);
	assert_found("static_mini", 3);
}

static void symbols_in_files(void **state)
{
	(void)state;
	if (!can_open_below)
		skip();
	assert_found("by_id", 3);
	assert_found("same_folder", 3);
	assert_found("debug_folder", 3);
	assert_found("global_folder", 3);
}

static void ifunc_is_told(void **state)
{
	struct tks_elfsym out[MAX];
	int n = find_file("ifunc.so", out);

	(void)state;
	assert_expected("ifunc.so", out, n);
	assert_int_equal(n, 2);
	for (int i = 0; i < n; i++)
		assert_int_equal(out[i].indirect, !strcmp(names[out[i].name], "SSL_write"));
}

static void versions_have_places(void **state)
{
	(void)state;
	assert_found("versions.so", 3); /* SSL_write's two differ, SSL_read's two don't */
}

/* Its table is not stripped. A byte like a return is within the instruction before the second. */
static void go_table(void **state)
{
	static const char *const go_names[] = { "main.mai", "main.main" };
	struct tks_gofunc go[2];
	int fd = open_file("go_stripped");
	Elf *elf = tks_elfsym_open(fd);

	(void)state;
	assert_int_equal(tks_gofunc_find(elf, fd, go_names, 2, go), 0);
	assert_int_equal(go[0].entry, 0);
	assert_int_equal(go[1].entry, expected_offset("go", "main.main", 0));
	assert_int_equal(go[1].nreturns, 2);
	assert_int_equal(go[1].returns[0], expected_offset("go", "return", 0));
	assert_int_equal(go[1].returns[1], expected_offset("go", "return", 1));
	elf_end(elf);
	close(fd);
}

/* --- what is not --- */

static void nothing_to_find(void **state)
{
	struct tks_elfsym out[MAX];

	(void)state;
	assert_int_equal(find_file("stripped", out), 0);
	assert_int_equal(find_file("undefined", out), 0);
	/* It has what is looked for, and none of the words of TLS. */
	assert_int_equal(find_file("quiet", out), 0);
	assert_int_equal(find_file("link_up", out), 0);
	assert_int_equal(find_file("link_long", out), 0);
}

static void refused_packed(void **state)
{
	struct tks_elfsym out[MAX];

	(void)state;
	assert_int_equal(find_file("bomb", out), -EFBIG);
	assert_int_equal(find_file("wide_window", out), -EFBIG);
	assert_int_equal(find_file("short", out), -EINVAL);
	assert_int_equal(find_file("no_xz", out), -EINVAL);
}

static void refused_files(void **state)
{
	struct tks_elfsym out[MAX];

	(void)state;
	if (!can_open_below)
		skip();
	assert_int_equal(find_file("foreign_id", out), -ESTALE);
	assert_int_equal(find_file("foreign_link", out), -ESTALE);
	assert_int_equal(find_file("moved", out), -ESTALE);
}

static void more_than_fit(void **state)
{
	struct tks_elfsym out[MAX];
	int fd = open_file("versions.so");
	Elf *elf = tks_elfsym_open(fd);

	(void)state;
	assert_int_equal(tks_elfsym_find(elf, elf, names, NNAMES, out, 3), 3);
	assert_int_equal(tks_elfsym_find(elf, elf, names, NNAMES, out, 2), -E2BIG);
	elf_end(elf);
	close(fd);
}

static void name_twice(void **state)
{
	static const char *const twice[] = { "SSL_read", "SSL_write", "SSL_read" };
	struct tks_elfsym out[MAX];
	int fd = open_file("full");
	Elf *elf = tks_elfsym_open(fd);
	unsigned int told[3] = { 0 };

	(void)state;
	assert_int_equal(tks_elfsym_find(elf, elf, twice, 3, out, MAX), 3);
	for (int i = 0; i < 3; i++)
		told[out[i].name]++;
	assert_int_equal(told[0], 1);
	assert_int_equal(told[1], 1);
	assert_int_equal(told[2], 1);
	elf_end(elf);
	close(fd);
}

/* --- changed files --- */

struct image {
	uint8_t *b;
	size_t n;
	int fd; /* in memory, with the same bytes */
};

static void load(struct image *im, const char *file)
{
	int fd = open_file(file);
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	im->n = (size_t)st.st_size;
	im->b = malloc(im->n);
	assert_int_equal(read(fd, im->b, im->n), (ssize_t)im->n);
	close(fd);
	im->fd = memfd_create("elf", MFD_CLOEXEC);
	assert_int_equal(pwrite(im->fd, im->b, im->n, 0), (ssize_t)im->n);
}

static void unload(struct image *im)
{
	close(im->fd);
	free(im->b);
}

static void put(struct image *im, size_t at, const void *bytes, size_t n)
{
	assert_true(at + n <= im->n);
	assert_int_equal(pwrite(im->fd, bytes, n, (off_t)at), (ssize_t)n);
}

/* Looks for everything; -ENOEXEC: it is not opened at all. */
static int look(struct image *im, const char *file, struct tks_elfsym *out)
{
	static const char *const go_names[] = { "main.main" };
	Elf *elf = tks_elfsym_open(im->fd);
	struct tks_gofunc go;
	int n;

	if (!elf)
		return -ENOEXEC;
	n = find(elf, im->fd, file, out, MAX);
	tks_gofunc_find(elf, im->fd, go_names, 1, &go);
	elf_end(elf);
	assert_true(n <= MAX);
	for (int i = 0; i < n; i++)
		assert_true(out[i].name < NNAMES);
	return n;
}

/* Versions that are a part of the name, as in the full table: the other is made unknown. */
static void versions_in_names(void **state)
{
	struct tks_elfsym out[MAX];
	const uint32_t progbits = SHT_PROGBITS;
	Elf64_Shdr sh;
	Elf64_Ehdr h;
	struct image im;
	size_t changed = 0;

	(void)state;
	load(&im, "versions.so");
	memcpy(&h, im.b, sizeof(h));
	for (size_t i = 0; i < h.e_shnum; i++) {
		size_t at = h.e_shoff + i * sizeof(sh);

		memcpy(&sh, im.b + at, sizeof(sh));
		if (sh.sh_type != SHT_DYNSYM)
			continue;
		put(&im, at + offsetof(Elf64_Shdr, sh_type), &progbits, sizeof(progbits));
		changed++;
	}
	assert_int_equal(changed, 1);
	assert_expected("versions.so", out, look(&im, "versions.so", out));
	unload(&im);
}

/* Each byte of a range gets each of some values; returns how often nothing was opened. */
static size_t change_each(struct image *im, const char *file, size_t from, size_t size)
{
	struct tks_elfsym out[MAX];
	size_t unopened = 0;

	assert_true(from <= im->n && size <= im->n - from);
	for (size_t at = from; at < from + size; at++) {
		const uint8_t values[] = { 0, 0xff, im->b[at] ^ 0x80, (uint8_t)(im->b[at] + 1) };

		for (size_t i = 0; i < sizeof(values); i++) {
			put(im, at, &values[i], 1);
			unopened += look(im, file, out) == -ENOEXEC;
		}
		put(im, at, &im->b[at], 1);
	}
	return unopened;
}

static void changed_headers(const char *file)
{
	struct tks_elfsym out[MAX];
	struct image im;
	Elf64_Ehdr h;

	load(&im, file);
	memcpy(&h, im.b, sizeof(h));
	/* At least the magic number, class, byte order and machine make it no file of ours. */
	assert_true(change_each(&im, file, 0, sizeof(h)) >= 8 * 3);
	change_each(&im, file, h.e_phoff, h.e_phnum * sizeof(Elf64_Phdr));
	change_each(&im, file, h.e_shoff, h.e_shnum * sizeof(Elf64_Shdr));
	/* As it was, it is as it was. */
	assert_expected(file, out, look(&im, file, out));
	unload(&im);
}

static void changed_full(void **state)
{
	(void)state;
	changed_headers("full");
}

static void changed_mini(void **state)
{
	(void)state;
	changed_headers("mini_debug");
}

/* Headers, and the table: it is all small. */
static void changed_go(void **state)
{
	struct image im;

	(void)state;
	load(&im, "go_stripped");
	assert_true(change_each(&im, "go_stripped", 0, im.n) >= 8 * 3);
	unload(&im);
}

/* Every eighth length, as valgrind runs this too; the headers at the end lose each part of them. */
static void cut_short(void **state)
{
	struct tks_elfsym out[MAX];
	struct image im;

	(void)state;
	load(&im, "mini_debug");
	for (size_t n = im.n - 1; n < im.n; n -= 8) {
		int found;

		assert_int_equal(ftruncate(im.fd, (off_t)n), 0);
		found = look(&im, "mini_debug", out);
		if (n < sizeof(Elf64_Ehdr))
			assert_int_equal(found, -ENOEXEC);
		/* The section headers are last: without the last of them there are none. */
		assert_true(found <= 0);
	}
	unload(&im);
}

/* All sections are as big as the file, which is a terabyte of holes. */
static void huge_sections(void **state)
{
	static const uint64_t sizes[] = { 1ull << 40, UINT64_MAX, 1ull << 63, 300ull << 20 };
	struct tks_elfsym out[MAX];
	struct rusage before, after;
	struct image im;
	Elf64_Ehdr h;

	(void)state;
	getrusage(RUSAGE_SELF, &before);
	load(&im, "mini_debug");
	memcpy(&h, im.b, sizeof(h));
	assert_int_equal(ftruncate(im.fd, 1ll << 40), 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (size_t k = 0; k < h.e_shnum; k++)
			put(&im, h.e_shoff + k * sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_size),
			    &sizes[i], sizeof(sizes[i]));
		assert_int_equal(look(&im, "mini_debug", out), 0);
	}
	unload(&im);
	getrusage(RUSAGE_SELF, &after);
	assert_true(after.ru_maxrss - before.ru_maxrss < 64 << 10); /* KiB */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_symbols),
		cmocka_unit_test(symbols_packed),
		cmocka_unit_test(symbols_in_files),
		cmocka_unit_test(ifunc_is_told),
		cmocka_unit_test(versions_have_places),
		cmocka_unit_test(nothing_to_find),
		cmocka_unit_test(huge_sections),
		cmocka_unit_test(refused_packed),
		cmocka_unit_test(refused_files),
		cmocka_unit_test(more_than_fit),
		cmocka_unit_test(name_twice),
		cmocka_unit_test(versions_in_names),
		cmocka_unit_test(changed_full),
		cmocka_unit_test(changed_mini),
		cmocka_unit_test(cut_short),
		cmocka_unit_test(go_table),
		cmocka_unit_test(changed_go),
	};

	return cmocka_run_group_tests(tests, make_files, remove_files);
}
