// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Content codings: streams written by hand from the RFCs, or made by zlib, zstd and the brotli
 * tool, whole, a byte at a time and cut at every place, give the text they were made of; what a
 * flush made decodable is out with its last byte; what is bad is told for good.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>
#include <zstd.h>

#include "codec.h"

enum { BYTES_MAX = 8192, GZIP_BITS = 31, ZLIB_BITS = 15, RAW_BITS = -15 };

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

struct bytes {
	uint8_t p[BYTES_MAX];
	size_t n;
};

/* What came out. */
struct sink {
	uint8_t p[BYTES_MAX];
	size_t n;
	unsigned int calls;
	unsigned int stop_at; /* the call with this number, from 1, says stop_with */
	int stop_with;
};

static int on_bytes(void *ctx, const uint8_t *data, size_t len)
{
	struct sink *s = ctx;

	assert_true(len && s->n + len <= sizeof(s->p));
	memcpy(s->p + s->n, data, len);
	s->n += len;
	return ++s->calls == s->stop_at ? s->stop_with : 0;
}

/* --- feeding --- */

/* From a block of just that size, so that a sanitizer sees a step over its end. */
static int feed(struct tks_codec *c, const uint8_t *p, size_t n, struct sink *out)
{
	uint8_t *copy = malloc(n ? n : 1);
	int err;

	assert_non_null(copy);
	memcpy(copy, p, n);
	err = tks_codec_feed(c, copy, n, on_bytes, out);
	free(copy);
	return err;
}

/* Up to the first error. */
static int feed_pieces(struct tks_codec *c, const struct bytes *in, size_t first, size_t piece,
		       struct sink *out)
{
	int err = 0;

	for (size_t i = 0; i < in->n && !err;) {
		size_t k = i ? piece : first;

		k = k < in->n - i ? k : in->n - i;
		err = feed(c, in->p + i, k, out);
		i += k;
	}
	return err;
}

static const uint8_t in_vain[] = { 0x1f, 0x8b };

/* An error is for good, and what came before it is good. */
static void expect(struct tks_codec *c, int err, int want_err, struct sink *out,
		   const struct bytes *want)
{
	size_t n = out->n;

	assert_int_equal(err, want_err);
	if (!err) {
		assert_int_equal(out->n, want->n);
	} else {
		assert_true(out->n <= want->n);
		assert_int_equal(feed(c, in_vain, 2, out), want_err);
		assert_int_equal(feed(c, in_vain, 0, out), want_err);
		assert_int_equal(out->n, n);
	}
	assert_memory_equal(out->p, want->p, n);
}

/* Twice, as a codec that was reset is as good as a new one. */
static void run(enum tks_coding coding, const struct bytes *in, size_t first, size_t piece,
		const struct bytes *want, int want_err)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_codec *c = tks_codec_new(&mem, coding);

	assert_non_null(c);
	for (int i = 0; i < 2; i++) {
		struct sink *out = calloc(1, sizeof(*out));

		assert_non_null(out);
		expect(c, feed_pieces(c, in, first, piece, out), want_err, out, want);
		free(out);
		tks_codec_reset(c);
	}
	tks_codec_free(c);
	assert_int_equal(mem.used, 0);
}

static void check_err(enum tks_coding coding, const struct bytes *in, const struct bytes *want,
		      int want_err)
{
	for (size_t first = 1; first <= in->n; first++)
		run(coding, in, first, in->n, want, want_err);
	run(coding, in, 1, 1, want, want_err);
	run(coding, in, 2, 3, want, want_err);
}

static void check(enum tks_coding coding, const struct bytes *in, const struct bytes *want)
{
	check_err(coding, in, want, 0);
}

/* --- making --- */

static void put(struct bytes *b, const void *p, size_t n)
{
	assert_true(b->n + n <= sizeof(b->p));
	memcpy(b->p + b->n, p, n);
	b->n += n;
}

/* Bytes of an array or of a literal without its end. */
#define PUT(b, array) put(b, array, sizeof(array))
#define PUTS(b, text) put(b, text, strlen(text))

static void put_byte(struct bytes *b, unsigned int v)
{
	uint8_t o = (uint8_t)v;

	put(b, &o, 1);
}

static void put_le(struct bytes *b, uint32_t v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put_byte(b, v >> 8 * i);
}

/* A stored block: RFC 1951, section 3.2.4. */
static void put_stored(struct bytes *b, const void *text, size_t n, bool last)
{
	put_byte(b, last);
	put_le(b, (uint32_t)n, 2);
	put_le(b, ~(uint32_t)n, 2);
	put(b, text, n);
}

static void append_deflated(struct bytes *b, const char *text, int bits, int level, int flush)
{
	z_stream z = { 0 };

	assert_int_equal(deflateInit2(&z, level, Z_DEFLATED, bits, 8, 0), Z_OK);
	z.next_in = (uint8_t *)text;
	z.avail_in = (uInt)strlen(text);
	z.next_out = b->p + b->n;
	z.avail_out = (uInt)(sizeof(b->p) - b->n);
	assert_int_equal(deflate(&z, flush), flush == Z_FINISH ? Z_STREAM_END : Z_OK);
	b->n += z.total_out;
	deflateEnd(&z);
}

/* The catalogues' check values: CRC-32 and Adler-32 of these nine digits. */
#define DIGITS "123456789"
static const uint8_t digits_crc[] = { 0x26, 0x39, 0xf4, 0xcb };
static const uint8_t digits_adler[] = { 0x09, 0x1e, 0x01, 0xde };

static const struct bytes digits = { DIGITS, 9 };
static const struct bytes nothing = { { 0 }, 0 };

enum { FTEXT = 1, FHCRC = 2, FEXTRA = 4, FNAME = 8, FCOMMENT = 16 };

/* A member by RFC 1952, section 2.3. Returns the length of its header. */
static size_t put_member(struct bytes *b, unsigned int flags)
{
	size_t start = b->n, head;

	PUTS(b, "\x1f\x8b\x08");
	put_byte(b, flags);
	put_le(b, 0x65a1b2c3, 4); /* MTIME */
	put_byte(b, 2); /* XFL: slowest */
	put_byte(b, 3); /* OS: Unix */
	if (flags & FEXTRA) {
		put_le(b, 9, 2);
		PUTS(b, "Ap\x05");
		PUT(b, ((uint8_t[]){ 0, 0x1f, 0x8b, 0, 'x', 'y' }));
	}
	if (flags & FNAME)
		put(b, "a name.txt", 11);
	if (flags & FCOMMENT)
		put(b, "\x1f\x8b\x08 says it", 12);
	if (flags & FHCRC)
		put_le(b, (uint32_t)crc32(0, b->p + start, (uInt)(b->n - start)), 2);
	head = b->n - start;
	put_stored(b, DIGITS, 9, true);
	PUT(b, digits_crc);
	put_le(b, 9, 4);
	return head;
}

static void put_zlib(struct bytes *b)
{
	PUTS(b, "\x78\x01");
	put_stored(b, DIGITS, 9, true);
	PUT(b, digits_adler);
}

/* --- by the zstd tool 1.5.4 and the brotli tool 1.0.9 --- */

#define FRAME "data: {\"token\":\"the time of the government\"}\n\n"

/* zstd -19 --check of FRAME FRAME FRAME */
static const uint8_t zstd_frames[] = {
	0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x68, 0x95, 0x01, 0x00, 0xe2, 0x42, 0x0a, 0x10,
	0xc0, 0xeb, 0xde, 0x92, 0x09, 0xa1, 0x6e, 0x4b, 0x36, 0xf8, 0xb7, 0x37, 0xa5,
	0x63, 0x0b, 0x0b, 0x00, 0xb4, 0x3b, 0x3a, 0xa1, 0xf2, 0xca, 0x52, 0x9b, 0x97,
	0x64, 0x9d, 0xce, 0x6b, 0xf3, 0x0b, 0x87, 0x46, 0xf9, 0x63, 0x0d, 0xe2, 0x62,
	0x04, 0x01, 0x00, 0xce, 0x38, 0xa9, 0x32, 0x7f, 0xc9, 0x5f, 0xd1,
};
/* zstd --check of "hi" */
static const uint8_t zstd_hi[] = { 0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x11, 0x00,
				   0x00, 'h',  'i',  0xfa, 0x38, 0x26, 0xea };
/* zstd of nothing; the checksum is XXH64's of nothing, 0xef46db3751d8e999 */
static const uint8_t zstd_empty[] = { 0x28, 0xb5, 0x2f, 0xfd, 0x24, 0x00, 0x01,
				      0x00, 0x00, 0x99, 0xe9, 0xd8, 0x51 };
/* brotli -q 11 of FRAME: words of its dictionary */
static const uint8_t br_words[] = {
	0x1f, 0x2d, 0x00, 0xf8, 0x8d, 0xc4, 0x38, 0x16, 0xf1, 0x46, 0x71, 0x21, 0xd5, 0x22,
	0x0a, 0x20, 0x7b, 0x4b, 0xa7, 0x0f, 0x36, 0xe0, 0x80, 0x3d, 0xc2, 0x22, 0x5b, 0xe8,
	0xb6, 0xa0, 0x0c, 0x5b, 0xb0, 0x01, 0xd9, 0xe5, 0xc7, 0xe3, 0x50, 0x0b,
};
/* brotli -q 5 of FRAME */
static const uint8_t br_plain[] = {
	0x1f, 0x2d, 0x00, 0x00, 0x04, 0x9c, 0x63, 0xdd, 0x92, 0x64, 0x25, 0xda,
	0xba, 0x70, 0xfa, 0xdb, 0x39, 0x6c, 0xc0, 0x81, 0x43, 0x9c, 0xc8, 0x83,
	0x0d, 0x34, 0x4c, 0xe4, 0x84, 0x5a, 0x12, 0xdc, 0xce, 0x91, 0xa5, 0xf1,
	0x91, 0x74, 0x09, 0x3b, 0x35, 0xd0, 0x63, 0x75, 0x5a, 0x78, 0x09,
};
/* libbrotlienc, quality 5: flushed behind "data: one\n\n", "data: two\n\n", "data: one, two\n\n",
 * "data: [DONE]\n\n", and ended. */
static const uint8_t br_flushed[] = {
	0x0b, 0x05, 0x80, 0x64, 0x61, 0x74, 0x61, 0x3a, 0x20, 0x6f, 0x6e, 0x65, 0x0a,
	0x0a, 0x50, 0x00, 0x00, 0x40, 0x5a, 0xe1, 0x8d, 0xee, 0x4e, 0x11, 0xa2, 0x4a,
	0x04, 0xb6, 0x60, 0x00, 0x78, 0x00, 0x00, 0x40, 0x82, 0xa5, 0x0e, 0x61, 0xa4,
	0xa8, 0xca, 0x34, 0x03, 0x68, 0x00, 0x00, 0x40, 0xc0, 0x43, 0xd6, 0x5f, 0x33,
	0x95, 0x75, 0x53, 0x04, 0xe8, 0x12, 0x80, 0xa6, 0xc6, 0x07, 0x03, 0x03,
};

static const char *const events[] = { "data: one\n\n", "data: two\n\n", "data: one, two\n\n",
				      "data: [DONE]\n\n" };

/* --- names --- */

static void test_names(void **state)
{
	static const struct {
		const char *name;
		enum tks_coding coding;
	} names[] = {
		{ "", TKS_CODING_IDENTITY },	   { "identity", TKS_CODING_IDENTITY },
		{ "gzip", TKS_CODING_GZIP },	   { "x-gzip", TKS_CODING_GZIP },
		{ "deflate", TKS_CODING_DEFLATE }, { "br", TKS_CODING_BR },
		{ "zstd", TKS_CODING_ZSTD },	   { "gzip, br", TKS_CODING_OTHER },
		{ "gzip,gzip", TKS_CODING_OTHER }, { "gzip ", TKS_CODING_OTHER },
		{ "gzi", TKS_CODING_OTHER },	   { "gzipp", TKS_CODING_OTHER },
		{ "b", TKS_CODING_OTHER },	   { "brotli", TKS_CODING_OTHER },
		{ "dcb", TKS_CODING_OTHER },	   { "dcz", TKS_CODING_OTHER },
		{ "compress", TKS_CODING_OTHER },  { "x-compress", TKS_CODING_OTHER },
		{ "x-deflate", TKS_CODING_OTHER }, { "raw", TKS_CODING_OTHER },
		{ "snappy", TKS_CODING_OTHER },	   { "*", TKS_CODING_OTHER },
		{ ",", TKS_CODING_OTHER },
	};

	(void)state;
	for (size_t i = 0; i < LEN(names); i++)
		assert_int_equal(tks_coding_named(names[i].name), names[i].coding);
}

static void test_no_codec(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);

	(void)state;
	assert_null(tks_codec_new(&mem, TKS_CODING_IDENTITY));
	assert_null(tks_codec_new(&mem, TKS_CODING_OTHER));
	assert_int_equal(mem.calls, 0);
	tks_codec_free(NULL);
}

/* --- gzip --- */

static void test_gzip_fields(void **state)
{
	(void)state;
	for (unsigned int flags = 0; flags < 32; flags++) {
		struct bytes in = { { 0 }, 0 };

		put_member(&in, flags);
		check(TKS_CODING_GZIP, &in, &digits);
	}
}

static void test_gzip_deflated(void **state)
{
	struct bytes want = { FRAME FRAME FRAME, 3 * strlen(FRAME) };

	(void)state;
	for (int level = 0; level <= 9; level++) {
		struct bytes in = { { 0 }, 0 };

		append_deflated(&in, FRAME FRAME FRAME, GZIP_BITS, level, Z_FINISH);
		check(TKS_CODING_GZIP, &in, &want);
	}
}

/* RFC 1952, section 2.2: members simply appear one after another. */
static void test_gzip_members(void **state)
{
	struct bytes in = { { 0 }, 0 }, want = { { 0 }, 0 };

	(void)state;
	put_member(&in, 0);
	put_member(&in, FNAME | FHCRC);
	append_deflated(&in, "", GZIP_BITS, 6, Z_FINISH);
	append_deflated(&in, FRAME, GZIP_BITS, 6, Z_FINISH);
	put_member(&in, FEXTRA);
	PUTS(&want, DIGITS DIGITS FRAME DIGITS);
	check(TKS_CODING_GZIP, &in, &want);
}

static void test_gzip_empty(void **state)
{
	struct bytes in = { { 0 }, 0 };

	(void)state;
	/* A fixed block with nothing but its end: RFC 1951, section 3.2.6. */
	put(&in, "\x1f\x8b\x08\0\0\0\0\0\0\xff\x03\0\0\0\0\0\0\0\0\0", 20);
	check(TKS_CODING_GZIP, &in, &nothing);
	in.n = 0;
	append_deflated(&in, "", GZIP_BITS, 9, Z_FINISH);
	append_deflated(&in, "", GZIP_BITS, 1, Z_FINISH);
	check(TKS_CODING_GZIP, &in, &nothing);
}

/* Behind the end: padding, junk, what looks like a member and isn't, the beginning of one. */
static void test_gzip_trailing(void **state)
{
	static const struct {
		const char *p;
		size_t n;
	} tails[] = {
		{ "\0", 1 },
		{ "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 32 },
		{ "hello, this is something else", 29 },
		{ "\x1f", 1 },
		{ "\x1f\x8b", 2 },
		{ "\x1f\x8c\x08\0\0\0\0\0\0\xff", 10 },
		{ "\x1f\x8b\x09\0\0\0\0\0\0\xff", 10 },
		{ "\x1f\x8b\x08\0\0\0\0\0\0\xff", 10 },
		{ "\x78\x9c\x03\0\0\0\0\1", 8 },
		{ "\0\x1f\x8b\x08\0\0\0\0\0\0\xff\x03\0\0\0\0\0\0\0\0\0", 21 },
	};

	(void)state;
	for (size_t i = 0; i < LEN(tails); i++) {
		struct bytes in = { { 0 }, 0 };

		put_member(&in, FNAME);
		put(&in, tails[i].p, tails[i].n);
		check(TKS_CODING_GZIP, &in, &digits);
	}
	/* Padding ends it: a member behind it is none. */
	for (size_t zeros = 1; zeros < 4; zeros++) {
		struct bytes in = { { 0 }, 0 };

		put_member(&in, 0);
		put(&in, "\0\0\0", zeros);
		put_member(&in, 0);
		check(TKS_CODING_GZIP, &in, &digits);
	}
}

/* A second member that yields something is one, and can be bad. */
static void test_gzip_bad_member(void **state)
{
	struct bytes in = { { 0 }, 0 }, want = { { 0 }, 0 };

	(void)state;
	put_member(&in, 0);
	put_member(&in, 0);
	in.p[in.n - 1] ^= 1;
	PUTS(&want, DIGITS DIGITS);
	check_err(TKS_CODING_GZIP, &in, &want, -EBADMSG);
}

/* --- deflate --- */

/* RFC 1950, section 2.2: any window, any level, and a check that makes it a multiple of 31. */
static void test_deflate_headers(void **state)
{
	(void)state;
	for (unsigned int window = 0; window < 8; window++) {
		for (unsigned int level = 0; level < 4; level++) {
			struct bytes in = { { 0 }, 0 };
			unsigned int head = (window << 4 | 8) << 8 | level << 6;

			put_zlib(&in);
			head += (31 - head % 31) % 31;
			in.p[0] = (uint8_t)(head >> 8);
			in.p[1] = (uint8_t)head;
			check(TKS_CODING_DEFLATE, &in, &digits);
		}
	}
}

static void test_deflate_raw(void **state)
{
	struct bytes in = { { 0 }, 0 }, a = { "a", 1 };

	(void)state;
	/* Fixed Huffman codes: RFC 1951, section 3.2.6. */
	put(&in, "\x4b\x04\0", 3);
	check(TKS_CODING_DEFLATE, &in, &a);
	check(TKS_CODING_RAW_DEFLATE, &in, &a);
	in.n = 0;
	put(&in, "\x03\0", 2);
	check(TKS_CODING_DEFLATE, &in, &nothing);
	/* Stored ones, the last and not. */
	in.n = 0;
	put_stored(&in, DIGITS, 9, true);
	check(TKS_CODING_DEFLATE, &in, &digits);
	in.n = 0;
	put_stored(&in, "1234", 4, false);
	put_stored(&in, "", 0, false);
	put_stored(&in, "56789", 5, true);
	check(TKS_CODING_DEFLATE, &in, &digits);
	check(TKS_CODING_RAW_DEFLATE, &in, &digits);
}

/* What zlib makes, with dynamic codes too; and bytes behind the end. */
static void test_deflate_made(void **state)
{
	static const int bits[] = { ZLIB_BITS, RAW_BITS };
	char text[2001];
	struct bytes want = { { 0 }, 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(text) - 1; i++)
		text[i] = (char)('a' + i * i % 23 % 7 + i % 3);
	text[sizeof(text) - 1] = 0;
	PUTS(&want, text);
	for (size_t i = 0; i < LEN(bits); i++) {
		for (int level = 0; level <= 9; level += 3) {
			struct bytes in = { { 0 }, 0 };

			append_deflated(&in, text, bits[i], level, Z_FINISH);
			run(TKS_CODING_DEFLATE, &in, 1, 1, &want, 0);
			run(TKS_CODING_DEFLATE, &in, in.n, in.n, &want, 0);
			run(TKS_CODING_DEFLATE, &in, 3, 7, &want, 0);
			append_deflated(&in, text, bits[i], level, Z_FINISH);
			run(TKS_CODING_DEFLATE, &in, 1, 1, &want, 0);
			run(TKS_CODING_DEFLATE, &in, in.n, in.n, &want, 0);
			run(TKS_CODING_DEFLATE, &in, 3, 7, &want, 0);
		}
	}
}

/* Of what begins like zlib's header, but for one thing, a raw block is read. */
static void test_deflate_told_apart(void **state)
{
	static const struct {
		uint8_t head[2];
		bool zlib;
	} heads[] = {
		{ { 0x78, 0x01 }, true }, /* all of it */
		{ { 0x08, 0x1d }, true }, /* the smallest window: 0x81d is 31 * 67 */
		{ { 0x78, 0x02 }, false }, /* no check */
		{ { 0x78, 0x20 }, false }, /* a dictionary, and 0x7820 is 31 * 992 */
		{ { 0x88, 0x1c }, false }, /* a window of 8, and 0x881c is 31 * 1124 */
		{ { 0x70, 0x0b }, false }, /* method 0, and 0x700b is 31 * 925 */
	};

	(void)state;
	for (size_t i = 0; i < LEN(heads); i++) {
		struct bytes in = { { 0 }, 0 }, want = { { 0 }, 0 };
		unsigned int n = heads[i].head[1];

		/* As a raw one: stored, not the last, with bits in its padding, n bytes long. */
		put(&in, heads[i].head, 2);
		put_byte(&in, 0);
		put_le(&in, ~n, 2);
		for (unsigned int k = 0; k < n; k++)
			put_byte(&want, 'a' + k);
		put(&in, want.p, want.n);
		put(&in, "\x03\0", 2);
		if (heads[i].zlib)
			check_err(TKS_CODING_DEFLATE, &in, &nothing, -EBADMSG);
		else
			check(TKS_CODING_DEFLATE, &in, &want);
		/* Where no other form can be there is nothing to tell apart. */
		check(TKS_CODING_RAW_DEFLATE, &in, &want);
	}
}

/* --- br --- */

/* RFC 7932, section 9.1 and 9.2, bits from the lowest. */
static void test_br_by_hand(void **state)
{
	static const struct {
		const char *p;
		size_t n;
		const char *want;
	} streams[] = {
		/* WBITS 16, ISLAST, ISLASTEMPTY: 0 1 1 */
		{ "\x06", 1, "" },
		/* WBITS 24, the same: 1111 1 1; so does the brotli tool */
		{ "\x3f", 1, "" },
		/* WBITS 16; not last, 4 nibbles, MLEN 2, uncompressed: 0 0 00 1<<4 1; then 1 1 */
		{ "\x10\x00\x10hi\x03", 6, "hi" },
		/* The same between what is to be skipped: nothing (0 0 11 0 00), which ends at a
		 * byte, and one byte (0 11 0 01, 8 bits of the length less 1). */
		{ "\x0c\x08\x00\x08hi\x16\0#\x03", 10, "hi" },
		/* By the brotli tool. */
		{ "\x0f\x00\x80X\x03", 5, "X" },
	};

	(void)state;
	for (size_t i = 0; i < LEN(streams); i++) {
		struct bytes in = { { 0 }, 0 }, want = { { 0 }, 0 };

		put(&in, streams[i].p, streams[i].n);
		PUTS(&want, streams[i].want);
		check(TKS_CODING_BR, &in, &want);
		PUTS(&in, "behind it");
		check(TKS_CODING_BR, &in, &want);
	}
}

static void test_br_by_the_tool(void **state)
{
	struct bytes in = { { 0 }, 0 }, want = { FRAME, strlen(FRAME) };

	(void)state;
	PUT(&in, br_words);
	check(TKS_CODING_BR, &in, &want);
	/* There is but one stream. */
	PUT(&in, br_words);
	check(TKS_CODING_BR, &in, &want);
	in.n = 0;
	PUT(&in, br_plain);
	check(TKS_CODING_BR, &in, &want);
}

static void test_br_bad(void **state)
{
	static const struct {
		const char *p;
		size_t n;
	} streams[] = {
		{ "\x11\xff\xff\xff", 4 }, /* WBITS that is reserved (large windows) */
		{ "\x1c\xff\xff\xff", 4 }, /* 0 0 11 1: the reserved bit set */
		{ "\x86\xff\xff\xff", 4 }, /* bits in the padding behind an empty last one */
		{ "\x10\x00\x30hi\x03", 6 }, /* in the padding in front of what is uncompressed */
		/* A window of 16 bits, 5 nibbles, and the upper one 0. */
		{ "\x14\x00\x00\x01hi\x03", 7 },
	};

	(void)state;
	for (size_t i = 0; i < LEN(streams); i++) {
		struct bytes in = { { 0 }, 0 };

		put(&in, streams[i].p, streams[i].n);
		check_err(TKS_CODING_BR, &in, &nothing, -EBADMSG);
	}
}

/* --- zstd --- */

#define ZSTD_MAGIC "\x28\xb5\x2f\xfd"

/* RFC 8878, section 3.1.1.2: raw 0, RLE 1. */
static void put_block(struct bytes *b, unsigned int type, bool last, size_t size)
{
	put_le(b, (uint32_t)(size << 3 | type << 1 | last), 3);
}

static void put_skippable(struct bytes *b, unsigned int number, size_t size)
{
	put_le(b, 0x184d2a50 + number, 4);
	put_le(b, (uint32_t)size, 4);
	for (size_t i = 0; i < size; i++)
		put_byte(b, ZSTD_MAGIC[i % 4]);
}

static void test_zstd_by_hand(void **state)
{
	struct bytes in = { { 0 }, 0 }, want = { { 0 }, 0 };

	(void)state;
	/* A window of 1 KiB, no size, no checksum. */
	put(&in, ZSTD_MAGIC "\0\0", 6);
	put_block(&in, 0, false, 5);
	PUTS(&in, "12345");
	put_block(&in, 1, false, 300);
	PUTS(&in, "x");
	put_block(&in, 0, false, 0);
	put_block(&in, 0, true, 4);
	PUTS(&in, "6789");
	PUTS(&want, "12345");
	for (int i = 0; i < 300; i++)
		PUTS(&want, "x");
	PUTS(&want, "6789");
	check(TKS_CODING_ZSTD, &in, &want);
	/* One segment, of a size in one byte, in two (plus 256), in four and in eight. */
	for (unsigned int flag = 0; flag < 4; flag++) {
		in.n = 0;
		put(&in, ZSTD_MAGIC, 4);
		put_byte(&in, flag << 6 | 0x20);
		put_le(&in, flag == 1 ? 300 - 256 : 100, flag == 3 ? 4 : 1u << flag);
		if (flag == 3)
			put_le(&in, 0, 4);
		want.n = flag == 1 ? 300 : 100;
		memset(want.p, 'y', want.n);
		put_block(&in, 1, true, want.n);
		PUTS(&in, "y");
		check(TKS_CODING_ZSTD, &in, &want);
	}
}

static void test_zstd_by_the_tool(void **state)
{
	struct bytes in = { { 0 }, 0 }, want = { { 0 }, 0 };

	(void)state;
	PUT(&in, zstd_frames);
	PUTS(&want, FRAME FRAME FRAME);
	check(TKS_CODING_ZSTD, &in, &want);
	PUT(&in, zstd_hi);
	PUT(&in, zstd_empty);
	PUT(&in, zstd_hi);
	PUTS(&want, "hihi");
	check(TKS_CODING_ZSTD, &in, &want);
	in.n = 0;
	PUT(&in, zstd_empty);
	check(TKS_CODING_ZSTD, &in, &nothing);
}

/* RFC 8878, section 3.1.2: of any of 16 numbers, anywhere. */
static void test_zstd_skippable(void **state)
{
	struct bytes want = { "hihi", 4 };

	(void)state;
	for (unsigned int number = 0; number < 16; number++) {
		struct bytes in = { { 0 }, 0 };

		put_skippable(&in, number, number * 3);
		PUT(&in, zstd_hi);
		put_skippable(&in, number, 0);
		put_skippable(&in, 15 - number, 1);
		PUT(&in, zstd_hi);
		put_skippable(&in, number, 5);
		check(TKS_CODING_ZSTD, &in, &want);
	}
}

static void test_zstd_trailing(void **state)
{
	static const char *const tails[] = { "x",
					     "hello, world",
					     "\x28",
					     "\x28\xb5\x2f\xfe....",
					     "\x1f\x8b\x08....",
					     "\x60\x2a\x4d\x18...." };
	struct bytes want = { "hi", 2 };

	(void)state;
	for (size_t i = 0; i < LEN(tails); i++) {
		struct bytes in = { { 0 }, 0 };

		PUT(&in, zstd_hi);
		PUTS(&in, tails[i]);
		check(TKS_CODING_ZSTD, &in, &want);
		/* It was the end. */
		if (strlen(tails[i]) >= 5) {
			PUT(&in, zstd_hi);
			check(TKS_CODING_ZSTD, &in, &want);
		}
	}
	for (size_t n = 1; n < 20; n++) {
		struct bytes in = { { 0 }, 0 };

		PUT(&in, zstd_hi);
		for (size_t i = 0; i < n; i++)
			put_byte(&in, 0);
		check(TKS_CODING_ZSTD, &in, &want);
	}
}

/* A second frame that yields something and is bad is not passed over, however it is cut. */
static void test_zstd_bad_frame(void **state)
{
	struct bytes in = { { 0 }, 0 }, want = { "hiyyyyyyyy", 10 };

	(void)state;
	PUT(&in, zstd_hi);
	PUT(&in, zstd_hi);
	in.p[in.n - 1] ^= 1;
	memcpy(want.p, "hihi", 4);
	check_err(TKS_CODING_ZSTD, &in, &want, -EBADMSG);
	/* The same of a frame that says its size: 8, with a checksum that is none. */
	in.n = 0;
	memcpy(want.p, "hiyy", 4);
	PUT(&in, zstd_hi);
	put(&in, ZSTD_MAGIC "\x24\x08", 6);
	put_block(&in, 1, true, 8);
	put(&in, "y\0\0\0\0", 5);
	check_err(TKS_CODING_ZSTD, &in, &want, -EBADMSG);
}

static void test_zstd_bad(void **state)
{
	static const struct {
		const char *p;
		size_t n;
	} frames[] = {
		{ "\x28\xb5\x2f\xfe\0\0\1\0\0", 9 }, /* magic */
		{ "hello, world", 12 },
		{ ZSTD_MAGIC "\x08\0\1\0\0", 9 }, /* the reserved bit */
		{ ZSTD_MAGIC "\x01\0\x05\1\0\0", 10 }, /* dictionary 5 */
		{ ZSTD_MAGIC "\0\0\7\0\0", 9 }, /* a block of the reserved type */
		{ ZSTD_MAGIC "\0\0\1\x21\0", 9 }, /* a block larger than the window, 1056 */
	};

	(void)state;
	for (size_t i = 0; i < LEN(frames); i++) {
		struct bytes in = { { 0 }, 0 };

		put(&in, frames[i].p, frames[i].n);
		check_err(TKS_CODING_ZSTD, &in, &nothing, -EBADMSG);
	}
}

/* 2^(10 + exponent) * (1 + mantissa / 8): up to 8 MiB; whether it says its size or not. */
static void test_zstd_window(void **state)
{
	struct bytes want = { { 0 }, 0 };

	(void)state;
	memset(want.p, 'y', want.n = 300);
	for (unsigned int exponent = 0; exponent < 32; exponent++) {
		for (unsigned int mantissa = 0; mantissa < 8; mantissa++) {
			bool fits = exponent < 13 || (exponent == 13 && !mantissa);

			for (unsigned int sized = 0; sized < 2; sized++) {
				struct bytes in = { { 0 }, 0 };

				put(&in, ZSTD_MAGIC, 4);
				put_byte(&in, sized << 6);
				put_byte(&in, exponent << 3 | mantissa);
				if (sized)
					put_le(&in, 300 - 256, 2);
				put_block(&in, 1, true, 300);
				PUTS(&in, "y");
				run(TKS_CODING_ZSTD, &in, 1, 1, &want, fits ? 0 : -EBADMSG);
				run(TKS_CODING_ZSTD, &in, in.n, 1, &want, fits ? 0 : -EBADMSG);
				run(TKS_CODING_ZSTD, &in, 5, 99, &want, fits ? 0 : -EBADMSG);
			}
		}
	}
}

/* One segment is its own window. */
static void test_zstd_segment(void **state)
{
	static const struct {
		uint32_t size;
		bool fits;
	} sizes[] = { { 8 << 20, true }, { (8 << 20) + 1, false }, { 1u << 30, false } };

	(void)state;
	for (size_t i = 0; i < LEN(sizes); i++) {
		struct tks_mem mem = TKS_MEM_INIT(0);
		struct tks_codec *c = tks_codec_new(&mem, TKS_CODING_ZSTD);
		struct sink *out = calloc(1, sizeof(*out));
		struct bytes in = { { 0 }, 0 };

		assert_non_null(c);
		assert_non_null(out);
		put(&in, ZSTD_MAGIC "\xa0", 5);
		put_le(&in, sizes[i].size, 4);
		put_block(&in, 0, false, 5);
		PUTS(&in, "hello");
		assert_int_equal(feed_pieces(c, &in, in.n, 1, out), sizes[i].fits ? 0 : -EBADMSG);
		assert_int_equal(out->n, sizes[i].fits ? 5 : 0);
		assert_true(mem.peak < 9 << 20);
		free(out);
		tks_codec_free(c);
	}
}

/* The library may have been built to read what zstd wrote before RFC 8878, with windows of any size
 * and memory from elsewhere: that is not this coding. */
static void test_zstd_legacy(void **state)
{
	(void)state;
	for (unsigned int version = 1; version < 8; version++) {
		struct bytes in = { { 0 }, 0 };
		uint32_t magic = version == 1 ? 0xfd2fb51e : 0xfd2fb520 + version;

		put_le(&in, magic, 4);
		/* v0.7: a window of 128 MiB. */
		put(&in, "\0\x88\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
		check_err(TKS_CODING_ZSTD, &in, &nothing, -EBADMSG);
		/* Where a frame is looked for with one byte read before. */
		memmove(in.p + 1, in.p, in.n++);
		in.p[0] = 'x';
		check_err(TKS_CODING_ZSTD, &in, &nothing, -EBADMSG);
	}
}

/* --- raw deflate, as WebSockets have it --- */

static void test_raw_messages(void **state)
{
	struct bytes in = { { 0 }, 0 }, want = { "HelloHelloHello", 15 };

	(void)state;
	/* RFC 7692, section 7.2.3: compressed, with what is to be appended; with the window taken
	 * over; stored (7.2.3.3); with the last bit set and an octet behind (7.2.3.4). */
	put(&in, "\xf2\x48\xcd\xc9\xc9\x07\x00\x00\x00\xff\xff", 11);
	put(&in, "\xf2\x00\x11\x00\x00\x00\x00\xff\xff", 9);
	put(&in, "\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00\x00\x00\xff\xff", 15);
	check(TKS_CODING_RAW_DEFLATE, &in, &want);
	in.n = 0;
	put(&in, "\xf3\x48\xcd\xc9\xc9\x07\x00\x00\x00\x00\xff\xff", 12);
	put(&in, "\xf2\x00\x11\x00\x00\x00\x00\xff\xff", 9);
	put(&in, "\xf3\x48\xcd\xc9\xc9\x07\x00\x00\x00\x00\xff\xff", 12);
	check(TKS_CODING_RAW_DEFLATE, &in, &want);
	/* Two blocks in a message: 7.2.3.5. */
	in.n = 0;
	want.n = 5;
	put(&in, "\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00\x00\x00\xff\xff", 17);
	check(TKS_CODING_RAW_DEFLATE, &in, &want);
}

/* Behind a last block others refer to what was before it, however far within the window. */
static void test_raw_window(void **state)
{
	char text[2000];
	struct bytes in = { { 0 }, 0 }, want = { { 0 }, 0 };
	z_stream z = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (char)(i * i >> 3 ^ i * 7 ^ i >> 4);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, RAW_BITS, 8, 0), Z_OK);
		if (i)
			deflateSetDictionary(&z, (uint8_t *)text, sizeof(text));
		z.next_in = (uint8_t *)text;
		z.avail_in = sizeof(text);
		z.next_out = in.p + in.n;
		z.avail_out = (uInt)(sizeof(in.p) - in.n);
		assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
		in.n += z.total_out;
		assert_true(!i || z.total_out < 100);
		deflateEnd(&z);
		put(&want, text, sizeof(text));
	}
	run(TKS_CODING_RAW_DEFLATE, &in, in.n, in.n, &want, 0);
	run(TKS_CODING_RAW_DEFLATE, &in, 1, 1, &want, 0);
	for (size_t first = in.n - 100; first < in.n; first++)
		run(TKS_CODING_RAW_DEFLATE, &in, first, in.n, &want, 0);
}

static void test_raw_bad(void **state)
{
	static const struct {
		const char *p;
		size_t n;
	} streams[] = {
		{ "\x07", 1 }, /* block type 3 */
		{ "\0\1\0\xff\xff", 5 }, /* LEN and NLEN */
		{ "\x4b\x04\x42\0\0", 5 }, /* a distance before the start: "a", then back by 2 */
		{ "\xfd\xff\xff\xff", 4 }, /* dynamic codes: more lengths than there can be */
	};
	struct bytes a = { "a", 1 };

	(void)state;
	for (size_t i = 0; i < LEN(streams); i++) {
		struct bytes in = { { 0 }, 0 };

		put(&in, streams[i].p, streams[i].n);
		check_err(TKS_CODING_RAW_DEFLATE, &in, &a, -EBADMSG);
	}
}

/* --- flushes --- */

struct flushed {
	struct bytes in, want;
	size_t end[8], out[8]; /* of a flush: where it ends, how much is out there */
	size_t n;
};

static void flushed_at(struct flushed *f, size_t in, const char *text)
{
	PUTS(&f->want, text);
	f->end[f->n] = in;
	f->out[f->n++] = f->want.n;
}

static void run_flushed(enum tks_coding coding, const struct flushed *f, size_t first, size_t piece)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_codec *c = tks_codec_new(&mem, coding);
	struct sink *out = calloc(1, sizeof(*out));

	assert_non_null(c);
	assert_non_null(out);
	for (size_t i = 0, at = 0; i < f->n; i++) {
		for (size_t start = at; at < f->end[i];) {
			size_t k = at == start ? first : piece;

			k = k < f->end[i] - at ? k : f->end[i] - at;
			assert_int_equal(feed(c, f->in.p + at, k, out), 0);
			at += k;
		}
		assert_int_equal(out->n, f->out[i]);
	}
	expect(c, 0, 0, out, &f->want);
	free(out);
	tks_codec_free(c);
	assert_int_equal(mem.used, 0);
}

static void check_flushed(enum tks_coding coding, const struct flushed *f)
{
	for (size_t first = 1; first <= f->in.n; first++)
		run_flushed(coding, f, first, f->in.n);
	run_flushed(coding, f, 1, 1);
	check(coding, &f->in, &f->want);
}

static void deflate_flushed(struct flushed *f, int bits, int level, int flush)
{
	z_stream z = { .next_out = f->in.p, .avail_out = sizeof(f->in.p) };

	assert_int_equal(deflateInit2(&z, level, Z_DEFLATED, bits, 8, 0), Z_OK);
	for (size_t i = 0; i < LEN(events); i++) {
		z.next_in = (uint8_t *)events[i];
		z.avail_in = (uInt)strlen(events[i]);
		assert_int_equal(deflate(&z, flush), Z_OK);
		flushed_at(f, z.total_out, events[i]);
	}
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	flushed_at(f, z.total_out, "");
	f->in.n = z.total_out;
	deflateEnd(&z);
}

static void test_flush_deflate(void **state)
{
	static const struct {
		enum tks_coding coding;
		int bits;
	} forms[] = { { TKS_CODING_GZIP, GZIP_BITS },
		      { TKS_CODING_DEFLATE, ZLIB_BITS },
		      { TKS_CODING_DEFLATE, RAW_BITS },
		      { TKS_CODING_RAW_DEFLATE, RAW_BITS } };
	static const int flushes[] = { Z_PARTIAL_FLUSH, Z_SYNC_FLUSH, Z_FULL_FLUSH };

	(void)state;
	for (size_t i = 0; i < LEN(forms); i++) {
		for (size_t k = 0; k < LEN(flushes); k++) {
			for (int level = 0; level <= 9; level += 3) {
				struct flushed f = { 0 };

				deflate_flushed(&f, forms[i].bits, level, flushes[k]);
				check_flushed(forms[i].coding, &f);
			}
		}
	}
}

static void test_flush_br(void **state)
{
	struct flushed f = { 0 };

	(void)state;
	PUT(&f.in, br_flushed);
	flushed_at(&f, 14, events[0]);
	flushed_at(&f, 14 + 16, events[1]);
	flushed_at(&f, 14 + 16 + 13, events[2]);
	flushed_at(&f, 14 + 16 + 13 + 20, events[3]);
	flushed_at(&f, sizeof(br_flushed), "");
	check_flushed(TKS_CODING_BR, &f);
}

static void test_flush_zstd(void **state)
{
	static const int levels[] = { -5, 1, 3, 19 };

	(void)state;
	for (size_t k = 0; k < LEN(levels) * 2; k++) {
		struct flushed f = { 0 };
		ZSTD_CCtx *z = ZSTD_createCCtx();
		ZSTD_outBuffer out = { f.in.p, sizeof(f.in.p), 0 };
		ZSTD_inBuffer none = { "", 0, 0 };

		assert_non_null(z);
		ZSTD_CCtx_setParameter(z, ZSTD_c_compressionLevel, levels[k / 2]);
		ZSTD_CCtx_setParameter(z, ZSTD_c_checksumFlag, k % 2);
		for (size_t i = 0; i < LEN(events); i++) {
			ZSTD_inBuffer in = { events[i], strlen(events[i]), 0 };

			assert_int_equal(ZSTD_compressStream2(z, &out, &in, ZSTD_e_flush), 0);
			flushed_at(&f, out.pos, events[i]);
		}
		assert_int_equal(ZSTD_compressStream2(z, &out, &none, ZSTD_e_end), 0);
		flushed_at(&f, out.pos, "");
		f.in.n = out.pos;
		ZSTD_freeCCtx(z);
		check_flushed(TKS_CODING_ZSTD, &f);
	}
}

/* How much is out depends on what was fed, and not on how. */
static void test_prefixes(void **state)
{
	static const struct {
		enum tks_coding coding;
		int bits; /* 0: what is there */
		const uint8_t *p;
		size_t n;
	} streams[] = {
		{ TKS_CODING_GZIP, GZIP_BITS, NULL, 0 },
		{ TKS_CODING_DEFLATE, ZLIB_BITS, NULL, 0 },
		{ TKS_CODING_RAW_DEFLATE, RAW_BITS, NULL, 0 },
		{ TKS_CODING_BR, 0, br_plain, sizeof(br_plain) },
		{ TKS_CODING_BR, 0, br_words, sizeof(br_words) },
		{ TKS_CODING_BR, 0, br_flushed, sizeof(br_flushed) },
		{ TKS_CODING_ZSTD, 0, zstd_frames, sizeof(zstd_frames) },
		{ TKS_CODING_ZSTD, 0, zstd_hi, sizeof(zstd_hi) },
	};

	(void)state;
	for (size_t i = 0; i < LEN(streams); i++) {
		struct tks_mem mem = TKS_MEM_INIT(0);
		struct tks_codec *whole = tks_codec_new(&mem, streams[i].coding);
		struct tks_codec *bytes = tks_codec_new(&mem, streams[i].coding);
		struct sink *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));
		struct bytes in = { { 0 }, 0 };

		assert_true(whole && bytes && a && b);
		if (streams[i].bits)
			append_deflated(&in, FRAME FRAME, streams[i].bits, 9, Z_FINISH);
		else
			put(&in, streams[i].p, streams[i].n);
		for (size_t n = 1; n <= in.n; n++) {
			a->n = 0;
			tks_codec_reset(whole);
			assert_int_equal(feed(whole, in.p, n, a), 0);
			assert_int_equal(feed(bytes, in.p + n - 1, 1, b), 0);
			assert_int_equal(a->n, b->n);
		}
		free(a);
		free(b);
		tks_codec_free(whole);
		tks_codec_free(bytes);
		assert_int_equal(mem.used, 0);
	}
}

/* --- long ones --- */

struct count {
	uint64_t n;
	uint32_t crc;
	unsigned int calls, stop_at;
};

static int on_count(void *ctx, const uint8_t *data, size_t len)
{
	struct count *c = ctx;

	c->n += len;
	c->crc = (uint32_t)crc32(c->crc, data, (uInt)len);
	return ++c->calls == c->stop_at ? 5 : 0;
}

/* Noise: nothing can make it shorter. */
static uint8_t *noise(size_t n)
{
	uint8_t *p = malloc(n);
	uint32_t x = 1;

	assert_non_null(p);
	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		p[i] = (uint8_t)x;
	}
	return p;
}

/* n bytes in the coding, flushed but not ended. What is returned is to be freed. */
static uint8_t *stored(enum tks_coding coding, const uint8_t *p, size_t n, size_t *len)
{
	uint8_t *out = malloc(2 * n + 100);
	struct bytes b = { { 0 }, 0 };

	assert_non_null(out);
	*len = 0;
	if (coding == TKS_CODING_GZIP)
		put(&b, "\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
	if (coding == TKS_CODING_DEFLATE)
		PUTS(&b, "\x78\x01");
	if (coding == TKS_CODING_ZSTD)
		put(&b, ZSTD_MAGIC "\0\x40", 6);
	if (coding == TKS_CODING_BR)
		PUTS(&b, "\x0c"); /* and nothing to skip */
	for (size_t i = 0; i < n;) {
		size_t k = n - i < 65535 ? n - i : 65535;

		if (coding == TKS_CODING_ZSTD)
			put_block(&b, 0, false, k);
		else if (coding == TKS_CODING_BR)
			put_le(&b, (uint32_t)(1 << 19 | (k - 1) << 3), 3);
		else
			put_stored(&b, "", 0, false);
		if (coding != TKS_CODING_ZSTD && coding != TKS_CODING_BR) {
			b.n -= 4;
			put_le(&b, (uint32_t)k, 2);
			put_le(&b, ~(uint32_t)k, 2);
		}
		memcpy(out + *len, b.p, b.n);
		memcpy(out + *len + b.n, p + i, k);
		*len += b.n + k;
		b.n = 0;
		i += k;
	}
	return out;
}

static const enum tks_coding codings[] = { TKS_CODING_GZIP, TKS_CODING_DEFLATE, TKS_CODING_BR,
					   TKS_CODING_ZSTD, TKS_CODING_RAW_DEFLATE };

/* Around the sizes at which a buffer is full. */
static void test_sizes(void **state)
{
	static const size_t sizes[] = { 1,     4096,  8192,  16383, 16384,  16385,
					32767, 32768, 32769, 65536, 131072, 300000 };
	uint8_t *text = noise(300000);

	(void)state;
	for (size_t i = 0; i < LEN(codings) * LEN(sizes) * 3; i++) {
		static const size_t pieces[] = { 1 << 30, 1000, 16384 };
		enum tks_coding coding = codings[i % LEN(codings)];
		size_t n = sizes[i / LEN(codings) % LEN(sizes)], len;
		size_t piece = pieces[i / LEN(codings) / LEN(sizes)];
		struct tks_mem mem = TKS_MEM_INIT(0);
		struct tks_codec *c = tks_codec_new(&mem, coding);
		uint8_t *in = stored(coding, text, n, &len);
		struct count out = { 0 };

		assert_non_null(c);
		for (size_t at = 0; at < len; at += piece) {
			size_t k = piece < len - at ? piece : len - at;

			assert_int_equal(tks_codec_feed(c, in + at, k, on_count, &out), 0);
		}
		assert_int_equal(out.n, n);
		assert_int_equal(out.crc, crc32(0, text, (uInt)n));
		free(in);
		tks_codec_free(c);
		assert_int_equal(mem.used, 0);
	}
	free(text);
}

/* --- what the callback returns --- */

static void test_stop(void **state)
{
	enum { SIZE = 100000 };
	uint8_t *text = noise(SIZE);

	(void)state;
	for (size_t i = 0; i < LEN(codings); i++) {
		size_t len;
		uint8_t *in = stored(codings[i], text, SIZE, &len);

		for (unsigned int stop = 1; stop < 6; stop++) {
			struct tks_mem mem = TKS_MEM_INIT(0);
			struct tks_codec *c = tks_codec_new(&mem, codings[i]);
			struct count out = { .stop_at = stop };

			assert_int_equal(tks_codec_feed(c, in, len, on_count, &out), 5);
			assert_int_equal(out.calls, stop);
			assert_true(out.n < SIZE);
			assert_int_equal(out.crc, crc32(0, text, (uInt)out.n));
			/* It is no error of the coding's. */
			tks_codec_reset(c);
			out = (struct count){ 0 };
			assert_int_equal(tks_codec_feed(c, in, len, on_count, &out), 0);
			assert_int_equal(out.n, SIZE);
			tks_codec_free(c);
			assert_int_equal(mem.used, 0);
		}
		free(in);
	}
	free(text);
}

/* Both signs, and by the two bytes in which deflate's form is told. */
static void test_stop_early(void **state)
{
	static const int values[] = { 1, 1000, -1, -EBADMSG, -EINTR };
	struct bytes in = { { 0 }, 0 };

	(void)state;
	put(&in, "\x4b\x04\0", 3);
	for (size_t i = 0; i < LEN(values) * 2; i++) {
		struct tks_mem mem = TKS_MEM_INIT(0);
		struct tks_codec *c = tks_codec_new(&mem, TKS_CODING_DEFLATE);
		struct sink out = { .stop_at = 1, .stop_with = values[i / 2] };

		assert_int_equal(feed_pieces(c, &in, i % 2 ? 1 : 3, 1, &out), values[i / 2]);
		assert_int_equal(out.calls, 1);
		assert_memory_equal(out.p, "a", 1);
		tks_codec_free(c);
		assert_int_equal(mem.used, 0);
	}
}

/* --- bad bytes --- */

/* Each of the bits of these bytes turned round is found. The text is at text_at as it is. */
static void check_bits(enum tks_coding coding, const struct bytes *good, size_t from, size_t to,
		       uint8_t bits, const struct bytes *want, size_t text_at)
{
	for (size_t i = from; i < to; i++) {
		for (unsigned int bit = 1; bit < 256; bit <<= 1) {
			struct bytes in = *good, out = *want;

			if (!(bits & bit))
				continue;
			in.p[i] ^= (uint8_t)bit;
			/* A stored octet is handed on before the checksum comes. */
			if (i >= text_at && i < text_at + out.n)
				out.p[i - text_at] = in.p[i];
			check_err(coding, &in, &out, -EBADMSG);
		}
	}
}

static void test_bits_gzip(void **state)
{
	struct bytes in = { { 0 }, 0 };
	size_t head, data;

	(void)state;
	put_member(&in, 0);
	check_bits(TKS_CODING_GZIP, &in, 0, 3, 0xff, &nothing, 0); /* magic, method */
	check_bits(TKS_CODING_GZIP, &in, 3, 4, 0xe0, &nothing, 0); /* reserved flags */
	in.n = 0;
	head = put_member(&in, FHCRC);
	/* It covers what is not looked at otherwise, and itself. */
	check_bits(TKS_CODING_GZIP, &in, 3, 4, FTEXT, &nothing, 0);
	check_bits(TKS_CODING_GZIP, &in, 4, head, 0xff, &nothing, 0);
	data = head + 5;
	check_bits(TKS_CODING_GZIP, &in, head + 1, data, 0xff, &nothing, 0); /* LEN and NLEN */
	check_bits(TKS_CODING_GZIP, &in, data, data + 9, 0xff, &digits, data);
	check_bits(TKS_CODING_GZIP, &in, data + 9, in.n, 0xff, &digits, data); /* CRC, ISIZE */
	in.p[head] = 7; /* a block of no type */
	check_err(TKS_CODING_GZIP, &in, &nothing, -EBADMSG);
}

static void test_bits_deflate(void **state)
{
	struct bytes in = { { 0 }, 0 };

	(void)state;
	put_zlib(&in);
	check_bits(TKS_CODING_DEFLATE, &in, 3, 7, 0xff, &nothing, 0);
	check_bits(TKS_CODING_DEFLATE, &in, 7, in.n, 0xff, &digits, 7);
}

static void test_bits_zstd(void **state)
{
	struct bytes in = { { 0 }, 0 }, want = { "hi", 2 };

	(void)state;
	PUT(&in, zstd_hi);
	/* Of the magic; 0x28 with one bit turned is no skippable frame's, nor are the others. */
	check_bits(TKS_CODING_ZSTD, &in, 0, 4, 0xff, &nothing, 0);
	check_bits(TKS_CODING_ZSTD, &in, 4, 5, 0x08, &nothing, 0); /* reserved */
	check_bits(TKS_CODING_ZSTD, &in, 9, in.n, 0xff, &want, 9); /* text, checksum */
}

/* --- bombs --- */

/* 8 MiB, and 1 MiB, of zeros by brotli -q 11. */
static const uint8_t br_8m[] = { 0x9f, 0xff, 0xff, 0x7f, 0xf8, 0x27, 0x00,
				 0xe2, 0xb1, 0x40, 0x20, 0xf7, 0xfe, 0x0f };
static const uint8_t br_1m[] = { 0x5f, 0xff, 0xff, 0x8f, 0x7f, 0x02, 0x20,
				 0x1e, 0x0b, 0x04, 0x72, 0xef, 0x1f, 0x00 };

/* One of these sizes in whichever. */
static uint8_t *zeros_in(enum tks_coding coding, size_t n, size_t *len)
{
	uint8_t *zeros = calloc(1, n), *out = malloc(n), *p = out;
	int bits = coding == TKS_CODING_GZIP ? GZIP_BITS : ZLIB_BITS;
	z_stream z = { .next_in = zeros, .avail_in = (uInt)n };

	assert_true(zeros && out);
	if (coding == TKS_CODING_BR) {
		memcpy(p, n == 8 << 20 ? br_8m : br_1m, *len = sizeof(br_8m));
	} else if (coding == TKS_CODING_ZSTD) {
		*len = ZSTD_compress(out, n, zeros, n, 1);
		assert_false(ZSTD_isError(*len));
	} else {
		z.next_out = out;
		z.avail_out = (uInt)n;
		bits = coding == TKS_CODING_RAW_DEFLATE ? RAW_BITS : bits;
		assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, bits, 8, 0), Z_OK);
		assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
		*len = z.total_out;
		deflateEnd(&z);
	}
	free(zeros);
	return out;
}

static int feed_counted(struct tks_codec *c, const uint8_t *p, size_t n, size_t piece,
			struct count *out)
{
	int err = 0;

	for (size_t i = 0; i < n && !err; i += piece) {
		size_t k = piece < n - i ? piece : n - i;

		err = tks_codec_feed(c, p + i, k, on_count, out);
		assert_true(out->n <= TKS_CODEC_FREE + (i + k) * TKS_CODEC_RATIO_MAX);
	}
	return err;
}

static void test_bombs(void **state)
{
	(void)state;
	for (size_t i = 0; i < LEN(codings) * 3; i++) {
		static const size_t pieces[] = { 1 << 20, 100, 1 };
		enum tks_coding coding = codings[i / 3];
		struct tks_mem mem = TKS_MEM_INIT(0);
		struct tks_codec *c = tks_codec_new(&mem, coding);
		struct count out = { 0 };
		struct bytes good = { { 0 }, 0 };
		size_t n, len;
		uint8_t *in = zeros_in(coding, 8 << 20, &n);

		assert_non_null(c);
		assert_int_equal(feed_counted(c, in, n, pieces[i % 3], &out), -E2BIG);
		/* Not before it is one, and for good. */
		assert_true(out.n + 16384 > TKS_CODEC_FREE);
		out.n = 0;
		assert_int_equal(tks_codec_feed(c, in, n, on_count, &out), -E2BIG);
		free(in);
		in = stored(coding, good.p, 10, &len);
		assert_int_equal(tks_codec_feed(c, in, len, on_count, &out), -E2BIG);
		assert_int_equal(out.n, 0);
		tks_codec_reset(c);
		assert_int_equal(tks_codec_feed(c, in, len, on_count, &out), 0);
		assert_int_equal(out.n, 10);
		free(in);
		tks_codec_free(c);
		assert_int_equal(mem.used, 0);
	}
}

/* What is free is: a MiB of nothing but zeros is no bomb. */
static void test_no_bomb(void **state)
{
	(void)state;
	for (size_t i = 0; i < LEN(codings); i++) {
		struct tks_mem mem = TKS_MEM_INIT(0);
		struct tks_codec *c = tks_codec_new(&mem, codings[i]);
		struct count out = { 0 };
		size_t n;
		uint8_t *in;

		assert_non_null(c);
		in = zeros_in(codings[i], TKS_CODEC_FREE, &n);
		assert_int_equal(feed_counted(c, in, n, n, &out), 0);
		assert_int_equal(out.n, TKS_CODEC_FREE);
		free(in);
		tks_codec_free(c);
		assert_int_equal(mem.used, 0);
	}
}

/* Where exactly: 42 bytes may become 1 MiB and 8400. The next one is too much. */
static void test_bomb_limit(void **state)
{
	enum { BLOCK = 1 << 17, LIMIT = 42 * TKS_CODEC_RATIO_MAX };
	static const size_t more[] = { LIMIT - 1,   LIMIT,	 LIMIT + 1,
				       LIMIT + 199, LIMIT + 200, LIMIT + 201 };

	(void)state;
	for (size_t i = 0; i < LEN(more) * 2; i++) {
		struct tks_mem mem = TKS_MEM_INIT(0);
		struct tks_codec *c = tks_codec_new(&mem, TKS_CODING_ZSTD);
		struct bytes in = { { 0 }, 0 };
		struct count out = { 0 };
		bool fits = more[i / 2] <= LIMIT;

		put(&in, ZSTD_MAGIC "\0\x40", 6);
		for (int k = 0; k < 8; k++) {
			put_block(&in, 1, false, BLOCK);
			PUTS(&in, "x");
		}
		put_block(&in, 1, false, more[i / 2]);
		PUTS(&in, "y");
		assert_int_equal(in.n, 42);
		assert_int_equal(feed_counted(c, in.p, in.n, i % 2 ? 1 : in.n, &out),
				 fits ? 0 : -E2BIG);
		assert_int_equal(out.n, 8 * BLOCK + (fits ? more[i / 2] : 0));
		tks_codec_free(c);
		assert_int_equal(mem.used, 0);
	}
}

/* --- reset --- */

/* A stream of each coding, and of both forms of deflate, of FRAME FRAME FRAME or FRAME. */
static const struct bytes *stream_of(enum tks_coding coding, bool raw, struct bytes *in)
{
	static const struct bytes one = { FRAME, sizeof(FRAME) - 1 },
				  three = { FRAME FRAME FRAME, 3 * (sizeof(FRAME) - 1) };

	in->n = 0;
	switch (coding) {
	case TKS_CODING_BR:
		PUT(in, br_words);
		return &one;
	case TKS_CODING_ZSTD:
		PUT(in, zstd_frames);
		return &three;
	case TKS_CODING_GZIP:
		append_deflated(in, FRAME, GZIP_BITS, 9, Z_FINISH);
		return &one;
	default:
		raw = raw || coding == TKS_CODING_RAW_DEFLATE;
		append_deflated(in, FRAME, raw ? RAW_BITS : ZLIB_BITS, 9, Z_FINISH);
		return &one;
	}
}

/* Wherever it was, even twice. */
static void test_reset(void **state)
{
	(void)state;
	for (size_t i = 0; i < LEN(codings) * 4; i++) {
		enum tks_coding coding = codings[i / 4];
		struct tks_mem mem = TKS_MEM_INIT(0);
		struct tks_codec *c = tks_codec_new(&mem, coding);
		struct sink *out = calloc(1, sizeof(*out));
		struct bytes a, b;
		const struct bytes *want;

		assert_true(c && out);
		stream_of(coding, i & 1, &a);
		want = stream_of(coding, i & 2, &b);
		tks_codec_reset(c);
		for (size_t n = 0; n <= a.n; n++) {
			assert_int_equal(feed(c, a.p, n, out), 0);
			tks_codec_reset(c);
			if (n % 3 == 0)
				tks_codec_reset(c);
			out->n = 0;
			expect(c, feed(c, b.p, b.n, out), 0, out, want);
			tks_codec_reset(c);
		}
		/* Behind what is bad. */
		assert_int_equal(feed(c, (uint8_t *)"\x11\xff\xff\xff\xff\xff", 6, out), -EBADMSG);
		tks_codec_reset(c);
		out->n = 0;
		expect(c, feed(c, b.p, b.n, out), 0, out, want);
		free(out);
		tks_codec_free(c);
		assert_int_equal(mem.used, 0);
	}
}

/* What it has it keeps, but for brotli, whose library can't start over. */
static void test_reset_keeps(void **state)
{
	(void)state;
	for (size_t i = 0; i < LEN(codings); i++) {
		struct tks_mem mem = TKS_MEM_INIT(0);
		struct tks_codec *c = tks_codec_new(&mem, codings[i]);
		struct sink *out = calloc(1, sizeof(*out));
		struct bytes in;
		size_t used;
		uint64_t calls;

		assert_true(c && out);
		stream_of(codings[i], false, &in);
		assert_int_equal(feed_pieces(c, &in, 1, 1, out), 0);
		used = mem.used;
		calls = mem.calls;
		for (int k = 0; k < 10; k++) {
			tks_codec_reset(c);
			out->n = 0;
			assert_int_equal(feed_pieces(c, &in, 1, 1, out), 0);
			assert_int_equal(mem.used, used);
		}
		if (codings[i] != TKS_CODING_BR)
			assert_int_equal(mem.calls, calls);
		free(out);
		tks_codec_free(c);
		assert_int_equal(mem.used, 0);
	}
}

/* --- memory --- */

/* True: the allocation with this number was not asked for. */
static bool without(enum tks_coding coding, uint64_t fail_at, struct sink *out)
{
	struct tks_mem mem = { .fail_at = fail_at };
	struct bytes in;
	const struct bytes *want = stream_of(coding, false, &in);
	struct tks_codec *c = tks_codec_new(&mem, coding);
	int err;

	if (!c) {
		assert_true(mem.failed);
		assert_int_equal(mem.used, 0);
		return false;
	}
	/* Cut, so that a window is asked for. */
	err = feed_pieces(c, &in, in.n / 2, 5, out);
	assert_int_equal(err, mem.failed ? -ENOMEM : 0);
	expect(c, err, err, out, want);
	mem.fail_at = 0;
	out->n = 0;
	if (err)
		assert_int_equal(feed(c, in.p, in.n, out), -ENOMEM);
	tks_codec_reset(c);
	assert_int_equal(out->n, 0);
	expect(c, feed_pieces(c, &in, 5, 5, out), 0, out, want);
	tks_codec_free(c);
	assert_int_equal(mem.used, 0);
	return !err;
}

static void test_no_memory(void **state)
{
	struct sink *out = calloc(1, sizeof(*out));

	(void)state;
	assert_non_null(out);
	for (size_t i = 0; i < LEN(codings); i++) {
		uint64_t at = 1;

		while (!without(codings[i], at, out)) {
			out->n = 0;
			assert_true(++at < 100);
		}
		out->n = 0;
		/* At least itself, the library's state, and a window. */
		assert_true(at > 3);
	}
	free(out);
}

/* Without memory brotli's can't be made anew: told when fed, and healed by the next reset. */
static void test_no_memory_to_reset(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_codec *c = tks_codec_new(&mem, TKS_CODING_BR);
	struct bytes in;
	const struct bytes *want = stream_of(TKS_CODING_BR, false, &in);
	struct sink *out = calloc(1, sizeof(*out));

	(void)state;
	assert_true(c && out);
	for (int i = 0; i < 2; i++) {
		mem.fail_at = 1;
		tks_codec_reset(c);
		tks_codec_reset(c);
		assert_int_equal(feed(c, in.p, in.n, out), -ENOMEM);
		assert_int_equal(out->n, 0);
		mem.fail_at = 0;
		assert_int_equal(feed(c, in.p, in.n, out), -ENOMEM);
		tks_codec_reset(c);
		expect(c, feed(c, in.p, in.n, out), 0, out, want);
		out->n = 0;
	}
	mem.fail_at = 1;
	tks_codec_reset(c);
	tks_codec_free(c);
	assert_int_equal(mem.used, 0);
	free(out);
}

static void test_budget(void **state)
{
	struct sink *out = calloc(1, sizeof(*out));

	(void)state;
	assert_non_null(out);
	for (size_t limit = 64; limit <= 1 << 24; limit *= 2) {
		for (size_t i = 0; i < LEN(codings); i++) {
			struct tks_mem mem = TKS_MEM_INIT(limit);
			struct tks_codec *c = tks_codec_new(&mem, codings[i]);
			struct bytes in;
			const struct bytes *want = stream_of(codings[i], false, &in);
			int err;

			out->n = 0;
			if (c) {
				err = feed_pieces(c, &in, 9, 9, out);
				expect(c, err, mem.failed ? -ENOMEM : 0, out, want);
			}
			assert_true(mem.peak <= limit);
			/* 16 MiB is enough: zstd's frame has a window of 8 MiB. */
			assert_true(limit < 1 << 24 || !mem.failed);
			tks_codec_free(c);
			assert_int_equal(mem.used, 0);
		}
	}
	free(out);
}

/* --- the largest windows --- */

/* What came 7 MiB ago is still there for zstd, and all of it is in the account. */
static void test_window_zstd(void **state)
{
	enum { HALF = 7 << 20, SIZE = 2 * HALF };
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_codec *c = tks_codec_new(&mem, TKS_CODING_ZSTD);
	size_t room = ZSTD_compressBound(SIZE);
	uint8_t *text = realloc(noise(HALF), SIZE), *packed = malloc(room);
	ZSTD_outBuffer out = { packed, room, 0 };
	ZSTD_inBuffer in = { text, SIZE, 0 };
	ZSTD_CCtx *z = ZSTD_createCCtx();
	struct count count = { 0 };

	(void)state;
	assert_true(c && text && packed && z);
	memcpy(text + HALF, text, HALF);
	ZSTD_CCtx_setParameter(z, ZSTD_c_compressionLevel, 1);
	ZSTD_CCtx_setParameter(z, ZSTD_c_windowLog, 23);
	ZSTD_CCtx_setParameter(z, ZSTD_c_enableLongDistanceMatching, 1);
	ZSTD_CCtx_setParameter(z, ZSTD_c_checksumFlag, 1);
	assert_int_equal(ZSTD_compressStream2(z, &out, &in, ZSTD_e_end), 0);
	ZSTD_freeCCtx(z);
	assert_true(out.pos < HALF + HALF / 10);
	for (size_t i = 0; i < out.pos; i += 10000) {
		size_t k = 10000 < out.pos - i ? 10000 : out.pos - i;

		assert_int_equal(tks_codec_feed(c, packed + i, k, on_count, &count), 0);
	}
	assert_int_equal(count.n, SIZE);
	assert_int_equal(count.crc, crc32(0, text, SIZE));
	assert_true(mem.peak > 8 << 20 && mem.peak < 9 << 20);
	free(text);
	free(packed);
	tks_codec_free(c);
	assert_int_equal(mem.used, 0);
}

/* brotli's largest: 2^24 less 16 bytes. */
static void test_window_br(void **state)
{
	enum { SIZE = 18 << 20 };
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_codec *c = tks_codec_new(&mem, TKS_CODING_BR);
	uint8_t *text = noise(SIZE), *in;
	struct count count = { 0 };
	size_t len;

	(void)state;
	assert_non_null(c);
	in = stored(TKS_CODING_BR, text, SIZE, &len);
	/* WBITS 24, 1111, in place of 16; 0 11 0 00 behind it, and padding up to a byte. */
	assert_int_equal(tks_codec_feed(c, (uint8_t *)"\x6f\0", 2, on_count, &count), 0);
	assert_int_equal(tks_codec_feed(c, in + 1, len - 1, on_count, &count), 0);
	assert_int_equal(count.n, SIZE);
	assert_int_equal(count.crc, crc32(0, text, SIZE));
	assert_true(mem.used > 16 << 20 && mem.used < 17 << 20);
	/* It grows by copying. */
	assert_true(mem.peak < 25 << 20);
	free(text);
	free(in);
	tks_codec_free(c);
	assert_int_equal(mem.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_no_codec),
		cmocka_unit_test(test_gzip_fields),
		cmocka_unit_test(test_gzip_deflated),
		cmocka_unit_test(test_gzip_members),
		cmocka_unit_test(test_gzip_empty),
		cmocka_unit_test(test_gzip_trailing),
		cmocka_unit_test(test_gzip_bad_member),
		cmocka_unit_test(test_deflate_headers),
		cmocka_unit_test(test_deflate_raw),
		cmocka_unit_test(test_deflate_made),
		cmocka_unit_test(test_deflate_told_apart),
		cmocka_unit_test(test_br_by_hand),
		cmocka_unit_test(test_br_by_the_tool),
		cmocka_unit_test(test_br_bad),
		cmocka_unit_test(test_zstd_by_hand),
		cmocka_unit_test(test_zstd_by_the_tool),
		cmocka_unit_test(test_zstd_skippable),
		cmocka_unit_test(test_zstd_trailing),
		cmocka_unit_test(test_zstd_bad_frame),
		cmocka_unit_test(test_zstd_bad),
		cmocka_unit_test(test_zstd_window),
		cmocka_unit_test(test_zstd_segment),
		cmocka_unit_test(test_zstd_legacy),
		cmocka_unit_test(test_raw_messages),
		cmocka_unit_test(test_raw_window),
		cmocka_unit_test(test_raw_bad),
		cmocka_unit_test(test_flush_deflate),
		cmocka_unit_test(test_flush_br),
		cmocka_unit_test(test_flush_zstd),
		cmocka_unit_test(test_prefixes),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_stop),
		cmocka_unit_test(test_stop_early),
		cmocka_unit_test(test_bits_gzip),
		cmocka_unit_test(test_bits_deflate),
		cmocka_unit_test(test_bits_zstd),
		cmocka_unit_test(test_bombs),
		cmocka_unit_test(test_no_bomb),
		cmocka_unit_test(test_bomb_limit),
		cmocka_unit_test(test_reset),
		cmocka_unit_test(test_reset_keeps),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_no_memory_to_reset),
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_window_zstd),
		cmocka_unit_test(test_window_br),
	};

	return cmocka_run_group_tests_name("codec", tests, NULL, NULL);
}
