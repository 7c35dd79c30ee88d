// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Input made to hurt, on one connection, while another has an ordinary answer whose pieces come in
 * between: the hostile one ends in a flagged record (or none, where nothing says that it is an
 * LLM's) within the budget, and the ordinary one is as if it were alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>
#include <zlib.h>

#include "lib_pipeline.h"

#define MS 1000000ull

enum { GOOD = 1, BAD = 2, BUDGET = 8 << 20, PIECE = 65536 };

static const char post[] =
	"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n"
	"{\"model\":\"m\"}";
static const char head[] =
	"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
static const char gzip_head[] =
	"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n\r\n";
static const char token[] = "data: {\"object\":\"chat.completion.chunk\",\"model\":\"m\","
			    "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";

/* --- the ordinary answer: first token at 110 ms, then one after each hostile part --- */

struct both {
	struct lib_pipe l;
	unsigned int tokens;
};

static struct both b;

static void begin(void)
{
	memset(&b, 0, sizeof(b));
	assert_int_equal(
		lib_open_pipe(&b.l, (struct tks_pipeline_config){ .boundary = TKS_B_SEND }), 0);
	b.l.mem.limit = BUDGET;
	b.l.now = 90 * MS;
	lib_open(&b.l, GOOD);
	lib_open(&b.l, BAD);
	b.l.now = 100 * MS;
	lib_rx(&b.l, GOOD, post);
	lib_tx(&b.l, GOOD, head);
}

static void ordinary(void)
{
	b.l.now = (110 + 10 * b.tokens) * MS;
	lib_tx_chunk(&b.l, GOOD, token);
	b.tokens++;
}

static void bytes(enum tks_dir dir, const void *data, size_t len)
{
	lib_bytes(&b.l, BAD, dir, data, len, true);
}

static void text(enum tks_dir dir, const char *s)
{
	bytes(dir, s, strlen(s));
}

/* The record of a connection, or NULL. */
static const struct tks_request *record_of(int conn)
{
	char peer[32];

	snprintf(peer, sizeof(peer), "127.0.0.1:%d", 40000 + conn);
	for (size_t i = 0; i < b.l.n; i++) {
		if (!strcmp(b.l.rec[i].r.peer, peer))
			return &b.l.rec[i].r;
	}
	return NULL;
}

/* Both end. flags: one of these at least is on the hostile record; 0: there is none; UNFINISHED: it
 * ends as one that its server left. */
enum { UNFINISHED = 1 << 30 };

static void finish(uint32_t flags)
{
	const struct tks_request *r;

	ordinary();
	ordinary();
	lib_tx_chunk(&b.l, GOOD, "data: [DONE]\n\n");
	lib_tx(&b.l, GOOD, "0\r\n\r\n");
	lib_close(&b.l, GOOD, 0);
	lib_close(&b.l, BAD, 0);
	tks_pipeline_finish(b.l.p, b.l.now);
	r = record_of(GOOD);
	assert_non_null(r);
	assert_int_equal(r->tokens, b.tokens);
	assert_int_equal(r->ttft_ns, 10 * MS);
	assert_int_equal(r->tpot_ns, 10 * MS);
	assert_int_equal(r->flags, TKS_F_ESTIMATED);
	r = record_of(BAD);
	if (!flags) {
		assert_null(r);
	} else {
		assert_non_null(r);
		assert_true(flags == UNFINISHED ? !strcmp(r->finish, "cut") : !!(r->flags & flags));
	}
	tks_pipeline_free(b.l.p);
	assert_int_equal(b.l.mem.used, 0);
	assert_true(b.l.mem.peak <= BUDGET);
}

static char piece[PIECE];

static void fill(enum tks_dir dir, char ch, size_t total)
{
	memset(piece, ch, sizeof(piece));
	for (size_t n = 0; n < total; n += PIECE)
		bytes(dir, piece, PIECE);
}

/* --- HTTP/1 --- */

static void test_header_of_64_mib(void **state)
{
	(void)state;
	begin();
	ordinary();
	text(TKS_RX, post);
	text(TKS_TX, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-A: ");
	fill(TKS_TX, 'a', 64 << 20);
	text(TKS_TX, "\r\n\r\n");
	text(TKS_TX, token);
	finish(TKS_F_OPAQUE);
}

/* Nothing says whose it would have been. */
static void test_request_header_of_64_mib(void **state)
{
	(void)state;
	begin();
	ordinary();
	text(TKS_RX, "POST /v1/chat/completions HTTP/1.1\r\nX-A: ");
	fill(TKS_RX, 'a', 64 << 20);
	text(TKS_RX, "\r\n\r\n");
	text(TKS_TX, head);
	finish(0);
}

static void test_chunk_sizes(void **state)
{
	static const char *const sizes[] = { "8000000000000000\r\n", "ffffffffffffffff\r\n",
					     "10000000000000000\r\n", "-1\r\n",
					     "7fffffffffffffff\r\n" };

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		begin();
		ordinary();
		text(TKS_RX, post);
		text(TKS_TX, head);
		text(TKS_TX, sizes[i]);
		fill(TKS_TX, 'a', 1 << 20);
		finish(TKS_F_LOST | TKS_F_OPAQUE);
	}
}

static void test_pipelined(void **state)
{
	(void)state;
	begin();
	ordinary();
	for (int i = 0; i < 60; i++)
		text(TKS_RX, post);
	for (int i = 0; i < 10000; i++)
		text(TKS_RX, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
	ordinary();
	/* Given up: the requests known until then are records that nobody answered. */
	assert_int_equal(b.l.n, 60);
	b.l.n = 1;
	finish(TKS_F_OPAQUE);
}

/* --- events and JSON --- */

static void test_nested(void **state)
{
	(void)state;
	begin();
	ordinary();
	text(TKS_RX, post);
	text(TKS_TX, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
	text(TKS_TX, token);
	text(TKS_TX, "data: {\"choices\":");
	memset(piece, '[', 10000);
	bytes(TKS_TX, piece, 10000);
	text(TKS_TX, "\n\n");
	text(TKS_TX, token);
	finish(TKS_F_OPAQUE);
}

static void test_endless_event(void **state)
{
	(void)state;
	begin();
	ordinary();
	text(TKS_RX, post);
	text(TKS_TX, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
	text(TKS_TX, "data: {\"choices\":[{\"delta\":{\"content\":\"");
	fill(TKS_TX, 'a', 64 << 20);
	text(TKS_TX, "\"}}]}\n\n");
	text(TKS_TX, "event: ");
	fill(TKS_TX, 'a', 16 << 20);
	text(TKS_TX, "\n\n");
	finish(TKS_F_ESTIMATED | TKS_F_TRUNCATED);
}

static void test_many_choices(void **state)
{
	char line[256];

	(void)state;
	begin();
	ordinary();
	text(TKS_RX, post);
	text(TKS_TX, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
	for (unsigned int i = 0; i < 100000; i++) {
		snprintf(line, sizeof(line),
			 "data: {\"choices\":[{\"index\":%u,\"delta\":{\"content\":\"a\"}}]}\n\n",
			 i);
		text(TKS_TX, line);
	}
	finish(TKS_F_TRUNCATED);
}

/* --- content coding --- */

/* Zeros, a thousand to one; as it is made. */
static void bomb(enum tks_dir dir, size_t total)
{
	static uint8_t zeros[PIECE], out[PIECE];
	z_stream z = { .next_in = zeros };

	assert_int_equal(deflateInit2(&z, 1, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
	for (size_t n = 0; n < total; n += PIECE) {
		z.next_in = zeros;
		z.avail_in = PIECE;
		z.next_out = out;
		z.avail_out = PIECE;
		assert_int_equal(deflate(&z, Z_NO_FLUSH), Z_OK);
		if (z.avail_out < PIECE)
			bytes(dir, out, PIECE - z.avail_out);
	}
	deflateEnd(&z);
}

static void test_gzip_bomb(void **state)
{
	(void)state;
	begin();
	ordinary();
	text(TKS_RX, post);
	text(TKS_TX, gzip_head);
	bomb(TKS_TX, 256 << 20);
	finish(TKS_F_OPAQUE);
}

/* What it asks for is then not known; what is answered is. */
static void test_gzip_bomb_request(void **state)
{
	(void)state;
	begin();
	ordinary();
	text(TKS_RX, "POST /v1/chat/completions HTTP/1.1\r\nContent-Encoding: gzip\r\n"
		     "Content-Length: 1000000000\r\n\r\n");
	bomb(TKS_RX, 64 << 20);
	text(TKS_TX, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
	text(TKS_TX, token);
	finish(TKS_F_ESTIMATED);
}

static void coded_head(const char *coding)
{
	begin();
	ordinary();
	text(TKS_RX, post);
	text(TKS_TX, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: ");
	text(TKS_TX, coding);
	text(TKS_TX, "\r\n\r\n");
}

/* 256 MiB: blocks of 128 KiB that repeat one byte (RFC 8878, section 3.1.1.2), in a window of 1
 * MiB.
 */
static void test_zstd_bomb(void **state)
{
	(void)state;
	coded_head("zstd");
	bytes(TKS_TX, "\x28\xb5\x2f\xfd\x00\x50", 6);
	for (int i = 0; i < 2048; i++)
		bytes(TKS_TX, "\x02\x00\x10 ", 4);
	finish(TKS_F_OPAQUE);
}

/* A window of 128 MiB: what it asks for is not given. */
static void test_zstd_window(void **state)
{
	(void)state;
	coded_head("zstd");
	bytes(TKS_TX, "\x28\xb5\x2f\xfd\x00\x88", 6);
	for (int i = 0; i < 16; i++)
		bytes(TKS_TX, "\x02\x00\x10 ", 4);
	finish(TKS_F_OPAQUE);
}

/* 10 MB of zeros, by `head -c 10000000 /dev/zero | brotli --lgwin=18`. */
/* clang-format off */
static const uint8_t brotli_bomb[] = {
	0xa3, 0xff, 0xff, 0x83, 0x7f, 0x02, 0x20, 0x1e, 0x0b, 0x04, 0x72, 0xef, 0x0f, 0xf4,
	0xff, 0x7f, 0xf0, 0x4f, 0x00, 0xc4, 0x61, 0x11, 0x80, 0xee, 0xfd, 0x81, 0xfe, 0xff,
	0x0f, 0xfe, 0x09, 0x80, 0x38, 0x2c, 0x00, 0xd0, 0xbd, 0x3f, 0xd0, 0xff, 0xff, 0xc1,
	0x3f, 0x01, 0x10, 0x87, 0x05, 0x00, 0xba, 0xf7, 0x07, 0xfa, 0xff, 0x3f, 0xf8, 0x27,
	0x00, 0xe2, 0xb0, 0x00, 0x40, 0xf7, 0xfe, 0x40, 0xff, 0xff, 0x07, 0xff, 0x04, 0x40,
	0x1c, 0x16, 0x00, 0xe8, 0xde, 0x1f, 0xe8, 0xff, 0xff, 0xe0, 0x9f, 0x00, 0x88, 0xc3,
	0x02, 0x00, 0xdd, 0xfb, 0x03, 0xfd, 0xff, 0x1f, 0xfc, 0x13, 0x00, 0x71, 0x58, 0x00,
	0xa0, 0x7b, 0x7f, 0xa0, 0xff, 0xff, 0x83, 0x7f, 0x02, 0x20, 0x0e, 0x0b, 0x00, 0x74,
	0xef, 0x0f, 0xf4, 0xff, 0x7f, 0xf0, 0x4f, 0x00, 0xc4, 0x61, 0x01, 0x80, 0xee, 0xfd,
	0x81, 0xfe, 0xff, 0x0f, 0xfe, 0x09, 0x80, 0x38, 0x2c, 0x00, 0xd0, 0xbd, 0x3f, 0xd0,
	0xff, 0xff, 0xc1, 0x3f, 0x01, 0x10, 0x87, 0x05, 0x00, 0xba, 0xf7, 0x07, 0xfa, 0xff,
	0x3f, 0xf8, 0x27, 0x00, 0xe2, 0xb0, 0x00, 0x40, 0xf7, 0xfe, 0x40, 0xff, 0xff, 0x07,
	0xff, 0x04, 0x40, 0x1c, 0x16, 0x00, 0xe8, 0xde, 0x1f, 0xe8, 0xff, 0xff, 0xe0, 0x9f,
	0x00, 0x88, 0xc3, 0x02, 0x00, 0xdd, 0xfb, 0x03, 0xfd, 0xff, 0x1f, 0xfc, 0x13, 0x00,
	0x71, 0x58, 0x00, 0xa0, 0x7b, 0x7f, 0xa0, 0xff, 0xff, 0x83, 0x7f, 0x02, 0x20, 0x0e,
	0x0b, 0x00, 0x74, 0xef, 0x0f, 0xf4, 0xff, 0x7f, 0xf0, 0x4f, 0x00, 0xc4, 0x61, 0x01,
	0x80, 0xee, 0xfd, 0x81, 0xfe, 0xff, 0x0f, 0xfe, 0x09, 0x80, 0x38, 0x2c, 0x00, 0xd0,
	0xbd, 0x3f, 0x88, 0x3f, 0x4b, 0xfc, 0x13, 0x00, 0x71, 0x58, 0x00, 0xa0, 0xe3, 0x08,
	0x00,
};
/* clang-format on */

static void test_brotli_bomb(void **state)
{
	(void)state;
	coded_head("br");
	bytes(TKS_TX, brotli_bomb, sizeof(brotli_bomb));
	finish(TKS_F_OPAQUE);
}

/* --- WebSocket, gRPC and AWS lengths --- */

static void ws_begin(void)
{
	begin();
	ordinary();
	text(TKS_RX, "GET /v1/realtime HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		     "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n");
	text(TKS_TX, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
		     "Connection: Upgrade\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n");
	/* {"type":"response.create"}, under the mask 0 */
	bytes(TKS_RX, "\x81\x9a\0\0\0\0{\"type\":\"response.create\"}", 32);
}

static void test_ws_length(void **state)
{
	(void)state;
	ws_begin();
	bytes(TKS_TX, "\x81\x7f\x7f\xff\xff\xff\xff\xff\xff\xff{\"type\":\"", 19);
	fill(TKS_TX, 'a', 64 << 20);
	finish(UNFINISHED);
}

/* A message of a million fragments that never ends, with pings between. */
static void test_ws_fragments(void **state)
{
	(void)state;
	ws_begin();
	bytes(TKS_TX, "\x01\x00", 2);
	for (int i = 0; i < 1000000; i++)
		bytes(TKS_TX, "\x00\x01x\x89\x00", 5);
	finish(UNFINISHED);
}

/* Zeros in 64 KiB frames. */
static void test_ws_bomb(void **state)
{
	static uint8_t out[PIECE];
	uint8_t h[4] = { 0x41, 126 };
	z_stream z = { 0 };

	(void)state;
	ws_begin();
	memset(piece, 0, sizeof(piece));
	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
	for (int i = 0; i < 2048; i++) {
		size_t n;

		z.next_in = (uint8_t *)piece;
		z.avail_in = PIECE;
		z.next_out = out;
		z.avail_out = PIECE;
		assert_int_equal(deflate(&z, Z_SYNC_FLUSH), Z_OK);
		n = PIECE - z.avail_out;
		h[2] = (uint8_t)(n >> 8);
		h[3] = (uint8_t)n;
		bytes(TKS_TX, h, 4);
		bytes(TKS_TX, out, n);
		h[0] = 0;
	}
	deflateEnd(&z);
	bytes(TKS_TX, "\x80\x00", 2);
	finish(TKS_F_LOST);
}

static void test_aws_lengths(void **state)
{
	/* The largest that can be, and no octet of it sent; the checksum is right. */
	uint8_t prelude[12] = { 0x01, 0x80, 0x00, 0x10 };
	uint32_t crc = (uint32_t)crc32(0, prelude, 8);

	(void)state;
	begin();
	ordinary();
	text(TKS_RX, "POST /model/m/converse-stream HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}");
	text(TKS_TX, "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.amazon.eventstream\r\n\r\n");
	for (int i = 0; i < 4; i++)
		prelude[8 + i] = (uint8_t)(crc >> (24 - 8 * i));
	bytes(TKS_TX, prelude, sizeof(prelude));
	fill(TKS_TX, 'a', 24 << 20);
	/* The message's checksum is not. */
	bytes(TKS_TX, "\0\0\0\0", 4);
	finish(TKS_F_LOST | TKS_F_OPAQUE);
}

/* --- HTTP/2 --- */

static void h2_frame(uint8_t *out, uint32_t len, uint8_t type, uint8_t flags, uint32_t stream)
{
	const uint8_t h[9] = { (uint8_t)(len >> 16),
			       (uint8_t)(len >> 8),
			       (uint8_t)len,
			       type,
			       flags,
			       (uint8_t)(stream >> 24),
			       (uint8_t)(stream >> 16),
			       (uint8_t)(stream >> 8),
			       (uint8_t)stream };

	memcpy(out, h, 9);
}

/* POST (static 3), http (static 6), the path as a literal. */
static const char block[] = "\x83\x86\x04\x14/v1/chat/completions";

static void h2_begin(void)
{
	begin();
	ordinary();
	text(TKS_RX, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
	bytes(TKS_RX, "\0\0\0\4\0\0\0\0\0", 9);
	bytes(TKS_TX, "\0\0\0\4\0\0\0\0\0", 9);
}

static void h2_request(uint32_t stream, uint8_t flags)
{
	uint8_t f[64];
	size_t n = sizeof(block) - 1;

	h2_frame(f, (uint32_t)n, 1, flags, stream);
	memcpy(f + 9, block, n);
	bytes(TKS_RX, f, 9 + n);
}

/* No record: as a server's refusals that were never seen, each would be one; so they are asked for
 * a path that is nobody's. What is open is bounded. */
static void test_a_million_streams(void **state)
{
	uint8_t f[16];

	(void)state;
	h2_begin();
	for (uint32_t i = 0; i < 1000000; i++) {
		/* GET http / */
		h2_frame(f, 3, 1, 4, 2 * i + 1);
		memcpy(f + 9, "\x82\x86\x84", 3);
		bytes(TKS_RX, f, 12);
	}
	finish(0);
}

static void test_hpack_bomb(void **state)
{
	static uint8_t f[9 + 16384];
	size_t n = 0;

	(void)state;
	h2_begin();
	h2_request(1, 4);
	/* An entry of 4000 bytes, */
	f[9 + n++] = 0x40;
	f[9 + n++] = 1;
	f[9 + n++] = 'a';
	f[9 + n++] = 0x7f;
	f[9 + n++] = ((4000 - 127) & 127) | 128;
	f[9 + n++] = (4000 - 127) >> 7;
	memset(f + 9 + n, 'x', 4000);
	n += 4000;
	h2_frame(f, (uint32_t)n, 1, 0, 1);
	bytes(TKS_TX, f, 9 + n);
	/* and 16384 references to it in each of a thousand frames: 64 GB. */
	memset(f + 9, 0xbe, 16384);
	h2_frame(f, 16384, 9, 0, 1);
	for (int i = 0; i < 1000; i++)
		bytes(TKS_TX, f, 9 + 16384);
	finish(0xffff);
}

static void test_data_that_never_ends(void **state)
{
	uint8_t f[9];

	(void)state;
	h2_begin();
	h2_request(1, 5);
	/* 200 (static 8), content-type (static 31: 15 + 16): text/event-stream */
	h2_frame(f, 21, 1, 4, 1);
	bytes(TKS_TX, f, 9);
	bytes(TKS_TX, "\x88\x0f\x10\x11text/event-stream", 21);
	h2_frame(f, 0xffffff, 0, 0, 1);
	bytes(TKS_TX, f, 9);
	fill(TKS_TX, 'a', 16 << 20);
	finish(UNFINISHED);
}

/* A message of 4 GiB less one. */
static void test_grpc_length(void **state)
{
	static const char path[] = "/sglang.grpc.scheduler.SglangScheduler/Generate";
	uint8_t f[128];
	size_t n = 4;

	(void)state;
	h2_begin();
	memcpy(f + 9, "\x83\x86\x04", 3);
	f[12] = sizeof(path) - 1;
	memcpy(f + 13, path, sizeof(path) - 1);
	n += sizeof(path) - 1;
	h2_frame(f, (uint32_t)n, 1, 5, 1);
	bytes(TKS_RX, f, 9 + n);
	/* 200 (static 8), content-type (static 31: 15 + 16): application/grpc */
	h2_frame(f, 20, 1, 4, 1);
	bytes(TKS_TX, f, 9);
	bytes(TKS_TX,
	      "\x88\x0f\x10\x10"
	      "application/grpc",
	      20);
	h2_frame(f, 5, 0, 0, 1);
	bytes(TKS_TX, f, 9);
	bytes(TKS_TX, "\0\xff\xff\xff\xff", 5);
	for (int i = 0; i < 4; i++) {
		h2_frame(f, 0xffffff, 0, 0, 1);
		bytes(TKS_TX, f, 9);
		memset(piece, 0xff, PIECE);
		for (int k = 0; k < 255; k++)
			bytes(TKS_TX, piece, PIECE);
		bytes(TKS_TX, piece, PIECE - 1);
	}
	finish(UNFINISHED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_header_of_64_mib),
		cmocka_unit_test(test_request_header_of_64_mib),
		cmocka_unit_test(test_chunk_sizes),
		cmocka_unit_test(test_pipelined),
		cmocka_unit_test(test_nested),
		cmocka_unit_test(test_endless_event),
		cmocka_unit_test(test_many_choices),
		cmocka_unit_test(test_gzip_bomb),
		cmocka_unit_test(test_gzip_bomb_request),
		cmocka_unit_test(test_zstd_bomb),
		cmocka_unit_test(test_zstd_window),
		cmocka_unit_test(test_brotli_bomb),
		cmocka_unit_test(test_ws_length),
		cmocka_unit_test(test_ws_fragments),
		cmocka_unit_test(test_ws_bomb),
		cmocka_unit_test(test_aws_lengths),
		cmocka_unit_test(test_grpc_length),
		cmocka_unit_test(test_a_million_streams),
		cmocka_unit_test(test_hpack_bomb),
		cmocka_unit_test(test_data_that_never_ends),
	};

	return cmocka_run_group_tests_name("hostile", tests, NULL, NULL);
}
