// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Triton's generate and generate_stream (extension_generate.md), and ModelStreamInfer over gRPC
 * (KServe's grpc_predict_v2.proto). Frames hold the model's tensors; nothing counts tokens. Over
 * gRPC many requests share a stream and are known by their ids; a parameter says that a response is
 * the last one, and that one may be empty.
 */
#include <string.h>

#include "dialect.h"

/* --- HTTP --- */

enum field { F_OUTPUT = TKS_SAID_OWN };

static const struct tks_jfield fields[] = {
	{ "id", TKS_SAID_ID, TKS_JF_KEEP },
	{ "model_name", TKS_SAID_MODEL, TKS_JF_KEEP },
	{ "text_output", F_OUTPUT, 0 },
	{ "error", TKS_SAID_ERROR, 0 },
};

struct triton {
	struct tks_said said;
};

_Static_assert(sizeof(struct triton) <= TKS_DIALECT_STATE, "the dialect's state fits");

static struct tks_said *said(struct tks_dialect_ctx *d)
{
	return &((struct triton *)d->state)->said;
}

static void begin(struct tks_dialect_ctx *d)
{
	tks_said_begin(said(d));
}

static void value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	/* An empty one stands for a character that is not whole. */
	if (v->id == F_OUTPUT)
		said(d)->choice.token = v->type == TKS_JS_STRING || v->type == TKS_JS_ARRAY;
	else
		tks_said_value(d, said(d), v);
}

static void name_server(struct tks_dialect_ctx *d)
{
	if (!d->rec->server[0] && !d->server_header[0])
		strcpy(d->rec->server, "triton");
}

static void end(struct tks_dialect_ctx *d, bool ok)
{
	if (!ok)
		return;
	name_server(d);
	tks_said_tell(d, said(d));
}

static const char *const signs[] = {
	"model_name text_output",
	"@path text_output",
	"@path model_name model_version",
	NULL,
};

static const char *const paths[] = { "/v2/models/*/generate_stream", "/v2/models/*/generate",
				     NULL };

const struct tks_dialect tks_dialect_triton = {
	.name = "triton.generate_stream",
	.signs = signs,
	.paths = paths,
	.fields = fields,
	.nfields = sizeof(fields) / sizeof(fields[0]),
	.begin = begin,
	.value = value,
	.end = end,
};

/* --- gRPC --- */

enum pfield { P_ERROR = 1, P_MODEL, P_ID, P_PARAMETER, P_PARAMETER_NAME, P_BOOL, P_OUTPUT };

static const struct tks_pfield pfields[] = {
	{ { 1 }, P_ERROR, 0 },	       { { 2, 1 }, P_MODEL, 0 },
	{ { 2, 3 }, P_ID, 0 },	       { { 2, 4 }, P_PARAMETER, 0 },
	{ { 2, 5 }, P_OUTPUT, 0 },     { { 2, 4, 1 }, P_PARAMETER_NAME, 0 },
	{ { 2, 4, 2, 1 }, P_BOOL, 0 },
};

struct triton_grpc {
	bool output, error, final;
	bool parameter, truth; /* the parameter under way is the one that says so; its value */
	char model[96], id[128];
};

_Static_assert(sizeof(struct triton_grpc) <= TKS_DIALECT_STATE, "the dialect's state fits");

static struct triton_grpc *grpc_state(struct tks_dialect_ctx *d)
{
	return (struct triton_grpc *)d->state;
}

static void grpc_begin(struct tks_dialect_ctx *d)
{
	memset(grpc_state(d), 0, sizeof(struct triton_grpc));
}

static bool pvalue_is(const struct tks_pvalue *v, const char *text)
{
	return v->type == TKS_PS_BYTES && v->len == strlen(text) && !memcmp(v->str, text, v->len);
}

static void parameter(struct triton_grpc *t, const struct tks_pvalue *v)
{
	if (v->type == TKS_PS_BEGIN)
		t->parameter = t->truth = false;
	else if (v->type == TKS_PS_END)
		t->final |= t->parameter && t->truth;
}

static void pvalue(struct tks_dialect_ctx *d, const struct tks_pvalue *v)
{
	struct triton_grpc *t = grpc_state(d);

	switch (v->id) {
	case P_ERROR:
		t->error = v->num;
		break;
	case P_MODEL:
		tks_pvalue_copy(v, t->model, sizeof(t->model));
		break;
	case P_ID:
		tks_pvalue_copy(v, t->id, sizeof(t->id));
		break;
	case P_PARAMETER:
		parameter(t, v);
		break;
	case P_PARAMETER_NAME:
		t->parameter = pvalue_is(v, "triton_final_response");
		break;
	case P_BOOL:
		t->truth = v->type == TKS_PS_INT && v->num;
		break;
	default:
		t->output = true;
	}
}

static void grpc_end(struct tks_dialect_ctx *d, bool ok)
{
	struct triton_grpc *t = grpc_state(d);
	struct tks_choice_facts c = { .token = t->output, .tokens = -1, .counter = -1 };

	if (!ok || !tks_dialect_answer(d, t->id))
		return;
	name_server(d);
	if (!d->rec->model[0])
		strcpy(d->rec->model, t->model);
	strcpy(d->rec->response_id, t->id);
	if (t->error)
		tks_reqstate_error(d->rs, "", "");
	else if (t->output)
		tks_reqstate_choice(d->rs, &c);
	if (t->final)
		tks_reqstate_done(d->rs);
	d->answer_over = t->final || t->error;
}

static const char *const methods[] = { "/inference.GRPCInferenceService/ModelStreamInfer", NULL };

const struct tks_dialect tks_dialect_triton_grpc = {
	.name = "triton.grpc",
	.grpc = methods,
	.begin = grpc_begin,
	.end = grpc_end,
	.pfields = pfields,
	.npfields = sizeof(pfields) / sizeof(pfields[0]),
	.pvalue = pvalue,
	.shared = true,
};
