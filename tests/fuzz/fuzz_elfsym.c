// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A file that a process has mapped: its functions are looked for by all ways that need no other
 * file, Go's table among them. Whatever it is, what is told of is within the bounds, and all memory
 * is given back.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "elfdebug.h"
#include "elfsym.h"
#include "gofunc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX = 8 };

static void look(Elf *elf, int fd)
{
	static const char *const names[] = { "SSL_write", "SSL_read", "BIO_write" };
	static const char *const go_names[] = { "main.main", "main.f" };
	struct tks_elfdebug d = { elf, fd, "/x", NULL, 0 };
	struct tks_elfsym out[MAX];
	struct tks_gofunc go[2];
	int n = tks_elfsym_find(elf, elf, names, 3, out, MAX);

	if (n > MAX)
		abort();
	for (int i = 0; i < n; i++) {
		if (out[i].name >= 3)
			abort();
	}
	if (tks_elfdebug_find(&d, names, 3, out, MAX) > MAX)
		abort();
	if (!tks_gofunc_find(elf, fd, go_names, 2, go) &&
	    (go[0].nreturns > TKS_GO_RETURNS_MAX || go[1].nreturns > TKS_GO_RETURNS_MAX))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	Elf *elf;

	if (fd < 0)
		fd = memfd_create("elf", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size)
		return 0;
	elf = tks_elfsym_open(fd);
	if (elf)
		look(elf, fd);
	elf_end(elf);
	return 0;
}
