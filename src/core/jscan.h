/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A JSON field scanner: reads a text in any pieces and reports the values at the paths of a schema.
 * It builds no tree, never recurses, keeps a bounded state and copies only short strings that
 * somebody asked for.
 *
 * It is a filter for well-formed documents, not a validator: it must never crash, hang or read a
 * key inside a string on any input, and says so (TKS_JS_BAD) when brackets or tokens can't be JSON.
 */
#ifndef TKS_JSCAN_H
#define TKS_JSCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tks_jtype {
	TKS_JS_NULL = 1,
	TKS_JS_FALSE,
	TKS_JS_TRUE,
	TKS_JS_NUMBER,
	TKS_JS_STRING,
	TKS_JS_OBJECT, /* reported when it ends; count: its members */
	TKS_JS_ARRAY, /* reported when it ends; count: its elements */
	TKS_JS_OBJECT_BEGIN, /* only for fields with TKS_JF_BEGIN */
	TKS_JS_ARRAY_BEGIN,
	TKS_JS_STRING_PART, /* only for fields with TKS_JF_PARTS */
};

enum tks_jfield_flags {
	TKS_JF_KEEP =
		1 << 0, /* the string's text is wanted: str, decoded, up to TKS_JS_STR_MAX bytes */
	TKS_JF_BEGIN = 1 << 1, /* report the begin of an object or array too */
	TKS_JF_PARTS = 1 << 2, /* the whole text of a string is wanted, however long: in pieces of
				* STRING_PART, the last one as STRING; with KEEP */
};

/*
 * path: members joined by '.', "[]" behind a name stands for each element:
 * "choices[].delta.content",
 * "[].text" for a top-level array, "" for the document itself. A path may name a value of any type.
 */
struct tks_jfield {
	const char *path;
	uint16_t id; /* the caller's, >= 1 */
	uint16_t flags;
};

struct tks_jvalue {
	uint16_t id;
	enum tks_jtype type;
	const char *str; /* STRING with KEEP: decoded text, not terminated; else NULL */
	size_t len; /* of str */
	uint64_t bytes; /* STRING: bytes of its text as written between the quotes (0: empty) */
	bool truncated; /* str is not all of it */
	double num; /* NUMBER */
	int64_t inum; /* NUMBER: its integer part, saturated */
	uint64_t count; /* OBJECT, ARRAY */
	uint32_t elem; /* index in the innermost array that is on the path */
};

typedef void (*tks_jvalue_fn)(void *ctx, const struct tks_jvalue *v);

/* A compiled set of paths; immutable, may be shared. */
struct tks_jschema;

enum {
	TKS_JS_DEPTH_MAX =
		64, /* deeper nesting is stepped over without paths, up to a counter's end */
	TKS_JS_STR_MAX = 256,
	TKS_JS_KEY_MAX = 64, /* longer keys match nothing */
	TKS_JS_FIELDS_MAX = 256,
};

/* NULL: no memory (plain malloc; schemas are few and made at start) or a path that can't be
 * understood. */
struct tks_jschema *tks_jschema_new(const struct tks_jfield *fields, size_t n);
void tks_jschema_free(struct tks_jschema *s);

enum tks_jstatus { TKS_JS_MORE = 0, TKS_JS_DONE = 1, TKS_JS_BAD = -1 };

/* The state; its fields are the scanner's own, the size is public so that it can be embedded. */
struct tks_jscan;
size_t tks_jscan_size(void);

void tks_jscan_init(struct tks_jscan *j, const struct tks_jschema *s, tks_jvalue_fn fn, void *ctx);

/* Ready for the next document, same schema. */
void tks_jscan_reset(struct tks_jscan *j);

/*
 * Scans n bytes. MORE: the document goes on; DONE: it has ended, *used bytes belong to it (white
 * space behind it is consumed too); BAD: not JSON, everything up to reset is ignored. used may be
 * NULL.
 */
enum tks_jstatus tks_jscan_feed(struct tks_jscan *j, const void *data, size_t n, size_t *used);

/* The text has ended: DONE also for a bare number at its end; BAD for an unfinished document. */
enum tks_jstatus tks_jscan_end(struct tks_jscan *j);

#endif
