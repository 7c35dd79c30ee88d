// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Amazon Bedrock. ConverseStream has events of its own (botocore's bedrock-runtime/service-2.json);
 * InvokeModelWithResponseStream wraps the vendor's JSON: Anthropic's, Llama's, Titan's, Nova's,
 * Mistral's, Cohere's or OpenAI's members, and in the last one Bedrock's own counts.
 */
#include <string.h>

#include "dialect.h"

enum field { F_COUNTER = TKS_SAID_OWN };

static const struct tks_jfield converse_fields[] = {
	{ "delta.text", TKS_SAID_TEXT, 0 },
	{ "delta.toolUse.input", TKS_SAID_TEXT, 0 },
	{ "delta.reasoningContent.text", TKS_SAID_REASONING, 0 },
	{ "stopReason", TKS_SAID_FINISH, TKS_JF_KEEP },
	{ "usage.outputTokens", TKS_SAID_OUT, 0 },
	{ "usage.inputTokens", TKS_SAID_IN, 0 },
	{ "usage.cacheReadInputTokens", TKS_SAID_CACHED, 0 },
};

static const struct tks_jfield invoke_fields[] = {
	{ "amazon-bedrock-invocationMetrics.outputTokenCount", TKS_SAID_OUT, 0 },
	{ "amazon-bedrock-invocationMetrics.inputTokenCount", TKS_SAID_IN, 0 },
	{ "amazon-bedrock-invocationMetrics.cacheReadInputTokenCount", TKS_SAID_CACHED, 0 },
	/* Anthropic */
	{ "message.id", TKS_SAID_ID, TKS_JF_KEEP },
	{ "message.model", TKS_SAID_MODEL, TKS_JF_KEEP },
	{ "delta.text", TKS_SAID_TEXT, 0 },
	{ "delta.partial_json", TKS_SAID_TEXT, 0 },
	{ "delta.thinking", TKS_SAID_REASONING, 0 },
	{ "delta.stop_reason", TKS_SAID_FINISH, TKS_JF_KEEP },
	{ "usage.output_tokens", TKS_SAID_OUT, 0 },
	{ "completion", TKS_SAID_TEXT, 0 },
	{ "stop_reason", TKS_SAID_FINISH, TKS_JF_KEEP },
	/* Llama: both counts in every chunk */
	{ "generation", TKS_SAID_TEXT, 0 },
	{ "generation_token_count", F_COUNTER, 0 },
	/* Titan */
	{ "outputText", TKS_SAID_TEXT, 0 },
	{ "totalOutputTextTokenCount", F_COUNTER, 0 },
	{ "completionReason", TKS_SAID_FINISH, TKS_JF_KEEP },
	/* Nova */
	{ "contentBlockDelta.delta.text", TKS_SAID_TEXT, 0 },
	{ "contentBlockDelta.delta.toolUse.input", TKS_SAID_TEXT, 0 },
	{ "messageStop.stopReason", TKS_SAID_FINISH, TKS_JF_KEEP },
	/* Mistral */
	{ "outputs[].text", TKS_SAID_TEXT, 0 },
	{ "outputs[].stop_reason", TKS_SAID_FINISH, TKS_JF_KEEP },
	/* Cohere */
	{ "text", TKS_SAID_TEXT, 0 },
	{ "finish_reason", TKS_SAID_FINISH, TKS_JF_KEEP },
	/* OpenAI */
	{ "choices[].delta.content", TKS_SAID_TEXT, 0 },
	{ "choices[].delta.reasoning", TKS_SAID_REASONING, 0 },
	{ "choices[].finish_reason", TKS_SAID_FINISH, TKS_JF_KEEP },
};

struct bedrock {
	bool counting; /* counters have come in a chunk that is not the last */

	struct tks_said said;
	int64_t counter;
};

_Static_assert(sizeof(struct bedrock) <= TKS_DIALECT_STATE, "the dialect's state fits");

static struct bedrock *state(struct tks_dialect_ctx *d)
{
	return (struct bedrock *)d->state;
}

static void begin(struct tks_dialect_ctx *d)
{
	tks_said_begin(&state(d)->said);
	state(d)->counter = TKS_NULL;
}

static void value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	if (v->id == F_COUNTER)
		state(d)->counter = tks_jvalue_count(v);
	else
		tks_said_value(d, &state(d)->said, v);
}

static void end(struct tks_dialect_ctx *d, bool ok)
{
	struct bedrock *b = state(d);
	struct tks_said *s = &b->said;

	if (!ok)
		return;
	if (b->counter != TKS_NULL) {
		b->counting |= !s->choice.finish[0];
		if (b->counting)
			s->choice.counter = b->counter;
		else if (s->usage.output_tokens == TKS_NULL)
			s->usage.output_tokens = b->counter;
	}
	tks_said_tell(d, s);
	/* The last message of either kind. */
	if (!strcmp(d->event, "metadata") || s->choice.finish[0])
		tks_reqstate_done(d->rs);
}

static const char *const stops[] = { "end_turn", "tool_use",  "stop", "tool_calls",
				     "COMPLETE", "TOOL_CALL", NULL };

static const char *const converse_signs[] = {
	"@aws @event=message*",
	"@aws @event=contentBlock*",
	"@aws @event=metadata",
	"output.message stopReason usage.outputTokens",
	NULL,
};

static const char *const converse_paths[] = { "/converse-stream", "/converse", NULL };

const struct tks_dialect tks_dialect_bedrock_converse = {
	.name = "bedrock.converse",
	.stops = stops,
	.signs = converse_signs,
	.paths = converse_paths,
	.fields = converse_fields,
	.nfields = sizeof(converse_fields) / sizeof(converse_fields[0]),
	.begin = begin,
	.value = value,
	.end = end,
};

static const char *const invoke_signs[] = { "@aws @event=chunk", NULL };

static const char *const invoke_paths[] = { "/invoke-with-response-stream", NULL };

const struct tks_dialect tks_dialect_bedrock_invoke = {
	.name = "bedrock.invoke",
	.stops = stops,
	.signs = invoke_signs,
	.paths = invoke_paths,
	.fields = invoke_fields,
	.nfields = sizeof(invoke_fields) / sizeof(invoke_fields[0]),
	.begin = begin,
	.value = value,
	.end = end,
};
