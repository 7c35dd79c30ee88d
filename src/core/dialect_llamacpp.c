// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * llama.cpp's own routes (/completion, /infill). tokens_predicted is cumulative and counts tokens
 * that have no frame of their own: a character that was not whole, and a burst of speculation,
 * which raises it at its first frame. Frames of prompt progress count none. The last frame repeats
 * the prompt; a client may have any member removed from it (response_fields).
 */
#include <string.h>

#include "dialect.h"

enum field { F_PREDICTED = TKS_SAID_OWN, F_STOP, F_STOP_TYPE };

static const struct tks_jfield fields[] = {
	{ "index", TKS_SAID_INDEX, 0 },
	{ "model", TKS_SAID_MODEL, TKS_JF_KEEP },
	{ "content", TKS_SAID_TEXT, 0 },
	{ "stop", F_STOP, 0 },
	{ "stop_type", F_STOP_TYPE, TKS_JF_KEEP },
	{ "tokens_predicted", F_PREDICTED, 0 },
	{ "timings.predicted_n", F_PREDICTED, 0 },
	{ "tokens_evaluated", TKS_SAID_IN, 0 },
	{ "timings.cache_n", TKS_SAID_CACHED, 0 },
	{ "error", TKS_SAID_ERROR, 0 },
	{ "error.type", TKS_SAID_ERROR_KIND, TKS_JF_KEEP },
	{ "error.code", TKS_SAID_ERROR_CODE, TKS_JF_KEEP },
};

struct llamacpp {
	int64_t total; /* of all prompts, in one piece */

	struct tks_said said;
	int64_t predicted;
	bool stop;
	char stop_type[16];
};

_Static_assert(sizeof(struct llamacpp) <= TKS_DIALECT_STATE, "the dialect's state fits");

static struct llamacpp *state(struct tks_dialect_ctx *d)
{
	return (struct llamacpp *)d->state;
}

static void begin(struct tks_dialect_ctx *d)
{
	struct llamacpp *l = state(d);

	tks_said_begin(&l->said);
	l->predicted = TKS_NULL;
	l->stop = false;
	l->stop_type[0] = 0;
}

static void value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	struct llamacpp *l = state(d);

	switch (v->id) {
	case F_PREDICTED:
		l->predicted = tks_jvalue_count(v);
		break;
	case F_STOP:
		l->stop = v->type == TKS_JS_TRUE;
		break;
	case F_STOP_TYPE:
		tks_jvalue_text(v, l->stop_type, sizeof(l->stop_type));
		break;
	default:
		tks_said_value(d, &l->said, v);
	}
}

static void end(struct tks_dialect_ctx *d, bool ok)
{
	struct llamacpp *l = state(d);
	struct tks_said *s = &l->said;

	if (!ok)
		return;
	if (l->stop || !d->streamed)
		strcpy(s->choice.finish, l->stop_type[0] ? l->stop_type : "stop");
	if (l->predicted != TKS_NULL && d->streamed) {
		s->choice.counter = l->predicted;
	} else if (l->predicted != TKS_NULL) {
		l->total += l->predicted;
		s->usage.output_tokens = l->total;
	}
	if (s->is_error)
		s->choice.finish[0] = 0;
	tks_said_tell(d, s);
}

static const char *const stops[] = { "eos", "stop", NULL };

static const char *const signs[] = {
	"tokens_predicted",
	"content stop id_slot",
	"content stop_type",
	NULL,
};

static const char *const paths[] = { "/completion", "/infill", NULL };

const struct tks_dialect tks_dialect_llamacpp = {
	.name = "llamacpp.completion",
	.stops = stops,
	.signs = signs,
	.paths = paths,
	.fields = fields,
	.nfields = sizeof(fields) / sizeof(fields[0]),
	.begin = begin,
	.value = value,
	.end = end,
};
