/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What this process may do, and what the kernel offers at all. */
#ifndef TKS_PRIV_H
#define TKS_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* True, and a line that names the missing capabilities and the remedy in why, when this process
 * lacks any that tracing needs. */
bool tks_missing_caps(char *why, size_t len);

/* True, and a line in why, when the kernel has no BTF of its own types. */
bool tks_no_btf(char *why, size_t len);

/* On this kernel a return probe (uretprobe) is a system call of the target's, which a seccomp
 * filter sees. */
bool tks_uretprobe_is_syscall(void);

/* The process runs under seccomp. */
bool tks_has_seccomp(pid_t pid);

/* Lets this process open as many files as it may ask for: each program, map and probe is one. */
void tks_raise_open_files(void);

#endif
