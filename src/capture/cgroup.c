// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * cgroup v2 ids. An id is the inode number of the cgroup's directory, and its file handle too
 * (kernfs), which leads back to the path without a search.
 */
#include "cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HANDLE_KERNFS = 0xfe }; /* FILEID_KERNFS, include/linux/exportfs.h */

int tks_cgroup2_mount(char *buf, size_t len)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	int err = -ENOENT;
	struct mntent *m;

	if (!f)
		return -ENOENT;
	while (err && (m = getmntent(f))) {
		if (!strcmp(m->mnt_type, "cgroup2") && strlen(m->mnt_dir) < len) {
			strcpy(buf, m->mnt_dir);
			err = 0;
		}
	}
	endmntent(f);
	return err;
}

int tks_cgroup_id(const char *path, uint64_t *id, uint32_t *level)
{
	char root[256], real[PATH_MAX];
	struct stat st;
	size_t n;

	if (tks_cgroup2_mount(root, sizeof(root)))
		return -EOPNOTSUPP;
	n = strlen(root);
	if (!realpath(path, real) || stat(real, &st) || !S_ISDIR(st.st_mode) ||
	    strncmp(real, root, n) || (real[n] && real[n] != '/'))
		return -ENOENT;
	*id = st.st_ino;
	*level = 0;
	for (const char *p = real + n; *p; p++)
		*level += *p == '/' && p[1];
	return 0;
}

static int open_by_id(int mount, uint64_t id)
{
	union {
		struct file_handle h;
		char space[sizeof(struct file_handle) + sizeof(id)];
	} u = { .h = { .handle_bytes = sizeof(id), .handle_type = HANDLE_KERNFS } };

	memcpy(u.h.f_handle, &id, sizeof(id));
	return open_by_handle_at(mount, &u.h, O_PATH | O_CLOEXEC);
}

int tks_cgroup_path(uint64_t id, char *buf, size_t len)
{
	char root[256], link[32], full[PATH_MAX];
	int mount, fd, err = 0;
	ssize_t n;

	if (tks_cgroup2_mount(root, sizeof(root)))
		return -ENOENT;
	mount = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (mount < 0)
		return -errno;
	fd = open_by_id(mount, id);
	if (fd < 0) {
		err = -errno;
		goto close_mount;
	}
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, full, sizeof(full) - 1);
	if (n < 0) {
		err = -errno;
		goto close_fd;
	}
	full[n] = 0;
	if (strncmp(full, root, strlen(root)))
		err = -ENOENT;
	else
		snprintf(buf, len, "%s", full[strlen(root)] ? full + strlen(root) : "/");
close_fd:
	close(fd);
close_mount:
	close(mount);
	return err;
}
