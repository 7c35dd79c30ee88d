// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Gemini's generateContent and streamGenerateContent, as events or as an array. usageMetadata is
 * cumulative; thoughts are counted beside the candidates' tokens. In newer models it comes with
 * every frame and is a counter; where it comes at the end only, it is a total.
 */
#include <string.h>

#include "dialect.h"

enum field {
	F_CANDIDATE = TKS_SAID_OWN,
	F_PART,
	F_TEXT,
	F_THOUGHT,
	F_CALL,
	F_CANDIDATES,
	F_THOUGHTS,
	F_BLOCKED,
};

static const struct tks_jfield fields[] = {
	{ "candidates[]", F_CANDIDATE, TKS_JF_BEGIN },
	{ "candidates[].index", TKS_SAID_INDEX, 0 },
	{ "candidates[].finishReason", TKS_SAID_FINISH, TKS_JF_KEEP },
	{ "candidates[].content.parts[]", F_PART, TKS_JF_BEGIN },
	{ "candidates[].content.parts[].text", F_TEXT, 0 },
	{ "candidates[].content.parts[].thought", F_THOUGHT, 0 },
	{ "candidates[].content.parts[].functionCall", F_CALL, 0 },
	{ "candidates[].content.parts[].executableCode", F_CALL, 0 },
	{ "usageMetadata.promptTokenCount", TKS_SAID_IN, 0 },
	{ "usageMetadata.candidatesTokenCount", F_CANDIDATES, 0 },
	{ "usageMetadata.thoughtsTokenCount", F_THOUGHTS, 0 },
	{ "usageMetadata.cachedContentTokenCount", TKS_SAID_CACHED, 0 },
	{ "modelVersion", TKS_SAID_MODEL, TKS_JF_KEEP },
	{ "responseId", TKS_SAID_ID, TKS_JF_KEEP },
	{ "promptFeedback.blockReason", F_BLOCKED, TKS_JF_KEEP },
	{ "error", TKS_SAID_ERROR, 0 },
	{ "error.status", TKS_SAID_ERROR_KIND, TKS_JF_KEEP },
	{ "error.code", TKS_SAID_ERROR_CODE, TKS_JF_KEEP },
};

/* Of the answer, of the document, of the candidate (that in said too), of the part. */
struct gemini {
	bool counting;

	struct tks_said said;
	int64_t candidates, thoughts;
	uint32_t ncandidates;
	bool any_finish;

	bool text, thought;
};

_Static_assert(sizeof(struct gemini) <= TKS_DIALECT_STATE, "the dialect's state fits");

static struct gemini *state(struct tks_dialect_ctx *d)
{
	return (struct gemini *)d->state;
}

static void begin(struct tks_dialect_ctx *d)
{
	struct gemini *g = state(d);

	tks_said_begin(&g->said);
	g->candidates = g->thoughts = TKS_NULL;
	g->ncandidates = 0;
	g->any_finish = false;
}

static void candidate(struct tks_dialect_ctx *d, enum tks_jtype type)
{
	struct gemini *g = state(d);
	struct tks_choice_facts *c = &g->said.choice;

	if (type == TKS_JS_OBJECT_BEGIN) {
		*c = (struct tks_choice_facts){ .tokens = -1, .counter = -1 };
		g->said.visible = g->said.reasoning = false;
	} else if (type == TKS_JS_OBJECT) {
		g->ncandidates++;
		g->any_finish |= c->finish[0];
		c->token = c->text = d->streamed && (g->said.visible || g->said.reasoning);
		c->reasoning = g->said.reasoning && !g->said.visible;
		tks_reqstate_choice(d->rs, c);
	}
}

static void part(struct gemini *g, enum tks_jtype type)
{
	if (type == TKS_JS_OBJECT_BEGIN) {
		g->text = g->thought = false;
	} else if (type == TKS_JS_OBJECT) {
		g->said.visible |= g->text && !g->thought;
		g->said.reasoning |= g->text && g->thought;
	}
}

static void value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	struct gemini *g = state(d);

	switch (v->id) {
	case F_CANDIDATE:
		candidate(d, v->type);
		break;
	case F_PART:
		part(g, v->type);
		break;
	case F_TEXT:
		g->text |= v->type == TKS_JS_STRING && v->bytes;
		break;
	case F_THOUGHT:
		g->thought = v->type == TKS_JS_TRUE;
		break;
	case F_CALL:
		g->text |= v->type == TKS_JS_OBJECT;
		break;
	case F_CANDIDATES:
		g->candidates = tks_jvalue_count(v);
		break;
	case F_THOUGHTS:
		g->thoughts = tks_jvalue_count(v);
		break;
	case F_BLOCKED:
		g->said.is_error |= v->str && v->len;
		tks_jvalue_text(v, g->said.error_kind, sizeof(g->said.error_kind));
		break;
	default:
		tks_said_value(d, &g->said, v);
	}
}

static void end(struct tks_dialect_ctx *d, bool ok)
{
	struct gemini *g = state(d);
	struct tks_usage *u = &g->said.usage;

	if (!ok)
		return;
	if (g->said.is_error)
		tks_reqstate_error(d->rs, g->said.error_kind, g->said.error_code);
	if (g->candidates != TKS_NULL || g->thoughts != TKS_NULL) {
		u->reasoning_tokens = g->thoughts;
		u->output_tokens = (g->candidates != TKS_NULL ? g->candidates : 0) +
				   (g->thoughts != TKS_NULL ? g->thoughts : 0);
		g->counting |= g->ncandidates && !g->any_finish;
		if (d->streamed && g->counting)
			tks_reqstate_counter(d->rs, u->output_tokens);
		/* More is to come. */
		if (d->streamed && g->ncandidates && !g->any_finish)
			u->output_tokens = TKS_NULL;
	}
	tks_reqstate_usage(d->rs, u);
}

static const char *const stops[] = { "STOP", NULL };

static const char *const signs[] = {
	"candidates[].content.parts", "candidates[].finishReason", "usageMetadata modelVersion",
	"promptFeedback.blockReason", "usageMetadata candidates",  NULL,
};

static const char *const paths[] = { ":streamGenerateContent", ":generateContent", NULL };

const struct tks_dialect tks_dialect_gemini = {
	.name = "gemini.generate",
	.stops = stops,
	.signs = signs,
	.paths = paths,
	.fields = fields,
	.nfields = sizeof(fields) / sizeof(fields[0]),
	.begin = begin,
	.value = value,
	.end = end,
	.array_is_stream = true,
};
