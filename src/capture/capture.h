/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The live source: finds the best hooks that this kernel permits, loads and attaches the BPF
 * programs, and hands ring records over. Everything here needs a kernel; nothing right of the
 * record does.
 */
#ifndef TKS_CAPTURE_H
#define TKS_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokensnoop/record.h"

enum { TKS_CAPTURE_PORTS_MAX = 16 };

struct tks_capture_config {
	uint16_t ports[TKS_CAPTURE_PORTS_MAX]; /* local ports (with all: remote ones too); none: any
						*/
	uint32_t nports; /* 0: unix sockets, too */
	bool all; /* connections that this host opened, too */
	uint32_t pid; /* this process and its descendants; 0: any */
	const char *comm; /* NULL: any */
	const char *cgroup; /* a directory of the cgroup v2 tree; NULL: any */
	bool no_tls; /* leave TLS libraries alone */
	size_t ring_bytes; /* a power of two, at least a page; 0: 16 MiB */
};

enum tks_point {
	TKS_POINT_SEND = 0,
	TKS_POINT_RECV,
	TKS_POINT_CONN,
	TKS_POINT_TLS, /* this and the next: tracing can do without */
	TKS_POINT_UNIX,
	TKS_POINTS
};

/* What came of trying a hook on this kernel as this user. */
struct tks_trial {
	const char *point; /* "send", "recv", "conn", "tls", "unix" */
	bool optional; /* tracing can do without the point */
	const char *hook; /* "fentry", "tp_btf", ... */
	const char *what; /* what it is, in a few words */
	bool tried, works;
	bool compat; /* works only without what tracing programs can do since 5.12 */
	int err; /* negative errno of the failure */
	char step[16]; /* "load" or "attach" */
	char reason[256]; /* for people, with the remedy where there is one; one line */
};

enum { TKS_TRIALS = 11 };

/*
 * Tries the hooks for real: loads and attaches each one's programs and takes them off again. all:
 * every row; else a point's rows only down to the first that works, or the one that is forced.
 * Returns the number of rows, in the order of preference a point.
 */
size_t tks_hooks_try(struct tks_trial trials[TKS_TRIALS], bool all);

/* The only hook that is to be taken at a point ("send", "unix", ...): what the environment variable
 * TOKENSNOOP_HOOK_SEND (UNIX, ...) says, for tests; NULL: the best that works. */
const char *tks_hook_forced(const char *point);

struct tks_capture;

/*
 * Opens, loads, attaches; from the return on the records come. 0, or a negative errno with one line
 * for people in why (what is missing and the remedy): -EPERM / -EOPNOTSUPP when tracing can't work
 * here, -EINVAL / -ENOENT for a filter that can't be, others for faults.
 */
int tks_capture_open(const struct tks_capture_config *cfg, struct tks_capture **cap, char *why,
		     size_t why_len);

/* Detaches everything and frees; NULL is nothing. */
void tks_capture_close(struct tks_capture *c);

/* Names of the hooks in use: "send=tp_btf recv=cgroup_skb ..."; valid until close. */
const char *tks_capture_hooks(const struct tks_capture *c);

/* Called for each record; data is valid during the call. */
typedef void (*tks_record_fn)(void *ctx, const void *data, size_t size);

/*
 * Waits up to timeout_ms for the early-wakeup mark, then hands over everything that is queued,
 * woken or not: call it in a loop with a time-out of at most 100 ms, which is the bound on the
 * delay of live output. Returns the number of records, or a negative errno (-EINTR: a signal came).
 */
int tks_capture_poll(struct tks_capture *c, int timeout_ms, tks_record_fn fn, void *ctx);

/* A descriptor that polls readable at the early-wakeup mark. */
int tks_capture_fd(const struct tks_capture *c);

/* Tells the kernel how much of a connection is wanted. */
void tks_capture_verdict(struct tks_capture *c, uint64_t cookie, enum tks_verdict v);

/* The same of an object of a TLS library. */
void tks_capture_obj_verdict(struct tks_capture *c, uint32_t pid, uint64_t obj, enum tks_verdict v);

/* Plaintext of TLS libraries is captured. */
bool tks_capture_sees_tls(const struct tks_capture *c);

/* Why a point that was wanted ("tls", "unix") is not seen, for people; NULL if it is. Lives as long
 * as the capture. */
const char *tks_capture_why_not(const struct tks_capture *c, const char *point);

/* TLS libraries that a running process loads are looked for every two seconds, as the kernel
 * doesn't tell of them at once. */
bool tks_capture_polls_mappings(const struct tks_capture *c);

/* The capabilities (a bit each, as in linux/capability.h) that are needed as long as it goes on. */
uint64_t tks_capture_late_caps(const struct tks_capture *c);

/* Why nothing of a process's TLS is seen, for people. Lives as long as the capture. */
const char *tks_capture_why_blind(const struct tks_capture *c, uint32_t pid);

struct tks_tls_file;

/* The files with TLS functions that were found so far; fn is called for each. */
void tks_capture_tls_files(const struct tks_capture *c,
			   void (*fn)(void *ctx, const struct tks_tls_file *f), void *ctx);

/* Runs of the programs on unix sockets that the kernel refused so far. */
uint64_t tks_capture_unix_misses(const struct tks_capture *c);

struct tks_capture_counters {
	uint64_t losses[TKS_LOSS_MAX]; /* by enum tks_loss */
	uint64_t prog_runs, prog_ns; /* over all programs */
	uint64_t misses; /* runs that the kernel refused (recursion_misses) */
	bool stats_on; /* prog_runs and prog_ns are measured */
};

void tks_capture_counters(struct tks_capture *c, struct tks_capture_counters *out);

#endif
