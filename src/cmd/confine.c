// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/capability.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <linux/bpf.h>
#include <linux/perf_event.h>

/* --- capabilities --- */

static uint64_t bit(int cap)
{
	return 1ULL << cap;
}

/* What is permitted and in keep stays; nothing can come back by a program that is run. */
static int keep_caps(uint64_t keep)
{
	cap_t had = cap_get_proc(), caps = cap_init();
	int err = 0;

	if (!had || !caps) {
		err = -ENOMEM;
		goto out;
	}
	for (int cap = 0; cap <= cap_max_bits() - 1; cap++) {
		cap_value_t value = cap;
		cap_flag_value_t on = CAP_CLEAR;

		if (cap_get_flag(had, cap, CAP_PERMITTED, &on) || on == CAP_CLEAR ||
		    !(keep & bit(cap)))
			continue;
		cap_set_flag(caps, CAP_PERMITTED, 1, &value, CAP_SET);
		cap_set_flag(caps, CAP_EFFECTIVE, 1, &value, CAP_SET);
	}
	/* Only who has CAP_SETPCAP may, and only who has it could gain by it. */
	for (int cap = 0; cap <= cap_max_bits() - 1; cap++)
		cap_drop_bound(cap);
	/* The ambient set goes with the inheritable one. */
	if (cap_set_proc(caps))
		err = -errno;
out:
	cap_free(caps);
	cap_free(had);
	return err;
}

int tks_drop_lent_caps(void)
{
	return getauxval(AT_SECURE) ? keep_caps(0) : 0;
}

/* --- core dumps --- */

void tks_no_core_dumps(void)
{
	const struct rlimit one = { 1, 1 }, none = { 0, 0 };

	/* Where the limit is 0 already, only root may raise it. */
	if (setrlimit(RLIMIT_CORE, &one))
		setrlimit(RLIMIT_CORE, &none);
}

/* --- system calls --- */

/* Those that may have any arguments. What an architecture doesn't have libseccomp leaves out. */
static const int free_calls[] = {
	/* the ring, the terminal, the files that are open */
	SCMP_SYS(read),
	SCMP_SYS(pread64),
	SCMP_SYS(write),
	SCMP_SYS(writev),
	SCMP_SYS(lseek),
	SCMP_SYS(close),
	SCMP_SYS(fsync),
	SCMP_SYS(epoll_wait),
	SCMP_SYS(epoll_pwait),
	SCMP_SYS(epoll_ctl),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	/* other processes' files; whether openat2 opens for writing lies behind a pointer */
	SCMP_SYS(openat2),
	SCMP_SYS(open_by_handle_at),
	SCMP_SYS(fstat),
	SCMP_SYS(stat),
	SCMP_SYS(lstat),
	SCMP_SYS(newfstatat),
	SCMP_SYS(statx),
	SCMP_SYS(fstatfs),
	SCMP_SYS(readlink),
	SCMP_SYS(readlinkat),
	SCMP_SYS(getdents64),
	SCMP_SYS(access),
	SCMP_SYS(faccessat),
	SCMP_SYS(faccessat2),
	SCMP_SYS(inotify_add_watch),
	SCMP_SYS(inotify_rm_watch),
	/* probes; its attributes lie behind a pointer, where a filter can't look */
	SCMP_SYS(perf_event_open),
	/* memory, time, signals, the end */
	SCMP_SYS(brk),
	SCMP_SYS(munmap),
	SCMP_SYS(mremap),
	SCMP_SYS(madvise),
	SCMP_SYS(futex),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(gettimeofday),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(nanosleep),
	SCMP_SYS(restart_syscall),
	SCMP_SYS(getrandom),
	SCMP_SYS(uname),
	SCMP_SYS(getpid),
	SCMP_SYS(gettid),
	SCMP_SYS(sched_getaffinity),
	SCMP_SYS(getrusage),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
};

/* Those that may have one argument only: whose bits in mask are value. */
static const struct {
	int call;
	unsigned int arg;
	uint64_t mask, value;
} bound_calls[] = {
	{ SCMP_SYS(openat), 2, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, O_RDONLY },
	/* no new code */
	{ SCMP_SYS(mmap), 2, PROT_EXEC, 0 },
	{ SCMP_SYS(mprotect), 2, PROT_EXEC, 0 },
	/* programs and maps are not among them: none can be loaded any more */
	{ SCMP_SYS(bpf), 0, UINT32_MAX, BPF_MAP_LOOKUP_ELEM },
	{ SCMP_SYS(bpf), 0, UINT32_MAX, BPF_MAP_UPDATE_ELEM },
	{ SCMP_SYS(bpf), 0, UINT32_MAX, BPF_MAP_DELETE_ELEM },
	{ SCMP_SYS(bpf), 0, UINT32_MAX, BPF_MAP_GET_NEXT_KEY },
	{ SCMP_SYS(bpf), 0, UINT32_MAX, BPF_OBJ_GET_INFO_BY_FD },
	{ SCMP_SYS(bpf), 0, UINT32_MAX, BPF_LINK_CREATE },
	{ SCMP_SYS(bpf), 0, UINT32_MAX, BPF_LINK_DETACH },
	{ SCMP_SYS(ioctl), 1, UINT32_MAX, PERF_EVENT_IOC_ENABLE },
	{ SCMP_SYS(ioctl), 1, UINT32_MAX, PERF_EVENT_IOC_DISABLE },
	{ SCMP_SYS(ioctl), 1, UINT32_MAX, PERF_EVENT_IOC_SET_BPF },
	{ SCMP_SYS(ioctl), 1, UINT32_MAX, TCGETS },
	{ SCMP_SYS(ioctl), 1, UINT32_MAX, TIOCGWINSZ },
	{ SCMP_SYS(fcntl), 1, UINT32_MAX, F_GETFD },
	{ SCMP_SYS(fcntl), 1, UINT32_MAX, F_SETFD },
	{ SCMP_SYS(fcntl), 1, UINT32_MAX, F_GETFL },
	{ SCMP_SYS(fcntl), 1, UINT32_MAX, F_DUPFD_CLOEXEC },
};

static int allow(scmp_filter_ctx ctx)
{
	int err = 0;

	for (size_t i = 0; !err && i < sizeof(free_calls) / sizeof(free_calls[0]); i++)
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, free_calls[i], 0);
	for (size_t i = 0; !err && i < sizeof(bound_calls) / sizeof(bound_calls[0]); i++)
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, bound_calls[i].call, 1,
				       SCMP_CMP(bound_calls[i].arg, SCMP_CMP_MASKED_EQ,
						bound_calls[i].mask, bound_calls[i].value));
	/* abort() sends itself a signal. */
	if (!err)
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
				       SCMP_CMP(0, SCMP_CMP_MASKED_EQ, UINT32_MAX,
						(scmp_datum_t)getpid()));
	return err;
}

/* Loading it takes no_new_privs along. */
static int filter_calls(void)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int err;

	if (!ctx)
		return -ENOMEM;
	/* A number for each: a tree is searched in a few steps instead of all. */
	seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	err = allow(ctx);
	if (!err)
		err = seccomp_load(ctx);
	seccomp_release(ctx);
	return err;
}

int tks_confine_trace(uint64_t keep, const char **what)
{
	int err;

	*what = "no_new_privs";
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	/* Takes /proc/self away from users, so not for who opens /dev/stdin or /dev/fd yet. */
	*what = "closing itself to debuggers";
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		return -errno;
	*what = "giving up capabilities";
	err = keep_caps(keep);
	if (err)
		return err;
	*what = "the system call filter";
	return filter_calls();
}
