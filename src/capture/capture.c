// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Opening, polling and closing the capture, with the hooks that the trial found (hooks.c).
 */
#include "capture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "cgroup.h"
#include "hooks.h"
#include "preflight.h"
#include "priv.h"
#include "tls_attach.h"
#include "tokensnoop.skel.h"

enum {
	RING_DEFAULT = 16 << 20,
	CHANGED_MAX = 256, /* processes to look at; past it all are */
	SCAN_MS = 10000, /* all processes are looked at so often, for what was missed */
	SCAN_ALONE_MS = 2000, /* or so often, where nobody tells of mappings */
	AGAIN_MS = 50,
	FILES_MIN = 64, /* about 45 are open while hooks are tried */
	ROUND_MS = 1000, /* and after one that was missed its files are told of again, so often */
};

struct tks_capture {
	struct tokensnoop_bpf *skel;
	struct ring_buffer *ring;
	struct tks_tls_attach *tls; /* NULL: TLS libraries are left alone */
	pid_t changed[CHANGED_MAX]; /* processes that mapped new code since the last look */
	size_t nchanged;
	uint64_t next_scan_ns, next_round_ns;
	bool missed; /* a process was gone, or a file was forgotten */
	/* A mapping is told of before it is made: its process is looked at once more. */
	pid_t again[CHANGED_MAX];
	size_t nagain;
	uint64_t again_ns;
	int stats_fd;
	char hooks[128];
	char why_not[TKS_POINTS][256];
	uint64_t late_caps;
	tks_record_fn fn;
	void *fn_ctx;
};

static int cgroup_filter(const char *path, uint64_t *id, uint32_t *level, char *why, size_t len)
{
	int err = tks_cgroup_id(path, id, level);

	if (err == -EOPNOTSUPP)
		snprintf(why, len, "--cgroup needs cgroup v2, which is not mounted here");
	else if (err)
		snprintf(why, len, "--cgroup %s: not a directory of the cgroup v2 tree", path);
	return err;
}

static int set_filters(struct tokensnoop_bpf *skel, const struct tks_capture_config *cfg, char *why,
		       size_t len)
{
	skel->rodata->cfg_nports = cfg->nports;
	for (uint32_t i = 0; i < cfg->nports; i++)
		skel->rodata->cfg_ports[i] = cfg->ports[i];
	skel->rodata->cfg_all = cfg->all;
	skel->rodata->cfg_pid = cfg->pid;
	if (cfg->comm) {
		char comm[TKS_COMM_LEN] = "";

		snprintf(comm, sizeof(comm), "%s", cfg->comm);
		memcpy((void *)skel->rodata->cfg_comm, comm, sizeof(comm));
		skel->rodata->cfg_comm_on = true;
	}
	if (cfg->cgroup) {
		uint64_t id;
		uint32_t level;
		int err = cgroup_filter(cfg->cgroup, &id, &level, why, len);

		if (err)
			return err;
		skel->rodata->cfg_cgroup = id;
		skel->rodata->cfg_cgroup_level = level;
	}
	return 0;
}

/* Points that are not wanted, a bit each. Unix sockets have no port. */
static unsigned int left_out(const struct tks_capture_config *cfg)
{
	return (cfg->no_tls ? 1u << TKS_POINT_TLS : 0) | (cfg->nports ? 1u << TKS_POINT_UNIX : 0);
}

/* The first hook a point that works, and what the set of them needs. */
static int choose(struct tks_capture *c, const struct tks_capture_config *cfg,
		  struct tks_open_spec *spec, char *why, size_t len)
{
	unsigned int without = left_out(cfg);
	struct tks_trial trials[TKS_TRIALS];
	const struct tks_trial *failed[TKS_POINTS] = { NULL };

	tks_hooks_try(trials, false);
	for (size_t i = 0; i < TKS_TRIALS; i++) {
		enum tks_point p = tks_hooks[i].point;

		if (without & 1u << p)
			continue;
		if (trials[i].works && !spec->hooks[p]) {
			spec->hooks[p] = &tks_hooks[i];
			spec->compat |= trials[i].compat;
		} else if (trials[i].tried && !failed[p]) {
			failed[p] = &trials[i];
		}
	}
	for (int p = 0; p < TKS_POINTS; p++) {
		const char *reason = failed[p] ? failed[p]->reason
					       : "none has the name that was forced";

		if (spec->hooks[p] || without & 1u << p)
			continue;
		snprintf(c->why_not[p], sizeof(c->why_not[p]), "%s", reason);
		if (tks_point_optional(p))
			continue;
		snprintf(why, len, "no %s hook works here: %s (see tokensnoop doctor)",
			 tks_point_names[p], reason);
		return failed[p] && failed[p]->err == -EPERM ? -EPERM : -EOPNOTSUPP;
	}
	return 0;
}

/* Of programs that are in place what verdicts, and probes on files that turn up late, still need.
 */
static uint64_t late_caps(const struct tks_hook *tls)
{
	uint64_t keep = 0;

	for (int i = 0; i < TKS_CAP_USES; i++) {
		const struct tks_cap_use *u = &tks_cap_uses[i];

		if (u->late == TKS_LATE_ALWAYS || (u->late == TKS_LATE_TLS && tls) ||
		    (u->late == TKS_LATE_PERF_UPROBE && tls && !strcmp(tls->name, "uprobe")))
			keep |= 1ull << u->cap;
	}
	return keep;
}

static void name_hooks(struct tks_capture *c, const struct tks_open_spec *spec)
{
	size_t n = 0;

	for (int p = 0; p < TKS_POINTS; p++)
		n += snprintf(c->hooks + n, sizeof(c->hooks) - n, "%s%s=%s", p ? " " : "",
			      tks_point_names[p], spec->hooks[p] ? spec->hooks[p]->name : "none");
}

static int on_record(void *ctx, void *data, size_t size)
{
	struct tks_capture *c = ctx;

	const struct tks_rec *r = data;

	if (size >= sizeof(*r) && r->kind == TKS_REC_CODE) {
		/* A program that starts maps its libraries one after the other. */
		if (c->nchanged && c->nchanged <= CHANGED_MAX &&
		    c->changed[c->nchanged - 1] == (pid_t)r->pid)
			return 0;
		if (c->nchanged < CHANGED_MAX)
			c->changed[c->nchanged] = (pid_t)r->pid;
		c->nchanged++;
		return 0;
	}
	if (c->fn)
		c->fn(c->fn_ctx, data, size);
	return 0;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void look_for_libraries(struct tks_capture *c)
{
	uint64_t now = now_ns();

	if (!c->tls)
		return;
	/* What is in it now is looked at when it is mapped, or with the next scan. */
	c->missed |= tks_tls_attach_changed(c->tls);
	if (c->nchanged > CHANGED_MAX || now >= c->next_scan_ns) {
		tks_tls_attach_scan(c->tls);
		c->next_scan_ns = now + (tks_capture_polls_mappings(c) ? SCAN_ALONE_MS : SCAN_MS) *
						1000000ull;
		c->missed = true;
	} else {
		for (size_t i = 0; c->nagain && now >= c->again_ns && i < c->nagain; i++)
			tks_tls_attach_process(c->tls, c->again[i]);
		c->nagain = now >= c->again_ns ? 0 : c->nagain;
		for (size_t i = 0; i < c->nchanged; i++) {
			c->missed |= tks_tls_attach_process(c->tls, c->changed[i]) != 0;
			c->again_ns = c->nagain ? c->again_ns : now + AGAIN_MS * 1000000ull;
			if (c->nagain < CHANGED_MAX)
				c->again[c->nagain++] = c->changed[i];
		}
	}
	c->nchanged = 0;
	if (!c->missed || now < c->next_round_ns)
		return;
	c->skel->bss->code_round++;
	c->missed = false;
	c->next_round_ns = now + ROUND_MS * 1000000ull;
}

static int load(struct tks_capture *c, const struct tks_capture_config *cfg,
		const struct tks_open_spec *spec, char *why, size_t len)
{
	const char *which = NULL;
	int watch, err;

	c->skel = tks_hooks_open(spec);
	if (!c->skel)
		return -errno;
	err = set_filters(c->skel, cfg, why, len);
	if (err)
		return err;
	err = tokensnoop_bpf__load(c->skel);
	if (err) {
		snprintf(why, len, "loading the BPF programs: %s", strerror(-err));
		return err;
	}
	c->ring = ring_buffer__new(bpf_map__fd(c->skel->maps.ring), on_record, c, NULL);
	if (!c->ring)
		return -errno;
	c->stats_fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
	err = tks_hooks_attach(c->skel, &which);
	if (err) {
		snprintf(why, len, "attaching %s: %s", which, strerror(-err));
		return err;
	}
	if (!spec->hooks[TKS_POINT_TLS])
		return 0;
	err = tks_hooks_try_uprobes(c->skel);
	if (err) {
		snprintf(why, len, "putting uprobes on a program: %s", strerror(-err));
		return err;
	}
	c->tls = tks_tls_attach_new(c->skel);
	if (!c->tls)
		return -ENOMEM;
	watch = tks_tls_attach_fd(c->tls);
	/* It wakes the reader as the ring does. */
	if (watch >= 0)
		epoll_ctl(ring_buffer__epoll_fd(c->ring), EPOLL_CTL_ADD, watch,
			  &(struct epoll_event){ .events = EPOLLIN });
	look_for_libraries(c);
	return 0;
}

static void unload(struct tks_capture *c)
{
	if (c->stats_fd >= 0)
		close(c->stats_fd);
	c->stats_fd = -1;
	tks_tls_attach_free(c->tls);
	c->tls = NULL;
	ring_buffer__free(c->ring);
	c->ring = NULL;
	tokensnoop_bpf__destroy(c->skel);
	c->skel = NULL;
}

/*
 * All of the best hooks at once, which is what most kernels permit: one look at the kernel's types
 * (most of the time that a start takes) instead of one a hook. If that fails each hook is tried
 * alone, which tells why.
 */
static int load_best(struct tks_capture *c, const struct tks_capture_config *cfg,
		     struct tks_open_spec *spec)
{
	char why[160];
	int err = -ENOENT;

	for (int compat = 0; compat < 2; compat++) {
		struct tks_open_spec best = { .compat = compat, .ring_bytes = spec->ring_bytes };

		if (!tks_hooks_best(&best, left_out(cfg)))
			return -ENOENT;
		err = load(c, cfg, &best, why, sizeof(why));
		if (!err) {
			*spec = best;
			return 0;
		}
		unload(c);
		if (err == -EPERM)
			break; /* not for want of what came with 5.12 */
	}
	return err;
}

int tks_capture_open(const struct tks_capture_config *cfg, struct tks_capture **cap, char *why,
		     size_t len)
{
	struct tks_open_spec spec = { .ring_bytes = cfg->ring_bytes ? cfg->ring_bytes
								    : RING_DEFAULT };
	struct tks_capture *c;
	struct tks_finding findings[TKS_FINDINGS];
	const struct tks_finding *wrong = tks_preflight(findings);
	unsigned long files;
	int err;

	why[0] = 0;
	if (wrong) {
		snprintf(why, len, "%s: %s", wrong->name, wrong->text);
		return wrong->err;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->stats_fd = -1;
	files = tks_raise_open_files();
	if (files < FILES_MIN) {
		snprintf(why, len, "only %lu files may be open, and it needs %d: raise ulimit -n",
			 files, FILES_MIN);
		tks_capture_close(c);
		return -EMFILE;
	}
	err = load_best(c, cfg, &spec);
	if (err)
		err = choose(c, cfg, &spec, why, len);
	if (!err && !c->skel)
		err = load(c, cfg, &spec, why, len);
	if (err) {
		if (!why[0])
			snprintf(why, len, "%s", strerror(-err));
		tks_capture_close(c);
		return err;
	}
	name_hooks(c, &spec);
	c->late_caps = late_caps(spec.hooks[TKS_POINT_TLS]);
	*cap = c;
	return 0;
}

void tks_capture_close(struct tks_capture *c)
{
	if (!c)
		return;
	unload(c);
	free(c);
}

const char *tks_capture_hooks(const struct tks_capture *c)
{
	return c->hooks;
}

int tks_capture_fd(const struct tks_capture *c)
{
	return ring_buffer__epoll_fd(c->ring);
}

int tks_capture_poll(struct tks_capture *c, int timeout_ms, tks_record_fn fn, void *ctx)
{
	struct epoll_event ev;
	int n;

	c->fn = fn;
	c->fn_ctx = ctx;
	/* ring_buffer__poll would drain only a ring that woke us; most records come without a
	 * wakeup. */
	if (timeout_ms && epoll_wait(ring_buffer__epoll_fd(c->ring), &ev, 1, timeout_ms) < 0)
		return -errno;
	n = ring_buffer__consume(c->ring);
	c->fn = NULL;
	look_for_libraries(c);
	return n;
}

void tks_capture_verdict(struct tks_capture *c, uint64_t cookie, enum tks_verdict v)
{
	int fd = bpf_map__fd(c->skel->maps.conns);
	struct {
		uint8_t verdict, admitted, role, pad;
	} value;

	/* A verdict on a connection that has closed meanwhile must not bring its entry back. */
	if (bpf_map_lookup_elem(fd, &cookie, &value))
		return;
	value.verdict = v;
	bpf_map_update_elem(fd, &cookie, &value, BPF_EXIST);
}

void tks_capture_obj_verdict(struct tks_capture *c, uint32_t pid, uint64_t obj, enum tks_verdict v)
{
	const struct {
		uint64_t obj;
		uint32_t pid, pad;
	} key = { obj, pid, 0 };
	int fd = bpf_map__fd(c->skel->maps.tls_objs);
	struct {
		uint32_t tx_calls, rx_calls, tx_bytes, rx_bytes;
		uint8_t verdict, refused, in_kernel, pad;
		uint32_t asked;
	} value;

	if (!c->tls || bpf_map_lookup_elem(fd, &key, &value))
		return;
	value.verdict = v;
	bpf_map_update_elem(fd, &key, &value, BPF_EXIST);
}

bool tks_capture_sees_tls(const struct tks_capture *c)
{
	return c->tls != NULL;
}

const char *tks_capture_why_not(const struct tks_capture *c, const char *point)
{
	for (int p = 0; p < TKS_POINTS; p++) {
		if (!strcmp(tks_point_names[p], point) && c->why_not[p][0])
			return c->why_not[p];
	}
	return NULL;
}

bool tks_capture_polls_mappings(const struct tks_capture *c)
{
	return c->tls && !c->skel->links.code_mmap;
}

uint64_t tks_capture_late_caps(const struct tks_capture *c)
{
	return c->late_caps;
}

const char *tks_capture_why_blind(const struct tks_capture *c, uint32_t pid)
{
	const char *why_not = tks_capture_why_not(c, "tls");

	if (c->tls)
		return tks_tls_attach_why_blind(c->tls, (pid_t)pid);
	return why_not ? why_not : "TLS libraries are left alone";
}

void tks_capture_tls_files(const struct tks_capture *c,
			   void (*fn)(void *ctx, const struct tks_tls_file *f), void *ctx)
{
	struct tks_tls_file f;

	for (size_t i = 0; c->tls && i < tks_tls_attach_files(c->tls); i++) {
		tks_tls_attach_file(c->tls, i, &f);
		fn(ctx, &f);
	}
}

uint64_t tks_capture_unix_misses(const struct tks_capture *c)
{
	struct bpf_program *prog;
	uint64_t n = 0;

	bpf_object__for_each_program(prog, c->skel->obj)
	{
		struct bpf_prog_info info = {};
		__u32 len = sizeof(info);

		if (bpf_program__autoload(prog) && !strncmp(bpf_program__name(prog), "ux_", 3) &&
		    !bpf_obj_get_info_by_fd(bpf_program__fd(prog), &info, &len))
			n += info.recursion_misses;
	}
	return n;
}

static void prog_cost(struct tokensnoop_bpf *skel, struct tks_capture_counters *out)
{
	struct bpf_program *prog;

	bpf_object__for_each_program(prog, skel->obj)
	{
		struct bpf_prog_info info = {};
		__u32 len = sizeof(info);

		if (!bpf_program__autoload(prog) ||
		    bpf_obj_get_info_by_fd(bpf_program__fd(prog), &info, &len))
			continue;
		out->prog_runs += info.run_cnt;
		out->prog_ns += info.run_time_ns;
		out->misses += info.recursion_misses;
	}
}

void tks_capture_counters(struct tks_capture *c, struct tks_capture_counters *out)
{
	int cpus = libbpf_num_possible_cpus();
	uint64_t *v;

	memset(out, 0, sizeof(*out));
	out->stats_on = c->stats_fd >= 0;
	prog_cost(c->skel, out);
	v = cpus > 0 ? calloc(cpus, sizeof(*v)) : NULL;
	if (!v)
		return;
	for (uint32_t i = 0; i < TKS_LOSS_MAX; i++) {
		if (bpf_map_lookup_elem(bpf_map__fd(c->skel->maps.losses), &i, v))
			continue;
		for (int cpu = 0; cpu < cpus; cpu++)
			out->losses[i] += v[cpu];
	}
	free(v);
}
