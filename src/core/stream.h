/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One direction of a TCP connection as a byte stream by absolute offset: puts segments in order,
 * drops what came twice (the first copy of a byte counts, and its time), widens 32-bit sequence
 * numbers across wrap-around, and knows what is missing.
 *
 * Hands over, strictly in offset order, data and gaps; together they cover every offset from the
 * start. Bytes that are in order are handed over without a copy. Bytes that come early are kept
 * (bounded) until the hole before them is filled or given up.
 *
 * LOST bytes have no stamp in the timeline, SKIPPED ones have their send's.
 */
#ifndef TKS_STREAM_H
#define TKS_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"
#include "timeline.h"
#include "tokensnoop/mem.h"

enum tks_gap_why {
	TKS_GAP_LOST = 1, /* the capture lost them */
	TKS_GAP_SKIPPED =
		2, /* not captured on purpose or not readable; length and time are known */
};

struct tks_stream_ops {
	/* The stamp of the slice's bytes is in the timeline already. 0, or a negative errno that
	 * ends the add. */
	int (*data)(void *ctx, const struct tks_slice *s);
	int (*gap)(void *ctx, uint64_t off, uint64_t len, enum tks_gap_why why);
};

struct tks_segment {
	uint32_t seq;
	uint32_t len; /* bytes it stands for; may be more than cap: the rest is a SKIPPED gap */
	uint32_t cap;
	const uint8_t *data;
	uint64_t ts_ns, ret_ns, tls_ns; /* as in struct tks_stamp */
};

struct tks_stream_limits {
	uint32_t
		buffer_bytes; /* of early segments kept; past it the hole is given up. 0: 256 KiB */
	uint32_t buffer_segments; /* 0: 256 */
	uint64_t wait_ns; /* how long a hole may stay open, measured against tks_stream_advance. 0:
			     200 ms */
	uint64_t max_jump; /* a segment further ahead than this of what is expected is not believed.
			      0: 1 GiB */
};

struct tks_stream {
	const struct tks_stream_ops *ops;
	void *ctx;
	struct tks_mem *mem;
	struct tks_stream_limits limits;
	struct tks_timeline timeline;
	uint64_t next; /* offset of the next byte to hand over */
	uint32_t next_seq; /* its sequence number */
	bool started;
	bool starved; /* memory failed during the add */
	uint64_t hole_since_ns; /* when the first hole was noticed; 0: none */
	struct tks_held *held; /* early segments in offset order, a list */
	uint32_t held_bytes, held_segments;
	uint64_t duplicates, lost_bytes,
		refused; /* counters: dropped copies, LOST gap bytes, unbelievable segments */
};

/* limits may be NULL. Nothing is allocated yet. */
void tks_stream_init(struct tks_stream *s, struct tks_mem *mem, const struct tks_stream_ops *ops,
		     void *ctx, const struct tks_stream_limits *limits);

/* Offset 0 has this sequence number. Without this call the first segment added decides. */
void tks_stream_start(struct tks_stream *s, uint32_t seq);

/*
 * Adds a segment; calls ops for what is in order now. 0; -EINVAL cap > len; -ERANGE not believed
 * (counted); -ENOMEM: the segment was turned into a gap, the stream goes on; or what ops returned.
 */
int tks_stream_add(struct tks_stream *s, const struct tks_segment *seg);

/* Gives up holes that were open for limits.wait_ns at now_ns. 0 or what ops returned. */
int tks_stream_advance(struct tks_stream *s, uint64_t now_ns);

/* The direction is known to have ended at (or to have reached) seq: gives up every hole before it,
 * and reports a LOST gap up to it. Sequence numbers before what was handed over are ignored. 0 or
 * what ops returned. */
int tks_stream_end_at(struct tks_stream *s, uint32_t seq);

/* Gives up every hole and hands over all that is held. 0 or what ops returned. */
int tks_stream_flush(struct tks_stream *s);

/* Frees what is held and the timeline. */
void tks_stream_free(struct tks_stream *s);

#endif
