// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Concurrency as a step function of time, one an address: a sorted array of its steps. A step is
 * {time, how far up or down}; a query walks the steps of its window. Steps may be entered late,
 * near the end. What nobody asks about any more is folded into the level at the array's start.
 */
#include "concurrency.h"

#include <errno.h>
#include <string.h>

enum { STEPS_MIN = 32 };

struct step {
	int64_t t_ns;
	int32_t delta;
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
	size_t len = addr->family == 2 ? 4 : 16; /* AF_INET */

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
	a->from_ns = INT64_MIN;
	a->next = c->addresses;
	c->addresses = a;
	return a;
}

static int room(struct tks_conc *c, struct address *a)
{
	struct step *grown;
	size_t cap;

	if (a->n < a->cap)
		return 0;
	if (a->first > a->cap / 2) {
		memmove(a->steps, a->steps + a->first, (a->n - a->first) * sizeof(*a->steps));
		a->n -= a->first;
		a->first = 0;
		return 0;
	}
	cap = a->cap ? a->cap * 2 : STEPS_MIN;
	grown = tks_mem_resize(c->mem, a->steps, a->cap * sizeof(*grown), cap * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	a->steps = grown;
	a->cap = cap;
	return 0;
}

static int step(struct tks_conc *c, uint32_t netns, const struct tks_endpoint *addr, int64_t t,
		int32_t delta)
{
	struct address *a = find_or_make(c, netns, addr);
	size_t i;

	if (!a || room(c, a))
		return -ENOMEM;
	if (t < a->from_ns) {
		a->level += delta;
		return 0;
	}
	for (i = a->n; i > a->first && a->steps[i - 1].t_ns > t; i--)
		a->steps[i] = a->steps[i - 1];
	a->steps[i] = (struct step){ t, delta };
	a->n++;
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

static int64_t level_at(const struct address *a, int64_t t)
{
	int64_t level = a->level;

	for (size_t i = a->first; i < a->n && a->steps[i].t_ns <= t; i++)
		level += a->steps[i].delta;
	return level;
}

int tks_conc_query(const struct tks_conc *c, uint32_t netns, const struct tks_endpoint *addr,
		   int64_t at, int64_t from, int64_t to, int64_t *at_start, double *mean,
		   int64_t *max)
{
	const struct address *a = find(c, netns, addr);
	int64_t level, t = from;
	double area = 0;
	size_t i;

	if (!a || at < a->from_ns || from < a->from_ns || to < from)
		return -ENOENT;
	*at_start = level_at(a, at);
	level = a->level;
	for (i = a->first; i < a->n && a->steps[i].t_ns <= from; i++)
		level += a->steps[i].delta;
	*max = level;
	for (; i < a->n && a->steps[i].t_ns <= to; i++) {
		area += (double)level * (double)(a->steps[i].t_ns - t);
		t = a->steps[i].t_ns;
		level += a->steps[i].delta;
		/* Steps at one instant count together. */
		if (level > *max && (i + 1 == a->n || a->steps[i + 1].t_ns != t))
			*max = level;
	}
	area += (double)level * (double)(to - t);
	*mean = to > from ? area / (double)(to - from) : (double)*max;
	return 0;
}

void tks_conc_trim(struct tks_conc *c, int64_t t_ns)
{
	struct address **link = &c->addresses, *a;

	while ((a = *link)) {
		while (a->first < a->n && a->steps[a->first].t_ns < t_ns)
			a->level += a->steps[a->first++].delta;
		if (t_ns > a->from_ns)
			a->from_ns = t_ns;
		/* Nothing in flight and nothing remembered: the address may go. */
		if (a->first == a->n && !a->level) {
			*link = a->next;
			address_free(c, a);
		} else {
			link = &a->next;
		}
	}
}
