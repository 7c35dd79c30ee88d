// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "answers.h"

#include <errno.h>
#include <string.h>

#include "dialect.h"
#include "grpc.h"
#include "jscan.h"
#include "pipeline_int.h"
#include "pscan.h"
#include "websocket.h"

enum { OPEN_MAX = 1024 }; /* answers of a stream; past it the oldest ends */

struct tks_asks {
	struct tks_exchange *stream;
	const struct tks_dialect *dialect; /* of gRPC's method; NULL: a WebSocket */
	struct tks_ws *ws;
	struct tks_grpc grpc;
	struct tks_jscan *scan;
	struct tks_pscan pscan;
	size_t open;
	bool begun; /* bytes of the message under way have come */
	bool bad;
	bool closed; /* the client said that it leaves */
	int64_t begun_ns; /* when its first byte did */
	/* The message under way. */
	char type[24], key[128], model[128];
	int64_t max_tokens;
	char last_over[128]; /* key of the answer that ended last: it is not begun anew */
};

/* --- an answer --- */

static struct tks_exchange *answer_new(struct tks_exchange *e, const char *key)
{
	struct tks_exchange *a = tks_exchange_new(e->conn);

	if (!a)
		return NULL;
	a->parent = e;
	/* Of the list of the connection it is no part: there the stream stands for it. */
	tks_list_remove(&a->in_conn);
	tks_list_append(&e->answers, &a->in_conn);
	strncpy(a->key, key, sizeof(a->key) - 1);
	a->rec->http = e->rec->http;
	a->rec->stream_id = e->rec->stream_id;
	memcpy(a->rec->method, e->rec->method, sizeof(a->rec->method));
	memcpy(a->rec->path, e->rec->path, sizeof(a->rec->path));
	if (++e->asks->open > OPEN_MAX)
		tks_exchange_end(tks_list_entry(e->answers.next, struct tks_exchange, in_conn),
				 TKS_OUT_OPEN);
	return a;
}

static void asked(struct tks_asks *s, uint64_t first_off, uint64_t last_off)
{
	struct tks_exchange *e = s->stream, *a = answer_new(e, s->key);
	int64_t begun = tks_exchange_time(e->conn, TKS_REQUEST, first_off);

	if (!a)
		return;
	a->rec->dialect = s->dialect ? s->dialect->name : "openai.realtime";
	a->rec->t_request_ns = begun != TKS_NULL ? begun : s->begun_ns;
	a->rec->t_request_end_ns = tks_exchange_time(e->conn, TKS_REQUEST, last_off);
	memcpy(a->ask.model, s->model, sizeof(a->ask.model));
	a->ask.max_tokens = s->max_tokens;
	tks_exchange_count_in(a, TKS_NULL);
}

/* --- what is asked --- */

enum field { F_TYPE = 1, F_MODEL, F_MAX, F_KEY };

static const struct tks_jfield create_fields[] = {
	{ "type", F_TYPE, TKS_JF_KEEP },
	{ "response.model", F_MODEL, TKS_JF_KEEP },
	{ "response.max_output_tokens", F_MAX, 0 },
	{ "response.max_response_output_tokens", F_MAX, 0 },
};

/* inference.ModelInferRequest (KServe's grpc_predict_v2.proto). */
static const struct tks_pfield infer_fields[] = {
	{ { 1 }, F_MODEL, 0 },
	{ { 3 }, F_KEY, 0 },
};

static void on_value(void *ctx, const struct tks_jvalue *v)
{
	struct tks_asks *s = ctx;

	if (v->id == F_TYPE && v->str)
		tks_jvalue_copy(v, s->type, sizeof(s->type));
	else if (v->id == F_MODEL && v->str)
		tks_jvalue_copy(v, s->model, sizeof(s->model));
	else if (v->id == F_MAX)
		s->max_tokens = tks_jvalue_count(v);
}

static void copy(char *out, size_t size, const struct tks_pvalue *v)
{
	size_t n = v->len < size - 1 ? v->len : size - 1;

	memcpy(out, v->str, n);
	out[n] = 0;
}

static void on_pvalue(void *ctx, const struct tks_pvalue *v)
{
	struct tks_asks *s = ctx;

	if (v->type != TKS_PS_BYTES)
		return;
	if (v->id == F_MODEL)
		copy(s->model, sizeof(s->model), v);
	else
		copy(s->key, sizeof(s->key), v);
}

static void message_begin(struct tks_asks *s, uint64_t off)
{
	s->begun = true;
	s->bad = false;
	s->begun_ns = tks_exchange_time(s->stream->conn, TKS_REQUEST, off);
	s->type[0] = s->key[0] = s->model[0] = 0;
	s->max_tokens = TKS_NULL;
	if (s->scan)
		tks_jscan_reset(s->scan);
	else
		tks_pscan_begin(&s->pscan, infer_fields,
				sizeof(infer_fields) / sizeof(infer_fields[0]), on_pvalue, s);
}

static void on_data(void *ctx, const struct tks_slice *in)
{
	struct tks_asks *s = ctx;

	if (!s->begun)
		message_begin(s, in->off);
	if (!s->scan)
		tks_pscan_feed(&s->pscan, in->data, in->len);
	else if (!s->bad)
		s->bad = tks_jscan_feed(s->scan, in->data, in->len, NULL) == TKS_JS_BAD;
}

static void on_ws_message(void *ctx, const struct tks_ws_message *m)
{
	struct tks_asks *s = ctx;
	bool create = s->begun && !m->broken && m->text && !strcmp(s->type, "response.create");

	s->begun = false;
	if (create)
		asked(s, m->first_off, m->last_off);
}

/* The client wants no more of what is under way; what the server sent until it heard of that is
 * still to come, and may be waited for. */
static void on_ws_close(void *ctx, uint16_t code, uint64_t last_off)
{
	struct tks_asks *s = ctx;

	(void)code;
	(void)last_off;
	s->closed = true;
}

bool tks_answers_closed(const struct tks_exchange *e)
{
	return e->asks && e->asks->closed;
}

static void on_grpc_message(void *ctx, const struct tks_grpc_message *m)
{
	struct tks_asks *s = ctx;

	if (!s->begun)
		message_begin(s, m->first_off);
	s->begun = false;
	asked(s, m->first_off, m->last_off);
}

static const struct tks_ws_ops ws_ops = {
	.data = on_data,
	.message = on_ws_message,
	.close = on_ws_close,
};

static const struct tks_grpc_ops grpc_ops = { .data = on_data, .message = on_grpc_message };

/* --- the stream --- */

static int start_ws(struct tks_asks *s, struct tks_mem *mem, const struct tks_http_head *h)
{
	static struct tks_jschema *schema; /* made once, kept for good */

	if (!schema)
		schema = tks_jschema_new(create_fields,
					 sizeof(create_fields) / sizeof(create_fields[0]));
	s->scan = schema ? tks_mem_alloc(mem, tks_jscan_size()) : NULL;
	if (!s->scan)
		return -ENOMEM;
	tks_jscan_init(s->scan, schema, on_value, s);
	s->ws = tks_ws_new(mem, TKS_REQUEST, h->ws_extensions, &ws_ops, s);
	if (s->ws && h->resumed)
		tks_ws_gap(s->ws, 0, 0);
	return s->ws ? 0 : -ENOMEM;
}

int tks_answers_start(struct tks_exchange *e, const struct tks_http_head *h)
{
	struct tks_mem *mem = e->conn->pipeline->mem;
	bool ws = h->upgrade && strstr(h->upgrade_to, "websocket");
	const struct tks_dialect *dialect = tks_dialect_of_method(e->target);

	if (e->asks || !(ws || (h->side == TKS_REQUEST && dialect && dialect->shared)))
		return 0;
	e->asks = tks_mem_alloc(mem, sizeof(*e->asks));
	if (!e->asks)
		return -ENOMEM;
	e->asks->stream = e;
	if (ws) {
		if (!start_ws(e->asks, mem, h))
			return 0;
		tks_answers_free(e);
		return -ENOMEM;
	}
	e->asks->dialect = dialect;
	tks_grpc_init(&e->asks->grpc, mem, h->grpc_encoding, &grpc_ops, e->asks);
	return 0;
}

void tks_answers_free(struct tks_exchange *e)
{
	struct tks_mem *mem = e->conn->pipeline->mem;
	struct tks_asks *s = e->asks;

	if (!s)
		return;
	if (s->dialect)
		tks_grpc_free(&s->grpc);
	tks_ws_free(s->ws);
	tks_mem_free(mem, s->scan, tks_jscan_size());
	tks_mem_free(mem, s, sizeof(*s));
	e->asks = NULL;
}

void tks_answers_gone(struct tks_exchange *e)
{
	if (e->asks)
		e->asks->open--;
}

void tks_answers_asked(struct tks_exchange *e, const struct tks_slice *s)
{
	if (e->asks->dialect)
		tks_grpc_feed(&e->asks->grpc, s);
	else
		tks_ws_feed(e->asks->ws, s);
}

void tks_answers_asked_gap(struct tks_exchange *e, uint64_t off, uint64_t len)
{
	e->asks->begun = false;
	if (e->asks->dialect)
		tks_grpc_gap(&e->asks->grpc, len);
	else
		tks_ws_gap(e->asks->ws, off, len);
}

/* --- answers --- */

/* An answer that nobody was seen to ask for. */
static struct tks_reqstate *unasked(struct tks_exchange *e, const char *key)
{
	struct tks_exchange *a = answer_new(e, key);

	if (!a)
		return NULL;
	a->rec->flags |= e->rec->flags & (TKS_F_MID_STREAM | TKS_F_LOST);
	return a->rs;
}

struct tks_reqstate *tks_answers_find(struct tks_exchange *e, const char *key)
{
	struct tks_exchange *a, *unnamed = NULL;
	struct tks_list *l;

	if (!e->asks || (key[0] && !strcmp(key, e->asks->last_over)))
		return NULL;
	for (l = e->answers.next; l != &e->answers; l = l->next) {
		a = tks_list_entry(l, struct tks_exchange, in_conn);
		if (a->name_lost)
			continue;
		if (!key[0] || !strncmp(a->key, key, sizeof(a->key) - 1))
			return a->rs;
		if (!a->key[0] && !unnamed)
			unnamed = a;
	}
	if (!unnamed)
		return unasked(e, key);
	strncpy(unnamed->key, key, sizeof(unnamed->key) - 1);
	return unnamed->rs;
}

void tks_answers_hole(struct tks_exchange *e)
{
	struct tks_list *l;

	for (l = e->answers.next; l != &e->answers; l = l->next) {
		struct tks_exchange *a = tks_list_entry(l, struct tks_exchange, in_conn);

		a->rec->flags |= TKS_F_LOST;
		a->name_lost = !a->key[0];
		tks_reqstate_hole(a->rs);
	}
}

void tks_answers_over(struct tks_exchange *e, struct tks_reqstate *rs, uint64_t last_off)
{
	struct tks_list *l;

	for (l = e->answers.next; l != &e->answers; l = l->next) {
		struct tks_exchange *a = tks_list_entry(l, struct tks_exchange, in_conn);

		if (a->rs != rs)
			continue;
		memcpy(e->asks->last_over, a->key, sizeof(a->key));
		a->rec->t_end_ns = tks_exchange_time(e->conn, TKS_RESPONSE, last_off);
		tks_exchange_end(a, TKS_OUT_COMPLETE);
		return;
	}
}

void tks_answers_end_all(struct tks_exchange *e, enum tks_outcome how)
{
	while (!tks_list_empty(&e->answers)) {
		struct tks_exchange *a =
			tks_list_entry(e->answers.next, struct tks_exchange, in_conn);

		/* More of it may have been in what is missing. */
		if (a->rec->flags & TKS_F_LOST)
			a->rec->t_end_ns = TKS_NULL;
		tks_exchange_end(a, how);
	}
}
