// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * WebSocket's framing: each text whole, a byte at a time and cut at every place gives the messages
 * written down beside it: "[first-last text]", braces for a binary one, a ! if broken, and
 * "(code @last)" for a close. Texts that are long stand there as "#length:crc".
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
#include <zlib.h>

#include "tokensnoop/mem.h"
#include "websocket.h"

enum { WIRE_MAX = 80000, BASE = 1000, LONG = 64, EVERY_TWO_CUTS = 48 };

/* First octets of frames. */
enum { FIN = 0x80, RSV1 = 0x40, RSV2 = 0x20, RSV3 = 0x10, MASKED = 0x80 };
enum { CONT = 0, TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10 };

#define DEFLATE "permessage-deflate"
#define NO_TAKEOVER "permessage-deflate; server_no_context_takeover; client_no_context_takeover"

struct log {
	char data[WIRE_MAX], text[8192];
	size_t ndata, n;
	uint64_t low, high; /* what is fed */
	uint64_t data_off; /* of the last data */
	bool cut; /* where a message that broke off ends is open */
	unsigned int messages, unbroken;
};

/* What goes over the wire. */
struct wire {
	uint8_t p[WIRE_MAX];
	size_t n;
};

static void on_data(void *ctx, const struct tks_slice *s)
{
	struct log *l = ctx;

	assert_true(s->len && l->ndata + s->len < sizeof(l->data));
	assert_true(s->off >= l->low && s->off <= l->high && s->off >= l->data_off);
	memcpy(l->data + l->ndata, s->data, s->len);
	l->ndata += s->len;
	l->data_off = s->off;
}

static void print_text(char *out, size_t size, const void *p, size_t n)
{
	if (n > LONG)
		snprintf(out, size, "#%zu:%08lx", n, crc32(0, p, (uInt)n));
	else
		snprintf(out, size, "%.*s", (int)n, (const char *)p);
}

static void on_message(void *ctx, const struct tks_ws_message *m)
{
	struct log *l = ctx;
	char text[LONG + 1], last[24];

	assert_int_equal(m->bytes, l->ndata);
	assert_true(m->first_off <= m->last_off);
	if (l->ndata)
		assert_true(l->data_off >= m->first_off && l->data_off <= m->last_off);
	print_text(text, sizeof(text), l->data, l->ndata);
	snprintf(last, sizeof(last), "%" PRIu64, m->last_off - BASE);
	l->n += (size_t)snprintf(l->text + l->n, sizeof(l->text) - l->n,
				 m->text ? "[%" PRIu64 "-%s%s %s]" : "{%" PRIu64 "-%s%s %s}",
				 m->first_off - BASE, l->cut && m->broken ? "" : last,
				 m->broken ? "!" : "", text);
	assert_true(l->n < sizeof(l->text));
	l->ndata = 0;
	l->messages++;
	l->unbroken += !m->broken;
}

static void on_close(void *ctx, uint16_t code, uint64_t last_off)
{
	struct log *l = ctx;

	assert_true(last_off >= l->low && last_off <= l->high);
	l->n += (size_t)snprintf(l->text + l->n, sizeof(l->text) - l->n, "(%u @%" PRIu64 ")", code,
				 last_off - BASE);
	assert_true(l->n < sizeof(l->text));
}

static const struct tks_ws_ops ops = { on_data, on_message, on_close };

/* --- feeding --- */

/* One connection's direction. */
struct half {
	struct tks_mem mem;
	struct log l;
	struct tks_ws *w;
};

/* There is one at a time, and it is large. */
static struct half *opened(enum tks_side side, const char *extensions)
{
	static struct half h;

	h.mem = (struct tks_mem)TKS_MEM_INIT(0);
	h.l.ndata = h.l.n = 0;
	h.l.text[0] = 0;
	h.l.data_off = 0;
	h.l.cut = false;
	h.l.messages = h.l.unbroken = 0;
	h.w = tks_ws_new(&h.mem, side, extensions, &ops, &h.l);
	assert_non_null(h.w);
	return &h;
}

static void closed(struct half *h, const char *want)
{
	assert_string_equal(h->l.text, want);
	tks_ws_free(h->w);
	assert_int_equal(h->mem.used, 0);
}

static int feed(struct half *h, const void *p, size_t n, uint64_t off)
{
	uint8_t *copy = malloc(n ? n : 1);
	struct tks_slice in = { copy, n, BASE + off };
	int err;

	assert_non_null(copy);
	memcpy(copy, p, n);
	h->l.low = in.off;
	h->l.high = in.off + n - 1;
	err = tks_ws_feed(h->w, &in);
	free(copy);
	return err;
}

static void gap(struct half *h, uint64_t off, uint64_t len)
{
	h->l.low = BASE + off;
	h->l.high = len ? BASE + off + len - 1 : UINT64_MAX;
	tks_ws_gap(h->w, BASE + off, len);
}

struct how {
	enum tks_side side;
	const char *extensions;
	int err;
};

/* Two pieces of such lengths, and then of the second's; the first error. */
static void run(const struct how *how, const struct wire *w, size_t first, size_t piece,
		const char *want)
{
	struct half *h = opened(how->side, how->extensions);
	int err = 0;

	for (size_t i = 0; i < w->n;) {
		size_t k = i ? piece : first;

		k = k < w->n - i ? k : w->n - i;
		err = feed(h, w->p + i, k, i) ?: err;
		i += k;
	}
	assert_int_equal(err, how->err);
	closed(h, want);
}

static void check_how(const struct how *how, const struct wire *w, const char *want)
{
	size_t step = w->n < 1000 ? 1 : w->n / 100;

	run(how, w, w->n, w->n, want);
	run(how, w, 1, 1, want);
	run(how, w, 3, 7, want);
	for (size_t first = 1; first <= w->n; first += step)
		run(how, w, first, w->n, want);
	for (size_t first = 1; first < w->n && w->n <= EVERY_TWO_CUTS; first++) {
		for (size_t piece = 1; piece < w->n - first; piece++)
			run(how, w, first, piece, want);
	}
}

static void check_server(const char *extensions, const struct wire *w, const char *want)
{
	struct how how = { TKS_RESPONSE, extensions, 0 };

	check_how(&how, w, want);
}

static void check_client(const char *extensions, const struct wire *w, const char *want)
{
	struct how how = { TKS_REQUEST, extensions, 0 };

	check_how(&how, w, want);
}

static void check_bad(const struct wire *w, const char *want)
{
	struct how how = { TKS_RESPONSE, "", -EBADMSG };

	check_how(&how, w, want);
}

/* --- making --- */

static void put(struct wire *w, const void *p, size_t n)
{
	assert_true(w->n + n <= sizeof(w->p));
	memcpy(w->p + w->n, p, n);
	w->n += n;
}

static struct wire *fresh(void)
{
	static struct wire w;

	w.n = 0;
	return &w;
}

#define PUT(w, literal) put(w, literal, sizeof(literal) - 1)

/* The header's second octet and the length, in 0, 2 or 8 octets. */
static void put_len(struct wire *w, unsigned int octets, uint8_t masked, uint64_t n)
{
	uint8_t b = masked | (uint8_t)(octets == 8 ? 127 : octets == 2 ? 126 : n);

	put(w, &b, 1);
	for (unsigned int i = octets; i > 0; i--) {
		b = (uint8_t)(n >> 8 * (i - 1));
		put(w, &b, 1);
	}
}

static void put_frame_as(struct wire *w, unsigned int first, unsigned int octets, const void *p,
			 size_t n)
{
	uint8_t b = (uint8_t)first;

	put(w, &b, 1);
	put_len(w, octets, 0, n);
	put(w, p, n);
}

static unsigned int octets_of(size_t n)
{
	return n > 65535 ? 8 : n > 125 ? 2 : 0;
}

static void put_frame(struct wire *w, unsigned int first, const void *p, size_t n)
{
	put_frame_as(w, first, octets_of(n), p, n);
}

static void put_masked(struct wire *w, unsigned int first, const char *mask, const void *p,
		       size_t n)
{
	const uint8_t *octets = p;
	uint8_t b = (uint8_t)first;

	put(w, &b, 1);
	put_len(w, octets_of(n), MASKED, n);
	put(w, mask, 4);
	for (size_t i = 0; i < n; i++) {
		b = octets[i] ^ (uint8_t)mask[i % 4];
		put(w, &b, 1);
	}
}

static void put_text(struct wire *w, const char *text)
{
	put_frame(w, FIN | TEXT, text, strlen(text));
}

/* One side's compressor. */
struct packer {
	z_stream z;
	uint8_t out[4096];
	size_t n;
};

static void packer_open(struct packer *p, int window_bits)
{
	memset(&p->z, 0, sizeof(p->z));
	assert_int_equal(deflateInit2(&p->z, 9, Z_DEFLATED, -window_bits, 8, 0), Z_OK);
}

/* A message's payload: flushed, and without the tail that says so. */
static void pack(struct packer *p, const void *text, size_t n)
{
	p->z.next_in = (uint8_t *)text;
	p->z.avail_in = (uInt)n;
	p->z.next_out = p->out;
	p->z.avail_out = sizeof(p->out);
	assert_int_equal(deflate(&p->z, Z_SYNC_FLUSH), Z_OK);
	assert_true(p->z.avail_out > 0);
	p->n = sizeof(p->out) - p->z.avail_out;
	assert_true(p->n > 4);
	p->n -= 4;
	assert_memory_equal(p->out + p->n, "\0\0\xff\xff", 4);
}

/* Where its frame ends. */
static size_t put_packed(struct wire *w, struct packer *p, const char *text, bool takeover)
{
	if (!takeover)
		deflateReset(&p->z);
	pack(p, text, strlen(text));
	put_frame(w, FIN | RSV1 | TEXT, p->out, p->n);
	return w->n;
}

/* --- RFC 6455, section 5.7 --- */

static void test_rfc_frames(void **state)
{
	struct wire *w = fresh();

	(void)state;
	PUT(w, "\x81\x05\x48\x65\x6c\x6c\x6f");
	check_server("", w, "[0-6 Hello]");
	w->n = 0;
	PUT(w, "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58");
	check_client("", w, "[0-10 Hello]");
	w->n = 0;
	PUT(w, "\x01\x03\x48\x65\x6c\x80\x02\x6c\x6f");
	check_server("", w, "[0-8 Hello]");
	/* A ping, and its pong, masked. */
	w->n = 0;
	PUT(w, "\x89\x05\x48\x65\x6c\x6c\x6f");
	check_server("", w, "");
	w->n = 0;
	PUT(w, "\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58");
	check_client("", w, "");
}

/* 256 bytes of binary data, and 64 KiB of it. */
static void test_rfc_lengths(void **state)
{
	static uint8_t data[65536];
	struct wire *w = fresh();
	char text[LONG], want[128];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / 256);
	PUT(w, "\x82\x7e\x01\x00");
	put(w, data, 256);
	print_text(text, sizeof(text), data, 256);
	snprintf(want, sizeof(want), "{0-259 %s}", text);
	check_server("", w, want);
	w->n = 0;
	PUT(w, "\x82\x7f\0\0\0\0\0\1\0\0");
	put(w, data, 65536);
	print_text(text, sizeof(text), data, 65536);
	snprintf(want, sizeof(want), "{0-65545 %s}", text);
	check_server("", w, want);
}

/* --- frames --- */

/* Each length in each form that has room for it. RFC 6455 wants the shortest; what is meant by the
 * others is plain all the same. */
static void test_lengths(void **state)
{
	static const size_t lens[] = { 0, 1, 124, 125, 126, 127, 128, 255, 256, 65535, 65536 };
	static const unsigned int forms[] = { 0, 2, 8 };
	static char data[65536];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)('a' + i % 26);
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		for (size_t k = 0; k < 3; k++) {
			struct wire *w = fresh();
			size_t n = lens[i], end = 2 + forms[k] + n;
			char text[LONG + 1], want[256];

			if (octets_of(n) > forms[k])
				continue;
			put_frame_as(w, FIN | TEXT, forms[k], data, n);
			put_text(w, "next");
			print_text(text, sizeof(text), data, n);
			snprintf(want, sizeof(want), "[0-%zu %s][%zu-%zu next]", end - 1, text, end,
				 end + 5);
			check_server("", w, want);
		}
	}
}

static void test_kinds(void **state)
{
	struct wire *w = fresh();

	(void)state;
	put_frame(w, FIN | TEXT, "a", 1);
	put_frame(w, FIN | BINARY, "bc", 2);
	put_frame(w, FIN | TEXT, "", 0);
	put_frame(w, FIN | BINARY, "", 0);
	put_frame(w, FIN | TEXT, "d", 1);
	/* What isn't whole is not told of. */
	put_frame(w, TEXT, "xyz", 3);
	PUT(w, "\x80\x03no");
	check_server("", w, "[0-2 a]{3-6 bc}[7-8 ]{9-10 }[11-13 d]");
}

/* Every offset of the mask meets every offset of a cut. */
static void test_masks(void **state)
{
	static const char *const masks[] = { "\x01\x02\x04\x08", "\xff\x00\x80\x7f",
					     "\x00\x00\x00\x00", "\x37\xfa\x21\x3d" };
	const char *text = "abcdefghij";

	(void)state;
	for (size_t m = 0; m < 4; m++) {
		for (size_t n = 0; n <= 10; n++) {
			struct wire *w = fresh();
			char want[128];

			put_masked(w, FIN | TEXT, masks[m], text, n);
			/* Each frame's begins anew. */
			put_masked(w, TEXT, masks[3 - m], text, 3);
			put_masked(w, FIN | CONT, masks[m], text + 3, 6);
			snprintf(want, sizeof(want), "[0-%zu %.*s][%zu-%zu abcdefghi]", n + 5,
				 (int)n, text, n + 6, n + 6 + 20);
			check_client("", w, want);
		}
	}
}

/* Longer than any buffer that masks are taken off in. */
static void test_masks_long(void **state)
{
	static char data[5003];
	struct wire *w = fresh();
	char text[LONG], want[128];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)('a' + i % 23);
	put_masked(w, FIN | TEXT, "\x11\x22\x43\x04", data, sizeof(data));
	print_text(text, sizeof(text), data, sizeof(data));
	snprintf(want, sizeof(want), "[0-%zu %s]", w->n - 1, text);
	check_client("", w, want);
}

static void test_fragments(void **state)
{
	struct wire *w = fresh();

	(void)state;
	put_frame(w, TEXT, "He", 2);
	put_frame(w, CONT, "", 0);
	put_frame(w, CONT, "l", 1);
	put_frame(w, FIN | CONT, "lo", 2);
	/* Nothing but empty ones, and one whose last one is empty. */
	put_frame(w, BINARY, "", 0);
	put_frame(w, FIN | CONT, "", 0);
	put_frame(w, TEXT, "x", 1);
	put_frame(w, FIN | CONT, "", 0);
	check_server("", w, "[0-12 Hello]{13-16 }[17-21 x]");
}

/* Control frames may come anywhere between fragments; what they say is of no message. */
static void test_control_between(void **state)
{
	struct wire *w = fresh();
	char big[125];

	(void)state;
	memset(big, 'p', sizeof(big));
	put_frame(w, FIN | PING, "", 0);
	put_frame(w, TEXT, "He", 2);
	put_frame(w, FIN | PING, "ping", 4);
	put_frame(w, CONT, "ll", 2);
	put_frame(w, FIN | PONG, "", 0);
	put_frame(w, FIN | PONG, "pong", 4);
	put_frame(w, FIN | CONT, "o", 1);
	put_frame(w, FIN | PONG, "ng", 2);
	put_text(w, "x");
	check_server("", w, "[2-26 Hello][31-33 x]");
	/* The most that a control frame can hold. */
	w->n = 0;
	put_frame(w, TEXT, "a", 1);
	put_frame(w, FIN | PING, big, sizeof(big));
	put_frame(w, FIN | CONT, "b", 1);
	check_server("", w, "[0-132 ab]");
	/* Masked ones, with a mask other than their neighbours'. */
	w->n = 0;
	put_masked(w, TEXT, "abcd", "Hel", 3);
	put_masked(w, FIN | PING, "wxyz", "ping!", 5);
	put_masked(w, FIN | CONT, "1234", "lo", 2);
	check_client("", w, "[0-27 Hello]");
}

static void test_close(void **state)
{
	struct wire *w = fresh();

	(void)state;
	PUT(w, "\x88\x00");
	check_server("", w, "(0 @1)");
	w->n = 0;
	PUT(w, "\x88\x02\x03\xe8");
	check_server("", w, "(1000 @3)");
	w->n = 0;
	PUT(w, "\x88\x05\x03\xf3"
	       "bye");
	check_server("", w, "(1011 @6)");
	/* Half a code is none. */
	w->n = 0;
	PUT(w, "\x88\x01\x03");
	check_server("", w, "(0 @2)");
	/* Masked; behind a message, and within one. */
	w->n = 0;
	put_masked(w, FIN | TEXT, "abcd", "hi", 2);
	put_masked(w, FIN | CLOSE, "\x12\x34\x56\x78",
		   "\x0f\xa0"
		   "no",
		   4);
	check_client("", w, "[0-7 hi](4000 @17)");
	w->n = 0;
	put_frame(w, TEXT, "He", 2);
	put_frame(w, FIN | CLOSE, "\x03\xe9", 2);
	check_server("", w, "(1001 @7)");
	/* The second one's code is its own. */
	w->n = 0;
	PUT(w, "\x88\x02\x03\xe8\x88\x00\x88\x02\x03\xe9");
	check_server("", w, "(1000 @3)(0 @5)(1001 @9)");
}

/* The offset of data is that of the byte that made it known. */
static void test_data_offsets(void **state)
{
	struct wire *w = fresh();
	struct half *h = opened(TKS_RESPONSE, "");

	(void)state;
	put_text(w, "Hello");
	feed(h, w->p, 4, 0);
	assert_int_equal(h->l.ndata, 2);
	assert_int_equal(h->l.data_off, BASE + 3);
	feed(h, w->p + 4, 2, 4);
	assert_int_equal(h->l.ndata, 4);
	assert_int_equal(h->l.data_off, BASE + 5);
	feed(h, w->p + 6, 1, 6);
	closed(h, "[0-6 Hello]");
	/* Within a slice that goes on behind it. */
	h = opened(TKS_REQUEST, "");
	w->n = 0;
	put_masked(w, TEXT, "abcd", "Hello", 5);
	put_masked(w, FIN | CONT, "abcd", "", 0);
	feed(h, w->p, w->n, 0);
	assert_int_equal(h->l.data_off, BASE + 10);
	closed(h, "[0-16 Hello]");
}

/* --- what is no WebSocket --- */

/* Nothing is told of any more, whatever comes. */
static void check_dead(const struct wire *w, const char *want)
{
	struct half *h;

	check_bad(w, want);
	h = opened(TKS_RESPONSE, "");
	assert_int_equal(feed(h, w->p, w->n, 0), -EBADMSG);
	feed(h, "\x81\2no", 4, w->n);
	gap(h, w->n + 4, 3);
	feed(h, "\x81\2no", 4, w->n + 7);
	gap(h, w->n + 11, 0);
	feed(h, "\x81\2no", 4, w->n + 30);
	closed(h, want);
}

static void test_reserved_opcodes(void **state)
{
	(void)state;
	for (unsigned int first = 0; first < 256; first++) {
		unsigned int opcode = first & 15;
		struct wire *w = fresh();

		if (opcode < 3 || (opcode >= 8 && opcode <= 10) || first & (RSV2 | RSV3))
			continue;
		put_text(w, "hi");
		put_frame(w, first, "ab", 2);
		put_text(w, "no");
		check_dead(w, "[0-3 hi]");
	}
}

static void test_bad_order(void **state)
{
	struct wire *w = fresh();

	(void)state;
	/* A continuation of nothing. */
	put_frame(w, FIN | CONT, "ab", 2);
	check_dead(w, "");
	w->n = 0;
	put_text(w, "hi");
	put_frame(w, CONT, "ab", 2);
	put_frame(w, FIN | CONT, "ab", 2);
	check_dead(w, "[0-3 hi]");
	w->n = 0;
	put_text(w, "hi");
	put_frame(w, FIN | PING, "ab", 2);
	put_frame(w, FIN | CONT, "", 0);
	check_dead(w, "[0-3 hi]");
}

/* A message that begins within another. */
static void test_bad_order_within(void **state)
{
	struct wire *w = fresh();

	(void)state;
	put_frame(w, TEXT, "", 0);
	put_text(w, "ab");
	check_dead(w, "");
	w->n = 0;
	put_text(w, "hi");
	put_frame(w, BINARY, "", 0);
	put_frame(w, FIN | PING, "ab", 2);
	put_frame(w, BINARY, "ab", 2);
	check_dead(w, "[0-3 hi]");
}

/* Control frames are whole, and short. */
static void test_bad_control(void **state)
{
	static const uint8_t opcodes[] = { CLOSE, PING, PONG };
	char big[126] = "";

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct wire *w = fresh();

		put_text(w, "hi");
		put_frame(w, opcodes[i], "ab", 2);
		check_dead(w, "[0-3 hi]");
		w->n = 0;
		put_text(w, "hi");
		put_frame(w, FIN | opcodes[i], big, sizeof(big));
		check_dead(w, "[0-3 hi]");
		w->n = 0;
		put_text(w, "hi");
		put_frame_as(w, FIN | opcodes[i], 2, "ab", 2);
		check_dead(w, "[0-3 hi]");
		w->n = 0;
		put_frame_as(w, FIN | opcodes[i], 8, "ab", 2);
		check_dead(w, "");
	}
}

static void test_bad_length(void **state)
{
	struct wire *w = fresh();

	(void)state;
	put_text(w, "hi");
	PUT(w, "\x81\x7f\x80\0\0\0\0\0\0\2no");
	check_dead(w, "[0-3 hi]");
	w->n = 0;
	PUT(w, "\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff");
	check_dead(w, "");
}

/* Nobody has said what they mean: what they are set in can't be read. */
static void test_rsv(void **state)
{
	static const unsigned int bits[] = { RSV2, RSV3, RSV2 | RSV3, RSV1 | RSV2, RSV1 | RSV3 };
	static const char *const extensions[] = { "", DEFLATE, NO_TAKEOVER, "x-other" };

	(void)state;
	for (size_t i = 0; i < 5; i++) {
		for (size_t k = 0; k < 4; k++) {
			struct wire *w = fresh();

			put_frame(w, FIN | TEXT | bits[i], "abc", 3);
			put_text(w, "hi");
			check_server(extensions[k], w, "[0-4! ][5-8 hi]");
			w->n = 0;
			put_frame(w, BINARY | bits[i], "abc", 3);
			put_frame(w, FIN | CONT, "", 0);
			put_text(w, "hi");
			check_server(extensions[k], w, "{0-6! }[7-10 hi]");
		}
	}
}

/* RSV1 is the compressed message's own, if that was agreed on. */
static void test_rsv1(void **state)
{
	struct wire *w = fresh();

	(void)state;
	PUT(w, "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00");
	put_text(w, "hi");
	check_server("", w, "[0-8! ][9-12 hi]");
	check_server("x-other", w, "[0-8! ][9-12 hi]");
	check_server(DEFLATE, w, "[0-8 Hello][9-12 hi]");
}

/* Not in its first fragment: no message of such a kind is read as if it were whole. */
static void test_rsv_later(void **state)
{
	static const unsigned int bits[] = { RSV1, RSV2, RSV3 };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct half *h = opened(TKS_RESPONSE, DEFLATE);
		struct wire *w = fresh();

		put_frame(w, TEXT, "abc", 3);
		put_frame(w, FIN | CONT | bits[i], "def", 3);
		feed(h, w->p, w->n, 0);
		assert_int_equal(h->l.unbroken, 0);
		tks_ws_free(h->w);
		assert_int_equal(h->mem.used, 0);
	}
}

/* --- RFC 7692, section 7.2.3 --- */

#define HELLO "\xf2\x48\xcd\xc9\xc9\x07\x00"

static void test_rfc_deflate(void **state)
{
	struct wire *w = fresh();

	(void)state;
	/* 7.2.3.1: one block; in one frame, and in two. */
	PUT(w, "\xc1\x07" HELLO);
	check_server(DEFLATE, w, "[0-8 Hello]");
	w->n = 0;
	PUT(w, "\x41\x03\xf2\x48\xcd\x80\x04\xc9\xc9\x07\x00");
	check_server(DEFLATE, w, "[0-10 Hello]");
	/* 7.2.3.2: the window is shared, or is not. */
	w->n = 0;
	PUT(w, "\xc1\x07" HELLO "\xc1\x05\xf2\x00\x11\x00\x00");
	check_server(DEFLATE, w, "[0-8 Hello][9-15 Hello]");
	w->n = 0;
	PUT(w, "\xc1\x07" HELLO "\xc1\x07" HELLO);
	check_server(DEFLATE, w, "[0-8 Hello][9-17 Hello]");
	check_server(NO_TAKEOVER, w, "[0-8 Hello][9-17 Hello]");
	/* 7.2.3.3: a block without compression. */
	w->n = 0;
	PUT(w, "\xc1\x0b\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00");
	check_server(DEFLATE, w, "[0-12 Hello]");
	/* 7.2.3.5: two blocks. */
	w->n = 0;
	PUT(w, "\xc1\x0d\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00");
	check_server(DEFLATE, w, "[0-14 Hello]");
	/* 7.2.3.6: an empty one. */
	w->n = 0;
	PUT(w, "\xc1\x01\x00");
	check_server(DEFLATE, w, "[0-2 ]");
}

/* 7.2.3.4: a block that says it is the last one. What comes next may refer to it. */
static void test_rfc_final_block(void **state)
{
	struct wire *w = fresh();

	(void)state;
	PUT(w, "\xc1\x08\xf3\x48\xcd\xc9\xc9\x07\x00\x00");
	check_server(DEFLATE, w, "[0-9 Hello]");
	check_server(NO_TAKEOVER, w, "[0-9 Hello]");
	PUT(w, "\xc1\x05\xf2\x00\x11\x00\x00");
	PUT(w, "\xc1\x08\xf3\x48\xcd\xc9\xc9\x07\x00\x00");
	PUT(w, "\xc1\x07" HELLO);
	check_server(DEFLATE, w, "[0-9 Hello][10-16 Hello][17-26 Hello][27-35 Hello]");
	w->n = 0;
	PUT(w, "\xc1\x08\xf3\x48\xcd\xc9\xc9\x07\x00\x00");
	PUT(w, "\xc1\x07" HELLO);
	check_server(NO_TAKEOVER, w, "[0-9 Hello][10-18 Hello]");
}

/* Empty messages and fragments among those that have a text, masked and with pings between. */
static void test_deflate_forms(void **state)
{
	struct wire *w = fresh();

	(void)state;
	PUT(w, "\xc1\x01\x00\xc1\x07" HELLO "\xc1\x01\x00\xc1\x05\xf2\x00\x11\x00\x00");
	check_server(DEFLATE, w, "[0-2 ][3-11 Hello][12-14 ][15-21 Hello]");
	w->n = 0;
	PUT(w, "\x41\x00\x00\x03\xf2\x48\xcd\x89\x02hi\x00\x00\x00\x04\xc9\xc9\x07\x00\x80\x00");
	check_server(DEFLATE, w, "[0-20 Hello]");
	w->n = 0;
	put_masked(w, RSV1 | BINARY, "abcd", "\xf2\x48\xcd", 3);
	put_masked(w, FIN | PING, "1234", "ping", 4);
	put_masked(w, FIN | CONT, "wxyz", "\xc9\xc9\x07\x00", 4);
	put_masked(w, FIN | RSV1 | TEXT, "\x99\x88\x77\x66", "\xf2\x00\x11\x00\x00", 5);
	check_client(DEFLATE, w, "{0-28 Hello}[29-39 Hello]");
	/* A message that is not compressed leaves the window as it is. */
	w->n = 0;
	PUT(w, "\xc1\x07" HELLO);
	put_text(w, "World, which is not in it");
	PUT(w, "\xc1\x05\xf2\x00\x11\x00\x00");
	check_server(DEFLATE, w, "[0-8 Hello][9-35 World, which is not in it][36-42 Hello]");
}

/* --- by zlib --- */

static const char *const texts[] = {
	"{\"type\":\"response.output_text.delta\",\"delta\":\"one\"}",
	"",
	"{\"type\":\"response.output_text.delta\",\"delta\":\"two\"}",
	"{\"type\":\"response.output_text.delta\",\"delta\":\"and three\"}",
};

enum { TEXTS = sizeof(texts) / sizeof(texts[0]) };

static void check_zlib(const char *extensions, int bits, bool takeover)
{
	struct wire *w = fresh();
	struct packer p;
	char want[1024], text[LONG + 1];
	size_t n = 0;

	packer_open(&p, bits);
	for (size_t i = 0; i < TEXTS; i++) {
		size_t begin = w->n, end;

		if (*texts[i])
			end = put_packed(w, &p, texts[i], takeover);
		else
			/* What RFC 7692 gives for it. */
			PUT(w, "\xc1\x01\x00"), end = w->n;
		print_text(text, sizeof(text), texts[i], strlen(texts[i]));
		n += (size_t)snprintf(want + n, sizeof(want) - n, "[%zu-%zu %s]", begin, end - 1,
				      text);
	}
	deflateEnd(&p.z);
	check_server(extensions, w, want);
}

static void test_zlib(void **state)
{
	(void)state;
	check_zlib(DEFLATE, 15, true);
	check_zlib(NO_TAKEOVER, 15, false);
	/* Who may keep the window need not. */
	check_zlib(DEFLATE, 15, false);
	check_zlib("permessage-deflate; server_max_window_bits=9", 9, true);
	check_zlib("permessage-deflate; server_max_window_bits=12; client_max_window_bits=9", 12,
		   true);
	check_zlib("permessage-deflate; server_no_context_takeover; server_max_window_bits=10", 10,
		   false);
}

/* More than the window has, and out again of what it still has. */
static void test_zlib_window(void **state)
{
	static char text[3000];
	struct wire *w = fresh();
	struct packer p;
	char want[1024], sum[LONG];
	unsigned int seed = 1;
	size_t n = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(text); i++) {
		seed = seed * 1103515245 + 12345;
		text[i] = (char)('a' + (seed >> 16) % 26);
	}
	packer_open(&p, 15);
	for (int i = 0; i < 14; i++) {
		size_t begin = w->n;

		text[i * 200] = '!';
		pack(&p, text, sizeof(text));
		put_frame(w, FIN | RSV1 | TEXT, p.out, p.n);
		print_text(sum, sizeof(sum), text, sizeof(text));
		n += (size_t)snprintf(want + n, sizeof(want) - n, "[%zu-%zu %s]", begin, w->n - 1,
				      sum);
	}
	deflateEnd(&p.z);
	check_server(DEFLATE, w, want);
}

/* --- the extension's parameters --- */

enum { NONE, FRESH, KEPT };

static const struct {
	const char *extensions;
	int server, client; /* what becomes of their windows */
} offers[] = {
	{ "", NONE, NONE },
	{ "permessage-deflate", KEPT, KEPT },
	{ "permessage-deflate; server_no_context_takeover", FRESH, KEPT },
	{ "permessage-deflate; client_no_context_takeover", KEPT, FRESH },
	{ NO_TAKEOVER, FRESH, FRESH },
	{ "permessage-deflate;client_no_context_takeover;server_no_context_takeover", FRESH,
	  FRESH },
	{ "permessage-deflate ; server_no_context_takeover", FRESH, KEPT },
	{ "permessage-deflate;\tclient_no_context_takeover ", KEPT, FRESH },
	{ "permessage-deflate; server_max_window_bits=10; client_max_window_bits=11", KEPT, KEPT },
	{ "permessage-deflate; server_max_window_bits=\"10\"; client_no_context_takeover", KEPT,
	  FRESH },
	{ "permessage-deflate; server_no_context_takeover; client_max_window_bits=\"15\"", FRESH,
	  KEPT },
	{ "permessage-deflate; client_max_window_bits", KEPT, KEPT },
	{ "x-other, permessage-deflate", KEPT, KEPT },
	{ "x-other; a=1; b=\"2\", permessage-deflate; server_no_context_takeover", FRESH, KEPT },
	{ "permessage-deflate; client_no_context_takeover, x-other; a", KEPT, FRESH },
	{ "x-other", NONE, NONE },
	{ "x-webkit-deflate-frame; no_context_takeover", NONE, NONE },
};

/* Where another extension has such a name, or a parameter: it is not this one's. */
static const struct {
	const char *extensions;
	int server, client;
} names_alike[] = {
	{ "x-permessage-deflate", NONE, NONE },
	{ "permessage-deflate-2; server_no_context_takeover", NONE, NONE },
	{ "x-other; instead=\"permessage-deflate\"", NONE, NONE },
	{ "x-other; server_no_context_takeover, permessage-deflate", KEPT, KEPT },
	{ "permessage-deflate, x-other; client_no_context_takeover", KEPT, KEPT },
};

static void check_offer(enum tks_side side, const char *extensions, int window)
{
	static const char *const want[] = {
		[NONE] = "[0-12! ][13-25! ][26-36! ]",
		/* A letter, and then a reference to what was before. */
		[FRESH] = "[0-12 Hello][13-25 Hello][26-36! H]",
		[KEPT] = "[0-12 Hello][13-25 Hello][26-36 Hello]",
	};
	struct half *h = opened(side, extensions);
	struct wire *w = fresh();

	put_masked(w, FIN | RSV1 | TEXT, "abcd", HELLO, 7);
	put_masked(w, FIN | RSV1 | TEXT, "abcd", HELLO, 7);
	put_masked(w, FIN | RSV1 | TEXT, "abcd", "\xf2\x00\x11\x00\x00", 5);
	assert_int_equal(feed(h, w->p, w->n, 0), 0);
	closed(h, want[window]);
}

static void test_offers(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(offers) / sizeof(offers[0]); i++) {
		check_offer(TKS_RESPONSE, offers[i].extensions, offers[i].server);
		check_offer(TKS_REQUEST, offers[i].extensions, offers[i].client);
	}
}

static void test_names_alike(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(names_alike) / sizeof(names_alike[0]); i++) {
		check_offer(TKS_RESPONSE, names_alike[i].extensions, names_alike[i].server);
		check_offer(TKS_REQUEST, names_alike[i].extensions, names_alike[i].client);
	}
}

/* --- what can't be inflated --- */

/* Breaks its message; and if the window is kept, the compressed ones behind it. */
static void test_not_inflated(void **state)
{
	static const char *const bad[] = {
		"\xff\xff\xff", /* a kind of block that there is not */
		"\x00\x05\x00\x05\x00", /* a stored one's length that is not what its check says */
		/* A letter, and then out of a window with nothing in it. */
		"\xf2\x00\x11\x00\x00",
	};
	static const char *const good[] = { "", "", "H" };
	static const size_t lens[] = { 3, 5, 5 };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct wire *w = fresh();
		size_t n = 2 + lens[i];
		char want[256];

		put_frame(w, FIN | RSV1 | TEXT, bad[i], lens[i]);
		put_text(w, "plain");
		PUT(w, "\xc1\x07" HELLO);
		put_text(w, "plain");
		snprintf(want, sizeof(want), "[0-%zu! %s][%zu-%zu plain][%zu-%zu! ][%zu-%zu plain]",
			 n - 1, good[i], n, n + 6, n + 7, n + 15, n + 16, n + 22);
		check_server(DEFLATE, w, want);
		snprintf(want, sizeof(want),
			 "[0-%zu! %s][%zu-%zu plain][%zu-%zu Hello][%zu-%zu plain]", n - 1, good[i],
			 n, n + 6, n + 7, n + 15, n + 16, n + 22);
		check_server(NO_TAKEOVER, w, want);
	}
}

/* Breaks in its middle: what came before is good, what is behind in the message is dropped. */
static void test_not_inflated_middle(void **state)
{
	struct wire *w = fresh();

	(void)state;
	PUT(w, "\x41\x0b\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00");
	PUT(w, "\x00\x03\xff\xff\xff\x80\x03\xff\xff\xff");
	PUT(w, "\xc1\x07" HELLO);
	check_server(DEFLATE, w, "[0-22! Hello][23-31! ]");
	check_server(NO_TAKEOVER, w, "[0-22! Hello][23-31 Hello]");
}

/* A compressed message that is not read, whatever the reason, is missing in the window. */
static void test_window_of_unread(void **state)
{
	struct wire *w = fresh();
	struct packer p;

	(void)state;
	packer_open(&p, 15);
	put_packed(w, &p, "a long text that the others could be thought to refer to", true);
	pack(&p, "quite other words", 17);
	put_frame(w, FIN | RSV1 | RSV2 | TEXT, p.out, p.n);
	put_packed(w, &p, "quite other words", true);
	deflateEnd(&p.z);
	for (size_t piece = 1; piece < 8; piece++) {
		struct half *h = opened(TKS_RESPONSE, DEFLATE);

		for (size_t i = 0; i < w->n; i += piece)
			feed(h, w->p + i, piece < w->n - i ? piece : w->n - i, i);
		assert_int_equal(h->l.messages, 3);
		assert_int_equal(h->l.unbroken, 1);
		tks_ws_free(h->w);
		assert_int_equal(h->mem.used, 0);
	}
}
/* --- gaps --- */

struct frame_at {
	size_t begin, payload, end;
	const char *text;
};

/* What the three frames below give when len bytes at `at` are missing, and what is behind is fed
 * from there, and in pieces that begin with frames if `by_frame`. */
static void want_gap(const struct frame_at *f, size_t at, size_t len, bool by_frame, char *want,
		     size_t size)
{
	size_t n = 0, resume = at + len;

	want[0] = 0;
	for (size_t i = 0; i < 3; i++) {
		bool within = at >= f[i].payload && at < f[i].end;

		if (f[i].end <= at) {
			n += (size_t)snprintf(want + n, size - n, "[%zu-%zu %s]", f[i].begin,
					      f[i].end - 1, f[i].text);
		} else if (within) {
			n += (size_t)snprintf(want + n, size - n, "[%zu-! %.*s]", f[i].begin,
					      (int)(at - f[i].payload), f[i].text);
			/* Stepped over: what comes next begins where it ends. */
			if (len && at + len <= f[i].end)
				resume = f[i].end;
		} else if (f[i].begin == resume || (by_frame && f[i].begin > resume)) {
			n += (size_t)snprintf(want + n, size - n, "[%zu-%zu %s]", f[i].begin,
					      f[i].end - 1, f[i].text);
			resume = f[i].end;
		}
	}
}

/* From off on, in one piece or in pieces that begin with frames. */
static int feed_behind(struct half *h, const struct wire *w, const struct frame_at *f, size_t off,
		       bool by_frame)
{
	int err = 0;

	for (size_t i = 0; i < 3 && by_frame; i++) {
		if (f[i].begin <= off)
			continue;
		err = feed(h, w->p + off, f[i].begin - off, off) ?: err;
		off = f[i].begin;
	}
	return off < w->n ? feed(h, w->p + off, w->n - off, off) ?: err : err;
}

/* A hole of any length at any place of "hello", nothing, and "world". */
static void check_gaps(enum tks_side side, const struct wire *w, const struct frame_at *f)
{
	char want[256];

	for (size_t at = 0; at < w->n; at++) {
		for (size_t len = 0; at + len <= w->n; len++) {
			for (int by_frame = 0; by_frame < 2; by_frame++) {
				struct half *h = opened(side, "");

				h->l.cut = true;
				assert_int_equal(feed(h, w->p, at, 0), 0);
				gap(h, at, len);
				assert_int_equal(feed_behind(h, w, f, at + len, by_frame), 0);
				want_gap(f, at, len, by_frame, want, sizeof(want));
				closed(h, want);
			}
		}
	}
}

static void test_gaps(void **state)
{
	static const struct frame_at plain[] = { { 0, 2, 7, "hello" },
						 { 7, 9, 9, "" },
						 { 9, 11, 16, "world" } };
	static const struct frame_at masked[] = { { 0, 6, 11, "hello" },
						  { 11, 17, 17, "" },
						  { 17, 23, 28, "world" } };
	struct wire *w = fresh();

	(void)state;
	put_text(w, "hello");
	put_text(w, "");
	put_text(w, "world");
	check_gaps(TKS_RESPONSE, w, plain);
	w->n = 0;
	/* With such masks nothing but a frame looks like one. */
	put_masked(w, FIN | TEXT, "~~~~", "hello", 5);
	put_masked(w, FIN | TEXT, "~~~~", "", 0);
	put_masked(w, FIN | TEXT, "~~~~", "world", 5);
	check_gaps(TKS_REQUEST, w, masked);
}

/* Stepped over: where the message ends is known. */
static void test_gap_within(void **state)
{
	struct wire *w = fresh();

	(void)state;
	put_text(w, "hello");
	put_text(w, "world");
	for (size_t at = 2; at < 7; at++) {
		for (size_t len = 1; at + len <= 7; len++) {
			struct half *h = opened(TKS_RESPONSE, "");
			char want[64];

			feed(h, w->p, at, 0);
			gap(h, at, len);
			assert_int_equal(h->l.messages, at + len == 7);
			feed(h, w->p + at + len, w->n - at - len, at + len);
			snprintf(want, sizeof(want), "[0-6! %.*s][7-13 world]", (int)(at - 2),
				 "hello");
			closed(h, want);
		}
	}
}

/* Twice in one message, and up to its end. */
static void test_gaps_twice(void **state)
{
	struct wire *w = fresh();
	struct half *h = opened(TKS_RESPONSE, "");

	(void)state;
	put_text(w, "abcdefgh");
	put_text(w, "next");
	feed(h, w->p, 3, 0);
	gap(h, 3, 2);
	feed(h, w->p + 5, 1, 5);
	gap(h, 6, 1);
	gap(h, 7, 3);
	feed(h, w->p + 10, w->n - 10, 10);
	closed(h, "[0-9! a][10-15 next]");
	/* While a frame is looked for. */
	h = opened(TKS_RESPONSE, "");
	gap(h, 0, 10);
	feed(h, "nothing", 7, 10);
	gap(h, 17, 5);
	feed(h, "\x81\2hi", 4, 22);
	closed(h, "[22-25 hi]");
}

/* --- gaps in fragmented messages: "Hel", a ping, "lo"; then "hi" --- */

enum { F_HEL = 0, F_PING = 5, F_LO = 9, F_HI = 13, F_ALL = 17 };

static void put_fragmented(struct wire *w)
{
	put_frame(w, TEXT, "Hel", 3);
	put_frame(w, FIN | PING, "pp", 2);
	put_frame(w, FIN | CONT, "lo", 2);
	put_text(w, "hi");
}

static struct half *fed_but(const struct wire *w, size_t at, size_t len)
{
	struct half *h = opened(TKS_RESPONSE, "");

	h->l.cut = true;
	assert_int_equal(feed(h, w->p, at, 0), 0);
	gap(h, at, len);
	assert_int_equal(feed(h, w->p + at + len, w->n - at - len, at + len), 0);
	return h;
}

static void test_gap_fragments(void **state)
{
	struct wire *w = fresh();
	char want[64];

	(void)state;
	put_fragmented(w);
	for (size_t at = 2; at < 5; at++) {
		for (size_t len = 1; at + len <= 5; len++) {
			snprintf(want, sizeof(want), "[0-! %.*s][13-16 hi]", (int)at - 2, "Hel");
			closed(fed_but(w, at, len), want);
		}
	}
	/* In the ping nothing of the message is missing. */
	closed(fed_but(w, 7, 1), "[0-12 Hello][13-16 hi]");
	closed(fed_but(w, 8, 1), "[0-12 Hello][13-16 hi]");
	closed(fed_but(w, 7, 2), "[0-12 Hello][13-16 hi]");
	closed(fed_but(w, 11, 1), "[0-! Hel][13-16 hi]");
	closed(fed_but(w, 12, 1), "[0-! Hell][13-16 hi]");
	closed(fed_but(w, 11, 2), "[0-! Hel][13-16 hi]");
	/* Up to the next message. */
	closed(fed_but(w, 3, 10), "[0-! H][13-16 hi]");
	closed(fed_but(w, 8, 5), "[0-! Hel][13-16 hi]");
	closed(fed_but(w, 10, 3), "[0-! Hel][13-16 hi]");
}

/* Whatever of it is missing, the message behind it is read, if a slice begins with one of the
 * frames before it: a part of a message that lost its beginning is no reason to stop. */
static void test_gap_to_fragment(void **state)
{
	static const size_t starts[] = { F_PING, F_LO, F_HI };
	struct wire *w = fresh();

	(void)state;
	put_fragmented(w);
	for (size_t i = 0; i < 3; i++) {
		for (size_t at = 0; at < starts[i]; at++) {
			struct half *h = fed_but(w, at, starts[i] - at);
			const char *last = strrchr(h->l.text, '[');
			bool whole = at >= F_PING + 2 && starts[i] == F_LO;

			assert_non_null(last);
			assert_string_equal(last, "[13-16 hi]");
			/* Of the two only it is whole; but for a hole in the ping. */
			assert_int_equal(h->l.unbroken, whole ? 2 : 1);
			closed(h, h->l.text);
		}
	}
}

/* The code of a close frame is known if all of it was there. */
static void test_gap_close(void **state)
{
	static const char *const want[] = { "(0 @6)", "(0 @6)", "(1000 @6)" };
	struct wire *w = fresh();

	(void)state;
	PUT(w, "\x88\x05\x03\xe8"
	       "bye");
	for (size_t at = 2; at < 7; at++) {
		for (size_t len = 1; at + len <= 7; len++) {
			struct half *h = opened(TKS_RESPONSE, "");

			feed(h, w->p, at, 0);
			gap(h, at, len);
			if (at + len < 7)
				feed(h, w->p + at + len, 7 - at - len, at + len);
			closed(h, want[at > 4 ? 2 : at - 2]);
		}
	}
}

/* --- a frame is looked for --- */

static void check_sought(enum tks_side side, const char *extensions, const void *p, size_t n,
			 bool found)
{
	struct half *h = opened(side, extensions);

	gap(h, 0, 50);
	assert_int_equal(feed(h, p, n, 50), 0);
	assert_int_equal(h->l.messages > 0, found);
	closed(h, h->l.text);
}

#define SOUGHT(side, ext, literal, found)                                                          \
	check_sought(side, ext, literal, sizeof(literal) - 1, found)

static void test_sought(void **state)
{
	(void)state;
	SOUGHT(TKS_RESPONSE, "", "\x81\2hi", true);
	SOUGHT(TKS_RESPONSE, "", "\x89\0\x81\2hi", true);
	SOUGHT(TKS_RESPONSE, "", "\x81\2hi\x82\2ab", true);
	/* Not what this side can't send. */
	SOUGHT(TKS_RESPONSE, "",
	       "\x81\x82"
	       "abcdhi",
	       false);
	SOUGHT(TKS_REQUEST, "",
	       "\x81\x82"
	       "abcdhi",
	       true);
	SOUGHT(TKS_REQUEST, "", "\x81\2hi", false);
	SOUGHT(TKS_RESPONSE, "", "\xc1\7" HELLO, false);
	SOUGHT(TKS_RESPONSE, NO_TAKEOVER, "\xc1\7" HELLO, true);
	SOUGHT(TKS_RESPONSE, "", "\xa1\2hi", false);
	SOUGHT(TKS_RESPONSE, "", "\x91\2hi", false);
	SOUGHT(TKS_RESPONSE, "", "\x83\2hi", false);
	/* What is behind the frame must be one too. */
	SOUGHT(TKS_RESPONSE, "", "\x81\2hi\x83\2ab", false);
	SOUGHT(TKS_RESPONSE, "", "\x81\2hi{\"type\"", false);
	SOUGHT(TKS_RESPONSE, "", "hi\x81\2hi", false);
	SOUGHT(TKS_RESPONSE, "", "{\"type\":\"response.done\"}", false);
}

/* The slice ends anywhere in what follows the frame: as far as it reaches it is one. */
static void test_sought_cut(void **state)
{
	struct wire *w = fresh();
	struct half *h;

	(void)state;
	put_text(w, "hello");
	put_frame_as(w, FIN | TEXT, 2, "and", 3);
	put_text(w, "x");
	for (size_t n = 2; n <= w->n; n++) {
		h = opened(TKS_RESPONSE, "");
		gap(h, 0, 1);
		feed(h, w->p, n, 0);
		feed(h, w->p + n, w->n - n, n);
		closed(h, "[0-6 hello][7-13 and][14-16 x]");
	}
}

/* With a window that is kept, what is compressed behind a hole can't be read; the rest can. */
static void test_sought_window(void **state)
{
	struct wire *w = fresh();
	struct half *h;

	(void)state;
	PUT(w, "\xc1\x07" HELLO "\x81\2hi");
	h = opened(TKS_RESPONSE, DEFLATE);
	gap(h, 0, 7);
	feed(h, w->p, w->n, 7);
	closed(h, "[7-15! ][16-19 hi]");
	h = opened(TKS_RESPONSE, NO_TAKEOVER);
	gap(h, 0, 7);
	feed(h, w->p, w->n, 7);
	closed(h, "[7-15 Hello][16-19 hi]");
}

/* A hole within a compressed message, and within one that is not. */
static void test_gap_compressed(void **state)
{
	struct wire *w = fresh();

	(void)state;
	PUT(w, "\xc1\x07" HELLO "\x81\2hi\xc1\7" HELLO "\x81\2ho");
	for (size_t at = 2; at < 9; at++) {
		for (int takeover = 0; takeover < 2; takeover++) {
			struct half *h = opened(TKS_RESPONSE, takeover ? DEFLATE : NO_TAKEOVER);

			feed(h, w->p, at, 0);
			gap(h, at, 1);
			feed(h, w->p + at + 1, w->n - at - 1, at + 1);
			assert_string_equal(strchr(h->l.text, ']'),
					    takeover ? "][9-12 hi][13-21! ][22-25 ho]"
						     : "][9-12 hi][13-21 Hello][22-25 ho]");
			assert_int_equal(strncmp(h->l.text, "[0-8! ", 6), 0);
			closed(h, h->l.text);
		}
	}
	for (size_t at = 11; at < 13; at++) {
		struct half *h = opened(TKS_RESPONSE, DEFLATE);

		feed(h, w->p, at, 0);
		gap(h, at, 1);
		feed(h, w->p + at + 1, w->n - at - 1, at + 1);
		closed(h, at == 11 ? "[0-8 Hello][9-12! ][13-21 Hello][22-25 ho]"
				   : "[0-8 Hello][9-12! h][13-21 Hello][22-25 ho]");
	}
}

/* --- entered in the middle --- */

static bool sniff(const void *p, size_t n)
{
	uint8_t *copy = malloc(n ? n : 1);
	bool is;

	assert_non_null(copy);
	memcpy(copy, p, n);
	is = tks_ws_sniff_middle(copy, n);
	free(copy);
	return is;
}

/* From the first frame's end on, wherever the slice ends. */
static void check_sniffed(const struct wire *w, size_t first)
{
	for (size_t n = 0; n <= w->n; n++) {
		if (sniff(w->p, n) != (n >= first))
			fail_msg("%zu of %zu octets, the first frame of %zu", n, w->n, first);
	}
}

static void test_sniff(void **state)
{
	struct wire *w = fresh();
	char json[300];

	(void)state;
	put_text(w, "{\"type\":\"x\"}");
	check_sniffed(w, 14);
	put_frame(w, FIN | PING, "", 0);
	put_frame(w, TEXT, "{\"a\"", 4);
	put_frame(w, FIN | CONT, ":1}", 3);
	check_sniffed(w, 14);
	/* A length of 16 bits; one behind it that is cut. */
	snprintf(json, sizeof(json), "{ \"a\": \"%0250d\"}", 0);
	w->n = 0;
	put_text(w, json);
	put_text(w, json);
	check_sniffed(w, 4 + strlen(json));
	/* The last one is as long as it likes. */
	w->n = 0;
	put_text(w, "{\"a\":1}");
	PUT(w, "\x82\x7f\0\0\0\0\0\x10\0\0ab");
	check_sniffed(w, 9);
}

static void test_sniff_not(void **state)
{
	static const struct {
		unsigned int first;
		const char *text;
	} frames[] = {
		{ FIN | BINARY, "{\"a\":1}" },
		{ FIN | CONT, "{\"a\":1}" },
		{ TEXT, "{\"a\":1}" },
		{ FIN | PING, "{\"a\":1}" },
		{ FIN | CLOSE, "{\"a\":1}" },
		{ FIN | RSV1 | TEXT, "{\"a\":1}" },
		{ FIN | RSV2 | TEXT, "{\"a\":1}" },
		{ FIN | TEXT, "" },
		{ FIN | TEXT, "{" },
		{ FIN | TEXT, "[{\"a\":1}]" },
		{ FIN | TEXT, "\"a\"" },
		{ FIN | TEXT, "hello" },
		{ FIN | TEXT, "{\"a\":1" },
	};
	struct wire *w = fresh();

	(void)state;
	for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
		w->n = 0;
		put_frame(w, frames[i].first, frames[i].text, strlen(frames[i].text));
		assert_false(sniff(w->p, w->n));
		put_text(w, "{\"a\":1}");
		assert_false(sniff(w->p, w->n));
	}
	/* A client's; and where what follows is no frame. */
	w->n = 0;
	put_masked(w, FIN | TEXT, "abcd", "{\"a\":1}", 7);
	assert_false(sniff(w->p, w->n));
	w->n = 0;
	put_masked(w, FIN | TEXT, "\0\0\0\0", "{\"a\":1}", 7);
	assert_false(sniff(w->p, w->n));
	w->n = 0;
	put_text(w, "{\"a\":1}");
	PUT(w, "{\"a\":1}");
	assert_false(sniff(w->p, w->n));
	assert_false(sniff("HTTP/1.1 200 OK\r\n", 17));
	assert_false(sniff("data: {\"a\":1}\n\n", 15));
}

/* --- memory --- */

static void check_no_memory(const char *extensions, bool takeover)
{
	struct wire *w = fresh();
	struct packer p;
	uint64_t calls, made;
	size_t a, b;

	packer_open(&p, 15);
	a = put_packed(w, &p, "one, two, one, two", takeover);
	put_text(w, "plain");
	b = put_packed(w, &p, "one, two, three", takeover);
	put_text(w, "plain");
	deflateEnd(&p.z);
	for (uint64_t at = 1;; at++) {
		struct half *h = opened(TKS_RESPONSE, extensions);
		const char *second;
		int err;

		made = h->mem.calls;
		h->mem.fail_at = made + at;
		err = feed(h, w->p, a - 2, 0);
		err = feed(h, w->p + a - 2, 2, a - 2) ?: err;
		calls = h->mem.calls - made;
		assert_true(err == -ENOMEM || (!err && calls < at));
		/* The others are tried with memory. */
		h->mem.fail_at = 0;
		assert_int_equal(feed(h, w->p + a, w->n - a, a), 0);
		assert_int_equal(h->l.messages, 4);
		second = strchr(h->l.text, ']') + 1;
		assert_int_equal(h->l.text[strcspn(h->l.text, "! ")] == '!', err != 0);
		assert_non_null(strstr(second, "plain]"));
		assert_int_equal(strchr(second, '!') != NULL, err && takeover);
		assert_int_equal(strstr(second, "one, two, three]") != NULL, !(err && takeover));
		closed(h, h->l.text);
		if (!err)
			break;
		assert_true(at < 100);
	}
	/* At least the codec, zlib's state and its window. */
	assert_true(calls >= 3);
	assert_true(b < w->n);
}

static void test_no_memory(void **state)
{
	struct tks_mem mem = { .fail_at = 1 };

	(void)state;
	assert_null(tks_ws_new(&mem, TKS_RESPONSE, "", &ops, NULL));
	assert_null(tks_ws_new(&mem, TKS_REQUEST, DEFLATE, &ops, NULL));
	assert_int_equal(mem.used, 0);
	tks_ws_free(NULL);
	check_no_memory(NO_TAKEOVER, false);
	check_no_memory(DEFLATE, true);
}

/* Lengths say nothing of memory; 2^62 bytes may come, or be missed. */
static void test_huge(void **state)
{
	static const uint64_t lens[] = { 1ull << 32, 1ull << 62, INT64_MAX };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		uint64_t end = 10 + lens[i];
		struct wire *w = fresh();
		char want[128];
		struct half *h = opened(TKS_RESPONSE, DEFLATE);
		size_t used = h->mem.used;

		PUT(w, "\x82");
		put_len(w, 8, 0, lens[i]);
		PUT(w, "abc");
		assert_int_equal(feed(h, w->p, w->n, 0), 0);
		/* All but one byte stepped over, which tells that it was no less and no more. */
		gap(h, 13, lens[i] - 4);
		assert_int_equal(h->l.messages, 0);
		assert_int_equal(feed(h, "x\x81\2hi", 5, end - 1), 0);
		assert_int_equal(h->mem.used, used);
		assert_int_equal(h->mem.peak, used);
		snprintf(want, sizeof(want), "{0-%" PRIu64 "! abc}[%" PRIu64 "-%" PRIu64 " hi]",
			 end - 1, end, end + 3);
		closed(h, want);
	}
}

/* Nothing is taken for what is not compressed. */
static void test_budget(void **state)
{
	struct wire *w = fresh();
	struct half *h = opened(TKS_RESPONSE, NO_TAKEOVER);
	size_t used = h->mem.used;

	(void)state;
	put_text(w, "plain");
	put_frame(w, TEXT, "pl", 2);
	put_frame(w, FIN | CONT, "ain", 3);
	assert_int_equal(feed(h, w->p, w->n, 0), 0);
	assert_int_equal(h->mem.peak, used);
	h->mem.limit = used + 1000;
	w->n = 0;
	PUT(w, "\xc1\x07" HELLO);
	assert_int_equal(feed(h, w->p, w->n, 16), -ENOMEM);
	assert_true(h->mem.peak <= used + 1000);
	h->mem.limit = 0;
	assert_int_equal(feed(h, w->p, w->n, 25), 0);
	closed(h, "[0-6 plain][7-15 plain][16-24! ][25-33 Hello]");
}

struct counted {
	uint64_t bytes;
	unsigned int broken, whole;
};

static void count_data(void *ctx, const struct tks_slice *s)
{
	((struct counted *)ctx)->bytes += s->len;
}

static void count_message(void *ctx, const struct tks_ws_message *m)
{
	struct counted *c = ctx;

	assert_int_equal(m->bytes, c->bytes);
	c->bytes = 0;
	c->broken += m->broken;
	c->whole += !m->broken;
}

static void check_bomb(const char *extensions, unsigned int whole)
{
	static const struct tks_ws_ops count = { count_data, count_message, on_close };
	static uint8_t zeros[1 << 20], out[16384];
	struct tks_mem mem = TKS_MEM_INIT(1 << 20);
	struct counted c = { 0 };
	struct wire *w = fresh();
	z_stream z = { .next_out = out, .avail_out = sizeof(out) };
	struct tks_ws *ws = tks_ws_new(&mem, TKS_RESPONSE, extensions, &count, &c);

	assert_non_null(ws);
	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, -15, 8, 0), Z_OK);
	for (int i = 0; i < 8; i++) {
		z.next_in = zeros;
		z.avail_in = sizeof(zeros);
		assert_int_equal(deflate(&z, i == 7 ? Z_SYNC_FLUSH : Z_NO_FLUSH), Z_OK);
	}
	put_frame(w, FIN | RSV1 | TEXT, out, z.total_out - 4);
	deflateEnd(&z);
	put_text(w, "plain");
	PUT(w, "\xc1\x07" HELLO);
	assert_int_equal(tks_ws_feed(ws, &(struct tks_slice){ w->p, w->n, BASE }), 0);
	assert_int_equal(c.whole, whole);
	assert_int_equal(c.broken, 3 - whole);
	tks_ws_free(ws);
	assert_int_equal(mem.used, 0);
}

/* A bomb breaks its message, not the connection. */
static void test_bomb(void **state)
{
	(void)state;
	check_bomb(NO_TAKEOVER, 2);
	check_bomb(DEFLATE, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rfc_frames),
		cmocka_unit_test(test_rfc_lengths),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_masks),
		cmocka_unit_test(test_masks_long),
		cmocka_unit_test(test_fragments),
		cmocka_unit_test(test_control_between),
		cmocka_unit_test(test_close),
		cmocka_unit_test(test_data_offsets),
		cmocka_unit_test(test_reserved_opcodes),
		cmocka_unit_test(test_bad_order),
		cmocka_unit_test(test_bad_order_within),
		cmocka_unit_test(test_bad_control),
		cmocka_unit_test(test_bad_length),
		cmocka_unit_test(test_rsv),
		cmocka_unit_test(test_rsv1),
		cmocka_unit_test(test_rsv_later),
		cmocka_unit_test(test_rfc_deflate),
		cmocka_unit_test(test_rfc_final_block),
		cmocka_unit_test(test_deflate_forms),
		cmocka_unit_test(test_zlib),
		cmocka_unit_test(test_zlib_window),
		cmocka_unit_test(test_offers),
		cmocka_unit_test(test_names_alike),
		cmocka_unit_test(test_not_inflated),
		cmocka_unit_test(test_not_inflated_middle),
		cmocka_unit_test(test_window_of_unread),
		cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_gap_within),
		cmocka_unit_test(test_gaps_twice),
		cmocka_unit_test(test_gap_fragments),
		cmocka_unit_test(test_gap_to_fragment),
		cmocka_unit_test(test_gap_close),
		cmocka_unit_test(test_sought),
		cmocka_unit_test(test_sought_cut),
		cmocka_unit_test(test_sought_window),
		cmocka_unit_test(test_gap_compressed),
		cmocka_unit_test(test_sniff),
		cmocka_unit_test(test_sniff_not),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_huge),
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_bomb),
	};

	return cmocka_run_group_tests_name("websocket", tests, NULL, NULL);
}
