// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Anthropic Messages, and the /v1/messages of vLLM, llama.cpp, Ollama, Dynamo and LMDeploy. Only
 * deltas with text are token frames; signatures and citations are not. usage.output_tokens is
 * cumulative and comes with message_delta (Dynamo: with each delta too).
 */
#include <string.h>

#include "dialect.h"

enum field { F_TYPE = TKS_SAID_OWN, F_BLOCK };

static const struct tks_jfield fields[] = {
	{ "type", F_TYPE, TKS_JF_KEEP },
	{ "id", TKS_SAID_ID, TKS_JF_KEEP },
	{ "model", TKS_SAID_MODEL, TKS_JF_KEEP },
	{ "message.id", TKS_SAID_ID, TKS_JF_KEEP },
	{ "message.model", TKS_SAID_MODEL, TKS_JF_KEEP },
	{ "message.usage.input_tokens", TKS_SAID_IN, 0 },
	{ "message.usage.cache_read_input_tokens", TKS_SAID_CACHED, 0 },
	{ "content_block.type", F_BLOCK, TKS_JF_KEEP },
	{ "delta.text", TKS_SAID_TEXT, 0 },
	{ "delta.partial_json", TKS_SAID_TEXT, 0 },
	{ "delta.thinking", TKS_SAID_REASONING, 0 },
	{ "delta.stop_reason", TKS_SAID_FINISH, TKS_JF_KEEP },
	{ "stop_reason", TKS_SAID_FINISH, TKS_JF_KEEP },
	{ "usage.output_tokens", TKS_SAID_OUT, 0 },
	{ "usage.input_tokens", TKS_SAID_IN, 0 },
	{ "usage.cache_read_input_tokens", TKS_SAID_CACHED, 0 },
	{ "error", TKS_SAID_ERROR, 0 },
	{ "error.type", TKS_SAID_ERROR_KIND, TKS_JF_KEEP },
	{ "error.code", TKS_SAID_ERROR_CODE, TKS_JF_KEEP },
};

struct anthropic {
	struct tks_said said;
	char type[32], block[48];
};

_Static_assert(sizeof(struct anthropic) <= TKS_DIALECT_STATE, "the dialect's state fits");

static struct anthropic *state(struct tks_dialect_ctx *d)
{
	return (struct anthropic *)d->state;
}

static void begin(struct tks_dialect_ctx *d)
{
	tks_said_begin(&state(d)->said);
	state(d)->type[0] = state(d)->block[0] = 0;
}

static void value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	struct anthropic *a = state(d);

	if (v->id == F_TYPE)
		tks_jvalue_text(v, a->type, sizeof(a->type));
	else if (v->id == F_BLOCK)
		tks_jvalue_text(v, a->block, sizeof(a->block));
	else
		tks_said_value(d, &a->said, v);
}

/* What a tool of the server's own has found (web_search_tool_result and its like): it ran until
 * now.
 */
static bool is_tool_result(const char *block)
{
	size_t n = strlen(block), m = strlen("_tool_result");

	return n > m && !strcmp(block + n - m, "_tool_result");
}

static void end(struct tks_dialect_ctx *d, bool ok)
{
	struct anthropic *a = state(d);
	struct tks_said *s = &a->said;

	if (!ok)
		return;
	if (!a->type[0])
		strcpy(a->type, strlen(d->event) < sizeof(a->type) ? d->event : "");
	if (!strcmp(a->type, "content_block_delta")) {
		if (s->usage.output_tokens != TKS_NULL)
			s->choice.counter = s->usage.output_tokens;
	} else {
		s->visible = s->reasoning = false;
	}
	s->is_error |= !strcmp(a->type, "error");
	if (is_tool_result(a->block))
		tks_reqstate_pause(d->rs);
	tks_said_tell(d, s);
	if (!strcmp(a->type, "message_stop"))
		tks_reqstate_done(d->rs);
}

static const char *const stops[] = { "end_turn", "tool_use", NULL };

static const char *const signs[] = {
	"type=message_start message",
	"type=content_block_*",
	"type=message_delta delta",
	"type=message_stop",
	"type=message role content usage.output_tokens",
	NULL,
};

static const char *const paths[] = { "/v1/messages", NULL };

const struct tks_dialect tks_dialect_anthropic = {
	.name = "anthropic.messages",
	.stops = stops,
	.signs = signs,
	.paths = paths,
	.fields = fields,
	.nfields = sizeof(fields) / sizeof(fields[0]),
	.begin = begin,
	.value = value,
	.end = end,
};
