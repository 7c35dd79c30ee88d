// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "priv.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>

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

unsigned long tks_raise_open_files(void)
{
	struct rlimit limit = { .rlim_max = RLIM_INFINITY };

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	return limit.rlim_max;
}
