/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Data that came too early, kept until its place is known: first packets of connections that have
 * no socket of their own yet (the listener waits for data: TCP_DEFER_ACCEPT), known by their
 * addresses; and, a list each connection, answers whose request is still on its way to us.
 */
#ifndef TKS_EARLY_H
#define TKS_EARLY_H

#include "list.h"
#include "tokensnoop/event.h"
#include "tokensnoop/mem.h"

struct tks_early {
	struct tks_mem *mem;
	struct tks_list packets; /* oldest first */
	size_t n;
};

void tks_early_init(struct tks_early *e, struct tks_mem *mem);
void tks_early_free(struct tks_early *e);

/* Keeps the packet (of the bytes that were captured). 0 or -ENOMEM. */
int tks_early_add(struct tks_early *e, const struct tks_event *ev);

/* Hands over what was kept for the addresses of the connection ev, in order, as its own, and
 * forgets it. ev NULL: all that was kept, as it is. */
void tks_early_take(struct tks_early *e, const struct tks_event *ev,
		    void (*fn)(void *ctx, const struct tks_event *packet), void *ctx);

#endif
