/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The stream's oracle: an array with one cell a byte. It knows of each byte whether a copy came
 * before the stream went past it, and what the first such copy said; whatever the stream hands over
 * is compared with that, byte by byte. Used by the unit test (with operations by hand and at
 * random) and by the fuzzer.
 */
#ifndef LIB_STREAM_H
#define LIB_STREAM_H

#include <stdlib.h>
#include <string.h>

#include "stream.h"

enum { LIB_CELLS = 1 << 15 };

enum lib_cell_is { LIB_UNSEEN = 0, LIB_DATA, LIB_SKIPPED };

struct lib_oracle {
	struct tks_stream s;
	struct tks_mem mem;
	uint32_t base; /* sequence number of offset 0 */
	uint64_t handed; /* offset up to which all was handed over */
	uint64_t newest; /* greatest time handed over */
	bool unreliable; /* memory fails: what came may be lost, so only the order is checked */
	unsigned int data_calls, gap_calls;
	uint64_t lost;
	uint8_t is[LIB_CELLS], value[LIB_CELLS];
	uint32_t ts[LIB_CELLS];
};

#define LIB_CHECK(cond)                                                                            \
	do {                                                                                       \
		if (!(cond))                                                                       \
			abort();                                                                   \
	} while (0)

/* The bytes from off on, all handed over as what `is` says. */
static inline void lib_handed(struct lib_oracle *o, uint64_t off, uint64_t len, int is)
{
	LIB_CHECK(len > 0 && off == o->handed && off + len <= LIB_CELLS);
	for (uint64_t i = off; i < off + len && !o->unreliable; i++) {
		const struct tks_stamp *st = tks_timeline_at(&o->s.timeline, i);

		LIB_CHECK(o->is[i] == is);
		if (o->ts[i] > o->newest)
			o->newest = o->ts[i];
		LIB_CHECK(is == LIB_UNSEEN ? !st : st && st->ts_ns == o->newest);
	}
	o->handed = off + len;
	tks_timeline_trim(&o->s.timeline, off);
}

static inline int lib_data(void *ctx, const struct tks_slice *s)
{
	struct lib_oracle *o = ctx;

	o->data_calls++;
	lib_handed(o, s->off, s->len, LIB_DATA);
	LIB_CHECK(o->unreliable || !memcmp(s->data, o->value + s->off, s->len));
	return 0;
}

static inline int lib_gap(void *ctx, uint64_t off, uint64_t len, enum tks_gap_why why)
{
	struct lib_oracle *o = ctx;

	o->gap_calls++;
	if (why == TKS_GAP_LOST)
		o->lost += len;
	lib_handed(o, off, len, why == TKS_GAP_LOST ? LIB_UNSEEN : LIB_SKIPPED);
	return 0;
}

static const struct tks_stream_ops lib_stream_ops = { .data = lib_data, .gap = lib_gap };

static inline struct lib_oracle *lib_oracle_new(uint32_t base,
						const struct tks_stream_limits *limits)
{
	struct lib_oracle *o = calloc(1, sizeof(*o));

	LIB_CHECK(o);
	o->base = base;
	tks_stream_init(&o->s, &o->mem, &lib_stream_ops, o, limits);
	tks_stream_start(&o->s, base);
	return o;
}

/* A segment whose bytes depend on off and on its time, so that copies differ. */
static inline int lib_segment(struct lib_oracle *o, uint64_t off, uint32_t len, uint32_t cap,
			      uint32_t ts)
{
	uint8_t *data = malloc(cap ? cap : 1); /* exact, so that reading beyond is seen */
	struct tks_segment seg = {
		.seq = o->base + (uint32_t)off, .len = len, .cap = cap, .data = data, .ts_ns = ts
	};
	int err;

	LIB_CHECK(data && off + len <= LIB_CELLS);
	for (uint32_t i = 0; i < len; i++) {
		uint8_t value = (uint8_t)(31 * (off + i) + 7 * ts);
		uint64_t at = off + i;

		if (i < cap)
			data[i] = value;
		if (at < o->s.next || o->is[at] != LIB_UNSEEN)
			continue;
		o->is[at] = i < cap ? LIB_DATA : LIB_SKIPPED;
		o->value[at] = value;
		o->ts[at] = ts;
	}
	err = tks_stream_add(&o->s, &seg);
	LIB_CHECK(o->s.next == o->handed);
	LIB_CHECK(o->s.held_bytes <= o->s.limits.buffer_bytes);
	LIB_CHECK(o->s.held_segments <= o->s.limits.buffer_segments);
	free(data);
	return err;
}

/* Everything that came must have been handed over by now. */
static inline void lib_oracle_free(struct lib_oracle *o)
{
	LIB_CHECK(tks_stream_flush(&o->s) == 0 || o->unreliable);
	LIB_CHECK(!o->s.held && !o->s.held_bytes && !o->s.held_segments && !o->s.hole_since_ns);
	for (uint64_t i = o->handed; i < LIB_CELLS; i++)
		LIB_CHECK(o->is[i] == LIB_UNSEEN || o->unreliable);
	LIB_CHECK(o->s.lost_bytes == o->lost);
	tks_stream_free(&o->s);
	LIB_CHECK(o->mem.used == 0);
	free(o);
}

#endif
