/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where TLS libraries are, and uprobes on their functions: one set of probes a file, for all
 * processes that have it mapped, in whatever mount namespace, deleted or not.
 */
#ifndef TKS_TLS_ATTACH_H
#define TKS_TLS_ATTACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct tokensnoop_bpf;
struct tks_tls_attach;

/* What was found in a file, and what became of it. */
struct tks_tls_file {
	const char *path; /* as the process that it was found in has it */
	pid_t pid; /* that process */
	const char *libs; /* "OpenSSL", "GnuTLS", ...: by the functions that are there */
	unsigned int probes; /* that are attached */
	int err; /* why not all are: a negative errno, 0: they are */
	const char *reason; /* the same for people; "" : none */
};

/* NULL without memory. skel: loaded, with the tls programs on. */
struct tks_tls_attach *tks_tls_attach_new(struct tokensnoop_bpf *skel);

/* Takes all probes off. */
void tks_tls_attach_free(struct tks_tls_attach *a);

/* Looks at every process, and lets go of files that no process has mapped any more. */
void tks_tls_attach_scan(struct tks_tls_attach *a);

/* Looks at one process. 0, or a negative errno: it is gone, or may not be looked at. */
int tks_tls_attach_process(struct tks_tls_attach *a, pid_t pid);

/*
 * A file that is written to in place must lose its probes before the next process runs it: the
 * kernel would put them where they were, within other instructions. The descriptor (or -1) polls
 * readable then, and tks_tls_attach_changed takes them off: true, if so.
 */
int tks_tls_attach_fd(const struct tks_tls_attach *a);
bool tks_tls_attach_changed(struct tks_tls_attach *a);

/* Why nothing of the process's TLS is seen, for people; static. */
const char *tks_tls_attach_why_blind(const struct tks_tls_attach *a, pid_t pid);

/* Files with TLS functions: how many, and each. */
size_t tks_tls_attach_files(const struct tks_tls_attach *a);
void tks_tls_attach_file(const struct tks_tls_attach *a, size_t i, struct tks_tls_file *out);

#endif
