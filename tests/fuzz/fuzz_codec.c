// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fuzzes the content codings. The first byte chooses the coding, the second where the input is cut.
 * Oracles: whole, cut and a byte at a time the same comes out of what is good; the budget;
 * what a bomb may yield.
 */
#include <stdlib.h>
#include <string.h>

#include "codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BUDGET = 25 << 20 }; /* brotli grows a window of 16 MiB with the old one still there */

struct result {
	uint64_t hash, bytes;
	int err;
};

static int on_bytes(void *ctx, const uint8_t *data, size_t len)
{
	struct result *r = ctx;

	if (!len)
		abort();
	for (size_t i = 0; i < len; i++)
		r->hash = (r->hash ^ data[i]) * 1099511628211ull;
	r->bytes += len;
	return 0;
}

static void decode(enum tks_coding coding, const uint8_t *p, size_t n, size_t piece,
		   struct result *r)
{
	struct tks_mem mem = TKS_MEM_INIT(BUDGET);
	struct tks_codec *c = tks_codec_new(&mem, coding);

	memset(r, 0, sizeof(*r));
	if (!c)
		abort();
	for (size_t i = 0; i < n; i += piece) {
		size_t k = piece < n - i ? piece : n - i;

		r->err = tks_codec_feed(c, p + i, k, on_bytes, r);
	}
	if (r->bytes > (uint64_t)n * TKS_CODEC_RATIO_MAX + TKS_CODEC_FREE)
		abort();
	tks_codec_free(c);
	if (mem.used || mem.peak > BUDGET)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct result whole, cut, bytes;
	enum tks_coding coding;

	if (size < 3)
		return 0;
	coding = TKS_CODING_GZIP + data[0] % (TKS_CODING_OTHER - TKS_CODING_GZIP);
	decode(coding, data + 2, size - 2, size, &whole);
	decode(coding, data + 2, size - 2, data[1] + 1u, &cut);
	decode(coding, data + 2, size - 2, 1, &bytes);
	/* When a library sees that the bytes are bad, and how far it gets until then, is its own
	 * affair.
	 */
	if (!whole.err && !cut.err && !bytes.err &&
	    (whole.hash != cut.hash || whole.hash != bytes.hash))
		abort();
	return 0;
}
