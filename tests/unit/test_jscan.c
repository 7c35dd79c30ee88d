// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The JSON scanner: each document whole, a byte at a time and cut at every place must give the
 * events written down beside it. An event is "ID=VALUE;", values as the scanner reports them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "jscan.h"

struct log {
	char text[4096];
	size_t n;
};

__attribute__((format(printf, 2, 3))) static void say(struct log *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	l->n += (size_t)vsnprintf(l->text + l->n, sizeof(l->text) - l->n, fmt, ap);
	va_end(ap);
	assert_true(l->n < sizeof(l->text));
}

static void on_value(void *ctx, const struct tks_jvalue *v)
{
	struct log *l = ctx;

	say(l, "%u", v->id);
	switch (v->type) {
	case TKS_JS_NULL:
		say(l, "=null;");
		break;
	case TKS_JS_FALSE:
		say(l, "=false;");
		break;
	case TKS_JS_TRUE:
		say(l, "=true;");
		break;
	case TKS_JS_NUMBER:
		say(l, "=%lld/%g;", (long long)v->inum, v->num);
		break;
	case TKS_JS_STRING:
		if (v->str)
			say(l, "=\"%.*s\"%s;", (int)v->len, v->str, v->truncated ? "..." : "");
		else
			say(l, "=%llu bytes;", (unsigned long long)v->bytes);
		break;
	case TKS_JS_STRING_PART:
		say(l, "~%zu;", v->len);
		break;
	case TKS_JS_OBJECT:
		say(l, "}%llu@%u;", (unsigned long long)v->count, v->elem);
		break;
	case TKS_JS_ARRAY:
		say(l, "]%llu;", (unsigned long long)v->count);
		break;
	case TKS_JS_OBJECT_BEGIN:
		say(l, "{@%u;", v->elem);
		break;
	case TKS_JS_ARRAY_BEGIN:
		say(l, "[;");
		break;
	}
}

static const struct tks_jfield fields[] = {
	{ "a", 1, TKS_JF_KEEP },
	{ "b", 2, 0 },
	{ "choices", 3, 0 },
	{ "choices[]", 4, TKS_JF_BEGIN },
	{ "choices[].delta.content", 5, TKS_JF_KEEP },
	{ "choices[].index", 6, 0 },
	{ "usage.out", 7, 0 },
	{ "usage", 8, 0 },
};

struct setup {
	struct tks_jschema *schema;
	struct tks_jscan *scan;
	struct log log;
};

static void begin(struct setup *s)
{
	s->schema = tks_jschema_new(fields, sizeof(fields) / sizeof(fields[0]));
	assert_non_null(s->schema);
	s->scan = malloc(tks_jscan_size());
	tks_jscan_init(s->scan, s->schema, on_value, &s->log);
}

static void end(struct setup *s)
{
	free(s->scan);
	tks_jschema_free(s->schema);
}

/* Feeds an exact copy, so that a sanitizer sees a byte too many. */
static enum tks_jstatus feed(struct setup *s, const char *p, size_t n)
{
	char *copy = malloc(n ? n : 1);
	enum tks_jstatus st;

	memcpy(copy, p, n);
	st = tks_jscan_feed(s->scan, copy, n, NULL);
	free(copy);
	return st;
}

static void scan_cut(const char *doc, size_t n, size_t first, size_t piece, enum tks_jstatus want,
		     const char *events)
{
	static struct setup s;
	enum tks_jstatus st = TKS_JS_MORE;

	memset(&s.log, 0, sizeof(s.log));
	begin(&s);
	for (size_t i = 0; i < n && st == TKS_JS_MORE;) {
		size_t k = i ? piece : first;

		k = k < n - i ? k : n - i;
		st = feed(&s, doc + i, k);
		i += k;
	}
	if (st == TKS_JS_MORE)
		st = tks_jscan_end(s.scan);
	assert_string_equal(s.log.text, events);
	assert_int_equal(st, want);
	end(&s);
}

static void check(const char *doc, enum tks_jstatus want, const char *events)
{
	size_t n = strlen(doc);

	scan_cut(doc, n, n, n, want, events);
	scan_cut(doc, n, 1, 1, want, events);
	for (size_t cut = 1; cut < n; cut++)
		scan_cut(doc, n, cut, n, want, events);
}

static void test_paths(void **state)
{
	(void)state;
	check("{\"a\":\"x\",\"b\":\"yz\",\"c\":{\"a\":1}}", TKS_JS_DONE, "1=\"x\";2=2 bytes;");
	check("{\"choices\":[{\"delta\":{\"content\":\"h\"},\"index\":3},{\"index\":4}],\"z\":0}",
	      TKS_JS_DONE, "4{@0;5=\"h\";6=3/3;4}2@0;4{@1;6=4/4;4}1@1;3]2;");
	check(" { \"usage\" : { \"out\" : 7 } } \n", TKS_JS_DONE, "7=7/7;8}1@0;");
	check("{\"usage\":null,\"choices\":[]}", TKS_JS_DONE, "8=null;3]0;");
	/* An element that is an array itself: reported as one, and nothing below it. */
	check("{\"choices\":[[{\"index\":1}]]}", TKS_JS_DONE, "4[;4]1;3]1;");
}

static void test_strings(void **state)
{
	(void)state;
	check("{\"a\":\"q\\\"b\\\\s\\/n\\n\"}", TKS_JS_DONE, "1=\"q\"b\\s/n\n\";");
	check("{\"a\":\"\\u00e9\\u20AC\"}", TKS_JS_DONE, "1=\"\xc3\xa9\xe2\x82\xac\";");
	check("{\"a\":\"\\ud83d\\ude00\"}", TKS_JS_DONE, "1=\"\xf0\x9f\x98\x80\";");
	/* Lone surrogates become U+FFFD. */
	check("{\"a\":\"\\ud83dx\\ude00\"}", TKS_JS_DONE, "1=\"\xef\xbf\xbdx\xef\xbf\xbd\";");
	/* Keys and braces inside a string are text. */
	check("{\"b\":\"{\\\"a\\\":1}\",\"a\":\"\"}", TKS_JS_DONE, "2=9 bytes;1=\"\";");
	/* An escaped key is the key it spells. */
	check("{\"\\u0061\":\"k\"}", TKS_JS_DONE, "1=\"k\";");
	check("{\"a\":\"\\x\"}", TKS_JS_BAD, "");
	check("{\"a\":\"\\u12g4\"}", TKS_JS_BAD, "");
}

static void test_numbers(void **state)
{
	(void)state;
	check("{\"b\":12.0}", TKS_JS_DONE, "2=12/12;");
	check("{\"b\":1e3}", TKS_JS_DONE, "2=1000/1000;");
	check("{\"b\":-0}", TKS_JS_DONE, "2=0/-0;");
	check("{\"b\":9223372036854775807}", TKS_JS_DONE, "2=9223372036854775807/9.22337e+18;");
	check("{\"b\":9223372036854775808}", TKS_JS_DONE, "2=9223372036854775807/9.22337e+18;");
	check("{\"b\":1e999}", TKS_JS_DONE, "2=9223372036854775807/inf;");
	check("{\"b\":-2.75}", TKS_JS_DONE, "2=-2/-2.75;");
	check("{\"b\":1-2}", TKS_JS_BAD, "");
	check("{\"b\":true,\"a\":false}", TKS_JS_DONE, "2=true;1=false;");
	check("12", TKS_JS_DONE, "");
}

static void test_malformed(void **state)
{
	static const char *const docs[] = { "{\"z\":1]",  "[}",	       "{a:1}",
					    "{\"a\" 1}",  "{\"a\":}",  "{\"b\":tru}",
					    "{\"b\":nul", "[1,2",      "{\"z\":1,}",
					    "]",	  "\"unended", "{\"z\":+1}",
					    "[DONE]",	  "" };

	(void)state;
	for (size_t i = 0; i < sizeof(docs) / sizeof(docs[0]); i++)
		check(docs[i], TKS_JS_BAD, "");
}

/* Kept strings at their limit, and keys at theirs. */
static void test_limits(void **state)
{
	char doc[512], want[512], text[TKS_JS_STR_MAX + 2];

	(void)state;
	memset(text, 'x', sizeof(text));
	for (int n = TKS_JS_STR_MAX - 1; n <= TKS_JS_STR_MAX + 1; n++) {
		int kept = n < TKS_JS_STR_MAX ? n : TKS_JS_STR_MAX;

		snprintf(doc, sizeof(doc), "{\"a\":\"%.*s\"}", n, text);
		snprintf(want, sizeof(want), "1=\"%.*s\"%s;", kept, text, n > kept ? "..." : "");
		check(doc, TKS_JS_DONE, want);
	}
	snprintf(doc, sizeof(doc), "{\"%.*s\":1,\"b\":2}", TKS_JS_KEY_MAX + 1, text);
	check(doc, TKS_JS_DONE, "2=2/2;");
}

/* depth arrays in "z", then a field. */
static void nested(int depth)
{
	char *doc = malloc((size_t)depth * 2 + 64), *p = doc;
	static struct setup s;

	p += sprintf(p, "{\"z\":");
	memset(p, '[', (size_t)depth);
	p += depth;
	p += sprintf(p, "\"]]\\\"]\"");
	memset(p, ']', (size_t)depth);
	p += depth;
	p += sprintf(p, ",\"b\":1}");
	memset(&s.log, 0, sizeof(s.log));
	begin(&s);
	assert_int_equal(feed(&s, doc, (size_t)(p - doc)), TKS_JS_DONE);
	assert_string_equal(s.log.text, "2=1/1;");
	end(&s);
	free(doc);
}

static void test_depth(void **state)
{
	(void)state;
	nested(TKS_JS_DEPTH_MAX - 2);
	nested(TKS_JS_DEPTH_MAX - 1);
	nested(TKS_JS_DEPTH_MAX);
	nested(TKS_JS_DEPTH_MAX + 1);
	nested(100000);
}

static void test_reuse(void **state)
{
	static struct setup s;
	size_t used;

	(void)state;
	memset(&s.log, 0, sizeof(s.log));
	begin(&s);
	assert_int_equal(tks_jscan_feed(s.scan, "{\"b\":1}  {", 10, &used), TKS_JS_DONE);
	assert_int_equal(used, 9);
	tks_jscan_reset(s.scan);
	assert_int_equal(feed(&s, "{]", 2), TKS_JS_BAD);
	assert_int_equal(feed(&s, "{\"b\":5}", 7), TKS_JS_BAD);
	tks_jscan_reset(s.scan);
	assert_int_equal(feed(&s, "{\"b\":2}", 7), TKS_JS_DONE);
	assert_string_equal(s.log.text, "2=1/1;2=2/2;");
	end(&s);
}

static void test_schema(void **state)
{
	static const struct tks_jfield twice[] = { { "a", 1, 0 }, { "a", 2, 0 } };
	static const struct tks_jfield bad[] = { { "a..b", 1, 0 } };

	(void)state;
	assert_null(tks_jschema_new(twice, 2));
	assert_null(tks_jschema_new(bad, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths),	cmocka_unit_test(test_strings),
		cmocka_unit_test(test_numbers), cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_limits),	cmocka_unit_test(test_depth),
		cmocka_unit_test(test_reuse),	cmocka_unit_test(test_schema),
	};

	return cmocka_run_group_tests_name("jscan", tests, NULL, NULL);
}
