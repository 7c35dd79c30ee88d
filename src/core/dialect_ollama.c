// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Ollama's own routes: lines of JSON. The last one is `done`, with the counts; those that are zero
 * are left out. Loading or unloading a model answers in the same form, and generates nothing.
 */
#include <string.h>

#include "dialect.h"

enum field { F_DONE = TKS_SAID_OWN, F_CALLS };

static const struct tks_jfield fields[] = {
	{ "model", TKS_SAID_MODEL, TKS_JF_KEEP },
	{ "response", TKS_SAID_TEXT, 0 },
	{ "thinking", TKS_SAID_REASONING, 0 },
	{ "message.content", TKS_SAID_TEXT, 0 },
	{ "message.thinking", TKS_SAID_REASONING, 0 },
	{ "message.tool_calls", F_CALLS, 0 },
	{ "logprobs", TKS_SAID_IDS, 0 },
	{ "done", F_DONE, 0 },
	{ "done_reason", TKS_SAID_FINISH, TKS_JF_KEEP },
	{ "eval_count", TKS_SAID_OUT, 0 },
	{ "prompt_eval_count", TKS_SAID_IN, 0 },
	{ "error", TKS_SAID_ERROR, 0 },
};

struct ollama {
	struct tks_said said;
	bool done;
};

_Static_assert(sizeof(struct ollama) <= TKS_DIALECT_STATE, "the dialect's state fits");

static struct ollama *state(struct tks_dialect_ctx *d)
{
	return (struct ollama *)d->state;
}

static void begin(struct tks_dialect_ctx *d)
{
	tks_said_begin(&state(d)->said);
	state(d)->done = false;
}

static void value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	struct ollama *o = state(d);

	if (v->id == F_DONE)
		o->done = v->type == TKS_JS_TRUE;
	else if (v->id == F_CALLS)
		o->said.visible |= v->type == TKS_JS_ARRAY && v->count;
	else
		tks_said_value(d, &o->said, v);
}

static void end(struct tks_dialect_ctx *d, bool ok)
{
	struct ollama *o = state(d);
	struct tks_said *s = &o->said;

	if (!ok)
		return;
	if (!strcmp(s->choice.finish, "load") || !strcmp(s->choice.finish, "unload")) {
		d->not_generated = true;
		return;
	}
	/* Others that speak this (SGLang) are no Go servers and name themselves. */
	if (!d->rec->server[0] && !d->server_header[0])
		strcpy(d->rec->server, "ollama");
	if (o->done && !s->choice.finish[0])
		strcpy(s->choice.finish, "stop");
	tks_said_tell(d, s);
	if (o->done)
		tks_reqstate_done(d->rs);
}

static const char *const stops[] = { "stop", NULL };

static const char *const chat_signs[] = { "model created_at message done", NULL };

static const char *const chat_paths[] = { "/api/chat", NULL };

const struct tks_dialect tks_dialect_ollama_chat = {
	.name = "ollama.chat",
	.stops = stops,
	.signs = chat_signs,
	.paths = chat_paths,
	.fields = fields,
	.nfields = sizeof(fields) / sizeof(fields[0]),
	.begin = begin,
	.value = value,
	.end = end,
};

static const char *const generate_signs[] = { "model created_at response done", NULL };

static const char *const generate_paths[] = { "/api/generate", NULL };

const struct tks_dialect tks_dialect_ollama_generate = {
	.name = "ollama.generate",
	.stops = stops,
	.signs = generate_signs,
	.paths = generate_paths,
	.fields = fields,
	.nfields = sizeof(fields) / sizeof(fields[0]),
	.begin = begin,
	.value = value,
	.end = end,
};
