// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The streams of an HTTP/2 connection that are open.
 */
#include "http2_stream.h"

#include <string.h>

enum { SIZE_MIN = 8 };

void tks_h2_streams_init(struct tks_h2_streams *t, struct tks_mem *mem)
{
	memset(t, 0, sizeof(*t));
	t->mem = mem;
	tks_list_init(&t->idle);
}

void tks_h2_streams_free(struct tks_h2_streams *t)
{
	for (uint32_t i = 0; i < t->n; i++)
		tks_mem_free(t->mem, t->at[i], sizeof(*t->at[i]));
	tks_mem_free(t->mem, t->at, t->size * sizeof(t->at[0]));
	tks_h2_streams_init(t, t->mem);
}

/* The place of the first one whose number is not below id. */
static uint32_t place_of(const struct tks_h2_streams *t, uint32_t id)
{
	uint32_t lo = 0, hi = t->n;

	if (hi && t->at[hi - 1]->id < id)
		return hi;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (t->at[mid]->id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct tks_h2_stream *tks_h2_stream_find(const struct tks_h2_streams *t, uint32_t id)
{
	uint32_t i = place_of(t, id);

	return i < t->n && t->at[i]->id == id ? t->at[i] : NULL;
}

static bool resize(struct tks_h2_streams *t, uint32_t size)
{
	struct tks_h2_stream **at =
		tks_mem_resize(t->mem, t->at, t->size * sizeof(t->at[0]), size * sizeof(t->at[0]));

	if (!at)
		return false;
	t->at = at;
	t->size = size;
	return true;
}

struct tks_h2_stream *tks_h2_stream_add(struct tks_h2_streams *t, uint32_t id)
{
	uint32_t i = place_of(t, id);
	struct tks_h2_stream *s;

	if (t->n == t->size && !resize(t, t->size ? 2 * t->size : SIZE_MIN))
		return NULL;
	s = tks_mem_alloc(t->mem, sizeof(*s));
	if (!s)
		return NULL;
	s->id = id;
	tks_list_append(&t->idle, &s->idle);
	memmove(t->at + i + 1, t->at + i, (t->n - i) * sizeof(t->at[0]));
	t->at[i] = s;
	t->n++;
	return s;
}

void tks_h2_stream_remove(struct tks_h2_streams *t, struct tks_h2_stream *s)
{
	uint32_t i = place_of(t, s->id);

	tks_list_remove(&s->idle);
	t->n--;
	memmove(t->at + i, t->at + i + 1, (t->n - i) * sizeof(t->at[0]));
	tks_mem_free(t->mem, s, sizeof(*s));
	if (t->size > SIZE_MIN && t->n < t->size / 4)
		resize(t, t->size / 2);
}
