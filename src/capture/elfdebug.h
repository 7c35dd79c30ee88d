/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Functions of a stripped ELF file, by the symbols that were put aside. */
#ifndef TKS_ELFDEBUG_H
#define TKS_ELFDEBUG_H

#include <stddef.h>

#include "elfsym.h"

/* A file, and where files with its symbols may be. */
struct tks_elfdebug {
	Elf *elf;
	int fd; /* of it */
	const char *path; /* as its process has it */
	const char *const *roots; /* folders that paths are looked up below */
	size_t nroots;
};

/*
 * As tks_elfsym_find, by the symbols within .gnu_debugdata, else in a file that .gnu_debuglink or
 * the build-id names; only in files that look like TLS. A number, 0: there are no such symbols, or
 * none of those names; -ESTALE: what is there is of another build; -EFBIG: it is too big; -EINVAL:
 * it is broken; -ENOMEM.
 */
int tks_elfdebug_find(const struct tks_elfdebug *d, const char *const *names, size_t n,
		      struct tks_elfsym *out, size_t max);

#endif
