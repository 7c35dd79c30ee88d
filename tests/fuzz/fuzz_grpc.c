// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fuzzes gRPC's messages. The first byte chooses the coding, the second where the input is cut.
 * Oracles: the same messages whole, cut and a byte at a time; offsets in order; the budget.
 */
#include "grpc.h"
#include "messages.h"

static void on_message(void *ctx, const struct tks_grpc_message *m)
{
	log_message(ctx, m->first_off, m->last_off, m->bytes, m->broken);
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
