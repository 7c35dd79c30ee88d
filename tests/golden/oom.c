// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A packet file is replayed with an allocation failing, for each that the replay makes: that one
 * alone, and that one with all later ones. What it must come to: every record is
 * as it is with all memory, or says that something is missing; what is missing is counted; all
 * memory is given back. As a unix socket's server, and as one that a TLS library serves, too. TAP.
 *
 * usage: oom FILE...
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pcap_in.h"
#include "tls_record.h"
#include "tokensnoop/pipeline.h"
#include "tokensnoop/report.h"
#include "tokensnoop/stats.h"

enum { RECORDS = 256, CONNS = 256, LIBRARY_READS = 65536, PID = 77 };
enum wire { AS_IT_IS, AS_UNIX, AS_TLS, WIRES };

static const char *const wire_names[WIRES] = { "", ".unix", ".tls" };

/* A connection of which TLS is made: by direction the calls of its object, the bytes that these
 * took or gave, and where its ciphertext is. */
struct secret {
	uint32_t calls[2], bytes[2], seq[2];
};

/* Any of them says that numbers may be missing. */
static const uint32_t INCOMPLETE = TKS_F_LOST | TKS_F_TRUNCATED | TKS_F_OPAQUE | TKS_F_MID_STREAM;

struct run {
	struct tks_mem mem;
	struct tks_pipeline *pipeline;
	struct tks_pcap_in *in;
	struct tks_stats *stats;
	struct tks_mem in_mem; /* of the packets, where they are not what is tested */
	enum wire wire;
	struct secret secrets[CONNS];
	uint64_t random;
	uint64_t ties; /* TLS connections whose plaintext was found */
	char *line[RECORDS]; /* as JSON, without what numbers the records */
	char *alone[RECORDS]; /* the same, and concurrency not known */
	uint32_t flags[RECORDS];
	size_t n;
	uint64_t told; /* how often it was said that memory was missing */
};

/* without: what other requests have a part in */
static char *line_of(const struct tks_request *r, bool without)
{
	struct tks_report_config rc = { .format = TKS_FMT_JSONL, .tokens = true };
	struct tks_request q = *r;
	struct tks_report *report;
	char *text = NULL;
	size_t size;

	q.id = 0;
	if (without) {
		q.conc_at_start = q.conc_max = TKS_NULL;
		q.conc_mean = NAN;
	}
	rc.out = open_memstream(&text, &size);
	report = rc.out ? tks_report_new(&rc) : NULL;
	if (!report || tks_report_record(report, &q) || fclose(rc.out))
		abort();
	tks_report_free(report);
	return text;
}

static void on_request(void *ctx, const struct tks_request *r)
{
	struct run *run = ctx;

	if (run->n == RECORDS)
		abort();
	if (tks_stats_add(run->stats, r))
		run->told++;
	run->line[run->n] = line_of(r, false);
	run->alone[run->n] = line_of(r, true);
	run->flags[run->n++] = r->flags;
}

/* --- what the packets' events are made to be --- */

static void feed_unix(struct run *run, struct tks_event e)
{
	e.local.family = e.peer.family = AF_UNIX;
	e.data = e.kind == TKS_EV_OPEN ? (const uint8_t *)"/run/llm" : e.data;
	e.cap = e.kind == TKS_EV_OPEN ? 8 : e.cap;
	tks_pipeline_feed(run->pipeline, &e);
}

/* A record of data, like no other. */
static size_t make_record(struct run *run, uint8_t *out, size_t plain)
{
	size_t len = plain + 16;

	memcpy(out, (uint8_t[]){ TKS_TLS_DATA, 3, 3, (uint8_t)(len >> 8), (uint8_t)len },
	       TKS_TLS_HEADER);
	for (size_t i = 0; i < len; i++) {
		run->random ^= run->random << 13;
		run->random ^= run->random >> 7;
		run->random ^= run->random << 17;
		out[TKS_TLS_HEADER + i] = (uint8_t)(run->random >> 32);
	}
	return TKS_TLS_HEADER + len;
}

/* The library is called for the bytes of a record, which is sent within the call or came before it:
 * as bpf/tls.bpf.c tells of it. */
static void feed_record(struct run *run, const struct tks_event *ev, const uint8_t *plain,
			size_t len)
{
	static uint8_t out[TKS_TLS_HEADER + TKS_TLS_PLAIN_MAX + 16];
	struct secret *s = &run->secrets[ev->conn % CONNS];
	struct tks_event call = { .kind = TKS_EV_PLAIN, .dir = ev->dir, .ts_ns = ev->ts_ns };
	struct tks_event mark, data = *ev;

	call.proc.pid = PID;
	call.obj = ev->conn;
	call.call = ++s->calls[ev->dir];
	call.seq = s->bytes[ev->dir];
	call.len = call.cap = (uint32_t)len;
	call.data = plain;
	data.seq = s->seq[ev->dir];
	data.len = data.cap = (uint32_t)make_record(run, out, len);
	data.data = out;
	s->seq[ev->dir] += data.len;
	s->bytes[ev->dir] += (uint32_t)len;
	if (ev->dir == TKS_RX) {
		call.asked = LIBRARY_READS;
		tks_pipeline_feed(run->pipeline, &data);
		tks_pipeline_feed(run->pipeline, &call);
		return;
	}
	mark = call;
	mark.kind = TKS_EV_CIPHER;
	mark.len = data.len;
	mark.cap = data.len < TKS_TLS_OUT_CAP ? data.len : TKS_TLS_OUT_CAP;
	mark.data = out;
	data.proc.pid = PID;
	data.obj = call.obj;
	data.call = call.call;
	data.ret_ns = ev->ts_ns + 1;
	tks_pipeline_feed(run->pipeline, &call);
	tks_pipeline_feed(run->pipeline, &mark);
	tks_pipeline_feed(run->pipeline, &data);
}

static void feed_tls(struct run *run, struct tks_event e)
{
	struct secret *s = &run->secrets[e.conn % CONNS];
	size_t n;

	if (e.kind == TKS_EV_DATA) {
		for (size_t at = 0; at < e.cap; at += n) {
			n = e.cap - at < TKS_TLS_PLAIN_MAX ? e.cap - at : TKS_TLS_PLAIN_MAX;
			feed_record(run, &e, e.data + at, n);
		}
		return;
	}
	if (e.kind == TKS_EV_OPEN) {
		*s = (struct secret){ .seq = { e.rx_seq, e.tx_seq } };
	} else if (e.kind == TKS_EV_FIN) {
		e.seq = s->seq[e.dir];
	} else if (e.kind == TKS_EV_CLOSE) {
		e.rx_seq = s->seq[TKS_RX];
		e.tx_seq = s->seq[TKS_TX];
	}
	tks_pipeline_feed(run->pipeline, &e);
}

static void on_event(void *ctx, const struct tks_event *ev)
{
	struct run *run = ctx;

	if (run->wire == AS_UNIX)
		feed_unix(run, *ev);
	else if (run->wire == AS_TLS)
		feed_tls(run, *ev);
	else
		tks_pipeline_feed(run->pipeline, ev);
}

/* --- a replay --- */

static void read_all(struct run *run, const char *path)
{
	FILE *f = fopen(path, "rb");
	char why[256];
	uint64_t told = 0;
	int got;

	if (!f || tks_pcap_in_open(run->in, f, why, sizeof(why)))
		abort();
	do {
		got = tks_pcap_in_next(run->in, why, sizeof(why));
		if (got == -ENOMEM)
			told++;
		tks_pipeline_advance(run->pipeline, tks_pcap_in_now(run->in));
	} while (got == 1 || got == -ENOMEM);
	if (got)
		abort();
	run->told += told;
}

/* What the counters say is how people learn of it. */
static void replay(struct run *run, const char *path)
{
	struct tks_pcap_in_config in = {
		.mem = run->wire == AS_TLS ? &run->in_mem : &run->mem,
		.on_event = on_event,
		.ctx = run,
	};
	struct tks_pipeline_config pipe = {
		.mem = &run->mem,
		.boundary = TKS_B_WIRE,
		.plaintext = run->wire == AS_TLS,
		.untied = run->wire == AS_TLS,
		.on_request = on_request,
		.ctx = run,
	};
	struct tks_pipeline_counters c;
	uint64_t now;
	int err;

	run->random = 88172645463325252ull;
	run->stats = tks_stats_new(&run->mem, NULL, true);
	run->in = tks_pcap_in_new(&in);
	run->pipeline = tks_pipeline_new(&pipe, &err);
	if (!run->stats || !run->in || !run->pipeline) {
		run->told++;
	} else {
		read_all(run, path);
		now = tks_pcap_in_now(run->in);
		tks_pcap_in_finish(run->in);
		tks_pipeline_finish(run->pipeline, now);
		tks_pipeline_counters(run->pipeline, &c);
		run->told += c.no_memory;
		run->ties = c.tls_ties;
	}
	tks_pipeline_free(run->pipeline);
	tks_pcap_in_free(run->in);
	tks_stats_free(run->stats);
}

static void forget(struct run *run)
{
	for (size_t i = 0; i < run->n; i++) {
		free(run->line[i]);
		free(run->alone[i]);
	}
}

static bool among(const struct run *all, const char *line)
{
	for (size_t i = 0; i < all->n; i++) {
		if (!strcmp(all->line[i], line) || !strcmp(all->alone[i], line))
			return true;
	}
	return false;
}

/* Says what is wrong with a replay; false if nothing is. */
static bool wrong(const struct run *all, const struct run *run)
{
	size_t same = 0;
	bool bad = false;

	for (size_t i = 0; i < run->n; i++) {
		if (among(all, run->line[i])) {
			same++;
		} else if (!(run->flags[i] & INCOMPLETE)) {
			printf("# a record that is neither right nor flagged: %s", run->line[i]);
			bad = true;
		}
	}
	if (same != all->n && !run->told) {
		printf("# %zu of %zu records are as they should be, and nothing was counted\n",
		       same, all->n);
		bad = true;
	}
	if (run->mem.used) {
		printf("# %zu bytes were not given back\n", run->mem.used);
		bad = true;
	}
	return bad;
}

static bool check_one(const struct run *all, const char *path, uint64_t at, bool once)
{
	struct run run = { .mem = { .fail_at = at, .fail_once = once }, .wire = all->wire };
	bool bad;

	replay(&run, path);
	bad = wrong(all, &run) || !run.mem.failed;
	if (bad)
		printf("# with allocation %" PRIu64 "%s failing\n", at,
		       once ? "" : " and all later ones");
	forget(&run);
	return bad;
}

/* Whether a file's replays are right. */
static bool check(const char *path, enum wire wire)
{
	struct run all = { .wire = wire };
	uint64_t bad = 0, replays = 0;

	replay(&all, path);
	for (uint64_t at = 1; at <= all.mem.calls && bad < 3; at++, replays += 2)
		bad += check_one(&all, path, at, true) + check_one(&all, path, at, false);
	if (all.told || all.mem.used || (wire == AS_TLS && all.n && !all.ties))
		bad++;
	forget(&all);
	printf("# %" PRIu64 " replays, %" PRIu64 " allocations, %zu records\n", replays,
	       all.mem.calls, all.n);
	return !bad && replays;
}

int main(int argc, char **argv)
{
	int failed = 0, n = 0;

	for (int i = 1; i < argc; i++) {
		for (int wire = 0; wire < WIRES; wire++) {
			bool good = check(argv[i], wire);
			const char *name = strrchr(argv[i], '/');

			printf("%sok %d - oom.%s%s\n", good ? "" : "not ", ++n,
			       name ? name + 1 : argv[i], wire_names[wire]);
			fflush(stdout);
			failed += !good;
		}
	}
	printf("1..%d\n", n);
	return failed != 0;
}
