// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "block.h"

#include <stdint.h>

#include "tokensnoop/mem.h"

/* In front of each block, and as large as any alignment asks for. */
union prefix {
	size_t size;
	max_align_t align;
};

void *tks_block_alloc(void *mem, size_t size)
{
	union prefix *p;

	if (size > SIZE_MAX - sizeof(*p))
		return NULL;
	p = tks_mem_alloc(mem, size + sizeof(*p));
	if (!p)
		return NULL;
	p->size = size + sizeof(*p);
	return p + 1;
}

void *tks_block_calloc(void *mem, size_t n, size_t size)
{
	size_t bytes;

	return __builtin_mul_overflow(n, size, &bytes) ? NULL : tks_block_alloc(mem, bytes);
}

void *tks_block_resize(void *mem, void *ptr, size_t size)
{
	union prefix *p = ptr;

	if (!p)
		return tks_block_alloc(mem, size);
	if (size > SIZE_MAX - sizeof(*p))
		return NULL;
	p = tks_mem_resize(mem, p - 1, p[-1].size, size + sizeof(*p));
	if (!p)
		return NULL;
	p->size = size + sizeof(*p);
	return p + 1;
}

void tks_block_free(void *mem, void *ptr)
{
	union prefix *p = ptr;

	if (p)
		tks_mem_free(mem, p - 1, p[-1].size);
}
