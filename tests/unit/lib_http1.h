/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What http1.c reports, written down as text, one event a line, so that two ways to feed the same
 * bytes can be compared. Body bytes that follow each other are joined, as they may come in any
 * pieces. Q is the request side, S the response side; places are offsets, "first-last".
 *
 * On the way it checks what holds for any input: that events come in an order that makes sense,
 * that offsets never go back, and that body bytes are those that were fed at their offsets.
 */
#ifndef LIB_HTTP1_H
#define LIB_HTTP1_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http1.h"

enum { LIB_H1_TIMES = 4096 };

struct lib_h1 {
	struct tks_mem mem;
	struct tks_http1 *h;
	char *text;
	size_t n, size;
	bool in_body[2]; /* by side: the line that was written last is body, up to body_end */
	uint64_t body_end;
	uint64_t off[2]; /* by side: of the next byte fed */
	const uint8_t *fed; /* the slice being fed, at fed_off */
	uint64_t fed_off;
	bool open[2], headed[2], tunnel; /* of the message under way, by side */
	uint64_t floor[2]; /* by side: no event about earlier bytes any more */
	int err; /* the test's: the first error returned */
	unsigned int calls, fail_at; /* the call of ops with this number fails */
	uint16_t time[2][LIB_H1_TIMES]; /* by side and offset; now, when fed */
	uint16_t now; /* 0: times are not known */
};

__attribute__((format(printf, 2, 0))) static inline void lib_h1_vprint(struct lib_h1 *l,
								       const char *fmt, va_list ap)
{
	char line[1024];
	int len = vsnprintf(line, sizeof(line), fmt, ap);

	if (len < 0 || (size_t)len >= sizeof(line))
		abort();
	if (l->n + (size_t)len + 1 > l->size) {
		l->size = 2 * (l->n + (size_t)len + 1);
		l->text = realloc(l->text, l->size);
		if (!l->text)
			abort();
	}
	memcpy(l->text + l->n, line, (size_t)len + 1);
	l->n += (size_t)len;
}

__attribute__((format(printf, 2, 3))) static inline void lib_h1_print(struct lib_h1 *l,
								      const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	lib_h1_vprint(l, fmt, ap);
	va_end(ap);
}

/* Ends a line of body, if one is under way. */
static inline void lib_h1_line(struct lib_h1 *l)
{
	for (int side = 0; side < 2; side++) {
		if (l->in_body[side])
			lib_h1_print(l, "\n");
		l->in_body[side] = false;
	}
}

static inline char lib_h1_name(enum tks_side side)
{
	return side == TKS_REQUEST ? 'Q' : 'S';
}

#define LIB_H1_CHECK(cond)                                                                         \
	do {                                                                                       \
		if (!(cond))                                                                       \
			abort();                                                                   \
	} while (0)

/* An event is about the bytes from off up to end. */
static inline void lib_h1_moves(struct lib_h1 *l, enum tks_side side, uint64_t off, uint64_t end)
{
	LIB_H1_CHECK(off >= l->floor[side] && end >= off && end <= l->off[side]);
	l->floor[side] = end;
}

static inline int lib_h1_ret(struct lib_h1 *l)
{
	return ++l->calls == l->fail_at ? -EIO : 0;
}

static inline void lib_h1_begin(void *ctx, enum tks_side side, uint64_t off)
{
	struct lib_h1 *l = ctx;

	LIB_H1_CHECK(side == TKS_REQUEST && !l->open[side]);
	l->open[side] = true;
	lib_h1_moves(l, side, off, off);
	lib_h1_line(l);
	lib_h1_print(l, "%c begin %llu\n", lib_h1_name(side), (unsigned long long)off);
}

static inline int lib_h1_head(void *ctx, const struct tks_http_head *h)
{
	struct lib_h1 *l = ctx;

	LIB_H1_CHECK(l->open[h->side] == (h->side == TKS_REQUEST) && !l->headed[h->side]);
	lib_h1_moves(l, h->side, h->first_off, h->resumed ? h->last_off : h->last_off + 1);
	l->open[h->side] = l->headed[h->side] = true;
	l->tunnel |= h->upgrade;
	lib_h1_line(l);
	lib_h1_print(l, "%c head %llu-%llu", lib_h1_name(h->side), (unsigned long long)h->first_off,
		     (unsigned long long)h->last_off);
	if (h->resumed) {
		lib_h1_print(l, " resumed\n");
		return lib_h1_ret(l);
	}
	if (h->side == TKS_REQUEST)
		lib_h1_print(l, " %s %.300s", h->method, h->target);
	else
		lib_h1_print(l, " %u", h->status);
	lib_h1_print(l, " %u.%u", h->major, h->minor);
	if (h->content_length >= 0)
		lib_h1_print(l, " length=%lld", (long long)h->content_length);
	lib_h1_print(l, "%s%s%s%s", h->chunked ? " chunked" : "", h->keep_alive ? "" : " close",
		     h->upgrade ? " upgrade" : "", h->truncated ? " truncated" : "");
	if (h->content_type[0])
		lib_h1_print(l, " type=%s", h->content_type);
	if (h->content_encoding[0])
		lib_h1_print(l, " coding=%s", h->content_encoding);
	if (h->server[0])
		lib_h1_print(l, " server=%s", h->server);
	if (h->upgrade_to[0])
		lib_h1_print(l, " to=%s", h->upgrade_to);
	lib_h1_print(l, "\n");
	return lib_h1_ret(l);
}

static inline int lib_h1_body(void *ctx, enum tks_side side, const struct tks_slice *s)
{
	struct lib_h1 *l = ctx;

	LIB_H1_CHECK(s->len && s->data == l->fed + (s->off - l->fed_off));
	LIB_H1_CHECK(l->headed[side] || (side == TKS_REQUEST && l->tunnel));
	lib_h1_moves(l, side, s->off, s->off + s->len);
	if (!l->in_body[side] || l->body_end != s->off) {
		lib_h1_line(l);
		lib_h1_print(l, "%c body %llu ", lib_h1_name(side), (unsigned long long)s->off);
	}
	for (size_t i = 0; i < s->len; i++) {
		bool plain = s->data[i] >= ' ' && s->data[i] < 0x7f && s->data[i] != '\\';

		lib_h1_print(l, plain ? "%c" : "\\%02x", s->data[i]);
	}
	l->in_body[side] = true;
	l->body_end = s->off + s->len;
	return lib_h1_ret(l);
}

static inline int lib_h1_body_gap(void *ctx, enum tks_side side, uint64_t off, uint64_t len)
{
	struct lib_h1 *l = ctx;

	LIB_H1_CHECK(l->headed[side] || (side == TKS_REQUEST && l->tunnel));
	lib_h1_moves(l, side, off, off + len);
	lib_h1_line(l);
	lib_h1_print(l, "%c gap %llu+%llu\n", lib_h1_name(side), (unsigned long long)off,
		     (unsigned long long)len);
	return lib_h1_ret(l);
}

static inline int lib_h1_end(void *ctx, enum tks_side side, uint64_t last_off, enum tks_msg_end how)
{
	static const char *const names[] = { "?", "complete", "closed", "cut" };
	struct lib_h1 *l = ctx;

	LIB_H1_CHECK(l->open[side]);
	/* The last byte seen lies before what was reported missing. */
	if (how == TKS_MSG_CUT)
		LIB_H1_CHECK(last_off < l->off[side] || !l->off[side]);
	else
		lib_h1_moves(l, side, last_off + 1, last_off + 1);
	l->open[side] = l->headed[side] = false;
	lib_h1_line(l);
	lib_h1_print(l, "%c end %llu %s\n", lib_h1_name(side), (unsigned long long)last_off,
		     names[how]);
	return lib_h1_ret(l);
}

static inline uint64_t lib_h1_time(void *ctx, enum tks_side side, uint64_t off)
{
	const struct lib_h1 *l = ctx;

	return off < LIB_H1_TIMES ? l->time[side][off] : 0;
}

static const struct tks_h1_ops lib_h1_ops = {
	.begin = lib_h1_begin,
	.head = lib_h1_head,
	.body = lib_h1_body,
	.body_gap = lib_h1_body_gap,
	.end = lib_h1_end,
	.time = lib_h1_time,
};

static inline int lib_h1_open(struct lib_h1 *l)
{
	memset(l, 0, sizeof(*l));
	l->h = tks_http1_new(&l->mem, &lib_h1_ops, l);
	lib_h1_print(l, "%s", "");
	return l->h ? 0 : -ENOMEM;
}

/* Frees all but the text. */
static inline void lib_h1_close(struct lib_h1 *l)
{
	lib_h1_line(l);
	tks_http1_free(l->h);
	l->h = NULL;
	if (l->mem.used)
		abort();
}

/* Feeds len bytes out of a block of just that size, so that reading beyond is seen. */
static inline int lib_h1_feed(struct lib_h1 *l, enum tks_side side, const void *data, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);
	struct tks_slice s = { .data = copy, .len = len, .off = l->off[side] };
	int err;

	if (!copy)
		abort();
	memcpy(copy, data, len);
	for (uint64_t off = s.off; off < s.off + len && off < LIB_H1_TIMES; off++)
		l->time[side][off] = l->now;
	l->off[side] += len;
	l->fed = copy;
	l->fed_off = s.off;
	err = tks_http1_feed(l->h, side, &s);
	free(copy);
	return err;
}

static inline int lib_h1_miss(struct lib_h1 *l, enum tks_side side, uint64_t len)
{
	uint64_t off = l->off[side];

	l->off[side] += len;
	return tks_http1_gap(l->h, side, off, len);
}

static inline int lib_h1_eof(struct lib_h1 *l, enum tks_side side)
{
	return tks_http1_eof(l->h, side, l->off[side]);
}

#endif
