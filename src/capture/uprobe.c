// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "uprobe.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/bpf.h>

#include <bpf/libbpf.h>

/* linux/bpf.h and libbpf of 6.6 have names for these; older ones must do too. */
enum { TRACE_UPROBE_MULTI = 48, UPROBE_MULTI_RETURN = 1 };

struct link_create_multi {
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t cnt, multi_flags, pid;
	uint32_t pad;
};

void tks_uprobe_use_multi(struct bpf_program *prog)
{
	bpf_program__set_expected_attach_type(prog, (enum bpf_attach_type)TRACE_UPROBE_MULTI);
}

static bool is_multi(const struct bpf_program *prog)
{
	return (int)bpf_program__expected_attach_type(prog) == TRACE_UPROBE_MULTI;
}

static int attach_multi(struct bpf_program *prog, const char *path, uint64_t offset,
			uint64_t cookie, bool at_return)
{
	struct link_create_multi attr = {
		.prog_fd = (uint32_t)bpf_program__fd(prog),
		.attach_type = TRACE_UPROBE_MULTI,
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)&offset,
		.cookies = (uintptr_t)&cookie,
		.cnt = 1,
		.multi_flags = at_return ? UPROBE_MULTI_RETURN : 0,
	};
	/* The kernel closes it at an exec, as all of BPF's. */
	long fd = syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));

	return fd < 0 ? -errno : (int)fd;
}

int tks_uprobe_attach(struct bpf_program *prog, const char *path, uint64_t offset, uint64_t cookie,
		      bool at_return, struct tks_uprobe *u)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .retprobe = at_return, .bpf_cookie = cookie);

	*u = (struct tks_uprobe){ .fd = -1 };
	if (is_multi(prog)) {
		u->fd = attach_multi(prog, path, offset, cookie, at_return);
		return u->fd < 0 ? u->fd : 0;
	}
	u->link = bpf_program__attach_uprobe_opts(prog, -1, path, offset, &opts);
	return u->link ? 0 : -errno;
}

void tks_uprobe_destroy(struct tks_uprobe *u)
{
	bpf_link__destroy(u->link);
	if (u->fd >= 0)
		close(u->fd);
	*u = (struct tks_uprobe){ .fd = -1 };
}
