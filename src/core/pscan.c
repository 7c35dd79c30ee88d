// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Messages nest by length: the ends of those that are open are kept, in octets from the start, and
 * what ends where another does ends with it.
 */
#include "pscan.h"

#include <string.h>

enum place {
	IN_KEY = 0,
	IN_VARINT,
	IN_FIXED,
	IN_LENGTH,
	IN_BYTES, /* wanted */
	IN_SKIP,
	IN_PACKED,
};

enum wire { W_VARINT = 0, W_64BIT = 1, W_LEN = 2, W_32BIT = 5 };

enum { VARINT_SHIFT_MAX = 63 };

void tks_pscan_begin(struct tks_pscan *p, const struct tks_pfield *fields, size_t n,
		     tks_pvalue_fn fn, void *ctx)
{
	*p = (struct tks_pscan){ .fields = fields, .nfields = n, .fn = fn, .ctx = ctx };
}

/* --- the table --- */

static size_t path_len(const struct tks_pfield *f)
{
	return strnlen((const char *)f->path, TKS_PS_DEPTH_MAX);
}

/* The field at the path of the key just read; *enters: it, or a longer path, goes into it. */
static const struct tks_pfield *look_up(const struct tks_pscan *p, bool *enters)
{
	const struct tks_pfield *found = NULL;
	size_t len = p->depth + 1u;

	*enters = false;
	for (size_t i = 0; i < p->nfields; i++) {
		const struct tks_pfield *f = &p->fields[i];
		size_t n = path_len(f);

		if (n < len || memcmp(f->path, p->path, len) != 0)
			continue;
		*enters |= n > len;
		if (n == len)
			found = f;
	}
	return found;
}

/* The field whose message is open at that depth. */
static const struct tks_pfield *open_field(const struct tks_pscan *p, size_t depth)
{
	for (size_t i = 0; i < p->nfields; i++) {
		if (path_len(&p->fields[i]) == depth && !memcmp(p->fields[i].path, p->path, depth))
			return &p->fields[i];
	}
	return NULL;
}

static void tell(struct tks_pscan *p, const struct tks_pfield *f, enum tks_ptype type, uint64_t num)
{
	struct tks_pvalue v = { .id = f ? f->id : 0, .type = type, .num = num };

	if (!f)
		return;
	if (type == TKS_PS_BYTES) {
		v.str = p->str;
		v.len = p->nstr;
	}
	p->fn(p->ctx, &v);
}

/* --- octets --- */

/* Between fields: messages that end here are over. */
static void between(struct tks_pscan *p)
{
	p->place = IN_KEY;
	p->varint = 0;
	p->shift = 0;
	while (p->depth && p->pos == p->end[p->depth]) {
		tell(p, open_field(p, p->depth), TKS_PS_END, 0);
		p->depth--;
	}
}

/* True when the varint is whole. */
static bool varint(struct tks_pscan *p, uint8_t octet)
{
	if (p->shift > VARINT_SHIFT_MAX || (p->shift == VARINT_SHIFT_MAX && octet > 1)) {
		p->bad = true;
		return false;
	}
	p->varint |= (uint64_t)(octet & 0x7f) << p->shift;
	p->shift = (uint8_t)(p->shift + 7);
	return !(octet & 0x80);
}

static void on_key(struct tks_pscan *p)
{
	static const uint8_t fixed[] = { [W_64BIT] = 8, [W_32BIT] = 4 };
	uint64_t number = p->varint >> 3;
	unsigned int wire = p->varint & 7;
	bool enters;

	p->varint = 0;
	p->shift = 0;
	p->bad = !number || number >> 29;
	p->path[p->depth] = number <= 255 ? (uint8_t)number : 0;
	p->field = number <= 255 ? look_up(p, &enters) : NULL;
	switch (wire) {
	case W_VARINT:
		p->place = IN_VARINT;
		break;
	case W_LEN:
		p->place = IN_LENGTH;
		break;
	case W_64BIT:
	case W_32BIT:
		p->place = IN_FIXED;
		p->value_end = p->pos + fixed[wire];
		break;
	default:
		p->bad = true;
	}
}

static void enter(struct tks_pscan *p)
{
	p->depth++;
	p->end[p->depth] = p->value_end;
	tell(p, open_field(p, p->depth), TKS_PS_BEGIN, 0);
	between(p);
}

/* An empty one has no octet behind its length to end it. */
static void end_bytes(struct tks_pscan *p)
{
	if (p->place == IN_BYTES)
		tell(p, p->field, TKS_PS_BYTES, p->count);
	if (p->place == IN_PACKED) {
		p->bad |= p->shift;
		if (!p->bad)
			tell(p, p->field, TKS_PS_PACKED, p->count);
	}
	if (!p->bad)
		between(p);
}

static void on_length(struct tks_pscan *p)
{
	uint64_t len = p->varint;
	bool enters = false;

	if (len > INT32_MAX || (p->depth && len > p->end[p->depth] - p->pos)) {
		p->bad = true;
		return;
	}
	p->value_end = p->pos + len;
	p->varint = 0;
	p->shift = 0;
	p->count = 0;
	p->nstr = 0;
	if (p->path[p->depth])
		p->field = look_up(p, &enters);
	if (enters && p->depth + 1 < TKS_PS_DEPTH_MAX) {
		enter(p);
		return;
	}
	p->place = IN_SKIP;
	if (p->field)
		p->place = p->field->flags & TKS_PF_PACKED ? IN_PACKED : IN_BYTES;
	if (!len)
		end_bytes(p);
}

/* A single element of a repeated field need not be packed. */
static void on_int(struct tks_pscan *p)
{
	bool packed = p->field && p->field->flags & TKS_PF_PACKED;

	tell(p, p->field, packed ? TKS_PS_PACKED : TKS_PS_INT, packed ? 1 : p->varint);
	between(p);
}

static void octet(struct tks_pscan *p, uint8_t o)
{
	p->pos++;
	if (p->depth && p->pos > p->end[p->depth]) {
		p->bad = true;
		return;
	}
	switch (p->place) {
	case IN_KEY:
		if (varint(p, o))
			on_key(p);
		break;
	case IN_VARINT:
		if (varint(p, o))
			on_int(p);
		break;
	case IN_LENGTH:
		if (varint(p, o))
			on_length(p);
		break;
	default: /* IN_FIXED, little endian */
		p->varint |= (uint64_t)o << p->shift;
		p->shift = (uint8_t)(p->shift + 8);
		if (p->pos == p->value_end)
			on_int(p);
	}
}

static void keep(struct tks_pscan *p, const uint8_t *data, size_t n)
{
	size_t room = sizeof(p->str) - p->nstr;

	if (n < room)
		room = n;
	memcpy(p->str + p->nstr, data, room);
	p->nstr += room;
}

static void count(struct tks_pscan *p, const uint8_t *data, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		/* The shift tells at the end whether one was unfinished. */
		p->shift = data[i] & 0x80 ? (uint8_t)(p->shift + 1) : 0;
		p->bad |= p->shift > 9;
		p->count += !p->shift;
	}
}

/* Octets of a value known by its length; how many. */
static size_t run(struct tks_pscan *p, const uint8_t *data, size_t n)
{
	uint64_t left = p->value_end - p->pos;

	if (n > left)
		n = (size_t)left;
	if (p->place == IN_PACKED) {
		count(p, data, n);
	} else if (p->place == IN_BYTES) {
		keep(p, data, n);
		p->count += n;
	}
	p->pos += n;
	if (n == left)
		end_bytes(p);
	return n;
}

void tks_pscan_feed(struct tks_pscan *p, const void *data, size_t n)
{
	const uint8_t *at = data;

	while (n && !p->bad) {
		size_t used = 1;

		if (p->place >= IN_BYTES)
			used = run(p, at, n);
		else
			octet(p, *at);
		at += used;
		n -= used;
	}
}

bool tks_pscan_end(struct tks_pscan *p)
{
	return !p->bad && !p->depth && p->place == IN_KEY && !p->shift;
}
