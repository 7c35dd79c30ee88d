// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * HTTP/2: stories of frames that both sides send, each with what is to be called, in that order and
 * with those offsets. Each is fed whole, frame by frame, a byte at a time and cut at every place.
 * Header blocks are literal octets: the examples of RFC 7541, appendix C, or written by hand.
 *
 * What is to be called is a line a call: "STREAM > begin OFF", "> head FIRST-LAST METHOD TARGET",
 * "< head FIRST-LAST STATUS", "< body OFF: TEXT", "< gap OFF+LEN", "< trailers FIRST-LAST",
 * "< reset CODE", "< end LAST HOW". > is the client's side. @A, @Z: the first and the last octet of
 * the frame put last, @C: its content's first.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "http2.h"
#include "http2_frame.h"
#include "tokensnoop/mem.h"

enum { BYTES = 4096, TEXT = 16384, PIECES = 256, STREAMS = 32 };
#define REQ TKS_REQUEST
#define RESP TKS_RESPONSE

/* Where a direction's offsets begin: one side's are never the other's. */
static const uint64_t base[2] = { 1000, 70000 };

/* Octets of a literal, and how many. */
#define B(text) (text), sizeof(text) - 1

/* Header blocks without a reference to the dynamic table, and without an entry into it. */
#define GET "\x82\x86\x84" /* GET http / */
#define POST_X "\x83\x86\x04\x02/x" /* POST http /x */
#define STATUS_200 "\x88"
#define STATUS_100 "\x08\x03\x31\x30\x30" /* :status: 100 */
#define TYPE_GRPC "\x0f\x10\x10\x61pplication/grpc" /* content-type: application/grpc */
#define GRPC_STATUS "\x00\x0bgrpc-status\x01" /* and a digit */

enum {
	END_STREAM = TKS_H2_END_STREAM,
	END_HEADERS = TKS_H2_END_HEADERS,
	PADDED = TKS_H2_PADDED,
	PRIORITY = TKS_H2_HAS_PRIORITY,
};

struct piece {
	enum tks_side side;
	size_t at, n; /* in the side's octets */
};

struct story {
	uint8_t bytes[2][BYTES];
	uint32_t owner[2][BYTES]; /* whose DATA's content the octet is; 0: nobody's */
	size_t n[2];
	struct piece pieces[PIECES];
	size_t npieces;
	char want[TEXT];
	size_t nwant;
	void (*start)(struct tks_http2 *h);
	uint64_t first, last, content; /* of the frame put last */
};

struct log {
	const struct story *story;
	char text[TEXT];
	size_t n;
	/* Where a body piece would go on. */
	uint32_t stream;
	enum tks_side side;
	uint64_t next;
	int fail; /* what the callbacks return */
};

/* --- the callbacks, written down --- */

__attribute__((format(printf, 2, 3))) static void note(struct log *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	l->n += (size_t)vsnprintf(l->text + l->n, sizeof(l->text) - l->n, fmt, ap);
	va_end(ap);
	assert_true(l->n < sizeof(l->text));
	l->stream = 0;
}

static char arrow(enum tks_side side)
{
	return side == TKS_REQUEST ? '>' : '<';
}

static uint64_t rel(enum tks_side side, uint64_t off)
{
	assert_true(off >= base[side] && off < base[side] + BYTES);
	return off - base[side];
}

static void on_begin(void *ctx, uint32_t stream, uint64_t off)
{
	note(ctx, "\n%u > begin %" PRIu64, stream, rel(TKS_REQUEST, off));
}

static void note_text(struct log *l, const char *name, const char *text)
{
	if (*text)
		note(l, " %s=%s", name, text);
}

static void note_fields(struct log *l, const struct tks_http_head *h)
{
	note_text(l, "type", h->content_type);
	note_text(l, "coding", h->content_encoding);
	note_text(l, "server", h->server);
	note_text(l, "grpc-encoding", h->grpc_encoding);
	note_text(l, "grpc-status", h->grpc_status);
	note_text(l, "product", h->product);
	if (h->content_length >= 0)
		note(l, " length=%" PRId64, h->content_length);
	note(l, "%s%s%s%s", h->upgrade ? " upgrade" : "", h->resumed ? " resumed" : "",
	     h->truncated ? " truncated" : "", h->unknowable ? " unknowable" : "");
}

static int on_head(void *ctx, uint32_t stream, const struct tks_http_head *h)
{
	struct log *l = ctx;

	assert_int_equal(h->major, 2);
	note(l, "\n%u %c head %" PRIu64 "-%" PRIu64, stream, arrow(h->side),
	     rel(h->side, h->first_off), rel(h->side, h->last_off));
	if (h->side == TKS_REQUEST)
		note(l, " %s %s", *h->method ? h->method : "-", *h->target ? h->target : "-");
	else
		note(l, " %u", h->status);
	note_fields(l, h);
	return l->fail;
}

static int on_body(void *ctx, uint32_t stream, enum tks_side side, const struct tks_slice *s)
{
	struct log *l = ctx;
	uint64_t at = rel(side, s->off);

	assert_true(s->len > 0 && at + s->len <= l->story->n[side]);
	for (size_t i = 0; i < s->len; i++) {
		assert_int_equal(s->data[i], l->story->bytes[side][at + i]);
		if (l->story->owner[side][at + i] != stream)
			fail_msg("%zu is no body of %u; told so far: %s", (size_t)at + i, stream,
				 l->text);
	}
	if (l->stream != stream || l->side != side || l->next != at)
		note(l, "\n%u %c body %" PRIu64 ": ", stream, arrow(side), at);
	note(l, "%.*s", (int)s->len, (const char *)s->data);
	l->stream = stream;
	l->side = side;
	l->next = at + s->len;
	return l->fail;
}

static int on_gap(void *ctx, uint32_t stream, enum tks_side side, uint64_t off, uint64_t len)
{
	note(ctx, "\n%u %c gap %" PRIu64 "+%" PRIu64, stream, arrow(side), rel(side, off), len);
	return 0;
}

static int on_trailers(void *ctx, uint32_t stream, const struct tks_http_head *t)
{
	assert_int_equal(t->side, TKS_RESPONSE);
	note(ctx, "\n%u < trailers %" PRIu64 "-%" PRIu64, stream, rel(TKS_RESPONSE, t->first_off),
	     rel(TKS_RESPONSE, t->last_off));
	note_fields(ctx, t);
	return 0;
}

static int on_end(void *ctx, uint32_t stream, enum tks_side side, uint64_t last_off,
		  enum tks_msg_end how)
{
	struct log *l = ctx;
	/* RST_STREAM ends both sides, where it is in one. */
	enum tks_side of = last_off >= base[RESP] ? TKS_RESPONSE : TKS_REQUEST;

	note(l, "\n%u %c end %" PRIu64 " %s", stream, arrow(side), rel(of, last_off),
	     how == TKS_MSG_COMPLETE ? "complete"
	     : how == TKS_MSG_CUT    ? "cut"
				     : "?");
	return 0;
}

static int on_reset(void *ctx, uint32_t stream, enum tks_side by, uint32_t code)
{
	note(ctx, "\n%u %c reset %u", stream, arrow(by), code);
	return 0;
}

static const struct tks_h2_ops ops = {
	.begin = on_begin,
	.head = on_head,
	.body = on_body,
	.body_gap = on_gap,
	.trailers = on_trailers,
	.end = on_end,
	.reset = on_reset,
};

/* --- telling --- */

static struct story *new_story(void)
{
	struct story *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	return s;
}

static void put(struct story *s, enum tks_side side, const void *p, size_t n)
{
	assert_true(s->n[side] + n <= BYTES && s->npieces < PIECES);
	memcpy(s->bytes[side] + s->n[side], p, n);
	s->pieces[s->npieces++] = (struct piece){ side, s->n[side], n };
	s->n[side] += n;
}

static void own(struct story *s, enum tks_side side, uint8_t flags, uint32_t stream)
{
	size_t end = s->n[side], at = s->content;

	if (flags & PADDED && at < end) {
		size_t pad = s->bytes[side][at];

		s->content = ++at;
		end = pad < end - at ? end - pad : at;
	}
	for (; at < end; at++)
		s->owner[side][at] = stream & INT32_MAX;
}

/* A frame with that payload, padding's length and all. */
static void frame(struct story *s, enum tks_side side, uint8_t type, uint8_t flags, uint32_t stream,
		  const void *payload, size_t n)
{
	uint8_t all[BYTES] = { (uint8_t)(n >> 16),
			       (uint8_t)(n >> 8),
			       (uint8_t)n,
			       type,
			       flags,
			       (uint8_t)(stream >> 24),
			       (uint8_t)(stream >> 16),
			       (uint8_t)(stream >> 8),
			       (uint8_t)stream };

	assert_true(n + 9 <= sizeof(all));
	memcpy(all + 9, payload, n);
	s->first = s->n[side];
	s->content = s->first + 9;
	put(s, side, all, n + 9);
	s->last = s->n[side] - 1;
	if (type == TKS_H2_DATA)
		own(s, side, flags, stream);
}

static void headers(struct story *s, enum tks_side side, uint8_t flags, uint32_t stream,
		    const void *block, size_t n)
{
	frame(s, side, TKS_H2_HEADERS, flags | END_HEADERS, stream, block, n);
}

static void data(struct story *s, enum tks_side side, uint8_t flags, uint32_t stream,
		 const char *text)
{
	frame(s, side, TKS_H2_DATA, flags, stream, text, strlen(text));
}

/* A call that the frame put last is to give. */
__attribute__((format(printf, 2, 3))) static void want(struct story *s, const char *fmt, ...)
{
	char line[512], out[600];
	size_t n = 0;
	va_list ap;

	va_start(ap, fmt);
	assert_true(vsnprintf(line, sizeof(line), fmt, ap) < (int)sizeof(line));
	va_end(ap);
	for (const char *p = line; *p; p++) {
		uint64_t v = p[1] == 'A' ? s->first : p[1] == 'Z' ? s->last : s->content;

		if (*p == '@') {
			n += (size_t)snprintf(out + n, sizeof(out) - n, "%" PRIu64, v);
			p++;
		} else {
			out[n++] = *p;
		}
		assert_true(n < sizeof(out) - 1);
	}
	out[n] = 0;
	s->nwant += (size_t)snprintf(s->want + s->nwant, TEXT - s->nwant, "\n%s", out);
	assert_true(s->nwant < TEXT);
}

static void preface(struct story *s)
{
	put(s, TKS_REQUEST, tks_h2_preface, TKS_H2_PREFACE);
	frame(s, TKS_REQUEST, TKS_H2_SETTINGS, 0, 0, B("\0\4\0\x10\0\0"));
	frame(s, TKS_RESPONSE, TKS_H2_SETTINGS, 0, 0, "", 0);
}

static struct story *new_connection(void)
{
	struct story *s = new_story();

	preface(s);
	return s;
}

/* A request of one HEADERS frame, and what it is to give. */
static void request(struct story *s, uint8_t flags, uint32_t stream, const void *block, size_t n,
		    const char *says)
{
	headers(s, TKS_REQUEST, flags, stream, block, n);
	want(s, "%u > begin @A", stream);
	want(s, "%u > head @A-@Z %s", stream, says);
	if (flags & END_STREAM)
		want(s, "%u > end @Z complete", stream);
}

static void response(struct story *s, uint8_t flags, uint32_t stream, const void *block, size_t n,
		     const char *says)
{
	headers(s, TKS_RESPONSE, flags, stream, block, n);
	want(s, "%u < head @A-@Z %s", stream, says);
	if (flags & END_STREAM)
		want(s, "%u < end @Z complete", stream);
}

static void get(struct story *s, uint32_t stream)
{
	request(s, END_STREAM, stream, B(GET), "GET /");
}

/* DATA that is to be told. */
static void body(struct story *s, enum tks_side side, uint8_t flags, uint32_t stream,
		 const char *text)
{
	data(s, side, flags, stream, text);
	if (*text)
		want(s, "%u %c body @C: %s", stream, arrow(side), text);
	if (flags & END_STREAM)
		want(s, "%u %c end @Z complete", stream, arrow(side));
}

static void ok(struct story *s, uint32_t stream)
{
	response(s, 0, stream, B(STATUS_200), "200");
	body(s, TKS_RESPONSE, END_STREAM, stream, "ok");
}

/* --- feeding --- */

static int feed_slice(struct tks_http2 *h, enum tks_side side, const uint8_t *p, size_t n,
		      uint64_t off)
{
	uint8_t *copy = malloc(n ? n : 1);
	struct tks_slice in = { copy, n, off };
	int err;

	assert_non_null(copy);
	memcpy(copy, p, n);
	err = tks_http2_feed(h, side, &in);
	free(copy);
	return err;
}

static int feed(struct tks_http2 *h, const struct story *s, enum tks_side side, size_t at, size_t n)
{
	return n ? feed_slice(h, side, s->bytes[side] + at, n, base[side] + at) : 0;
}

static struct tks_http2 *begin(struct tks_mem *mem, const struct story *s, struct log *l)
{
	struct tks_http2 *h;

	l->story = s;
	h = tks_http2_new(mem, &ops, l);
	if (h && s->start)
		s->start(h);
	return h;
}

enum { WHOLE = 0, FRAMES = -1, BYTEWISE = -2 };

/* The pieces joined as long as the side is the same. */
static struct piece joined(const struct story *s, size_t *i, int cut)
{
	struct piece p = s->pieces[(*i)++];

	while (cut >= 0 && *i < s->npieces && s->pieces[*i].side == p.side)
		p.n += s->pieces[(*i)++].n;
	return p;
}

/* All of it; cut > 0: in two at that octet of both sides' together. The first error. */
static int tell(struct tks_http2 *h, const struct story *s, int cut)
{
	size_t done = 0;
	int err = 0;

	for (size_t i = 0; i < s->npieces;) {
		struct piece p = joined(s, &i, cut);
		size_t k = cut == BYTEWISE ? 1 : p.n;

		if (cut > 0 && (size_t)cut > done && (size_t)cut < done + p.n)
			k = (size_t)cut - done;
		done += p.n;
		err = feed(h, s, p.side, p.at, k) ?: err;
		for (size_t j = k; j < p.n; j += k) {
			k = cut == BYTEWISE ? 1 : p.n - j;
			err = feed(h, s, p.side, p.at + j, k) ?: err;
		}
	}
	return err;
}

static void run(const struct story *s, int cut)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct log *l = calloc(1, sizeof(*l));
	struct tks_http2 *h;

	assert_non_null(l);
	h = begin(&mem, s, l);
	assert_non_null(h);
	assert_int_equal(tell(h, s, cut), 0);
	assert_string_equal(l->text, s->want);
	tks_http2_free(h);
	assert_int_equal(mem.used, 0);
	free(l);
}

/* Gives what it is to give, however it is cut. */
static void check(struct story *s)
{
	int n = (int)(s->n[0] + s->n[1]);

	run(s, WHOLE);
	run(s, FRAMES);
	run(s, BYTEWISE);
	for (int cut = 1; cut < n; cut++)
		run(s, cut);
	free(s);
}

/* Where a frame is looked for at the start of a slice it can't be cut at will. */
static void check_frames(struct story *s)
{
	run(s, FRAMES);
	free(s);
}

/* Up to the last piece it gives what it is to give; in that one it is no HTTP/2. */
static void check_bad(struct story *s)
{
	const struct piece *p = &s->pieces[s->npieces - 1];

	for (size_t k = 1; k <= p->n + 1; k++) {
		struct tks_mem mem = TKS_MEM_INIT(0);
		struct log *l = calloc(1, sizeof(*l));
		struct tks_http2 *h = begin(&mem, s, l);
		size_t step = k > p->n ? 1 : k;
		int err = 0;

		assert_non_null(h);
		s->npieces--;
		assert_int_equal(tell(h, s, FRAMES), 0);
		s->npieces++;
		for (size_t i = 0; i < p->n && !err; i += step) {
			step = k > p->n ? 1 : i ? p->n - i : k;
			err = feed(h, s, p->side, p->at + i, step);
		}
		assert_int_equal(err, -EBADMSG);
		l->text[s->nwant] = 0; /* that something is lost may be told */
		assert_string_equal(l->text, s->want);
		tks_http2_free(h);
		assert_int_equal(mem.used, 0);
		free(l);
	}
	free(s);
}

/* --- header blocks: RFC 7541, appendix C --- */

/* C.3: requests without Huffman codes. */
static void test_rfc_c3(void **state)
{
	struct story *s = new_connection();

	(void)state;
	request(s, END_STREAM, 1, B("\x82\x86\x84\x41\x0fwww.example.com"), "GET /");
	request(s, END_STREAM, 3, B("\x82\x86\x84\xbe\x58\x08no-cache"), "GET /");
	request(s, END_STREAM, 5,
		B("\x82\x87\x85\xbf\x40\x0a"
		  "custom-key"
		  "\x0c"
		  "custom-value"),
		"GET /index.html");
	check(s);
}

/* C.4: the same with. */
static void test_rfc_c4(void **state)
{
	struct story *s = new_connection();

	(void)state;
	request(s, END_STREAM, 1,
		B("\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"), "GET /");
	request(s, END_STREAM, 3, B("\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf"), "GET /");
	request(s, END_STREAM, 5,
		B("\x82\x87\x85\xbf\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b"
		  "\xb8\xe8\xb4\xbf"),
		"GET /index.html");
	check(s);
}

/* C.2.2: a literal that is not indexed. */
static void test_rfc_c2(void **state)
{
	struct story *s = new_connection();

	(void)state;
	request(s, END_STREAM, 1, B("\x82\x04\x0c/sample/path"), "GET /sample/path");
	check(s);
}

/* C.5: responses, a table of 256 octets (told in the block, as section 4.2 has it) and evictions.
 * Behind the third the table has set-cookie, content-encoding and the later date. */
static struct story *c5(void)
{
	struct story *s = new_connection();

	get(s, 1);
	response(s, END_STREAM, 1,
		 B("\x3f\xe1\x01\x48\x03\x33\x30\x32\x58\x07private\x61\x1dMon, 21 Oct 2013 "
		   "20:13:21 GMT\x6e\x17https://www.example.com"),
		 "302");
	get(s, 3);
	response(s, END_STREAM, 3, B("\x48\x03\x33\x30\x37\xc1\xc0\xbf"), "307");
	get(s, 5);
	response(s, END_STREAM, 5,
		 B("\x88\xc1\x61\x1dMon, 21 Oct 2013 20:13:22 GMT\xc0\x5a\x04gzip\x77\x38"
		   "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
		 "200 coding=gzip");
	get(s, 7);
	response(s, END_STREAM, 7, B("\x88\xbf"), "200 coding=gzip");
	get(s, 9);
	return s;
}

static void test_rfc_c5(void **state)
{
	struct story *s = c5();

	(void)state;
	/* 64: the date, the table's oldest. */
	response(s, END_STREAM, 9, B("\x88\xc0\xbf"), "200 coding=gzip");
	check(s);
	/* 65 is evicted: what it says nobody knows. */
	s = c5();
	response(s, END_STREAM, 9, B("\x88\xc1\xbf"), "200 unknowable");
	check(s);
}

/* C.6: the same with Huffman codes. */
static void test_rfc_c6(void **state)
{
	struct story *s = new_connection();

	(void)state;
	get(s, 1);
	response(
		s, END_STREAM, 1,
		B("\x3f\xe1\x01\x48\x82\x64\x02\x58\x85\xae\xc3\x77\x1a\x4b\x61\x96\xd0\x7a\xbe\x94"
		  "\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff\x6e\x91"
		  "\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\x43\xd3"),
		"302");
	get(s, 3);
	response(s, END_STREAM, 3, B("\x48\x83\x64\x0e\xff\xc1\xc0\xbf"), "307");
	get(s, 5);
	response(
		s, END_STREAM, 5,
		B("\x88\xc1\x61\x96\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66"
		  "\xe0\x84\xa6\x2d\x1b\xff\xc0\x5a\x83\x9b\xd9\xab\x77\xad\x94\xe7\x82\x1d\xd7\xf2"
		  "\xe6\xc7\xb3\x35\xdf\xdf\xcd\x5b\x39\x60\xd5\xaf\x27\x08\x7f\x36\x72\xc1\xab\x27"
		  "\x0f\xb5\x29\x1f\x95\x87\x31\x60\x65\xc0\x03\xed\x4e\xe5\xb1\x06\x3d\x50\x07"),
		"200 coding=gzip");
	get(s, 7);
	response(s, END_STREAM, 7, B("\x88\xbf"), "200 coding=gzip");
	check(s);
}

/* What is kept of a head, by name and by reference. */
static void test_fields(void **state)
{
	struct story *s = new_connection();

	(void)state;
	get(s, 1);
	/* content-type (31), content-encoding (26), server (54), content-length (28), and names
	 * that are in no table. */
	response(
		s, END_STREAM, 1,
		B("\x88\x5f\x1dText/Event-Stream;charset=x-y\x5a\x02"
		  "BR"
		  "\x76\x07uvicorn\x5c\x02"
		  "12"
		  "\x40\x0dgrpc-encoding\x04gzip"),
		"200 type=text/event-stream coding=br server=uvicorn grpc-encoding=gzip length=12");
	get(s, 3);
	response(s, END_STREAM, 3,
		 B("\x88\xc2\xbf\x40\x13x-dynamo-request-id\x01"
		   "1"),
		 "200 type=text/event-stream product=dynamo length=12");
	check(s);
}

/* Values that don't fit are cut, and said to be. */
static void test_long_fields(void **state)
{
	struct story *s = new_connection();
	char block[512] = "\x83\x86\x04\x7f\xd9\x01", says[512];
	char path[300];

	(void)state;
	/* 127 + 0x59 + 128 = 344 octets of a path. */
	memset(block + 6, 'p', 344);
	memset(path, 'p', 255);
	path[255] = 0;
	snprintf(says, sizeof(says), "POST %s truncated", path);
	request(s, END_STREAM, 1, block, 6 + 344, says);
	request(s, END_STREAM, 3,
		B("\x02\x13"
		  "ABCDEFGHIJKLMNOPQRS"
		  "\x84"),
		"ABCDEFGHIJKLMNO / truncated");
	get(s, 5);
	/* A status that is none, one of four digits, and the second of a name. */
	response(s, END_STREAM, 5,
		 B("\x08\x03"
		   "2x0"),
		 "0");
	get(s, 7);
	response(s, END_STREAM, 7,
		 B("\x08\x04"
		   "2000"),
		 "0");
	get(s, 9);
	response(s, END_STREAM, 9, B("\x88\x8d"), "200");
	check(s);
}

/* An entry that is larger than the table empties it (section 4.4), and isn't put in. */
static void test_too_large_an_entry(void **state)
{
	struct story *s = new_connection();
	char block[128] = "\x88\x40\x01y\x40";

	(void)state;
	get(s, 1);
	/* A table of 31 + 33 = 64. */
	response(s, END_STREAM, 1, B("\x3f\x21\x88\x5a\x04gzip"), "200 coding=gzip");
	get(s, 3);
	response(s, END_STREAM, 3, B("\x88\xbe"), "200 coding=gzip");
	/* 1 + 64 + 32 = 97 octets. */
	get(s, 5);
	memset(block + 5, 'v', 64);
	response(s, END_STREAM, 5, block, 5 + 64, "200");
	get(s, 7);
	response(s, END_STREAM, 7, B("\x88\xbe"), "200 unknowable");
	check(s);
}

/* --- frames --- */

static void test_padding(void **state)
{
	struct story *s = new_connection();

	(void)state;
	/* With HEADERS: padding, priority, both. */
	request(s, PADDED | END_STREAM, 1, B("\x03" GET "\0\0\0"), "GET /");
	request(s, PRIORITY | END_STREAM, 3, B("\x80\0\0\1\x10" GET), "GET /");
	request(s, PADDED | PRIORITY, 5, B("\x01\0\0\0\3\xff" GET "\0"), "GET /");
	request(s, PADDED, 7, B("\0" GET), "GET /");
	frame(s, REQ, TKS_H2_DATA, PADDED, 5,
	      B("\x04"
		"abc"
		"\0\0\0\0"));
	want(s, "5 > body @C: abc");
	frame(s, REQ, TKS_H2_DATA, PADDED, 5,
	      B("\x00"
		"de"));
	want(s, "5 > body @C: de");
	/* All padding: the most there can be. */
	frame(s, REQ, TKS_H2_DATA, PADDED, 5, B("\x03\0\0\0"));
	frame(s, REQ, TKS_H2_DATA, PADDED, 5, B("\0"));
	frame(s, REQ, TKS_H2_DATA, PADDED | END_STREAM, 5,
	      B("\x02"
		"f"
		"\0\0"));
	want(s, "5 > body @C: f");
	want(s, "5 > end @Z complete");
	frame(s, REQ, TKS_H2_DATA, PADDED | END_STREAM, 7, B("\x01\0"));
	want(s, "7 > end @Z complete");
	response(s, PADDED | END_STREAM, 1, B("\x02" STATUS_200 "\0\0"), "200");
	ok(s, 3);
	ok(s, 5);
	ok(s, 7);
	check(s);
}

/* Padding that is as long as the payload or longer (sections 6.1 and 6.2). */
static void test_too_much_padding(void **state)
{
	static const struct {
		uint8_t type, flags;
		const char *payload;
		size_t n;
	} bad[] = {
		{ TKS_H2_DATA, PADDED, B("\x01") },
		{ TKS_H2_DATA, PADDED,
		  B("\x04"
		    "abc") },
		{ TKS_H2_DATA, PADDED,
		  B("\xff"
		    "abc") },
		{ TKS_H2_HEADERS, PADDED | END_HEADERS, B("\x04" GET) },
		{ TKS_H2_HEADERS, PADDED | PRIORITY | END_HEADERS, B("\x04\0\0\0\1\1" GET) },
		{ TKS_H2_HEADERS, PADDED | PRIORITY, B("\x01\0\0\0\1\1") },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct story *s = new_connection();

		request(s, 0, 1, B(POST_X), "POST /x");
		frame(s, REQ, bad[i].type, bad[i].flags, bad[i].type == TKS_H2_DATA ? 1 : 3,
		      bad[i].payload, bad[i].n);
		if (bad[i].type == TKS_H2_HEADERS)
			want(s, "3 > begin @A");
		check_bad(s);
	}
}

/* Sizes and stream numbers that section 6 calls an error of the connection. */
static void test_bad_frames(void **state)
{
	static const struct {
		uint8_t type, flags;
		uint32_t stream;
		size_t n;
	} bad[] = {
		{ TKS_H2_DATA, 0, 0, 1 },
		{ TKS_H2_DATA, PADDED, 1, 0 },
		{ TKS_H2_HEADERS, END_HEADERS, 0, 3 },
		{ TKS_H2_HEADERS, PRIORITY, 3, 4 },
		{ TKS_H2_HEADERS, PRIORITY | PADDED, 3, 5 },
		{ TKS_H2_PRIORITY, 0, 1, 4 },
		{ TKS_H2_PRIORITY, 0, 0, 5 },
		{ TKS_H2_RST_STREAM, 0, 1, 3 },
		{ TKS_H2_RST_STREAM, 0, 1, 5 },
		{ TKS_H2_RST_STREAM, 0, 0, 4 },
		{ TKS_H2_SETTINGS, 0, 0, 5 },
		{ TKS_H2_SETTINGS, 0, 0, 7 },
		{ TKS_H2_SETTINGS, 0, 1, 6 },
		{ TKS_H2_PUSH_PROMISE, 0, 1, 3 },
		{ TKS_H2_PUSH_PROMISE, PADDED, 1, 4 },
		{ TKS_H2_PUSH_PROMISE, 0, 0, 4 },
		{ TKS_H2_PING, 0, 0, 7 },
		{ TKS_H2_PING, 0, 0, 9 },
		{ TKS_H2_PING, 0, 1, 8 },
		{ TKS_H2_GOAWAY, 0, 0, 7 },
		{ TKS_H2_GOAWAY, 0, 1, 8 },
		{ TKS_H2_WINDOW_UPDATE, 0, 1, 3 },
		{ TKS_H2_WINDOW_UPDATE, 0, 0, 5 },
		{ TKS_H2_CONTINUATION, 0, 0, 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct story *s = new_connection();

		request(s, 0, 1, B(POST_X), "POST /x");
		frame(s, REQ, bad[i].type, bad[i].flags, bad[i].stream, "\0\0\0\0\0\0\0\0\0",
		      bad[i].n);
		check_bad(s);
	}
}

/* Any octet of the preface that is another. */
static void test_bad_preface(void **state)
{
	(void)state;
	for (size_t i = 0; i < TKS_H2_PREFACE; i++) {
		struct story *s = new_story();

		put(s, REQ, tks_h2_preface, TKS_H2_PREFACE);
		s->bytes[REQ][i] ^= 0x20;
		check_bad(s);
	}
}

static void test_continuation(void **state)
{
	struct story *s = new_connection();
	uint64_t first;

	(void)state;
	frame(s, REQ, TKS_H2_HEADERS, 0, 1, B("\x83\x86\x04\x03/"));
	first = s->first;
	want(s, "1 > begin @A");
	frame(s, REQ, TKS_H2_CONTINUATION, 0, 1, B("a"));
	frame(s, REQ, TKS_H2_CONTINUATION, 0, 1, "", 0);
	frame(s, REQ, TKS_H2_CONTINUATION, END_HEADERS, 1, B("b"));
	want(s, "1 > head %" PRIu64 "-@Z POST /ab", first);
	body(s, REQ, END_STREAM, 1, "x");
	/* Nothing in HEADERS; END_STREAM, that counts when the block has ended; padding. */
	frame(s, REQ, TKS_H2_HEADERS, END_STREAM, 3, "", 0);
	first = s->first;
	want(s, "3 > begin @A");
	frame(s, REQ, TKS_H2_CONTINUATION, END_HEADERS, 3, B(GET));
	want(s, "3 > head %" PRIu64 "-@Z GET /", first);
	want(s, "3 > end @Z complete");
	frame(s, REQ, TKS_H2_HEADERS, END_STREAM | PADDED | PRIORITY, 5,
	      B("\x02\0\0\0\0\x07\x82\0\0"));
	first = s->first;
	want(s, "5 > begin @A");
	frame(s, REQ, TKS_H2_CONTINUATION, 0, 5, B("\x86"));
	frame(s, REQ, TKS_H2_CONTINUATION, END_HEADERS, 5, B("\x84"));
	want(s, "5 > head %" PRIu64 "-@Z GET /", first);
	want(s, "5 > end @Z complete");
	frame(s, RESP, TKS_H2_HEADERS, 0, 1,
	      B("\x88\x5f\x05"
		"te"));
	first = s->first;
	frame(s, RESP, TKS_H2_CONTINUATION, END_HEADERS, 1, B("x/y"));
	want(s, "1 < head %" PRIu64 "-@Z 200 type=tex/y", first);
	body(s, RESP, END_STREAM, 1, "");
	check(s);
}

/* Another frame within a block is an error: what the block says, and adds to the table, isn't
 * known. What does not refer to it is. */
static void interrupted(uint8_t type, uint32_t stream, const char *payload, size_t n)
{
	struct story *s = new_connection();

	get(s, 1);
	get(s, 3);
	get(s, 5);
	response(s, 0, 1, B("\x88\x5a\x04gzip"), "200 coding=gzip");
	frame(s, RESP, TKS_H2_HEADERS, 0, 3,
	      B("\x88\x5f\x03"
		"a/"));
	frame(s, RESP, type, 0, stream, payload, n);
	if (type == TKS_H2_DATA)
		want(s, "1 < body @C: %.*s", (int)n, payload);
	frame(s, RESP, TKS_H2_CONTINUATION, END_HEADERS, 3, B("b"));
	response(s, 0, 5,
		 B("\x88\xbe\x5f\x03"
		   "c/d"),
		 "200 type=c/d unknowable");
	body(s, RESP, END_STREAM, 5, "five");
	body(s, RESP, END_STREAM, 1, "one");
	get(s, 7);
	response(s, END_STREAM, 7, B("\x88\xbe"), "200 type=c/d");
	check(s);
}

static void test_continuation_interrupted(void **state)
{
	(void)state;
	interrupted(TKS_H2_PING, 0, B("pingpong"));
	interrupted(TKS_H2_DATA, 1, B("data"));
	interrupted(TKS_H2_CONTINUATION, 1, B("b"));
	interrupted(TKS_H2_WINDOW_UPDATE, 0, B("\0\0\0\1"));
	interrupted(0x42, 3, B("unknown"));
}

/* Frames that say nothing of messages, known and unknown, in both directions and anywhere between
 * others. */
static void other_frames(struct story *s, enum tks_side side)
{
	frame(s, side, TKS_H2_SETTINGS, 1, 0, "", 0);
	frame(s, side, TKS_H2_SETTINGS, 0, 0, B("\0\1\0\0\x10\0\0\5\0\0\x40\0"));
	frame(s, side, TKS_H2_PING, 0, 0, B("\0\0\1\1\5\0\0\0"));
	frame(s, side, TKS_H2_PING, 1, 0, B("\0\0\1\1\5\0\0\0"));
	frame(s, side, TKS_H2_WINDOW_UPDATE, 0, 0, B("\0\1\0\0"));
	frame(s, side, TKS_H2_WINDOW_UPDATE, 0, 1, B("\0\1\0\0"));
	frame(s, side, TKS_H2_PRIORITY, 0, 1, B("\0\0\0\3\x0f"));
	frame(s, side, 0x0a, 0xff, 0, B("\0\0h2=\":443\"")); /* ALTSVC */
	frame(s, side, 0x10, 0, 0, B("\0\0\0\1u=1")); /* PRIORITY_UPDATE */
	frame(s, side, 0xff, 0xff, 1, "", 0);
	frame(s, side, TKS_H2_GOAWAY, 0, 0, B("\0\0\0\7\0\0\0\0bye"));
}

static void test_other_frames(void **state)
{
	struct story *s = new_connection();

	(void)state;
	other_frames(s, REQ);
	request(s, 0, 1, B(POST_X), "POST /x");
	other_frames(s, REQ);
	body(s, REQ, 0, 1, "abc");
	other_frames(s, RESP);
	response(s, 0, 1, B(STATUS_200), "200");
	other_frames(s, REQ);
	body(s, REQ, END_STREAM, 1, "def");
	other_frames(s, RESP);
	body(s, RESP, 0, 1, "ghi");
	other_frames(s, RESP);
	body(s, RESP, END_STREAM, 1, "jkl");
	other_frames(s, RESP);
	get(s, 3);
	ok(s, 3);
	run(s, WHOLE);
	run(s, FRAMES);
	run(s, BYTEWISE);
	free(s);
}

static void test_interleaved(void **state)
{
	struct story *s = new_connection();

	(void)state;
	request(s, 0, 1, B(POST_X), "POST /x");
	request(s, 0, 3, B("\x83\x86\x44\x02/y"), "POST /y");
	body(s, REQ, 0, 1, "a1");
	body(s, REQ, 0, 3, "b1");
	response(s, 0, 3, B(STATUS_200), "200");
	body(s, REQ, END_STREAM, 1, "a2");
	body(s, RESP, 0, 3, "B1");
	request(s, END_STREAM, 5, B("\x82\x86\xbe"), "GET /y");
	response(s, 0, 1, B("\x8d"), "404");
	body(s, RESP, 0, 1, "A1");
	body(s, RESP, 0, 3, "B2");
	body(s, REQ, END_STREAM, 3, "");
	response(s, END_STREAM, 5, B("\x89"), "204");
	body(s, RESP, 0, 1, "A2");
	body(s, RESP, 0, 1, "A3");
	/* A response may be whole before its request is. */
	request(s, 0, 7, B(POST_X), "POST /x");
	response(s, END_STREAM, 7, B("\x8c"), "400");
	body(s, REQ, 0, 7, "late");
	body(s, RESP, END_STREAM, 3, "B3");
	body(s, RESP, END_STREAM, 1, "A4");
	body(s, REQ, END_STREAM, 7, "");
	/* Of streams that are whole nothing more is told. */
	data(s, RESP, 0, 1, "no");
	data(s, RESP, END_STREAM, 3, "no");
	data(s, REQ, 0, 7, "no");
	headers(s, RESP, END_STREAM, 5, B(STATUS_200));
	frame(s, RESP, TKS_H2_RST_STREAM, 0, 1, B("\0\0\0\2"));
	check(s);
}

static void test_trailers(void **state)
{
	struct story *s = new_connection();

	(void)state;
	request(s, 0, 1, B("\x83\x86\x04\x02/g" TYPE_GRPC), "POST /g type=application/grpc");
	body(s, REQ, 0, 1, "x");
	/* A request's trailers are not told of. */
	headers(s, REQ, END_STREAM, 1, B("\x00\x01t\x01v"));
	want(s, "1 > end @Z complete");
	response(s, 0, 1, B(STATUS_200 TYPE_GRPC), "200 type=application/grpc");
	body(s, RESP, 0, 1, "y");
	headers(s, RESP, END_STREAM, 1, B(GRPC_STATUS "0"));
	want(s, "1 < trailers @A-@Z grpc-status=0");
	want(s, "1 < end @Z complete");
	/* Trailers only; behind no body; by CONTINUATION; of two digits by reference. */
	get(s, 3);
	response(s, END_STREAM, 3,
		 B(STATUS_200 "\x40\x0bgrpc-status\x02"
			      "14"),
		 "200 grpc-status=14");
	get(s, 5);
	response(s, 0, 5, B(STATUS_200), "200");
	frame(s, RESP, TKS_H2_HEADERS, END_STREAM, 5, "", 0);
	frame(s, RESP, TKS_H2_CONTINUATION, END_HEADERS, 5, B("\xbe"));
	want(s, "5 < trailers %zu-@Z grpc-status=14", (size_t)s->first - 9);
	want(s, "5 < end @Z complete");
	check(s);
}

static void test_interim(void **state)
{
	struct story *s = new_connection();

	(void)state;
	request(s, 0, 1, B(POST_X), "POST /x");
	headers(s, RESP, 0, 1, B(STATUS_100));
	body(s, REQ, END_STREAM, 1, "abc");
	/* 103, whose fields are no later head's, but whose entries are. */
	headers(s, RESP, 0, 1,
		B("\x08\x03"
		  "103"
		  "\x5a\x04gzip"));
	headers(s, RESP, 0, 1,
		B("\x08\x03"
		  "199"));
	response(s, 0, 1, B(STATUS_200), "200");
	body(s, RESP, END_STREAM, 1, "x");
	get(s, 3);
	response(s, END_STREAM, 3, B("\x88\xbe"), "200 coding=gzip");
	check(s);
}

static void test_push(void **state)
{
	struct story *s = new_connection();

	(void)state;
	get(s, 1);
	frame(s, RESP, TKS_H2_PUSH_PROMISE, END_HEADERS, 1, B("\0\0\0\2\x82\x86\x84\x5a\x04gzip"));
	frame(s, RESP, TKS_H2_PUSH_PROMISE, PADDED, 1, B("\x02\0\0\0\4\x82\x86\x84\0\0"));
	frame(s, RESP, TKS_H2_CONTINUATION, END_HEADERS, 1,
	      B("\x5f\x03"
		"a/b"));
	response(s, 0, 1, B("\x88\xbf"), "200 coding=gzip");
	/* What was pushed. */
	headers(s, RESP, 0, 2, B("\x88\x76\x01s"));
	data(s, RESP, END_STREAM, 2, "pushed");
	body(s, RESP, END_STREAM, 1, "asked");
	get(s, 3);
	response(s, END_STREAM, 3, B("\x88\xbe\xbf\xc0"), "200 type=a/b coding=gzip server=s");
	check(s);
}

/* --- streams --- */

static void test_stream_numbers(void **state)
{
	struct story *s = new_connection();

	(void)state;
	/* Not opened by anybody. */
	headers(s, RESP, 0, 1, B("\x88\x5a\x04gzip"));
	data(s, RESP, END_STREAM, 1, "no");
	data(s, REQ, 0, 3, "no");
	frame(s, REQ, TKS_H2_RST_STREAM, 0, 3, B("\0\0\0\x08"));
	get(s, 5);
	/* Lower than one that was opened, or even. */
	headers(s, REQ, END_STREAM, 3, B("\x82\x86\x44\x02/z"));
	headers(s, RESP, END_STREAM, 3, B(STATUS_200));
	headers(s, REQ, 0, 6, B(GET));
	data(s, REQ, END_STREAM, 6, "no");
	/* The tables are kept all the same. */
	response(s, END_STREAM, 5, B("\x88\xbe"), "200 coding=gzip");
	request(s, END_STREAM, 7, B("\x82\x86\xbe"), "GET /z");
	/* The bit before a number says nothing (section 4.1); the highest number. */
	headers(s, REQ, END_STREAM, 9 | 0x80000000u, B(GET));
	want(s, "9 > begin @A");
	want(s, "9 > head @A-@Z GET /");
	want(s, "9 > end @Z complete");
	headers(s, RESP, 0, 9 | 0x80000000u, B(STATUS_200));
	want(s, "9 < head @A-@Z 200");
	data(s, RESP, END_STREAM, 9 | 0x80000000u, "yes");
	want(s, "9 < body @C: yes");
	want(s, "9 < end @Z complete");
	get(s, 0x7fffffff);
	ok(s, 0x7fffffff);
	/* A number is used once (section 5.1.1). */
	headers(s, REQ, END_STREAM, 0x7fffffff, B(GET));
	ok(s, 7);
	check(s);
}

static void rst(struct story *s, enum tks_side side, uint32_t stream, uint8_t code)
{
	uint8_t payload[4] = { 0, 0, 0, code };

	frame(s, side, TKS_H2_RST_STREAM, 0, stream, payload, 4);
}

static void test_reset(void **state)
{
	struct story *s = new_connection();

	(void)state;
	/* By the client: before any response, and within one. */
	get(s, 1);
	rst(s, REQ, 1, 8);
	want(s, "1 > reset 8");
	want(s, "1 < end @Z cut");
	request(s, 0, 3, B(POST_X), "POST /x");
	body(s, REQ, 0, 3, "abc");
	response(s, 0, 3, B(STATUS_200), "200");
	body(s, RESP, 0, 3, "def");
	rst(s, REQ, 3, 0);
	want(s, "3 > reset 0");
	want(s, "3 > end @Z cut");
	want(s, "3 < end @Z cut");
	/* By the server. */
	request(s, 0, 5, B(POST_X), "POST /x");
	rst(s, RESP, 5, 7);
	want(s, "5 < reset 7");
	want(s, "5 > end @Z cut");
	want(s, "5 < end @Z cut");
	get(s, 7);
	response(s, 0, 7, B("\x88\x5a\x04gzip"), "200 coding=gzip");
	rst(s, RESP, 7, 2);
	want(s, "7 < reset 2");
	want(s, "7 < end @Z cut");
	/* Behind a whole response. */
	request(s, 0, 9, B(POST_X), "POST /x");
	response(s, 0, 9, B(STATUS_200), "200");
	body(s, RESP, END_STREAM, 9, "no more");
	rst(s, RESP, 9, 0);
	want(s, "9 > end @Z cut");
	request(s, 0, 11, B(POST_X), "POST /x");
	response(s, END_STREAM, 11, B(STATUS_200), "200");
	rst(s, RESP, 11, 8);
	want(s, "11 < reset 8");
	want(s, "11 > end @Z cut");
	/* Nothing more is told of any, twice is once, and tables go on. */
	rst(s, REQ, 1, 8);
	rst(s, RESP, 7, 8);
	data(s, RESP, END_STREAM, 3, "late");
	data(s, REQ, END_STREAM, 5, "late");
	headers(s, RESP, 0, 1,
		B("\x88\x5f\x03"
		  "a/b"));
	get(s, 13);
	response(s, END_STREAM, 13, B("\x88\xbe\xbf"), "200 type=a/b coding=gzip");
	check(s);
}

/* A code of all its four octets. */
static void test_reset_code(void **state)
{
	struct story *s = new_connection();

	(void)state;
	get(s, 1);
	frame(s, RESP, TKS_H2_RST_STREAM, 0, 1, B("\x12\x34\x56\x78"));
	want(s, "1 < reset 305419896");
	want(s, "1 < end @Z cut");
	check(s);
}

static void test_connect(void **state)
{
	struct story *s = new_connection();

	(void)state;
	/* :method is written out; :authority. */
	request(s, 0, 1,
		B("\x02\x07"
		  "CONNECT"
		  "\x01\x01"
		  "a"),
		"CONNECT -");
	response(s, 0, 1, B(STATUS_200), "200 upgrade");
	body(s, REQ, 0, 1, "up");
	body(s, RESP, 0, 1, "down");
	request(s, 0, 3,
		B("\x02\x07"
		  "CONNECT"
		  "\x01\x01"
		  "a"),
		"CONNECT -");
	response(s, END_STREAM, 3, B("\x8d"), "404");
	get(s, 5);
	ok(s, 5);
	check(s);
}

static void test_upgraded(void **state)
{
	struct story *s = new_story();

	(void)state;
	s->start = tks_http2_upgraded;
	frame(s, RESP, TKS_H2_SETTINGS, 0, 0, "", 0);
	/* Before the preface, and after. */
	response(s, 0, 1, B(STATUS_200), "200");
	put(s, REQ, tks_h2_preface, TKS_H2_PREFACE);
	frame(s, REQ, TKS_H2_SETTINGS, 0, 0, "", 0);
	/* It is half closed: nothing more can come of the request. */
	data(s, REQ, END_STREAM, 1, "no");
	headers(s, REQ, END_STREAM, 1, B(GET));
	get(s, 3);
	body(s, RESP, 0, 1, "one");
	ok(s, 3);
	body(s, RESP, END_STREAM, 1, "more");
	check(s);
	/* Refused by RST_STREAM. */
	s = new_story();
	s->start = tks_http2_upgraded;
	frame(s, RESP, TKS_H2_SETTINGS, 0, 0, "", 0);
	rst(s, RESP, 1, 7);
	want(s, "1 < reset 7");
	want(s, "1 < end @Z cut");
	check(s);
}

/* --- entered in the middle --- */

static void test_mid_stream(void **state)
{
	struct story *s = new_story();

	(void)state;
	s->start = tks_http2_mid_stream;
	data(s, REQ, 0, 5, "rest");
	want(s, "5 > head @A-@A - - resumed");
	want(s, "5 > body @C: rest");
	data(s, RESP, 0, 3, "token");
	want(s, "3 < head @A-@A 0 resumed");
	want(s, "3 < body @C: token");
	body(s, RESP, END_STREAM, 3, "last");
	body(s, REQ, END_STREAM, 5, "end");
	/* :method, :scheme by the static table, :path by what came before: unknown. */
	request(s, END_STREAM, 7, B("\x83\x86\xbe"), "POST - unknowable");
	/* The value is written out, the name came before. */
	request(s, END_STREAM, 9, B("\x83\x86\x04\x02/z\x7f\x05\x01v"), "POST /z unknowable");
	response(s, 0, 5, B("\xc0\xbf\xbe"), "0 unknowable");
	body(s, RESP, END_STREAM, 5, "five");
	/* What is put in now is known, and what isn't goes on being not. */
	response(s, 0, 7, B("\x88\x5a\x04gzip"), "200 coding=gzip");
	body(s, RESP, END_STREAM, 7, "seven");
	response(s, 0, 9,
		 B("\x88\xbe\x5f\x03"
		   "a/b"),
		 "200 type=a/b coding=gzip");
	body(s, RESP, 0, 9, "nine");
	headers(s, RESP, END_STREAM, 9, B("\xbf\xbe\xc0"));
	want(s, "9 < trailers @A-@Z type=a/b coding=gzip unknowable");
	want(s, "9 < end @Z complete");
	/* A table larger than the one by default: 62 + 200. */
	request(s, END_STREAM, 11, B("\x82\x86\x84\xff\x89\x01"), "GET / unknowable");
	request(s, END_STREAM, 13, B("\x82\x86\x44\x02/q"), "GET /q");
	request(s, END_STREAM, 15, B("\x82\x86\xff\x89\x01\xbe"), "GET /q unknowable");
	check_frames(s);
}

/* Where no frame begins nothing is told of. */
static void test_mid_stream_nothing(void **state)
{
	static const struct {
		const char *p;
		size_t n;
	} junk[] = {
		{ B("data: {\"x\":1}\n\n") },
		{ B("\0\0\4\0") }, /* too little */
		{ B("\0\0\4\0\0\0\0\0\0"
		    "abcd") }, /* DATA of stream 0 */
		{ B("\0\0\4\0\0\0\0\0\2"
		    "abcd") }, /* of an even one */
		{ B("\0\0\4\0\0\0\0\0\3"
		    "abcd\x16\x03\x03\0\0\0\0\0\0") }, /* none behind it */
		{ B("\0\0\4\x42\0\0\0\0\3"
		    "abcd") }, /* of a kind unknown */
		{ B("\0\0\4\0\x40\0\0\0\3"
		    "abcd") }, /* with a flag unknown */
		{ B("\0\0\7\6\0\0\0\0\0"
		    "pingpon") },
		{ B("GET / HTTP/1.1\r\n\r\n") },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(junk) / sizeof(junk[0]); i++) {
		for (int side = 0; side < 2; side++) {
			struct story *s = new_story();

			s->start = tks_http2_mid_stream;
			put(s, (enum tks_side)side, junk[i].p, junk[i].n);
			get(s, 7);
			ok(s, 7);
			check_frames(s);
		}
	}
}

/* Streams closed lately are not begun anew by what comes late of them. */
static void test_mid_stream_late(void **state)
{
	struct story *s = new_story();

	(void)state;
	s->start = tks_http2_mid_stream;
	get(s, 7);
	ok(s, 7);
	data(s, RESP, 0, 7, "late");
	rst(s, REQ, 7, 8);
	get(s, 9);
	rst(s, RESP, 9, 8);
	want(s, "9 < reset 8");
	want(s, "9 < end @Z cut");
	data(s, RESP, 0, 9, "late");
	headers(s, RESP, END_STREAM, 9, B(GRPC_STATUS "0"));
	/* One from before. */
	data(s, RESP, END_STREAM, 3, "late");
	want(s, "3 < head @A-@A 0 resumed");
	want(s, "3 < body @C: late");
	want(s, "3 < end @Z complete");
	check_frames(s);
}

/* --- gaps --- */

/* Tells the story without len octets of a side from at on; a gap of unknown length has no len. */
static void tell_without(struct tks_http2 *h, const struct story *s, enum tks_side side, size_t at,
			 size_t len, bool known)
{
	bool told = false;

	for (size_t i = 0; i < s->npieces; i++) {
		const struct piece *p = &s->pieces[i];
		size_t end = p->at + p->n, k, from;

		if (p->side != side || end <= at || (told && p->at >= at + len)) {
			feed(h, s, p->side, p->at, p->n);
			continue;
		}
		k = p->at < at ? at - p->at : 0;
		feed(h, s, side, p->at, k);
		if (!told)
			tks_http2_gap(h, side, base[side] + at, known ? len : 0);
		told = true;
		from = p->at > at + len ? p->at : at + len;
		if (from < end)
			feed(h, s, side, from, end - from);
	}
}

static void run_without(const struct story *s, enum tks_side side, size_t at, size_t len,
			bool known, struct log *l)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_http2 *h;

	memset(l, 0, sizeof(*l));
	h = begin(&mem, s, l);
	assert_non_null(h);
	tell_without(h, s, side, at, len, known);
	tks_http2_free(h);
	assert_int_equal(mem.used, 0);
}

/* Within DATA: that and nothing else is missing, and it is said what. */
static void gap_in_data(size_t at, size_t len, struct log *l)
{
	static const char text[] = "abcdef";
	struct story *s = new_connection();
	size_t n = sizeof(text) - 1, content;

	get(s, 1);
	get(s, 3);
	response(s, 0, 1, B("\x88\x5a\x04gzip"), "200 coding=gzip");
	frame(s, RESP, TKS_H2_DATA, PADDED | END_STREAM, 1,
	      B("\x02"
		"abcdef"
		"\0\0"));
	content = s->content;
	/* What is missing of the content; the two octets behind it are padding. */
	if (at)
		want(s, "1 < body @C: %.*s", (int)at, text);
	if (at < n)
		want(s, "1 < gap %zu+%zu", content + at, at + len < n ? len : n - at);
	if (at + len < n)
		want(s, "1 < body %zu: %s", content + at + len, text + at + len);
	want(s, "1 < end @Z complete");
	response(s, 0, 3, B("\x88\xbe"), "200 coding=gzip");
	body(s, RESP, END_STREAM, 3, "three");
	run_without(s, TKS_RESPONSE, content + at, len, true, l);
	/* One body is two calls, where the gap is in the padding and so on. */
	assert_string_equal(l->text, s->want);
	free(s);
}

static void test_gap_in_data(void **state)
{
	struct log *l = malloc(sizeof(*l));

	(void)state;
	assert_non_null(l);
	for (size_t at = 0; at < 8; at++) {
		for (size_t len = 1; at + len <= 8; len++)
			gap_in_data(at, len, l);
	}
	free(l);
}

/* Of frames that say nothing of messages. */
static void test_gap_in_others(void **state)
{
	struct log *l = malloc(sizeof(*l));

	(void)state;
	assert_non_null(l);
	for (size_t at = 0; at < 8; at++) {
		for (size_t len = 1; at + len <= 8; len++) {
			struct story *s = new_connection();
			size_t content;

			get(s, 1);
			response(s, 0, 1, B("\x88\x5a\x04gzip"), "200 coding=gzip");
			frame(s, RESP, TKS_H2_PING, 0, 0, B("pingpong"));
			content = s->content;
			body(s, RESP, END_STREAM, 1, "one");
			get(s, 3);
			response(s, END_STREAM, 3, B("\x88\xbe"), "200 coding=gzip");
			run_without(s, TKS_RESPONSE, content + at, len, true, l);
			assert_string_equal(l->text, s->want);
			free(s);
		}
	}
	free(l);
}

/* With the padding's length it is lost where the content ends. */
static void test_gap_in_padding_length(void **state)
{
	struct log *l = malloc(sizeof(*l));

	(void)state;
	assert_non_null(l);
	for (size_t len = 1; len <= 6; len++) {
		struct story *s = new_connection();

		get(s, 1);
		response(s, 0, 1, B(STATUS_200), "200");
		frame(s, RESP, TKS_H2_DATA, PADDED | END_STREAM, 1,
		      B("\x02"
			"abc"
			"\0\0"));
		/* Its own length has no say. */
		want(s, "1 < gap %" PRIu64 "+0", s->content - 1);
		want(s, "1 < end @Z complete");
		run_without(s, TKS_RESPONSE, s->content - 1, len, true, l);
		assert_string_equal(l->text, s->want);
		free(s);
	}
	free(l);
}

/* An octet of the code, or more: the code is not known, and is not any that there is. */
static void test_gap_in_reset(void **state)
{
	struct log *l = malloc(sizeof(*l));

	(void)state;
	assert_non_null(l);
	for (size_t at = 0; at < 4; at++) {
		for (size_t len = 1; at + len <= 4; len++) {
			struct story *s = new_connection();

			get(s, 1);
			rst(s, RESP, 1, 8);
			want(s, "1 < reset %u", UINT32_MAX);
			want(s, "1 < end @Z cut");
			get(s, 3);
			ok(s, 3);
			run_without(s, TKS_RESPONSE, s->n[RESP] - 9 - 2 - 9 - 1 - 4 + at, len, true,
				    l);
			assert_string_equal(l->text, s->want);
			free(s);
		}
	}
	free(l);
}

/* Of a header block: the head is told when it ends, and what it lacks is not known; so are later
 * references to what came before, and only those. */
static void test_gap_in_block(void **state)
{
	struct log *l = malloc(sizeof(*l));
	/* Octets of the block up to a field's end. */
	enum { AFTER_STATUS = 1, AFTER_CODING = 7, ALL = 12 };

	(void)state;
	assert_non_null(l);
	for (size_t at = 0; at < ALL; at++) {
		for (size_t len = 1; at + len <= ALL; len++) {
			struct story *s = new_connection();
			size_t content;
			char says[64];

			get(s, 1);
			get(s, 3);
			get(s, 5);
			snprintf(says, sizeof(says), "%s%s unknowable",
				 at < AFTER_STATUS ? "0" : "200",
				 at < AFTER_CODING ? "" : " coding=gzip");
			response(s, 0, 1,
				 B("\x88\x5a\x04gzip\x5f\x03"
				   "a/b"),
				 says);
			content = s->content;
			body(s, RESP, END_STREAM, 1, "one");
			response(s, 0, 3,
				 B("\x88\xbf\x76\x01"
				   "s"),
				 "200 server=s unknowable");
			body(s, RESP, END_STREAM, 3, "three");
			response(s, END_STREAM, 5, B("\x88\xbe"), "200 server=s");
			run_without(s, TKS_RESPONSE, content + at, len, true, l);
			assert_string_equal(l->text, s->want);
			free(s);
		}
	}
	free(l);
}

/* --- gaps anywhere --- */

/* Streams 1, 3 and 5, and 7, which refers to nothing. *tail: where 7 begins in what is wanted; of
 * each side in *last. */
static struct story *long_story(size_t *tail, size_t last[2])
{
	struct story *s = new_connection();

	request(s, 0, 1,
		B("\x83\x86\x44\x02/a\x5f\x03"
		  "q/1"),
		"POST /a type=q/1");
	body(s, REQ, 0, 1, "ask1");
	frame(s, REQ, TKS_H2_DATA, PADDED | END_STREAM, 1,
	      B("\x02"
		"ask2"
		"\0\0"));
	want(s, "1 > body @C: ask2");
	want(s, "1 > end @Z complete");
	headers(s, RESP, 0, 1,
		B("\x08\x03"
		  "103"
		  "\x76\x01z"));
	response(s, 0, 1,
		 B("\x88\x5a\x04gzip\x5f\x03"
		   "a/b"),
		 "200 type=a/b coding=gzip");
	frame(s, REQ, TKS_H2_WINDOW_UPDATE, 0, 0, B("\0\1\0\0"));
	request(s, END_STREAM, 3,
		B("\x82\x86\xbf\x50\x02"
		  "br"),
		"GET /a");
	body(s, RESP, 0, 1, "one");
	frame(s, RESP, TKS_H2_PING, 0, 0, B("pingpong"));
	response(s, 0, 3, B("\x8d\xbe\xbf"), "404 type=a/b coding=gzip");
	frame(s, RESP, TKS_H2_DATA, PADDED, 3,
	      B("\x03"
		"three"
		"\0\0\0"));
	want(s, "3 < body @C: three");
	frame(s, REQ, TKS_H2_HEADERS, 0, 5, B("\x83\x86"));
	want(s, "5 > begin @A");
	frame(s, REQ, TKS_H2_CONTINUATION, END_HEADERS, 5, B("\xc0\xbf"));
	want(s, "5 > head %zu-@Z POST /a type=q/1", (size_t)s->first - 11);
	body(s, RESP, 0, 1, "two");
	rst(s, REQ, 5, 8);
	want(s, "5 > reset 8");
	want(s, "5 > end @Z cut");
	want(s, "5 < end @Z cut");
	headers(s, RESP, END_STREAM, 1,
		B("\x40\x0bgrpc-status\x01"
		  "0"));
	want(s, "1 < trailers @A-@Z grpc-status=0");
	want(s, "1 < end @Z complete");
	rst(s, RESP, 3, 2);
	want(s, "3 < reset 2");
	want(s, "3 < end @Z cut");
	*tail = s->nwant;
	last[REQ] = s->n[REQ];
	last[RESP] = s->n[RESP];
	request(s, 0, 7, B(POST_X), "POST /x");
	body(s, REQ, END_STREAM, 7, "seven");
	response(s, 0, 7, B(STATUS_200 TYPE_GRPC), "200 type=application/grpc");
	body(s, RESP, 0, 7, "7777777");
	headers(s, RESP, END_STREAM, 7, B(GRPC_STATUS "5"));
	want(s, "7 < trailers @A-@Z grpc-status=5");
	want(s, "7 < end @Z complete");
	return s;
}

/* What is truly told of each stream and side, in one line: bodies are compared where they are told.
 */
struct truths {
	char of[8][2][512];
};

static enum tks_side side_of_line(const char *line)
{
	return line[2] == '>' ? TKS_REQUEST : TKS_RESPONSE;
}

static bool tells_value(const char *line)
{
	return strncmp(line + 4, "body ", 5) != 0 && strncmp(line + 4, "gap ", 4) != 0;
}

static void learn(struct truths *t, const char *text)
{
	char *copy = strdup(text), *save;

	assert_non_null(copy);
	memset(t, 0, sizeof(*t));
	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *of = t->of[*line - '0'][side_of_line(line)];
		size_t n = strlen(of);

		if (tells_value(line))
			snprintf(of + n, sizeof(t->of[0][0]) - n, " %s ", line);
	}
	free(copy);
}

static bool word_ok(const char *word, const char *truth)
{
	static const char *const unknown[] = { "-", "0", "unknowable", "4294967295" };
	char spaced[80];

	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		if (!strcmp(word, unknown[i]))
			return true;
	}
	snprintf(spaced, sizeof(spaced), " %s ", word);
	return strstr(truth, spaced) != NULL;
}

/* Each word of it is the truth's, or says that something is not known. */
static bool line_ok(const struct truths *t, char *line)
{
	const char *truth = t->of[(*line - '0') & 7][side_of_line(line)];
	const char *other = "";
	char *save, *word;
	unsigned int a, b;
	int end = 0;

	if (!tells_value(line))
		return true;
	/* A message whose own end was lost is cut by a reset that was not. */
	if (strstr(line, " cut"))
		truth = t->of[(*line - '0') & 7][REQ], other = t->of[(*line - '0') & 7][RESP];
	if (strstr(line, "resumed")) {
		sscanf(line,
		       line[2] == '>' ? "%*u > head %u-%u - - resumed%n"
				      : "%*u < head %u-%u 0 resumed%n",
		       &a, &b, &end);
		return end && !line[end] && a == b;
	}
	for (word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		if (!word_ok(word, truth) && !word_ok(word, other))
			return false;
	}
	return true;
}

/* Nothing that was told is wrong, and from the tail on all is there. */
static void judge(const struct truths *t, const struct story *s, size_t tail, struct log *l,
		  const char *what)
{
	const char *want_end = s->want + tail;
	size_t n = strlen(want_end);
	char *save;

	if (l->n < n || strcmp(l->text + l->n - n, want_end) != 0)
		fail_msg("%s: the last stream: %s", what, l->text);
	for (char *line = strtok_r(l->text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		char copy[600];

		snprintf(copy, sizeof(copy), "%s", line);
		if (!line_ok(t, copy))
			fail_msg("%s: wrong: %s", what, line);
	}
}

static void gaps_of(enum tks_side side)
{
	struct log *l = malloc(sizeof(*l));
	struct truths t;
	size_t tail, last[2];
	struct story *s = long_story(&tail, last);
	char what[64];

	assert_non_null(l);
	learn(&t, s->want);
	/* Of an interim response, that is not told of: without its status nobody knows that it is.
	 */
	strcat(t.of[1][TKS_RESPONSE], " 9-25 ");
	for (size_t at = 0; at < last[side]; at++) {
		for (size_t len = 1; at + len <= last[side]; len++) {
			snprintf(what, sizeof(what), "%c %zu+%zu", arrow(side), at, len);
			run_without(s, side, at, len, true, l);
			judge(&t, s, tail, l, what);
			if (len % 8 != 1)
				continue;
			run_without(s, side, at, len, false, l);
			judge(&t, s, tail, l, what);
		}
	}
	free(s);
	free(l);
}

static void test_gaps_of_requests(void **state)
{
	(void)state;
	gaps_of(TKS_REQUEST);
}

static void test_gaps_of_responses(void **state)
{
	(void)state;
	gaps_of(TKS_RESPONSE);
}

/* The story itself, without any gap. */
static void test_long_story(void **state)
{
	size_t tail, last[2];

	(void)state;
	check(long_story(&tail, last));
}

/* What is lost outside of a frame's payload may be any stream's. */
static void test_gap_of_any(void **state)
{
	struct log *l = malloc(sizeof(*l));
	struct story *s = new_connection();
	size_t at;

	(void)state;
	assert_non_null(l);
	get(s, 1);
	response(s, 0, 1, B(STATUS_200), "200");
	at = s->n[RESP];
	data(s, RESP, 0, 1, "lost");
	want(s, "0 < gap @A+0");
	body(s, RESP, END_STREAM, 1, "kept");
	run_without(s, TKS_RESPONSE, at, s->n[RESP] - at - 9 - 4, true, l);
	assert_string_equal(l->text, s->want);
	/* The rest of a frame is not: the next begins at once. */
	free(s);
	s = new_connection();
	get(s, 1);
	response(s, 0, 1, B(STATUS_200), "200");
	data(s, RESP, 0, 1, "half lost");
	want(s, "1 < body @C: half");
	want(s, "1 < gap %zu+5", (size_t)s->content + 4);
	at = s->content + 4;
	body(s, RESP, END_STREAM, 1, "kept");
	run_without(s, TKS_RESPONSE, at, 5, true, l);
	assert_string_equal(l->text, s->want);
	free(s);
	free(l);
}

/* What follows a frame that can't be is lost to streams that are open: they are told. */
static void test_bad_frame_loses(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct log *l = calloc(1, sizeof(*l));
	struct story *s = new_connection();
	struct tks_http2 *h;
	const struct piece *p;

	(void)state;
	assert_non_null(l);
	get(s, 1);
	response(s, 0, 1, B(STATUS_200), "200");
	frame(s, RESP, TKS_H2_PING, 0, 0, B("bad"));
	data(s, RESP, 0, 1, "lost");
	data(s, RESP, 0, 1, "kept");
	h = begin(&mem, s, l);
	assert_non_null(h);
	s->npieces -= 3;
	assert_int_equal(tell(h, s, FRAMES), 0);
	p = &s->pieces[s->npieces];
	assert_int_equal(feed(h, s, TKS_RESPONSE, p->at, p[0].n + p[1].n), -EBADMSG);
	assert_string_equal(strstr(l->text, "\n1 < head") ? "head" : "", "head");
	assert_int_equal(feed(h, s, TKS_RESPONSE, p[2].at, p[2].n), 0);
	assert_non_null(strstr(l->text, "kept"));
	assert_null(strstr(l->text, "lost"));
	if (!strstr(l->text, "\n0 < gap ") && !strstr(l->text, "\n1 < gap "))
		fail_msg("no gap told: %s", l->text);
	tks_http2_free(h);
	assert_int_equal(mem.used, 0);
	free(s);
	free(l);
}

/* --- the end --- */

static void test_eof(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct log *l = calloc(1, sizeof(*l));
	struct story *s = new_connection();
	struct tks_http2 *h;

	(void)state;
	assert_non_null(l);
	request(s, 0, 1, B(POST_X), "POST /x");
	get(s, 3);
	get(s, 5);
	request(s, 0, 7, B(POST_X), "POST /x");
	response(s, 0, 3, B(STATUS_200), "200");
	response(s, 0, 1, B(STATUS_200), "200");
	ok(s, 5);
	/* A block that isn't whole. */
	frame(s, REQ, TKS_H2_HEADERS, END_STREAM, 9, B(GET));
	want(s, "9 > begin @A");
	h = begin(&mem, s, l);
	assert_non_null(h);
	assert_int_equal(tell(h, s, WHOLE), 0);
	assert_string_equal(l->text, s->want);
	assert_int_equal(tks_http2_eof(h, TKS_REQUEST, base[REQ] + s->n[REQ]), 0);
	want(s, "1 > end @Z cut");
	want(s, "7 > end @Z cut");
	want(s, "9 > end @Z cut");
	assert_string_equal(l->text, s->want);
	assert_int_equal(tks_http2_eof(h, TKS_RESPONSE, base[RESP] + s->n[RESP]), 0);
	s->last = s->n[RESP] - 1;
	want(s, "1 < end @Z cut");
	want(s, "3 < end @Z cut");
	assert_string_equal(l->text, s->want);
	/* Once. */
	assert_int_equal(tks_http2_eof(h, TKS_RESPONSE, base[RESP] + s->n[RESP]), 0);
	assert_string_equal(l->text, s->want);
	tks_http2_free(h);
	assert_int_equal(mem.used, 0);
	free(s);
	free(l);
	tks_http2_free(NULL);
}

/* What a callback returns is returned, and the bytes are read on. */
static void test_callback_fails(void **state)
{
	struct story *s = new_connection();

	(void)state;
	request(s, 0, 1, B(POST_X), "POST /x");
	body(s, REQ, END_STREAM, 1, "abc");
	ok(s, 1);
	get(s, 3);
	ok(s, 3);
	for (int cut = WHOLE; cut >= BYTEWISE; cut--) {
		struct tks_mem mem = TKS_MEM_INIT(0);
		struct log *l = calloc(1, sizeof(*l));
		struct tks_http2 *h = begin(&mem, s, l);

		assert_non_null(h);
		l->fail = -ENOSPC;
		assert_int_equal(tell(h, s, cut), -ENOSPC);
		assert_string_equal(l->text, s->want);
		tks_http2_free(h);
		assert_int_equal(mem.used, 0);
		free(l);
	}
	free(s);
}

/* --- sniffing --- */

static void test_sniff(void **state)
{
	uint8_t first[] = "\0\0\x12\4\0\0\0\0\0\0\1\0\0\0\0";
	uint8_t text[TKS_H2_PREFACE + 9];

	(void)state;
	for (size_t n = 0; n <= TKS_H2_PREFACE; n++) {
		assert_int_equal(tks_http2_sniff(TKS_REQUEST, (const uint8_t *)tks_h2_preface, n),
				 n < TKS_H2_PREFACE ? -EAGAIN : 1);
		/* Each octet may be the first that is another. */
		memcpy(text, tks_h2_preface, TKS_H2_PREFACE);
		if (n < TKS_H2_PREFACE)
			text[n] ^= 1;
		for (size_t k = n + 1; k <= TKS_H2_PREFACE; k++)
			assert_int_equal(tks_http2_sniff(TKS_REQUEST, text, k), 0);
	}
	memset(text, 0xff, sizeof(text));
	memcpy(text, tks_h2_preface, TKS_H2_PREFACE);
	assert_int_equal(tks_http2_sniff(TKS_REQUEST, text, sizeof(text)), 1);
	for (size_t n = 0; n < sizeof(first); n++)
		assert_int_equal(tks_http2_sniff(TKS_RESPONSE, first, n), n < 9 ? -EAGAIN : 1);
	for (size_t i = 0; i < 9; i++) {
		memcpy(text, first, 9);
		text[i] ^= 1;
		/* 274, 19 and the rest: only a length that is a multiple of 6 is one. */
		assert_int_equal(tks_http2_sniff(TKS_RESPONSE, text, 9), 0);
	}
	assert_int_equal(tks_http2_sniff(TKS_RESPONSE, (const uint8_t *)"\0\0\0\4\0\0\0\0\0", 9),
			 1);
	assert_int_equal(tks_http2_sniff(TKS_RESPONSE, (const uint8_t *)"HTTP/1.1 ", 1), 0);
}

/* Whole frames or parts of the last: by every number of octets. */
static void middle(const char *p, size_t n, size_t first, int side)
{
	for (size_t k = 0; k <= n; k++) {
		uint8_t *copy = malloc(k ? k : 1);
		int got = 7;

		assert_non_null(copy);
		memcpy(copy, p, k);
		assert_int_equal(tks_http2_sniff_middle(copy, k, &got), k >= first);
		if (k >= first)
			assert_int_equal(got, side);
		free(copy);
	}
}

static void test_sniff_middle(void **state)
{
	static const char *const none[] = {
		"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n",
		"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
		"data: {\"choices\":[]}\n\n",
		"\x16\x03\x01\x02",
	};
	int side;

	(void)state;
	middle(B("\0\0\4\0\0\0\0\0\3"
		 "abcd"
		 "\0\0\x08\6\0\0\0\0\0"
		 "pingpong"),
	       13, -1);
	middle(B("\0\0\x08\6\0\0\0\0\0"
		 "pingpong"
		 "\0\0\0\0\1\0\0\0\3"),
	       17, -1);
	middle(B("\0\0\1\1\5\0\0\0\3\x88"
		 "\0\0\0\0\1\0\0\0\3"),
	       10, TKS_RESPONSE);
	middle(B("\0\0\3\1\5\0\0\0\3\x82\x86\x84"
		 "\0\0\1\1\5\0\0\0\5\x88"),
	       12, TKS_REQUEST);
	middle(B("\0\0\4\x08\0\0\0\0\0\0\1\0\0"), 13, -1);
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		for (size_t k = 0; k <= strlen(none[i]); k++)
			assert_int_equal(tks_http2_sniff_middle((const uint8_t *)none[i], k, &side),
					 0);
	}
	/* A frame, and what is none behind it. */
	assert_int_equal(tks_http2_sniff_middle((const uint8_t *)"\0\0\4\0\0\0\0\0\3"
								 "abcd"
								 "HTTP",
						17, &side),
			 0);
}

/* --- bounds --- */

struct count {
	unsigned int heads, cuts[2], completes[2];
	uint32_t cut; /* the stream cut last */
	uint64_t cut_off[2];
	struct tks_http_head head; /* the last one of a response */
	uint32_t head_stream;
};

static void count_begin(void *ctx, uint32_t stream, uint64_t off)
{
	(void)ctx;
	(void)stream;
	(void)off;
}

static int count_head(void *ctx, uint32_t stream, const struct tks_http_head *h)
{
	struct count *c = ctx;

	c->heads++;
	c->head = *h;
	c->head_stream = stream;
	return 0;
}

static int count_body(void *ctx, uint32_t stream, enum tks_side side, const struct tks_slice *s)
{
	(void)ctx;
	(void)stream;
	(void)side;
	(void)s;
	return 0;
}

static int count_gap(void *ctx, uint32_t stream, enum tks_side side, uint64_t off, uint64_t len)
{
	(void)ctx;
	(void)stream;
	(void)side;
	(void)off;
	(void)len;
	return 0;
}

static int count_end(void *ctx, uint32_t stream, enum tks_side side, uint64_t last_off,
		     enum tks_msg_end how)
{
	struct count *c = ctx;

	if (how == TKS_MSG_COMPLETE) {
		c->completes[side]++;
		return 0;
	}
	c->cuts[side]++;
	c->cut = stream;
	c->cut_off[side] = last_off;
	return 0;
}

static int count_reset(void *ctx, uint32_t stream, enum tks_side by, uint32_t code)
{
	(void)ctx;
	(void)stream;
	(void)by;
	(void)code;
	return 0;
}

static const struct tks_h2_ops count_ops = {
	.begin = count_begin,
	.head = count_head,
	.body = count_body,
	.body_gap = count_gap,
	.trailers = count_head,
	.end = count_end,
	.reset = count_reset,
};

/* Both sides' octets so far, for frames that are fed one by one. */
struct feeder {
	struct tks_http2 *h;
	uint64_t off[2];
};

static void feed_frame(struct feeder *f, enum tks_side side, uint8_t type, uint8_t flags,
		       uint32_t stream, const void *payload, size_t n)
{
	uint8_t head[9] = {
		(uint8_t)(n >> 16),	 (uint8_t)(n >> 8),	 (uint8_t)n,	 type, flags, 0,
		(uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream
	};

	assert_int_equal(feed_slice(f->h, side, head, 9, f->off[side]), 0);
	if (n)
		assert_int_equal(feed_slice(f->h, side, payload, n, f->off[side] + 9), 0);
	f->off[side] += 9 + n;
}

static void feeder_init(struct feeder *f, struct tks_mem *mem, struct count *c)
{
	f->h = tks_http2_new(mem, &count_ops, c);
	f->off[REQ] = base[REQ];
	f->off[RESP] = 1u << 20;
	assert_non_null(f->h);
	assert_int_equal(feed_slice(f->h, TKS_REQUEST, (const uint8_t *)tks_h2_preface,
				    TKS_H2_PREFACE, f->off[REQ]),
			 0);
	f->off[REQ] += TKS_H2_PREFACE;
}

/* One more than are kept: that goes which nothing came of for the longest. */
static void test_too_many_streams(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct count c = { 0 };
	struct feeder f;

	(void)state;
	feeder_init(&f, &mem, &c);
	for (uint32_t i = 0; i < TKS_H2_STREAMS_MAX; i++)
		feed_frame(&f, TKS_REQUEST, TKS_H2_HEADERS, END_HEADERS, 2 * i + 1, B(GET));
	assert_int_equal(c.heads, TKS_H2_STREAMS_MAX);
	assert_int_equal(c.cuts[0] + c.cuts[1], 0);
	feed_frame(&f, TKS_RESPONSE, TKS_H2_HEADERS, END_HEADERS, 3, B(STATUS_200));
	feed_frame(&f, TKS_REQUEST, TKS_H2_DATA, 0, 1, B("x"));
	/* 5 is the idlest now: neither 1 nor 3. */
	feed_frame(&f, TKS_REQUEST, TKS_H2_HEADERS, END_HEADERS, 5001, B(GET));
	assert_int_equal(c.cuts[REQ], 1);
	assert_int_equal(c.cuts[RESP], 1);
	assert_int_equal(c.cut, 5);
	/* Where: each side in its own octets. */
	assert_in_range(c.cut_off[REQ], base[REQ], f.off[REQ]);
	assert_in_range(c.cut_off[RESP], 1u << 20, f.off[RESP]);
	/* Nothing more of it. */
	c.heads = 0;
	feed_frame(&f, TKS_RESPONSE, TKS_H2_HEADERS, END_HEADERS | END_STREAM, 5, B(STATUS_200));
	assert_int_equal(c.heads, 0);
	assert_int_equal(c.completes[RESP], 0);
	/* All others end, and there is room again. */
	for (uint32_t i = 3; i < TKS_H2_STREAMS_MAX; i++) {
		feed_frame(&f, TKS_REQUEST, TKS_H2_DATA, END_STREAM, 2 * i + 1, "", 0);
		feed_frame(&f, TKS_RESPONSE, TKS_H2_HEADERS, END_HEADERS | END_STREAM, 2 * i + 1,
			   B(STATUS_200));
	}
	assert_int_equal(c.completes[REQ], TKS_H2_STREAMS_MAX - 3);
	assert_int_equal(c.completes[RESP], TKS_H2_STREAMS_MAX - 3);
	feed_frame(&f, TKS_REQUEST, TKS_H2_HEADERS, END_HEADERS, 5003, B(GET));
	assert_int_equal(c.cuts[REQ], 1);
	assert_int_equal(tks_http2_eof(f.h, TKS_REQUEST, f.off[REQ]), 0);
	assert_int_equal(c.cuts[REQ], 1 + 4);
	tks_http2_free(f.h);
	assert_int_equal(mem.used, 0);
}

enum {
	CONT = 16384,
	FIELD = 1006, /* octets of a field that is not kept */
	FIELDS = 260, /* so many of them, and GET, are less than the limit */
};

/* GET, so many fields and more octets of another; how many it is. */
static size_t big_block(uint8_t *block, size_t fields, size_t more)
{
	size_t n = 3;

	memcpy(block, GET, 3);
	for (size_t i = 0; i < fields; i++, n += FIELD) {
		/* n: a value of 127 + 0x69 + 6 * 128 = 1000 octets. */
		memcpy(block + n, "\x00\x01n\x7f\xe9\x06", 6);
		memset(block + n + 6, 'v', FIELD - 6);
	}
	if (!more)
		return n;
	assert_true(more > 6 + 127 && more < FIELD);
	memcpy(block + n, "\x00\x01n\x7f", 4);
	block[n + 4] = (uint8_t)((more - 6 - 127) | 128);
	block[n + 5] = (uint8_t)((more - 6 - 127) >> 7);
	memset(block + n + 6, 'v', more - 6);
	return n + more;
}

/* In HEADERS and CONTINUATIONs whose payloads come in such pieces; the head as it is told. */
static void big_head(const uint8_t *block, size_t n, size_t piece, struct tks_http_head *told)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct count c = { 0 };
	struct feeder f;

	feeder_init(&f, &mem, &c);
	for (size_t i = 0; i < n; i += CONT) {
		size_t k = n - i < CONT ? n - i : CONT;
		uint8_t type = i ? TKS_H2_CONTINUATION : TKS_H2_HEADERS;
		uint8_t flags = i + k == n ? END_HEADERS : 0;
		uint8_t head[9] = { 0, (uint8_t)(k >> 8), (uint8_t)k, type, flags, 0, 0, 0, 1 };

		assert_int_equal(feed_slice(f.h, TKS_REQUEST, head, 9, f.off[REQ]), 0);
		for (size_t j = 0; j < k; j += piece)
			assert_int_equal(feed_slice(f.h, TKS_REQUEST, block + i + j,
						    piece < k - j ? piece : k - j,
						    f.off[REQ] + 9 + j),
					 0);
		f.off[REQ] += 9 + k;
	}
	assert_int_equal(c.heads, 1);
	*told = c.head;
	assert_true(mem.peak < 1u << 20);
	/* The next refers to nothing. */
	feed_frame(&f, TKS_REQUEST, TKS_H2_HEADERS, END_HEADERS, 3, B(POST_X));
	assert_int_equal(c.heads, 2);
	assert_string_equal(c.head.target, "/x");
	assert_false(c.head.unknowable);
	tks_http2_free(f.h);
	assert_int_equal(mem.used, 0);
}

/* Blocks up to the limit are read; the octets behind it are not. */
static void test_big_heads(void **state)
{
	static const size_t pieces[] = { CONT, 1, 1000, 16383 };
	const size_t full = TKS_H2_HEAD_MAX - 3 - FIELDS * FIELD;
	const struct {
		size_t fields, more;
		bool over;
	} cases[] = {
		{ FIELDS, 0, false },	    { FIELDS, full - 1, false }, { FIELDS, full, false },
		{ FIELDS, full + 1, true }, { FIELDS + 1, 0, true },	 { 2 * FIELDS, 0, true },
	};
	uint8_t *block = malloc(3 + 2 * FIELDS * FIELD);

	(void)state;
	assert_non_null(block);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t n = big_block(block, cases[i].fields, cases[i].more);
		uint64_t over = 0;

		for (size_t k = 0; k < sizeof(pieces) / sizeof(pieces[0]); k++) {
			struct tks_http_head told;
			uint64_t begin = base[REQ] + TKS_H2_PREFACE;
			uint64_t frames = (n + CONT - 1) / CONT;

			big_head(block, n, pieces[k], &told);
			assert_string_equal(told.method, "GET");
			assert_string_equal(told.target, "/");
			assert_int_equal(told.truncated, cases[i].over);
			assert_int_equal(told.first_off, begin);
			/* At the block's end, or from the limit's octet (16 payloads of 16384 each
			 * behind a header) on, and not later where the pieces are larger. */
			if (!cases[i].over)
				assert_int_equal(told.last_off, begin + n + 9 * frames - 1);
			else if (!k)
				over = told.last_off;
			else
				assert_int_equal(told.last_off, over);
			assert_true(!cases[i].over || over >= begin + TKS_H2_HEAD_MAX + 9 * 16 - 1);
		}
	}
	free(block);
}

/* An entry of some octets that is named again and again, an octet each: what comes out is bounded.
 */
static void test_bomb(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct count c = { 0 };
	struct feeder f;
	uint8_t block[CONT] = "\x88\x40\x01n\x7f\xa1\x1e"; /* 127 + 0x21 + 0x1e * 128: 4000 */
	size_t n = 7 + 4000;

	(void)state;
	memset(block + 7, 'v', 4000);
	memset(block + n, 0xbe, 200);
	feeder_init(&f, &mem, &c);
	feed_frame(&f, TKS_REQUEST, TKS_H2_HEADERS, END_HEADERS, 1, B(GET));
	feed_frame(&f, TKS_REQUEST, TKS_H2_HEADERS, END_HEADERS, 3, B(GET));
	feed_frame(&f, TKS_RESPONSE, TKS_H2_HEADERS, END_HEADERS, 1, block, n + 60);
	assert_false(c.head.truncated);
	memset(block + 1, 0xbe, 200);
	feed_frame(&f, TKS_RESPONSE, TKS_H2_HEADERS, END_HEADERS, 3, block, 201);
	assert_int_equal(c.head.status, 200);
	assert_true(c.head.truncated);
	assert_true(mem.peak < 1u << 20);
	tks_http2_free(f.h);
	assert_int_equal(mem.used, 0);
}

/* Blocks that can't be read, one after the other, are no error, and the next is read. */
static void test_bad_blocks(void **state)
{
	static const struct {
		const char *p;
		size_t n;
	} bad[] = {
		{ B("\x88\x80") }, /* index 0 (section 6.1) */
		{ B("\x88\xff\xff\xff\xff\xff\x7f") }, /* too large an integer (5.1) */
		{ B("\x88\xff\x80\xff\xff\xff\xff\xff\xff\xff\xff\x01") },
		{ B("\x88\x5a\x05gzip") }, /* ends within a string */
		{ B("\x88\x5a") }, /* and before */
		{ B("\x88\x40") },
		{ B("\x88\x5a\x81\xfe") }, /* the padding isn't ones (5.2) */
		{ B("\x88\x5a\x84\xff\xff\xff\xff") }, /* EOS, and too long a padding */
		{ B("\x88\x20") }, /* a table size behind a field (4.2) */
		{ B("\x88\xfe") }, /* 126: none */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct story *s = new_connection();

		get(s, 1);
		get(s, 3);
		get(s, 5);
		response(s, 0, 1, bad[i].p, bad[i].n, "200 unknowable");
		body(s, RESP, END_STREAM, 1, "one");
		response(s, 0, 3, B("\x88\x5a\x04gzip"), "200 coding=gzip");
		body(s, RESP, END_STREAM, 3, "three");
		response(s, END_STREAM, 5, B("\x88\xbe"), "200 coding=gzip");
		check(s);
	}
}

/* --- table sizes (RFC 7541, sections 4.2 and 6.3) --- */

static void test_table_sizes(void **state)
{
	struct story *s = new_connection();

	(void)state;
	get(s, 1);
	response(s, END_STREAM, 1, B("\x88\x5a\x04gzip"), "200 coding=gzip");
	get(s, 3);
	/* To nothing and back: two updates before the first field. */
	response(s, END_STREAM, 3,
		 B("\x20\x3f\xe1\x1f\x88\x5f\x03"
		   "a/b"),
		 "200 type=a/b");
	get(s, 5);
	response(s, END_STREAM, 5, B("\x88\xbe"), "200 type=a/b");
	/* Larger than by default, as a client's SETTINGS may allow: 31 + 0x61 + 0x7f * 128 = 16384.
	 */
	get(s, 7);
	response(s, END_STREAM, 7,
		 B("\x3f\xe1\x7f\x88\xbe\x5a\x02"
		   "br"),
		 "200 type=a/b coding=br");
	get(s, 9);
	response(s, END_STREAM, 9, B("\x20\x88"), "200");
	get(s, 11);
	response(s, END_STREAM, 11, B("\x88\xbe"), "200 unknowable");
	check(s);
}

/* --- memory --- */

/* Fails from the at-th allocation on, for one feed. */
static int tell_failing(struct tks_http2 *h, const struct story *s, struct tks_mem *mem)
{
	int err = 0, one;

	for (size_t i = 0; i < s->npieces; i++) {
		const struct piece *p = &s->pieces[i];

		one = feed(h, s, p->side, p->at, p->n);
		assert_true(!one || one == -ENOMEM);
		if (mem->failed)
			mem->fail_at = 0;
		err = err ?: one;
	}
	return err;
}

/* What is told without memory for one thing is right; what begins behind it is all there. */
static void test_no_memory(void **state)
{
	struct log *l = malloc(sizeof(*l));
	size_t tail, last[2];
	struct story *s = long_story(&tail, last);
	struct truths t;
	uint64_t at;

	(void)state;
	assert_non_null(l);
	learn(&t, s->want);
	/* Of an interim response, that is not told of: without its status nobody knows that it is.
	 */
	strcat(t.of[1][TKS_RESPONSE], " 9-25 ");
	for (at = 1;; at++) {
		struct tks_mem mem = { .fail_at = at };
		struct tks_http2 *h;
		char what[32];
		bool failed;
		int err;

		memset(l, 0, sizeof(*l));
		h = begin(&mem, s, l);
		if (!h) {
			assert_int_equal(at, 1);
			assert_int_equal(mem.used, 0);
			continue;
		}
		err = tell_failing(h, s, &mem);
		failed = mem.failed;
		assert_int_equal(err, failed ? -ENOMEM : 0);
		snprintf(what, sizeof(what), "allocation %" PRIu64, at);
		if (!failed)
			assert_string_equal(l->text, s->want);
		/* That of the last stream's own are as good as lost. */
		if (!failed || strstr(l->text, "\n7 > begin"))
			judge(&t, s, failed ? s->nwant : tail, l, what);
		tks_http2_free(h);
		assert_int_equal(mem.used, 0);
		if (!failed)
			break;
	}
	/* The connection, two inflaters and their tables, the streams, heads. */
	assert_true(at > 20);
	free(s);
	free(l);
}

/* None at all, from some allocation on: nothing is told wrong, nothing is left. */
static void test_no_more_memory(void **state)
{
	struct log *l = malloc(sizeof(*l));
	size_t tail, last[2];
	struct story *s = long_story(&tail, last);
	struct truths t;

	(void)state;
	assert_non_null(l);
	learn(&t, s->want);
	/* Of an interim response, that is not told of: without its status nobody knows that it is.
	 */
	strcat(t.of[1][TKS_RESPONSE], " 9-25 ");
	for (uint64_t at = 2;; at++) {
		struct tks_mem mem = { .fail_at = at };
		struct tks_http2 *h;
		char what[32];
		bool failed;

		memset(l, 0, sizeof(*l));
		h = begin(&mem, s, l);
		assert_non_null(h);
		tell(h, s, at % 2 ? FRAMES : BYTEWISE);
		failed = mem.failed;
		snprintf(what, sizeof(what), "from allocation %" PRIu64, at);
		judge(&t, s, s->nwant, l, what);
		tks_http2_free(h);
		assert_int_equal(mem.used, 0);
		if (!failed)
			break;
	}
	free(s);
	free(l);
}

#define TEST(name) cmocka_unit_test(test_##name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(rfc_c2),
		TEST(rfc_c3),
		TEST(rfc_c4),
		TEST(rfc_c5),
		TEST(rfc_c6),
		TEST(fields),
		TEST(long_fields),
		TEST(too_large_an_entry),
		TEST(table_sizes),
		TEST(bad_blocks),
		TEST(padding),
		TEST(too_much_padding),
		TEST(bad_frames),
		TEST(bad_preface),
		TEST(bad_frame_loses),
		TEST(continuation),
		TEST(continuation_interrupted),
		TEST(other_frames),
		TEST(interleaved),
		TEST(trailers),
		TEST(interim),
		TEST(push),
		TEST(stream_numbers),
		TEST(reset),
		TEST(reset_code),
		TEST(connect),
		TEST(upgraded),
		TEST(mid_stream),
		TEST(mid_stream_nothing),
		TEST(mid_stream_late),
		TEST(gap_in_data),
		TEST(gap_in_others),
		TEST(gap_in_padding_length),
		TEST(gap_in_reset),
		TEST(gap_in_block),
		TEST(gap_of_any),
		TEST(long_story),
		TEST(gaps_of_requests),
		TEST(gaps_of_responses),
		TEST(eof),
		TEST(callback_fails),
		TEST(sniff),
		TEST(sniff_middle),
		TEST(too_many_streams),
		TEST(big_heads),
		TEST(bomb),
		TEST(no_memory),
		TEST(no_more_memory),
	};

	return cmocka_run_group_tests_name("http2", tests, NULL, NULL);
}
