/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Input files of commands: a file or standard input, whose kind is told from its first bytes
 * without taking them away, so that pipes work too. Shows how far reading has come when standard
 * error is a terminal.
 */
#ifndef TKS_SOURCE_H
#define TKS_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum tks_source_kind {
	TKS_SOURCE_EMPTY = 0,
	TKS_SOURCE_PACKETS, /* pcap or pcapng, by magic */
	TKS_SOURCE_RECORDS, /* begins as a line of JSON does */
	TKS_SOURCE_COMPRESSED, /* gzip, zstd, xz, bzip2 */
	TKS_SOURCE_FOREIGN,
};

struct tks_source {
	const char *name; /* for messages */
	int fd;
	bool own_fd;
	uint8_t head[64]; /* what was read ahead */
	size_t nhead, head_used;
	uint64_t size, done; /* bytes; size 0: not known */
	int percent; /* shown last; -1: nothing */
};

/* path "-": standard input. 0 or a negative errno; close in either case. */
int tks_source_open(struct tks_source *s, const char *path);
void tks_source_close(struct tks_source *s);

enum tks_source_kind tks_source_kind(const struct tks_source *s);

/* The source as a stream from its first byte. Closing it leaves s open. NULL without memory. */
FILE *tks_source_stream(struct tks_source *s);

/* Lines of a stream, bounded. Zeroed but for f to begin with. */
struct tks_lines {
	FILE *f;
	char *buf;
	size_t size, begin, end;
};

enum { TKS_LINE_MAX = 64 << 20 };

enum tks_line {
	TKS_LINE_END = 0, /* there are no more; the stream's error indicator tells whether reading
			     failed */
	TKS_LINE_WHOLE, /* ended by LF, which is not part of it */
	TKS_LINE_LAST, /* the stream ended without LF */
	TKS_LINE_LONG, /* longer than TKS_LINE_MAX, or than memory: stepped over */
};

/* *line is valid until the next call. */
enum tks_line tks_lines_next(struct tks_lines *l, char **line, size_t *len);
void tks_lines_free(struct tks_lines *l);

#endif
