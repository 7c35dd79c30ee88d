/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Memory with a budget. Every object of the core takes its memory from a struct tks_mem, so that
 * the total is bounded and known, and so that tests can make any allocation fail.
 */
#ifndef TOKENSNOOP_MEM_H
#define TOKENSNOOP_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Set up with TKS_MEM_INIT(limit) or by hand; fields are for reading only, but for limit and
 * fail_*. */
struct tks_mem {
	size_t limit; /* bytes that may be in use at once; 0: no limit */
	size_t used;
	size_t peak;
	uint64_t calls; /* allocations asked for so far */
	uint64_t fail_at; /* tests: the call with this number (from 1) and all later ones fail; 0:
			     none */
	bool fail_once; /* tests: only that one */
	uint64_t failed; /* allocations refused */
};

#define TKS_MEM_INIT(bytes)                                                                        \
	{                                                                                          \
		.limit = (bytes)                                                                   \
	}

/* size bytes, zeroed; NULL when the budget or the machine has no more. size must not be 0. */
void *tks_mem_alloc(struct tks_mem *m, size_t size);

/*
 * Grows or shrinks p (NULL: allocates) from old_size to new_size bytes; what is new is zeroed.
 * NULL on failure, p then stays as it was. new_size must not be 0.
 */
void *tks_mem_resize(struct tks_mem *m, void *p, size_t old_size, size_t new_size);

/* Gives back what came from the two above; size is the size it has now. NULL is nothing. */
void tks_mem_free(struct tks_mem *m, void *p, size_t size);

#endif
