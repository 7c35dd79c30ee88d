/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A JSON writer: commas and quotes are its business, nesting the caller's. The first failed write
 * is remembered and everything after it is dropped.
 */
#ifndef TKS_JSONW_H
#define TKS_JSONW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct tks_jsonw {
	FILE *out;
	bool comma; /* something stands before the next value */
	int err; /* 0, or the negative errno of the first failed write */
};

void tks_jsonw_init(struct tks_jsonw *w, FILE *out);

/* The name of the member whose value comes next; plain ASCII without quotes. */
void tks_jsonw_name(struct tks_jsonw *w, const char *name);

void tks_jsonw_begin(struct tks_jsonw *w, char bracket); /* '{' or '[' */
void tks_jsonw_end(struct tks_jsonw *w, char bracket); /* '}' or ']' */
void tks_jsonw_null(struct tks_jsonw *w);
void tks_jsonw_bool(struct tks_jsonw *w, bool v);
void tks_jsonw_int(struct tks_jsonw *w, int64_t v);
void tks_jsonw_uint(struct tks_jsonw *w, uint64_t v);

/* NAN and infinities are null. */
void tks_jsonw_double(struct tks_jsonw *w, double v);

/* Control characters are escaped, bytes that are not UTF-8 become U+FFFD. */
void tks_jsonw_string(struct tks_jsonw *w, const char *s);

/* The same, cut before the character with which the text that a reader gets would be longer than
 * room bytes: a repaired byte is three in there. */
void tks_jsonw_text(struct tks_jsonw *w, const char *s, size_t room);

/* Ends the line; the next value starts afresh. */
void tks_jsonw_newline(struct tks_jsonw *w);

#endif
