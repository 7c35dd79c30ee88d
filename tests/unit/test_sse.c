// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The event stream parser: each text whole, a byte at a time and cut at every place gives the
 * frames written down beside it: "[first-last event|data]", "[c]" for a block of comments.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sse.h"

struct log {
	char data[1024], text[4096];
	size_t ndata, n;
	unsigned int resets;
};

static void on_data(void *ctx, const struct tks_slice *s)
{
	struct log *l = ctx;

	assert_true(l->ndata + s->len < sizeof(l->data));
	memcpy(l->data + l->ndata, s->data, s->len);
	l->ndata += s->len;
}

static void on_frame(void *ctx, const struct tks_sse_frame *f)
{
	struct log *l = ctx;

	assert_int_equal(f->data_bytes, l->ndata);
	if (!f->has_data && !f->event[0])
		l->n += (size_t)snprintf(l->text + l->n, sizeof(l->text) - l->n, "[c]");
	else
		l->n += (size_t)snprintf(l->text + l->n, sizeof(l->text) - l->n, "[%d-%d %s|%.*s]",
					 (int)f->first_off, (int)f->last_off, f->event,
					 (int)l->ndata, l->data);
	l->ndata = 0;
}

static void on_reset(void *ctx)
{
	struct log *l = ctx;

	l->ndata = 0;
	l->resets++;
}

static const struct tks_sse_ops ops = { on_data, on_frame, on_reset };

static void feed(struct tks_sse *s, const char *p, size_t n, uint64_t off)
{
	uint8_t *copy = malloc(n ? n : 1);
	struct tks_slice in = { copy, n, off };

	memcpy(copy, p, n);
	tks_sse_feed(s, &in);
	free(copy);
}

static void run(const char *text, size_t n, size_t first, size_t piece, const char *want)
{
	struct log l = { 0 };
	struct tks_sse s;

	tks_sse_init(&s, &ops, &l);
	for (size_t i = 0; i < n;) {
		size_t k = i ? piece : first;

		k = k < n - i ? k : n - i;
		feed(&s, text + i, k, i);
		i += k;
	}
	tks_sse_end(&s);
	assert_string_equal(l.text, want);
}

static void check(const char *text, const char *want)
{
	size_t n = strlen(text);

	run(text, n, n, n, want);
	run(text, n, 1, 1, want);
	for (size_t cut = 1; cut < n; cut++)
		run(text, n, cut, n, want);
}

static void test_line_ends(void **state)
{
	(void)state;
	check("data: a\n\ndata: b\n\n", "[0-8 |a][9-17 |b]");
	/* The blank line's CR ends the frame; its LF belongs to no frame. */
	check("data: a\r\n\r\ndata: b\r\n\r\n", "[0-9 |a][11-20 |b]");
	check("data: a\r\rdata: b\r\r", "[0-8 |a][9-17 |b]");
	check("data: a\r\n\ndata: b\n\r\n", "[0-9 |a][10-18 |b]");
}

static void test_fields(void **state)
{
	(void)state;
	check("data:a\n\n", "[0-7 |a]");
	check("data:  a \n\n", "[0-10 | a ]");
	check("data\n\n", "[0-5 |]");
	check("data: a\ndata: b\ndata\n\n", "[0-21 |a\nb\n]");
	check("event: x\nid: 7\nretry: 9\nfoo: y\nbar\ndata: a\n\n", "[0-43 x|a]");
	check("event: a\nevent: b\ndata: 1\n\n", "[0-26 b|1]");
	check("Data: a\n\ndata : a\n\n", "");
	check("data: a:b: c\n\n", "[0-13 |a:b: c]");
}

static void test_comments(void **state)
{
	(void)state;
	check(":\n\n: ping - 2026\n\n", "[c][c]");
	check(": x\ndata: a\n\n", "[0-12 |a]");
	/* Dynamo's error: an event's name and a comment, no data. */
	check("event: error\n: broken\n\n", "[0-22 error|]");
	check("\n\n\ndata: a\n\n", "[3-11 |a]");
}

static void test_bom_and_end(void **state)
{
	(void)state;
	check("\xef\xbb\xbf"
	      "data: a\n\n",
	      "[3-11 |a]");
	check("\xef\xbb"
	      "data: a\n\n",
	      "");
	/* A frame without its blank line is not one. */
	check("data: a\n\ndata: b\n", "[0-8 |a]");
}

static void test_long_event(void **state)
{
	struct log l = { 0 };
	struct tks_sse s;
	char text[128];

	(void)state;
	snprintf(text, sizeof(text), "event: %060d\ndata: a\n\n", 1);
	tks_sse_init(&s, &ops, &l);
	feed(&s, text, strlen(text), 0);
	assert_int_equal(l.n, strlen("[0-76 |a]") + 47);
}

/* Behind a gap: begins with a data field at once, else behind the next blank line. */
static void after_gap(const char *text, const char *want)
{
	for (size_t piece = 1; piece <= strlen(text); piece++) {
		struct log l = { 0 };
		struct tks_sse s;

		tks_sse_init(&s, &ops, &l);
		feed(&s, "data: x\n\ndata: ha", 17, 0);
		tks_sse_gap(&s);
		for (size_t i = 0; i < strlen(text); i += piece)
			feed(&s, text + i, piece < strlen(text) - i ? piece : strlen(text) - i,
			     100 + i);
		assert_int_equal(l.resets, 1);
		assert_string_equal(l.text, want);
	}
}

static void test_gap(void **state)
{
	(void)state;
	after_gap("data: b\n\n", "[0-8 |x][100-108 |b]");
	after_gap("event: e\ndata: b\n\n", "[0-8 |x][100-117 e|b]");
	after_gap("lf\"}\n\ndata: b\n\n", "[0-8 |x][106-114 |b]");
	after_gap("\n\ndata: b\n\n", "[0-8 |x][102-110 |b]");
	after_gap("atum: 1\ndata: no\n\ndata: b\n\n", "[0-8 |x][118-126 |b]");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_line_ends),  cmocka_unit_test(test_fields),
		cmocka_unit_test(test_comments),   cmocka_unit_test(test_bom_and_end),
		cmocka_unit_test(test_long_event), cmocka_unit_test(test_gap),
	};

	return cmocka_run_group_tests_name("sse", tests, NULL, NULL);
}
