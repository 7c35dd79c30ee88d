// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A response's body to facts: framing by content type, then the dialect by the shape of the first
 * documents, then its scanner.
 *
 * Until the dialect is known two scanners look at the bytes: one for the shape, and none yet for
 * the facts, whose bytes are kept instead and scanned again as soon as it is. In the steady state
 * nothing is kept and nothing is allocated.
 */
#include "decoder.h"

#include <errno.h>
#include <string.h>

#include "dialect.h"
#include "jscan.h"
#include "sse.h"

enum {
	UNDECIDED_MAX = 64 * 1024, /* bytes of a document kept while its dialect is not known */
	DOCUMENTS_MAX = 8, /* documents looked at for a shape before the stream is `unknown` */
	PEEK = 16,
};

enum mode {
	M_NONE = 0, /* nothing in it is for us */
	M_EVENTS,
	M_JSON,
	M_OPAQUE, /* a stream whose coding is not read */
};

struct tks_decoder {
	struct tks_mem *mem;
	enum mode mode;
	struct tks_sse sse;
	struct tks_dialect_ctx d;
	struct tks_ask no_ask;
	char server_header[32];
	char target[256];
	tks_time_fn time_at;
	void *time_ctx;
	bool in_document, decided;
	bool resumed; /* no head said what it is */
	bool bad; /* the document under way is not JSON */
	unsigned int documents;
	/* The document's first bytes, for [DONE]. */
	char peek[PEEK];
	size_t peek_len;
	uint64_t data_bytes;
	uint64_t first_off, last_off; /* of the JSON body */
	struct tks_shape shape;
	struct tks_jschema *shape_schema, *schema;
	struct tks_jscan *shape_scan, *scan;
	uint8_t *kept;
	size_t nkept, cap_kept;
};

/* --- shape --- */

enum { SH_OBJECT = 1, SH_CHOICES, SH_DELTA, SH_TEXT, SH_MESSAGE, SH_ERROR, SH_DETAIL };

static const struct tks_jfield shape_fields[] = {
	{ "object", SH_OBJECT, TKS_JF_KEEP },
	{ "choices", SH_CHOICES, TKS_JF_BEGIN },
	{ "choices[].delta", SH_DELTA, TKS_JF_BEGIN },
	{ "choices[].text", SH_TEXT, 0 },
	{ "choices[].message", SH_MESSAGE, TKS_JF_BEGIN },
	{ "error", SH_ERROR, 0 },
	{ "detail", SH_DETAIL, 0 },
};

static void on_shape(void *ctx, const struct tks_jvalue *v)
{
	struct tks_shape *s = ctx;

	switch (v->id) {
	case SH_OBJECT:
		if (v->str)
			tks_jvalue_copy(v, s->object, sizeof(s->object));
		break;
	case SH_CHOICES:
		s->choices = true;
		break;
	case SH_DELTA:
		s->delta = true;
		break;
	case SH_TEXT:
		s->text = true;
		break;
	case SH_MESSAGE:
		s->message = true;
		break;
	case SH_ERROR:
		s->error = v->type != TKS_JS_NULL;
		break;
	case SH_DETAIL:
		s->detail = true;
		break;
	}
}

static void on_value(void *ctx, const struct tks_jvalue *v)
{
	struct tks_dialect_ctx *d = ctx;

	d->dialect->value(d, v);
}

/* --- deciding --- */

static void drop_kept(struct tks_decoder *d)
{
	tks_mem_free(d->mem, d->kept, d->cap_kept);
	d->kept = NULL;
	d->nkept = d->cap_kept = 0;
}

static int keep(struct tks_decoder *d, const uint8_t *p, size_t n)
{
	size_t cap = d->cap_kept ? d->cap_kept : 512;
	uint8_t *grown;

	while (cap < d->nkept + n)
		cap *= 2;
	if (cap > d->cap_kept) {
		grown = tks_mem_resize(d->mem, d->kept, d->cap_kept, cap);
		if (!grown)
			return -ENOMEM;
		d->kept = grown;
		d->cap_kept = cap;
	}
	memcpy(d->kept + d->nkept, p, n);
	d->nkept += n;
	return 0;
}

static struct tks_jscan *scan_new(struct tks_decoder *d, const struct tks_jschema *schema,
				  tks_jvalue_fn fn, void *ctx)
{
	struct tks_jscan *j = schema ? tks_mem_alloc(d->mem, tks_jscan_size()) : NULL;

	if (j)
		tks_jscan_init(j, schema, fn, ctx);
	return j;
}

static void shape_free(struct tks_decoder *d)
{
	tks_mem_free(d->mem, d->shape_scan, tks_jscan_size());
	tks_jschema_free(d->shape_schema);
	d->shape_scan = NULL;
	d->shape_schema = NULL;
}

/* The dialect is known: from here on its scanner reads, first what was kept of this document. */
static int decide(struct tks_decoder *d, const struct tks_dialect *dialect)
{
	d->decided = true;
	d->d.dialect = dialect;
	d->d.rec->dialect = dialect->name;
	shape_free(d);
	if (dialect->nfields) {
		d->schema = tks_jschema_new(dialect->fields, dialect->nfields);
		d->scan = scan_new(d, d->schema, on_value, &d->d);
		if (!d->scan)
			return -ENOMEM;
	}
	dialect->begin(&d->d);
	if (d->scan && d->nkept && tks_jscan_feed(d->scan, d->kept, d->nkept, NULL) == TKS_JS_BAD)
		d->bad = true;
	drop_kept(d);
	return 0;
}

/* With a whole document looked at, or as much of it as is kept. */
static int try_decide(struct tks_decoder *d, bool whole)
{
	const struct tks_dialect *dialect = tks_dialect_for(&d->shape);
	bool error = d->shape.error || d->shape.detail || !strcmp(d->shape.object, "error");

	if (dialect)
		return decide(d, dialect);
	if (error && d->target[0]) {
		dialect = tks_dialect_named(tks_path_dialect(d->target));
		/* Of a dialect that is not known the outer form of an error is. */
		if (dialect == &tks_dialect_unknown && d->mode == M_JSON)
			return 0;
		return decide(d, dialect);
	}
	if (!whole || d->documents >= DOCUMENTS_MAX)
		return decide(d, &tks_dialect_unknown);
	return 0;
}

/* --- documents: the data of an event, or the body --- */

static void document_begin(struct tks_decoder *d)
{
	d->in_document = true;
	d->bad = false;
	d->peek_len = 0;
	d->data_bytes = 0;
	if (d->decided) {
		if (d->scan)
			tks_jscan_reset(d->scan);
		d->d.dialect->begin(&d->d);
		return;
	}
	d->documents++;
	d->nkept = 0;
	memset(&d->shape, 0, sizeof(d->shape));
	tks_jscan_reset(d->shape_scan);
}

static int undecided_data(struct tks_decoder *d, const uint8_t *p, size_t n)
{
	int err;

	if (tks_jscan_feed(d->shape_scan, p, n, NULL) == TKS_JS_BAD)
		d->bad = true;
	if (n > UNDECIDED_MAX - d->nkept) {
		err = try_decide(d, false);
		if (!err && d->scan && tks_jscan_feed(d->scan, p, n, NULL) == TKS_JS_BAD)
			d->bad = true;
		return err;
	}
	return keep(d, p, n);
}

static int document_data(struct tks_decoder *d, const uint8_t *p, size_t n)
{
	size_t room = PEEK - d->peek_len;

	if (!d->in_document)
		document_begin(d);
	d->data_bytes += n;
	if (room) {
		room = n < room ? n : room;
		memcpy(d->peek + d->peek_len, p, room);
		d->peek_len += room;
	}
	if (!d->decided)
		return undecided_data(d, p, n);
	if (d->scan && !d->bad && tks_jscan_feed(d->scan, p, n, NULL) == TKS_JS_BAD)
		d->bad = true;
	return 0;
}

/* "[DONE]", with white space around it. */
static bool is_done(const struct tks_decoder *d)
{
	size_t i = 0, n = d->peek_len;

	if (d->data_bytes > PEEK)
		return false;
	while (n && strchr(" \t\r\n", d->peek[n - 1]))
		n--;
	while (i < n && strchr(" \t", d->peek[i]))
		i++;
	return n - i == 6 && !memcmp(d->peek + i, "[DONE]", 6);
}

/* The document is whole: judge it. The end marker is not one. */
static int document_end(struct tks_decoder *d)
{
	int err = 0;

	d->in_document = false;
	if (is_done(d)) {
		tks_reqstate_done(d->d.rs);
		return 0;
	}
	if (!d->decided && !d->bad)
		err = try_decide(d, true);
	if (err || !d->decided)
		return err;
	if (d->scan && !d->bad && tks_jscan_end(d->scan) == TKS_JS_BAD)
		d->bad = true;
	d->d.dialect->end(&d->d, !d->bad);
	return 0;
}

static int frame_done(struct tks_decoder *d, uint64_t first_off, uint64_t last_off)
{
	struct tks_frame_at at = { .first_off = first_off, .last_off = last_off };

	d->time_at(d->time_ctx, &at);
	return tks_reqstate_frame(d->d.rs, &at);
}

/* --- events --- */

static void on_sse_data(void *ctx, const struct tks_slice *s)
{
	struct tks_decoder *d = ctx;

	if (document_data(d, s->data, s->len))
		d->d.rec->flags |= TKS_F_TRUNCATED;
}

static void on_sse_frame(void *ctx, const struct tks_sse_frame *f)
{
	struct tks_decoder *d = ctx;
	int err = 0;

	if (f->truncated)
		d->d.rec->flags |= TKS_F_TRUNCATED;
	/* A block of comments is no frame; Dynamo tells an error in one, under the event's name. */
	if (!f->has_data && !f->event[0])
		return;
	if (!strcmp(f->event, "error"))
		tks_reqstate_error(d->d.rs, "error", "");
	if (f->has_data) {
		if (!d->in_document)
			document_begin(d);
		err = document_end(d);
	}
	if (frame_done(d, f->first_off, f->last_off) || err)
		d->d.rec->flags |= TKS_F_TRUNCATED;
}

static void on_sse_reset(void *ctx)
{
	struct tks_decoder *d = ctx;

	d->in_document = false;
}

static const struct tks_sse_ops sse_ops = {
	.data = on_sse_data,
	.frame = on_sse_frame,
	.reset = on_sse_reset,
};

/* --- life --- */

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

static enum mode mode_of(const struct tks_h1_head *h, bool llm_path)
{
	bool coded = h->content_encoding[0] && strcmp(h->content_encoding, "identity");
	bool events = !strcmp(h->content_type, "text/event-stream");
	bool json = !strcmp(h->content_type, "application/json") ||
		    ends_with(h->content_type, "+json");

	/* Entered in its middle a chunked body has no head to ask: it is looked at as events. */
	if (h->resumed)
		return M_EVENTS;
	if (h->upgrade || (!events && !json))
		return M_NONE;
	if (coded)
		return events || llm_path ? M_OPAQUE : M_NONE;
	return events ? M_EVENTS : M_JSON;
}

static void copy_text(char *out, size_t size, const char *s)
{
	size_t n = strlen(s);

	if (n > size - 1)
		n = size - 1;
	memcpy(out, s, n);
	out[n] = 0;
}

struct tks_decoder *tks_decoder_new(struct tks_mem *mem, struct tks_reqstate *rs,
				    const struct tks_h1_head *head, const struct tks_ask *ask,
				    const char *target, tks_time_fn time_at, void *ctx)
{
	struct tks_decoder *d = tks_mem_alloc(mem, sizeof(*d));

	if (!d)
		return NULL;
	d->mem = mem;
	d->mode = mode_of(head, target && tks_path_is_llm(target));
	d->resumed = head->resumed;
	d->time_at = time_at;
	d->time_ctx = ctx;
	tks_ask_init(&d->no_ask);
	copy_text(d->server_header, sizeof(d->server_header), head->server);
	copy_text(d->target, sizeof(d->target), target ? target : "");
	d->d.rs = rs;
	d->d.rec = tks_reqstate_record(rs);
	d->d.ask = ask ? ask : &d->no_ask;
	d->d.server_header = d->server_header;
	d->d.streamed = d->mode == M_EVENTS;
	if (d->mode == M_NONE)
		return d;
	d->d.rec->streamed = !strcmp(head->content_type, "text/event-stream") || head->resumed;
	if (d->mode == M_OPAQUE) {
		d->d.rec->flags |= TKS_F_OPAQUE;
		return d;
	}
	tks_sse_init(&d->sse, &sse_ops, d);
	if (head->resumed)
		tks_sse_gap(&d->sse);
	d->shape_schema =
		tks_jschema_new(shape_fields, sizeof(shape_fields) / sizeof(shape_fields[0]));
	d->shape_scan = scan_new(d, d->shape_schema, on_shape, &d->shape);
	if (!d->shape_scan) {
		tks_decoder_free(d);
		return NULL;
	}
	return d;
}

void tks_decoder_free(struct tks_decoder *d)
{
	if (!d)
		return;
	shape_free(d);
	drop_kept(d);
	tks_mem_free(d->mem, d->scan, tks_jscan_size());
	tks_jschema_free(d->schema);
	tks_mem_free(d->mem, d, sizeof(*d));
}

int tks_decoder_data(struct tks_decoder *d, const struct tks_slice *s)
{
	if (d->mode == M_EVENTS)
		tks_sse_feed(&d->sse, s);
	if (d->mode != M_JSON)
		return 0;
	if (!d->in_document)
		d->first_off = s->off;
	d->last_off = s->off + s->len - 1;
	return s->len ? document_data(d, s->data, s->len) : 0;
}

void tks_decoder_gap(struct tks_decoder *d)
{
	if (d->mode == M_NONE)
		return;
	if (d->mode == M_EVENTS)
		tks_sse_gap(&d->sse);
	d->bad = d->bad || d->mode == M_JSON;
	d->in_document = d->in_document && d->mode == M_JSON;
	tks_reqstate_hole(d->d.rs);
}

void tks_decoder_end(struct tks_decoder *d)
{
	if (d->mode == M_EVENTS)
		tks_sse_end(&d->sse);
	if (d->mode != M_JSON || !d->in_document)
		return;
	if (document_end(d) || frame_done(d, d->first_off, d->last_off))
		d->d.rec->flags |= TKS_F_TRUNCATED;
}

int tks_decoder_is_llm(const struct tks_decoder *d)
{
	if (d->mode == M_EVENTS && !d->resumed)
		return 1;
	if (d->mode == M_OPAQUE)
		return d->d.rec->streamed == 1;
	if (d->mode == M_NONE)
		return 0;
	if (!d->decided)
		return -EAGAIN;
	return d->d.dialect != &tks_dialect_unknown;
}

bool tks_decoder_wants_no_body(const struct tks_decoder *d)
{
	return d->mode == M_NONE || (d->mode == M_JSON && d->decided && !tks_decoder_is_llm(d));
}
