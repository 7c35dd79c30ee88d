// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The JSON writer. */
#include "jsonw.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void tks_jsonw_init(struct tks_jsonw *w, FILE *out)
{
	w->out = out;
	w->comma = false;
	w->err = 0;
}

static void raw(struct tks_jsonw *w, const char *s, size_t n)
{
	if (w->err || !n)
		return;
	errno = 0;
	if (fwrite(s, 1, n, w->out) != n)
		w->err = errno ? -errno : -EIO;
}

static void before(struct tks_jsonw *w)
{
	if (w->comma)
		raw(w, ",", 1);
	w->comma = true;
}

void tks_jsonw_name(struct tks_jsonw *w, const char *name)
{
	before(w);
	raw(w, "\"", 1);
	raw(w, name, strlen(name));
	raw(w, "\":", 2);
	w->comma = false;
}

void tks_jsonw_begin(struct tks_jsonw *w, char bracket)
{
	before(w);
	raw(w, &bracket, 1);
	w->comma = false;
}

void tks_jsonw_end(struct tks_jsonw *w, char bracket)
{
	raw(w, &bracket, 1);
	w->comma = true;
}

static void word(struct tks_jsonw *w, const char *s)
{
	before(w);
	raw(w, s, strlen(s));
}

void tks_jsonw_null(struct tks_jsonw *w)
{
	word(w, "null");
}

void tks_jsonw_bool(struct tks_jsonw *w, bool v)
{
	word(w, v ? "true" : "false");
}

void tks_jsonw_int(struct tks_jsonw *w, int64_t v)
{
	char buf[24];

	snprintf(buf, sizeof(buf), "%" PRId64, v);
	word(w, buf);
}

void tks_jsonw_uint(struct tks_jsonw *w, uint64_t v)
{
	char buf[24];

	snprintf(buf, sizeof(buf), "%" PRIu64, v);
	word(w, buf);
}

void tks_jsonw_double(struct tks_jsonw *w, double v)
{
	char buf[40];

	if (!isfinite(v)) {
		tks_jsonw_null(w);
		return;
	}
	/* As many digits as bring back the same number. */
	for (int digits = 6; digits <= 17; digits++) {
		snprintf(buf, sizeof(buf), "%.*g", digits, v);
		if (strtod(buf, NULL) == v)
			break;
	}
	word(w, buf);
}

/* Length of the well-formed UTF-8 sequence at s, or 0 (Unicode, table 3-7). */
static size_t utf8_len(const unsigned char *s, size_t n)
{
	size_t len = s[0] < 0x80   ? 1
		     : s[0] < 0xc2 ? 0
		     : s[0] < 0xe0 ? 2
		     : s[0] < 0xf0 ? 3
		     : s[0] < 0xf5 ? 4
				   : 0;

	if (!len || len > n)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	}
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

static bool plain(unsigned char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

/* What can't stand in a string as it is, len bytes of it (0: not UTF-8). U+FFFD is written in one
 * way, whether it was there or repairs something, so that a text that was read back is written as
 * before. */
static void special(struct tks_jsonw *w, const char *s, size_t len)
{
	char buf[8];

	if (!len || (len == 3 && !memcmp(s, "\xef\xbf\xbd", 3)))
		snprintf(buf, sizeof(buf), "\\ufffd");
	else if (len > 1)
		snprintf(buf, sizeof(buf), "%.*s", (int)len, s);
	else if (s[0] == '"' || s[0] == '\\')
		snprintf(buf, sizeof(buf), "\\%c", s[0]);
	else
		snprintf(buf, sizeof(buf), "\\u%04x", (unsigned char)s[0]);
	raw(w, buf, strlen(buf));
}

void tks_jsonw_text(struct tks_jsonw *w, const char *text, size_t room)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t n = strlen(text), i = 0;

	before(w);
	raw(w, "\"", 1);
	while (i < n && room) {
		size_t run = i, len, decoded;

		while (run < n && run - i < room && plain(s[run]))
			run++;
		raw(w, text + i, run - i);
		room -= run - i;
		i = run;
		len = i < n ? utf8_len(s + i, n - i) : 0;
		decoded = len ? len : 3;
		if (i == n || decoded > room)
			break;
		special(w, text + i, len);
		room -= decoded;
		i += len ? len : 1;
	}
	raw(w, "\"", 1);
}

void tks_jsonw_string(struct tks_jsonw *w, const char *text)
{
	tks_jsonw_text(w, text, SIZE_MAX);
}

void tks_jsonw_newline(struct tks_jsonw *w)
{
	raw(w, "\n", 1);
	w->comma = false;
}
