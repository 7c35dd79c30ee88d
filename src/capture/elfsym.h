/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions of an ELF file by name: where in the file they begin, for uprobes. By libelf. Files may
 * be hostile: what is read of one has an end, in bytes and in symbols.
 */
#ifndef TKS_ELFSYM_H
#define TKS_ELFSYM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gelf.h>

/* A function that the file defines. */
struct tks_elfsym {
	size_t name; /* which of the names that were looked for */
	uint64_t addr; /* as the file's segments are laid out */
	uint64_t offset; /* in the file */
	bool indirect; /* an ifunc: what is there chooses the function, and is not it */
};

/* A program or library of this machine, or NULL. The descriptor stays the caller's and must outlive
 * it; ended with elf_end. */
Elf *tks_elfsym_open(int fd);

/* The same of n bytes in memory, which must outlive it. */
Elf *tks_elfsym_open_memory(void *image, size_t n);

/*
 * Where in the file the code is that is loaded at addr. 0; -EINVAL: no program headers can be read;
 * -ENOENT: no executable segment has it.
 */
int tks_elfsym_offset(Elf *elf, uint64_t addr, uint64_t *offset);

/* The section of that name with its header, or NULL: none that has bytes in the file. */
Elf_Scn *tks_elfsym_section(Elf *elf, const char *name, GElf_Shdr *sh);

/* A section's bytes as they are in the file, or NULL: more than max, none, or not to be read. They
 * are the Elf's. */
Elf_Data *tks_elfsym_bytes(Elf_Scn *scn, size_t max);

/*
 * Looks for the names in the dynamic and the full symbol table, whatever their versions. Each place
 * is told of once for each of the names that it has (names may be listed twice). symbols and loaded
 * are the same, unless the symbols are in a file of their own (debug information). Returns how many
 * of out are filled, or -E2BIG: there are more than max.
 */
int tks_elfsym_find(Elf *symbols, Elf *loaded, const char *const *names, size_t n,
		    struct tks_elfsym *out, size_t max);

#endif
