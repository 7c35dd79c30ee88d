// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Reassembly of one direction.
 *
 *      handed over         hole         held        hole      held
 *   0 ............. next . . . . . . [ segment ] . . . . . [ segment ] ...
 *
 * A segment is worked off from its front. What lies before `next` came twice and is dropped. What
 * begins at `next` is handed over, up to the first byte that is held already: that byte came
 * earlier, and the first copy counts. What lies behind a hole is held, again without the bytes that
 * are held already; so held segments never overlap, and never touch `next`.
 *
 * Sequence numbers are compared with that of `next` by serial arithmetic (RFC 1982), so anything
 * less than 2 GiB away is told apart, and offsets never wrap.
 *
 * Every byte handed over, whether data, skipped or lost, is put in the timeline first: lost ones
 * with time 0, which makes them known to have no time.
 */
#include "stream.h"

#include <errno.h>
#include <string.h>

enum {
	DEFAULT_BYTES = 256 * 1024,
	DEFAULT_SEGMENTS = 256,
	DEFAULT_WAIT_NS = 200 * 1000 * 1000,
	DEFAULT_JUMP = 1 << 30,
};

/* A run of stream bytes on its way through. */
struct run {
	uint64_t off;
	uint32_t len, cap;
	const uint8_t *data;
	struct tks_stamp st; /* its end is not used */
};

struct tks_held {
	struct tks_held *later;
	uint64_t off;
	uint32_t len, cap;
	struct tks_stamp st;
	uint8_t data[];
};

void tks_stream_init(struct tks_stream *s, struct tks_mem *mem, const struct tks_stream_ops *ops,
		     void *ctx, const struct tks_stream_limits *limits)
{
	memset(s, 0, sizeof(*s));
	s->mem = mem;
	s->ops = ops;
	s->ctx = ctx;
	if (limits)
		s->limits = *limits;
	if (!s->limits.buffer_bytes)
		s->limits.buffer_bytes = DEFAULT_BYTES;
	if (!s->limits.buffer_segments)
		s->limits.buffer_segments = DEFAULT_SEGMENTS;
	if (!s->limits.wait_ns)
		s->limits.wait_ns = DEFAULT_WAIT_NS;
	if (!s->limits.max_jump)
		s->limits.max_jump = DEFAULT_JUMP;
}

void tks_stream_start(struct tks_stream *s, uint32_t seq)
{
	s->next_seq = seq;
	s->started = true;
}

/* --- runs --- */

static uint64_t run_end(const struct run *r)
{
	return r->off + r->len;
}

static void cut_front(struct run *r, uint32_t n)
{
	uint32_t seen = n < r->cap ? n : r->cap;

	r->off += n;
	r->len -= n;
	r->cap -= seen;
	if (seen)
		r->data += seen;
}

/* The first n bytes of r. */
static struct run front(const struct run *r, uint32_t n)
{
	struct run f = *r;

	f.len = n;
	if (f.cap > n)
		f.cap = n;
	return f;
}

/* --- handing over --- */

static void move_next(struct tks_stream *s, uint64_t to)
{
	s->next_seq += (uint32_t)(to - s->next);
	s->next = to;
}

/* The bytes from next up to `to` are lost. */
static int hand_hole(struct tks_stream *s, uint64_t to)
{
	uint64_t from = s->next, len = to - from;

	/* Without memory the bytes have no stamp, which says the same. */
	tks_timeline_push(&s->timeline, s->mem, &(struct tks_stamp){ .end = to });
	move_next(s, to);
	s->lost_bytes += len;
	return s->ops->gap(s->ctx, from, len, TKS_GAP_LOST);
}

static int hand_run(struct tks_stream *s, const struct run *r)
{
	struct tks_slice slice = { .data = r->data, .len = r->cap, .off = r->off };
	struct tks_stamp st = r->st;
	int err = 0;

	st.end = run_end(r);
	if (tks_timeline_push(&s->timeline, s->mem, &st)) {
		s->starved = true;
		return hand_hole(s, run_end(r));
	}
	move_next(s, r->off + r->cap);
	if (r->cap)
		err = s->ops->data(s->ctx, &slice);
	if (err || r->cap == r->len)
		return err;
	move_next(s, run_end(r));
	return s->ops->gap(s->ctx, r->off + r->cap, r->len - r->cap, TKS_GAP_SKIPPED);
}

/* --- what is held --- */

static void unlink_first(struct tks_stream *s)
{
	struct tks_held *h = s->held;

	s->held = h->later;
	s->held_segments--;
	s->held_bytes -= h->cap;
}

/* Who is at the front of a hole was noticed when the first of those behind it came. */
static void restart_wait(struct tks_stream *s)
{
	s->hole_since_ns = 0;
	for (struct tks_held *h = s->held; h; h = h->later) {
		if (!s->hole_since_ns || h->st.ts_ns < s->hole_since_ns)
			s->hole_since_ns = h->st.ts_ns;
	}
}

/* Hands over what is held and in order now. */
static int drain(struct tks_stream *s)
{
	bool any = false;
	int err = 0;

	while (!err && s->held && s->held->off == s->next) {
		struct tks_held *h = s->held;
		struct run r = { h->off, h->len, h->cap, h->data, h->st };

		unlink_first(s);
		err = hand_run(s, &r);
		tks_mem_free(s->mem, h, sizeof(*h) + h->cap);
		any = true;
	}
	if (any)
		restart_wait(s);
	return err;
}

/* Gives up the hole at next, up to `to` or what is held first. */
static int give_up(struct tks_stream *s, uint64_t to)
{
	int err = 0;

	if (s->held && s->held->off < to)
		to = s->held->off;
	/* No hole at all where a callback stopped the last hand-over. */
	if (to > s->next)
		err = hand_hole(s, to);
	return err ? err : drain(s);
}

/* Gives up every hole that has something behind it. */
static int give_up_all(struct tks_stream *s)
{
	int err = 0;

	while (!err && s->held)
		err = give_up(s, s->held->off);
	return err;
}

static bool has_room(const struct tks_stream *s, uint32_t bytes)
{
	return s->held_segments < s->limits.buffer_segments &&
	       s->held_bytes <= s->limits.buffer_bytes &&
	       bytes <= s->limits.buffer_bytes - s->held_bytes;
}

/* Keeps a copy of r, behind *link; r overlaps nothing that is held. Without memory it is dropped,
 * and becomes part of the hole. */
static void hold(struct tks_stream *s, struct tks_held **link, const struct run *r)
{
	struct tks_held *h = tks_mem_alloc(s->mem, sizeof(*h) + r->cap);

	if (!h) {
		s->starved = true;
		return;
	}
	h->off = r->off;
	h->len = r->len;
	h->cap = r->cap;
	h->st = r->st;
	if (r->cap)
		memcpy(h->data, r->data, r->cap);
	h->later = *link;
	*link = h;
	s->held_segments++;
	s->held_bytes += h->cap;
	if (!s->hole_since_ns)
		s->hole_since_ns = r->st.ts_ns;
}

/*
 * Works off the front of an early run: holds the bytes up to the next that is held already, or cuts
 * off those that are. *dup: some were.
 */
static int take_early(struct tks_stream *s, struct run *r, bool *dup)
{
	struct tks_held **link = &s->held, *h;
	uint32_t n = r->len;
	struct run f;

	while (*link && (*link)->off + (*link)->len <= r->off)
		link = &(*link)->later;
	h = *link;
	if (h && h->off <= r->off) {
		uint64_t twice = h->off + h->len - r->off;

		*dup = true;
		cut_front(r, twice < r->len ? (uint32_t)twice : r->len);
		return 0;
	}
	if (h && h->off - r->off < n)
		n = (uint32_t)(h->off - r->off);
	f = front(r, n);
	if (!has_room(s, f.cap))
		return give_up(s, r->off);
	hold(s, link, &f);
	cut_front(r, n);
	return 0;
}

/* Works off the front of a run that begins at next, and what it lets go. */
static int take_in_order(struct tks_stream *s, struct run *r, bool *dup)
{
	uint32_t n = r->len;
	struct run f;
	int err = 0;

	if (s->held && s->held->off - r->off < n)
		n = (uint32_t)(s->held->off - r->off);
	f = front(r, n);
	if (n)
		err = hand_run(s, &f);
	if (!err)
		err = drain(s);
	n = s->next < run_end(r) ? (uint32_t)(s->next - r->off) : r->len;
	*dup |= n > f.len;
	cut_front(r, n);
	return err;
}

static int take(struct tks_stream *s, struct run *r, bool *dup)
{
	int err = 0;

	while (r->len && !err) {
		if (r->off > s->next)
			err = take_early(s, r, dup);
		else
			err = take_in_order(s, r, dup);
	}
	return err;
}

int tks_stream_add(struct tks_stream *s, const struct tks_segment *seg)
{
	struct run r = {
		.len = seg->len,
		.cap = seg->cap,
		.data = seg->data,
		.st = { .ts_ns = seg->ts_ns, .ret_ns = seg->ret_ns, .tls_ns = seg->tls_ns },
	};
	bool dup = false;
	int32_t ahead;
	int err;

	if (seg->cap > seg->len)
		return -EINVAL;
	if (!seg->len)
		return 0;
	if (!s->started)
		tks_stream_start(s, seg->seq);
	ahead = (int32_t)(seg->seq - s->next_seq);
	if (ahead > 0 && (uint64_t)ahead > s->limits.max_jump) {
		s->refused++;
		return -ERANGE;
	}
	r.off = s->next + (uint64_t)(int64_t)ahead;
	if (ahead < 0) {
		uint32_t before = 0u - (uint32_t)ahead;

		dup = true;
		cut_front(&r, before < r.len ? before : r.len);
	}
	s->starved = false;
	err = take(s, &r, &dup);
	s->duplicates += dup;
	return err ?: s->starved ? -ENOMEM : 0;
}

int tks_stream_advance(struct tks_stream *s, uint64_t now_ns)
{
	int err = 0;

	while (!err && s->held && now_ns > s->hole_since_ns &&
	       now_ns - s->hole_since_ns >= s->limits.wait_ns)
		err = give_up(s, s->held->off);
	return err;
}

int tks_stream_end_at(struct tks_stream *s, uint32_t seq)
{
	int32_t ahead = (int32_t)(seq - s->next_seq);
	uint64_t end = s->next + (uint32_t)ahead;
	int err = 0;

	if (!s->started || ahead <= 0)
		return 0;
	if ((uint64_t)ahead > s->limits.max_jump) {
		s->refused++;
		return give_up_all(s);
	}
	while (!err && s->next < end)
		err = give_up(s, end);
	return err;
}

int tks_stream_flush(struct tks_stream *s)
{
	return give_up_all(s);
}

void tks_stream_free(struct tks_stream *s)
{
	while (s->held) {
		struct tks_held *h = s->held;

		unlink_first(s);
		tks_mem_free(s->mem, h, sizeof(*h) + h->cap);
	}
	s->hole_since_ns = 0;
	tks_timeline_free(&s->timeline, s->mem);
}
