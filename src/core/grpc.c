// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "grpc.h"

#include <errno.h>

enum { PREFIX = 5 };

void tks_grpc_init(struct tks_grpc *g, struct tks_mem *mem, const char *encoding,
		   const struct tks_grpc_ops *ops, void *ctx)
{
	*g = (struct tks_grpc){
		.mem = mem, .ops = ops, .ctx = ctx, .coding = tks_coding_named(encoding)
	};
}

void tks_grpc_free(struct tks_grpc *g)
{
	tks_codec_free(g->codec);
	g->codec = NULL;
}

static void end_message(struct tks_grpc *g, uint64_t last_off)
{
	g->cur.last_off = last_off;
	g->nprefix = 0;
	g->ops->message(g->ctx, &g->cur);
}

static int begin_compressed(struct tks_grpc *g)
{
	if (g->codec)
		tks_codec_reset(g->codec);
	else
		g->codec = tks_codec_new(g->mem, g->coding);
	g->cur.broken = !g->codec;
	/* Without a name there is nothing to make one of, which is no lack of memory. */
	return g->codec || g->coding == TKS_CODING_IDENTITY || g->coding == TKS_CODING_OTHER
		       ? 0
		       : -ENOMEM;
}

static int begin_message(struct tks_grpc *g, uint64_t off)
{
	const uint8_t *p = g->prefix;
	int err = 0;

	if (p[0] > 1) {
		g->lost = true;
		return -EBADMSG;
	}
	g->compressed = p[0];
	g->left = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
	g->cur.bytes = 0;
	g->cur.broken = false;
	if (g->compressed)
		err = begin_compressed(g);
	if (!g->left)
		end_message(g, off);
	return err;
}

static int inflated(void *ctx, const uint8_t *data, size_t len)
{
	struct tks_grpc *g = ctx;
	struct tks_slice s = { data, len, g->wire_off };

	g->cur.bytes += len;
	g->ops->data(g->ctx, &s);
	return 0;
}

static int content(struct tks_grpc *g, const struct tks_slice *s)
{
	int err = 0;

	if (g->cur.broken)
		return 0;
	if (g->compressed) {
		g->wire_off = s->off + s->len - 1;
		err = tks_codec_feed(g->codec, s->data, s->len, inflated, g);
		g->cur.broken = err;
		return err == -ENOMEM ? err : 0;
	}
	g->cur.bytes += s->len;
	g->ops->data(g->ctx, s);
	return 0;
}

int tks_grpc_feed(struct tks_grpc *g, const struct tks_slice *in)
{
	struct tks_slice s = *in;
	int err = 0;

	while (s.len && !g->lost) {
		struct tks_slice part = { s.data, 1, s.off };
		int ret = 0;

		if (g->nprefix < PREFIX) {
			if (!g->nprefix)
				g->cur.first_off = s.off;
			g->prefix[g->nprefix++] = *s.data;
			if (g->nprefix == PREFIX)
				ret = begin_message(g, s.off);
		} else {
			part.len = s.len < g->left ? s.len : g->left;
			ret = content(g, &part);
			g->left -= (uint32_t)part.len;
			if (!g->left)
				end_message(g, part.off + part.len - 1);
		}
		err = err ?: ret;
		if (g->nprefix)
			g->cur.last_off = part.off + part.len - 1;
		s.data += part.len;
		s.off += part.len;
		s.len -= part.len;
	}
	return err;
}

void tks_grpc_gap(struct tks_grpc *g, uint64_t len)
{
	if (g->lost)
		return;
	if (g->nprefix == PREFIX)
		g->cur.broken = true;
	if (g->nprefix < PREFIX || !len || len > g->left) {
		/* Nothing marks where a message begins. The one under way is told of. */
		if (g->nprefix == PREFIX)
			g->ops->message(g->ctx, &g->cur);
		g->nprefix = 0;
		g->lost = true;
		return;
	}
	g->left -= (uint32_t)len;
	g->cur.last_off += len;
	if (!g->left)
		end_message(g, g->cur.last_off);
}
