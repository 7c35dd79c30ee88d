// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "maps.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static bool parse(char *line, struct tks_mapping *m)
{
	unsigned int major, minor;
	char perms[8];
	uint64_t ino;
	int at = 0;

	line[strcspn(line, "\n")] = 0;
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %*x %x:%x %" SCNu64 " %n", &m->start, &m->end,
		   perms, &major, &minor, &ino, &at) != 6 ||
	    !at || !strchr(perms, 'x') || !ino || line[at] != '/')
		return false;
	m->dev = makedev(major, minor);
	m->ino = (ino_t)ino;
	m->path = line + at;
	return true;
}

int tks_maps_each(pid_t pid, void (*fn)(void *ctx, const struct tks_mapping *m), void *ctx)
{
	char path[32], *line = NULL;
	struct tks_mapping m;
	size_t size = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	if (!maps)
		return -errno;
	while (getline(&line, &size, maps) > 0) {
		if (parse(line, &m))
			fn(ctx, &m);
	}
	free(line);
	fclose(maps);
	return 0;
}

/* Without a look at it first a fifo would be waited for, and a device do what it does when opened.
 */
static int open_regular(const char *path)
{
	int at = open(path, O_PATH | O_CLOEXEC), fd;
	char link[32];
	struct stat st;

	if (at < 0)
		return -errno;
	if (fstat(at, &st) || !S_ISREG(st.st_mode)) {
		close(at);
		return -EINVAL;
	}
	snprintf(link, sizeof(link), "/proc/self/fd/%d", at);
	fd = open(link, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	fd = fd < 0 ? -errno : fd;
	close(at);
	return fd;
}

int tks_maps_open(pid_t pid, const struct tks_mapping *m)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, pid, m->start,
		 m->end);
	fd = open_regular(path);
	/* Not permitted. If it is not there any more, what is at its path now is anything. */
	if (fd != -EPERM && fd != -EACCES)
		return fd;
	if (snprintf(path, sizeof(path), "/proc/%d/root%s", pid, m->path) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	return open_regular(path);
}
