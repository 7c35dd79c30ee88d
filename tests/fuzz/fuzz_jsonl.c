// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fuzzes reading records back, and what is done with records that came from a file. Oracles: a line
 * that is read, written and read again is written the same; no figure made of it overflows; all
 * memory comes back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fields.h"
#include "tokensnoop/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *write_record(const struct tks_request *q, size_t *len)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, len);
	struct tks_jsonw w;

	tks_jsonw_init(&w, f);
	tks_fields_write(&w, q, true);
	fclose(f);
	return text;
}

static void round_trip(struct tks_jsonl_reader *r, const struct tks_request *q)
{
	struct tks_request again;
	size_t n1, n2;
	char *first = write_record(q, &n1), *second;

	if (tks_jsonl_read(r, first, n1, &again))
		abort();
	second = write_record(&again, &n2);
	if (n1 != n2 || memcmp(first, second, n1))
		abort();
	free(first);
	free(second);
}

/* A record of a file goes to the statistics and into each format. */
static void report(struct tks_mem *mem, const struct tks_request *q, enum tks_format format)
{
	struct tks_slo slo = { .any = true };
	struct tks_meta meta = {
		.version = "", .host = "", .kernel = "", .source = "", .hooks = ""
	};
	struct tks_stats *stats;
	char *text = NULL;
	size_t n;
	struct tks_report_config cfg = { .format = format,
					 .live = true,
					 .out = open_memstream(&text, &n) };
	struct tks_report *rep = tks_report_new(&cfg);

	stats = tks_stats_new(mem, &slo, true);
	for (int i = 0; i < 2; i++) {
		if (tks_stats_add(stats, q) || tks_report_record(rep, q))
			abort();
	}
	if (tks_report_close(rep, &meta, stats))
		abort();
	tks_report_free(rep);
	tks_stats_free(stats);
	fclose(cfg.out);
	if (format == TKS_FMT_TABLE && strchr(text, '\033'))
		abort();
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tks_mem mem = TKS_MEM_INIT(64 << 20);
	struct tks_jsonl_reader *r = tks_jsonl_reader_new(&mem);
	struct tks_request q;

	if (!r)
		abort();
	if (!tks_jsonl_read(r, (const char *)data, size, &q)) {
		report(&mem, &q, TKS_FMT_TABLE);
		report(&mem, &q, TKS_FMT_JSON);
		round_trip(r, &q);
	}
	tks_jsonl_reader_free(r);
	if (mem.used)
		abort();
	return 0;
}
