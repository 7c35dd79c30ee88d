/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Figures over requests (design.md section 1): percentiles over requests by metric, by output
 * length and concurrency, goodput against an SLO, error and abort counts.
 */
#ifndef TOKENSNOOP_STATS_H
#define TOKENSNOOP_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokensnoop/mem.h"
#include "tokensnoop/request.h"

/*
 * The q-quantile (0 <= q <= 1) of sorted v[0..n), interpolated linearly between closest ranks at
 * position q * (n - 1), as numpy.percentile does by default (Hyndman and Fan 1996, type 7). n >= 1.
 */
double tks_quantile(const int64_t *sorted, size_t n, double q);

/* True when n values carry the quantile: n >= 1 / (1 - q). */
bool tks_quantile_supported(size_t n, double q);

/* Fills g from n gaps; sorts v in place. n 0: everything but n is TKS_NULL. */
void tks_gaps_from(int64_t *v, size_t n, struct tks_gaps *g);

enum tks_slo_metric {
	TKS_SLO_TTFT = 0,
	TKS_SLO_TTFT_VISIBLE,
	TKS_SLO_TPOT,
	TKS_SLO_E2E,
	TKS_SLO_ITL_P50,
	TKS_SLO_ITL_P90,
	TKS_SLO_ITL_P99,
	TKS_SLO_ITL_MAX,
	TKS_SLO_METRICS,
};

struct tks_slo {
	int64_t limit_ns[TKS_SLO_METRICS]; /* TKS_NULL: no constraint */
	bool any;
};

/* "ttft", "itl_p99", ...: the name of a constraint on the command line. */
const char *tks_slo_name(enum tks_slo_metric m);

/*
 * Parses "ttft=500ms,tpot=50ms,e2e=10s,itl_p99=200ms" (units ns, us, ms, s; a number may have a
 * fraction). 0, or -EINVAL with *bad at the offending text.
 */
int tks_slo_parse(const char *text, struct tks_slo *slo, const char **bad);

/*
 * 1 met, 0 not. A failed, aborted, cut or open request is never good. A constraint on a figure that
 * does not exist for this request by its nature (TPOT with one token, ITL without gaps, any of them
 * when not streamed) holds; one that could not be measured (blind, lost, mid_stream, opaque, a
 * token series that was cut off) does not. A percentile that the request's gaps can't carry is
 * judged by their largest. *missed, where not NULL, gets a bit 1 << enum tks_slo_metric for each
 * constraint missed.
 */
int tks_slo_met(const struct tks_slo *slo, const struct tks_request *r, uint32_t *missed);

struct tks_stats;

/* One line of figures: a metric over the requests of a cell. */
struct tks_dist {
	uint64_t n;
	double mean_ns, p50_ns, p90_ns, p95_ns, p99_ns, max_ns; /* NAN: the sample can't carry it */
};

enum tks_metric {
	TKS_M_TTFT = 0,
	TKS_M_TTFT_VISIBLE,
	TKS_M_TPOT,
	TKS_M_ITL_P50, /* over requests: each request's own */
	TKS_M_ITL_P99,
	TKS_M_ITL_MAX,
	TKS_M_ITL_POOLED, /* over all gaps: long answers weigh more */
	TKS_M_E2E,
	TKS_M_SEND_WAIT,
	TKS_METRICS,
};

struct tks_stats_totals {
	uint64_t requests, completed, errors, aborted, cut, open;
	uint64_t streamed, lost, mid_stream, estimated,
		left_out; /* left_out: kept out of the distributions */
	uint64_t good, judged; /* with an SLO */
	uint64_t missed[TKS_SLO_METRICS];
	uint64_t tokens; /* output tokens of all requests whose count is known */
	uint64_t src_per_frame, src_usage, src_frames, src_none;
	int64_t first_ns, last_ns; /* earliest t_request and latest t_end; TKS_NULL: none */
	uint64_t boundaries; /* bit 1 << enum tks_boundary for each seen */
	char models[8][128]; /* the first few names */
	size_t nmodels;
	bool more_models;
	bool pooled_complete; /* every request brought its gaps; else the pooled figures cover only
				 some */
};

enum { TKS_LEN_BUCKETS = 5, TKS_CONC_BUCKETS = 7 };

/* slo may be NULL. include_flagged: lost, mid_stream and estimated requests too. NULL without
 * memory. */
struct tks_stats *tks_stats_new(struct tks_mem *mem, const struct tks_slo *slo,
				bool include_flagged);
void tks_stats_free(struct tks_stats *s);

/* Adds one request; pooled gaps come from its token series where it has one. 0 or -ENOMEM. */
int tks_stats_add(struct tks_stats *s, const struct tks_request *r);

/* The SLO it judges by, or NULL. */
const struct tks_slo *tks_stats_slo(const struct tks_stats *s);

void tks_stats_totals(const struct tks_stats *s, struct tks_stats_totals *out);
void tks_stats_dist(struct tks_stats *s, enum tks_metric m, struct tks_dist *out);

/* TTFT or TPOT in one cell: len_bucket 0..TKS_LEN_BUCKETS-1 (1-16, 17-64, 65-256, 257-1024, 1025+
 * tokens), conc_bucket 0..TKS_CONC_BUCKETS-1 (1, 2-4, 5-8, 9-16, 17-32, 33-64, 65+, by mean); -1:
 * all. */
void tks_stats_cell(struct tks_stats *s, enum tks_metric m, int len_bucket, int conc_bucket,
		    struct tks_dist *out);

const char *tks_len_bucket_name(int i);
const char *tks_conc_bucket_name(int i);

#endif
