// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The codecs against the encoders: what zlib, libbrotlienc, libzstd and the programs gzip, brotli
 * and zstd make of everything that the golden cases' ends wrote, and of some longer texts, becomes
 * that again in whatever pieces it comes; what was flushed is out with its last byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec.h"

enum { DOCS_MIN = 200, STREAMS_MIN = 5000, PIECES_MAX = 8192, LONG = 20000, WHOLE = 0 };

struct doc {
	char name[128];
	uint8_t *p;
	size_t n;
};

/* Of a stream: where each flush ended, and how much is to be out there. */
struct stream {
	char coding[16], encoder[32];
	uint8_t *p;
	size_t n;
	size_t end[PIECES_MAX], out[PIECES_MAX], pieces;
};

/* What is compared, for who reads that it failed. */
static const struct doc *this_doc;
static const struct stream *this_stream;

/* What came out is compared as it comes. */
struct check {
	const struct doc *doc;
	size_t at;
};

static int on_bytes(void *ctx, const uint8_t *data, size_t len)
{
	struct check *c = ctx;

	assert_true(len && len <= c->doc->n - c->at);
	assert_memory_equal(data, c->doc->p + c->at, len);
	c->at += len;
	return 0;
}

/* --- reading --- */

static unsigned int digit(char c)
{
	assert_true((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'));
	return c <= '9' ? (unsigned int)(c - '0') : (unsigned int)(c - 'a') + 10;
}

/* In place. Bytes up to a character that is no digit; *text is that one. */
static size_t unhex(char **text, uint8_t *out)
{
	size_t n = 0;

	for (; **text && **text != ':' && **text != '\n'; *text += 2)
		out[n++] = (uint8_t)(digit((*text)[0]) << 4 | digit((*text)[1]));
	return n;
}

static void read_doc(char *line, struct doc *doc)
{
	char *text = strchr(line, ' ');

	assert_non_null(text);
	*text++ = 0;
	assert_true(strlen(line) < sizeof(doc->name));
	strcpy(doc->name, line);
	free(doc->p);
	doc->p = malloc(strlen(text) / 2 + 1);
	assert_non_null(doc->p);
	doc->n = unhex(&text, doc->p);
	assert_string_equal(text, "\n");
}

static void read_stream(char *line, struct stream *s)
{
	int used = 0;
	char *text;

	assert_int_equal(sscanf(line, "%15s %31s%n", s->coding, s->encoder, &used), 2);
	text = line + used;
	s->p = (uint8_t *)line;
	s->n = s->pieces = 0;
	while (*text == ' ') {
		text++;
		assert_true(s->pieces < PIECES_MAX);
		s->n += unhex(&text, s->p + s->n);
		assert_int_equal(*text, ':');
		s->end[s->pieces] = s->n;
		s->out[s->pieces++] = strtoul(text + 1, &text, 10);
	}
	assert_string_equal(text, "\n");
	assert_true(s->pieces);
}

/* --- cutting --- */

static uint32_t random_below(uint32_t n)
{
	static uint32_t x = 1;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return x % n;
}

/* How long the next piece is: of one or two bytes each, or of 1 to most. */
static size_t some(size_t most)
{
	return most < 3 ? most : 1 + random_below((uint32_t)most);
}

/* Where flushes count, each ends a piece and what it flushed is out. */
static void decode(struct tks_codec *c, const struct stream *s, const struct doc *doc, size_t most,
		   bool flushes)
{
	struct check check = { doc, 0 };
	size_t piece = 0;

	tks_codec_reset(c);
	for (size_t i = 0; i < s->n;) {
		size_t end = flushes ? s->end[piece] : s->n;
		size_t k = most == WHOLE ? end - i : some(most);

		k = k < end - i ? k : end - i;
		assert_int_equal(tks_codec_feed(c, s->p + i, k, on_bytes, &check), 0);
		i += k;
		for (; flushes && piece < s->pieces && i == s->end[piece]; piece++)
			assert_int_equal(check.at, s->out[piece]);
	}
	assert_int_equal(check.at, doc->n);
}

static enum tks_coding coding_of(const char *name)
{
	return strcmp(name, "raw") ? tks_coding_named(name) : TKS_CODING_RAW_DEFLATE;
}

static void compare(const struct stream *s, const struct doc *doc)
{
	static const size_t most[] = { 1, 2, 7, 100, 1500, 40000 };
	static struct tks_mem mem;
	struct tks_codec *c = tks_codec_new(&mem, coding_of(s->coding));

	assert_non_null(c);
	decode(c, s, doc, WHOLE, false);
	decode(c, s, doc, WHOLE, true);
	for (size_t i = doc->n < LONG ? 0 : 3; i < sizeof(most) / sizeof(most[0]); i++)
		decode(c, s, doc, most[i], i % 2 == 0);
	if (doc->n < LONG)
		decode(c, s, doc, 1, true);
	tks_codec_free(c);
	assert_int_equal(mem.used, 0);
}

static void test_encoders(void **state)
{
	FILE *in = popen("python3 tests/golden/codec_docs.py", "r");
	static struct stream stream;
	static struct doc doc;
	size_t room = 0, docs = 0, streams = 0;
	char *line = NULL;

	(void)state;
	assert_non_null(in);
	while (getline(&line, &room, in) > 0) {
		if (!strncmp(line, "doc ", 4)) {
			read_doc(line + 4, &doc);
			docs++;
			continue;
		}
		assert_int_equal(strncmp(line, "stream ", 7), 0);
		read_stream(line + 7, &stream);
		this_doc = &doc;
		this_stream = &stream;
		compare(&stream, &doc);
		streams++;
	}
	this_doc = NULL;
	free(line);
	free(doc.p);
	doc.p = NULL;
	assert_int_equal(pclose(in), 0);
	assert_true(docs >= DOCS_MIN && streams >= STREAMS_MIN);
}

static int tell(void **state)
{
	(void)state;
	if (this_doc)
		print_error("%s in %s by %s\n", this_doc->name, this_stream->coding,
			    this_stream->encoder);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(test_encoders, tell) };

	return cmocka_run_group_tests_name("codec_encoders", tests, NULL, NULL);
}
