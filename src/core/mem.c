// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The budgeted allocator: malloc with an account. Callers state sizes when they free, so that the
 * account needs no header in front of each block.
 */
#include "tokensnoop/mem.h"

#include <stdlib.h>
#include <string.h>

static bool asked_to_fail(const struct tks_mem *m)
{
	return m->fail_at && (m->fail_once ? m->calls == m->fail_at : m->calls >= m->fail_at);
}

static bool refuse(struct tks_mem *m, size_t more)
{
	m->calls++;
	if (asked_to_fail(m) || (m->limit && (m->used > m->limit || more > m->limit - m->used))) {
		m->failed++;
		return true;
	}
	return false;
}

static void account(struct tks_mem *m, size_t old_size, size_t new_size)
{
	m->used = m->used - old_size + new_size;
	if (m->used > m->peak)
		m->peak = m->used;
}

void *tks_mem_alloc(struct tks_mem *m, size_t size)
{
	void *p;

	if (refuse(m, size))
		return NULL;
	p = calloc(1, size);
	if (!p) {
		m->failed++;
		return NULL;
	}
	account(m, 0, size);
	return p;
}

void *tks_mem_resize(struct tks_mem *m, void *p, size_t old_size, size_t new_size)
{
	char *q;

	if (!p)
		return tks_mem_alloc(m, new_size);
	if (new_size > old_size && refuse(m, new_size - old_size))
		return NULL;
	q = realloc(p, new_size);
	if (!q) {
		m->failed++;
		return NULL;
	}
	if (new_size > old_size)
		memset(q + old_size, 0, new_size - old_size);
	account(m, old_size, new_size);
	return q;
}

void tks_mem_free(struct tks_mem *m, void *p, size_t size)
{
	if (!p)
		return;
	free(p);
	m->used -= size;
}
