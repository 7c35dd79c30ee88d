/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What must be so before any hook can be tried, each with the words that say what is missing and
 * the remedy: the same for doctor, which prints all, and for trace, which ends with the first.
 */
#ifndef TKS_PREFLIGHT_H
#define TKS_PREFLIGHT_H

#include <stdbool.h>
#include <stddef.h>

struct tks_finding {
	const char *name; /* "kernel", "capabilities", ... */
	int err; /* 0: as it must be; -EPERM or -EOPNOTSUPP */
	char text[400]; /* what is there; or what is missing, and the remedy. One line */
};

enum { TKS_FINDINGS = 7 };

/* Fills all, in the order in which one hides the next. Returns the first that is wrong, or NULL. */
const struct tks_finding *tks_preflight(struct tks_finding f[TKS_FINDINGS]);

/* True, and a line that names the missing capabilities and the remedy in why, when this process
 * lacks any that tracing needs. */
bool tks_missing_caps(char *why, size_t len);

/* What a capability is needed for when all has been set up. */
enum tks_late {
	TKS_LATE_NEVER,
	TKS_LATE_ALWAYS,
	TKS_LATE_TLS, /* where TLS libraries are read */
	TKS_LATE_PERF_UPROBE, /* where their probes are perf events */
};

/* A capability that something needs. */
struct tks_cap_use {
	int cap; /* as in linux/capability.h */
	const char *name;
	bool needed; /* without it nothing works */
	enum tks_late late;
	const char *use;
};

enum { TKS_CAP_USES = 8 };
extern const struct tks_cap_use tks_cap_uses[TKS_CAP_USES];

/* This process has the capability, or the one that stands for it, in its effective set. */
bool tks_has_cap(int cap);

#endif
