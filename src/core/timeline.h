/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Offset -> time: which send (or packet) carried the byte at an offset. One timeline a direction,
 * filled in offset order as bytes are handed to the parsers, trimmed when nobody can ask any more.
 */
#ifndef TKS_TIMELINE_H
#define TKS_TIMELINE_H

#include <stdint.h>

#include "tokensnoop/mem.h"

struct tks_stamp {
	uint64_t end; /* offset behind the last byte it covers */
	uint64_t ts_ns;
	uint64_t ret_ns; /* 0: not known */
	uint64_t tls_ns; /* when their plaintext entered the TLS library; 0: it did not, or nobody
			  * saw it */
};

/* A ring of stamps, by end; zero-initialised is empty. */
struct tks_timeline {
	struct tks_stamp *ring;
	uint32_t size, head, count; /* size: a power of two, or 0 */
	uint64_t start; /* where the oldest stamp kept begins */
	uint64_t newest_ns; /* the greatest time pushed so far */
};

enum { TKS_TIMELINE_MAX = 4096 }; /* stamps kept; the oldest go first */

/*
 * Says that the bytes up to st->end (exclusive) that no earlier stamp covers crossed the boundary
 * at its ts_ns. A byte counts as crossed when all bytes before it have: an earlier time than the
 * last stamp's (packets in the wrong order) becomes the last stamp's. end must be greater than the
 * last.
 *
 * ts_ns 0 says that the bytes were lost and that nobody knows when they crossed: they get no stamp,
 * and do not lend one from their neighbours. 0 or -ENOMEM; the bytes have no stamp then either.
 */
int tks_timeline_push(struct tks_timeline *t, struct tks_mem *mem, const struct tks_stamp *st);

/* The stamp that covers the byte at off, or NULL when off was trimmed, was lost or has not been
 * pushed. Valid until the next push. */
const struct tks_stamp *tks_timeline_at(const struct tks_timeline *t, uint64_t off);

/* Forgets the stamps that end at or before off, but always keeps the last one. */
void tks_timeline_trim(struct tks_timeline *t, uint64_t off);

void tks_timeline_free(struct tks_timeline *t, struct tks_mem *mem);

#endif
