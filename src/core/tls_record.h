/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TLS records of one direction (RFC 8446, section 5.1; RFC 5246, section 6.2): type, version,
 * length and where they lie in the TCP stream. What is in them stays closed.
 */
#ifndef TKS_TLS_RECORD_H
#define TKS_TLS_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"

enum tks_tls_type {
	TKS_TLS_CHANGE_CIPHER = 20,
	TKS_TLS_ALERT = 21,
	TKS_TLS_HANDSHAKE = 22,
	TKS_TLS_DATA = 23, /* and, in TLS 1.3, whatever else is encrypted */
};

enum {
	TKS_TLS_HEADER = 5,
	TKS_TLS_HEAD = 32, /* bytes of a record by which it can be known again */
	TKS_TLS_KEPT = 80, /* bytes kept of the record under way: a hello up to its cipher suite */
	TKS_TLS_PLAIN_MAX = 16384,
};

struct tks_tls_record {
	uint64_t off, end; /* in the stream, header included; end is behind the last byte */
	uint32_t len; /* of the payload */
	uint8_t type;
	uint8_t nhead; /* less than it could be: bytes of it are missing */
	uint8_t head[TKS_TLS_KEPT]; /* its first bytes, from the header on */
};

typedef void (*tks_tls_record_fn)(void *ctx, const struct tks_tls_record *r);

/* Zeroed to begin with; the fields are its own. */
struct tks_tls_framer {
	struct tks_tls_record cur;
	uint64_t left; /* of the record under way */
	bool in, seeking;
	uint8_t nheader;
};

/* The first bytes of a slice can be a record's. */
bool tks_tls_begins(const uint8_t *data, size_t len);

/* The same by type and version alone: of a stream's first bytes, however few were captured. */
bool tks_tls_looks_like(const uint8_t *data, size_t len);

/* Bytes in order; fn is called for each record that is whole. */
void tks_tls_framer_feed(struct tks_tls_framer *f, const struct tks_slice *s, tks_tls_record_fn fn,
			 void *ctx);

/* Bytes are missing: stepped over where they lie within a record, else a record is looked for at
 * the starts of slices. */
void tks_tls_framer_gap(struct tks_tls_framer *f, uint64_t off, uint64_t len, tks_tls_record_fn fn,
			void *ctx);

#endif
