/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Functions of an ELF file by name: where in the file they begin, for uprobes. By libelf. */
#ifndef TKS_ELFSYM_H
#define TKS_ELFSYM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gelf.h>

/* A defined function (or ifunc) of that name begins at this offset of the file. */
typedef void (*tks_elfsym_fn)(void *ctx, size_t name, uint64_t offset);

/* A program or library of this machine, with a header that reading it can trust. */
bool tks_elfsym_readable(int fd);

/*
 * Where in the file the code is that is loaded at addr. 0; -EINVAL: no program headers can be read;
 * -ENOENT: no executable segment has it.
 */
int tks_elfsym_offset(Elf *elf, uint64_t addr, uint64_t *offset);

/*
 * Looks for names (n of them) in the dynamic and the full symbol table; a name that is in both is
 * told of twice. 0; -ENOEXEC: no ELF file of this machine; -EINVAL: it is broken.
 */
int tks_elfsym_find(int fd, const char *const *names, size_t n, tks_elfsym_fn fn, void *ctx);

#endif
