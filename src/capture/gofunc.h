/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions of Go programs, stripped ones too: the runtime needs their names and places, in a table
 * of its own (pclntab; Go's runtime/symtab.go and debug/gosym/pclntab.go).
 */
#ifndef TKS_GOFUNC_H
#define TKS_GOFUNC_H

#include <stddef.h>
#include <stdint.h>

#include <gelf.h>

enum { TKS_GO_RETURNS_MAX = 32 };

/* A function, by offsets of the file. */
struct tks_gofunc {
	uint64_t entry; /* behind the check of the stack's size, which may begin the function anew:
			 * the arguments are where they were. 0: not there */
	uint64_t returns[TKS_GO_RETURNS_MAX]; /* its return instructions */
	size_t nreturns;
};

/*
 * Looks for n functions by their full names ("crypto/tls.(*Conn).Write"); fd is the Elf's. 0;
 * -ENOEXEC: no Go program; -EOPNOTSUPP: of a Go that is not read (before 1.17, whose arguments are
 * not in registers, or a table of a later form); -EINVAL: it is broken.
 */
int tks_gofunc_find(Elf *elf, int fd, const char *const *names, size_t n, struct tks_gofunc *out);

#endif
