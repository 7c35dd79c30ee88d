// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Quantiles of a sample: linear between closest ranks (Hyndman and Fan 1996, type 7), as
 * numpy.percentile's default, and not at all where the sample is too small for them.
 */
#include <math.h>
#include <stdlib.h>

#include "tokensnoop/stats.h"

double tks_quantile(const int64_t *v, size_t n, double q)
{
	double pos = q * (double)(n - 1);
	size_t i = (size_t)pos;

	if (i >= n - 1)
		return (double)v[n - 1];
	/* On the difference, so that equal neighbours come out exact whatever their size. */
	return (double)v[i] + (double)(v[i + 1] - v[i]) * (pos - (double)i);
}

bool tks_quantile_supported(size_t n, double q)
{
	/* 1 / (1 - 0.9) is a little over 10 in binary. */
	return n > 0 && (double)n >= 1.0 / (1.0 - q) - 1e-6;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int64_t percentile(const int64_t *v, size_t n, double q)
{
	return tks_quantile_supported(n, q) ? llround(tks_quantile(v, n, q)) : TKS_NULL;
}

/* Exact, by quotients and remainders, since the sum may be more than 64 bits hold. */
static int64_t mean(const int64_t *v, size_t n)
{
	int64_t count = (int64_t)n, whole = 0, rest = 0;

	for (size_t i = 0; i < n; i++) {
		whole += v[i] / count;
		rest += v[i] % count;
	}
	return whole + (rest < 0 ? rest - count / 2 : rest + count / 2) / count;
}

void tks_gaps_from(int64_t *v, size_t n, struct tks_gaps *g)
{
	g->n = (int64_t)n;
	g->min_ns = g->mean_ns = g->max_ns = TKS_NULL;
	g->p50_ns = g->p90_ns = g->p99_ns = TKS_NULL;
	if (!n)
		return;
	qsort(v, n, sizeof(*v), by_value);
	g->min_ns = v[0];
	g->max_ns = v[n - 1];
	g->mean_ns = mean(v, n);
	g->p50_ns = percentile(v, n, 0.5);
	g->p90_ns = percentile(v, n, 0.9);
	g->p99_ns = percentile(v, n, 0.99);
}
