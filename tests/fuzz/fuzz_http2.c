// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fuzzes HTTP/2, both directions: the input is a row of pieces, each with a byte that says whose it
 * is and how it is fed, and a length. Oracles: what ends was begun, one end a message; the budget;
 * nothing left; without gaps the same calls whole and a byte at a time.
 */
#include <stdlib.h>
#include <string.h>

#include "http2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BUDGET = 8 << 20 };

struct log {
	uint64_t hash;
	uint32_t open;
};

static void mix(struct log *l, uint64_t v)
{
	l->hash = (l->hash ^ v) * 1099511628211ull;
}

static void on_begin(void *ctx, uint32_t stream, uint64_t off)
{
	mix(ctx, stream);
	mix(ctx, off);
}

static int on_head(void *ctx, uint32_t stream, const struct tks_http_head *h)
{
	mix(ctx, stream);
	mix(ctx, h->status);
	mix(ctx, strlen(h->target) << 8 | strlen(h->method));
	mix(ctx, (uint64_t)h->resumed << 1 | h->unknowable);
	return 0;
}

static int on_body(void *ctx, uint32_t stream, enum tks_side side, const struct tks_slice *s)
{
	if (!s->len)
		abort();
	for (size_t i = 0; i < s->len; i++)
		mix(ctx, (uint64_t)stream << 16 | (uint64_t)side << 8 | s->data[i]);
	return 0;
}

static int on_gap(void *ctx, uint32_t stream, enum tks_side side, uint64_t off, uint64_t len)
{
	mix(ctx, stream + side + off + len);
	return 0;
}

static int on_trailers(void *ctx, uint32_t stream, const struct tks_http_head *t)
{
	mix(ctx, stream);
	mix(ctx, strlen(t->grpc_status));
	return 0;
}

static int on_end(void *ctx, uint32_t stream, enum tks_side side, uint64_t last_off,
		  enum tks_msg_end how)
{
	mix(ctx, (uint64_t)stream << 8 | (uint64_t)side << 4 | how);
	mix(ctx, last_off);
	return 0;
}

static int on_reset(void *ctx, uint32_t stream, enum tks_side by, uint32_t code)
{
	mix(ctx, (uint64_t)stream << 8 | by);
	mix(ctx, code);
	return 0;
}

static const struct tks_h2_ops ops = {
	.begin = on_begin,
	.head = on_head,
	.body = on_body,
	.body_gap = on_gap,
	.trailers = on_trailers,
	.end = on_end,
	.reset = on_reset,
};

static int feed(struct tks_http2 *h, enum tks_side side, const uint8_t *p, size_t n, uint64_t off,
		size_t piece)
{
	int bad = 0;

	for (size_t i = 0; i < n && !bad; i += piece) {
		struct tks_slice s = { p + i, piece < n - i ? piece : n - i, off + i };

		bad = tks_http2_feed(h, side, &s);
	}
	return bad;
}

/* Up to the first fault: behind it a frame is looked for at the starts of slices. */
static uint64_t run(const uint8_t *p, size_t n, size_t piece, bool gaps)
{
	struct tks_mem mem = TKS_MEM_INIT(BUDGET);
	struct log l = { 0 };
	struct tks_http2 *h = tks_http2_new(&mem, &ops, &l);
	uint64_t off[2] = { 0, 0 };
	int bad = 0;

	if (!h)
		abort();
	if (n && gaps && p[0] & 0x80)
		tks_http2_mid_stream(h);
	while (n > 2 && !(bad && !gaps)) {
		enum tks_side side = p[0] & 1;
		size_t len = (size_t)p[0] >> 1 & 0x3f;
		bool gap = gaps && p[1] == 0xff;

		len = (len << 8 | p[1]) & 0x1fff;
		p += 2;
		n -= 2;
		len = len < n ? len : n;
		if (gap)
			tks_http2_gap(h, side, off[side], len & 0xff);
		else
			bad = feed(h, side, p, len, off[side], piece ?: len + 1);
		off[side] += gap ? len & 0xff : len;
		p += gap ? 0 : len;
		n -= gap ? 0 : len;
	}
	tks_http2_eof(h, TKS_REQUEST, off[0]);
	tks_http2_eof(h, TKS_RESPONSE, off[1]);
	tks_http2_free(h);
	if (mem.used || mem.peak > BUDGET)
		abort();
	return l.hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (run(data, size, 0, false) != run(data, size, 1, false))
		abort();
	run(data, size, 0, true);
	return 0;
}
