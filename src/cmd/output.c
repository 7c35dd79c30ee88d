// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { OWNER_ONLY = S_IRUSR | S_IWUSR };

static bool is_stdout(const char *file)
{
	return !file || !strcmp(file, "-") || !strcmp(file, "/dev/stdout");
}

/* /dev/null, and /dev/full for tests: Documentation/admin-guide/devices.txt. */
static bool harmless_device(const struct stat *st)
{
	return S_ISCHR(st->st_mode) &&
	       (st->st_rdev == makedev(1, 3) || st->st_rdev == makedev(1, 7));
}

/* Why it is not written to, or NULL. */
static const char *fault_of(const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return "is no regular file; name another, or write to standard output (-)";
	if (st->st_uid != geteuid())
		return "belongs to another user; remove it, or name another file";
	if (st->st_nlink != 1)
		return "has other names (hard links); remove it, or name another file";
	return NULL;
}

/* Emptied only now that it is known whose it is. */
static const char *take(int fd)
{
	const char *fault;
	struct stat st;

	if (fstat(fd, &st))
		return strerror(errno);
	if (harmless_device(&st))
		return NULL;
	fault = fault_of(&st);
	if (fault)
		return fault;
	return fchmod(fd, OWNER_ONLY) || ftruncate(fd, 0) ? strerror(errno) : NULL;
}

FILE *tks_output_open(const char *file, const char **why)
{
	FILE *f = NULL;
	int fd;

	if (is_stdout(file))
		return stdout;
	/* O_NONBLOCK: a FIFO without a reader would be waited for. */
	fd = open(file, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
		  OWNER_ONLY);
	if (fd < 0) {
		*why = strerror(errno);
		if (errno == ELOOP)
			*why = "is a symbolic link, which is not followed; name the file itself";
		else if (errno == ENXIO)
			*why = "is no regular file; name another, or write to standard output (-)";
		return NULL;
	}
	*why = take(fd);
	if (!*why) {
		f = fdopen(fd, "w");
		if (!f)
			*why = strerror(errno);
	}
	if (!f)
		close(fd);
	return f;
}

int tks_output_close(FILE *f)
{
	int err = 0;

	if (fflush(f) || ferror(f))
		err = errno ? -errno : -EIO;
	if (f != stdout && fclose(f) && !err)
		err = -errno;
	return err;
}
