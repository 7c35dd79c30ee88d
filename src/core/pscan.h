/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A protobuf field scanner, the twin of jscan.h: reads a message in any pieces and reports the
 * values at the paths of a table. It builds nothing, never recurses and keeps a bounded state.
 * Wire format: protobuf.dev, "Encoding" (varint, 64-bit, length-delimited, 32-bit; groups, which
 * nothing here uses, make the message bad).
 */
#ifndef TKS_PSCAN_H
#define TKS_PSCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TKS_PS_DEPTH_MAX = 8, TKS_PS_STR_MAX = 256, TKS_PS_FIELDS_MAX = 64 };

enum tks_ptype {
	TKS_PS_INT = 1, /* varint, fixed32 or fixed64 */
	TKS_PS_BYTES, /* a string or bytes that no longer path enters; at its end */
	TKS_PS_PACKED, /* with TKS_PF_PACKED: a packed repeated varint field, at its end */
	TKS_PS_BEGIN,
	TKS_PS_END, /* of a message that a longer path enters */
};

enum { TKS_PF_PACKED = 1 };

struct tks_pfield {
	uint8_t path[TKS_PS_DEPTH_MAX]; /* field numbers from the outside in, 0-terminated if
					 * shorter; numbers above 255 can't be asked for */
	uint8_t id; /* the caller's, >= 1 */
	uint8_t flags;
};

struct tks_pvalue {
	uint8_t id;
	enum tks_ptype type;
	uint64_t num; /* INT: as on the wire. PACKED: how many varints. BYTES: how many bytes */
	const char *str; /* BYTES: its first bytes, up to TKS_PS_STR_MAX, not terminated */
	size_t len; /* of str */
};

typedef void (*tks_pvalue_fn)(void *ctx, const struct tks_pvalue *v);

/* The state; its fields are the scanner's own. Not to be moved between begin and end. */
struct tks_pscan {
	const struct tks_pfield *fields;
	size_t nfields;
	tks_pvalue_fn fn;
	void *ctx;
	uint8_t depth, place, shift;
	bool bad;
	uint8_t path[TKS_PS_DEPTH_MAX];
	uint64_t varint, pos, end[TKS_PS_DEPTH_MAX + 1], value_end, count;
	const struct tks_pfield *field;
	size_t nstr;
	char str[TKS_PS_STR_MAX];
};

/* fields stays the caller's and must outlive the scan; at most TKS_PS_FIELDS_MAX. */
void tks_pscan_begin(struct tks_pscan *p, const struct tks_pfield *fields, size_t n,
		     tks_pvalue_fn fn, void *ctx);

/* Once it is not protobuf, further bytes are ignored. */
void tks_pscan_feed(struct tks_pscan *p, const void *data, size_t n);

/* The message has ended: true if it was well-formed (every length was used up exactly). */
bool tks_pscan_end(struct tks_pscan *p);

#endif
