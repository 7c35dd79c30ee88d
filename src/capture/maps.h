/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A process's mappings of files with code (/proc/PID/maps). */
#ifndef TKS_MAPS_H
#define TKS_MAPS_H

#include <stdint.h>
#include <sys/types.h>

struct tks_mapping {
	uint64_t start, end;
	dev_t dev;
	ino_t ino;
	const char *path; /* as the process has it; " (deleted)" is behind that of a deleted file */
};

/* Calls fn for each; m is valid during the call. 0, or a negative errno (the process is gone, or
 * may not be looked at). */
int tks_maps_each(pid_t pid, void (*fn)(void *ctx, const struct tks_mapping *m), void *ctx);

/* Opens the mapped file, by the mapping itself where that is permitted, else by its path below the
 * process's root. A descriptor or a negative errno. */
int tks_maps_open(pid_t pid, const struct tks_mapping *m);

/* Opens a regular file to read; its path, symbolic links in it too, ends below the root. A
 * descriptor or a negative errno. */
int tks_open_below(const char *root, const char *path);

#endif
