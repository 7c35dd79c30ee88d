/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bedrock's InvokeModelWithResponseStream puts each of the vendor's documents into an object:
 * {"bytes":"BASE64", ...padding...}. Takes it out as the bytes come.
 */
#ifndef TKS_UNWRAP_H
#define TKS_UNWRAP_H

#include <stddef.h>
#include <stdint.h>

typedef void (*tks_unwrap_fn)(void *ctx, const void *data, size_t len);

struct tks_unwrap {
	tks_unwrap_fn fn;
	void *ctx;
	uint8_t place; /* the reader's own, as all below */
	uint8_t match; /* of the member's name */
	uint8_t nbits;
	uint32_t bits;
};

void tks_unwrap_begin(struct tks_unwrap *u, tks_unwrap_fn fn, void *ctx);
void tks_unwrap_feed(struct tks_unwrap *u, const void *data, size_t len);

#endif
