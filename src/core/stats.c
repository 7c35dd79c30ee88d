// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Figures over requests, exact: the values of each metric are kept with the cell they belong to, 16
 * bytes each, and sorted when somebody asks.
 */
#include "tokensnoop/stats.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buckets.h"

struct value {
	int64_t v;
	int8_t len, conc; /* buckets, -1: none */
};

struct series {
	struct value *values;
	size_t n, cap;
};

struct tks_stats {
	struct tks_mem *mem;
	struct tks_slo slo;
	bool include_flagged;
	struct series series[TKS_METRICS];
	struct tks_stats_totals totals;
};

struct tks_stats *tks_stats_new(struct tks_mem *mem, const struct tks_slo *slo,
				bool include_flagged)
{
	struct tks_stats *s = tks_mem_alloc(mem, sizeof(*s));

	if (!s)
		return NULL;
	s->mem = mem;
	if (slo)
		s->slo = *slo;
	s->include_flagged = include_flagged;
	s->totals.first_ns = s->totals.last_ns = TKS_NULL;
	s->totals.pooled_complete = true;
	return s;
}

void tks_stats_free(struct tks_stats *s)
{
	if (!s)
		return;
	for (int m = 0; m < TKS_METRICS; m++)
		tks_mem_free(s->mem, s->series[m].values, s->series[m].cap * sizeof(struct value));
	tks_mem_free(s->mem, s, sizeof(*s));
}

static int push(struct tks_stats *s, enum tks_metric m, const struct value *v)
{
	struct series *se = &s->series[m];

	if (v->v == TKS_NULL)
		return 0;
	if (se->n == se->cap) {
		size_t cap = se->cap ? se->cap * 2 : 64;
		struct value *grown = tks_mem_resize(s->mem, se->values, se->cap * sizeof(*grown),
						     cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		se->values = grown;
		se->cap = cap;
	}
	se->values[se->n++] = *v;
	return 0;
}

static void add_model(struct tks_stats_totals *t, const char *model)
{
	if (!model[0])
		return;
	for (size_t i = 0; i < t->nmodels; i++) {
		if (!strcmp(t->models[i], model))
			return;
	}
	if (t->nmodels == sizeof(t->models) / sizeof(t->models[0])) {
		t->more_models = true;
		return;
	}
	snprintf(t->models[t->nmodels], sizeof(t->models[0]), "%s", model);
	t->nmodels++;
}

static void add_outcome(struct tks_stats_totals *t, const struct tks_request *r)
{
	t->requests++;
	if (!strcmp(r->finish, "error") || r->error[0] ||
	    (r->status != TKS_NULL && r->status >= 400))
		t->errors++;
	else if (!strcmp(r->finish, "aborted"))
		t->aborted++;
	else if (!strcmp(r->finish, "cut"))
		t->cut++;
	else if (!strcmp(r->finish, "open"))
		t->open++;
	else
		t->completed++;
	t->streamed += r->streamed == 1;
	t->lost += !!(r->flags & TKS_F_LOST);
	t->mid_stream += !!(r->flags & TKS_F_MID_STREAM);
	t->estimated += !!(r->flags & TKS_F_ESTIMATED);
}

static void add_totals(struct tks_stats *s, const struct tks_request *r)
{
	struct tks_stats_totals *t = &s->totals;
	uint32_t missed;

	add_outcome(t, r);
	add_model(t, r->model);
	t->boundaries |= 1ull << r->boundary;
	t->src_per_frame += r->tokens_source == TKS_SRC_PER_FRAME;
	t->src_usage += r->tokens_source == TKS_SRC_USAGE;
	t->src_frames += r->tokens_source == TKS_SRC_FRAMES;
	t->src_none += r->tokens_source == TKS_SRC_NONE;
	if (r->tokens != TKS_NULL)
		t->tokens += (uint64_t)r->tokens;
	if (r->t_request_ns != TKS_NULL &&
	    (t->first_ns == TKS_NULL || r->t_request_ns < t->first_ns))
		t->first_ns = r->t_request_ns;
	if (r->t_end_ns != TKS_NULL && r->t_end_ns > t->last_ns)
		t->last_ns = r->t_end_ns;
	if (!s->slo.any)
		return;
	t->judged++;
	t->good += (uint64_t)tks_slo_met(&s->slo, r, &missed);
	for (int m = 0; m < TKS_SLO_METRICS; m++)
		t->missed[m] += missed >> m & 1;
}

/* Gaps between frames that can't be read are none between tokens. */
static bool gaps_of_tokens(const struct tks_request *r)
{
	return r->token_frames || !r->itl.n;
}

static int add_pooled(struct tks_stats *s, const struct tks_request *r, struct value v)
{
	if (!gaps_of_tokens(r))
		return 0;
	if (r->itl.n > 0 && (int64_t)r->ntoken_at != r->itl.n + 1)
		s->totals.pooled_complete = false;
	/* With holes in the series there are fewer gaps than neighbours: which ones is not said. */
	if ((int64_t)r->ntoken_at != r->itl.n + 1)
		return 0;
	for (size_t i = 1; i < r->ntoken_at; i++) {
		if (r->token_at_ns[i] == TKS_NULL || r->token_at_ns[i - 1] == TKS_NULL)
			continue;
		v.v = r->token_at_ns[i] - r->token_at_ns[i - 1];
		if (push(s, TKS_M_ITL_POOLED, &v))
			return -ENOMEM;
	}
	return 0;
}

static int add_values(struct tks_stats *s, const struct tks_request *r)
{
	const int64_t values[TKS_METRICS] = {
		[TKS_M_TTFT] = r->ttft_ns,	     [TKS_M_TTFT_VISIBLE] = r->ttft_visible_ns,
		[TKS_M_TPOT] = r->tpot_ns,	     [TKS_M_ITL_P50] = r->itl.p50_ns,
		[TKS_M_ITL_P99] = r->itl.p99_ns,     [TKS_M_ITL_MAX] = r->itl.max_ns,
		[TKS_M_ITL_POOLED] = TKS_NULL,	     [TKS_M_E2E] = r->e2e_ns,
		[TKS_M_SEND_WAIT] = r->send_wait_ns,
	};
	struct value v = { .len = (int8_t)tks_len_bucket(r->tokens),
			   .conc = (int8_t)tks_conc_bucket(r->conc_mean) };

	for (int m = 0; m < TKS_METRICS; m++) {
		v.v = values[m];
		if (m == TKS_M_TPOT && (r->flags & TKS_F_ESTIMATED) && !s->include_flagged)
			continue;
		if (m >= TKS_M_ITL_P50 && m <= TKS_M_ITL_MAX && !gaps_of_tokens(r))
			continue;
		if (push(s, m, &v))
			return -ENOMEM;
	}
	return add_pooled(s, r, v);
}

int tks_stats_add(struct tks_stats *s, const struct tks_request *r)
{
	add_totals(s, r);
	if ((r->flags & (TKS_F_LOST | TKS_F_MID_STREAM)) && !s->include_flagged) {
		s->totals.left_out++;
		return 0;
	}
	return add_values(s, r);
}

const struct tks_slo *tks_stats_slo(const struct tks_stats *s)
{
	return s->slo.any ? &s->slo : NULL;
}

void tks_stats_totals(const struct tks_stats *s, struct tks_stats_totals *out)
{
	*out = s->totals;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static double quantile(const int64_t *v, size_t n, double q)
{
	return tks_quantile_supported(n, q) ? tks_quantile(v, n, q) : NAN;
}

static bool in_cell(const struct value *v, int len_bucket, int conc_bucket)
{
	return (len_bucket < 0 || v->len == len_bucket) &&
	       (conc_bucket < 0 || v->conc == conc_bucket);
}

static void percentiles(struct tks_dist *d, int64_t *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_value);
	d->p50_ns = quantile(v, n, 0.5);
	d->p90_ns = quantile(v, n, 0.9);
	d->p95_ns = quantile(v, n, 0.95);
	d->p99_ns = quantile(v, n, 0.99);
}

/* Without memory for the percentiles they are NAN, and the rest is as true as ever. */
void tks_stats_cell(struct tks_stats *s, enum tks_metric m, int len_bucket, int conc_bucket,
		    struct tks_dist *out)
{
	const struct series *se = &s->series[m];
	int64_t *v = se->n ? tks_mem_alloc(s->mem, se->n * sizeof(*v)) : NULL;
	long double sum = 0;
	int64_t max = INT64_MIN;
	size_t n = 0;

	*out = (struct tks_dist){ 0, NAN, NAN, NAN, NAN, NAN, NAN };
	for (size_t i = 0; i < se->n; i++) {
		if (!in_cell(&se->values[i], len_bucket, conc_bucket))
			continue;
		if (v)
			v[n] = se->values[i].v;
		n++;
		sum += (long double)se->values[i].v;
		max = se->values[i].v > max ? se->values[i].v : max;
	}
	if (n) {
		out->n = n;
		out->mean_ns = (double)(sum / (long double)n);
		out->max_ns = (double)max;
	}
	if (n && v)
		percentiles(out, v, n);
	tks_mem_free(s->mem, v, se->n * sizeof(*v));
}

void tks_stats_dist(struct tks_stats *s, enum tks_metric m, struct tks_dist *out)
{
	tks_stats_cell(s, m, -1, -1, out);
}
