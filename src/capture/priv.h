/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the kernel does to processes that are traced, and this process's own limits. */
#ifndef TKS_PRIV_H
#define TKS_PRIV_H

#include <stdbool.h>
#include <sys/types.h>

/* On this kernel a return probe (uretprobe) is a system call of the target's, which a seccomp
 * filter sees. */
bool tks_uretprobe_is_syscall(void);

/* The process runs under seccomp. */
bool tks_has_seccomp(pid_t pid);

/* Lets this process open as many files as it may ask for: each program, map and probe is one. How
 * many that are. */
unsigned long tks_raise_open_files(void);

#endif
