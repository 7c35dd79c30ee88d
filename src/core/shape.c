// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What a document looks like, whatever the dialect: the signs of all dialects are compiled into one
 * schema, a document is scanned by it once, and the rows are held against what was there.
 */
#include <stdlib.h>
#include <string.h>

#include "dialect.h"
#include "dialect_table.h"

enum {
	PATHS_MAX = 160,
	TERMS_MAX = 320,
	PATH_LEN = 64,
	TEXT_LEN = 48,
	/* Members that errors have, whose dialect only the path can tell. */
	ERROR = 0,
	DETAIL,
	OBJECT,
	FIXED_PATHS,
};

enum op {
	HAS,
	HAS_ANY,
	HAS_NOT,
	IS,
	BEGINS,
	IS_AWS,
	IS_WS,
	EVENT_IS,
	EVENT_BEGINS,
	STREAM,
	AT_PATH
};

struct term {
	enum op op;
	uint16_t path;
	bool last; /* of its row */
	const char *text; /* in the row; len bytes */
	size_t len;
	const struct tks_dialect *dialect;
};

struct table {
	struct tks_jschema *schema;
	size_t npaths, nterms;
	char paths[PATHS_MAX][PATH_LEN];
	struct tks_jfield fields[PATHS_MAX];
	struct term terms[TERMS_MAX];
};

struct seen {
	bool there, null;
	char text[TEXT_LEN];
};

struct tks_shape {
	const struct table *table;
	struct tks_jscan *scan;
	struct seen seen[PATHS_MAX];
};

/* --- the table: made at the first use, kept for good --- */

/* TERMS_MAX and PATHS_MAX are checked by a test that every sign of every dialect is found. */
static size_t path_of(struct table *t, const char *path, size_t len)
{
	size_t i;

	for (i = 0; i < t->npaths; i++) {
		if (strlen(t->paths[i]) == len && !memcmp(t->paths[i], path, len))
			return i;
	}
	if (i == PATHS_MAX || len >= PATH_LEN)
		return PATHS_MAX;
	memcpy(t->paths[i], path, len);
	t->fields[i] =
		(struct tks_jfield){ t->paths[i], (uint16_t)(i + 1), TKS_JF_KEEP | TKS_JF_BEGIN };
	t->npaths++;
	return i;
}

static bool begins(const char *s, size_t len, const char *with)
{
	return len == strlen(with) && !memcmp(s, with, len);
}

static bool compile_term(struct table *t, const char *s, size_t len, struct term *out)
{
	const char *equals = memchr(s, '=', len);
	size_t name = equals ? (size_t)(equals - s) : len;

	out->op = HAS;
	if (equals) {
		out->text = equals + 1;
		out->len = len - name - 1;
		out->op = IS;
		if (out->len && out->text[out->len - 1] == '*') {
			out->op = BEGINS;
			out->len--;
		}
	}
	if (*s == '@') {
		if (begins(s, name, "@event"))
			out->op = out->op == IS ? EVENT_IS : EVENT_BEGINS;
		else if (begins(s, name, "@stream"))
			out->op = STREAM;
		else if (begins(s, name, "@path"))
			out->op = AT_PATH;
		else
			out->op = begins(s, name, "@aws") ? IS_AWS : IS_WS;
		return true;
	}
	if (*s == '!') {
		out->op = HAS_NOT;
		s++;
		name--;
	} else if (s[name - 1] == '?') {
		out->op = HAS_ANY;
		name--;
	}
	out->path = (uint16_t)path_of(t, s, name);
	return out->path < PATHS_MAX;
}

static bool compile_row(struct table *t, const struct tks_dialect *dialect, const char *row)
{
	while (*row) {
		size_t len = strcspn(row, " ");
		struct term *term = &t->terms[t->nterms];

		if (t->nterms == TERMS_MAX || !len || !compile_term(t, row, len, term))
			return false;
		t->nterms++;
		term->dialect = dialect;
		row += len;
		term->last = !*row;
		row += *row == ' ';
	}
	return true;
}

static bool compile(struct table *t)
{
	path_of(t, "error", 5);
	path_of(t, "detail", 6);
	path_of(t, "object", 6);
	for (size_t i = 0; i < tks_dialect_count(); i++) {
		const struct tks_dialect *d = tks_dialect_at(i);

		for (const char *const *row = d->signs; row && *row; row++) {
			if (!compile_row(t, d, *row))
				return false;
		}
	}
	t->schema = tks_jschema_new(t->fields, t->npaths);
	return t->schema;
}

static const struct table *table(void)
{
	static struct table t;

	if (t.schema)
		return &t;
	memset(&t, 0, sizeof(t));
	return compile(&t) ? &t : NULL;
}

/* --- a document --- */

static void on_value(void *ctx, const struct tks_jvalue *v)
{
	struct tks_shape *s = ctx;
	struct seen *seen = &s->seen[v->id - 1];

	seen->there = true;
	seen->null = v->type == TKS_JS_NULL;
	if (v->str)
		tks_jvalue_copy(v, seen->text, sizeof(seen->text));
}

struct tks_shape *tks_shape_new(struct tks_mem *mem)
{
	const struct table *t = table();
	struct tks_shape *s = t ? tks_mem_alloc(mem, sizeof(*s)) : NULL;

	if (!s)
		return NULL;
	s->table = t;
	s->scan = tks_mem_alloc(mem, tks_jscan_size());
	if (!s->scan) {
		tks_mem_free(mem, s, sizeof(*s));
		return NULL;
	}
	tks_jscan_init(s->scan, t->schema, on_value, s);
	return s;
}

void tks_shape_free(struct tks_mem *mem, struct tks_shape *s)
{
	if (!s)
		return;
	tks_mem_free(mem, s->scan, tks_jscan_size());
	tks_mem_free(mem, s, sizeof(*s));
}

void tks_shape_begin(struct tks_shape *s)
{
	memset(s->seen, 0, s->table->npaths * sizeof(s->seen[0]));
	tks_jscan_reset(s->scan);
}

enum tks_jstatus tks_shape_feed(struct tks_shape *s, const void *data, size_t n, size_t *used)
{
	return tks_jscan_feed(s->scan, data, n, used);
}

static bool text_is(const struct term *t, const char *text, bool whole)
{
	return strlen(text) >= t->len && !memcmp(text, t->text, t->len) &&
	       (!whole || !text[t->len]);
}

static bool holds(const struct tks_shape *s, const struct term *t,
		  const struct tks_shape_place *place)
{
	const struct seen *seen = &s->seen[t->path];

	switch (t->op) {
	case HAS:
		return seen->there && !seen->null;
	case HAS_ANY:
		return seen->there;
	case HAS_NOT:
		return !seen->there || seen->null;
	case IS:
		return text_is(t, seen->text, true);
	case BEGINS:
		return text_is(t, seen->text, false);
	case IS_AWS:
		return place->kind == TKS_SHAPE_AWS;
	case IS_WS:
		return place->kind == TKS_SHAPE_WS;
	case EVENT_IS:
		return text_is(t, place->event, true);
	case STREAM:
		return place->stream;
	case AT_PATH:
		return tks_dialect_at_path(t->dialect, place->target);
	default:
		return text_is(t, place->event, false);
	}
}

const struct tks_dialect *tks_shape_dialect(const struct tks_shape *s,
					    const struct tks_shape_place *place)
{
	const struct table *t = s->table;
	bool row = true;

	for (size_t i = 0; i < t->nterms; i++) {
		row = row && holds(s, &t->terms[i], place);
		if (t->terms[i].last && row)
			return t->terms[i].dialect;
		row |= t->terms[i].last;
	}
	return NULL;
}

bool tks_shape_is_error(const struct tks_shape *s)
{
	const struct seen *e = &s->seen[ERROR];

	return (e->there && !e->null) || s->seen[DETAIL].there ||
	       !strcmp(s->seen[OBJECT].text, "error");
}
