/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Budgeted memory for libraries, which don't say how large a block is when they free it: each has
 * its size in front of it. mem is a struct tks_mem; aligned for any type.
 */
#ifndef TKS_BLOCK_H
#define TKS_BLOCK_H

#include <stddef.h>

/* NULL without memory. Zeroed. */
void *tks_block_alloc(void *mem, size_t size);

/* n elements, checked for overflow. */
void *tks_block_calloc(void *mem, size_t n, size_t size);

/* NULL without memory; ptr then stays as it was. */
void *tks_block_resize(void *mem, void *ptr, size_t size);

void tks_block_free(void *mem, void *ptr);

#endif
