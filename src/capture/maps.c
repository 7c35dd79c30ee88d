// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "maps.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <linux/openat2.h>

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

/* Opens a file to read that is open as a place only, which is closed. Without that look at it first
 * a fifo would be waited for, and a device do what it does when opened. */
static int open_regular(int at)
{
	char link[32];
	struct stat st;
	int fd;

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

int tks_open_below(const char *root, const char *path)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC), at;

	if (dir < 0)
		return -errno;
	at = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
	at = at < 0 ? -errno : at;
	close(dir);
	return at < 0 ? at : open_regular(at);
}

int tks_maps_open(pid_t pid, const struct tks_mapping *m)
{
	char path[64];
	int at;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, pid, m->start,
		 m->end);
	at = open(path, O_PATH | O_CLOEXEC);
	if (at >= 0)
		return open_regular(at);
	/* Not permitted. If it is not there any more, what is at its path now is anything. */
	if (errno != EPERM && errno != EACCES)
		return -errno;
	snprintf(path, sizeof(path), "/proc/%d/root", pid);
	return tks_open_below(path, m->path);
}
