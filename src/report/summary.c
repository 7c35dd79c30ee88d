// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The summary for people, 80 columns: what was measured where and how, then the figures, then what
 * speaks against them.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "fields.h"
#include "human.h"
#include "metric_names.h"
#include "tokensnoop/report.h"

enum { TEXT_WIDTH = 64 }; /* what an 80 column line has room for behind its label */

/* --- the head --- */

static void print_boundary(FILE *out, const struct tks_stats_totals *t)
{
	int n = 0;

	fputs("boundary       ", out);
	for (size_t b = 0; b < TKS_B_COUNT; b++) {
		if (t->boundaries >> b & 1)
			fprintf(out, "%s%s", n++ ? ", " : "", tks_boundary_names[b]);
	}
	fputs(n ? "\n" : "-\n", out);
	if (n > 1)
		fputs("  NOTE: mixed boundaries; the figures below can't be compared with one\n",
		      out);
}

static void print_models(FILE *out, const struct tks_stats_totals *t)
{
	char name[TEXT_WIDTH + 1];

	fprintf(out, "model          %s\n",
		tks_human_text(t->nmodels ? t->models[0] : "", TEXT_WIDTH, name));
	for (size_t i = 1; i < t->nmodels; i++)
		fprintf(out, "               %s\n", tks_human_text(t->models[i], TEXT_WIDTH, name));
	if (t->more_models)
		fputs("               ...\n", out);
	if (t->nmodels > 1 || t->more_models)
		fputs("  NOTE: several models in one sample\n", out);
}

static void print_source(FILE *out, uint64_t n, const char *text, int *printed)
{
	if (n)
		fprintf(out, "%s%" PRIu64 " %s", (*printed)++ ? ", " : "", n, text);
}

static void print_sources(FILE *out, const struct tks_stats_totals *t)
{
	int printed = 0;

	fputs("token source   ", out);
	print_source(out, t->src_per_frame, "per_frame", &printed);
	print_source(out, t->src_usage, "usage", &printed);
	print_source(out, t->src_frames, "frames (estimated)", &printed);
	print_source(out, t->src_none, "none", &printed);
	fputs(printed ? "\n" : "-\n", out);
	if (!!t->src_per_frame + !!t->src_usage + !!t->src_frames > 1)
		fputs("  NOTE: several token sources in one sample\n", out);
}

static void print_requests(FILE *out, const struct tks_stats_totals *t)
{
	fprintf(out,
		"requests       %" PRIu64 ": %" PRIu64 " completed, %" PRIu64 " errors, %" PRIu64
		" aborted, %" PRIu64 " cut, %" PRIu64 " open\n",
		t->requests, t->completed, t->errors, t->aborted, t->cut, t->open);
}

static void print_throughput(FILE *out, const struct tks_stats_totals *t)
{
	double s = t->first_ns == TKS_NULL || t->last_ns == TKS_NULL
			   ? 0
			   : (double)(t->last_ns - t->first_ns) / 1e9;

	if (s <= 0)
		return;
	fprintf(out, "throughput     %.3g requests/s, %.4g output tokens/s over %.3g s\n",
		(double)t->requests / s, (double)t->tokens / s, s);
}

/* --- the figures --- */

static void print_dist(FILE *out, const char *label, int width, const struct tks_dist *d)
{
	char b[6][TKS_HUMAN];

	fprintf(out, "%-*s %6" PRIu64 " %8s %8s %8s %8s %8s %8s\n", width, label, d->n,
		tks_human_ms(d->mean_ns, b[0]), tks_human_ms(d->p50_ns, b[1]),
		tks_human_ms(d->p90_ns, b[2]), tks_human_ms(d->p95_ns, b[3]),
		tks_human_ms(d->p99_ns, b[4]), tks_human_ms(d->max_ns, b[5]));
}

static void print_dists(FILE *out, struct tks_stats *stats, const struct tks_stats_totals *t)
{
	struct tks_dist d;

	if (!t->requests)
		return;
	fprintf(out, "\n%-16s %6s %8s %8s %8s %8s %8s %8s\n", "milliseconds", "n", "mean", "p50",
		"p90", "p95", "p99", "max");
	for (int m = 0; m < TKS_METRICS; m++) {
		tks_stats_dist(stats, m, &d);
		if (d.n)
			print_dist(out, tks_metric_names[m].label, 16, &d);
	}
	tks_stats_dist(stats, TKS_M_ITL_POOLED, &d);
	if (d.n)
		fprintf(out, "  * over all gaps: long answers weigh more%s\n",
			t->pooled_complete ? "" : "; not every request brought its gaps");
}

static void print_cells(FILE *out, struct tks_stats *stats, enum tks_metric m)
{
	struct tks_dist d;
	char label[32];

	tks_stats_dist(stats, m, &d);
	if (!d.n)
		return;
	fprintf(out, "\n%s by output tokens x concurrency\n", tks_metric_names[m].label);
	for (int l = 0; l < TKS_LEN_BUCKETS; l++) {
		for (int c = 0; c < TKS_CONC_BUCKETS; c++) {
			tks_stats_cell(stats, m, l, c, &d);
			if (!d.n)
				continue;
			snprintf(label, sizeof(label), "%8s x %-5s", tks_len_bucket_name(l),
				 tks_conc_bucket_name(c));
			print_dist(out, label, 16, &d);
		}
	}
}

static void print_goodput(FILE *out, const struct tks_stats_totals *t, const struct tks_slo *slo)
{
	double s = t->first_ns == TKS_NULL || t->last_ns == TKS_NULL
			   ? 0
			   : (double)(t->last_ns - t->first_ns) / 1e9;
	char buf[TKS_HUMAN];

	if (!slo || !slo->any || !t->judged)
		return;
	fprintf(out, "\ngoodput        %" PRIu64 " of %" PRIu64 " good (%.3g %%)", t->good,
		t->judged, 100.0 * (double)t->good / (double)t->judged);
	if (s > 0)
		fprintf(out, ", %.3g good requests/s", (double)t->good / s);
	fputc('\n', out);
	for (int m = 0; m < TKS_SLO_METRICS; m++) {
		if (slo->limit_ns[m] != TKS_NULL)
			fprintf(out, "  %-12s <= %s ms: missed by %" PRIu64 "\n", tks_slo_name(m),
				tks_human_ms_int(slo->limit_ns[m], buf), t->missed[m]);
	}
}

/* --- what speaks against them, and the cost --- */

static void print_flagged(FILE *out, const struct tks_stats_totals *t)
{
	if (!t->lost && !t->mid_stream && !t->estimated)
		return;
	fprintf(out,
		"\nflagged        %" PRIu64 " lost, %" PRIu64 " mid_stream, %" PRIu64
		" estimated\n",
		t->lost, t->mid_stream, t->estimated);
	if (t->left_out)
		fprintf(out,
			"  %" PRIu64 " lost or mid_stream requests are left out of the figures\n",
			t->left_out);
	if (t->estimated)
		fputs("  estimated: tokens counted as one a frame, a lower bound; left out of TPOT\n",
		      out);
}

/* One reason more on the line, or on the next where it has no room. */
static void print_drop(FILE *out, int64_t n, const char *what, int *used)
{
	char item[64];
	int len;

	if (n <= 0)
		return;
	len = snprintf(item, sizeof(item), "%" PRId64 " %s", n, what);
	if (*used && *used + len + 2 > TEXT_WIDTH) {
		fprintf(out, ",\n%15s", "");
		*used = 0;
	}
	fprintf(out, "%s%s", *used ? ", " : "", item);
	*used += len + 2;
}

static void print_drops(FILE *out, const struct tks_meta *m)
{
	int used = 0;

	fputs("drops          ", out);
	print_drop(out, m->lost_records, "records", &used);
	print_drop(out, m->lost_bytes, "bytes", &used);
	print_drop(out, m->unreadable_bytes, "bytes unreadable", &used);
	print_drop(out, m->conn_full, "connections (table full)", &used);
	print_drop(out, m->inflight_lost, "sends half seen", &used);
	print_drop(out, m->evicted, "connections evicted", &used);
	print_drop(out, m->no_memory, "things for want of memory", &used);
	print_drop(out, m->bad_messages, "bad messages", &used);
	print_drop(out, m->skipped_files_lines, "lines or packets skipped", &used);
	fputs(used ? "\n" : "none\n", out);
	if (m->encrypted > 0 && (m->tls_ties > 0 || m->tls_blind > 0))
		fprintf(out,
			"TLS            %" PRId64 " connections, plaintext of %" PRId64
			" seen, blind to %" PRId64 "\n",
			m->encrypted, m->tls_ties, m->tls_blind);
	else if (m->encrypted > 0)
		fprintf(out, "not read       %" PRId64 " TLS connections\n", m->encrypted);
}

static void print_cost(FILE *out, const struct tks_meta *m)
{
	double s = m->duration_ns == TKS_NULL ? 0 : (double)m->duration_ns / 1e9;

	fprintf(out, "own cost       %.3g s CPU", (double)m->cpu_ns / 1e9);
	if (s > 0 && m->prog_runs != TKS_NULL)
		fprintf(out, " in %.3g s (%.2g %% of a core)", s, (double)m->cpu_ns / 1e7 / s);
	if (m->prog_runs != TKS_NULL && m->prog_runs > 0)
		fprintf(out, "\n  in kernel    %" PRId64 " ns a run x %" PRId64 " runs",
			m->prog_ns / m->prog_runs, m->prog_runs);
	fprintf(out, "\nevents         %" PRId64 " on %" PRId64 " connections\n", m->events,
		m->connections);
}

int tks_summary_print(FILE *out, const struct tks_meta *m, struct tks_stats *stats,
		      const struct tks_slo *slo)
{
	struct tks_stats_totals t;

	tks_stats_totals(stats, &t);
	fprintf(out, "\nsource         %s%s%s\n", m->source, m->hooks[0] ? ": " : "", m->hooks);
	print_boundary(out, &t);
	print_models(out, &t);
	print_sources(out, &t);
	print_requests(out, &t);
	print_throughput(out, &t);
	print_dists(out, stats, &t);
	print_cells(out, stats, TKS_M_TPOT);
	print_cells(out, stats, TKS_M_TTFT);
	print_goodput(out, &t, slo);
	print_flagged(out, &t);
	fputc('\n', out);
	print_drops(out, m);
	print_cost(out, m);
	errno = 0;
	if (fflush(out) || ferror(out))
		return errno ? -errno : -EIO;
	return 0;
}
