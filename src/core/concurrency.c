// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Concurrency as a step function of time, one an address: a sorted array of {time, level from then
 * on}, one entry an instant. A query finds its window by bisection and walks it; the level before
 * the window is in the array, so what lies further back costs nothing. Steps may be entered late:
 * those behind them are raised, and they are few, since late means late by milliseconds.
 *
 * The history is bounded. When it is full, or memory is, its older half is forgotten: questions
 * that reach back there are answered "not known", the level itself stays right.
 */
#include "concurrency.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

enum { STEPS_MIN = 32, STEPS_MAX = 1 << 20 };

struct step {
	int64_t t_ns;
	int64_t level; /* from t_ns on */
};

struct address {
	struct address *next;
	uint32_t netns;
	struct tks_endpoint addr;
	int64_t level; /* before the first step */
	int64_t from_ns; /* the history reaches back to here */
	struct step *steps;
	size_t first, n, cap; /* steps[first .. n) are valid */
};

struct tks_conc {
	struct tks_mem *mem;
	struct address *addresses;
};

struct tks_conc *tks_conc_new(struct tks_mem *mem)
{
	struct tks_conc *c = tks_mem_alloc(mem, sizeof(*c));

	if (c)
		c->mem = mem;
	return c;
}

static void address_free(struct tks_conc *c, struct address *a)
{
	tks_mem_free(c->mem, a->steps, a->cap * sizeof(*a->steps));
	tks_mem_free(c->mem, a, sizeof(*a));
}

void tks_conc_free(struct tks_conc *c)
{
	struct address *a, *next;

	if (!c)
		return;
	for (a = c->addresses; a; a = next) {
		next = a->next;
		address_free(c, a);
	}
	tks_mem_free(c->mem, c, sizeof(*c));
}

static bool same(const struct address *a, uint32_t netns, const struct tks_endpoint *addr)
{
	size_t len = addr->family == AF_INET ? 4 : sizeof(addr->addr);

	return a->netns == netns && a->addr.family == addr->family && a->addr.port == addr->port &&
	       !memcmp(a->addr.addr, addr->addr, len);
}

static struct address *find(const struct tks_conc *c, uint32_t netns,
			    const struct tks_endpoint *addr)
{
	struct address *a = c->addresses;

	while (a && !same(a, netns, addr))
		a = a->next;
	return a;
}

static struct address *find_or_make(struct tks_conc *c, uint32_t netns,
				    const struct tks_endpoint *addr)
{
	struct address *a = find(c, netns, addr);

	if (a)
		return a;
	a = tks_mem_alloc(c->mem, sizeof(*a));
	if (!a)
		return NULL;
	a->netns = netns;
	a->addr = *addr;
	a->addr.name = NULL;
	a->from_ns = INT64_MIN;
	a->next = c->addresses;
	c->addresses = a;
	return a;
}

/* The first step after t, or a->n. */
static size_t after(const struct address *a, int64_t t)
{
	size_t low = a->first, high = a->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (a->steps[mid].t_ns <= t)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* The level just before steps[i]. */
static int64_t level_before(const struct address *a, size_t i)
{
	return i > a->first ? a->steps[i - 1].level : a->level;
}

/* Nobody can ask about times before steps[i] any more. */
static void forget(struct address *a, size_t i)
{
	a->level = level_before(a, i);
	a->first = i;
}

static void close_ranks(struct address *a)
{
	memmove(a->steps, a->steps + a->first, (a->n - a->first) * sizeof(*a->steps));
	a->n -= a->first;
	a->first = 0;
}

static int grow(struct tks_conc *c, struct address *a)
{
	size_t cap = a->cap ? a->cap * 2 : STEPS_MIN;
	struct step *grown;

	if (cap > STEPS_MAX)
		return -ENOSPC;
	grown = tks_mem_resize(c->mem, a->steps, a->cap * sizeof(*grown), cap * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	a->steps = grown;
	a->cap = cap;
	return 0;
}

/* Room for one step more. */
static int room(struct tks_conc *c, struct address *a)
{
	if (a->n < a->cap)
		return 0;
	if (a->first <= a->cap / 2 && !grow(c, a))
		return 0;
	if (!a->cap)
		return -ENOMEM;
	if (a->first < a->cap / 2) {
		forget(a, a->cap / 2);
		a->from_ns = a->steps[a->first].t_ns;
	}
	close_ranks(a);
	return 0;
}

static int step(struct tks_conc *c, uint32_t netns, const struct tks_endpoint *addr, int64_t t,
		int64_t delta)
{
	struct address *a = find_or_make(c, netns, addr);
	size_t i;

	if (!a || room(c, a))
		return -ENOMEM;
	i = after(a, t);
	if (t < a->from_ns) {
		a->level += delta;
	} else if (i == a->first || a->steps[i - 1].t_ns != t) {
		memmove(a->steps + i + 1, a->steps + i, (a->n - i) * sizeof(*a->steps));
		a->n++;
		a->steps[i] = (struct step){ t, level_before(a, i) + delta };
		i++;
	} else {
		a->steps[i - 1].level += delta;
	}
	for (; i < a->n; i++)
		a->steps[i].level += delta;
	return 0;
}

int tks_conc_begin(struct tks_conc *c, uint32_t netns, const struct tks_endpoint *addr,
		   int64_t t_ns)
{
	return step(c, netns, addr, t_ns, 1);
}

int tks_conc_end(struct tks_conc *c, uint32_t netns, const struct tks_endpoint *addr, int64_t t_ns)
{
	return step(c, netns, addr, t_ns, -1);
}

int tks_conc_query(const struct tks_conc *c, uint32_t netns, const struct tks_endpoint *addr,
		   int64_t at, int64_t from, int64_t to, int64_t *at_start, double *mean,
		   int64_t *max)
{
	const struct address *a = find(c, netns, addr);
	int64_t level, t = from;
	double area = 0;

	if (!a || at < a->from_ns || from < a->from_ns || to < from)
		return -ENOENT;
	*at_start = level_before(a, after(a, at));
	level = *max = level_before(a, after(a, from));
	for (size_t i = after(a, from); i < a->n && a->steps[i].t_ns <= to; i++) {
		area += (double)level * (double)(a->steps[i].t_ns - t);
		t = a->steps[i].t_ns;
		level = a->steps[i].level;
		if (level > *max)
			*max = level;
	}
	area += (double)level * (double)(to - t);
	*mean = to > from ? area / (double)(to - from) : (double)level;
	return 0;
}

void tks_conc_trim(struct tks_conc *c, int64_t t_ns)
{
	struct address **link = &c->addresses, *a;

	while ((a = *link)) {
		if (t_ns > a->from_ns) {
			forget(a, after(a, t_ns - 1));
			a->from_ns = t_ns;
		}
		/* Nothing in flight and nothing remembered: the address may go. */
		if (a->first == a->n && !a->level) {
			*link = a->next;
			address_free(c, a);
		} else {
			link = &a->next;
		}
	}
}
