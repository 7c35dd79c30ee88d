// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fuzzes the protobuf scanner. The first byte says where the message is cut. Oracle: whole, in two
 * pieces and a byte at a time, the same values are reported and the same verdict is given; what is
 * entered is left, if the message is well-formed.
 */
#include <stdlib.h>
#include <string.h>

#include "pscan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct log {
	uint64_t hash;
	size_t size;
	int open;
};

static void mix(struct log *l, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		l->hash = (l->hash ^ ((const uint8_t *)p)[i]) * 1099511628211ull;
}

static void on_value(void *ctx, const struct tks_pvalue *v)
{
	struct log *l = ctx;

	mix(l, &v->id, sizeof(v->id));
	mix(l, &v->type, sizeof(v->type));
	mix(l, &v->num, sizeof(v->num));
	if (!v->id)
		abort();
	switch (v->type) {
	case TKS_PS_BEGIN:
		l->open++;
		break;
	case TKS_PS_END:
		if (!l->open--)
			abort();
		break;
	case TKS_PS_PACKED:
		if (v->num > l->size)
			abort();
		break;
	case TKS_PS_BYTES:
		mix(l, v->str, v->len);
		if (v->num > l->size ||
		    v->len != (v->num < TKS_PS_STR_MAX ? v->num : TKS_PS_STR_MAX))
			abort();
		break;
	default:
		break;
	}
}

static const struct tks_pfield fields[] = {
	{ { 1 }, 1, 0 },
	{ { 2 }, 2, 0 },
	{ { 3 }, 3, 0 },
	{ { 3, 1 }, 31, 0 },
	{ { 3, 2, 1 }, 32, TKS_PF_PACKED },
	{ { 3, 3 }, 33, 0 },
	{ { 4 }, 4, TKS_PF_PACKED },
	{ { 5 }, 5, 0 },
	{ { 5, 5, 5, 5, 5, 5, 5, 5 }, 50, 0 },
	{ { 5, 5, 5, 5, 5 }, 51, 0 },
};

static bool scan(const uint8_t *p, size_t n, size_t first, size_t piece, struct log *l)
{
	struct tks_pscan s;
	bool good;

	*l = (struct log){ .size = n };
	tks_pscan_begin(&s, fields, sizeof(fields) / sizeof(fields[0]), on_value, l);
	for (size_t i = 0; i < n;) {
		size_t k = i ? piece : first;

		k = k < n - i ? k : n - i;
		tks_pscan_feed(&s, p + i, k);
		i += k;
	}
	good = tks_pscan_end(&s);
	if (good && l->open)
		abort();
	return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct log whole, cut, bytes;
	size_t n, at;
	bool good;

	if (!size)
		return 0;
	n = size - 1;
	at = n ? data[0] % n + 1 : 1;
	good = scan(data + 1, n, n + 1, n + 1, &whole);
	if (scan(data + 1, n, at, n + 1, &cut) != good || cut.hash != whole.hash)
		abort();
	if (scan(data + 1, n, 1, 1, &bytes) != good || bytes.hash != whole.hash)
		abort();
	return 0;
}
