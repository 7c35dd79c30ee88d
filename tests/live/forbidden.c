// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What somebody who had taken over a trace would do: loaded into it (LD_PRELOAD), it makes the
 * system call that FORBIDDEN names when SIGUSR1 comes, and tells what came of it on standard error.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <linux/bpf.h>

static const char *name = "";

static long forbidden(void)
{
	static char *const argv[] = { "/bin/true", NULL };
	union bpf_attr attr = {};

	if (!strcmp(name, "execve"))
		return execve(argv[0], argv, NULL);
	if (!strcmp(name, "fork"))
		return syscall(SYS_fork);
	if (!strcmp(name, "socket"))
		return socket(AF_INET, SOCK_STREAM, 0);
	if (!strcmp(name, "ptrace"))
		return ptrace(PTRACE_ATTACH, 1, NULL, NULL);
	if (!strcmp(name, "kill"))
		return kill(1, 0);
	if (!strcmp(name, "write_open"))
		return syscall(SYS_openat, AT_FDCWD, "/tmp", O_TMPFILE | O_RDWR, 0600);
	if (!strcmp(name, "unlink"))
		return unlink("/nowhere/x");
	if (!strcmp(name, "chmod"))
		return chmod("/nowhere/x", 0777);
	if (!strcmp(name, "mmap_exec"))
		return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0) == MAP_FAILED;
	if (!strcmp(name, "bpf_load"))
		return syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
	if (!strcmp(name, "process_vm_writev"))
		return process_vm_writev(1, NULL, 0, NULL, 0, 0);
	if (!strcmp(name, "setuid"))
		return syscall(SYS_setuid, 0);
	/* What it may do: the test would see nothing if the signal alone ended it. */
	return getpid() < 0;
}

static void on_signal(int sig)
{
	static char line[64];
	long r;

	(void)sig;
	r = forbidden();
	snprintf(line, sizeof(line), "forbidden %s: %ld\n", name, r);
	if (write(2, line, strlen(line)) < 0)
		_exit(99);
}

__attribute__((constructor)) static void begin(void)
{
	if (getenv("FORBIDDEN"))
		name = getenv("FORBIDDEN");
	signal(SIGUSR1, on_signal);
}
