// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * One streaming decoder in front of three libraries. Each has a step that takes what it can of the
 * input and fills what it can of the output; the loop around them is one.
 */
#include "codec.h"

#include <errno.h>
#include <string.h>

#include <brotli/decode.h>
#include <zlib.h>
/* For a decoder with its own allocator. */
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>
#include <zstd_errors.h>

#include "block.h"

enum { OUT_SIZE = 16384, ZSTD_WINDOW_LOG = 23, WINDOW = 1 << MAX_WBITS, GZIP_WRAPPER = 16 };

struct tks_codec {
	struct tks_mem *mem;
	enum tks_coding coding;
	z_stream z;
	BrotliDecoderState *br;
	ZSTD_DCtx *zstd;
	int err; /* for good */
	bool ended; /* what comes is another member, or nothing of the coding */
	bool again; /* it is in its second member, or a later one */
	bool deaf; /* behind its end */
	uint8_t head[2], nhead; /* DEFLATE: what tells its form */
	uint64_t in, out, member_in, member_out;
};

/* What a step works on. */
struct span {
	const uint8_t *in;
	size_t in_len;
	uint8_t *out; /* OUT_SIZE bytes */
	size_t made;
};

enum tks_coding tks_coding_named(const char *name)
{
	static const struct {
		const char *name;
		enum tks_coding coding;
	} codings[] = {
		{ "", TKS_CODING_IDENTITY },	   { "identity", TKS_CODING_IDENTITY },
		{ "gzip", TKS_CODING_GZIP },	   { "x-gzip", TKS_CODING_GZIP },
		{ "deflate", TKS_CODING_DEFLATE }, { "br", TKS_CODING_BR },
		{ "zstd", TKS_CODING_ZSTD },
	};

	for (size_t i = 0; i < sizeof(codings) / sizeof(codings[0]); i++) {
		if (!strcmp(name, codings[i].name))
			return codings[i].coding;
	}
	return TKS_CODING_OTHER;
}

/* --- the libraries: step returns 0, 1 at the end of the coding, or a negative errno --- */

static void *z_alloc(void *mem, uInt n, uInt size)
{
	return tks_block_calloc(mem, n, size);
}

static int z_bits(const struct tks_codec *c)
{
	if (c->coding == TKS_CODING_RAW_DEFLATE)
		return -MAX_WBITS;
	return c->coding == TKS_CODING_GZIP ? MAX_WBITS + GZIP_WRAPPER : MAX_WBITS;
}

/* In a WebSocket's stream a block may say that it is the last one, and others come all the same;
 * they refer to what was before it (RFC 7692, section 7.2.3.4). */
static int z_go_on(struct tks_codec *c)
{
	uint8_t window[WINDOW];
	uInt len = sizeof(window);

	if (inflateGetDictionary(&c->z, window, &len) != Z_OK || inflateReset(&c->z) != Z_OK)
		return -EBADMSG;
	return len && inflateSetDictionary(&c->z, window, len) != Z_OK ? -EBADMSG : 0;
}

static int z_step(struct tks_codec *c, struct span *s)
{
	int ret;

	c->z.next_in = (uint8_t *)s->in;
	c->z.avail_in = s->in_len < UINT32_MAX ? (uInt)s->in_len : UINT32_MAX;
	c->z.next_out = s->out;
	c->z.avail_out = OUT_SIZE;
	ret = inflate(&c->z, Z_SYNC_FLUSH);
	s->in_len -= (size_t)(c->z.next_in - s->in);
	s->in = c->z.next_in;
	s->made = OUT_SIZE - c->z.avail_out;
	if (ret == Z_STREAM_END)
		return c->coding == TKS_CODING_RAW_DEFLATE ? z_go_on(c) : 1;
	if (ret == Z_OK || ret == Z_BUF_ERROR)
		return 0;
	return ret == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
}

static int br_step(struct tks_codec *c, struct span *s)
{
	size_t room = OUT_SIZE;
	uint8_t *out = s->out;
	BrotliDecoderResult ret;
	BrotliDecoderErrorCode code;

	ret = BrotliDecoderDecompressStream(c->br, &s->in_len, &s->in, &room, &out, NULL);
	s->made = OUT_SIZE - room;
	if (ret == BROTLI_DECODER_RESULT_SUCCESS)
		return 1;
	if (ret != BROTLI_DECODER_RESULT_ERROR)
		return 0;
	code = BrotliDecoderGetErrorCode(c->br);
	return code <= BROTLI_DECODER_ERROR_ALLOC_CONTEXT_MODES &&
			       code >= BROTLI_DECODER_ERROR_ALLOC_BLOCK_TYPE_TREES
		       ? -ENOMEM
		       : -EBADMSG;
}

/*
 * A frame's header goes in octet by octet. Given all of a short frame at once the library decodes
 * it past the window's limit and keeps back what it has of a bad one; given the magic of a version
 * before RFC 8878 it reads that, with windows of any size from its own allocator.
 */
static int zstd_step(struct tks_codec *c, struct span *s)
{
	bool head = s->in_len && c->member_in < ZSTD_FRAMEHEADERSIZE_MAX;
	ZSTD_inBuffer in = { s->in, head ? 1 : s->in_len, 0 };
	ZSTD_outBuffer out = { s->out, OUT_SIZE, 0 };
	size_t ret = ZSTD_decompressStream(c->zstd, &out, &in);

	s->in += in.pos;
	s->in_len -= in.pos;
	s->made = out.pos;
	if (!ZSTD_isError(ret))
		return !ret;
	return ZSTD_getErrorCode(ret) == ZSTD_error_memory_allocation ? -ENOMEM : -EBADMSG;
}

static int step(struct tks_codec *c, struct span *s)
{
	if (c->br)
		return br_step(c, s);
	return c->zstd ? zstd_step(c, s) : z_step(c, s);
}

/* --- the loop --- */

/* There are bytes behind the end. False: they are not for us. */
static bool next_member(struct tks_codec *c)
{
	c->deaf = c->coding != TKS_CODING_GZIP && c->coding != TKS_CODING_ZSTD;
	if (c->coding == TKS_CODING_GZIP)
		inflateReset(&c->z);
	c->ended = false;
	c->again = true;
	c->member_in = 0;
	c->member_out = 0;
	return !c->deaf;
}

static int hand_on(struct tks_codec *c, const struct span *s, tks_codec_fn fn, void *ctx)
{
	c->out += s->made;
	c->member_out += s->made;
	if (c->out > c->in * TKS_CODEC_RATIO_MAX + TKS_CODEC_FREE)
		return c->err = -E2BIG;
	return s->made ? fn(ctx, s->out, s->made) : 0;
}

static int decode(struct tks_codec *c, const uint8_t *data, size_t len, tks_codec_fn fn, void *ctx)
{
	uint8_t out[OUT_SIZE];
	struct span s = { data, len, out, 0 };
	int ret, err;

	do {
		size_t had = s.in_len;

		if (c->ended && !next_member(c))
			return 0;
		ret = step(c, &s);
		c->in += had - s.in_len;
		c->member_in += had - s.in_len;
		err = hand_on(c, &s, fn, ctx);
		if (err)
			return err;
		/* What can't even begin behind a whole member is none. */
		if (ret == -EBADMSG && c->again && !c->member_out) {
			c->deaf = true;
			return 0;
		}
		if (ret < 0)
			return c->err = ret;
		c->ended = ret;
		if (!s.made && had == s.in_len && had && !ret)
			return c->err = -EBADMSG;
	} while (s.in_len || s.made == OUT_SIZE);
	return 0;
}

/*
 * Some servers send raw blocks under the name of deflate. RFC 1950 begins with a method of 8, a
 * window of at most 7, no dictionary, and a check, which no raw block does that an encoder makes:
 * it would be a stored one with bits set in its padding.
 */
static void tell_deflate(struct tks_codec *c)
{
	unsigned int head = (unsigned int)c->head[0] << 8 | c->head[1];

	if ((c->head[0] & 0x8f) != 8 || head % 31 || c->head[1] & 0x20)
		inflateReset2(&c->z, -MAX_WBITS);
}

int tks_codec_feed(struct tks_codec *c, const uint8_t *data, size_t len, tks_codec_fn fn, void *ctx)
{
	int err;

	if (c->err || c->deaf || !len)
		return c->err;
	if (c->coding == TKS_CODING_DEFLATE && c->nhead < 2) {
		while (len && c->nhead < 2) {
			c->head[c->nhead++] = *data++;
			len--;
		}
		if (c->nhead < 2)
			return 0;
		tell_deflate(c);
		err = decode(c, c->head, 2, fn, ctx);
		if (err || !len)
			return err;
	}
	return decode(c, data, len, fn, ctx);
}

/* --- life --- */

static int open_library(struct tks_codec *c)
{
	ZSTD_customMem zstd_mem = { tks_block_alloc, tks_block_free, c->mem };

	switch (c->coding) {
	case TKS_CODING_BR:
		c->br = BrotliDecoderCreateInstance(tks_block_alloc, tks_block_free, c->mem);
		return c->br ? 0 : -ENOMEM;
	case TKS_CODING_ZSTD:
		c->zstd = ZSTD_createDCtx_advanced(zstd_mem);
		if (!c->zstd)
			return -ENOMEM;
		ZSTD_DCtx_setParameter(c->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG);
		return 0;
	default:
		c->z = (z_stream){ .zalloc = z_alloc, .zfree = tks_block_free, .opaque = c->mem };
		return inflateInit2(&c->z, z_bits(c)) == Z_OK ? 0 : -ENOMEM;
	}
}

static void close_library(struct tks_codec *c)
{
	if (c->br)
		BrotliDecoderDestroyInstance(c->br);
	if (c->zstd)
		ZSTD_freeDCtx(c->zstd);
	inflateEnd(&c->z);
}

struct tks_codec *tks_codec_new(struct tks_mem *mem, enum tks_coding coding)
{
	struct tks_codec *c;

	if (coding == TKS_CODING_IDENTITY || coding == TKS_CODING_OTHER)
		return NULL;
	c = tks_mem_alloc(mem, sizeof(*c));
	if (!c)
		return NULL;
	c->mem = mem;
	c->coding = coding;
	if (open_library(c)) {
		tks_codec_free(c);
		return NULL;
	}
	return c;
}

void tks_codec_free(struct tks_codec *c)
{
	if (!c)
		return;
	close_library(c);
	tks_mem_free(c->mem, c, sizeof(*c));
}

void tks_codec_reset(struct tks_codec *c)
{
	struct tks_codec fresh = {
		.mem = c->mem, .coding = c->coding, .z = c->z, .br = c->br, .zstd = c->zstd
	};

	*c = fresh;
	if (c->zstd)
		ZSTD_DCtx_reset(c->zstd, ZSTD_reset_session_only);
	if (c->coding == TKS_CODING_BR) {
		/* The library can't start over. */
		if (c->br)
			BrotliDecoderDestroyInstance(c->br);
		c->err = open_library(c);
	}
	if (c->z.state)
		inflateReset2(&c->z, z_bits(c));
}
