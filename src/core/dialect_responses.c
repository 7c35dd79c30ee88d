// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * OpenAI's typed events: Responses, as OpenAI, vLLM, SGLang, llama.cpp and Ollama speak it, and
 * Realtime over a WebSocket, with several answers on one connection, known by response_id.
 *
 * Only events whose type ends in .delta bring something new: the .done events and the last one
 * repeat it. Audio and pictures are media, transcripts of audio (Realtime) are text. A GET of a
 * response sends old events again, in which nothing is generated. Realtime's names as of the beta
 * and after it.
 */
#include <string.h>

#include "dialect.h"

enum field { F_TYPE = TKS_SAID_OWN, F_RESPONSE, F_MODEL, F_DELTA, F_STATUS, F_REASON };

/* clang-format off */
#define OF_RESPONSE(at)                                                                            \
	{ at "id", TKS_SAID_ID, TKS_JF_KEEP },                                                     \
	{ at "model", TKS_SAID_MODEL, TKS_JF_KEEP },                                               \
	{ at "status", F_STATUS, TKS_JF_KEEP },                                                    \
	{ at "incomplete_details.reason", F_REASON, TKS_JF_KEEP },                                 \
	{ at "usage.output_tokens", TKS_SAID_OUT, 0 },                                             \
	{ at "usage.input_tokens", TKS_SAID_IN, 0 },                                               \
	{ at "usage.input_tokens_details.cached_tokens", TKS_SAID_CACHED, 0 },                     \
	{ at "usage.output_tokens_details.reasoning_tokens", TKS_SAID_REASONED, 0 },               \
	{ at "error", TKS_SAID_ERROR, 0 },                                                         \
	{ at "error.type", TKS_SAID_ERROR_KIND, TKS_JF_KEEP },                                     \
	{ at "error.code", TKS_SAID_ERROR_CODE, TKS_JF_KEEP }
/* clang-format on */

static const struct tks_jfield responses_fields[] = {
	{ "type", F_TYPE, TKS_JF_KEEP }, { "delta", F_DELTA, 0 },
	{ "logprobs", TKS_SAID_IDS, 0 }, { "code", TKS_SAID_ERROR_CODE, TKS_JF_KEEP },
	OF_RESPONSE("response."),	 OF_RESPONSE(""),
};

static const struct tks_jfield realtime_fields[] = {
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

/* The session's model (Realtime), then of the event. */
struct events {
	char model[96];
	struct tks_said said;
	bool delta;
	char type[64], response[64], status[24], reason[32];
};

_Static_assert(sizeof(struct events) <= TKS_DIALECT_STATE, "the dialect's state fits");

static struct events *state(struct tks_dialect_ctx *d)
{
	return (struct events *)d->state;
}

static void begin(struct tks_dialect_ctx *d)
{
	struct events *e = state(d);

	tks_said_begin(&e->said);
	e->delta = false;
	e->type[0] = e->response[0] = e->status[0] = e->reason[0] = 0;
}

static void value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	struct events *e = state(d);

	switch (v->id) {
	case F_TYPE:
		tks_jvalue_text(v, e->type, sizeof(e->type));
		break;
	case F_RESPONSE:
		tks_jvalue_text(v, e->response, sizeof(e->response));
		break;
	case F_MODEL:
		tks_jvalue_text(v, e->model, sizeof(e->model));
		break;
	case F_DELTA:
		e->delta = v->type == TKS_JS_STRING && v->bytes;
		break;
	case F_STATUS:
		tks_jvalue_text(v, e->status, sizeof(e->status));
		break;
	case F_REASON:
		tks_jvalue_text(v, e->reason, sizeof(e->reason));
		break;
	default:
		tks_said_value(d, &e->said, v);
	}
}

static bool is_delta(const char *type)
{
	size_t n = strlen(type);

	return n >= 6 && !strcmp(type + n - 6, ".delta");
}

/* --- Responses --- */

static void responses_finish(struct events *e)
{
	if (!strcmp(e->status, "in_progress") || !strcmp(e->status, "queued"))
		return;
	strcpy(e->said.choice.finish, e->reason[0] ? e->reason : e->status);
}

static void responses_end(struct tks_dialect_ctx *d, bool ok)
{
	struct events *e = state(d);
	struct tks_said *s = &e->said;

	d->not_generated = d->get;
	if (!ok)
		return;
	if (is_delta(e->type) && !strstr(e->type, "audio") && !strstr(e->type, "image")) {
		s->reasoning = e->delta && strstr(e->type, "reasoning");
		s->visible = e->delta && !s->reasoning;
	} else {
		s->choice.tokens = -1;
	}
	/* A tool of the server's own is at work. */
	if (strstr(e->type, "_call.") || strstr(e->type, "mcp_list_tools."))
		tks_reqstate_pause(d->rs);
	responses_finish(e);
	s->is_error |= !strcmp(e->type, "error") || !strcmp(e->status, "failed");
	if (s->is_error)
		s->choice.finish[0] = 0;
	tks_said_tell(d, s);
	if (s->choice.finish[0])
		tks_reqstate_done(d->rs);
}

static const char *const stops[] = { "completed", NULL };

static const char *const responses_signs[] = {
	"type=response.*",
	"type=error sequence_number",
	"object=response status output",
	NULL,
};

static const char *const responses_paths[] = { "/v1/responses", "/responses", NULL };

const struct tks_dialect tks_dialect_responses = {
	.name = "openai.responses",
	.stops = stops,
	.signs = responses_signs,
	.paths = responses_paths,
	.fields = responses_fields,
	.nfields = sizeof(responses_fields) / sizeof(responses_fields[0]),
	.begin = begin,
	.value = value,
	.end = responses_end,
};

/* --- Realtime --- */

static void realtime_end(struct tks_dialect_ctx *d, bool ok)
{
	struct events *e = state(d);
	struct tks_said *s = &e->said;

	if (!ok || !e->response[0] || !tks_dialect_answer(d, e->response))
		return;
	strcpy(d->rec->response_id, e->response);
	if (!d->rec->model[0])
		strcpy(d->rec->model, e->model);
	s->visible = e->delta && is_delta(e->type) &&
		     (!strstr(e->type, "audio") || strstr(e->type, "transcript"));
	/* It begins here, whatever of the stream was seen. */
	if (!strcmp(e->type, "response.created"))
		d->rec->flags &= ~(unsigned int)TKS_F_MID_STREAM;
	if (!strcmp(e->type, "response.done")) {
		d->answer_over = true;
		s->is_error = !strcmp(e->status, "failed");
		if (!s->is_error)
			strcpy(s->choice.finish, e->reason[0] ? e->reason : e->status);
		tks_reqstate_done(d->rs);
	}
	tks_said_tell(d, s);
}

static const char *const realtime_signs[] = {
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
	.stops = stops,
	.signs = realtime_signs,
	.fields = realtime_fields,
	.nfields = sizeof(realtime_fields) / sizeof(realtime_fields[0]),
	.begin = begin,
	.value = value,
	.end = realtime_end,
	.shared = true,
};
