// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What a request asked for: the few members of its JSON body, or fields of its gRPC message, that
 * the figures need. The prompt itself is stepped over; nothing of it is kept.
 */
#include <errno.h>
#include <string.h>

#include "codec.h"
#include "decoder.h"
#include "dialect.h"
#include "grpc.h"
#include "jscan.h"
#include "pscan.h"

enum field {
	F_BODY = 1,
	F_MODEL,
	F_STREAM,
	F_N,
	F_MAX_TOKENS,
	F_ECHO,
	F_PROMPT,
	F_PROMPT_ELEM,
	F_USAGE,
	F_CONTINUOUS,
	F_OTHER,
};

static const struct tks_jfield fields[] = {
	{ "", F_BODY, 0 },
	{ "model", F_MODEL, TKS_JF_KEEP },
	{ "stream", F_STREAM, TKS_JF_KEEP },
	{ "n", F_N, 0 },
	{ "n_cmpl", F_N, 0 },
	{ "sampling_params.n", F_N, 0 },
	{ "generationConfig.candidateCount", F_N, 0 },
	{ "max_tokens", F_MAX_TOKENS, 0 },
	{ "max_completion_tokens", F_MAX_TOKENS, 0 },
	{ "max_output_tokens", F_MAX_TOKENS, 0 },
	{ "n_predict", F_MAX_TOKENS, 0 },
	{ "options.num_predict", F_MAX_TOKENS, 0 },
	{ "parameters.max_new_tokens", F_MAX_TOKENS, 0 },
	{ "sampling_params.max_new_tokens", F_MAX_TOKENS, 0 },
	{ "generationConfig.maxOutputTokens", F_MAX_TOKENS, 0 },
	{ "inferenceConfig.maxTokens", F_MAX_TOKENS, 0 },
	{ "echo", F_ECHO, 0 },
	{ "prompt", F_PROMPT, 0 },
	{ "prompt[]", F_PROMPT_ELEM, 0 },
	{ "stream_options.include_usage", F_USAGE, 0 },
	{ "stream_options.continuous_usage_stats", F_CONTINUOUS, 0 },
	/* Only that they are there: what is asked for is a model's. */
	{ "messages", F_OTHER, 0 },
	{ "message", F_OTHER, 0 },
	{ "input", F_OTHER, 0 },
	{ "inputs", F_OTHER, 0 },
	{ "inputText", F_OTHER, 0 },
	{ "input_ids", F_OTHER, 0 },
	{ "input_prefix", F_OTHER, 0 },
	{ "text", F_OTHER, 0 },
	{ "text_input", F_OTHER, 0 },
	{ "contents", F_OTHER, 0 },
	{ "inferenceConfig", F_OTHER, 0 },
	{ "promptVariables", F_OTHER, 0 },
};

struct tks_askscan {
	struct tks_mem *mem;
	struct tks_ask *ask;
	struct tks_jscan *scan;
	struct tks_codec *codec; /* NULL: the body is not coded */
	const struct tks_dialect *rpc; /* the body is a message of this one's method */
	struct tks_grpc grpc;
	struct tks_pscan pscan;
	bool in_message;
	bool texts; /* the prompt's elements are prompts, not the ids of one */
	bool over; /* ended, not JSON, or bytes are missing */
};

void tks_ask_init(struct tks_ask *a)
{
	memset(a, 0, sizeof(*a));
	a->stream = a->n = a->max_tokens = TKS_NULL;
	a->prompts = 1;
}

static int64_t truth(const struct tks_jvalue *v)
{
	if (v->type == TKS_JS_TRUE || (v->str && v->len == 4 && !memcmp(v->str, "true", 4)))
		return 1;
	if (v->type == TKS_JS_FALSE || (v->str && v->len == 5 && !memcmp(v->str, "false", 5)))
		return 0;
	return TKS_NULL;
}

static int64_t number(const struct tks_jvalue *v)
{
	return v->type == TKS_JS_NUMBER && v->inum >= 0 ? v->inum : TKS_NULL;
}

static void on_value(void *ctx, const struct tks_jvalue *v)
{
	struct tks_askscan *s = ctx;
	struct tks_ask *a = s->ask;

	a->of_model |= v->id != F_BODY;
	switch (v->id) {
	case F_BODY:
		a->is_json = v->type == TKS_JS_OBJECT;
		a->empty = !v->count;
		break;
	case F_MODEL:
		if (v->str)
			tks_jvalue_copy(v, a->model, sizeof(a->model));
		break;
	case F_STREAM:
		a->stream = truth(v);
		break;
	case F_N:
		a->n = number(v);
		break;
	case F_MAX_TOKENS:
		a->max_tokens = number(v);
		break;
	case F_ECHO:
		a->echo = v->type == TKS_JS_TRUE;
		break;
	case F_PROMPT_ELEM:
		s->texts = v->type == TKS_JS_STRING || v->type == TKS_JS_ARRAY;
		break;
	case F_PROMPT:
		if (v->type == TKS_JS_ARRAY && s->texts && v->count <= INT32_MAX)
			a->prompts = (int64_t)v->count;
		break;
	case F_USAGE:
		a->include_usage = v->type == TKS_JS_TRUE;
		break;
	case F_CONTINUOUS:
		a->continuous_usage = v->type == TKS_JS_TRUE;
		break;
	}
}

/* --- gRPC --- */

static void on_pvalue(void *ctx, const struct tks_pvalue *v)
{
	struct tks_askscan *s = ctx;

	if (v->type != TKS_PS_INT || v->num > UINT32_MAX)
		return;
	if (v->id == TKS_ASK_MAX_TOKENS)
		s->ask->max_tokens = (int64_t)v->num;
	else
		s->ask->n = (int64_t)v->num;
}

static void on_message_data(void *ctx, const struct tks_slice *in)
{
	struct tks_askscan *s = ctx;

	if (!s->in_message)
		tks_pscan_begin(&s->pscan, s->rpc->ask_pfields, s->rpc->nask_pfields, on_pvalue, s);
	s->in_message = true;
	tks_pscan_feed(&s->pscan, in->data, in->len);
}

/* Only what a whole message says counts. */
static void on_message(void *ctx, const struct tks_grpc_message *m)
{
	struct tks_askscan *s = ctx;

	if (m->broken || (s->in_message && !tks_pscan_end(&s->pscan)))
		s->ask->max_tokens = s->ask->n = TKS_NULL;
	s->in_message = false;
}

static const struct tks_grpc_ops grpc_ops = { on_message_data, on_message };

/* --- life --- */

struct tks_askscan *tks_askscan_new(struct tks_mem *mem, struct tks_ask *ask,
				    const struct tks_http_head *head)
{
	enum tks_coding coding = tks_coding_named(head->content_encoding);
	static struct tks_jschema *schema; /* made once, kept for good */
	struct tks_askscan *s = tks_mem_alloc(mem, sizeof(*s));

	if (!s)
		return NULL;
	s->mem = mem;
	s->ask = ask;
	s->rpc = tks_dialect_of_method(head->target);
	if (s->rpc) {
		tks_grpc_init(&s->grpc, s->mem, head->grpc_encoding, &grpc_ops, s);
		return s;
	}
	if (!schema)
		schema = tks_jschema_new(fields, sizeof(fields) / sizeof(fields[0]));
	s->scan = schema ? tks_mem_alloc(mem, tks_jscan_size()) : NULL;
	if (!s->scan) {
		tks_askscan_free(s);
		return NULL;
	}
	tks_jscan_init(s->scan, schema, on_value, s);
	if (coding == TKS_CODING_OTHER)
		tks_askscan_gap(s);
	if (coding == TKS_CODING_IDENTITY || coding == TKS_CODING_OTHER)
		return s;
	s->codec = tks_codec_new(mem, coding);
	if (!s->codec) {
		tks_askscan_free(s);
		return NULL;
	}
	return s;
}

void tks_askscan_free(struct tks_askscan *s)
{
	if (!s)
		return;
	if (s->rpc)
		tks_grpc_free(&s->grpc);
	tks_codec_free(s->codec);
	tks_mem_free(s->mem, s->scan, tks_jscan_size());
	tks_mem_free(s->mem, s, sizeof(*s));
}

static int on_text(void *ctx, const uint8_t *data, size_t len)
{
	struct tks_askscan *s = ctx;

	if (!s->over && tks_jscan_feed(s->scan, data, len, NULL) == TKS_JS_BAD)
		s->over = true;
	return s->over ? -ECANCELED : 0;
}

void tks_askscan_data(struct tks_askscan *s, const uint8_t *data, size_t len)
{
	int err;

	if (s->over)
		return;
	if (s->rpc) {
		const struct tks_slice in = { data, len, 0 };

		s->over = s->rpc->nask_pfields == 0 || tks_grpc_feed(&s->grpc, &in) != 0;
		return;
	}
	err = s->codec ? tks_codec_feed(s->codec, data, len, on_text, s) : on_text(s, data, len);
	if (err && err != -ECANCELED)
		tks_askscan_gap(s);
}

void tks_askscan_gap(struct tks_askscan *s)
{
	s->over = true;
	s->ask->truncated = true;
}

void tks_askscan_end(struct tks_askscan *s)
{
	if (s->rpc) {
		/* A message that is not whole says nothing. */
		if (s->in_message)
			s->ask->max_tokens = s->ask->n = TKS_NULL;
		return;
	}
	if (!s->over && tks_jscan_end(s->scan) == TKS_JS_BAD)
		s->ask->is_json = false;
	s->over = true;
}
