// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Reading ahead works on pipes because the stream is our own (fopencookie): it hands out the bytes
 * read ahead first, then what the descriptor gives.
 */
#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ssize_t read_some(int fd, void *buf, size_t n)
{
	ssize_t got;

	do {
		got = read(fd, buf, n);
	} while (got < 0 && errno == EINTR);
	return got;
}

static int read_ahead(struct tks_source *s)
{
	ssize_t got;

	while (s->nhead < sizeof(s->head)) {
		got = read_some(s->fd, s->head + s->nhead, sizeof(s->head) - s->nhead);
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		s->nhead += (size_t)got;
	}
	return 0;
}

int tks_source_open(struct tks_source *s, const char *path)
{
	struct stat st;

	*s = (struct tks_source){ .name = path, .fd = STDIN_FILENO, .percent = -1 };
	if (strcmp(path, "-") == 0) {
		s->name = "standard input";
	} else {
		s->fd = open(path, O_RDONLY | O_CLOEXEC);
		if (s->fd < 0)
			return -errno;
		s->own_fd = true;
	}
	if (fstat(s->fd, &st) == 0 && S_ISREG(st.st_mode))
		s->size = (uint64_t)st.st_size;
	return read_ahead(s);
}

void tks_source_close(struct tks_source *s)
{
	if (s->percent >= 0)
		fputs("\r\033[K", stderr);
	if (s->own_fd)
		close(s->fd);
	s->own_fd = false;
}

static bool begins(const struct tks_source *s, const char *magic, size_t n)
{
	return s->nhead >= n && !memcmp(s->head, magic, n);
}

/* Savefile magics: microseconds, nanoseconds, and one with more header fields, in both byte orders;
 * pcapng's block type. */
static bool is_packets(const struct tks_source *s)
{
	static const char magics[][5] = { "\xa1\xb2\xc3\xd4", "\xd4\xc3\xb2\xa1",
					  "\xa1\xb2\x3c\x4d", "\x4d\x3c\xb2\xa1",
					  "\xa1\xb2\xcd\x34", "\x34\xcd\xb2\xa1",
					  "\x0a\x0d\x0d\x0a" };

	for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++)
		if (begins(s, magics[i], 4))
			return true;
	return false;
}

enum tks_source_kind tks_source_kind(const struct tks_source *s)
{
	size_t i = 0;

	if (!s->nhead)
		return TKS_SOURCE_EMPTY;
	if (is_packets(s))
		return TKS_SOURCE_PACKETS;
	if (begins(s, "\x1f\x8b", 2) || begins(s, "\x28\xb5\x2f\xfd", 4) ||
	    begins(s,
		   "\xfd"
		   "7zXZ",
		   5) ||
	    begins(s, "BZh", 3))
		return TKS_SOURCE_COMPRESSED;
	while (i < s->nhead && strchr(" \t\r\n", s->head[i]) && s->head[i])
		i++;
	return i == s->nhead || s->head[i] == '{' ? TKS_SOURCE_RECORDS : TKS_SOURCE_FOREIGN;
}

static void show_progress(struct tks_source *s)
{
	static const char bar[] = "##############################";
	int percent, filled;

	if (!s->size || !isatty(STDERR_FILENO))
		return;
	percent = s->done >= s->size ? 100 : (int)(s->done * 100 / s->size);
	if (percent == s->percent)
		return;
	s->percent = percent;
	filled = percent * (int)(sizeof(bar) - 1) / 100;
	fprintf(stderr, "\r[%-*.*s] %3d %%  %.40s", (int)sizeof(bar) - 1, filled, bar, percent,
		s->name);
}

static ssize_t cookie_read(void *cookie, char *buf, size_t n)
{
	struct tks_source *s = cookie;
	size_t ahead = s->nhead - s->head_used;
	ssize_t got;

	if (ahead) {
		got = (ssize_t)(n < ahead ? n : ahead);
		memcpy(buf, s->head + s->head_used, (size_t)got);
		s->head_used += (size_t)got;
	} else {
		got = read_some(s->fd, buf, n);
	}
	if (got > 0) {
		s->done += (uint64_t)got;
		show_progress(s);
	}
	return got;
}

FILE *tks_source_stream(struct tks_source *s)
{
	FILE *f = fopencookie(s, "r", (cookie_io_functions_t){ .read = cookie_read });

	if (f)
		setvbuf(f, NULL, _IOFBF, 256 * 1024);
	return f;
}

/* --- lines -------------------------------------------------------------------------------------
 */

/* Makes room behind the bytes that are there. */
static bool make_room(struct tks_lines *l)
{
	size_t size = l->size ? l->size * 2 : 64 * 1024;
	char *buf;

	if (l->buf && l->begin) {
		memmove(l->buf, l->buf + l->begin, l->end - l->begin);
		l->end -= l->begin;
		l->begin = 0;
	}
	if (l->end < l->size)
		return true;
	buf = l->size < TKS_LINE_MAX ? realloc(l->buf, size) : NULL;
	if (!buf)
		return false;
	l->buf = buf;
	l->size = size;
	return true;
}

static enum tks_line step_over(struct tks_lines *l)
{
	char *lf = NULL;

	while (!lf) {
		l->begin = 0;
		l->end = fread(l->buf, 1, l->size, l->f);
		if (!l->end)
			return TKS_LINE_LONG;
		lf = memchr(l->buf, '\n', l->end);
	}
	l->begin = (size_t)(lf - l->buf) + 1;
	return TKS_LINE_LONG;
}

enum tks_line tks_lines_next(struct tks_lines *l, char **line, size_t *len)
{
	size_t looked = 0, got;
	char *lf;

	for (;;) {
		lf = l->end > l->begin + looked
			     ? memchr(l->buf + l->begin + looked, '\n', l->end - l->begin - looked)
			     : NULL;
		*line = l->buf ? l->buf + l->begin : NULL;
		if (lf)
			break;
		looked = l->end - l->begin;
		if (!make_room(l))
			return l->buf ? step_over(l) : TKS_LINE_END;
		got = fread(l->buf + l->end, 1, l->size - l->end, l->f);
		l->end += got;
		if (got)
			continue;
		*line = l->buf;
		*len = l->end;
		l->begin = l->end;
		return *len ? TKS_LINE_LAST : TKS_LINE_END;
	}
	*len = (size_t)(lf - *line);
	l->begin += *len + 1;
	return TKS_LINE_WHOLE;
}

void tks_lines_free(struct tks_lines *l)
{
	free(l->buf);
	l->buf = NULL;
}
