/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The streams of an HTTP/2 connection that are open: by number, and by how long they were idle.
 *
 * A sorted array, as streams are opened in the order of their numbers: a new one mostly goes to the
 * end, and no choice of numbers makes it slow.
 */
#ifndef TKS_HTTP2_STREAM_H
#define TKS_HTTP2_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "list.h"
#include "tokensnoop/mem.h"

enum tks_h2_state {
	TKS_H2_UNSEEN = 0,
	TKS_H2_BEGUN, /* a request whose head is not reported yet */
	TKS_H2_HEADED,
	TKS_H2_ENDED,
};

struct tks_h2_stream {
	struct tks_list idle;
	uint32_t id;
	uint8_t state[2]; /* enum tks_h2_state by enum tks_side */
	bool is_connect; /* the request's method */
};

/* Set up by tks_h2_streams_init(). */
struct tks_h2_streams {
	struct tks_mem *mem;
	struct tks_h2_stream **at; /* by number */
	uint32_t n, size;
	struct tks_list idle; /* idle longest first */
};

void tks_h2_streams_init(struct tks_h2_streams *t, struct tks_mem *mem);
void tks_h2_streams_free(struct tks_h2_streams *t);

/* NULL: not open. */
struct tks_h2_stream *tks_h2_stream_find(const struct tks_h2_streams *t, uint32_t id);

/* One that is not there yet; NULL without memory. */
struct tks_h2_stream *tks_h2_stream_add(struct tks_h2_streams *t, uint32_t id);

void tks_h2_stream_remove(struct tks_h2_streams *t, struct tks_h2_stream *s);

/* It was not idle just now. */
static inline void tks_h2_stream_touch(struct tks_h2_streams *t, struct tks_h2_stream *s)
{
	if (t->idle.prev == &s->idle)
		return;
	tks_list_remove(&s->idle);
	tks_list_append(&t->idle, &s->idle);
}

/* NULL: there is none. */
static inline struct tks_h2_stream *tks_h2_stream_idlest(const struct tks_h2_streams *t)
{
	return t->n ? tks_list_entry(t->idle.next, struct tks_h2_stream, idle) : NULL;
}

#endif
