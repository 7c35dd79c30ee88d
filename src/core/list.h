/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A doubly linked ring with a head, as in the kernel's list.h, as much of it as is used. */
#ifndef TKS_LIST_H
#define TKS_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct tks_list {
	struct tks_list *prev, *next;
};

#define tks_list_entry(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline void tks_list_init(struct tks_list *head)
{
	head->prev = head->next = head;
}

static inline bool tks_list_empty(const struct tks_list *head)
{
	return head->next == head;
}

/* Before head, that is at the list's end. */
static inline void tks_list_append(struct tks_list *head, struct tks_list *item)
{
	item->prev = head->prev;
	item->next = head;
	head->prev->next = item;
	head->prev = item;
}

/* The item may be removed again, which does nothing then. */
static inline void tks_list_remove(struct tks_list *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
	tks_list_init(item);
}

#endif
