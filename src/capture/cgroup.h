/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The cgroup v2 tree: where it is mounted, ids to paths and back. */
#ifndef TKS_CGROUP_H
#define TKS_CGROUP_H

#include <stddef.h>
#include <stdint.h>

/* Mount point of the cgroup v2 hierarchy into buf; 0 or -ENOENT. */
int tks_cgroup2_mount(char *buf, size_t len);

/*
 * Id and level below the root of a cgroup's directory. 0; -EOPNOTSUPP without cgroup v2; -ENOENT
 * when path is no directory in it.
 */
int tks_cgroup_id(const char *path, uint64_t *id, uint32_t *level);

/* Path below the mount point ("/" for the root) of a cgroup id into buf. 0, or a negative errno
 * (gone, or no CAP_DAC_READ_SEARCH). */
int tks_cgroup_path(uint64_t id, char *buf, size_t len);

#endif
