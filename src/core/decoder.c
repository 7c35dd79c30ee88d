// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A response's body to facts: the content coding is taken off, the framing that the content type
 * names cuts it into documents, and document.c finds out whose they are.
 *
 * A decoded byte's offset means nothing on the wire. Everything a piece of input made decodable is
 * handed on before the next piece is looked at, so a frame's last byte is the piece's.
 */
#include "decoder.h"

#include <errno.h>
#include <string.h>

#include "aws_events.h"
#include "codec.h"
#include "document.h"
#include "grpc.h"
#include "lines.h"
#include "sse.h"
#include "unwrap.h"
#include "websocket.h"

enum mode {
	M_NONE = 0, /* nothing in it is for us */
	M_LOOK, /* the first byte will tell */
	M_EVENTS,
	M_LINES,
	M_JSON, /* one document, or an array of them */
	M_ARRAY,
	M_AWS,
	M_GRPC,
	M_WS,
	M_OPAQUE, /* a stream whose coding is not read: only when its bytes came is known */
};

struct tks_decoder {
	struct tks_mem *mem;
	enum mode mode;
	struct tks_document doc;
	union {
		struct tks_sse sse;
		struct tks_lines lines;
		struct tks_aws_events aws;
		struct tks_grpc grpc;
	} framing;
	bool has_grpc; /* framing is that of gRPC, or was */
	struct tks_ws *ws;
	struct tks_codec *codec;
	struct tks_unwrap unwrap;
	bool unwrapping;
	uint64_t wire_off; /* coded: the last byte of the piece being decoded */
	struct tks_reqstate *rs; /* of the whole body */
	struct tks_ask no_ask;
	char server_header[32];
	char target[256];
	char event[48];
	const struct tks_decoder_host *host;
	void *ctx;
	bool other_type; /* of a type that no model answers in */
	bool resumed; /* no head said what it is */
	bool rpc; /* unknowable, and it may be gRPC */
	bool unknowable; /* the head may have said what it is, in a way that can't be read */
	uint64_t first_off, last_off; /* of a document without framing */
	bool array_over;
};

static int frame_done(struct tks_decoder *d, uint64_t first_off, uint64_t last_off)
{
	struct tks_dialect_ctx *ctx = &d->doc.d;
	struct tks_frame_at at = { .first_off = first_off, .last_off = last_off };
	struct tks_reqstate *rs = ctx->rs;
	int err;

	if (d->codec)
		at.first_off = at.last_off = d->wire_off;
	d->host->time_at(d->ctx, &at);
	err = tks_reqstate_frame(rs, &at);
	if (rs == d->rs)
		return err;
	ctx->rec->t_end_ns = at.t_ns;
	/* Back to the stream itself, until a document says whose it is. */
	ctx->rs = d->rs;
	ctx->rec = tks_reqstate_record(d->rs);
	if (ctx->answer_over)
		d->host->answer_over(d->ctx, rs, at.last_off);
	ctx->answer_over = false;
	return err;
}

/* Part of the body can't be read. */
static void hole(struct tks_decoder *d)
{
	tks_reqstate_hole(d->rs);
	if (d->host->hole)
		d->host->hole(d->ctx);
}

static void truncated_if(struct tks_decoder *d, int err)
{
	if (err)
		d->doc.d.rec->flags |= TKS_F_TRUNCATED;
}

static void document_bytes(void *ctx, const struct tks_slice *s)
{
	struct tks_decoder *d = ctx;

	/* The rest of a slice is still read by a framing that was given up in it. */
	if (d->mode != M_NONE)
		truncated_if(d, tks_document_data(&d->doc, s->data, s->len));
}

static void document_void(void *ctx)
{
	struct tks_decoder *d = ctx;

	tks_document_void(&d->doc);
}

static void document_whole(struct tks_decoder *d, uint64_t first_off, uint64_t last_off)
{
	int err = tks_document_end(&d->doc);

	truncated_if(d, frame_done(d, first_off, last_off) ?: err);
}

/* --- events --- */

static void on_sse_frame(void *ctx, const struct tks_sse_frame *f)
{
	struct tks_decoder *d = ctx;

	if (f->truncated)
		d->doc.d.rec->flags |= TKS_F_TRUNCATED;
	/* A block of comments is no frame; Dynamo tells an error in one, under the event's name. */
	if (!f->has_data && !f->event[0])
		return;
	if (!strcmp(f->event, "error"))
		tks_reqstate_error(d->rs, "error", "");
	memcpy(d->event, f->event, sizeof(d->event));
	if (f->has_data)
		document_whole(d, f->first_off, f->last_off);
	else
		truncated_if(d, frame_done(d, f->first_off, f->last_off));
}

static const struct tks_sse_ops sse_ops = {
	.data = document_bytes,
	.frame = on_sse_frame,
	.reset = document_void,
};

/* --- lines --- */

static void on_line(void *ctx, uint64_t first_off, uint64_t last_off)
{
	document_whole(ctx, first_off, last_off);
}

static const struct tks_lines_ops lines_ops = {
	.data = document_bytes,
	.line = on_line,
	.reset = document_void,
};

/* --- AWS messages --- */

static void unwrapped(void *ctx, const void *data, size_t len)
{
	struct tks_decoder *d = ctx;

	truncated_if(d, tks_document_data(&d->doc, data, len));
}

static void on_aws_begin(void *ctx, const struct tks_aws_event *e)
{
	struct tks_decoder *d = ctx;

	memcpy(d->event, e->type, sizeof(d->event));
	d->unwrapping = !strcmp(e->type, "chunk");
	if (d->unwrapping)
		tks_unwrap_begin(&d->unwrap, unwrapped, d);
}

static void on_aws_payload(void *ctx, const struct tks_slice *s)
{
	struct tks_decoder *d = ctx;

	if (d->unwrapping)
		tks_unwrap_feed(&d->unwrap, s->data, s->len);
	else
		document_bytes(ctx, s);
}

static void on_aws_event(void *ctx, const struct tks_aws_event *e)
{
	struct tks_decoder *d = ctx;

	memcpy(d->event, e->type, sizeof(d->event));
	if (e->bad_crc) {
		tks_document_void(&d->doc);
		hole(d);
	} else if (strcmp(e->message_type, "event") != 0) {
		tks_document_void(&d->doc);
		tks_reqstate_error(d->rs, e->type, "");
		truncated_if(d, frame_done(d, e->first_off, e->last_off));
	} else {
		document_whole(d, e->first_off, e->last_off);
	}
}

static const struct tks_aws_ops aws_ops = {
	.begin = on_aws_begin,
	.payload = on_aws_payload,
	.event = on_aws_event,
	.reset = document_void,
};

/* --- gRPC --- */

static void on_grpc_message(void *ctx, const struct tks_grpc_message *m)
{
	struct tks_decoder *d = ctx;

	if (d->mode == M_NONE)
		return;
	if (m->broken) {
		tks_document_void(&d->doc);
		hole(d);
		return;
	}
	document_whole(d, m->first_off, m->last_off);
	/* It is somebody else's. */
	if (!d->doc.decided)
		d->mode = M_NONE;
}

static const struct tks_grpc_ops grpc_ops = {
	.data = document_bytes,
	.message = on_grpc_message,
};

/* --- WebSocket --- */

static void on_ws_message(void *ctx, const struct tks_ws_message *m)
{
	struct tks_decoder *d = ctx;

	if (d->mode == M_NONE)
		return;
	if (m->broken)
		hole(d);
	if (m->broken || !m->text) {
		tks_document_void(&d->doc);
		return;
	}
	document_whole(d, m->first_off, m->last_off);
	/* Not the one protocol over WebSocket that is known. */
	if (d->doc.decided && d->doc.d.dialect == &tks_dialect_unknown)
		d->mode = M_NONE;
}

static void on_ws_close(void *ctx, uint16_t code, uint64_t last_off)
{
	struct tks_decoder *d = ctx;

	(void)code;
	(void)last_off;
	if (d->host->closed)
		d->host->closed(d->ctx);
}

static const struct tks_ws_ops ws_ops = {
	.data = document_bytes,
	.message = on_ws_message,
	.close = on_ws_close,
};

/* --- JSON without framing: one document, or an array whose elements are frames --- */

static bool is_space(uint8_t ch)
{
	return ch == ' ' || ch == '\t' || ch == '\r' || ch == '\n';
}

static void skip_space(struct tks_slice *s)
{
	while (s->len && is_space(*s->data)) {
		s->data++;
		s->off++;
		s->len--;
	}
}

static void one_document(struct tks_decoder *d, const struct tks_slice *s)
{
	if (!d->doc.in)
		d->first_off = s->off;
	d->last_off = s->off + s->len - 1;
	document_bytes(d, s);
}

/* Bytes of an element; how many. */
static size_t element(struct tks_decoder *d, const uint8_t *p, size_t n, uint64_t off)
{
	enum tks_jstatus status;
	size_t used = n;

	if (!d->doc.in)
		d->first_off = off;
	truncated_if(d, tks_document_scan(&d->doc, p, n, &used, &status));
	if (status == TKS_JS_MORE)
		return n;
	if (status == TKS_JS_BAD) {
		d->mode = M_NONE;
		return n;
	}
	while (used > 1 && is_space(p[used - 1]))
		used--;
	document_whole(d, d->first_off, off + used - 1);
	if (d->doc.decided && d->doc.d.dialect == &tks_dialect_unknown)
		d->mode = M_NONE;
	return used;
}

static void elements(struct tks_decoder *d, const struct tks_slice *s)
{
	size_t i = 0;

	while (i < s->len && d->mode == M_ARRAY && !d->array_over) {
		uint8_t ch = s->data[i];

		if (!d->doc.in && (is_space(ch) || ch == ',' || ch == '['))
			i++;
		else if (!d->doc.in && ch == ']')
			d->array_over = true;
		else
			i += element(d, s->data + i, s->len - i, s->off + i);
	}
}

static void json_bytes(struct tks_decoder *d, const struct tks_slice *in)
{
	struct tks_slice s = *in;

	if (!d->doc.in)
		skip_space(&s);
	if (!s.len)
		return;
	if (d->doc.in || *s.data != '[') {
		one_document(d, &s);
		return;
	}
	d->mode = M_ARRAY;
	d->doc.single = false;
	d->doc.array = true;
	elements(d, &s);
}

/* --- framing --- */

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

static bool is_one_of(const char *s, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(s, names[i]))
			return true;
	}
	return false;
}

static enum mode mode_of_type(const char *type, bool llm_path)
{
	static const char *const lines[] = { "application/x-ndjson",	"application/ndjson",
					     "application/jsonl",	"application/x-jsonlines",
					     "application/stream+json", "application/json-seq" };
	static const char *const vague[] = { "", "text/plain", "application/octet-stream" };

	if (!strcmp(type, "text/event-stream"))
		return M_EVENTS;
	if (is_one_of(type, lines, sizeof(lines) / sizeof(lines[0])))
		return M_LINES;
	if (!strcmp(type, "application/vnd.amazon.eventstream"))
		return M_AWS;
	if (!strcmp(type, "application/json") || ends_with(type, "+json"))
		return M_JSON;
	if (!strncmp(type, "application/grpc", 16) && (!type[16] || strchr("+;", type[16])))
		return M_GRPC;
	return llm_path && is_one_of(type, vague, sizeof(vague) / sizeof(vague[0])) ? M_LOOK
										    : M_NONE;
}

static enum mode mode_of(const struct tks_http_head *h, const char *target)
{
	bool llm_path = target && tks_path_is_llm(target);
	enum mode mode;

	if (h->upgrade)
		return strstr(h->upgrade_to, "websocket") ? M_WS : M_NONE;
	/* Entered in its middle it has no head to ask. */
	if (h->resumed)
		return M_LOOK;
	mode = mode_of_type(h->content_type, llm_path);
	if (h->unknowable && !h->content_type[0])
		mode = M_LOOK;
	if (mode == M_GRPC && (!target || !tks_dialect_of_method(target)))
		return M_NONE;
	if (tks_coding_named(h->content_encoding) == TKS_CODING_OTHER && mode != M_NONE &&
	    (mode != M_JSON || llm_path))
		return M_OPAQUE;
	return mode;
}

/* A stream is one by its type; whatever else comes is one document. */
static bool is_stream(enum mode mode)
{
	return mode != M_NONE && mode != M_JSON && mode != M_LOOK;
}

static bool is_stream_head(const struct tks_http_head *h, enum mode mode)
{
	return is_stream(mode == M_OPAQUE ? mode_of_type(h->content_type, false) : mode);
}

static void start_framing(struct tks_decoder *d, const struct tks_http_head *h)
{
	switch (d->mode) {
	case M_EVENTS:
		tks_sse_init(&d->framing.sse, &sse_ops, d);
		break;
	case M_LINES:
		tks_lines_init(&d->framing.lines, &lines_ops, d);
		break;
	case M_AWS:
		tks_aws_events_init(&d->framing.aws, &aws_ops, d);
		break;
	case M_GRPC:
		tks_grpc_init(&d->framing.grpc, d->mem, h->grpc_encoding, &grpc_ops, d);
		d->has_grpc = true;
		break;
	default:
		break;
	}
}

static const struct tks_http_head no_head;

/* The first byte tells what the type did not. */
static void look(struct tks_decoder *d, const struct tks_slice *s)
{
	uint8_t ch = *s->data;

	/* A gRPC message's flag. */
	if (d->rpc && ch <= 1) {
		d->mode = M_GRPC;
		d->doc.protobuf = true;
		d->doc.d.streamed = true;
		d->doc.d.rec->streamed = 1;
		start_framing(d, &no_head);
		return;
	}
	/* Nothing that is written as text begins so. */
	d->mode = ch < ' ' && !is_space(ch) ? M_NONE : M_EVENTS;
	if (ch == '{')
		d->mode = d->unknowable ? M_JSON : M_LINES;
	if (ch == '[')
		d->mode = M_JSON;
	d->doc.d.streamed = is_stream(d->mode);
	d->doc.d.rec->streamed = d->doc.d.streamed;
	start_framing(d, &no_head);
	if (d->resumed && d->mode == M_EVENTS)
		tks_sse_gap(&d->framing.sse);
}

static void framed(struct tks_decoder *d, const struct tks_slice *in)
{
	struct tks_slice rest = *in, *s = &rest;

	if (d->mode == M_LOOK && !d->resumed)
		skip_space(s);
	if (!s->len)
		return;
	if (d->mode == M_LOOK)
		look(d, s);
	switch (d->mode) {
	case M_EVENTS:
		tks_sse_feed(&d->framing.sse, s);
		break;
	case M_LINES:
		tks_lines_feed(&d->framing.lines, s);
		break;
	case M_JSON:
		json_bytes(d, s);
		break;
	case M_ARRAY:
		elements(d, s);
		break;
	case M_AWS:
		if (tks_aws_events_feed(&d->framing.aws, s) == -EBADMSG)
			hole(d);
		break;
	case M_GRPC:
		truncated_if(d, tks_grpc_feed(&d->framing.grpc, s));
		break;
	case M_WS:
		if (tks_ws_feed(d->ws, s) == -EBADMSG)
			d->mode = M_NONE;
		break;
	default:
		break;
	}
}

/* --- content coding --- */

static int on_decoded(void *ctx, const uint8_t *data, size_t len)
{
	struct tks_decoder *d = ctx;
	struct tks_slice s = { data, len, 0 };

	framed(d, &s);
	return d->mode == M_NONE ? -ECANCELED : 0;
}

static void arrival(struct tks_decoder *d, uint64_t off)
{
	struct tks_frame_at at = { .first_off = off, .last_off = off };

	d->host->time_at(d->ctx, &at);
	truncated_if(d, tks_reqstate_bytes(d->rs, &at));
}

/* From here on nothing can be read. */
static void go_opaque(struct tks_decoder *d)
{
	tks_document_void(&d->doc);
	d->doc.d.rec->flags |= TKS_F_OPAQUE;
	hole(d);
	d->mode = M_OPAQUE;
}

static void coded(struct tks_decoder *d, const struct tks_slice *s)
{
	int err;

	d->wire_off = s->off + s->len - 1;
	err = tks_codec_feed(d->codec, s->data, s->len, on_decoded, d);
	if (!err || err == -ECANCELED)
		return;
	go_opaque(d);
	arrival(d, d->wire_off);
}

/* --- life --- */

static void copy_text(char *out, size_t size, const char *s)
{
	size_t n = strlen(s);

	if (n > size - 1)
		n = size - 1;
	memcpy(out, s, n);
	out[n] = 0;
}

static void name_server(struct tks_decoder *d, const struct tks_http_head *h)
{
	struct tks_request *rec = d->doc.d.rec;

	if (h->product[0])
		copy_text(rec->server, sizeof(rec->server), h->product);
	else if (!strcmp(h->server, "llama.cpp"))
		copy_text(rec->server, sizeof(rec->server), h->server);
}

static void set_context(struct tks_decoder *d, const struct tks_decoder_of *of)
{
	struct tks_dialect_ctx *ctx = &d->doc.d;

	tks_ask_init(&d->no_ask);
	copy_text(d->server_header, sizeof(d->server_header), of->head->server);
	copy_text(d->target, sizeof(d->target), of->target ? of->target : "");
	ctx->rs = d->rs = of->rs;
	ctx->rec = tks_reqstate_record(of->rs);
	ctx->ask = of->ask ? of->ask : &d->no_ask;
	ctx->server_header = d->server_header;
	ctx->target = d->target;
	ctx->get = of->get;
	ctx->event = d->event;
	ctx->streamed = is_stream(d->mode);
	ctx->host = d->host = of->host;
	ctx->host_ctx = d->ctx = of->ctx;
}

static int prepare(struct tks_decoder *d, const struct tks_http_head *h)
{
	enum tks_coding coding = tks_coding_named(h->content_encoding);
	enum tks_shape_kind kind = d->mode == M_AWS  ? TKS_SHAPE_AWS
				   : d->mode == M_WS ? TKS_SHAPE_WS
						     : TKS_SHAPE_PLAIN;
	int err;

	if (coding != TKS_CODING_IDENTITY && d->mode != M_WS) {
		d->codec = tks_codec_new(d->mem, coding);
		if (!d->codec)
			return -ENOMEM;
	}
	if (d->mode == M_WS) {
		d->ws = tks_ws_new(d->mem, TKS_RESPONSE, h->ws_extensions, &ws_ops, d);
		if (!d->ws)
			return -ENOMEM;
		if (h->resumed)
			tks_ws_gap(d->ws, h->first_off, 0);
	}
	start_framing(d, h);
	err = tks_document_init(&d->doc, d->mem, kind);
	d->doc.d.event = d->event;
	d->doc.single = d->mode == M_JSON;
	if (!err && d->mode == M_GRPC)
		err = tks_document_decide(&d->doc, tks_dialect_of_method(d->target));
	return err;
}

struct tks_decoder *tks_decoder_new(struct tks_mem *mem, const struct tks_decoder_of *of)
{
	struct tks_decoder *d = tks_mem_alloc(mem, sizeof(*d));

	if (!d)
		return NULL;
	d->mem = mem;
	d->mode = mode_of(of->head, of->target);
	d->other_type = d->mode == M_NONE && of->head->content_type[0];
	d->resumed = of->head->resumed;
	d->unknowable = of->head->unknowable && !of->head->content_type[0];
	d->rpc = of->mid_connection && d->unknowable && !d->resumed && of->head->major == 2 &&
		 !of->target;
	set_context(d, of);
	if (d->mode == M_NONE)
		return d;
	d->doc.d.rec->streamed = is_stream_head(of->head, d->mode) || d->resumed;
	name_server(d, of->head);
	if (d->mode == M_OPAQUE) {
		d->doc.d.rec->flags |= TKS_F_OPAQUE;
		return d;
	}
	d->doc.mem = mem;
	if (prepare(d, of->head)) {
		tks_decoder_free(d);
		return NULL;
	}
	return d;
}

void tks_decoder_free(struct tks_decoder *d)
{
	if (!d)
		return;
	if (d->has_grpc)
		tks_grpc_free(&d->framing.grpc);
	tks_ws_free(d->ws);
	tks_codec_free(d->codec);
	tks_document_free(&d->doc);
	tks_mem_free(d->mem, d, sizeof(*d));
}

int tks_decoder_data(struct tks_decoder *d, const struct tks_slice *s)
{
	if (!s->len || d->mode == M_NONE)
		return 0;
	if (d->mode == M_OPAQUE)
		arrival(d, s->off + s->len - 1);
	else if (d->codec)
		coded(d, s);
	else
		framed(d, s);
	return 0;
}

static void gap_in_framing(struct tks_decoder *d, uint64_t off, uint64_t len)
{
	switch (d->mode) {
	case M_EVENTS:
		tks_sse_gap(&d->framing.sse);
		break;
	case M_LINES:
		tks_lines_gap(&d->framing.lines);
		break;
	case M_AWS:
		tks_aws_events_gap(&d->framing.aws, len);
		break;
	case M_GRPC:
		tks_grpc_gap(&d->framing.grpc, len);
		break;
	case M_WS:
		tks_ws_gap(d->ws, off, len);
		break;
	case M_ARRAY:
		/* Where an element begins can't be found again. */
		d->mode = M_OPAQUE;
		break;
	default:
		d->doc.bad = true;
		return;
	}
	if (d->mode == M_EVENTS || d->mode == M_LINES || d->mode == M_OPAQUE)
		tks_document_void(&d->doc);
}

void tks_decoder_gap(struct tks_decoder *d, uint64_t off, uint64_t len)
{
	if (d->mode == M_NONE)
		return;
	if (d->codec && d->mode != M_OPAQUE)
		go_opaque(d);
	gap_in_framing(d, off, len);
	hole(d);
}

void tks_decoder_end(struct tks_decoder *d)
{
	switch (d->mode) {
	case M_EVENTS:
		tks_sse_end(&d->framing.sse);
		break;
	case M_LINES:
		tks_lines_end(&d->framing.lines);
		break;
	case M_JSON:
		if (d->doc.in)
			document_whole(d, d->first_off, d->last_off);
		break;
	case M_ARRAY:
		/* Whole, and none of its elements is a model's. */
		if (d->array_over && !d->doc.decided)
			tks_document_decide(&d->doc, &tks_dialect_unknown);
		break;
	default:
		break;
	}
}

void tks_decoder_trailers(struct tks_decoder *d, const char *grpc_status)
{
	if (grpc_status[0] && strcmp(grpc_status, "0") != 0)
		tks_reqstate_error(d->rs, "grpc", grpc_status);
}

static bool known(const struct tks_decoder *d)
{
	return d->doc.decided && d->doc.d.dialect != &tks_dialect_unknown;
}

int tks_decoder_is_llm(const struct tks_decoder *d)
{
	if (d->mode == M_NONE || d->mode == M_WS || d->doc.d.not_generated ||
	    (known(d) && d->doc.d.dialect->shared))
		return 0;
	if (d->mode == M_OPAQUE)
		return d->doc.d.rec->streamed == 1;
	if (d->mode == M_EVENTS && !d->resumed && !d->unknowable)
		return 1;
	if (!d->doc.decided)
		return -EAGAIN;
	return known(d);
}

bool tks_decoder_not_generated(const struct tks_decoder *d)
{
	return d->doc.d.not_generated;
}

bool tks_decoder_is_other(const struct tks_decoder *d)
{
	const struct tks_request *rec = d->doc.d.rec;

	if (rec->status < 200 || rec->status >= 300 ||
	    (rec->flags & (TKS_F_LOST | TKS_F_MID_STREAM | TKS_F_OPAQUE | TKS_F_TRUNCATED)))
		return false;
	return d->other_type || (d->doc.decided && d->doc.d.dialect == &tks_dialect_unknown &&
				 (d->doc.single || d->doc.array));
}

bool tks_decoder_wants_no_body(const struct tks_decoder *d)
{
	return d->mode == M_NONE || (d->mode == M_JSON && d->doc.decided && !known(d));
}
