// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Reads octet by octet up to the payload; only what is kept of a message is its headers' values
 * that somebody asks for.
 */
#include "aws_events.h"

#include <errno.h>
#include <string.h>

#include <zlib.h>

enum {
	PRELUDE = 12,
	CRC = 4,
	HEADERS_MAX = 128 << 10,
	PAYLOAD_MAX = 24 << 20,
};

enum place {
	IN_PRELUDE = 0,
	IN_NAME_LEN,
	IN_NAME,
	IN_TYPE,
	IN_VALUE_LEN,
	IN_VALUE,
	IN_PAYLOAD,
	IN_CRC,
	IN_VOID, /* the rest of a message that is not to be told of */
	SEEKING,
};

enum value_type { BYTES = 6, STRING = 7, TYPES = 10 };

/* Octets of a value by its type; those of the two kinds with a length are 0. */
static const uint8_t sizes[TYPES] = { 0, 0, 1, 2, 4, 8, 0, 0, 8, 16 };

void tks_aws_events_init(struct tks_aws_events *a, const struct tks_aws_ops *ops, void *ctx)
{
	*a = (struct tks_aws_events){ .ops = ops, .ctx = ctx };
}

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void next_message(struct tks_aws_events *a)
{
	a->place = IN_PRELUDE;
	a->nbuf = 0;
	a->begun = false;
}

static bool prelude_ok(const uint8_t *p)
{
	uint32_t total = be32(p), headers = be32(p + 4);

	return headers <= HEADERS_MAX && total >= PRELUDE + CRC + headers &&
	       total - headers <= PRELUDE + CRC + PAYLOAD_MAX && crc32(0, p, 8) == be32(p + 8);
}

/* --- headers --- */

enum field { F_NONE = 0, F_MESSAGE_TYPE, F_TYPE };

static char *field_room(struct tks_aws_events *a, size_t *size)
{
	switch (a->field) {
	case F_MESSAGE_TYPE:
		*size = sizeof(a->cur.message_type);
		return a->cur.message_type;
	case F_TYPE:
		*size = sizeof(a->cur.type);
		return a->cur.type;
	default:
		return NULL;
	}
}

static void name_field(struct tks_aws_events *a)
{
	static const struct {
		const char *name;
		enum field field;
	} names[] = {
		{ ":message-type", F_MESSAGE_TYPE },
		{ ":event-type", F_TYPE },
		{ ":exception-type", F_TYPE },
		{ ":error-code", F_TYPE },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (a->name_len == strlen(names[i].name) &&
		    !memcmp(a->name, names[i].name, a->name_len))
			a->field = names[i].field;
	}
}

/* One that comes twice is what it was last. */
static void begin_string(struct tks_aws_events *a)
{
	size_t size;
	char *out = field_room(a, &size);

	if (out)
		memset(out, 0, size);
}

static void value_octet(struct tks_aws_events *a, uint8_t o)
{
	size_t size = 0;
	char *out = a->value_type == STRING ? field_room(a, &size) : NULL;
	size_t n = out ? strlen(out) : 0;

	if (out && n + 1 < size && o)
		out[n] = (char)o;
}

static void begin_payload(struct tks_aws_events *a)
{
	a->left = a->total - a->headers_len - PRELUDE - CRC;
	a->cur.payload_bytes = a->left;
	a->begun = true;
	a->nbuf = 0;
	a->place = a->left ? IN_PAYLOAD : IN_CRC;
	a->ops->begin(a->ctx, &a->cur);
}

static void after_header(struct tks_aws_events *a)
{
	if (a->left)
		a->place = IN_NAME_LEN;
	else
		begin_payload(a);
}

static void after_type(struct tks_aws_events *a)
{
	a->nbuf = 0;
	if (a->value_type == STRING)
		begin_string(a);
	if (a->value_type == STRING || a->value_type == BYTES) {
		a->place = IN_VALUE_LEN;
		return;
	}
	a->value_left = sizes[a->value_type];
	a->place = IN_VALUE;
	if (!a->value_left)
		after_header(a);
}

/* False: the headers can't be. */
static bool header_octet(struct tks_aws_events *a, uint8_t o)
{
	a->left--;
	switch (a->place) {
	case IN_NAME_LEN:
		a->name_len = o;
		a->nbuf = 0;
		a->field = F_NONE;
		a->place = o ? IN_NAME : IN_TYPE;
		return a->left;
	case IN_NAME:
		if (a->nbuf < sizeof(a->name))
			a->name[a->nbuf] = (char)o;
		if (++a->nbuf == a->name_len) {
			name_field(a);
			a->place = IN_TYPE;
		}
		return a->left;
	case IN_TYPE:
		a->value_type = o;
		if (o >= TYPES)
			return false;
		after_type(a);
		if (a->place == IN_VALUE_LEN)
			return a->left >= 2;
		break;
	case IN_VALUE_LEN:
		a->buf[a->nbuf++] = o;
		if (a->nbuf < 2)
			return a->left;
		a->value_left = (uint32_t)a->buf[0] << 8 | a->buf[1];
		a->place = IN_VALUE;
		if (!a->value_left)
			after_header(a);
		break;
	default:
		value_octet(a, o);
		if (!--a->value_left)
			after_header(a);
	}
	return a->place != IN_VALUE || a->value_left <= a->left;
}

/* --- messages --- */

static bool prelude_octet(struct tks_aws_events *a, const struct tks_slice *s)
{
	if (!a->nbuf) {
		memset(&a->cur, 0, sizeof(a->cur));
		a->cur.first_off = s->off;
	}
	a->buf[a->nbuf++] = *s->data;
	if (a->nbuf < PRELUDE)
		return true;
	if (!prelude_ok(a->buf))
		return false;
	a->total = be32(a->buf);
	a->headers_len = a->left = be32(a->buf + 4);
	a->crc = (uint32_t)crc32(0, a->buf, PRELUDE);
	after_header(a);
	return true;
}

static void crc_octet(struct tks_aws_events *a, const struct tks_slice *s)
{
	a->buf[a->nbuf++] = *s->data;
	if (a->nbuf < CRC)
		return;
	a->cur.last_off = s->off;
	a->cur.bad_crc = be32(a->buf) != a->crc;
	next_message(a);
	a->ops->event(a->ctx, &a->cur);
}

static void payload(struct tks_aws_events *a, const struct tks_slice *s)
{
	a->crc = (uint32_t)crc32(a->crc, s->data, (uInt)s->len);
	a->left -= (uint32_t)s->len;
	if (!a->left)
		a->place = IN_CRC;
	a->ops->payload(a->ctx, s);
}

static void skip(struct tks_aws_events *a, uint32_t n)
{
	a->left -= n;
	if (!a->left)
		next_message(a);
}

static void give_up(struct tks_aws_events *a)
{
	if (a->begun)
		a->ops->reset(a->ctx);
	a->begun = false;
	a->place = SEEKING;
}

/* Octets at the slice's start that were used; 0: it makes no sense. */
static size_t some(struct tks_aws_events *a, const struct tks_slice *s)
{
	struct tks_slice part = { s->data, s->len < a->left ? s->len : a->left, s->off };

	switch (a->place) {
	case IN_PRELUDE:
		return prelude_octet(a, s);
	case IN_PAYLOAD:
		payload(a, &part);
		return part.len;
	case IN_CRC:
		crc_octet(a, s);
		return 1;
	case IN_VOID:
		skip(a, (uint32_t)part.len);
		return part.len;
	default:
		a->crc = (uint32_t)crc32(a->crc, s->data, 1);
		return header_octet(a, *s->data);
	}
}

int tks_aws_events_feed(struct tks_aws_events *a, const struct tks_slice *in)
{
	struct tks_slice s = *in;

	if (a->place == SEEKING) {
		if (s.len < PRELUDE || !prelude_ok(s.data))
			return 0;
		next_message(a);
	}
	while (s.len) {
		size_t n = some(a, &s);

		if (!n) {
			give_up(a);
			return -EBADMSG;
		}
		s.data += n;
		s.off += n;
		s.len -= n;
	}
	return 0;
}

/* Octets that the message under way still has; 0: none is under way, or how many is not known. */
static uint64_t owed(const struct tks_aws_events *a)
{
	switch (a->place) {
	case IN_PRELUDE:
	case SEEKING:
		return 0;
	case IN_PAYLOAD:
		return a->left + (uint64_t)CRC;
	case IN_CRC:
		return CRC - (uint64_t)a->nbuf;
	case IN_VOID:
		return a->left;
	default:
		return (uint64_t)a->left + a->total - a->headers_len - PRELUDE;
	}
}

void tks_aws_events_gap(struct tks_aws_events *a, uint64_t len)
{
	uint64_t left = owed(a);

	if (a->begun)
		a->ops->reset(a->ctx);
	a->begun = false;
	if (!len || len > left) {
		a->place = SEEKING;
		return;
	}
	a->place = IN_VOID;
	a->left = (uint32_t)left;
	skip(a, (uint32_t)len);
}
