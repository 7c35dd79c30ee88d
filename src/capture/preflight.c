// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "preflight.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "cgroup.h"
#include "priv.h"

const struct tks_cap_use tks_cap_uses[TKS_CAP_USES] = {
	{ CAP_BPF, "CAP_BPF", true, TKS_LATE_ALWAYS,
	  "loading programs; telling them what is wanted" },
	{ CAP_PERFMON, "CAP_PERFMON", true, TKS_LATE_TLS,
	  "tracing programs; probes on TLS libraries" },
	{ CAP_NET_ADMIN, "CAP_NET_ADMIN", true, TKS_LATE_NEVER, "requests as they arrive (recv)" },
	{ CAP_SYS_PTRACE, "CAP_SYS_PTRACE", false, TKS_LATE_TLS,
	  "TLS of other users' processes: what they have mapped" },
	{ CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", false, TKS_LATE_ALWAYS,
	  "TLS libraries in closed folders, or loaded late (tracefs); names of cgroups" },
	{ CAP_CHECKPOINT_RESTORE, "CAP_CHECKPOINT_RESTORE", false, TKS_LATE_TLS,
	  "TLS libraries that were replaced while in use" },
	{ CAP_SYSLOG, "CAP_SYSLOG", false, TKS_LATE_NEVER,
	  "bytes of sendfile and splice, by the kernel's addresses" },
	{ CAP_SYS_ADMIN, "CAP_SYS_ADMIN", false, TKS_LATE_PERF_UPROBE,
	  "own cost in the kernel (prog_ns); TLS before Linux 6.6" },
};

bool tks_has_cap(int cap)
{
	cap_flag_value_t on = CAP_CLEAR;
	cap_t caps = cap_get_proc();

	if (!caps)
		return false;
	cap_get_flag(caps, cap, CAP_EFFECTIVE, &on);
	/* capabilities(7): what was split off is still within it. */
	if (on == CAP_CLEAR && (cap == CAP_BPF || cap == CAP_PERFMON || cap == CAP_NET_ADMIN ||
				cap == CAP_CHECKPOINT_RESTORE || cap == CAP_SYSLOG))
		cap_get_flag(caps, CAP_SYS_ADMIN, CAP_EFFECTIVE, &on);
	cap_free(caps);
	return on == CAP_SET;
}

bool tks_missing_caps(char *why, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < TKS_CAP_USES; i++) {
		if (!tks_cap_uses[i].needed || tks_has_cap(tks_cap_uses[i].cap))
			continue;
		n += snprintf(why + n, len - n, "%s%s", n ? ", " : "missing ",
			      tks_cap_uses[i].name);
	}
	if (!n)
		return false;
	snprintf(why + n, len - n,
		 ": run it as root (sudo), or give it these capabilities "
		 "(setcap cap_bpf,cap_perfmon,cap_net_admin+ep FILE)");
	return true;
}

/* --- the findings --- */

__attribute__((format(printf, 3, 4))) static void say(struct tks_finding *f, int err,
						      const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	f->err = err;
	vsnprintf(f->text, sizeof(f->text), fmt, args);
	va_end(args);
}

enum { ENOUGH = 64 << 20 }; /* the ring by default, and the tables */

/* Tries what everything else stands on. 0 or a negative errno. */
static int try_ring(uint32_t bytes)
{
	int fd = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "tks_try", 0, 0, bytes, NULL);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static void look_at_kernel(struct tks_finding *f, int ring)
{
	struct utsname u;

	uname(&u);
	if (ring == -ENOSYS)
		say(f, -EOPNOTSUPP,
		    "Linux %s has no bpf(): use one built with CONFIG_BPF_SYSCALL=y%s", u.release,
		    tks_has_seccomp(getpid()) ? ", or a seccomp filter hides it: see there" : "");
	else if (ring == -EINVAL)
		say(f, -EOPNOTSUPP,
		    "Linux %s is too old: it has no BPF ring buffer (5.8); 5.10 and newer work",
		    u.release);
	else
		say(f, 0, "Linux %s (%s)", u.release, u.machine);
}

/* Inode numbers that the kernel gives its first namespaces (include/linux/proc_ns.h). */
static bool is_first(const char *ns, unsigned int ino)
{
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/self/ns/%s", ns);
	/* Where it can't be told nothing is claimed. */
	return stat(path, &st) || st.st_ino == ino;
}

static void look_at_namespaces(struct tks_finding *f)
{
	enum { USER = 0xEFFFFFFDu, PID = 0xEFFFFFFCu, CGROUP = 0xEFFFFFFBu };

	if (!is_first("user", USER))
		say(f, -EPERM,
		    "this is a container with users of its own, whose root may not use BPF: run it on the "
		    "host, or in a container without a user namespace");
	else if (!is_first("pid", PID))
		say(f, -EOPNOTSUPP,
		    "this is a container with process numbers of its own, and processes couldn't be told "
		    "apart: run it with --pid=host (Kubernetes: hostPID: true), or on the host");
	else if (!is_first("cgroup", CGROUP))
		say(f, -EOPNOTSUPP,
		    "this is a container with cgroups of its own, from which other requests' arrival is "
		    "not seen: run it with --cgroupns=host, or on the host");
	else
		say(f, 0, "the host's");
}

static void look_at_caps(struct tks_finding *f)
{
	if (tks_missing_caps(f->text, sizeof(f->text)))
		f->err = -EPERM;
	else
		say(f, 0, "yes");
}

/* Only what the capabilities would permit. */
static void look_at_refusal(struct tks_finding *f, int ring)
{
	/* Before 5.11 what maps take counts as locked memory, of which users have little. */
	if (!ring && !tks_has_cap(CAP_SYS_RESOURCE) && try_ring(ENOUGH) == -EPERM)
		say(f, -EPERM,
		    "too little memory may be locked (RLIMIT_MEMLOCK, which counts before Linux 5.11): "
		    "ulimit -l unlimited, or CAP_SYS_RESOURCE");
	else if (ring != -EPERM && ring != -EACCES)
		say(f, 0, "permitted");
	else if (tks_has_seccomp(getpid()))
		say(f, -EPERM,
		    "refused, by this process's seccomp filter: run it with --security-opt "
		    "seccomp=unconfined or --privileged, or on the host");
	else
		say(f, -EPERM,
		    "refused although the capabilities are there: by a security module (see its log: "
		    "dmesg, ausearch -m avc)");
}

/* kernel_lockdown(7): in the mode "confidentiality" BPF may not read the kernel's memory. */
static void look_at_lockdown(struct tks_finding *f)
{
	FILE *file = fopen("/sys/kernel/security/lockdown", "re");
	char line[80] = "";

	if (file && !fgets(line, sizeof(line), file))
		line[0] = 0;
	if (file)
		fclose(file);
	if (strstr(line, "[confidentiality]"))
		say(f, -EPERM,
		    "the kernel is locked down (confidentiality): BPF may not read its memory, which all "
		    "hooks do: boot it with lockdown=integrity or lockdown=none");
	else
		say(f, 0, "%s",
		    strstr(line, "[integrity]") ? "integrity, which permits tracing"
		    : line[0]			? "none"
						: "none that can be seen");
}

static void look_at_btf(struct tks_finding *f)
{
	if (access("/sys/kernel/btf/vmlinux", R_OK))
		say(f, -EOPNOTSUPP,
		    "this kernel has no BTF (/sys/kernel/btf/vmlinux): use one built with "
		    "CONFIG_DEBUG_INFO_BTF=y, as all distributions' kernels since 5.10 are");
	else
		say(f, 0, "yes");
}

static void look_at_cgroup(struct tks_finding *f)
{
	char root[256];

	if (tks_cgroup2_mount(root, sizeof(root)))
		say(f, -EOPNOTSUPP,
		    "cgroup v2 is not mounted (a host with v1 only?), which the receive side needs: "
		    "mkdir -p /sys/fs/cgroup/unified; mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified "
		    "(v1 stays as it is)");
	else
		say(f, 0, "%s", root);
}

const struct tks_finding *tks_preflight(struct tks_finding f[TKS_FINDINGS])
{
	static const char *const names[TKS_FINDINGS] = {
		"kernel", "namespaces", "capabilities", "bpf()", "lockdown", "BTF", "cgroup v2",
	};
	int ring = try_ring((uint32_t)getpagesize());

	for (int i = 0; i < TKS_FINDINGS; i++)
		f[i] = (struct tks_finding){ .name = names[i] };
	look_at_kernel(&f[0], ring);
	look_at_namespaces(&f[1]);
	look_at_caps(&f[2]);
	look_at_refusal(&f[3], f[2].err ? 0 : ring);
	if (f[2].err)
		say(&f[3], 0, "not tried without them");
	look_at_lockdown(&f[4]);
	look_at_btf(&f[5]);
	look_at_cgroup(&f[6]);
	for (int i = 0; i < TKS_FINDINGS; i++) {
		if (f[i].err)
			return &f[i];
	}
	return NULL;
}
