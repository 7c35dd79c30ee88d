// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "early.h"

#include <errno.h>
#include <string.h>

enum { PACKETS_MAX = 256, WAIT_SECONDS = 5 };

struct packet {
	struct tks_list list;
	struct tks_event ev;
	uint8_t data[];
};

static struct packet *first(const struct tks_early *e)
{
	return tks_list_entry(e->packets.next, struct packet, list);
}

static void drop(struct tks_early *e, struct packet *p)
{
	tks_list_remove(&p->list);
	e->n--;
	tks_mem_free(e->mem, p, sizeof(*p) + p->ev.cap);
}

void tks_early_init(struct tks_early *e, struct tks_mem *mem)
{
	e->mem = mem;
	e->n = 0;
	tks_list_init(&e->packets);
}

void tks_early_free(struct tks_early *e)
{
	while (e->n)
		drop(e, first(e));
}

int tks_early_add(struct tks_early *e, const struct tks_event *ev)
{
	struct packet *p;

	while (e->n && (e->n == PACKETS_MAX ||
			first(e)->ev.ts_ns + WAIT_SECONDS * 1000000000ull < ev->ts_ns))
		drop(e, first(e));
	p = tks_mem_alloc(e->mem, sizeof(*p) + ev->cap);
	if (!p)
		return -ENOMEM;
	p->ev = *ev;
	memcpy(p->data, ev->data, ev->cap);
	p->ev.data = p->data;
	tks_list_append(&e->packets, &p->list);
	e->n++;
	return 0;
}

static bool same(const struct tks_endpoint *a, const struct tks_endpoint *b)
{
	return a->family == b->family && a->port == b->port &&
	       !memcmp(a->addr, b->addr, sizeof(a->addr));
}

void tks_early_take(struct tks_early *e, const struct tks_event *ev,
		    void (*fn)(void *ctx, const struct tks_event *packet), void *ctx)
{
	struct tks_list *l, *next;

	for (l = e->packets.next; l != &e->packets; l = next) {
		struct packet *p = tks_list_entry(l, struct packet, list);

		next = l->next;
		if (ev && (!same(&p->ev.local, &ev->local) || !same(&p->ev.peer, &ev->peer)))
			continue;
		if (ev) {
			p->ev.conn = ev->conn;
			p->ev.netns = ev->netns;
		}
		fn(ctx, &p->ev);
		drop(e, p);
	}
}
