// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The connection table: chained hash with a random seed (keys come from the kernel, but in packet
 * files from whoever wrote the file), grown by doubling, and a list by last activity.
 */
#include "conn.h"

#include <errno.h>
#include <sys/random.h>

enum { BUCKETS_MIN = 256 };

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014) over key and seed. */
static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ULL;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static struct tks_conn **bucket(const struct tks_conns *t, uint64_t key)
{
	return &t->buckets[mix(key ^ t->seed) & (t->nbuckets - 1)];
}

int tks_conns_init(struct tks_conns *t, struct tks_mem *mem, uint32_t max)
{
	t->mem = mem;
	t->max = max;
	t->count = 0;
	t->nbuckets = BUCKETS_MIN;
	t->buckets = tks_mem_alloc(mem, BUCKETS_MIN * sizeof(*t->buckets));
	if (!t->buckets)
		return -ENOMEM;
	tks_list_init(&t->lru);
	/* Short reads leave the seed partly zero, which only makes it easier to guess. */
	if (getrandom(&t->seed, sizeof(t->seed), GRND_NONBLOCK) < 0)
		t->seed = (uintptr_t)t;
	return 0;
}

struct tks_conn *tks_conns_find(const struct tks_conns *t, uint64_t key)
{
	struct tks_conn *c = *bucket(t, key);

	while (c && c->key != key)
		c = c->hash_next;
	return c;
}

/* Without memory the chains just get longer. */
static void grow(struct tks_conns *t)
{
	struct tks_conns bigger = *t;

	bigger.nbuckets = t->nbuckets * 2;
	bigger.buckets = tks_mem_alloc(t->mem, bigger.nbuckets * sizeof(*t->buckets));
	if (!bigger.buckets)
		return;
	for (uint32_t i = 0; i < t->nbuckets; i++) {
		struct tks_conn *c = t->buckets[i], *next;

		for (; c; c = next) {
			struct tks_conn **b = bucket(&bigger, c->key);

			next = c->hash_next;
			c->hash_next = *b;
			*b = c;
		}
	}
	tks_mem_free(t->mem, t->buckets, t->nbuckets * sizeof(*t->buckets));
	t->buckets = bigger.buckets;
	t->nbuckets = bigger.nbuckets;
}

struct tks_conn *tks_conns_add(struct tks_conns *t, uint64_t key)
{
	struct tks_conn *c = tks_mem_alloc(t->mem, sizeof(*c));
	struct tks_conn **b;

	if (!c)
		return NULL;
	if (t->count >= t->nbuckets)
		grow(t);
	b = bucket(t, key);
	c->key = key;
	c->hash_next = *b;
	*b = c;
	tks_list_init(&c->exchanges);
	tks_list_append(&t->lru, &c->lru);
	t->count++;
	return c;
}

void tks_conns_touch(struct tks_conns *t, struct tks_conn *c)
{
	tks_list_remove(&c->lru);
	tks_list_append(&t->lru, &c->lru);
}

struct tks_conn *tks_conns_oldest(const struct tks_conns *t)
{
	if (tks_list_empty(&t->lru))
		return NULL;
	return tks_list_entry(t->lru.next, struct tks_conn, lru);
}

void tks_conns_remove(struct tks_conns *t, struct tks_conn *c)
{
	struct tks_conn **b = bucket(t, c->key);

	while (*b != c)
		b = &(*b)->hash_next;
	*b = c->hash_next;
	tks_list_remove(&c->lru);
	t->count--;
	tks_mem_free(t->mem, c, sizeof(*c));
}

void tks_conns_free(struct tks_conns *t)
{
	tks_mem_free(t->mem, t->buckets, t->nbuckets * sizeof(*t->buckets));
	t->buckets = NULL;
}
