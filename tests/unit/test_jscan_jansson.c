// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The JSON scanner against jansson: on every document of the golden cases and of the fuzzers' seeds
 * both must find the same values at the paths of every dialect.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "dialect_table.h"

enum { VALUES_MAX = 4096, DOC_MAX = 1 << 20, DOCS_MIN = 200 };

/* What one reader found, as lines that can be sorted. */
struct found {
	char *line[VALUES_MAX];
	size_t n;
};

static void say(struct found *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct found *f, const char *format, ...)
{
	va_list ap;

	assert_true(f->n < VALUES_MAX);
	va_start(ap, format);
	assert_true(vasprintf(&f->line[f->n++], format, ap) >= 0);
	va_end(ap);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void drop(struct found *f)
{
	for (size_t i = 0; i < f->n; i++)
		free(f->line[i]);
	f->n = 0;
}

/* --- the scanner --- */

struct scanned {
	const struct tks_dialect *dialect;
	struct found *found;
};

static void hex(const char *s, size_t n, char *out)
{
	for (size_t i = 0; i < n; i++)
		sprintf(out + 2 * i, "%02x", (unsigned char)s[i]);
	out[2 * n] = 0;
}

static void say_text(struct found *f, unsigned int id, const char *s, size_t n, bool kept)
{
	char text[2 * TKS_JS_STR_MAX + 1] = "";

	/* What does not fit may be cut within a character by either. */
	if (kept && n <= TKS_JS_STR_MAX)
		hex(s, n, text);
	say(f, "%u string %s %s", id, n ? "some" : "empty", text);
}

static void on_value(void *ctx, const struct tks_jvalue *v)
{
	struct scanned *s = ctx;

	switch (v->type) {
	case TKS_JS_NULL:
		say(s->found, "%u null", v->id);
		break;
	case TKS_JS_TRUE:
	case TKS_JS_FALSE:
		say(s->found, "%u %s", v->id, v->type == TKS_JS_TRUE ? "true" : "false");
		break;
	case TKS_JS_NUMBER:
		say(s->found, "%u number %.15g", v->id, v->num);
		break;
	case TKS_JS_STRING:
		if (v->str && !v->truncated)
			say_text(s->found, v->id, v->str, v->len, true);
		else
			say_text(s->found, v->id, "", v->bytes, false);
		break;
	case TKS_JS_OBJECT:
		say(s->found, "%u object", v->id);
		break;
	case TKS_JS_ARRAY:
		say(s->found, "%u array %llu", v->id, (unsigned long long)v->count);
		break;
	default:
		break;
	}
}

static void scan(const struct tks_dialect *d, const char *doc, size_t n, size_t piece,
		 struct found *f)
{
	struct scanned s = { d, f };
	struct tks_jscan *j = malloc(tks_jscan_size());
	size_t used;

	assert_non_null(j);
	tks_jscan_init(j, tks_dialect_schema(d), on_value, &s);
	for (size_t i = 0; i < n; i += piece)
		tks_jscan_feed(j, doc + i, piece < n - i ? piece : n - i, &used);
	assert_int_equal(tks_jscan_end(j), TKS_JS_DONE);
	free(j);
}

/* --- jansson --- */

static void say_json(struct found *f, const struct tks_jfield *field, const json_t *v)
{
	bool keep = field->flags & TKS_JF_KEEP;

	switch (json_typeof(v)) {
	case JSON_NULL:
		say(f, "%u null", field->id);
		break;
	case JSON_TRUE:
	case JSON_FALSE:
		say(f, "%u %s", field->id, json_is_true(v) ? "true" : "false");
		break;
	case JSON_INTEGER:
	case JSON_REAL:
		say(f, "%u number %.15g", field->id, json_number_value(v));
		break;
	case JSON_STRING:
		say_text(f, field->id, json_string_value(v), json_string_length(v), keep);
		break;
	case JSON_OBJECT:
		say(f, "%u object", field->id);
		break;
	case JSON_ARRAY:
		say(f, "%u array %zu", field->id, json_array_size(v));
		break;
	}
}

static void walk(struct found *f, const struct tks_jfield *field, const char *path, const json_t *v)
{
	size_t n = strcspn(path, ".["), i;
	const json_t *e;

	if (!v)
		return;
	if (!*path) {
		say_json(f, field, v);
		return;
	}
	if (!strncmp(path, "[]", 2)) {
		json_array_foreach((json_t *)v, i, e)
			walk(f, field, path[2] == '.' ? path + 3 : path + 2, e);
		return;
	}
	e = json_is_object(v) ? json_object_getn(v, path, n) : NULL;
	walk(f, field, path[n] == '.' ? path + n + 1 : path + n, e);
}

/* --- both --- */

static void compare(const struct tks_dialect *d, const char *doc, size_t n, const json_t *json)
{
	static const size_t pieces[] = { DOC_MAX, 7, 1 };
	static struct found want, got;

	for (size_t i = 0; i < d->nfields; i++)
		walk(&want, &d->fields[i], d->fields[i].path, json);
	qsort(want.line, want.n, sizeof(want.line[0]), by_text);
	for (size_t k = 0; k < sizeof(pieces) / sizeof(pieces[0]); k++) {
		scan(d, doc, n, pieces[k], &got);
		qsort(got.line, got.n, sizeof(got.line[0]), by_text);
		for (size_t i = 0; i < want.n && i < got.n; i++)
			assert_string_equal(got.line[i], want.line[i]);
		assert_int_equal(got.n, want.n);
		drop(&got);
	}
	drop(&want);
}

static size_t unhex(char *line)
{
	size_t n = strlen(line) / 2;

	for (size_t i = 0; i < n; i++) {
		unsigned int byte;

		assert_int_equal(sscanf(line + 2 * i, "%2x", &byte), 1);
		line[i] = (char)byte;
	}
	return n;
}

static void test_documents(void **state)
{
	static char line[2 * DOC_MAX];
	FILE *docs = popen("python3 tests/golden/json_docs.py", "r");
	size_t count = 0;

	(void)state;
	assert_non_null(docs);
	while (fgets(line, sizeof(line), docs)) {
		size_t n = unhex(line);
		json_t *json = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);

		/* Python reads some that are no JSON (NaN, lone surrogates). */
		if (!json)
			continue;
		count++;
		for (size_t i = 0; i < tks_dialect_count(); i++) {
			if (tks_dialect_at(i)->nfields)
				compare(tks_dialect_at(i), line, n, json);
		}
		json_decref(json);
	}
	assert_int_equal(pclose(docs), 0);
	assert_true(count >= DOCS_MIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_documents) };

	return cmocka_run_group_tests_name("jscan_jansson", tests, NULL, NULL);
}
