// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * OpenAI Realtime over a WebSocket: several answers on one connection, known by response_id. Deltas
 * of text, transcripts and arguments are token frames, those of audio are media. Names as of the
 * beta and after it.
 */
#include <string.h>

#include "dialect.h"

enum field { F_TYPE = TKS_SAID_OWN, F_RESPONSE, F_MODEL, F_DELTA, F_STATUS, F_REASON };

static const struct tks_jfield fields[] = {
	{ "type", F_TYPE, TKS_JF_KEEP },
	{ "response_id", F_RESPONSE, TKS_JF_KEEP },
	{ "response.id", F_RESPONSE, TKS_JF_KEEP },
	{ "session.model", F_MODEL, TKS_JF_KEEP },
	{ "delta", F_DELTA, 0 },
	{ "response.status", F_STATUS, TKS_JF_KEEP },
	{ "response.status_details.reason", F_REASON, TKS_JF_KEEP },
	{ "response.usage.output_tokens", TKS_SAID_OUT, 0 },
	{ "response.usage.input_tokens", TKS_SAID_IN, 0 },
	{ "response.usage.input_token_details.cached_tokens", TKS_SAID_CACHED, 0 },
	{ "response.status_details.error.type", TKS_SAID_ERROR_KIND, TKS_JF_KEEP },
	{ "response.status_details.error.code", TKS_SAID_ERROR_CODE, TKS_JF_KEEP },
};

/* The session's model, then of the document. */
struct realtime {
	char model[96];
	struct tks_said said;
	bool delta;
	char type[64], response[64], status[24], reason[32];
};

_Static_assert(sizeof(struct realtime) <= TKS_DIALECT_STATE, "the dialect's state fits");

static struct realtime *state(struct tks_dialect_ctx *d)
{
	return (struct realtime *)d->state;
}

static void begin(struct tks_dialect_ctx *d)
{
	struct realtime *r = state(d);

	tks_said_begin(&r->said);
	r->delta = false;
	r->type[0] = r->response[0] = r->status[0] = r->reason[0] = 0;
}

static void value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	struct realtime *r = state(d);

	switch (v->id) {
	case F_TYPE:
		tks_jvalue_text(v, r->type, sizeof(r->type));
		break;
	case F_RESPONSE:
		tks_jvalue_text(v, r->response, sizeof(r->response));
		break;
	case F_MODEL:
		tks_jvalue_text(v, r->model, sizeof(r->model));
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

static bool is_token_delta(const char *type)
{
	size_t n = strlen(type);

	if (n < 6 || strcmp(type + n - 6, ".delta") != 0)
		return false;
	return !strstr(type, "audio") || strstr(type, "transcript");
}

static void end(struct tks_dialect_ctx *d, bool ok)
{
	struct realtime *r = state(d);
	struct tks_said *s = &r->said;

	if (!ok || !r->response[0] || !tks_dialect_answer(d, r->response))
		return;
	strcpy(d->rec->response_id, r->response);
	if (!d->rec->model[0])
		strcpy(d->rec->model, r->model);
	s->visible = r->delta && is_token_delta(r->type);
	if (!strcmp(r->type, "response.done")) {
		d->answer_over = true;
		s->is_error = !strcmp(r->status, "failed");
		if (!s->is_error)
			strcpy(s->choice.finish, r->reason[0] ? r->reason : r->status);
		tks_reqstate_done(d->rs);
	}
	tks_said_tell(d, s);
}

static const char *const signs[] = {
	"@ws type=session.*",
	"@ws type=response.*",
	"@ws type=conversation.*",
	"@ws type=input_audio_buffer.*",
	"@ws type=rate_limits.*",
	"@ws type=error",
	NULL,
};

const struct tks_dialect tks_dialect_realtime = {
	.name = "openai.realtime",
	.signs = signs,
	.fields = fields,
	.nfields = sizeof(fields) / sizeof(fields[0]),
	.begin = begin,
	.value = value,
	.end = end,
	.shared = true,
};
