// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Meta and summary as JSON. Times are integer nanoseconds, null where the sample can't carry them.
 */
#include "meta.h"

#include <math.h>

#include "metric_names.h"

static void member_text(struct tks_jsonw *w, const char *name, const char *s)
{
	tks_jsonw_name(w, name);
	if (s && s[0])
		tks_jsonw_string(w, s);
	else
		tks_jsonw_null(w);
}

static void member_int(struct tks_jsonw *w, const char *name, int64_t v)
{
	tks_jsonw_name(w, name);
	if (v == TKS_NULL)
		tks_jsonw_null(w);
	else
		tks_jsonw_int(w, v);
}

static void member_ns(struct tks_jsonw *w, const char *name, double v)
{
	member_int(w, name, isfinite(v) ? llround(v) : TKS_NULL);
}

static void drops(struct tks_jsonw *w, const struct tks_meta *m)
{
	tks_jsonw_name(w, "drops");
	tks_jsonw_begin(w, '{');
	member_int(w, "lost_records", m->lost_records);
	member_int(w, "lost_bytes", m->lost_bytes);
	member_int(w, "unreadable_bytes", m->unreadable_bytes);
	member_int(w, "conn_full", m->conn_full);
	member_int(w, "inflight_lost", m->inflight_lost);
	member_int(w, "evicted", m->evicted);
	member_int(w, "no_memory", m->no_memory);
	member_int(w, "bad_messages", m->bad_messages);
	member_int(w, "skipped", m->skipped_files_lines);
	tks_jsonw_end(w, '}');
}

void tks_meta_write(struct tks_jsonw *w, const struct tks_meta *m)
{
	member_text(w, "version", m->version);
	member_text(w, "host", m->host);
	member_text(w, "kernel", m->kernel);
	member_text(w, "source", m->source);
	member_text(w, "hooks", m->hooks);
	member_int(w, "start_unix_ns", m->start_unix_ns);
	member_int(w, "duration_ns", m->duration_ns);
	member_int(w, "clock_offset_ns", m->clock_offset_ns);
	member_int(w, "cpu_ns", m->cpu_ns);
	member_int(w, "prog_runs", m->prog_runs);
	member_int(w, "prog_ns", m->prog_ns);
	member_int(w, "events", m->events);
	member_int(w, "connections", m->connections);
	member_int(w, "encrypted", m->encrypted);
	member_int(w, "tls_ties", m->tls_ties);
	member_int(w, "tls_untied", m->tls_untied);
	member_int(w, "tls_blind", m->tls_blind);
	drops(w, m);
}

static void dist(struct tks_jsonw *w, const struct tks_dist *d)
{
	tks_jsonw_begin(w, '{');
	member_int(w, "n", (int64_t)d->n);
	member_ns(w, "mean_ns", d->mean_ns);
	member_ns(w, "p50_ns", d->p50_ns);
	member_ns(w, "p90_ns", d->p90_ns);
	member_ns(w, "p95_ns", d->p95_ns);
	member_ns(w, "p99_ns", d->p99_ns);
	member_ns(w, "max_ns", d->max_ns);
	tks_jsonw_end(w, '}');
}

static void counts(struct tks_jsonw *w, const struct tks_stats_totals *t)
{
	member_int(w, "requests", (int64_t)t->requests);
	member_int(w, "completed", (int64_t)t->completed);
	member_int(w, "errors", (int64_t)t->errors);
	member_int(w, "aborted", (int64_t)t->aborted);
	member_int(w, "cut", (int64_t)t->cut);
	member_int(w, "open", (int64_t)t->open);
	member_int(w, "streamed", (int64_t)t->streamed);
	member_int(w, "lost", (int64_t)t->lost);
	member_int(w, "mid_stream", (int64_t)t->mid_stream);
	member_int(w, "estimated", (int64_t)t->estimated);
	member_int(w, "left_out", (int64_t)t->left_out);
	member_int(w, "tokens", (int64_t)t->tokens);
	tks_jsonw_name(w, "models");
	tks_jsonw_begin(w, '[');
	for (size_t i = 0; i < t->nmodels; i++)
		tks_jsonw_string(w, t->models[i]);
	tks_jsonw_end(w, ']');
}

static void cells(struct tks_jsonw *w, struct tks_stats *stats, enum tks_metric m)
{
	struct tks_dist d;

	tks_jsonw_begin(w, '[');
	for (int l = 0; l < TKS_LEN_BUCKETS; l++) {
		for (int c = 0; c < TKS_CONC_BUCKETS; c++) {
			tks_stats_cell(stats, m, l, c, &d);
			if (!d.n)
				continue;
			tks_jsonw_begin(w, '{');
			member_text(w, "tokens", tks_len_bucket_name(l));
			member_text(w, "concurrency", tks_conc_bucket_name(c));
			tks_jsonw_name(w, "figures");
			dist(w, &d);
			tks_jsonw_end(w, '}');
		}
	}
	tks_jsonw_end(w, ']');
}

static void goodput(struct tks_jsonw *w, const struct tks_stats_totals *t,
		    const struct tks_slo *slo)
{
	tks_jsonw_name(w, "goodput");
	tks_jsonw_begin(w, '{');
	member_int(w, "judged", (int64_t)t->judged);
	member_int(w, "good", (int64_t)t->good);
	tks_jsonw_name(w, "missed");
	tks_jsonw_begin(w, '{');
	for (int i = 0; i < TKS_SLO_METRICS; i++) {
		if (slo->limit_ns[i] != TKS_NULL)
			member_int(w, tks_slo_name(i), (int64_t)t->missed[i]);
	}
	tks_jsonw_end(w, '}');
	tks_jsonw_end(w, '}');
}

void tks_summary_write(struct tks_jsonw *w, struct tks_stats *stats, const struct tks_slo *slo)
{
	struct tks_stats_totals t;
	struct tks_dist d;

	tks_stats_totals(stats, &t);
	tks_jsonw_begin(w, '{');
	counts(w, &t);
	for (int m = 0; m < TKS_METRICS; m++) {
		tks_stats_dist(stats, m, &d);
		tks_jsonw_name(w, tks_metric_names[m].key);
		dist(w, &d);
	}
	tks_jsonw_name(w, "tpot_by_bucket");
	cells(w, stats, TKS_M_TPOT);
	tks_jsonw_name(w, "ttft_by_bucket");
	cells(w, stats, TKS_M_TTFT);
	if (slo && slo->any)
		goodput(w, &t, slo);
	tks_jsonw_end(w, '}');
}
