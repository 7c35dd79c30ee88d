// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tls_int.h"

#include <errno.h>
#include <string.h>

enum {
	OBJECTS_MAX = 65536, /* past it the one idle longest goes */
};

struct tks_tls_piece *tks_tls_first_piece(const struct tks_tls_object *o, enum tks_dir dir)
{
	if (tks_list_empty(&o->pieces[dir]))
		return NULL;
	return tks_list_entry(o->pieces[dir].next, struct tks_tls_piece, list);
}

void tks_tls_piece_free(struct tks_tls *t, struct tks_tls_object *o, struct tks_tls_piece *p)
{
	tks_list_remove(&p->list);
	o->pending -= p->cap;
	o->npieces--;
	tks_mem_free(t->mem, p, sizeof(*p) + p->cap);
}

void tks_tls_hand_on(struct tks_tls *t, struct tks_tls_object *o, struct tks_tls_piece *p,
		     uint32_t n, const struct tks_stamp *st)
{
	uint32_t cap = p->cap > p->at ? p->cap - p->at : 0;
	struct tks_segment seg = {
		.len = n,
		.cap = cap < n ? cap : n,
		.data = p->data + (p->at < p->cap ? p->at : p->cap),
		.ts_ns = st->ts_ns,
		.ret_ns = st->ret_ns,
		.tls_ns = st->tls_ns,
	};
	void *conn = o->conn ? o->conn->owner : o->own;

	o->out[p->dir] += p->missing;
	p->missing = 0;
	seg.seq = o->out[p->dir];
	o->out[p->dir] += n;
	p->at += n;
	if (conn && n)
		t->ops->plain(t->ctx, conn, p->dir, &seg);
}

static struct tks_tls_object **object_bucket(struct tks_tls *t, uint32_t pid, uint64_t id)
{
	return &t->objects[tks_tls_mix(id ^ (uint64_t)pid << 40)];
}

struct tks_tls_object *tks_tls_object_find(struct tks_tls *t, uint32_t pid, uint64_t id)
{
	struct tks_tls_object *o = *object_bucket(t, pid, id);

	while (o && (o->id != id || o->pid != pid))
		o = o->hash_next;
	return o;
}

void tks_tls_drop_pieces(struct tks_tls *t, struct tks_tls_object *o)
{
	struct tks_tls_piece *p;

	for (int dir = TKS_RX; dir <= TKS_TX; dir++) {
		while ((p = tks_tls_first_piece(o, dir))) {
			o->out[dir] += p->missing + p->len - p->at;
			tks_tls_piece_free(t, o, p);
		}
	}
	tks_list_remove(&o->waiting);
}

void tks_tls_untie(struct tks_tls *t, struct tks_tls_object *o)
{
	if (!o->conn)
		return;
	o->conn->obj = NULL;
	o->conn = NULL;
	o->closed = true;
	tks_tls_drop_pieces(t, o);
}

void tks_tls_object_free(struct tks_tls *t, struct tks_tls_object *o)
{
	struct tks_tls_object **p = object_bucket(t, o->pid, o->id);

	while (*p != o)
		p = &(*p)->hash_next;
	*p = o->hash_next;
	tks_tls_untie(t, o);
	tks_tls_drop_pieces(t, o);
	while (!tks_list_empty(&o->marks))
		tks_tls_mark_remove(t, tks_list_entry(o->marks.next, struct tks_tls_mark, list));
	tks_list_remove(&o->lru);
	if (o->own)
		t->ops->gone(t->ctx, o->own);
	t->nobjects--;
	tks_mem_free(t->mem, o, sizeof(*o));
}

static struct tks_tls_object *object_new(struct tks_tls *t, uint32_t pid, uint64_t id)
{
	struct tks_tls_object **bucket = object_bucket(t, pid, id), *o;

	if (t->nobjects == OBJECTS_MAX)
		tks_tls_object_free(t, tks_list_entry(t->lru.next, struct tks_tls_object, lru));
	o = tks_mem_alloc(t->mem, sizeof(*o));
	if (!o)
		return NULL;
	o->pid = pid;
	o->id = id;
	o->whole = true;
	tks_list_init(&o->waiting);
	tks_list_init(&o->pieces[TKS_RX]);
	tks_list_init(&o->pieces[TKS_TX]);
	tks_list_init(&o->marks);
	tks_list_append(&t->lru, &o->lru);
	o->hash_next = *bucket;
	*bucket = o;
	t->nobjects++;
	t->counters.objects++;
	return o;
}

struct tks_tls_object *tks_tls_object_of(struct tks_tls *t, const struct tks_event *ev)
{
	struct tks_tls_object *o = tks_tls_object_find(t, ev->proc.pid, ev->obj);

	/* Its first call again: the one that had this address is gone. */
	if (o && ev->kind == TKS_EV_PLAIN && !ev->cont && ev->call == 1 && o->started[ev->dir]) {
		tks_tls_object_free(t, o);
		o = NULL;
	}
	if (!o)
		o = object_new(t, ev->proc.pid, ev->obj);
	if (!o)
		return NULL;
	tks_list_remove(&o->lru);
	tks_list_append(&t->lru, &o->lru);
	o->proc = ev->proc;
	return o;
}
