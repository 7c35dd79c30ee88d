// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The hook table, and finding out by trying: a hook exists if its own programs load and attach here
 * and now. No version is looked at. Kernels with the same version number differ in what they permit
 * (fentry refused with EPERM, kprobes compiled out), and lists of symbols show what is there, not
 * what may be used.
 */
#include "hooks.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <linux/capability.h>

#include <bpf/libbpf.h>

#include "cgroup.h"
#include "preflight.h"
#include "nokfuncs.skel.h"
#include "tokensnoop.skel.h"
#include "uprobe.h"

static const char *const fentry_progs[] = { "tx_fentry", "tx_fexit", "tx_page", "tx_page_r",
					    "mp_fentry", "mp_fexit", NULL };
static const char *const tp_progs[] = { "tx_tp", "tx_tpret", "mp_tp", NULL };
static const char *const kprobe_progs[] = { "tx_kprobe", "tx_kret", "tx_page_kp", "tx_page_kret",
					    "mp_kprobe", "mp_kret", NULL };
static const char *const syscall_progs[] = {
	"sc_write",    "sc_write_r",	"sc_sendto",   "sc_sendto_r",
	"sc_writev",   "sc_writev_r",	"sc_sendmsg",  "sc_sendmsg_r",
	"sc_sendmmsg", "sc_sendmmsg_r", "sc_sendfile", "sc_sendfile_r",
	NULL
};
static const char *const recv_progs[] = { "rx_skb", NULL };
static const char *const conn_progs[] = { "conn_state", NULL };

static const char *const tls_progs[] = { "tls_write_openssl",
					 "tls_write_gnutls",
					 "tls_write_nss",
					 "tls_other_openssl",
					 "tls_other_gnutls",
					 "tls_free",
					 "tls_out_openssl",
					 "tls_read_openssl",
					 "tls_read_ex_openssl",
					 "tls_read_gnutls",
					 "tls_read_nss",
					 "tls_read_ret",
					 "go_write",
					 "go_read",
					 "go_read_ret",
					 "go_handshake",
					 "go_close",
					 "code_exec",
					 "code_mmap",
					 NULL };

static const char *const unix_fentry_progs[] = { "ux_fentry", "ux_fexit",   "ux_page",
						 "ux_page_r", "ux_release", "ux_shutdown",
						 NULL };
static const char *const unix_kprobe_progs[] = {
	"ux_kprobe",	 "ux_kret",	   "ux_page_kp", "ux_page_kret",
	"ux_release_kp", "ux_shutdown_kp", NULL
};
static const char *const unix_tp_progs[] = { "ux_tp", "ux_tp_recv", NULL };

const char *const tks_point_names[TKS_POINTS] = { "send", "recv", "conn", "tls", "unix" };

bool tks_point_optional(enum tks_point p)
{
	return p == TKS_POINT_TLS || p == TKS_POINT_UNIX;
}

const struct tks_hook tks_hooks[TKS_TRIALS] = {
	{ TKS_POINT_SEND, "fentry", "tcp_sendmsg_locked, entry and return (5.5)", fentry_progs,
	  true },
	{ TKS_POINT_SEND, "tp_btf", "tcp_sendmsg_locked (6.16) and sock_send_length", tp_progs,
	  true },
	{ TKS_POINT_SEND, "kprobe", "tcp_sendmsg_locked, entry and return", kprobe_progs, false },
	{ TKS_POINT_SEND, "syscall", "write, writev, send* (blind to io_uring, splice)",
	  syscall_progs, false },
	{ TKS_POINT_RECV, "cgroup_skb", "ingress at the root of cgroup v2", recv_progs, true },
	{ TKS_POINT_CONN, "tp_btf", "inet_sock_set_state", conn_progs, true },
	{ TKS_POINT_TLS, "uprobe_multi", "OpenSSL and its kin, GnuTLS, NSS, Go (6.6)", tls_progs,
	  true },
	{ TKS_POINT_TLS, "uprobe", "the same, which needs CAP_SYS_ADMIN", tls_progs, true },
	{ TKS_POINT_UNIX, "fentry", "unix_stream_sendmsg, entry and return; unix_release",
	  unix_fentry_progs, true },
	{ TKS_POINT_UNIX, "kprobe", "unix_stream_sendmsg, entry and return; unix_release",
	  unix_kprobe_progs, true },
	{ TKS_POINT_UNIX, "tp_btf", "sock_send_length (6.3): times of returns", unix_tp_progs,
	  true },
};

enum { SCRATCHES = 5 }; /* bpf/iov.bpf.h: a CPU */

static bool hook_has(const struct tks_hook *h, const char *prog)
{
	if (!h)
		return false;
	for (const char *const *p = h->progs; *p; p++) {
		if (!strcmp(*p, prog))
			return true;
	}
	return false;
}

/* Functions that not every kernel has, and the programs on them by the begin of their names. The
 * last two are looked for as what programs may call. */
static const struct {
	const char *progs, *func;
} functions[] = {
	{ "tx_page", "do_tcp_sendpages" }, /* until 6.4 */
	{ "ux_page", "unix_stream_sendpage" }, /* until 6.4 */
	{ "mp_", "mptcp_sendmsg" }, /* CONFIG_MPTCP */
	{ "", "bpf_preempt_disable" }, /* since 6.10 */
	{ "",
	  "bpf_res_spin_lock" }, /* since 6.15, as calls of global functions without preemption */
};

enum { FUNCTIONS = sizeof(functions) / sizeof(functions[0]), PREEMPT_OFF = 3 << 3 };

/* Which of them are there, a bit each; looked up once, as reading the kernel's types takes long. */
static unsigned int functions_here(void)
{
	static unsigned int here;
	static bool known;
	struct btf *btf;

	if (known)
		return here;
	btf = btf__load_vmlinux_btf();
	for (int i = 0; btf && i < FUNCTIONS; i++) {
		if (btf__find_by_name_kind(btf, functions[i].func, BTF_KIND_FUNC) > 0)
			here |= 1u << i;
	}
	known = btf != NULL;
	btf__free(btf);
	return here;
}

static bool superfluous(const char *prog)
{
	for (int i = 0; i < FUNCTIONS; i++) {
		if (*functions[i].progs &&
		    !strncmp(prog, functions[i].progs, strlen(functions[i].progs)))
			return !(functions_here() & 1u << i);
	}
	return false;
}

/* Where the kernel keeps its pages, for page_address_of(); looked up once. */
static void find_page_bases(struct tokensnoop_bpf *skel)
{
	static uint64_t page_offset_base, vmemmap_base;
	static bool known;
	char line[256], name[128];
	unsigned long addr;
	FILE *f;

	f = known ? NULL : fopen("/proc/kallsyms", "re");
	known = true;
	while (f && (!page_offset_base || !vmemmap_base) && fgets(line, sizeof(line), f)) {
		if (!strstr(line, "_base") || sscanf(line, "%lx %*c %127s", &addr, name) != 2)
			continue;
		if (!strcmp(name, "page_offset_base"))
			page_offset_base = addr;
		else if (!strcmp(name, "vmemmap_base"))
			vmemmap_base = addr;
	}
	if (f)
		fclose(f);
	skel->rodata->cfg_page_offset_base = page_offset_base;
	skel->rodata->cfg_vmemmap_base = vmemmap_base;
}

static bool spec_has(const struct tks_open_spec *spec, const char *prog)
{
	for (int i = 0; i < TKS_POINTS; i++) {
		if (hook_has(spec->hooks[i], prog))
			return true;
	}
	return false;
}

static int quiet(enum libbpf_print_level level, const char *fmt, va_list args)
{
	(void)level;
	(void)fmt;
	(void)args;
	return 0;
}

/* Programs that wait for files with TLS functions. */
static bool is_uprobe(const struct bpf_program *prog)
{
	const char *section = bpf_program__section_name(prog);

	return !strcmp(section, "?uprobe") || !strcmp(section, "?uretprobe") ||
	       !strcmp(section, "uprobe") || !strcmp(section, "uretprobe");
}

/*
 * Of the two objects that are within the program the one without kernel functions that are not
 * there: libbpf looks for these in all modules' types, which takes time, and before 6.9
 * CAP_SYS_ADMIN (libbpf before 1.2 fails without). All else is the same in both.
 */
static struct tokensnoop_bpf *open_object(bool kfuncs)
{
	struct tokensnoop_bpf *skel = calloc(1, sizeof(*skel));
	int err;

	if (!skel)
		return NULL;
	err = tokensnoop_bpf__create_skeleton(skel);
	if (!err && !kfuncs)
		skel->skeleton->data = (void *)nokfuncs_bpf__elf_bytes(&skel->skeleton->data_sz);
	if (!err)
		err = bpf_object__open_skeleton(skel->skeleton, NULL);
	if (!err)
		return skel;
	tokensnoop_bpf__destroy(skel);
	errno = -err;
	return NULL;
}

struct tokensnoop_bpf *tks_hooks_open(const struct tks_open_spec *spec)
{
	const struct tks_hook *send = spec->hooks[TKS_POINT_SEND];
	const struct tks_hook *tls = spec->hooks[TKS_POINT_TLS];
	bool kfuncs = (functions_here() & PREEMPT_OFF) == PREEMPT_OFF;
	int cpus = libbpf_num_possible_cpus();
	struct tokensnoop_bpf *skel;
	struct bpf_program *prog;

	/* Its words are for developers; ours are made from errno and the verifier's log. */
	libbpf_set_print(quiet);
	skel = open_object(kfuncs);
	if (!skel)
		return NULL;
	bpf_object__for_each_program(prog, skel->obj)
	{
		bpf_program__set_autoload(prog, spec_has(spec, bpf_program__name(prog)) &&
							!superfluous(bpf_program__name(prog)));
		if (tls && !strcmp(tls->name, "uprobe_multi") && is_uprobe(prog))
			tks_uprobe_use_multi(prog);
	}
	skel->rodata->cfg_cookie_helper = !spec->compat;
	skel->rodata->cfg_task_storage = !spec->compat;
	skel->rodata->cfg_make_cookies = spec->compat || (send && !send->sees_cookies);
	skel->rodata->cfg_attach_cookie =
		libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_get_attach_cookie, NULL) ==
		1;
	skel->rodata->cfg_wake_bytes = spec->ring_bytes / 8;
	skel->rodata->cfg_self = getpid();
	skel->rodata->cfg_preempt_off = kfuncs;
	find_page_bases(skel);
	bpf_map__set_autocreate(skel->maps.inflight_task, !spec->compat);
	bpf_map__set_autocreate(skel->maps.inflight_hash, spec->compat);
	bpf_map__set_max_entries(skel->maps.ring, spec->ring_bytes);
	bpf_map__set_max_entries(skel->maps.send_scratches, (cpus > 0 ? cpus : 1) * SCRATCHES);
	bpf_map__set_max_entries(skel->maps.recv_scratches, cpus > 0 ? cpus : 1);
	return skel;
}

static struct bpf_link *attach_cgroup(struct bpf_program *prog)
{
	char root[256];
	struct bpf_link *link;
	int fd;

	if (tks_cgroup2_mount(root, sizeof(root))) {
		errno = ENOENT;
		return NULL;
	}
	fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	link = bpf_program__attach_cgroup(prog, fd);
	close(fd);
	return link;
}

static struct bpf_link **link_slot(struct tokensnoop_bpf *skel, const char *name)
{
	struct bpf_object_skeleton *s = skel->skeleton;

	for (int i = 0; i < s->prog_cnt; i++) {
		if (!strcmp(s->progs[i].name, name))
			return s->progs[i].link;
	}
	return NULL;
}

int tks_hooks_attach(struct tokensnoop_bpf *skel, const char **which)
{
	struct bpf_program *prog;
	struct bpf_link *link;

	bpf_object__for_each_program(prog, skel->obj)
	{
		if (!bpf_program__autoload(prog) || is_uprobe(prog))
			continue;
		*which = bpf_program__name(prog);
		if (bpf_program__type(prog) == BPF_PROG_TYPE_CGROUP_SKB)
			link = attach_cgroup(prog);
		else
			link = bpf_program__attach(prog);
		if (!link && prog == skel->progs.code_mmap)
			continue; /* it takes tracefs; processes can be looked at instead */
		if (!link)
			return -errno;
		*link_slot(skel, *which) = link;
	}
	*which = NULL;
	return 0;
}

/* The verifier's last word that is not its statistics. */
static void last_line(const char *log, char *out, size_t len)
{
	size_t end = strlen(log), begin;

	out[0] = 0;
	while (end) {
		while (end && log[end - 1] == '\n')
			end--;
		begin = end;
		while (begin && log[begin - 1] != '\n')
			begin--;
		if (end > begin && strncmp(log + begin, "processed ", 10)) {
			snprintf(out, len, "%.*s", (int)(end - begin), log + begin);
			return;
		}
		end = begin;
	}
}

/* Which of the rights that only some hooks need is missing. */
static bool explain_access(struct tks_trial *t)
{
	const char *remedy = NULL;

	if (access("/sys/kernel/tracing/events", R_OK) &&
	    access("/sys/kernel/debug/tracing/events", R_OK) && !tks_has_cap(CAP_DAC_READ_SEARCH))
		remedy = "tracefs is closed to this user: CAP_DAC_READ_SEARCH opens it";
	else if (!tks_has_cap(CAP_SYS_ADMIN))
		remedy = "perf events on probes are closed to this user: CAP_SYS_ADMIN opens them "
			 "(Debian: or kernel.perf_event_paranoid below 3)";
	if (remedy)
		snprintf(t->reason, sizeof(t->reason), "%s", remedy);
	return remedy;
}

static void explain(struct tks_trial *t, const char *log)
{
	char line[160];

	last_line(log, line, sizeof(line));
	if (t->err == -EPERM && tks_missing_caps(t->reason, sizeof(t->reason)))
		return;
	if (t->err == -EACCES && explain_access(t))
		return;
	if (line[0])
		snprintf(t->reason, sizeof(t->reason), "%s: %s", strerror(-t->err), line);
	else if (t->err == -EPERM)
		snprintf(t->reason, sizeof(t->reason),
			 "refused by this kernel (built or locked down without it)");
	else if (t->err == -ENOENT && access("/sys/kernel/tracing/events", F_OK) &&
		 access("/sys/kernel/debug/tracing/events", F_OK))
		snprintf(t->reason, sizeof(t->reason),
			 "tracefs is not mounted: mount -t tracefs tracefs /sys/kernel/tracing");
	else if (t->err == -ESRCH || t->err == -ENOENT)
		snprintf(t->reason, sizeof(t->reason), "not in this kernel");
	else
		snprintf(t->reason, sizeof(t->reason), "%s", strerror(-t->err));
}

static void trial_log(struct tokensnoop_bpf *skel, char *log, size_t len)
{
	struct bpf_program *prog;

	bpf_object__for_each_program(prog, skel->obj)
	{
		if (bpf_program__autoload(prog))
			bpf_program__set_log_buf(prog, log, len);
	}
}

/* What the trial's uprobe is put on. */
static __attribute__((noinline)) int never_called(int x)
{
	__asm__ volatile("" : "+r"(x));
	return x;
}

/* The place in our own file of what is mapped at addr; 0: not found. */
static size_t own_offset(uintptr_t addr)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long start, end, offset;
	size_t found = 0;
	char line[512];

	if (!maps)
		return 0;
	while (!found && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 && addr >= start &&
		    addr < end)
			found = addr - start + offset;
	}
	fclose(maps);
	return found;
}

int tks_hooks_try_uprobes(struct tokensnoop_bpf *skel)
{
	size_t offset = own_offset((uintptr_t)never_called);

	for (int at_return = 0; at_return < 2; at_return++) {
		struct bpf_program *prog = at_return ? skel->progs.tls_read_ret
						     : skel->progs.tls_free;
		struct tks_uprobe u;
		int err = tks_uprobe_attach(prog, "/proc/self/exe", offset, 0, at_return, &u);

		if (err)
			return err;
		tks_uprobe_destroy(&u);
	}
	return 0;
}

enum { TRIAL_LOG = 256 * 1024 };

/* One try, with or without the newer abilities. */
static int trial_once(const struct tks_hook *h, bool compat, struct tks_trial *t)
{
	struct tks_open_spec spec = { .compat = compat, .ring_bytes = 64 * 1024 };
	struct tokensnoop_bpf *skel;
	const char *which;
	char *log;

	log = calloc(1, TRIAL_LOG);
	if (!log)
		return t->err = -ENOMEM;
	spec.hooks[h->point] = h;
	skel = tks_hooks_open(&spec);
	snprintf(t->step, sizeof(t->step), "load");
	t->err = skel ? 0 : -errno;
	if (skel) {
		/* Nothing is wanted while it is only tried: no port is 0. */
		skel->rodata->cfg_nports = 1;
		trial_log(skel, log, TRIAL_LOG);
		t->err = tokensnoop_bpf__load(skel);
	}
	if (skel && !t->err) {
		snprintf(t->step, sizeof(t->step), "attach");
		t->err = tks_hooks_attach(skel, &which);
		if (!t->err && h->point == TKS_POINT_TLS)
			t->err = tks_hooks_try_uprobes(skel);
	}
	if (t->err)
		explain(t, log);
	tokensnoop_bpf__destroy(skel);
	free(log);
	return t->err;
}

static void trial(const struct tks_hook *h, struct tks_trial *t)
{
	struct tks_trial again = *t;

	t->tried = true;
	if (!trial_once(h, false, t)) {
		t->works = true;
		return;
	}
	/* What failed the first time is the better reason, if both do. */
	if (strcmp(t->step, "load") || trial_once(h, true, &again))
		return;
	t->err = 0;
	t->reason[0] = 0;
	t->works = t->compat = true;
}

const char *tks_hook_forced(const char *point)
{
	char name[32] = "TOKENSNOOP_HOOK_";
	size_t n = strlen(name);

	for (; *point && n + 1 < sizeof(name); point++)
		name[n++] = (char)toupper((unsigned char)*point);
	return secure_getenv(name);
}

bool tks_hooks_best(struct tks_open_spec *spec, unsigned int without)
{
	for (size_t i = 0; i < TKS_TRIALS; i++) {
		const struct tks_hook *h = &tks_hooks[i];
		const char *forced = tks_hook_forced(tks_point_names[h->point]);

		if (!(without & 1u << h->point) && !spec->hooks[h->point] &&
		    (!forced || !strcmp(forced, h->name)))
			spec->hooks[h->point] = h;
	}
	for (int p = 0; p < TKS_POINTS; p++) {
		if (!(without & 1u << p) && !spec->hooks[p])
			return false;
	}
	return true;
}

size_t tks_hooks_try(struct tks_trial trials[TKS_TRIALS], bool all)
{
	bool found[TKS_POINTS] = { false };

	for (size_t i = 0; i < TKS_TRIALS; i++) {
		const struct tks_hook *h = &tks_hooks[i];
		struct tks_trial *t = &trials[i];
		const char *forced = tks_hook_forced(tks_point_names[h->point]);

		memset(t, 0, sizeof(*t));
		t->point = tks_point_names[h->point];
		t->optional = tks_point_optional(h->point);
		t->hook = h->name;
		t->what = h->what;
		if (!all && (found[h->point] || (forced && strcmp(forced, h->name))))
			continue;
		trial(h, t);
		found[h->point] |= t->works;
	}
	return TKS_TRIALS;
}
