// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fuzzes AWS event streams. Checksums are put right first where the first byte says so, as no
 * fuzzer guesses them; the second byte says where the input is cut. Oracles: the same events whole,
 * cut and a byte at a time, up to the first fault (behind it a message is looked for at the starts
 * of slices); each begin is followed by its event or a reset.
 */
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "aws_events.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SIZE_MAX_FUZZ = 1 << 16 };

struct log {
	uint64_t hash, bytes;
	size_t size;
	bool begun;
};

static void mix(struct log *l, uint64_t v)
{
	l->hash = (l->hash ^ v) * 1099511628211ull;
}

static void on_data(void *ctx, const struct tks_slice *s)
{
	struct log *l = ctx;

	if (!s->len)
		abort();
	for (size_t i = 0; i < s->len; i++)
		mix(l, s->data[i]);
	l->bytes += s->len;
}

static void on_begin(void *ctx, const struct tks_aws_event *e)
{
	struct log *l = ctx;

	if (l->begun)
		abort();
	l->begun = true;
	l->bytes = 0;
	mix(l, strlen(e->type) << 8 | strlen(e->message_type));
}

static void on_event(void *ctx, const struct tks_aws_event *e)
{
	struct log *l = ctx;

	if (!l->begun || e->payload_bytes != l->bytes || e->last_off >= l->size ||
	    e->last_off - e->first_off < 15 + e->payload_bytes)
		abort();
	l->begun = false;
	mix(l, e->first_off);
	mix(l, e->last_off);
	mix(l, e->bad_crc);
}

static void on_reset(void *ctx)
{
	struct log *l = ctx;

	if (!l->begun)
		abort();
	l->begun = false;
}

static const struct tks_aws_ops ops = {
	.begin = on_begin, .payload = on_data, .event = on_event, .reset = on_reset
};

static int run(const uint8_t *p, size_t n, size_t piece, struct log *l)
{
	struct tks_aws_events a;
	int err = 0;

	*l = (struct log){ .size = n };
	tks_aws_events_init(&a, &ops, l);
	for (size_t i = 0; i < n && !err; i += piece) {
		struct tks_slice s = { p + i, piece < n - i ? piece : n - i, i };

		err = tks_aws_events_feed(&a, &s);
	}
	if (!err)
		tks_aws_events_gap(&a, 0);
	if (l->begun)
		abort();
	return err;
}

static void put32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put_right(uint8_t *p, size_t n)
{
	while (n >= 16) {
		uint32_t total = get32(p) & 0x3ff;

		if (total < 16 || total > n)
			total = n < 0x3ff ? (uint32_t)n : 0x3ff;
		put32(p, total);
		/* cppcheck-suppress zerodivcond ; total is 16 or more */
		put32(p + 4, get32(p + 4) % (total - 15));
		put32(p + 8, (uint32_t)crc32(0, p, 8));
		put32(p + total - 4, (uint32_t)crc32(0, p, total - 4));
		p += total;
		n -= total;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t in[SIZE_MAX_FUZZ];
	struct log whole, cut, bytes;
	size_t n = size - 2;
	int err;

	if (size < 3 || size > SIZE_MAX_FUZZ)
		return 0;
	memcpy(in, data + 2, n);
	if (data[0] & 1)
		put_right(in, n);
	err = run(in, n, n, &whole);
	if (run(in, n, data[1] + 1u, &cut) != err || cut.hash != whole.hash)
		abort();
	if (run(in, n, 1, &bytes) != err || bytes.hash != whole.hash)
		abort();
	return 0;
}
