// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fuzzes the JSON scanner. The first byte says where the text is cut. Oracle: whole and in two
 * pieces, and a byte at a time, the same values are reported and the same verdict is given.
 */
#include <stdlib.h>
#include <string.h>

#include "jscan.h"

struct log {
	uint64_t hash;
	unsigned int n;
};

static void mix(struct log *l, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		l->hash = (l->hash ^ ((const uint8_t *)p)[i]) * 1099511628211ull;
}

static void on_value(void *ctx, const struct tks_jvalue *v)
{
	struct log *l = ctx;

	l->n++;
	mix(l, &v->id, sizeof(v->id));
	mix(l, &v->type, sizeof(v->type));
	mix(l, &v->bytes, sizeof(v->bytes));
	mix(l, &v->inum, sizeof(v->inum));
	mix(l, &v->count, sizeof(v->count));
	mix(l, &v->elem, sizeof(v->elem));
	if (v->str)
		mix(l, v->str, v->len);
	if (v->len > TKS_JS_STR_MAX)
		abort();
}

static int scan(const struct tks_jschema *s, const uint8_t *p, size_t n, size_t piece, size_t first,
		struct log *l)
{
	struct tks_jscan *j = malloc(tks_jscan_size());
	enum tks_jstatus st = TKS_JS_MORE;
	size_t i = 0;

	memset(l, 0, sizeof(*l));
	tks_jscan_init(j, s, on_value, l);
	while (i < n) {
		size_t k = i ? piece : first, used;

		if (k > n - i)
			k = n - i;
		st = tks_jscan_feed(j, p + i, k, &used);
		if (used > k || (st == TKS_JS_MORE && used != k))
			abort();
		i += k;
		if (st != TKS_JS_MORE)
			break;
	}
	if (st == TKS_JS_MORE)
		st = tks_jscan_end(j);
	free(j);
	return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct tks_jfield fields[] = {
		{ "", 1, 0 },
		{ "a", 2, TKS_JF_KEEP | TKS_JF_BEGIN },
		{ "choices[]", 3, TKS_JF_BEGIN },
		{ "choices[].delta.content", 4, TKS_JF_KEEP },
		{ "choices[].index", 5, 0 },
		{ "usage.completion_tokens", 6, 0 },
		{ "[][].x", 7, TKS_JF_KEEP },
	};
	struct tks_jschema *s = tks_jschema_new(fields, sizeof(fields) / sizeof(fields[0]));
	struct log whole, cut, bytes;
	int st;

	if (!s)
		abort();
	if (size) {
		size_t n = size - 1, at = n ? data[0] % n + 1 : 1;

		st = scan(s, data + 1, n, n + 1, n + 1, &whole);
		if (scan(s, data + 1, n, n + 1, at, &cut) != st || cut.hash != whole.hash)
			abort();
		if (scan(s, data + 1, n, 1, 1, &bytes) != st || bytes.hash != whole.hash)
			abort();
	}
	tks_jschema_free(s);
	return 0;
}
