// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Gemini's generateContent and streamGenerateContent, as events or as an array. usageMetadata is
 * cumulative; thoughts are counted beside the candidates' tokens. In newer models it comes with
 * every frame and is a counter; where it comes at the end only, it is a total.
 */
#include <string.h>

#include "dialect.h"

enum field {
	F_CANDIDATE = 1,
	F_INDEX,
	F_FINISH,
	F_PART,
	F_TEXT,
	F_THOUGHT,
	F_CALL,
	F_PROMPT,
	F_CANDIDATES,
	F_THOUGHTS,
	F_CACHED,
	F_MODEL,
	F_ID,
	F_BLOCKED,
	F_ERROR,
	F_ERROR_STATUS,
	F_ERROR_CODE,
};

static const struct tks_jfield fields[] = {
	{ "candidates[]", F_CANDIDATE, TKS_JF_BEGIN },
	{ "candidates[].index", F_INDEX, 0 },
	{ "candidates[].finishReason", F_FINISH, TKS_JF_KEEP },
	{ "candidates[].content.parts[]", F_PART, TKS_JF_BEGIN },
	{ "candidates[].content.parts[].text", F_TEXT, 0 },
	{ "candidates[].content.parts[].thought", F_THOUGHT, 0 },
	{ "candidates[].content.parts[].functionCall", F_CALL, 0 },
	{ "candidates[].content.parts[].executableCode", F_CALL, 0 },
	{ "usageMetadata.promptTokenCount", F_PROMPT, 0 },
	{ "usageMetadata.candidatesTokenCount", F_CANDIDATES, 0 },
	{ "usageMetadata.thoughtsTokenCount", F_THOUGHTS, 0 },
	{ "usageMetadata.cachedContentTokenCount", F_CACHED, 0 },
	{ "modelVersion", F_MODEL, TKS_JF_KEEP },
	{ "responseId", F_ID, TKS_JF_KEEP },
	{ "promptFeedback.blockReason", F_BLOCKED, TKS_JF_KEEP },
	{ "error", F_ERROR, 0 },
	{ "error.status", F_ERROR_STATUS, TKS_JF_KEEP },
	{ "error.code", F_ERROR_CODE, TKS_JF_KEEP },
};

/* Of the answer, of the document, of the candidate, of the part. */
struct gemini {
	bool counting;

	int64_t candidates, thoughts;
	struct tks_usage usage;
	uint32_t ncandidates;
	bool any_finish, is_error;
	char error_status[48], error_code[24];

	struct tks_choice_facts choice;
	bool visible, reasoning;

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

	g->candidates = g->thoughts = TKS_NULL;
	g->usage = (struct tks_usage){ TKS_NULL, TKS_NULL, TKS_NULL, TKS_NULL };
	g->ncandidates = 0;
	g->any_finish = g->is_error = false;
	g->error_status[0] = g->error_code[0] = 0;
}

static void candidate_begin(struct gemini *g)
{
	memset(&g->choice, 0, sizeof(g->choice));
	g->choice.tokens = -1;
	g->choice.counter = -1;
	g->visible = g->reasoning = false;
}

static void candidate_end(struct tks_dialect_ctx *d)
{
	struct gemini *g = state(d);
	struct tks_choice_facts *c = &g->choice;

	g->ncandidates++;
	g->any_finish |= c->finish[0];
	c->token = c->text = d->streamed && (g->visible || g->reasoning);
	c->reasoning = g->reasoning && !g->visible;
	tks_reqstate_choice(d->rs, c);
}

static void part_end(struct gemini *g)
{
	g->visible |= g->text && !g->thought;
	g->reasoning |= g->text && g->thought;
}

static void candidate_value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	struct gemini *g = state(d);

	switch (v->id) {
	case F_CANDIDATE:
		if (v->type == TKS_JS_OBJECT_BEGIN)
			candidate_begin(g);
		else if (v->type == TKS_JS_OBJECT)
			candidate_end(d);
		break;
	case F_INDEX:
		if (v->type == TKS_JS_NUMBER && v->inum >= 0 && v->inum <= INT32_MAX)
			g->choice.index = (uint32_t)v->inum;
		break;
	case F_FINISH:
		if (v->str)
			tks_jvalue_copy(v, g->choice.finish, sizeof(g->choice.finish));
		break;
	case F_PART:
		if (v->type == TKS_JS_OBJECT_BEGIN)
			g->text = g->thought = false;
		else if (v->type == TKS_JS_OBJECT)
			part_end(g);
		break;
	case F_TEXT:
		g->text |= v->type == TKS_JS_STRING && v->bytes;
		break;
	case F_THOUGHT:
		g->thought = v->type == TKS_JS_TRUE;
		break;
	default:
		g->text |= v->type == TKS_JS_OBJECT;
	}
}

static void value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	struct gemini *g = state(d);

	switch (v->id) {
	case F_PROMPT:
		g->usage.prompt_tokens = tks_jvalue_count(v);
		break;
	case F_CANDIDATES:
		g->candidates = tks_jvalue_count(v);
		break;
	case F_THOUGHTS:
		g->thoughts = tks_jvalue_count(v);
		break;
	case F_CACHED:
		g->usage.cached_tokens = tks_jvalue_count(v);
		break;
	case F_MODEL:
		tks_dialect_keep(d, v, d->rec->model, sizeof(d->rec->model));
		break;
	case F_ID:
		tks_dialect_keep(d, v, d->rec->response_id, sizeof(d->rec->response_id));
		break;
	case F_ERROR:
		g->is_error |= v->type == TKS_JS_OBJECT;
		break;
	case F_BLOCKED:
		g->is_error |= v->str && v->len;
		/* fallthrough */
	case F_ERROR_STATUS:
		tks_jvalue_text(v, g->error_status, sizeof(g->error_status));
		break;
	case F_ERROR_CODE:
		tks_jvalue_text(v, g->error_code, sizeof(g->error_code));
		break;
	default:
		candidate_value(d, v);
	}
}

static void end(struct tks_dialect_ctx *d, bool ok)
{
	struct gemini *g = state(d);

	if (!ok)
		return;
	if (g->is_error)
		tks_reqstate_error(d->rs, g->error_status, g->error_code);
	if (g->candidates != TKS_NULL || g->thoughts != TKS_NULL) {
		g->usage.reasoning_tokens = g->thoughts;
		g->usage.output_tokens = (g->candidates != TKS_NULL ? g->candidates : 0) +
					 (g->thoughts != TKS_NULL ? g->thoughts : 0);
		g->counting |= g->ncandidates && !g->any_finish;
		if (d->streamed && g->counting)
			tks_reqstate_counter(d->rs, g->usage.output_tokens);
		/* More is to come. */
		if (d->streamed && g->ncandidates && !g->any_finish)
			g->usage.output_tokens = TKS_NULL;
	}
	tks_reqstate_usage(d->rs, &g->usage);
}

static const char *const signs[] = {
	"candidates[].content.parts", "candidates[].finishReason", "usageMetadata modelVersion",
	"promptFeedback.blockReason", "usageMetadata candidates",  NULL,
};

static const char *const paths[] = { ":streamGenerateContent", ":generateContent", NULL };

const struct tks_dialect tks_dialect_gemini = {
	.name = "gemini.generate",
	.signs = signs,
	.paths = paths,
	.fields = fields,
	.nfields = sizeof(fields) / sizeof(fields[0]),
	.begin = begin,
	.value = value,
	.end = end,
	.array_is_stream = true,
};
