// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Cohere's chat: v2 sends typed events, v1 lines. Counts are floats; what was billed is told too,
 * and is not what was generated. v1's last line repeats the text inside `response`.
 */
#include <string.h>

#include "dialect.h"

enum field { F_EVENT = TKS_SAID_OWN, F_TEXT, F_PLAN };

static const struct tks_jfield v2_fields[] = {
	{ "id", TKS_SAID_ID, TKS_JF_KEEP },
	{ "delta.message.content.text", TKS_SAID_TEXT, 0 },
	{ "delta.message.content.thinking", TKS_SAID_REASONING, 0 },
	{ "delta.message.tool_plan", TKS_SAID_REASONING, 0 },
	{ "delta.message.tool_calls.function.name", TKS_SAID_TEXT, 0 },
	{ "delta.message.tool_calls.function.arguments", TKS_SAID_TEXT, 0 },
	{ "delta.finish_reason", TKS_SAID_FINISH, TKS_JF_KEEP },
	{ "delta.usage.tokens.output_tokens", TKS_SAID_OUT, 0 },
	{ "delta.usage.tokens.input_tokens", TKS_SAID_IN, 0 },
	{ "delta.usage.cached_tokens", TKS_SAID_CACHED, 0 },
	{ "delta.error", TKS_SAID_ERROR, 0 },
	{ "finish_reason", TKS_SAID_FINISH, TKS_JF_KEEP },
	{ "usage.tokens.output_tokens", TKS_SAID_OUT, 0 },
	{ "usage.tokens.input_tokens", TKS_SAID_IN, 0 },
	{ "usage.cached_tokens", TKS_SAID_CACHED, 0 },
};

static const struct tks_jfield v1_fields[] = {
	{ "event_type", F_EVENT, TKS_JF_KEEP },
	{ "generation_id", TKS_SAID_ID, TKS_JF_KEEP },
	{ "response.generation_id", TKS_SAID_ID, TKS_JF_KEEP },
	{ "text", F_TEXT, 0 },
	{ "tool_call_delta.text", F_PLAN, 0 },
	{ "tool_call_delta.name", F_TEXT, 0 },
	{ "tool_call_delta.parameters", F_TEXT, 0 },
	{ "finish_reason", TKS_SAID_FINISH, TKS_JF_KEEP },
	{ "response.meta.tokens.output_tokens", TKS_SAID_OUT, 0 },
	{ "response.meta.tokens.input_tokens", TKS_SAID_IN, 0 },
	{ "meta.tokens.output_tokens", TKS_SAID_OUT, 0 },
	{ "meta.tokens.input_tokens", TKS_SAID_IN, 0 },
};

struct cohere {
	struct tks_said said;
	bool text, plan;
	char event[32];
};

_Static_assert(sizeof(struct cohere) <= TKS_DIALECT_STATE, "the dialect's state fits");

static struct cohere *state(struct tks_dialect_ctx *d)
{
	return (struct cohere *)d->state;
}

static void begin(struct tks_dialect_ctx *d)
{
	tks_said_begin(&state(d)->said);
	state(d)->text = state(d)->plan = false;
	state(d)->event[0] = 0;
}

static void value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	struct cohere *c = state(d);

	switch (v->id) {
	case F_EVENT:
		tks_jvalue_text(v, c->event, sizeof(c->event));
		break;
	case F_TEXT:
		c->text |= v->type == TKS_JS_STRING && v->bytes;
		break;
	case F_PLAN:
		c->plan |= v->type == TKS_JS_STRING && v->bytes;
		break;
	default:
		tks_said_value(d, &c->said, v);
	}
}

/* Ends that are none of a generation. */
static bool is_failure(const char *finish)
{
	return !strncmp(finish, "ERROR", 5) || !strcmp(finish, "TIMEOUT");
}

static void end(struct tks_dialect_ctx *d, bool ok)
{
	struct cohere *c = state(d);
	struct tks_said *s = &c->said;

	if (!ok)
		return;
	/* v1 has other events with texts in them. */
	if (!strcmp(c->event, "text-generation") || !strcmp(c->event, "tool-calls-chunk")) {
		s->visible |= c->text;
		s->reasoning |= c->plan;
	}
	if (is_failure(s->choice.finish)) {
		s->is_error = true;
		strcpy(s->error_kind, s->choice.finish);
	}
	if (s->choice.finish[0])
		tks_reqstate_done(d->rs);
	tks_said_tell(d, s);
}

static const char *const stops[] = { "COMPLETE", "TOOL_CALL", NULL };

static const char *const v2_signs[] = {
	"type=message-start",
	"type=content-start",
	"type=content-delta",
	"type=content-end",
	"type=tool-plan-delta",
	"type=tool-call-*",
	"type=citation-*",
	"type=message-end",
	"message.role usage.tokens.output_tokens",
	NULL,
};

static const char *const v2_paths[] = { "/v2/chat", NULL };

const struct tks_dialect tks_dialect_cohere_v2 = {
	.name = "cohere.v2",
	.stops = stops,
	.signs = v2_signs,
	.paths = v2_paths,
	.fields = v2_fields,
	.nfields = sizeof(v2_fields) / sizeof(v2_fields[0]),
	.begin = begin,
	.value = value,
	.end = end,
};

static const char *const v1_signs[] = {
	"is_finished event_type",
	"generation_id text",
	NULL,
};

static const char *const v1_paths[] = { "/v1/chat", NULL };

const struct tks_dialect tks_dialect_cohere_v1 = {
	.name = "cohere.v1",
	.stops = stops,
	.signs = v1_signs,
	.paths = v1_paths,
	.fields = v1_fields,
	.nfields = sizeof(v1_fields) / sizeof(v1_fields[0]),
	.begin = begin,
	.value = value,
	.end = end,
};
