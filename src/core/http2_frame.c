// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Frame headers of HTTP/2, and what begins like them.
 */
#include "http2_frame.h"

#include <errno.h>
#include <string.h>

#include "http2.h"

const char tks_h2_preface[TKS_H2_PREFACE + 1] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum {
	RESERVED = 0x80,
	LEN_USUAL = 16384, /* without SETTINGS_MAX_FRAME_SIZE nobody may send more */
	ERROR_CODES = 0xe, /* those in use (section 7) */
	COUNT_MAX = 1 << 20,
};

/* What the specification lets be, by type. */
static const struct rule {
	uint32_t min, max; /* of the payload's length */
	uint32_t unit; /* which it is a multiple of */
	uint8_t flags; /* those that are defined */
	bool zero, nonzero; /* stream numbers allowed */
} rules[] = {
	[TKS_H2_DATA] = { 0, UINT32_MAX, 1, TKS_H2_END_STREAM | TKS_H2_PADDED, false, true },
	[TKS_H2_HEADERS] = { 0, UINT32_MAX, 1,
			     TKS_H2_END_STREAM | TKS_H2_END_HEADERS | TKS_H2_PADDED |
				     TKS_H2_HAS_PRIORITY,
			     false, true },
	[TKS_H2_PRIORITY] = { 5, 5, 1, 0, false, true },
	[TKS_H2_RST_STREAM] = { 4, 4, 1, 0, false, true },
	[TKS_H2_SETTINGS] = { 0, UINT32_MAX, 6, TKS_H2_ACK, true, false },
	[TKS_H2_PUSH_PROMISE] = { 4, UINT32_MAX, 1, TKS_H2_END_HEADERS | TKS_H2_PADDED, false,
				  true },
	[TKS_H2_PING] = { 8, 8, 1, TKS_H2_ACK, true, false },
	[TKS_H2_GOAWAY] = { 8, UINT32_MAX, 1, 0, true, false },
	[TKS_H2_WINDOW_UPDATE] = { 4, 4, 1, 0, true, true },
	[TKS_H2_CONTINUATION] = { 0, UINT32_MAX, 1, TKS_H2_END_HEADERS, false, true },
};

enum { TYPES = sizeof(rules) / sizeof(rules[0]) };

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

void tks_h2_frame_read(struct tks_h2_frame *f, const uint8_t *data)
{
	f->len = be32(data) >> 8;
	f->type = data[3];
	f->flags = data[4];
	f->stream = be32(data + 5) & INT32_MAX;
}

bool tks_h2_frame_padded(const struct tks_h2_frame *f)
{
	return f->flags & TKS_H2_PADDED && (f->type == TKS_H2_DATA || f->type == TKS_H2_HEADERS ||
					    f->type == TKS_H2_PUSH_PROMISE);
}

uint32_t tks_h2_frame_fixed(const struct tks_h2_frame *f)
{
	uint32_t n = tks_h2_frame_padded(f);

	if (f->type == TKS_H2_HEADERS && f->flags & TKS_H2_HAS_PRIORITY)
		n += 5;
	if (f->type == TKS_H2_PUSH_PROMISE || f->type == TKS_H2_RST_STREAM)
		n += 4;
	return n;
}

bool tks_h2_frame_valid(const struct tks_h2_frame *f)
{
	const struct rule *r;

	if (f->type >= TYPES)
		return true;
	r = &rules[f->type];
	if (f->len < r->min || f->len > r->max || f->len % r->unit)
		return false;
	return f->len >= tks_h2_frame_fixed(f) && (f->stream ? r->nonzero : r->zero);
}

/* --- what begins like frames --- */

/* Behind a header: what is always so in practice. */
static bool usual(const struct tks_h2_frame *f)
{
	bool message = f->type == TKS_H2_DATA || f->type == TKS_H2_HEADERS ||
		       f->type == TKS_H2_PUSH_PROMISE || f->type == TKS_H2_CONTINUATION;

	if (f->type >= TYPES || f->flags & ~rules[f->type].flags || !tks_h2_frame_valid(f))
		return false;
	/* Only clients open streams, now that nobody pushes. */
	if (message && !(f->stream & 1))
		return false;
	if (f->type == TKS_H2_SETTINGS && f->flags & TKS_H2_ACK)
		return !f->len;
	if (message && f->len == tks_h2_frame_fixed(f))
		return f->type == TKS_H2_DATA && f->flags & TKS_H2_END_STREAM;
	return true;
}

/* Looks into the payload, of which n octets are there. */
static bool payload_usual(const struct tks_h2_frame *f, const uint8_t *p, size_t n)
{
	if (n && tks_h2_frame_padded(f))
		return *p <= f->len - tks_h2_frame_fixed(f);
	if (n < 4)
		return true;
	if (f->type == TKS_H2_WINDOW_UPDATE)
		return be32(p) && be32(p) <= INT32_MAX;
	if (f->type == TKS_H2_RST_STREAM)
		return be32(p) < ERROR_CODES;
	if (f->type == TKS_H2_GOAWAY)
		return be32(p) <= INT32_MAX && (n < 8 || be32(p + 4) < ERROR_CODES);
	return true;
}

/*
 * A head begins with a pseudo header field, and that is named by an index into the static table (1
 * to 7: a request's, 8 to 14: a response's), whatever the literal's kind.
 */
static int side_of(const struct tks_h2_frame *f, const uint8_t *p, size_t n)
{
	uint32_t skip = tks_h2_frame_fixed(f);
	uint8_t octet, index;

	if (f->type == TKS_H2_PUSH_PROMISE)
		return TKS_RESPONSE;
	if (f->type != TKS_H2_HEADERS || n <= skip)
		return -1;
	octet = p[skip];
	if (octet & 0x80)
		index = octet & 0x7f;
	else if (octet & 0x40)
		index = octet & 0x3f;
	else if (octet & 0x20)
		return -1;
	else
		index = octet & 0x0f;
	if (!index || index > 14)
		return -1;
	return index <= 7 ? TKS_REQUEST : TKS_RESPONSE;
}

/* False if the octets, fewer than a header has, can't be the start of one. */
static bool can_begin(const uint8_t *p, size_t n)
{
	if (n && *p)
		return false;
	if (n > 3 && (p[3] >= TYPES || (n > 4 && p[4] & ~rules[p[3]].flags)))
		return false;
	return n < 6 || !(p[5] & RESERVED);
}

/* CONTINUATION comes exactly where a block is unfinished; at the start that is not known. */
static bool in_order(const struct tks_h2_frame *f, const struct tks_h2_frame *prev, bool first)
{
	bool unfinished = !(prev->flags & TKS_H2_END_HEADERS) &&
			  (prev->type == TKS_H2_HEADERS || prev->type == TKS_H2_PUSH_PROMISE ||
			   prev->type == TKS_H2_CONTINUATION);

	if (first)
		return true;
	if (!unfinished)
		return f->type != TKS_H2_CONTINUATION;
	return f->type == TKS_H2_CONTINUATION && f->stream == prev->stream;
}

int tks_h2_frames_count(const uint8_t *data, size_t len, int *whole, int *side)
{
	struct tks_h2_frame f = { 0 }, prev = { 0 };
	int n = 0;

	*whole = 0;
	*side = -1;
	while (len >= TKS_H2_FRAME_HEAD && n < COUNT_MAX) {
		size_t there = len - TKS_H2_FRAME_HEAD;

		tks_h2_frame_read(&f, data);
		data += TKS_H2_FRAME_HEAD;
		if (there > f.len)
			there = f.len;
		if (data[-4] & RESERVED || !usual(&f) || !in_order(&f, &prev, !n) ||
		    !payload_usual(&f, data, there))
			return -1;
		/* One that is larger than usual is believed for the one behind it. */
		if (f.len > LEN_USUAL && len - TKS_H2_FRAME_HEAD < f.len + TKS_H2_FRAME_HEAD)
			return -1;
		if (*side < 0)
			*side = side_of(&f, data, there);
		n++;
		*whole += there == f.len;
		data += there;
		len -= TKS_H2_FRAME_HEAD + there;
		prev = f;
	}
	return can_begin(data, len) ? n : -1;
}

static int sniff_preface(const uint8_t *data, size_t len)
{
	size_t n = len < TKS_H2_PREFACE ? len : TKS_H2_PREFACE;

	if (memcmp(data, tks_h2_preface, n) != 0)
		return 0;
	return n == TKS_H2_PREFACE ? 1 : -EAGAIN;
}

/* The first of a server: SETTINGS, not yet acknowledging any. */
static int sniff_settings(const uint8_t *data, size_t len)
{
	static const uint8_t fixed[TKS_H2_FRAME_HEAD] = { 0, 0, 0, TKS_H2_SETTINGS };
	struct tks_h2_frame f;

	for (size_t i = 0; i < len && i < TKS_H2_FRAME_HEAD; i++) {
		if (data[i] != fixed[i] && i != 1 && i != 2)
			return 0;
	}
	if (len < TKS_H2_FRAME_HEAD)
		return -EAGAIN;
	tks_h2_frame_read(&f, data);
	return f.len <= LEN_USUAL && tks_h2_frame_valid(&f);
}

int tks_http2_sniff(enum tks_side side, const uint8_t *data, size_t len)
{
	return side == TKS_REQUEST ? sniff_preface(data, len) : sniff_settings(data, len);
}

int tks_http2_sniff_middle(const uint8_t *data, size_t len, int *side)
{
	int whole;

	return tks_h2_frames_count(data, len, &whole, side) > 0 && whole > 0;
}
