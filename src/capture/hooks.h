/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The hook table: each capture point's hooks, best first, and the programs that make each up. */
#ifndef TKS_HOOKS_H
#define TKS_HOOKS_H

#include "capture.h"

struct tokensnoop_bpf;

struct tks_hook {
	enum tks_point point;
	const char *name, *what;
	const char *const *progs; /* names in the BPF object, NULL at the end */
	bool sees_cookies; /* its programs can make a socket cookie; else they only read it */
};

extern const struct tks_hook tks_hooks[TKS_TRIALS];
extern const char *const tks_point_names[TKS_POINTS];

/* Tracing can do without. */
bool tks_point_optional(enum tks_point p);

/* How an object is opened for a set of hooks. */
struct tks_open_spec {
	const struct tks_hook *hooks[TKS_POINTS]; /* NULL: nothing at that point */
	bool compat; /* without the abilities of 5.12 */
	size_t ring_bytes;
};

/* Opens the object with exactly these hooks' programs on. NULL: errno is set. */
struct tokensnoop_bpf *tks_hooks_open(const struct tks_open_spec *spec);

/*
 * The best hook of each point that is not left out (a bit each of without), whether it works here
 * or not. False: a hook was forced that is none.
 */
bool tks_hooks_best(struct tks_open_spec *spec, unsigned int without);

/* 0 if uprobes can be put on a program (our own), or a negative errno. Loaded with the TLS point.
 */
int tks_hooks_try_uprobes(struct tokensnoop_bpf *skel);

/* Attaches every program that is on; code_mmap need not succeed. 0, or a negative errno with the
 * program's name in *which. */
int tks_hooks_attach(struct tokensnoop_bpf *skel, const char **which);

#endif
