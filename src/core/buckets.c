// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The buckets by output length and by concurrency: upper bounds and names. */
#include "buckets.h"

#include <math.h>

#include "tokensnoop/stats.h"

static const int64_t len_upper[TKS_LEN_BUCKETS] = { 16, 64, 256, 1024, INT64_MAX };
static const char *const len_names[TKS_LEN_BUCKETS] = { "1-16", "17-64", "65-256", "257-1024",
							"1025+" };
static const int64_t conc_upper[TKS_CONC_BUCKETS] = { 1, 4, 8, 16, 32, 64, INT64_MAX };
static const char *const conc_names[TKS_CONC_BUCKETS] = { "1",	   "2-4",   "5-8", "9-16",
							  "17-32", "33-64", "65+" };

const char *tks_len_bucket_name(int i)
{
	return len_names[i];
}

const char *tks_conc_bucket_name(int i)
{
	return conc_names[i];
}

int tks_len_bucket(int64_t tokens)
{
	int i = 0;

	if (tokens < 1)
		return -1;
	while (tokens > len_upper[i])
		i++;
	return i;
}

int tks_conc_bucket(double mean)
{
	int64_t c;
	int i = 0;

	if (isnan(mean) || mean < 0)
		return -1;
	/* A mean lies between two counts: the nearer one decides. */
	c = mean > 1e9 ? INT64_MAX : llround(mean);
	while (c > conc_upper[i])
		i++;
	return i;
}
