/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A run of bytes of one direction of a connection. off is absolute: the number of bytes of the
 * direction that came before (or, attached in the middle, before the first one seen).
 */
#ifndef TKS_SLICE_H
#define TKS_SLICE_H

#include <stddef.h>
#include <stdint.h>

struct tks_slice {
	const uint8_t *data;
	size_t len;
	uint64_t off;
};

#endif
