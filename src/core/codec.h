/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Content codings taken off as the bytes come: gzip (RFC 1952), deflate (RFC 1950, and the raw
 * RFC 1951 form that some servers send under that name), br (RFC 7932), zstd (RFC 8878), and raw
 * deflate blocks for permessage-deflate (RFC 7692). By zlib, libbrotlidec and libzstd.
 *
 * Everything the bytes so far can yield is handed on before feed returns, so that what a piece of
 * input made decodable is known to be due to it.
 */
#ifndef TKS_CODEC_H
#define TKS_CODEC_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include "tokensnoop/mem.h"

enum tks_coding {
	TKS_CODING_IDENTITY = 0,
	TKS_CODING_GZIP,
	TKS_CODING_DEFLATE,
	TKS_CODING_BR,
	TKS_CODING_ZSTD,
	TKS_CODING_RAW_DEFLATE,
	TKS_CODING_OTHER, /* one that is not read here, or several on top of each other */
};

/* By a Content-Encoding's value in lower case ("", "identity", "gzip", "x-gzip", "br", ...). */
enum tks_coding tks_coding_named(const char *name);

struct tks_codec;

/*
 * NULL without memory, or for IDENTITY and OTHER. All that the libraries allocate goes through mem.
 * zstd windows of more than 8 MiB are refused while decoding (RFC 9659 allows no more); brotli's
 * end at 16 MiB by themselves.
 */
struct tks_codec *tks_codec_new(struct tks_mem *mem, enum tks_coding coding);
void tks_codec_free(struct tks_codec *c);

/* Decoded bytes; what it returns other than 0 ends the feed, which returns it. */
typedef int (*tks_codec_fn)(void *ctx, const uint8_t *data, size_t len);

/*
 * 0; -EBADMSG: the bytes are not that coding (always from then on); -ENOMEM (too); -E2BIG: more
 * than TKS_CODEC_RATIO_MAX times what was fed plus TKS_CODEC_FREE bytes came out (always from then
 * on). What was handed on before an error is good. Bytes behind the coding's end are ignored, but
 * for further gzip members and zstd frames.
 */
int tks_codec_feed(struct tks_codec *c, const uint8_t *data, size_t len, tks_codec_fn fn,
		   void *ctx);

/* Ready for the next, independent, message. Keeps what it has allocated where the library can. */
void tks_codec_reset(struct tks_codec *c);

enum {
	TKS_CODEC_FREE = 1 << 20,
	/* deflate can't pass 1032; text streams stay far below: what passes this is a bomb. */
	TKS_CODEC_RATIO_MAX = 200,
};

#endif
