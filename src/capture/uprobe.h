/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A program on a place of a file, in one of two ways: by a perf event, for which kernels want
 * CAP_SYS_ADMIN (perf_uprobe_event_init() in kernel/events/core.c), or by a multi-uprobe link
 * (6.6), for which the program that is loaded is right enough.
 */
#ifndef TKS_UPROBE_H
#define TKS_UPROBE_H

#include <stdbool.h>
#include <stdint.h>

struct bpf_link;
struct bpf_program;

struct tks_uprobe {
	struct bpf_link *link; /* by a perf event; else NULL */
	int fd; /* by a multi-uprobe link; else -1 */
};

/* Before the load: the program goes on its places by multi-uprobe links. */
void tks_uprobe_use_multi(struct bpf_program *prog);

/*
 * Puts a loaded program on the instruction at offset in the file at path, or at the return of the
 * function that begins there; in all processes. The cookie is what bpf_get_attach_cookie() gives. 0
 * or a negative errno; what is attached goes by tks_uprobe_destroy().
 */
int tks_uprobe_attach(struct bpf_program *prog, const char *path, uint64_t offset, uint64_t cookie,
		      bool at_return, struct tks_uprobe *u);

/* Once more does nothing. */
void tks_uprobe_destroy(struct tks_uprobe *u);

#endif
