// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * tokensnoop trace: the live tracer. One thread: ring -> pipeline -> records and statistics ->
 * reporter.
 */
#include "cmd.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "capture.h"
#include "cgroup.h"
#include "confine.h"
#include "opts.h"
#include "output.h"
#include "tls_attach.h"
#include "tokensnoop/event.h"
#include "tokensnoop/pipeline.h"
#include "tokensnoop/report.h"

enum {
	TICK_MS = 50, /* the bound on the delay of live output, with what a turn takes */
	MEMORY_LIMIT = 512 << 20, /* of the core: past it things are dropped, counted and flagged */
};

struct trace_config {
	struct tks_filter_opts filter;
	struct tks_capture_opts capture;
	struct tks_output_opts output;
};

struct trace {
	const struct trace_config *cfg;
	struct tks_mem mem;
	struct tks_capture *capture;
	struct tks_pipeline *pipeline;
	struct tks_stats *stats;
	struct tks_report *report;
	FILE *out;
	struct tks_meta meta;
	struct utsname uts;
	uint64_t began_ns, bad_records;
	uint32_t blind_pids[64]; /* told of last, a ring: a line a process, not a connection */
	size_t nblind;
	int write_err; /* of the output, sticky */
	uint64_t unix_misses;
};

/* The one thing that a signal handler may touch. */
static volatile sig_atomic_t stop_asked;

static void on_signal(int sig)
{
	(void)sig;
	stop_asked = 1;
}

static void catch_signals(void)
{
	/* The wait for records ends at once, as no wait for events is restarted; the output that a
	 * slow reader holds up goes on. Who doesn't want to wait for that asks again, and it ends
	 * there. */
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART | SA_RESETHAND };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* --- callbacks --- */

/*
 * With a filter by process a connection is everybody's until somebody sends on it: the kernel then
 * turns it down if it is not wanted, but its first request is here by then. One that never got a
 * byte back can't be told from that.
 */
static bool nobodys(const struct trace *t, const struct tks_request *r)
{
	const struct tks_filter_opts *f = &t->cfg->filter;

	return (f->pid || f->comm || f->cgroup) && r->pid == TKS_NULL;
}

static void on_request(void *ctx, const struct tks_request *r)
{
	struct trace *t = ctx;
	struct tks_request q = *r;

	if (nobodys(t, r))
		return;
	if (q.cgroup_id)
		tks_cgroup_path(q.cgroup_id, q.cgroup, sizeof(q.cgroup));
	if (t->cfg->output.slo.any)
		q.slo_met = tks_slo_met(&t->cfg->output.slo, &q, NULL);
	if (tks_stats_add(t->stats, &q))
		t->meta.no_memory++;
	if (!t->write_err)
		t->write_err = tks_report_record(t->report, &q);
}

static void on_verdict(void *ctx, uint64_t conn, enum tks_verdict v)
{
	struct trace *t = ctx;

	tks_capture_verdict(t->capture, conn, v);
}

static void on_obj_verdict(void *ctx, uint32_t pid, uint64_t obj, enum tks_verdict v)
{
	struct trace *t = ctx;

	tks_capture_obj_verdict(t->capture, pid, obj, v);
}

static void on_blind(void *ctx, const struct tks_process *proc, const struct tks_endpoint *local,
		     bool kernel_tls)
{
	struct trace *t = ctx;
	char addr[TKS_ENDPOINT_STR];

	for (size_t i = 0; i < 64 && i < t->nblind; i++) {
		if (t->blind_pids[i] == proc->pid)
			return;
	}
	t->blind_pids[t->nblind++ % 64] = proc->pid;
	fprintf(stderr, "tokensnoop: blind to TLS of %s[%u] at %s: %s\n",
		proc->comm[0] ? proc->comm : "?", proc->pid, tks_endpoint_str(local, addr),
		kernel_tls ? "kernel TLS, which it writes to past a library that is read"
			   : tks_capture_why_blind(t->capture, proc->pid));
}

static void on_record(void *ctx, const void *data, size_t size)
{
	struct trace *t = ctx;
	struct tks_event ev;
	int err = tks_event_decode(data, size, &ev);

	if (err == -EBADMSG)
		t->bad_records++;
	if (!err)
		tks_pipeline_feed(t->pipeline, &ev);
}

/* --- set-up --- */

static void capture_config(const struct trace_config *cfg, struct tks_capture_config *cc)
{
	*cc = (struct tks_capture_config){
		.nports = cfg->filter.ports.n,
		.all = cfg->filter.all,
		.pid = cfg->filter.pid,
		.comm = cfg->filter.comm,
		.cgroup = cfg->filter.cgroup,
		.no_tls = cfg->filter.no_tls,
		.ring_bytes = (size_t)cfg->capture.ring_mb << 20,
		/* Not an option: for tests, and for comparing hooks. */
	};
	memcpy(cc->ports, cfg->filter.ports.port, sizeof(cc->ports));
}

static int open_capture(struct trace *t)
{
	struct tks_capture_config cc;
	char why[400];
	int err;

	capture_config(t->cfg, &cc);
	if (cc.pid && kill((pid_t)cc.pid, 0) && errno == ESRCH) {
		fprintf(stderr, "tokensnoop: --pid %u: there is no such process\n", cc.pid);
		return TKS_EXIT_FAILED;
	}
	err = tks_capture_open(&cc, &t->capture, why, sizeof(why));
	if (!err)
		return TKS_EXIT_OK;
	fprintf(stderr, "tokensnoop: %s\n", why);
	if (err == -EPERM || err == -EOPNOTSUPP)
		return TKS_EXIT_UNSUPPORTED;
	return TKS_EXIT_FAILED;
}

/* What tests of a full table set instead of the default. */
static uint32_t max_connections(void)
{
	const char *text = secure_getenv("TOKENSNOOP_CONNECTIONS");

	return text ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

static int open_core(struct trace *t)
{
	const struct tks_output_opts *o = &t->cfg->output;
	struct tks_pipeline_config pc = {
		.mem = &t->mem,
		.boundary = TKS_B_SEND,
		.client_side = t->cfg->filter.all,
		.clock_offset_ns = t->meta.clock_offset_ns,
		.max_connections = max_connections(),
		.on_request = on_request,
		.on_verdict = on_verdict,
		.on_obj_verdict = on_obj_verdict,
		.on_blind = on_blind,
		.plaintext = tks_capture_sees_tls(t->capture),
		/* Which port an object without a connection is of nobody knows. */
		.untied = !t->cfg->filter.ports.n,
		.ctx = t,
	};
	struct tks_report_config rc = {
		.format = o->format,
		.out = t->out,
		.tokens = o->tokens,
		.live = true,
		.slo = o->slo.any,
	};
	int err;

	t->pipeline = tks_pipeline_new(&pc, &err);
	t->stats = tks_stats_new(&t->mem, o->slo.any ? &o->slo : NULL, o->include_flagged);
	t->report = tks_report_new(&rc);
	return t->pipeline && t->stats && t->report ? 0 : -ENOMEM;
}

static void begin_meta(struct trace *t)
{
	uint64_t wall = clock_ns(CLOCK_REALTIME);

	uname(&t->uts);
	t->began_ns = clock_ns(CLOCK_MONOTONIC);
	t->meta = (struct tks_meta){
		.version = TKS_VERSION,
		.host = t->uts.nodename,
		.kernel = t->uts.release,
		.source = "live",
		.hooks = "",
		.start_unix_ns = (int64_t)wall,
		.clock_offset_ns = (int64_t)(wall - t->began_ns),
		.prog_runs = TKS_NULL,
		.prog_ns = TKS_NULL,
	};
}

/* --- running --- */

/* A pipe whose reader has gone says so before anything is written. */
static bool reader_gone(FILE *out)
{
	struct pollfd p = { .fd = fileno(out) };

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLERR | POLLHUP));
}

static bool over(const struct trace *t, uint64_t now)
{
	int64_t limit = t->cfg->capture.duration_ns;

	return stop_asked || t->write_err || (limit && now - t->began_ns >= (uint64_t)limit);
}

/* Before the records of that time are read: a request that they end is open yet. */
static void note_misses(struct trace *t)
{
	uint64_t n = tks_capture_unix_misses(t->capture);

	if (n != t->unix_misses)
		tks_pipeline_unix_missed(t->pipeline, n - t->unix_misses);
	t->unix_misses = n;
}

static int run(struct trace *t)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);
	int n = 0;

	while (!over(t, now)) {
		note_misses(t);
		n = tks_capture_poll(t->capture, TICK_MS, on_record, t);
		if (n < 0 && n != -EINTR)
			break;
		n = 0;
		now = clock_ns(CLOCK_MONOTONIC);
		tks_pipeline_advance(t->pipeline, now);
		if (!t->write_err)
			t->write_err = tks_report_tick(t->report);
		if (!t->write_err && reader_gone(t->out))
			t->write_err = -EPIPE;
	}
	if (n)
		fprintf(stderr, "tokensnoop: reading the ring buffer: %s\n", strerror(-n));
	return n;
}

static void end_meta(struct trace *t)
{
	struct tks_pipeline_counters pc;
	struct tks_capture_counters cc;
	struct tks_meta *m = &t->meta;

	tks_pipeline_counters(t->pipeline, &pc);
	tks_capture_counters(t->capture, &cc);
	m->hooks = tks_capture_hooks(t->capture);
	m->duration_ns = (int64_t)(clock_ns(CLOCK_MONOTONIC) - t->began_ns);
	m->cpu_ns = (int64_t)clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	if (cc.stats_on) {
		m->prog_runs = (int64_t)cc.prog_runs;
		m->prog_ns = (int64_t)cc.prog_ns;
	}
	m->events = (int64_t)pc.events;
	m->connections = (int64_t)pc.connections;
	m->evicted = (int64_t)pc.evicted;
	m->lost_records = (int64_t)cc.losses[TKS_LOSS_RING_FULL];
	m->lost_bytes = (int64_t)cc.losses[TKS_LOSS_RING_BYTES];
	m->unreadable_bytes = (int64_t)cc.losses[TKS_LOSS_UNREADABLE];
	m->conn_full = (int64_t)cc.losses[TKS_LOSS_CONN_FULL];
	m->inflight_lost = (int64_t)(cc.losses[TKS_LOSS_INFLIGHT] + cc.misses);
	m->no_memory += (int64_t)pc.no_memory;
	m->bad_messages = (int64_t)(pc.bad_messages + t->bad_records);
	m->encrypted = (int64_t)pc.encrypted;
	m->tls_ties = (int64_t)pc.tls_ties;
	m->tls_untied = (int64_t)pc.tls_untied;
	m->tls_blind = (int64_t)pc.tls_blind;
}

static void print_tls_file(void *ctx, const struct tks_tls_file *f)
{
	FILE *out = ctx;

	fprintf(out, "tokensnoop: TLS: %s: %s, ", f->path, f->libs);
	if (f->err)
		fprintf(out, "not read: %s\n", f->reason);
	else
		fprintf(out, "%u probes%s%s\n", f->probes, f->reason[0] ? "; " : "", f->reason);
}

/* Takes what the ring still holds, ends what is open, detaches. */
static void wind_up(struct trace *t)
{
	note_misses(t);
	tks_capture_poll(t->capture, 0, on_record, t);
	tks_pipeline_finish(t->pipeline, clock_ns(CLOCK_MONOTONIC));
	end_meta(t);
}

static int close_output(struct trace *t)
{
	const struct tks_output_opts *o = &t->cfg->output;
	int err;

	if (!t->write_err)
		t->write_err = tks_report_close(t->report, &t->meta, t->stats);
	if (o->format != TKS_FMT_TABLE || t->write_err)
		tks_summary_print(stderr, &t->meta, t->stats, o->slo.any ? &o->slo : NULL);
	err = tks_output_close(t->out);
	t->out = NULL;
	if (!t->write_err)
		t->write_err = err;
	if (t->write_err && t->write_err != -EPIPE)
		fprintf(stderr, "tokensnoop: writing the output: %s\n", strerror(-t->write_err));
	return tks_output_status(t->write_err);
}

/* Where it can't be (a kernel without seccomp) tracing is no worse than before: said, not refused.
 */
static void confine(const struct trace *t)
{
	const char *what;
	int err = tks_confine_trace(tks_capture_late_caps(t->capture), &what);

	if (err)
		fprintf(stderr, "tokensnoop: runs with more rights than it needs: %s: %s\n", what,
			strerror(-err));
}

/* What was wanted and is optional, or comes late. */
static void say_not_seen(const struct tks_capture *c)
{
	static const struct {
		const char *point, *name;
	} points[] = { { "tls", "TLS" }, { "unix", "unix sockets" } };

	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		const char *why = tks_capture_why_not(c, points[i].point);

		if (why)
			fprintf(stderr, "tokensnoop: not traced: %s: %s (see tokensnoop doctor)\n",
				points[i].name, why);
	}
	if (tks_capture_polls_mappings(c))
		fprintf(stderr,
			"tokensnoop: TLS libraries that are loaded later are found within 2 s, not at once: "
			"tracefs is not mounted, or closed (CAP_DAC_READ_SEARCH, on Debian also CAP_SYS_ADMIN or "
			"kernel.perf_event_paranoid below 3)\n");
}

static int trace(struct trace *t)
{
	const char *why;
	int status, err;

	t->out = tks_output_open(t->cfg->output.file, &why);
	if (!t->out) {
		fprintf(stderr, "tokensnoop: %s: %s\n", t->cfg->output.file, why);
		return TKS_EXIT_FAILED;
	}
	status = open_capture(t);
	if (status)
		return status;
	if (open_core(t)) {
		fprintf(stderr, "tokensnoop: out of memory\n");
		return TKS_EXIT_FAILED;
	}
	confine(t);
	say_not_seen(t->capture);
	catch_signals();
	t->began_ns = clock_ns(CLOCK_MONOTONIC);
	fprintf(stderr, "tokensnoop: ready (%s)\n", tks_capture_hooks(t->capture));
	err = run(t);
	tks_capture_tls_files(t->capture, print_tls_file, stderr);
	wind_up(t);
	status = close_output(t);
	return err ? TKS_EXIT_FAILED : status;
}

static void release(struct trace *t)
{
	tks_report_free(t->report);
	tks_stats_free(t->stats);
	tks_pipeline_free(t->pipeline);
	tks_capture_close(t->capture);
	if (t->out)
		tks_output_close(t->out);
}

int tks_cmd_trace(int argc, char **argv)
{
	static const struct tks_opt_group groups[] = {
		TKS_GROUP_FILTER(offsetof(struct trace_config, filter)),
		TKS_GROUP_CAPTURE(offsetof(struct trace_config, capture)),
		TKS_GROUP_OUTPUT(offsetof(struct trace_config, output)),
	};
	static const struct tks_cmd_spec spec = {
		.name = "trace",
		.synopsis = "[OPTIONS]",
		.doc = "Traces LLM servers on this host: a line for each finished request, a summary at the end\n"
		       "(Ctrl-C). Needs root or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN; see tokensnoop doctor.\n",
		.groups = groups,
		.ngroups = sizeof(groups) / sizeof(groups[0]),
	};
	struct trace_config cfg = { .capture = TKS_CAPTURE_OPTS_DEFAULT };
	struct trace t = { .cfg = &cfg, .mem = TKS_MEM_INIT(MEMORY_LIMIT) };
	struct tks_args args;
	int status = tks_opts_begin(&spec, &cfg, argc, argv, &args);

	if (status >= 0)
		return status;
	begin_meta(&t);
	status = trace(&t);
	release(&t);
	return status;
}
