/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The one table of the request record's fields. Writers and the reader walk it; a field is added
 * here and in struct tks_request, and nowhere else.
 */
#ifndef TKS_FIELDS_H
#define TKS_FIELDS_H

#include <stddef.h>
#include <stdint.h>

#include "jsonw.h"
#include "tokensnoop/request.h"

enum tks_field_kind {
	TKS_FK_TYPE, /* the constant "request" */
	TKS_FK_U64,
	TKS_FK_INT, /* int64_t, TKS_NULL is null */
	TKS_FK_BOOL, /* int64_t 0, 1 or TKS_NULL */
	TKS_FK_TEXT, /* char array, "" is null */
	TKS_FK_WORD, /* const char *, static; one of words; NULL is null */
	TKS_FK_ENUM, /* enum; index into words, a NULL word is null */
	TKS_FK_GAPS, /* struct tks_gaps; n 0 is null */
	TKS_FK_CONCURRENCY,
	TKS_FK_FLAGS,
	TKS_FK_SLO, /* absent without --slo */
	TKS_FK_TOKENS, /* absent without --tokens, and where the times were not kept */
	TKS_FK_COUNTS, /* absent without --tokens or where no count is known */
	TKS_FK_BOUNDARIES, /* absent with one boundary */
	TKS_FK_CHOICES, /* absent with one choice */
};

struct tks_field {
	const char *name;
	enum tks_field_kind kind;
	size_t offset, size; /* in struct tks_request */
	const char *const *words; /* WORD, ENUM; NULL-terminated for WORD, nwords for ENUM */
	size_t nwords;
	int64_t min, max; /* INT: what the reader takes, null aside */
};

/* Times are at most this (the year 2116), so that no difference of two, or of two differences,
 * overflows. */
#define TKS_TIME_MAX (1ll << 62)

extern const struct tks_field tks_fields[];
extern const size_t tks_nfields;

/* Names of boundaries, by enum tks_boundary. */
extern const char *const tks_boundary_names[TKS_B_COUNT];

/* Names of flags by bit, in the order in which they are printed (sorted). */
struct tks_flag_name {
	uint32_t flag;
	const char *name;
};
extern const struct tks_flag_name tks_flag_names[];
extern const size_t tks_nflag_names;

struct tks_gap_field {
	const char *name;
	size_t offset; /* in struct tks_gaps; int64_t */
};
extern const struct tks_gap_field tks_gap_fields[];
extern const size_t tks_ngap_fields;

/* One record as an object. */
void tks_fields_write(struct tks_jsonw *w, const struct tks_request *r, bool tokens);

#endif
