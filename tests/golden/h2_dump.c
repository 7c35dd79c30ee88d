// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Prints what the core calls for an HTTP/2 connection, a line a call, for h2_witness.py to compare
 * with what other decoders read.
 *
 * Standard input, line by line: "mid" or "upgraded" first, if the connection is; "> HEX" and
 * "< HEX", bytes of the client and of the server in the order in which they came. What is empty is
 * printed as -, data in hex.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http2.h"

static char arrow(enum tks_side side)
{
	return side == TKS_REQUEST ? '>' : '<';
}

static const char *shown(const char *text)
{
	return *text ? text : "-";
}

static void on_begin(void *ctx, uint32_t stream, uint64_t off)
{
	(void)ctx;
	printf("begin %u > %" PRIu64 "\n", stream, off);
}

static int on_head(void *ctx, uint32_t stream, const struct tks_http_head *h)
{
	(void)ctx;
	printf("head %u %c %s %s %u %s %s%s%s\n", stream, arrow(h->side), shown(h->method),
	       shown(h->target), h->status, shown(h->content_type), shown(h->grpc_status),
	       h->resumed ? " resumed" : "", h->unknowable ? " unknowable" : "");
	return 0;
}

static int on_body(void *ctx, uint32_t stream, enum tks_side side, const struct tks_slice *s)
{
	(void)ctx;
	printf("body %u %c ", stream, arrow(side));
	for (size_t i = 0; i < s->len; i++)
		printf("%02x", s->data[i]);
	putchar('\n');
	return 0;
}

static int on_gap(void *ctx, uint32_t stream, enum tks_side side, uint64_t off, uint64_t len)
{
	(void)ctx;
	printf("gap %u %c %" PRIu64 " %" PRIu64 "\n", stream, arrow(side), off, len);
	return 0;
}

static int on_trailers(void *ctx, uint32_t stream, const struct tks_http_head *t)
{
	(void)ctx;
	printf("trailers %u < %s\n", stream, shown(t->grpc_status));
	return 0;
}

static int on_end(void *ctx, uint32_t stream, enum tks_side side, uint64_t last_off,
		  enum tks_msg_end how)
{
	(void)ctx;
	printf("end %u %c %" PRIu64 " %s\n", stream, arrow(side), last_off,
	       how == TKS_MSG_COMPLETE ? "complete" : "cut");
	return 0;
}

static int on_reset(void *ctx, uint32_t stream, enum tks_side by, uint32_t code)
{
	(void)ctx;
	printf("reset %u %c %u\n", stream, arrow(by), code);
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

/* In place. How many bytes. */
static size_t from_hex(char *text)
{
	size_t n = 0;
	unsigned int byte;

	for (; sscanf(text + 2 * n, "%2x", &byte) == 1; n++)
		text[n] = (char)byte;
	return n;
}

/* 0, or what is wrong. */
static int line(struct tks_http2 *h, char *text, uint64_t off[2])
{
	enum tks_side side = *text == '>' ? TKS_REQUEST : TKS_RESPONSE;
	struct tks_slice s = { (const uint8_t *)text + 2, 0, off[side] };

	if (!strcmp(text, "mid\n")) {
		tks_http2_mid_stream(h);
		return 0;
	}
	if (!strcmp(text, "upgraded\n")) {
		tks_http2_upgraded(h);
		return 0;
	}
	if (strncmp(text, "> ", 2) != 0 && strncmp(text, "< ", 2) != 0)
		return -EINVAL;
	s.len = from_hex(text + 2);
	off[side] += s.len;
	return tks_http2_feed(h, side, &s);
}

int main(void)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_http2 *h = tks_http2_new(&mem, &ops, NULL);
	uint64_t off[2] = { 0, 0 };
	char *text = NULL;
	size_t size = 0;
	int err = h ? 0 : -ENOMEM;

	while (!err && getline(&text, &size, stdin) > 0)
		err = line(h, text, off);
	if (err)
		fprintf(stderr, "h2_dump: %s\n", strerror(-err));
	free(text);
	tks_http2_free(h);
	return err || mem.used;
}
