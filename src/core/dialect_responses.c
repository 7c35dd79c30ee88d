// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * OpenAI Responses, as OpenAI, vLLM, SGLang, llama.cpp and Ollama speak it. Only events whose type
 * ends in .delta bring something new: the .done events and the last one repeat it. A GET sends old
 * events again, in which nothing is generated.
 */
#include <string.h>

#include "dialect.h"

enum field { F_TYPE = TKS_SAID_OWN, F_DELTA, F_STATUS, F_REASON };

/* clang-format off */
#define OF_RESPONSE(at)                                                                            \
	{ at "id", TKS_SAID_ID, TKS_JF_KEEP },                                                     \
	{ at "model", TKS_SAID_MODEL, TKS_JF_KEEP },                                               \
	{ at "status", F_STATUS, TKS_JF_KEEP },                                                    \
	{ at "incomplete_details.reason", F_REASON, TKS_JF_KEEP },                                 \
	{ at "usage.output_tokens", TKS_SAID_OUT, 0 },                                             \
	{ at "usage.input_tokens", TKS_SAID_IN, 0 },                                               \
	{ at "usage.input_tokens_details.cached_tokens", TKS_SAID_CACHED, 0 },                     \
	{ at "usage.output_tokens_details.reasoning_tokens", TKS_SAID_REASONED, 0 },               \
	{ at "error", TKS_SAID_ERROR, 0 },                                                         \
	{ at "error.type", TKS_SAID_ERROR_KIND, TKS_JF_KEEP },                                     \
	{ at "error.code", TKS_SAID_ERROR_CODE, TKS_JF_KEEP }
/* clang-format on */

static const struct tks_jfield fields[] = {
	{ "type", F_TYPE, TKS_JF_KEEP }, { "delta", F_DELTA, 0 },
	{ "logprobs", TKS_SAID_IDS, 0 }, { "code", TKS_SAID_ERROR_CODE, TKS_JF_KEEP },
	OF_RESPONSE("response."),	 OF_RESPONSE(""),
};

struct responses {
	struct tks_said said;
	bool delta;
	char type[64], status[24], reason[32];
};

_Static_assert(sizeof(struct responses) <= TKS_DIALECT_STATE, "the dialect's state fits");

static struct responses *state(struct tks_dialect_ctx *d)
{
	return (struct responses *)d->state;
}

static void begin(struct tks_dialect_ctx *d)
{
	struct responses *r = state(d);

	tks_said_begin(&r->said);
	r->delta = false;
	r->type[0] = r->status[0] = r->reason[0] = 0;
}

static void value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	struct responses *r = state(d);

	switch (v->id) {
	case F_TYPE:
		tks_jvalue_text(v, r->type, sizeof(r->type));
		break;
	case F_DELTA:
		r->delta = v->type == TKS_JS_STRING && v->bytes;
		break;
	case F_STATUS:
		tks_jvalue_text(v, r->status, sizeof(r->status));
		break;
	case F_REASON:
		tks_jvalue_text(v, r->reason, sizeof(r->reason));
		break;
	default:
		tks_said_value(d, &r->said, v);
	}
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* Audio and pictures are no tokens of text. */
static bool is_token_delta(const char *type)
{
	return ends_with(type, ".delta") && !strstr(type, "audio") && !strstr(type, "image");
}

static void finish(struct responses *r)
{
	struct tks_choice_facts *c = &r->said.choice;

	if (!strcmp(r->status, "in_progress") || !strcmp(r->status, "queued"))
		return;
	strcpy(c->finish, r->reason[0] ? r->reason : r->status);
}

static void end(struct tks_dialect_ctx *d, bool ok)
{
	struct responses *r = state(d);
	struct tks_said *s = &r->said;

	d->not_generated = d->get;
	if (!ok)
		return;
	if (is_token_delta(r->type)) {
		s->reasoning = r->delta && strstr(r->type, "reasoning");
		s->visible = r->delta && !s->reasoning;
	} else {
		s->choice.tokens = -1;
	}
	/* A tool of the server's own is at work. */
	if (strstr(r->type, "_call."))
		tks_reqstate_pause(d->rs);
	finish(r);
	s->is_error |= !strcmp(r->type, "error") || !strcmp(r->status, "failed");
	if (s->is_error)
		s->choice.finish[0] = 0;
	tks_said_tell(d, s);
	if (s->choice.finish[0])
		tks_reqstate_done(d->rs);
}

static const char *const signs[] = {
	"type=response.*",
	"type=error sequence_number",
	"object=response status output",
	NULL,
};

static const char *const paths[] = { "/v1/responses", "/responses", NULL };

const struct tks_dialect tks_dialect_responses = {
	.name = "openai.responses",
	.signs = signs,
	.paths = paths,
	.fields = fields,
	.nfields = sizeof(fields) / sizeof(fields[0]),
	.begin = begin,
	.value = value,
	.end = end,
};
