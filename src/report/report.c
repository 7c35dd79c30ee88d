// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The three reporters behind one interface: a table for people, JSON lines, one JSON document.
 */
#include "tokensnoop/report.h"

#include <errno.h>
#include <stdlib.h>

#include "fields.h"
#include "meta.h"
#include "table.h"

struct tks_report {
	struct tks_report_config cfg;
	struct tks_jsonw w;
	uint64_t records;
};

struct tks_report *tks_report_new(const struct tks_report_config *cfg)
{
	struct tks_report *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->cfg = *cfg;
	tks_jsonw_init(&r->w, cfg->out);
	return r;
}

void tks_report_free(struct tks_report *r)
{
	free(r);
}

static int record_json(struct tks_report *r, const struct tks_request *q)
{
	/* The document's head waits for the first record or the end; meta is known only then. */
	if (!r->records) {
		tks_jsonw_begin(&r->w, '{');
		tks_jsonw_name(&r->w, "requests");
		tks_jsonw_begin(&r->w, '[');
	}
	tks_fields_write(&r->w, q, r->cfg.tokens);
	return r->w.err;
}

static int record_jsonl(struct tks_report *r, const struct tks_request *q)
{
	tks_fields_write(&r->w, q, r->cfg.tokens);
	tks_jsonw_newline(&r->w);
	return r->w.err;
}

int tks_report_record(struct tks_report *r, const struct tks_request *q)
{
	int err = 0;

	if (r->cfg.format == TKS_FMT_JSON)
		err = record_json(r, q);
	else if (r->cfg.format == TKS_FMT_JSONL)
		err = record_jsonl(r, q);
	else if (r->cfg.live)
		err = tks_table_row(r->cfg.out, q, !r->records);
	r->records++;
	return err;
}

int tks_report_tick(struct tks_report *r)
{
	errno = 0;
	if (fflush(r->cfg.out))
		return errno ? -errno : -EIO;
	return r->w.err;
}

static int close_json(struct tks_report *r, const struct tks_meta *meta, struct tks_stats *stats,
		      const struct tks_slo *slo)
{
	struct tks_jsonw *w = &r->w;

	if (!r->records) {
		tks_jsonw_begin(w, '{');
		tks_jsonw_name(w, "requests");
		tks_jsonw_begin(w, '[');
	}
	tks_jsonw_end(w, ']');
	tks_jsonw_name(w, "meta");
	tks_jsonw_begin(w, '{');
	tks_meta_write(w, meta);
	tks_jsonw_end(w, '}');
	tks_jsonw_name(w, "summary");
	tks_summary_write(w, stats, slo);
	tks_jsonw_end(w, '}');
	tks_jsonw_newline(w);
	return tks_report_tick(r);
}

static int close_jsonl(struct tks_report *r, const struct tks_meta *meta)
{
	struct tks_jsonw *w = &r->w;

	tks_jsonw_begin(w, '{');
	tks_jsonw_name(w, "type");
	tks_jsonw_string(w, "meta");
	tks_meta_write(w, meta);
	tks_jsonw_end(w, '}');
	tks_jsonw_newline(w);
	return tks_report_tick(r);
}

int tks_report_close(struct tks_report *r, const struct tks_meta *meta, struct tks_stats *stats)
{
	const struct tks_slo *slo = tks_stats_slo(stats);

	if (r->cfg.format == TKS_FMT_JSON)
		return close_json(r, meta, stats, slo);
	if (r->cfg.format == TKS_FMT_JSONL)
		return close_jsonl(r, meta);
	return tks_summary_print(r->cfg.out, meta, stats, slo);
}
