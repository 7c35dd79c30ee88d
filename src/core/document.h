/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Documents of a body, however it is framed: until the dialect is known by the shape of one, its
 * bytes are looked at for that and kept; from then on the dialect's scanner reads them as they
 * come. In the steady state nothing is kept and nothing is allocated.
 */
#ifndef TKS_DOCUMENT_H
#define TKS_DOCUMENT_H

#include "dialect.h"

enum { TKS_DOC_PEEK = 16 };

struct tks_document {
	struct tks_mem *mem;
	struct tks_dialect_ctx d;
	enum tks_shape_kind kind;
	bool single; /* the body is this one document */
	bool array; /* documents are the elements of an array */
	bool protobuf; /* documents are gRPC messages; JSON if not */
	bool decided;
	bool in; /* a document is under way */
	bool bad; /* it is not what it should be */
	bool skip; /* undecided, and it was too long to be kept: nothing is read into it */
	unsigned int count; /* documents looked at */
	uint64_t bytes; /* of the document */
	char peek[TKS_DOC_PEEK]; /* its first ones, for [DONE] */
	size_t npeek;
	struct tks_shape *shape;
	struct tks_jscan *scan;
	struct tks_pscan *pscan;
	uint8_t *kept;
	size_t nkept, cap_kept;
};

/* Zeroed before; d's facts about the answer are the caller's to fill. 0 or -ENOMEM. */
int tks_document_init(struct tks_document *doc, struct tks_mem *mem, enum tks_shape_kind kind);
void tks_document_free(struct tks_document *doc);

/* The dialect is known without a look: 0 or -ENOMEM. */
int tks_document_decide(struct tks_document *doc, const struct tks_dialect *dialect);

/* Bytes of a document; the first ones begin it. 0 or -ENOMEM. */
int tks_document_data(struct tks_document *doc, const void *data, size_t n);

/* The same for JSON documents without anything between them: takes what belongs to the document
 * under way. *status is DONE with its last byte (*used may count white space behind it), and BAD
 * when its end can't be found. */
int tks_document_scan(struct tks_document *doc, const void *data, size_t n, size_t *used,
		      enum tks_jstatus *status);

/* It is whole (an empty one too). 0 or -ENOMEM. */
int tks_document_end(struct tks_document *doc);

/* The one under way is void. */
void tks_document_void(struct tks_document *doc);

#endif
