// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tls_int.h"

#include <errno.h>
#include <string.h>

enum {
	MARKS_MAX = 1024, /* ciphertext beginnings remembered of an object: what waits to be sent
			     when a client is slow */
	MARKS_ALL = 131072, /* and of all; past it each object keeps one */
	MARK_MIN =
		13, /* bytes of a record that make it known again: the header and 8 random ones */
};

/* The header says too little; what follows is as good as random. */
static struct tks_tls_mark **mark_bucket(struct tks_tls *t, const uint8_t *head)
{
	uint64_t v;

	memcpy(&v, head + TKS_TLS_HEADER, sizeof(v));
	return &t->marks[tks_tls_mix(v)];
}

struct tks_tls_mark *tks_tls_mark_find(struct tks_tls *t, const uint8_t *head, uint8_t nhead)
{
	struct tks_tls_mark *m;

	if (nhead < MARK_MIN)
		return NULL;
	for (m = *mark_bucket(t, head); m; m = m->hash_next) {
		uint8_t n = m->nhead < nhead ? m->nhead : nhead;

		if (!memcmp(m->head, head, n))
			return m;
	}
	return NULL;
}

void tks_tls_mark_remove(struct tks_tls *t, struct tks_tls_mark *m)
{
	struct tks_tls_mark **p = mark_bucket(t, m->head);

	while (*p != m)
		p = &(*p)->hash_next;
	*p = m->hash_next;
	tks_list_remove(&m->list);
	m->obj->nmarks--;
	t->nmarks--;
	tks_mem_free(t->mem, m, sizeof(*m));
}

static struct tks_tls_mark *first_mark(const struct tks_tls_object *o)
{
	return tks_list_entry(o->marks.next, struct tks_tls_mark, list);
}

int tks_tls_mark_add(struct tks_tls *t, struct tks_tls_object *o, const struct tks_event *ev)
{
	uint8_t n = ev->cap < TKS_TLS_HEAD ? (uint8_t)ev->cap : TKS_TLS_HEAD;
	struct tks_tls_mark *m, **bucket;

	/* A library hands the same bytes to a BIO again, and from one BIO to the next. */
	if (n < MARK_MIN || tks_tls_mark_find(t, ev->data, n))
		return 0;
	while (o->nmarks && (o->nmarks >= MARKS_MAX || t->nmarks >= MARKS_ALL))
		tks_tls_mark_remove(t, first_mark(o));
	m = tks_mem_alloc(t->mem, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->obj = o;
	m->call = ev->call;
	m->nhead = n;
	memcpy(m->head, ev->data, n);
	bucket = mark_bucket(t, m->head);
	m->hash_next = *bucket;
	*bucket = m;
	tks_list_append(&o->marks, &m->list);
	o->nmarks++;
	t->nmarks++;
	o->marks_writes |= ev->call != 0;
	o->marked = true;
	return 0;
}
