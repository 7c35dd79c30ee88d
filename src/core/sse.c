// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The event stream parser (WHATWG HTML, section 9.2.6). A line at a time, in pieces: a field's name
 * is kept (it has at most five letters that matter), its value is handed on as it comes.
 *
 * A line ends at its CR; a LF right behind belongs to the same end and is swallowed. So a frame
 * whose blank line is CRLF ends at the CR, which is when a reader that follows the standard
 * dispatches it.
 */
#include "sse.h"

#include <string.h>

enum { NAME = 0, VALUE_START, VALUE };
enum { OTHER = 0, DATA, EVENT, COMMENT };

static const uint8_t bom[3] = { 0xef, 0xbb, 0xbf };

void tks_sse_init(struct tks_sse *s, const struct tks_sse_ops *ops, void *ctx)
{
	memset(s, 0, sizeof(*s));
	s->ops = ops;
	s->ctx = ctx;
}

static void next_frame(struct tks_sse *s)
{
	memset(&s->cur, 0, sizeof(s->cur));
	s->begun = false;
}

static void next_line(struct tks_sse *s)
{
	s->state = NAME;
	s->name_len = 0;
	s->field = OTHER;
}

static uint8_t field_named(const struct tks_sse *s)
{
	if (s->name_len == 4 && !memcmp(s->name, "data", 4))
		return DATA;
	if (s->name_len == 5 && !memcmp(s->name, "event", 5))
		return EVENT;
	return s->name_len ? OTHER : COMMENT;
}

/* The name is known: what the line will mean. */
static void begin_field(struct tks_sse *s, uint64_t off)
{
	static const uint8_t lf = '\n';
	const struct tks_slice joint = { &lf, 1, off };

	s->field = field_named(s);
	/* A field right behind a gap: the frame begins here, as far as can be told. */
	if (s->maybe && (s->field == DATA || s->field == EVENT))
		s->resync = false;
	s->maybe = false;
	if (s->field == COMMENT)
		s->cur.has_comment = true;
	if (s->field == EVENT)
		s->cur.event[0] = 0;
	if (s->field != DATA)
		return;
	if (s->cur.has_data && !s->resync) {
		s->cur.data_bytes++;
		s->ops->data(s->ctx, &joint);
	}
	s->cur.has_data = true;
}

static void blank_line(struct tks_sse *s, uint64_t off)
{
	s->cur.last_off = off;
	if (s->resync)
		s->resync = false;
	else if (s->cur.has_data || s->cur.event[0] || s->cur.has_comment)
		s->ops->frame(s->ctx, &s->cur);
	next_frame(s);
}

static void end_line(struct tks_sse *s, uint64_t off)
{
	/* Right behind a gap an empty line can be the rest of a full one. */
	if (s->state == NAME && !s->name_len && !s->maybe) {
		blank_line(s, off);
	} else if (s->state == NAME && !s->maybe) {
		/* A name without a colon is a field with an empty value. */
		begin_field(s, off);
	}
	s->maybe = false;
	next_line(s);
}

static void event_bytes(struct tks_sse *s, const uint8_t *p, size_t n)
{
	size_t len = strlen(s->cur.event), room = sizeof(s->cur.event) - 1 - len;

	if (n > room) {
		n = room;
		s->cur.truncated = true;
	}
	for (size_t i = 0; i < n; i++)
		s->cur.event[len + i] = p[i] ? (char)p[i] : '?';
	s->cur.event[len + n] = 0;
}

static void value_bytes(struct tks_sse *s, const struct tks_slice *v)
{
	if (s->resync)
		return;
	if (s->field == EVENT)
		event_bytes(s, v->data, v->len);
	if (s->field != DATA)
		return;
	s->cur.data_bytes += v->len;
	s->ops->data(s->ctx, v);
}

/* Bytes before the next CR or LF. */
static size_t line_run(const uint8_t *p, size_t n)
{
	const uint8_t *lf = memchr(p, '\n', n);
	const uint8_t *cr;

	if (lf)
		n = (size_t)(lf - p);
	cr = memchr(p, '\r', n);
	return cr ? (size_t)(cr - p) : n;
}

static void name_byte(struct tks_sse *s, uint8_t c, uint64_t off)
{
	if (c == ':') {
		begin_field(s, off);
		s->state = VALUE_START;
		return;
	}
	if (s->name_len < sizeof(s->name))
		s->name[s->name_len++] = (char)c;
}

/* A byte order mark is not part of the stream; what only begins like one is. Returns true when c
 * was eaten. */
static bool eat_bom(struct tks_sse *s, uint8_t c, uint64_t off)
{
	uint8_t had = s->bom;

	if (c == bom[had]) {
		s->bom++;
		return true;
	}
	s->bom = 3;
	for (uint8_t i = 0; i < had; i++)
		name_byte(s, bom[i], off);
	return false;
}

/* Consumes at the current state; the number of bytes, at least 1. */
static size_t step(struct tks_sse *s, const uint8_t *p, size_t n, uint64_t off)
{
	struct tks_slice v = { p, 0, off };

	if (s->cr) {
		s->cr = false;
		if (*p == '\n')
			return 1;
	}
	if (s->bom < 3 && eat_bom(s, *p, off))
		return 1;
	if (!s->begun) {
		s->begun = true;
		s->cur.first_off = off;
	}
	if (*p == '\n' || *p == '\r') {
		s->cr = *p == '\r';
		end_line(s, off);
		return 1;
	}
	if (s->state == NAME) {
		name_byte(s, *p, off);
		return 1;
	}
	if (s->state == VALUE_START) {
		s->state = VALUE;
		if (*p == ' ')
			return 1;
	}
	v.len = line_run(p, n);
	value_bytes(s, &v);
	return v.len;
}

void tks_sse_feed(struct tks_sse *s, const struct tks_slice *in)
{
	size_t i = 0;

	while (i < in->len)
		i += step(s, in->data + i, in->len - i, in->off + i);
}

void tks_sse_gap(struct tks_sse *s)
{
	if (s->cur.has_data)
		s->ops->reset(s->ctx);
	next_frame(s);
	next_line(s);
	s->maybe = true;
	s->cr = false;
	s->bom = 3;
	s->resync = true;
}

void tks_sse_end(struct tks_sse *s)
{
	if (s->cur.has_data)
		s->ops->reset(s->ctx);
	next_frame(s);
	next_line(s);
}
