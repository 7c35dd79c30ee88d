// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "document.h"

#include <errno.h>
#include <string.h>

enum {
	KEPT_MAX = 64 * 1024, /* bytes of a document kept while its dialect is not known */
	DOCUMENTS_MAX = 8, /* documents looked at for a shape before the stream is `unknown` */
};

static void drop_kept(struct tks_document *doc)
{
	tks_mem_free(doc->mem, doc->kept, doc->cap_kept);
	doc->kept = NULL;
	doc->nkept = doc->cap_kept = 0;
}

int tks_document_init(struct tks_document *doc, struct tks_mem *mem, enum tks_shape_kind kind)
{
	doc->mem = mem;
	doc->kind = kind;
	doc->d.event = "";
	doc->shape = tks_shape_new(mem);
	return doc->shape ? 0 : -ENOMEM;
}

void tks_document_free(struct tks_document *doc)
{
	drop_kept(doc);
	tks_shape_free(doc->mem, doc->shape);
	tks_mem_free(doc->mem, doc->scan, tks_jscan_size());
	tks_mem_free(doc->mem, doc->pscan, sizeof(*doc->pscan));
}

/* --- deciding --- */

static void on_value(void *ctx, const struct tks_jvalue *v)
{
	struct tks_dialect_ctx *d = ctx;

	d->dialect->value(d, v);
}

static void on_pvalue(void *ctx, const struct tks_pvalue *v)
{
	struct tks_dialect_ctx *d = ctx;

	d->dialect->pvalue(d, v);
}

static int make_scanner(struct tks_document *doc)
{
	const struct tks_dialect *dialect = doc->d.dialect;
	const struct tks_jschema *schema;

	if (dialect->npfields) {
		doc->pscan = tks_mem_alloc(doc->mem, sizeof(*doc->pscan));
		return doc->pscan ? 0 : -ENOMEM;
	}
	if (!dialect->nfields)
		return 0;
	schema = tks_dialect_schema(dialect);
	doc->scan = schema ? tks_mem_alloc(doc->mem, tks_jscan_size()) : NULL;
	if (!doc->scan)
		return -ENOMEM;
	tks_jscan_init(doc->scan, schema, on_value, &doc->d);
	return 0;
}

static void scan(struct tks_document *doc, const void *data, size_t n)
{
	if (doc->pscan)
		tks_pscan_feed(doc->pscan, data, n);
	else if (doc->scan && !doc->bad)
		doc->bad = tks_jscan_feed(doc->scan, data, n, NULL) == TKS_JS_BAD;
}

static void begin_decided(struct tks_document *doc)
{
	const struct tks_dialect *dialect = doc->d.dialect;

	if (doc->scan)
		tks_jscan_reset(doc->scan);
	if (doc->pscan)
		tks_pscan_begin(doc->pscan, dialect->pfields, dialect->npfields, on_pvalue,
				&doc->d);
	dialect->begin(&doc->d);
}

/* From here on the dialect's scanner reads, first what was kept of this document. */
int tks_document_decide(struct tks_document *doc, const struct tks_dialect *dialect)
{
	int err;

	doc->decided = true;
	doc->d.dialect = dialect;
	doc->d.rec->dialect = dialect->name;
	if (doc->array)
		doc->d.rec->streamed = doc->d.streamed = dialect->array_is_stream;
	tks_shape_free(doc->mem, doc->shape);
	doc->shape = NULL;
	err = make_scanner(doc);
	if (!err && doc->in) {
		begin_decided(doc);
		if (doc->nkept)
			scan(doc, doc->kept, doc->nkept);
	}
	drop_kept(doc);
	return err;
}

static int try_protobuf(struct tks_document *doc, bool whole)
{
	const struct tks_dialect *dialect = whole ? tks_dialect_of_first(doc->kept, doc->nkept)
						  : NULL;

	doc->skip = !dialect;
	return dialect ? tks_document_decide(doc, dialect) : 0;
}

/* With a whole document looked at, or as much of it as is kept. */
static int try_decide(struct tks_document *doc, bool whole)
{
	const struct tks_shape_place place = {
		.kind = doc->kind,
		.event = doc->d.event,
		.target = doc->d.target,
		.stream = !doc->single && !doc->array,
	};
	const struct tks_dialect *dialect;

	if (doc->protobuf)
		return try_protobuf(doc, whole);
	dialect = tks_shape_dialect(doc->shape, &place);
	/* What it is may stand behind a long text: then the path must do. */
	if (!dialect && !whole && doc->single)
		dialect = tks_dialect_of_path(doc->d.target);
	if (dialect)
		return tks_document_decide(doc, dialect);
	if ((tks_shape_is_error(doc->shape) || (doc->single && doc->d.rec->status >= 400)) &&
	    doc->d.target[0]) {
		dialect = tks_dialect_of_path(doc->d.target);
		if (dialect)
			return tks_document_decide(doc, dialect);
		/* A path nobody knows: one body is not ours; a stream is, though unknown. */
		if (doc->single)
			return 0;
	}
	if (doc->single)
		return tks_document_decide(doc, &tks_dialect_unknown);
	doc->skip = !whole;
	return 0;
}

/* --- documents --- */

static void document_begin(struct tks_document *doc)
{
	doc->in = true;
	doc->bad = doc->skip = false;
	doc->npeek = 0;
	doc->bytes = 0;
	if (doc->decided) {
		begin_decided(doc);
		return;
	}
	doc->count++;
	doc->nkept = 0;
	tks_shape_begin(doc->shape);
}

static int keep(struct tks_document *doc, const void *data, size_t n)
{
	size_t cap = doc->cap_kept ? doc->cap_kept : 512;
	uint8_t *grown;

	while (cap < doc->nkept + n)
		cap *= 2;
	if (cap > doc->cap_kept) {
		grown = tks_mem_resize(doc->mem, doc->kept, doc->cap_kept, cap);
		if (!grown)
			return -ENOMEM;
		doc->kept = grown;
		doc->cap_kept = cap;
	}
	memcpy(doc->kept + doc->nkept, data, n);
	doc->nkept += n;
	return 0;
}

static void peek(struct tks_document *doc, const void *data, size_t n)
{
	size_t room = TKS_DOC_PEEK - doc->npeek;

	doc->bytes += n;
	n = n < room ? n : room;
	memcpy(doc->peek + doc->npeek, data, n);
	doc->npeek += n;
}

static int undecided_data(struct tks_document *doc, const void *data, size_t n)
{
	int err;

	if (doc->skip)
		return 0;
	if (n <= KEPT_MAX - doc->nkept)
		return keep(doc, data, n);
	err = try_decide(doc, false);
	if (!err && doc->decided)
		scan(doc, data, n);
	return err;
}

/* A part of it could not be kept: what is left must not be read as if it were whole. */
static int lose(struct tks_document *doc, int err)
{
	if (err)
		doc->bad = doc->skip = true;
	return err;
}

int tks_document_data(struct tks_document *doc, const void *data, size_t n)
{
	if (!doc->in)
		document_begin(doc);
	peek(doc, data, n);
	if (doc->decided) {
		scan(doc, data, n);
		return 0;
	}
	if (!doc->protobuf && tks_shape_feed(doc->shape, data, n, NULL) == TKS_JS_BAD)
		doc->bad = true;
	return lose(doc, undecided_data(doc, data, n));
}

int tks_document_scan(struct tks_document *doc, const void *data, size_t n, size_t *used,
		      enum tks_jstatus *status)
{
	if (!doc->in)
		document_begin(doc);
	*status = TKS_JS_BAD;
	if (doc->decided && !doc->scan)
		return 0;
	*status = doc->decided ? tks_jscan_feed(doc->scan, data, n, used)
			       : tks_shape_feed(doc->shape, data, n, used);
	if (*status == TKS_JS_BAD)
		return 0;
	if (*status == TKS_JS_MORE)
		*used = n;
	peek(doc, data, *used);
	return doc->decided ? 0 : lose(doc, undecided_data(doc, data, *used));
}

/* "[DONE]", with white space around it. */
static bool is_done(const struct tks_document *doc)
{
	size_t i = 0, n = doc->npeek;

	if (doc->bytes > TKS_DOC_PEEK)
		return false;
	while (n && strchr(" \t\r\n", doc->peek[n - 1]))
		n--;
	while (i < n && strchr(" \t", doc->peek[i]))
		i++;
	return n - i == 6 && !memcmp(doc->peek + i, "[DONE]", 6);
}

static bool well_formed(struct tks_document *doc)
{
	if (doc->pscan && !doc->bad)
		return tks_pscan_end(doc->pscan);
	if (!doc->scan && doc->d.dialect->nfields)
		return false;
	if (doc->scan && !doc->bad)
		doc->bad = tks_jscan_end(doc->scan) == TKS_JS_BAD;
	return !doc->bad;
}

/* Gateways send pings until the engine answers: then the path must do. In an array there are none.
 */
static const struct tks_dialect *fallback(const struct tks_document *doc)
{
	const struct tks_dialect *d = doc->array ? NULL : tks_dialect_of_path(doc->d.target);

	return d ?: &tks_dialect_unknown;
}

int tks_document_end(struct tks_document *doc)
{
	int err = 0;
	bool ok;

	if (!doc->in)
		document_begin(doc);
	if (is_done(doc)) {
		doc->in = false;
		tks_reqstate_done(doc->d.rs);
		return 0;
	}
	if (!doc->decided && !doc->bad && !doc->skip)
		err = try_decide(doc, true);
	if (!err && !doc->decided && doc->count >= DOCUMENTS_MAX)
		err = tks_document_decide(doc, fallback(doc));
	doc->in = false;
	if (err)
		return err;
	if (!doc->decided) {
		tks_reqstate_arrival(doc->d.rs);
		return 0;
	}
	ok = well_formed(doc);
	/* Tokens may have been in it. */
	if (!ok && doc->bytes) {
		doc->d.rec->flags |= TKS_F_OPAQUE;
		tks_reqstate_hole(doc->d.rs);
	}
	doc->d.dialect->end(&doc->d, ok);
	return 0;
}

void tks_document_void(struct tks_document *doc)
{
	doc->in = false;
}
