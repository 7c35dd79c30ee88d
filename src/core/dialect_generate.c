// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * /generate of SGLang and of LMDeploy. Both count in meta_info.completion_tokens, cumulative and
 * for each choice. SGLang's text and ids are cumulative too (unless started with
 * --incremental-streaming-output) and tell nothing that the counter doesn't; LMDeploy's are new.
 */
#include <stdio.h>
#include <string.h>

#include "dialect.h"

enum field { F_COUNT = TKS_SAID_OWN, F_ID };

#define COMMON                                                                                     \
	{ "meta_info.id", F_ID, TKS_JF_KEEP }, { "index", TKS_SAID_INDEX, 0 },                     \
		{ "meta_info.index", TKS_SAID_INDEX, 0 },                                          \
		{ "meta_info.completion_tokens", F_COUNT, 0 },                                     \
		{ "meta_info.prompt_tokens", TKS_SAID_IN, 0 },                                     \
		{ "meta_info.cached_tokens", TKS_SAID_CACHED, 0 },                                 \
		{ "meta_info.finish_reason", TKS_SAID_FINISH, TKS_JF_KEEP },                       \
		{ "meta_info.finish_reason.type", TKS_SAID_FINISH, TKS_JF_KEEP },                  \
		{ "error", TKS_SAID_ERROR, 0 },                                                    \
		{ "error.type", TKS_SAID_ERROR_KIND, TKS_JF_KEEP },                                \
	{                                                                                          \
		"error.code", TKS_SAID_ERROR_CODE, TKS_JF_KEEP                                     \
	}

static const struct tks_jfield sglang_fields[] = { COMMON };

static const struct tks_jfield lmdeploy_fields[] = {
	COMMON,
	{ "text", TKS_SAID_TEXT, 0 },
	{ "output_ids", TKS_SAID_IDS, 0 },
};

struct generate {
	int64_t total; /* of all prompts, in one piece */

	struct tks_said said;
	int64_t count;
	char id[128];
};

_Static_assert(sizeof(struct generate) <= TKS_DIALECT_STATE, "the dialect's state fits");

static struct generate *state(struct tks_dialect_ctx *d)
{
	return (struct generate *)d->state;
}

static void begin(struct tks_dialect_ctx *d)
{
	tks_said_begin(&state(d)->said);
	state(d)->count = TKS_NULL;
	state(d)->id[0] = 0;
}

static void value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	if (v->id == F_COUNT)
		state(d)->count = tks_jvalue_count(v);
	else if (v->id == F_ID)
		tks_jvalue_text(v, state(d)->id, sizeof(state(d)->id));
	else
		tks_said_value(d, &state(d)->said, v);
}

static void end(struct tks_dialect_ctx *d, bool ok)
{
	struct generate *g = state(d);
	struct tks_said *s = &g->said;

	if (!ok)
		return;
	/* Each text of a batch has an id of its own; the first one's stands for all. */
	if (!s->choice.index && !d->rec->response_id[0])
		snprintf(d->rec->response_id, sizeof(d->rec->response_id), "%s", g->id);
	if (g->count != TKS_NULL && d->streamed) {
		s->choice.counter = g->count;
	} else if (g->count != TKS_NULL) {
		g->total += g->count;
		s->usage.output_tokens = g->total;
	}
	tks_said_tell(d, s);
}

static void sglang_end(struct tks_dialect_ctx *d, bool ok)
{
	if (ok && !d->rec->server[0])
		strcpy(d->rec->server, "sglang");
	end(d, ok);
}

static const char *const stops[] = { "stop", NULL };

static const char *const sglang_signs[] = { "meta_info.id meta_info.completion_tokens", NULL };

static const char *const paths[] = { "/generate", NULL };

const struct tks_dialect tks_dialect_sglang = {
	.name = "sglang.generate",
	.stops = stops,
	.signs = sglang_signs,
	.paths = paths,
	.fields = sglang_fields,
	.nfields = sizeof(sglang_fields) / sizeof(sglang_fields[0]),
	.begin = begin,
	.value = value,
	.end = sglang_end,
};

static const char *const lmdeploy_signs[] = { "meta_info.completion_tokens !meta_info.id", NULL };

const struct tks_dialect tks_dialect_lmdeploy = {
	.name = "lmdeploy.generate",
	.stops = stops,
	.signs = lmdeploy_signs,
	.fields = lmdeploy_fields,
	.nfields = sizeof(lmdeploy_fields) / sizeof(lmdeploy_fields[0]),
	.begin = begin,
	.value = value,
	.end = end,
};
