// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * TGI's own routes (router/src/lib.rs, StreamResponse): a frame a token, always, special ones and
 * the end's too; the last one has generated_text, and details if they were asked for.
 */
#include <string.h>

#include "dialect.h"

enum field { F_TOKEN = TKS_SAID_OWN, F_SPECIAL, F_GENERATED };

static const struct tks_jfield fields[] = {
	{ "token.id", F_TOKEN, 0 },
	{ "token.text", TKS_SAID_TEXT, 0 },
	{ "token.special", F_SPECIAL, 0 },
	{ "generated_text", F_GENERATED, 0 },
	{ "details.finish_reason", TKS_SAID_FINISH, TKS_JF_KEEP },
	{ "details.generated_tokens", TKS_SAID_OUT, 0 },
	{ "details.input_length", TKS_SAID_IN, 0 },
	{ "error", TKS_SAID_ERROR, 0 },
	{ "error_type", TKS_SAID_ERROR_KIND, TKS_JF_KEEP },
};

struct tgi {
	struct tks_said said;
	bool special, over;
};

_Static_assert(sizeof(struct tgi) <= TKS_DIALECT_STATE, "the dialect's state fits");

static struct tgi *state(struct tks_dialect_ctx *d)
{
	return (struct tgi *)d->state;
}

static void begin(struct tks_dialect_ctx *d)
{
	tks_said_begin(&state(d)->said);
	state(d)->special = state(d)->over = false;
}

static void value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	struct tgi *t = state(d);

	switch (v->id) {
	case F_TOKEN:
		t->said.choice.token = v->type == TKS_JS_NUMBER;
		t->said.choice.tokens = t->said.choice.token ? 1 : -1;
		break;
	case F_SPECIAL:
		t->special = v->type == TKS_JS_TRUE;
		break;
	case F_GENERATED:
		t->over = v->type == TKS_JS_STRING;
		break;
	default:
		tks_said_value(d, &t->said, v);
	}
}

static void end(struct tks_dialect_ctx *d, bool ok)
{
	struct tgi *t = state(d);

	if (!ok)
		return;
	if (!d->rec->server[0])
		strcpy(d->rec->server, "tgi");
	t->said.visible &= !t->special;
	tks_said_tell(d, &t->said);
	if (t->over)
		tks_reqstate_done(d->rs);
}

static const char *const stops[] = { "eos_token", NULL };

static const char *const signs[] = {
	"token.id generated_text?",
	"generated_text details.generated_tokens",
	"@path generated_text",
	"error error_type",
	NULL,
};

static const char *const paths[] = { "/generate_stream", "/generate", NULL };

const struct tks_dialect tks_dialect_tgi = {
	.name = "tgi.generate_stream",
	.stops = stops,
	.signs = signs,
	.paths = paths,
	.fields = fields,
	.nfields = sizeof(fields) / sizeof(fields[0]),
	.begin = begin,
	.value = value,
	.end = end,
};
