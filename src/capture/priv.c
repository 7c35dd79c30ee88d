// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Privileges and preconditions, looked up before anything is loaded, so that the message can name
 * the remedy and not the errno.
 */
#include "priv.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <linux/capability.h>

/* A number of a process's status file, in hexadecimal; 0 if it can't be read. */
static uint64_t status_field(pid_t pid, const char *want)
{
	char path[32], line[256], name[64];
	uint64_t value = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f) &&
	       (sscanf(line, "%63[^:]: %" SCNx64, name, &value) != 2 || strcmp(name, want)))
		value = 0;
	fclose(f);
	return value;
}

bool tks_missing_caps(char *why, size_t len)
{
	static const struct {
		int cap;
		const char *name;
	} needed[] = {
		{ CAP_BPF, "CAP_BPF" },
		{ CAP_PERFMON, "CAP_PERFMON" },
		{ CAP_NET_ADMIN, "CAP_NET_ADMIN" },
	};
	uint64_t caps = status_field(getpid(), "CapEff");
	size_t n = 0;

	if (caps & (1ULL << CAP_SYS_ADMIN))
		caps |= 1ULL << CAP_BPF | 1ULL << CAP_PERFMON | 1ULL << CAP_NET_ADMIN;
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		if (caps & (1ULL << needed[i].cap))
			continue;
		n += snprintf(why + n, len - n, "%s%s", n ? ", " : "missing ", needed[i].name);
	}
	if (!n)
		return false;
	snprintf(why + n, len - n, ": run it as root (sudo), or give it these capabilities");
	return true;
}

bool tks_no_btf(char *why, size_t len)
{
	if (!access("/sys/kernel/btf/vmlinux", R_OK))
		return false;
	snprintf(
		why, len,
		"this kernel has no BTF (/sys/kernel/btf/vmlinux): use one built with CONFIG_DEBUG_INFO_BTF=y, "
		"as all distributions' kernels since 5.10 are");
	return true;
}

/*
 * From 6.11 (ff474a78cef5, "uprobe: Add uretprobe syscall to speed up return probe") a return probe
 * is a system call of the target's, which a seccomp filter may answer with death; since 6.14
 * (cf6cb56ef244, "seccomp: passthrough uretprobe systemcall without filtering") filters don't see
 * it.
 */
bool tks_uretprobe_is_syscall(void)
{
	unsigned int major, minor;
	struct utsname u;

	return !uname(&u) && sscanf(u.release, "%u.%u", &major, &minor) == 2 && major == 6 &&
	       minor >= 11 && minor < 14;
}

bool tks_has_seccomp(pid_t pid)
{
	return status_field(pid, "Seccomp") != 0;
}

void tks_raise_open_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}
