// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * tokensnoop report: statistics from files. Packets go through the pipeline, records straight to
 * the statistics. What a file lacks is said in one line on standard error, and the rest of it is
 * used.
 */
#include "cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "confine.h"
#include "opts.h"
#include "output.h"
#include "pcap_in.h"
#include "source.h"
#include "tokensnoop/pipeline.h"

enum { ADVANCE_NS = 100000000 }; /* of packet time, between looks at holes */

/* A bound on what files can make us hold, above what any sane run needs. */
static const size_t MEMORY_LIMIT = (size_t)4 << 30;

struct report_config {
	struct tks_ports ports;
	struct tks_output_opts output;
};

struct run {
	const struct report_config *cfg;
	bool verbose;
	bool renumber; /* several files: their ids may clash */
	struct tks_mem mem;
	struct tks_stats *stats;
	struct tks_report *report; /* made when there is something to report */
	FILE *out;
	struct tks_pcap_in *pcap;
	struct tks_pipeline *pipeline;
	uint64_t advanced_ns, next_id;
	struct tks_meta meta;
	char names[1024];
	bool usable, failed; /* at least one file was, or was not, of use */
	int write_err; /* sticky */
};

/* What came of one file. */
struct tally {
	uint64_t records, others, bad;
	bool cut; /* its end is missing */
};

__attribute__((format(printf, 2, 3))) static void say(struct tks_source *s, const char *fmt, ...)
{
	va_list ap;

	if (s->percent >= 0)
		fputs("\r\033[K", stderr);
	fprintf(stderr, "tokensnoop: %s: ", s->name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

static void add(int64_t *counter, uint64_t n)
{
	*counter = *counter == TKS_NULL ? (int64_t)n : *counter + (int64_t)n;
}

/* --- records to statistics and reporter --------------------------------------------------------
 */

static int begin_report(struct run *r)
{
	const struct tks_output_opts *o = &r->cfg->output;
	struct tks_report_config rc = {
		.format = (enum tks_format)o->format,
		.tokens = o->tokens,
		.slo = o->slo.any,
	};
	const char *why;

	r->out = tks_output_open(o->file, &why);
	if (!r->out) {
		fprintf(stderr, "tokensnoop: %s: %s\n", o->file, why);
		return -EIO;
	}
	rc.out = r->out;
	r->report = tks_report_new(&rc);
	return r->report ? 0 : -ENOMEM;
}

static void on_request(void *ctx, const struct tks_request *req)
{
	struct run *r = ctx;
	const struct tks_slo *slo = &r->cfg->output.slo;
	struct tks_request q = *req;

	if (r->renumber)
		q.id = ++r->next_id;
	q.slo_met = slo->any ? tks_slo_met(slo, &q, NULL) : -1;
	if (tks_stats_add(r->stats, &q))
		add(&r->meta.no_memory, 1);
	if (!r->report && !r->write_err)
		r->write_err = begin_report(r);
	if (!r->write_err)
		r->write_err = tks_report_record(r->report, &q);
}

/* --- packet files ------------------------------------------------------------------------------
 */

static void on_event(void *ctx, const struct tks_event *ev)
{
	struct run *r = ctx;

	/* What it could not take for want of memory, it counts. */
	tks_pipeline_feed(r->pipeline, ev);
}

static int begin_packets(struct run *r)
{
	struct tks_pcap_in_config in = {
		.mem = &r->mem,
		.ports = r->cfg->ports.port,
		.nports = r->cfg->ports.n,
		.on_event = on_event,
		.ctx = r,
	};
	struct tks_pipeline_config pipe = {
		.mem = &r->mem,
		.boundary = TKS_B_WIRE,
		.on_request = on_request,
		.ctx = r,
	};
	int err;

	if (!r->pcap)
		r->pcap = tks_pcap_in_new(&in);
	r->pipeline = tks_pipeline_new(&pipe, &err);
	r->advanced_ns = 0;
	return r->pcap && r->pipeline ? 0 : -ENOMEM;
}

static void add_counters(struct run *r)
{
	struct tks_pipeline_counters c;
	struct tks_meta *m = &r->meta;

	tks_pipeline_counters(r->pipeline, &c);
	add(&m->events, c.events);
	add(&m->connections, c.connections);
	add(&m->evicted, c.evicted);
	add(&m->lost_bytes, c.lost_bytes);
	add(&m->no_memory, c.no_memory);
	add(&m->bad_messages, c.bad_messages);
	add(&m->encrypted, c.encrypted);
}

static void end_packets(struct run *r)
{
	uint64_t now;

	if (!r->pipeline)
		return;
	now = tks_pcap_in_now(r->pcap);
	tks_pcap_in_finish(r->pcap);
	tks_pipeline_finish(r->pipeline, now);
	add_counters(r);
	tks_pipeline_free(r->pipeline);
	r->pipeline = NULL;
}

/* One packet is in; sometimes look for holes. */
static void advance(struct run *r)
{
	uint64_t now = tks_pcap_in_now(r->pcap);

	if (now - r->advanced_ns < ADVANCE_NS)
		return;
	r->advanced_ns = now;
	tks_pipeline_advance(r->pipeline, now);
}

static void say_skipped(struct run *r, struct tks_source *s, const struct tks_pcap_counters *before)
{
	static const enum tks_skip always[] = { TKS_SKIP_FRAGMENT, TKS_SKIP_TRUNCATED,
						TKS_SKIP_BAD };
	struct tks_pcap_counters c;
	uint64_t n;

	tks_pcap_in_counters(r->pcap, &c);
	for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++) {
		n = c.skipped[always[i]] - before->skipped[always[i]];
		add(&r->meta.skipped_files_lines, n);
		if (n)
			say(s, "%" PRIu64 " packets left out: %s", n, tks_skip_name(always[i]));
	}
	if (c.no_memory > before->no_memory)
		say(s, "%" PRIu64 " packets left out: no memory", c.no_memory - before->no_memory);
	for (int i = 0; r->verbose && i < TKS_SKIPS; i++)
		say(s, "packets %s: %" PRIu64, tks_skip_name(i), c.skipped[i] - before->skipped[i]);
}

/* Reads the open file to its end, or as far as it goes. */
static void read_packets(struct run *r, struct tks_source *s)
{
	struct tks_pcap_counters before;
	char why[256];
	int got;

	tks_pcap_in_counters(r->pcap, &before);
	do {
		got = tks_pcap_in_next(r->pcap, why, sizeof(why));
		advance(r);
	} while ((got == 1 || got == -ENOMEM) && !r->write_err);
	r->usable = true;
	say_skipped(r, s, &before);
	if (got == -ENODATA) {
		say(s,
		    "ends in the middle of a packet, which is left out (was the capture killed?)");
		add(&r->meta.skipped_files_lines, 1);
	} else if (got == -EBADMSG) {
		say(s, "damaged, the rest is left out: %s", why);
		r->failed = true;
	}
}

static void report_packets(struct run *r, struct tks_source *s, FILE *f)
{
	char why[320];
	int err = r->pipeline ? 0 : begin_packets(r);

	if (err) {
		fclose(f);
		say(s, "out of memory");
		r->failed = true;
		return;
	}
	err = tks_pcap_in_open(r->pcap, f, why, sizeof(why));
	/* A file that goes on where the last one ended (a rotated capture) continues its
	 * connections. */
	if (!err && tks_pcap_in_ahead(r->pcap) < tks_pcap_in_now(r->pcap)) {
		end_packets(r);
		err = begin_packets(r);
		snprintf(why, sizeof(why), "out of memory");
	}
	if (err) {
		say(s, "can't be read as a packet file: %s (tcpdump -r or capinfos may tell more)",
		    why);
		r->failed = true;
	} else {
		read_packets(r, s);
	}
	tks_pcap_in_close(r->pcap);
}

/* --- record files ------------------------------------------------------------------------------
 */

static bool blank(const char *line, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
			return false;
	return true;
}

static void read_line(struct run *r, struct tks_jsonl_reader *reader, const char *line, size_t len,
		      struct tally *t, bool last)
{
	struct tks_request q;
	int err;

	if (blank(line, len))
		return;
	err = tks_jsonl_read(reader, line, len, &q);
	if (err == 0) {
		t->records++;
		on_request(r, &q);
	} else if (err == -ENOENT) {
		t->others++;
	} else if (last) {
		t->cut = true;
	} else {
		t->bad++;
	}
}

static void say_tally(struct run *r, struct tks_source *s, const struct tally *t, bool io_error)
{
	add(&r->meta.skipped_files_lines, t->bad + t->cut);
	if (io_error) {
		say(s, "%s", strerror(EIO));
		r->failed = true;
	}
	if (!t->records && !t->others) {
		say(s,
		    "holds no request records; wanted is what \"tokensnoop trace --format jsonl\" writes, "
		    "or a pcap or pcapng file");
		r->failed = true;
		return;
	}
	r->usable = true;
	if (t->bad)
		say(s, "%" PRIu64 " of %" PRIu64 " lines are not records and are left out", t->bad,
		    t->bad + t->records + t->others + t->cut);
	if (t->cut)
		say(s,
		    "ends in the middle of a record, which is left out (was the tracer killed?)");
}

static void report_records(struct run *r, struct tks_source *s, FILE *f)
{
	struct tks_jsonl_reader *reader = tks_jsonl_reader_new(&r->mem);
	struct tks_lines lines = { .f = f };
	struct tally t = { 0 };
	enum tks_line got;
	size_t len;
	char *line;

	if (!reader) {
		say(s, "out of memory");
		r->failed = true;
		fclose(f);
		return;
	}
	while (!r->write_err && (got = tks_lines_next(&lines, &line, &len)) != TKS_LINE_END) {
		if (got == TKS_LINE_LONG)
			t.bad++;
		else
			read_line(r, reader, line, len, &t, got == TKS_LINE_LAST);
	}
	say_tally(r, s, &t, ferror(f));
	tks_lines_free(&lines);
	tks_jsonl_reader_free(reader);
	fclose(f);
}

/* --- files -------------------------------------------------------------------------------------
 */

/* What is wrong with a file of this kind, or NULL. */
static const char *kind_fault(enum tks_source_kind kind)
{
	switch (kind) {
	case TKS_SOURCE_EMPTY:
		return "is empty; nothing was captured, or the capture has not been flushed yet";
	case TKS_SOURCE_COMPRESSED:
		return "is compressed; unpack it first, e.g. zcat FILE | tokensnoop report -";
	case TKS_SOURCE_FOREIGN:
		return "is neither records (JSONL) nor packets (pcap, pcapng)";
	default:
		return NULL;
	}
}

static void report_open_source(struct run *r, struct tks_source *s)
{
	enum tks_source_kind kind = tks_source_kind(s);
	const char *fault = kind_fault(kind);
	FILE *f;

	if (fault) {
		say(s, "%s", fault);
		r->failed = true;
		return;
	}
	f = tks_source_stream(s);
	if (!f) {
		say(s, "out of memory");
		r->failed = true;
	} else if (kind == TKS_SOURCE_PACKETS) {
		report_packets(r, s, f);
	} else {
		report_records(r, s, f);
	}
}

static void report_file(struct run *r, const char *path)
{
	struct tks_source s;
	int err = tks_source_open(&s, path);

	if (err) {
		say(&s, "%s", strerror(-err));
		r->failed = true;
	} else {
		report_open_source(r, &s);
	}
	tks_source_close(&s);
}

/* An output that is one of the inputs would be emptied before it is read. */
static bool overwrites_input(const struct tks_output_opts *o, const struct tks_args *args)
{
	struct stat out, in;

	if (!o->file || stat(o->file, &out) || !S_ISREG(out.st_mode))
		return false;
	for (size_t i = 0; i < args->noperands; i++)
		if (!stat(args->operands[i], &in) && in.st_dev == out.st_dev &&
		    in.st_ino == out.st_ino)
			return true;
	return false;
}

/* --- the whole ---------------------------------------------------------------------------------
 */

static void begin_meta(struct run *r, const struct tks_args *args)
{
	size_t used = 0;
	int n;

	for (size_t i = 0; i < args->noperands && used < sizeof(r->names); i++) {
		n = snprintf(r->names + used, sizeof(r->names) - used, "%s%s", i ? ", " : "",
			     args->operands[i]);
		used += n > 0 ? (size_t)n : 0;
	}
	r->meta = (struct tks_meta){
		.version = TKS_VERSION,
		.host = "",
		.kernel = "",
		.source = r->names,
		.hooks = "",
		.clock_offset_ns = TKS_NULL,
		.prog_runs = TKS_NULL,
		.prog_ns = TKS_NULL,
		.events = TKS_NULL,
		.connections = TKS_NULL,
		.evicted = TKS_NULL,
		.lost_records = TKS_NULL,
		.lost_bytes = TKS_NULL,
		.unreadable_bytes = TKS_NULL,
		.conn_full = TKS_NULL,
		.inflight_lost = TKS_NULL,
		.no_memory = TKS_NULL,
		.bad_messages = TKS_NULL,
		.encrypted = TKS_NULL,
		.tls_ties = TKS_NULL,
		.tls_untied = TKS_NULL,
		.tls_blind = TKS_NULL,
	};
}

static void end_meta(struct run *r)
{
	struct tks_stats_totals t;
	struct timespec cpu;

	tks_stats_totals(r->stats, &t);
	r->meta.start_unix_ns = t.first_ns;
	r->meta.duration_ns = TKS_NULL;
	if (t.first_ns != TKS_NULL && t.last_ns != TKS_NULL)
		r->meta.duration_ns = t.last_ns - t.first_ns;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	r->meta.cpu_ns = (int64_t)cpu.tv_sec * 1000000000 + cpu.tv_nsec;
}

static int end_report(struct run *r)
{
	const struct tks_output_opts *o = &r->cfg->output;
	int err;

	if (!r->report && !r->write_err)
		r->write_err = begin_report(r);
	if (!r->out)
		return TKS_EXIT_FAILED;
	end_meta(r);
	if (!r->write_err)
		r->write_err = tks_report_close(r->report, &r->meta, r->stats);
	if (!r->write_err && o->format != TKS_FMT_TABLE)
		tks_summary_print(stderr, &r->meta, r->stats, o->slo.any ? &o->slo : NULL);
	err = tks_output_close(r->out);
	if (!r->write_err)
		r->write_err = err;
	if (r->write_err && r->write_err != -EPIPE)
		fprintf(stderr, "tokensnoop: writing the report: %s\n", strerror(-r->write_err));
	return tks_output_status(r->write_err);
}

static int report(struct run *r, const struct tks_args *args)
{
	const struct tks_output_opts *o = &r->cfg->output;
	int status = TKS_EXIT_OK;

	r->stats = tks_stats_new(&r->mem, o->slo.any ? &o->slo : NULL, o->include_flagged);
	if (!r->stats) {
		fprintf(stderr, "tokensnoop: out of memory\n");
		return TKS_EXIT_FAILED;
	}
	begin_meta(r, args);
	for (size_t i = 0; i < args->noperands && !r->write_err; i++)
		report_file(r, args->operands[i]);
	end_packets(r);
	if (r->usable || r->write_err)
		status = end_report(r);
	tks_report_free(r->report);
	tks_pcap_in_free(r->pcap);
	tks_stats_free(r->stats);
	return r->failed ? TKS_EXIT_FAILED : status;
}

int tks_cmd_report(int argc, char **argv)
{
	static const struct tks_opt input_rows[] = {
		{ "port", 0, TKS_OPT_PORTS, offsetof(struct report_config, ports), 1, UINT16_MAX,
		  "N", "packets: only servers on this port; may be given up to 16 times", NULL },
	};
	static const struct tks_opt_group groups[] = {
		{ "Input", input_rows, 1, 0 },
		TKS_GROUP_OUTPUT(offsetof(struct report_config, output)),
	};
	static const struct tks_cmd_spec spec = {
		.name = "report",
		.synopsis = "[OPTIONS] FILE...",
		.doc = "Statistics from files of records (the JSONL that trace writes) or of packets (pcap,\n"
		       "pcapng). - as FILE is standard input. Packet files that go on where the one before\n"
		       "ended are taken as one capture.\n",
		.groups = groups,
		.ngroups = 2,
		.operand = "FILE",
		.min_operands = 1,
	};
	struct report_config cfg = { 0 };
	struct run r = { .cfg = &cfg, .mem = TKS_MEM_INIT(MEMORY_LIMIT) };
	struct tks_args args;
	int status = tks_opts_begin(&spec, &cfg, argc, argv, &args);

	if (status >= 0)
		return status;
	status = tks_drop_lent_caps();
	if (status) {
		fprintf(stderr, "tokensnoop: giving up capabilities: %s\n", strerror(-status));
		return TKS_EXIT_FAILED;
	}
	if (overwrites_input(&cfg.output, &args)) {
		fprintf(stderr, "tokensnoop: -o %s: is one of the inputs; name another file\n",
			cfg.output.file);
		return TKS_EXIT_USAGE;
	}
	r.verbose = args.verbose;
	r.renumber = args.noperands > 1;
	return report(&r, &args);
}
