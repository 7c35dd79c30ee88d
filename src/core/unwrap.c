// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The one member that counts is found by its quoted name, a colon and a quote: base64 has no quote
 * and no backslash, so nothing inside a value can look like it unless somebody escaped quotes into
 * padding, whose escaping backslash stands where the name's quote has to be followed by its name.
 */
#include "unwrap.h"

#include <string.h>

enum { NAME = 0, COLON, QUOTE, TEXT, OVER };

void tks_unwrap_begin(struct tks_unwrap *u, tks_unwrap_fn fn, void *ctx)
{
	*u = (struct tks_unwrap){ .fn = fn, .ctx = ctx };
}

/* RFC 4648, section 4; -1: none of its letters. */
static int sextet(uint8_t ch)
{
	if (ch >= 'A' && ch <= 'Z')
		return ch - 'A';
	if (ch >= 'a' && ch <= 'z')
		return ch - 'a' + 26;
	if (ch >= '0' && ch <= '9')
		return ch - '0' + 52;
	return ch == '+' ? 62 : ch == '/' ? 63 : -1;
}

static size_t text(struct tks_unwrap *u, const uint8_t *p, size_t n)
{
	uint8_t out[512];
	size_t i, k = 0;

	for (i = 0; i < n && k < sizeof(out); i++) {
		int v = sextet(p[i]);

		if (p[i] == '"') {
			u->place = OVER;
			break;
		}
		if (v < 0)
			continue;
		u->bits = u->bits << 6 | (uint32_t)v;
		u->nbits += 6;
		if (u->nbits < 8)
			continue;
		u->nbits -= 8;
		out[k++] = (uint8_t)(u->bits >> u->nbits);
	}
	if (k)
		u->fn(u->ctx, out, k);
	return i;
}

static void outside(struct tks_unwrap *u, uint8_t ch)
{
	static const char name[] = "\"bytes\"";

	if (u->place == NAME) {
		u->match = ch == (uint8_t)name[u->match] ? u->match + 1 : ch == '"';
		if (u->match == sizeof(name) - 1)
			u->place = COLON;
		return;
	}
	if (strchr(" \t\r\n", ch))
		return;
	if (u->place == COLON && ch == ':')
		u->place = QUOTE;
	else if (u->place == QUOTE && ch == '"')
		u->place = TEXT;
	else
		u->place = NAME;
	u->match = 0;
}

void tks_unwrap_feed(struct tks_unwrap *u, const void *data, size_t len)
{
	const uint8_t *p = data, *end = p + len;

	while (p < end && u->place != OVER) {
		if (u->place == TEXT)
			p += text(u, p, (size_t)(end - p));
		else
			outside(u, *p++);
	}
}
