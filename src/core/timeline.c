// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A ring of stamps sorted by the offset at which each ends; a look-up is a binary search. Lost
 * bytes are stamps too, with time 0, so that the stamps leave no hole that a neighbour would cover.
 *
 * Records of one send carry the same times: their stamps are joined, which keeps a send one stamp
 * however many records it took.
 */
#include "timeline.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

enum { FIRST_SIZE = 8 };

static struct tks_stamp *nth(const struct tks_timeline *t, uint32_t i)
{
	return &t->ring[(t->head + i) & (t->size - 1)];
}

static uint64_t covered_to(const struct tks_timeline *t)
{
	return t->count ? nth(t, t->count - 1)->end : t->start;
}

static void drop_oldest(struct tks_timeline *t)
{
	t->start = nth(t, 0)->end;
	t->head = (t->head + 1) & (t->size - 1);
	t->count--;
}

static int grow(struct tks_timeline *t, struct tks_mem *mem)
{
	uint32_t size = t->size ? 2 * t->size : FIRST_SIZE;
	struct tks_stamp *ring = tks_mem_alloc(mem, size * sizeof(*ring));

	if (!ring)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->count; i++)
		ring[i] = *nth(t, i);
	tks_mem_free(mem, t->ring, t->size * sizeof(*ring));
	t->ring = ring;
	t->size = size;
	t->head = 0;
	return 0;
}

/* Room for one more: a larger ring, else the place of the oldest stamp. */
static int make_room(struct tks_timeline *t, struct tks_mem *mem)
{
	if (t->count < t->size)
		return 0;
	if (t->size < TKS_TIMELINE_MAX && !grow(t, mem))
		return 0;
	if (!t->count)
		return -ENOMEM;
	drop_oldest(t);
	return 0;
}

int tks_timeline_push(struct tks_timeline *t, struct tks_mem *mem, const struct tks_stamp *st)
{
	struct tks_stamp now = *st, *last;

	if (now.end <= covered_to(t))
		return 0;
	if (now.ts_ns && now.ts_ns < t->newest_ns)
		now.ts_ns = t->newest_ns;
	if (now.ts_ns)
		t->newest_ns = now.ts_ns;
	last = t->count ? nth(t, t->count - 1) : NULL;
	if (last && last->ts_ns == now.ts_ns && last->ret_ns == now.ret_ns &&
	    last->tls_ns == now.tls_ns) {
		last->end = now.end;
		return 0;
	}
	if (make_room(t, mem)) {
		t->start = now.end;
		return -ENOMEM;
	}
	t->count++;
	*nth(t, t->count - 1) = now;
	return 0;
}

/* Index of the stamp that covers off; start <= off < the last stamp's end. */
static uint32_t search(const struct tks_timeline *t, uint64_t off)
{
	uint32_t low = 0, high = t->count - 1;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (nth(t, mid)->end > off)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

const struct tks_stamp *tks_timeline_at(const struct tks_timeline *t, uint64_t off)
{
	const struct tks_stamp *st;

	if (off < t->start || off >= covered_to(t))
		return NULL;
	st = nth(t, search(t, off));
	return st->ts_ns ? st : NULL;
}

void tks_timeline_trim(struct tks_timeline *t, uint64_t off)
{
	while (t->count > 1 && nth(t, 0)->end <= off)
		drop_oldest(t);
}

void tks_timeline_free(struct tks_timeline *t, struct tks_mem *mem)
{
	tks_mem_free(mem, t->ring, t->size * sizeof(*t->ring));
	memset(t, 0, sizeof(*t));
}
