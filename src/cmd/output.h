/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The file that -o names. It may be named by root in a folder where others write: what they put
 * there beforehand is not followed, and nothing of theirs is written to.
 */
#ifndef TKS_OUTPUT_H
#define TKS_OUTPUT_H

#include <stdio.h>

/*
 * stdout for NULL, "-" and "/dev/stdout"; /dev/null and /dev/full; else a regular file of the
 * caller's own, without other names, emptied, readable and writable by its owner alone whatever the
 * umask is and whatever it was. NULL with the reason in *why (static, or strerror's).
 */
FILE *tks_output_open(const char *file, const char **why);

/* Writes out what is buffered, closes unless stdout. 0, or the negative errno of a failed write. */
int tks_output_close(FILE *f);

#endif
