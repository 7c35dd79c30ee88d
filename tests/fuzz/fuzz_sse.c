// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fuzzes the event stream parser. The first byte says where the text is cut. Oracle: whole, in two
 * pieces and a byte at a time, the same frames with the same data and offsets come out.
 */
#include <stdlib.h>
#include <string.h>

#include "sse.h"

struct log {
	uint64_t hash, frames, data;
};

static void mix(struct log *l, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		l->hash = (l->hash ^ ((const uint8_t *)p)[i]) * 1099511628211ull;
}

static void on_data(void *ctx, const struct tks_slice *s)
{
	struct log *l = ctx;

	l->data += s->len;
	mix(l, s->data, s->len);
}

static void on_frame(void *ctx, const struct tks_sse_frame *f)
{
	struct log *l = ctx;

	if (f->last_off < f->first_off || strlen(f->event) >= sizeof(f->event))
		abort();
	l->frames++;
	mix(l, &f->first_off, sizeof(f->first_off));
	mix(l, &f->last_off, sizeof(f->last_off));
	mix(l, &f->data_bytes, sizeof(f->data_bytes));
	mix(l, f->event, strlen(f->event));
}

static void on_reset(void *ctx)
{
	mix(ctx, "r", 1);
}

static void run(const uint8_t *p, size_t n, size_t first, size_t piece, struct log *l)
{
	static const struct tks_sse_ops ops = { on_data, on_frame, on_reset };
	struct tks_sse s;

	memset(l, 0, sizeof(*l));
	tks_sse_init(&s, &ops, l);
	for (size_t i = 0; i < n;) {
		size_t k = i ? piece : first;
		struct tks_slice in = { p + i, 0, 1000 + i };

		in.len = k < n - i ? k : n - i;
		tks_sse_feed(&s, &in);
		i += in.len;
	}
	tks_sse_end(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct log whole, cut, bytes;
	size_t n, at;

	if (!size)
		return 0;
	n = size - 1;
	at = n ? data[0] % n + 1 : 1;
	run(data + 1, n, n + 1, n + 1, &whole);
	run(data + 1, n, at, n + 1, &cut);
	run(data + 1, n, 1, 1, &bytes);
	if (whole.hash != cut.hash || whole.hash != bytes.hash || whole.data > n + whole.frames * n)
		abort();
	return 0;
}
