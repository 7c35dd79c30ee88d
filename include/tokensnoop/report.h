/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reporters: finished records in, text out. stdout is data, stderr is talk; a reporter writes to
 * the FILE it is given and to nothing else.
 */
#ifndef TOKENSNOOP_REPORT_H
#define TOKENSNOOP_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tokensnoop/request.h"
#include "tokensnoop/stats.h"

enum tks_format { TKS_FMT_TABLE = 0, TKS_FMT_JSONL, TKS_FMT_JSON };

/* How the measurement was made, so that a reader can judge it. Strings are never NULL; "" is null
 * in the output. */
struct tks_meta {
	const char *version;
	const char *host, *kernel;
	const char *source; /* "live", or the names of the files */
	const char *hooks; /* "send=fentry recv=cgroup_skb conn=tp_btf" */
	int64_t start_unix_ns, duration_ns; /* TKS_NULL: not known */
	int64_t clock_offset_ns; /* wall clock minus monotonic; TKS_NULL: not known */
	int64_t cpu_ns; /* CPU time of the tool itself */
	int64_t prog_runs,
		prog_ns; /* BPF programs: runs and time in them; TKS_NULL: not measured */
	int64_t events, connections, evicted;
	int64_t lost_records, lost_bytes, unreadable_bytes, conn_full, inflight_lost, no_memory,
		bad_messages, encrypted, tls_ties, tls_untied, tls_blind;
	int64_t skipped_files_lines; /* report: lines or packets that could not be read */
};

struct tks_report;

struct tks_report_config {
	enum tks_format format;
	FILE *out; /* not closed by the reporter */
	bool tokens; /* token series in the records */
	bool live; /* table: a line a request as it finishes */
	bool slo; /* records carry slo_met */
};

/* NULL without memory. */
struct tks_report *tks_report_new(const struct tks_report_config *cfg);

/* 0, or the negative errno of a failed write (-EPIPE: the reader has gone). */
int tks_report_record(struct tks_report *r, const struct tks_request *q);

/* Flush what is buffered, so that a reader sees whole lines; 0 or negative errno. */
int tks_report_tick(struct tks_report *r);

/* The end: table and json write the summary from stats; jsonl a line of type "meta". 0 or negative
 * errno. */
int tks_report_close(struct tks_report *r, const struct tks_meta *meta, struct tks_stats *stats);

void tks_report_free(struct tks_report *r);

/* The human-readable summary (what `table` ends with), also for standard error beside the machine
 * formats. */
int tks_summary_print(FILE *out, const struct tks_meta *meta, struct tks_stats *stats,
		      const struct tks_slo *slo);

/*
 * Reads records back from JSONL: one line (without its LF) into *q. 0; -ENOENT a line of another
 * type (meta, summary) or blank; -EBADMSG not a record (truncated, foreign). Strings that the
 * record has by pointer are static; the token series is owned by the reader and valid until its
 * next call.
 */
struct tks_jsonl_reader;
struct tks_jsonl_reader *tks_jsonl_reader_new(struct tks_mem *mem);
void tks_jsonl_reader_free(struct tks_jsonl_reader *r);
int tks_jsonl_read(struct tks_jsonl_reader *r, const char *line, size_t len, struct tks_request *q);

#endif
