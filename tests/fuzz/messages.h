/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * For fuzzers of what cuts a stream into messages, compressed or not: what came out of a run, and
 * the driver. The fuzzer defines run(). The input's first byte is its own, the second says where
 * the input is cut; whole, cut and a byte at a time the same must come out.
 */
#ifndef TKS_FUZZ_MESSAGES_H
#define TKS_FUZZ_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "slice.h"

enum { BUDGET = 24 << 20 };

struct log {
	uint64_t hash; /* of all but the texts */
	uint64_t text, bytes; /* of all messages so far; of the one under way */
	uint64_t texts; /* of those that are whole */
	bool broken; /* one is */
	size_t size; /* of the input */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Feeds n octets in such pieces, with l as the ops' ctx; what the feeding returned. */
static int run(uint8_t which, const uint8_t *p, size_t n, size_t piece, struct log *l);

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

static void log_message(struct log *l, uint64_t first_off, uint64_t last_off, uint64_t bytes,
			bool broken)
{
	if (first_off > last_off || last_off >= l->size || bytes != l->bytes)
		abort();
	mix(l, first_off);
	mix(l, last_off);
	l->broken |= broken;
	l->texts = (l->texts ^ l->text) * 1099511628211ull;
	l->bytes = 0;
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

#endif
