// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fuzzes gRPC's messages. The first byte chooses the coding, the second where the input is cut.
 * Oracles: the same messages whole, cut and a byte at a time; offsets in order; the budget.
 */
#include <stdlib.h>

#include "grpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BUDGET = 24 << 20 };

struct log {
	uint64_t hash, text, bytes, texts;
	bool broken;
	size_t size;
};

static void mix(struct log *l, uint64_t v)
{
	l->hash = (l->hash ^ v) * 1099511628211ull;
}

static void on_data(void *ctx, const struct tks_slice *s)
{
	struct log *l = ctx;

	if (!s->len)
		abort();
	for (size_t i = 0; i < s->len; i++)
		l->text = (l->text ^ s->data[i]) * 1099511628211ull;
	l->bytes += s->len;
}

static void on_message(void *ctx, const struct tks_grpc_message *m)
{
	struct log *l = ctx;

	if (m->first_off > m->last_off || m->last_off >= l->size || m->bytes != l->bytes)
		abort();
	mix(l, m->first_off);
	mix(l, m->last_off);
	l->broken |= m->broken;
	l->texts = (l->texts ^ l->text) * 1099511628211ull;
	l->bytes = 0;
}

static const struct tks_grpc_ops ops = { .data = on_data, .message = on_message };

static int run(uint8_t which, const uint8_t *p, size_t n, size_t piece, struct log *l)
{
	static const char *const encodings[] = { "", "gzip", "deflate", "zstd" };
	struct tks_mem mem = TKS_MEM_INIT(BUDGET);
	struct tks_grpc g;
	int err = 0;

	*l = (struct log){ .size = n };
	tks_grpc_init(&g, &mem, encodings[which & 3], &ops, l);
	for (size_t i = 0; i < n; i += piece) {
		struct tks_slice s = { p + i, piece < n - i ? piece : n - i, i };

		err = tks_grpc_feed(&g, &s) ?: err;
	}
	tks_grpc_free(&g);
	if (mem.used || mem.peak > BUDGET)
		abort();
	return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct log whole, cut, bytes;
	int err;

	if (size < 3)
		return 0;
	err = run(data[0], data + 2, size - 2, size, &whole);
	if (run(data[0], data + 2, size - 2, data[1] + 1u, &cut) != err || cut.hash != whole.hash)
		abort();
	if (run(data[0], data + 2, size - 2, 1, &bytes) != err || bytes.hash != whole.hash)
		abort();
	/* When a library sees that a message is bad, and what came out by then, is its own affair.
	 */
	if (!whole.broken && !cut.broken && !bytes.broken &&
	    (cut.texts != whole.texts || bytes.texts != whole.texts))
		abort();
	return 0;
}
