/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Dialects: how a family of servers writes down tokens, counts, ends and errors. A dialect is a
 * file with a struct tks_dialect and a row in the table of dialect.c.
 */
#ifndef TKS_DIALECT_H
#define TKS_DIALECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decoder.h"
#include "jscan.h"

/* What the first documents of a body look like, whatever the dialect. */
struct tks_shape {
	char object[48]; /* "" : no such member, or no string */
	bool choices; /* an array */
	bool delta, text, message; /* members of its elements */
	bool error; /* a member that is not null */
	bool detail; /* FastAPI's error member */
};

struct tks_dialect;

/* Room for a dialect's own state of one answer; zeroed at its begin. */
enum { TKS_DIALECT_STATE = 256 };

/* What a dialect's callbacks work with. */
struct tks_dialect_ctx {
	const struct tks_dialect *dialect;
	struct tks_reqstate *rs;
	struct tks_request *rec;
	const struct tks_ask *ask; /* never NULL; empty when the request was not seen */
	const char *server_header; /* "" : none */
	bool streamed;
	_Alignas(8) unsigned char state[TKS_DIALECT_STATE];
};

struct tks_dialect {
	const char *name;
	const struct tks_jfield *fields;
	size_t nfields;
	bool (*matches)(const struct tks_shape *shape);
	/* A document begins; a value of the schema; the document has ended (ok: it was
	 * well-formed). */
	void (*begin)(struct tks_dialect_ctx *d);
	void (*value)(struct tks_dialect_ctx *d, const struct tks_jvalue *v);
	void (*end)(struct tks_dialect_ctx *d, bool ok);
};

extern const struct tks_dialect tks_dialect_openai_chat, tks_dialect_openai_completions;
extern const struct tks_dialect tks_dialect_unknown;

/* The one that matches the shape, or NULL. */
const struct tks_dialect *tks_dialect_for(const struct tks_shape *shape);

/* By name; tks_dialect_unknown for any other. */
const struct tks_dialect *tks_dialect_named(const char *name);

/* Copies a kept string, cut to size and always terminated; false when it was cut. */
bool tks_jvalue_copy(const struct tks_jvalue *v, char *out, size_t size);

#endif
