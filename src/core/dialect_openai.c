// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * OpenAI chat completions and completions, as OpenAI, vLLM, SGLang, llama.cpp and others speak
 * them, streamed and in one piece. Both dialects share their frames' outer form; what differs is
 * where the text is.
 *
 * Members of an object come in any order, so a choice is judged when its object ends.
 *
 * Whether the finish frame stands for a token: where the choice carries `stop_reason` (vLLM's
 * Python front end, TensorRT-LLM) it is the engine's last output, mostly the end-of-sequence token
 * without text, and so it is in TGI, where every frame with a choice is a token's; elsewhere
 * (SGLang: `matched_stop`; llama.cpp, OpenAI, vLLM's Rust front end) it is an extra frame.
 *
 * Usage and timings in a frame with choices are cumulative counters if they come all along, but a
 * total if they come with the finish only (llama.cpp completions).
 */
#include <stdio.h>
#include <string.h>

#include "dialect.h"

enum field {
	F_OBJECT = 1,
	F_ID,
	F_MODEL,
	F_FINGERPRINT,
	F_CHOICES,
	F_CHOICE,
	F_INDEX,
	F_ROLE,
	F_TEXT, /* visible text of any kind, tool calls too */
	F_COMPLETION_TEXT,
	F_REASONING,
	F_REASONING_CONTENT,
	F_FINISH,
	F_STOP_REASON,
	F_MATCHED_STOP,
	F_TOKEN_IDS,
	F_LOGPROBS,
	F_LOGPROB_TOKENS,
	F_USAGE_OUT,
	F_USAGE_PROMPT,
	F_USAGE_CACHED,
	F_USAGE_REASONING,
	F_PREDICTED,
	F_ERROR,
	F_ERROR_TYPE,
	F_ERROR_CODE,
	F_TYPE,
	F_CODE,
	F_DETAIL,
	F_MESSAGE,
	F_AVG_DECODED,
};

static const struct tks_jfield fields[] = {
	{ "object", F_OBJECT, TKS_JF_KEEP },
	{ "id", F_ID, TKS_JF_KEEP },
	{ "model", F_MODEL, TKS_JF_KEEP },
	{ "system_fingerprint", F_FINGERPRINT, TKS_JF_KEEP },
	{ "choices", F_CHOICES, 0 },
	{ "choices[]", F_CHOICE, TKS_JF_BEGIN },
	{ "choices[].index", F_INDEX, 0 },
	{ "choices[].delta.role", F_ROLE, 0 },
	{ "choices[].delta.content", F_TEXT, 0 },
	{ "choices[].delta.refusal", F_TEXT, 0 },
	{ "choices[].delta.tool_calls[].function.name", F_TEXT, 0 },
	{ "choices[].delta.tool_calls[].function.arguments", F_TEXT, 0 },
	{ "choices[].delta.function_call.name", F_TEXT, 0 },
	{ "choices[].delta.function_call.arguments", F_TEXT, 0 },
	{ "choices[].delta.reasoning", F_REASONING, 0 },
	{ "choices[].delta.reasoning_content", F_REASONING_CONTENT, 0 },
	{ "choices[].message", F_MESSAGE, 0 },
	{ "choices[].avg_decoded_tokens_per_iter", F_AVG_DECODED, 0 },
	{ "choices[].text", F_COMPLETION_TEXT, 0 },
	{ "choices[].finish_reason", F_FINISH, TKS_JF_KEEP },
	{ "choices[].stop_reason", F_STOP_REASON, 0 },
	{ "choices[].matched_stop", F_MATCHED_STOP, 0 },
	{ "choices[].token_ids", F_TOKEN_IDS, 0 },
	{ "choices[].output_ids", F_TOKEN_IDS, 0 }, /* LMDeploy */
	{ "choices[].logprobs.content", F_LOGPROBS, 0 },
	{ "choices[].logprobs.tokens", F_LOGPROB_TOKENS, 0 },
	{ "usage.completion_tokens", F_USAGE_OUT, 0 },
	{ "usage.prompt_tokens", F_USAGE_PROMPT, 0 },
	{ "usage.prompt_tokens_details.cached_tokens", F_USAGE_CACHED, 0 },
	{ "usage.completion_tokens_details.reasoning_tokens", F_USAGE_REASONING, 0 },
	{ "timings.predicted_n", F_PREDICTED, 0 },
	{ "error", F_ERROR, TKS_JF_KEEP },
	{ "error.type", F_ERROR_TYPE, TKS_JF_KEEP },
	{ "error.code", F_ERROR_CODE, TKS_JF_KEEP },
	{ "type", F_TYPE, TKS_JF_KEEP },
	{ "code", F_CODE, TKS_JF_KEEP },
	{ "detail", F_DETAIL, 0 },
};

enum { NFIELDS = sizeof(fields) / sizeof(fields[0]) };

/* State over the whole answer, then of the document, then of the choice under way. */
struct openai {
	uint64_t echoed; /* choices (by bit) whose echoed prompt has gone by */
	bool counting; /* counters have come in a frame that is not the last */
	bool finished; /* a finish reason has gone by */
	bool first_over; /* ... of the choice with index 0 */
	uint32_t turn; /* LMDeploy answers prompts one after the other, all with index 0 */
	bool vllm, sglang, tgi, trtllm;
	int64_t sum, sum_prompt; /* of choices that told a usage of their own with their finish */
	int64_t nsummed;

	uint32_t nchoices;
	bool any_finish, is_error, detail;
	int64_t predicted;
	struct tks_usage usage;
	char error_type[48], error_code[24];

	struct tks_choice_facts choice;
	bool stop_reason, matched_stop, avg_decoded, has_text, completion, role;
	bool whole; /* a message, not a delta: vLLM's beam search streams one document */
};

_Static_assert(sizeof(struct openai) <= TKS_DIALECT_STATE, "the dialect's state fits");

static struct openai *state(struct tks_dialect_ctx *d)
{
	return (struct openai *)d->state;
}

static void begin(struct tks_dialect_ctx *d)
{
	struct openai *o = state(d);

	o->nchoices = 0;
	o->any_finish = o->is_error = o->detail = false;
	o->predicted = TKS_NULL;
	o->usage = tks_no_usage;
	o->error_type[0] = o->error_code[0] = 0;
}

/* --- a choice --- */

static void choice_begin(struct openai *o)
{
	memset(&o->choice, 0, sizeof(o->choice));
	o->choice.tokens = -1;
	o->choice.counter = -1;
	o->stop_reason = o->matched_stop = o->avg_decoded = false;
	o->has_text = o->completion = o->role = o->whole = false;
}

/* The prompt comes back as the first text of a choice: not a token. */
static bool is_echo(struct tks_dialect_ctx *d)
{
	struct openai *o = state(d);
	uint64_t bit = 1ull << (o->choice.index & 63);

	if (!d->ask->echo || (o->echoed & bit) || !(o->choice.token || o->has_text))
		return false;
	o->echoed |= bit;
	return true;
}

/* Behind its finish a choice has no text any more: this is the next prompt's answer. */
static void take_turn(struct openai *o)
{
	struct tks_choice_facts *c = &o->choice;

	if (!o->completion || c->index)
		return;
	if (o->first_over && o->has_text) {
		o->turn++;
		o->first_over = false;
	}
	o->first_over |= c->finish[0];
	c->index = o->turn;
}

static void choice_end(struct tks_dialect_ctx *d)
{
	struct openai *o = state(d);
	struct tks_choice_facts *c = &o->choice;
	bool chat = !o->completion, finish = c->finish[0];

	o->nchoices++;
	o->any_finish |= finish;
	o->trtllm |= o->avg_decoded;
	o->vllm |= o->stop_reason && !o->matched_stop;
	o->sglang |= o->matched_stop;
	take_turn(o);
	c->reasoning = c->token && !o->has_text;
	c->text = o->has_text || c->token;
	c->token = c->text || c->tokens > 0;
	if (is_echo(d)) {
		/* Chat sends the prompt alone, completions glue it to the first token. */
		c->token = c->text = !chat;
		c->tokens = -1;
	}
	if (o->stop_reason && !o->matched_stop) {
		c->finish_is_token = finish;
		/* vLLM's completions say every token, with or without text. */
		c->token |= !chat && !finish;
	}
	/* A frame a token, with or without text. */
	if (o->tgi || o->avg_decoded) {
		c->token = true;
		c->finish_is_token = finish;
	}
	c->natural = tks_dialect_stops(d->dialect, c->finish);
	if (o->whole)
		d->rec->streamed = 0;
	if (!d->streamed || o->whole)
		c->token = c->text = c->finish_is_token = false;
	tks_reqstate_choice(d->rs, c);
}

static void count_array(struct openai *o, const struct tks_jvalue *v)
{
	if (v->type == TKS_JS_ARRAY && v->count <= INT32_MAX &&
	    (int64_t)v->count > o->choice.tokens)
		o->choice.tokens = (int32_t)v->count;
}

static void choice_value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	struct openai *o = state(d);
	bool text = v->type == TKS_JS_STRING && v->bytes > 0;

	switch (v->id) {
	case F_INDEX:
		if (v->type == TKS_JS_NUMBER && v->inum >= 0 && v->inum <= INT32_MAX)
			o->choice.index = (uint32_t)v->inum;
		break;
	case F_COMPLETION_TEXT:
		o->completion = true;
		/* fallthrough */
	case F_TEXT:
		o->has_text |= text;
		break;
	case F_REASONING_CONTENT:
		/* SGLang always writes the member, null where it is empty. */
		o->sglang |= v->type == TKS_JS_NULL && !strcmp(d->server_header, "uvicorn");
		/* fallthrough */
	case F_REASONING:
		o->choice.token |= text;
		break;
	case F_FINISH:
		if (v->str)
			tks_jvalue_copy(v, o->choice.finish, sizeof(o->choice.finish));
		break;
	case F_MESSAGE:
		o->whole = v->type == TKS_JS_OBJECT;
		break;
	case F_AVG_DECODED:
		o->avg_decoded = true;
		break;
	case F_ROLE:
		o->role = v->type == TKS_JS_STRING;
		break;
	case F_STOP_REASON:
		o->stop_reason = true;
		break;
	case F_MATCHED_STOP:
		o->matched_stop = true;
		break;
	default:
		count_array(o, v);
	}
}

/* --- the document --- */

static void fingerprint(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	if (tks_jvalue_is(v, "fp_ollama"))
		strcpy(d->rec->server, "ollama");
}

static void error_value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	struct openai *o = state(d);

	switch (v->id) {
	case F_OBJECT:
		o->is_error |= tks_jvalue_is(v, "error");
		break;
	case F_ERROR:
		o->is_error |= v->type == TKS_JS_OBJECT || v->type == TKS_JS_STRING;
		break;
	case F_DETAIL:
		o->detail = true;
		break;
	case F_ERROR_TYPE:
	case F_TYPE:
		tks_jvalue_text(v, o->error_type, sizeof(o->error_type));
		break;
	default:
		tks_jvalue_text(v, o->error_code, sizeof(o->error_code));
	}
}

static void value(struct tks_dialect_ctx *d, const struct tks_jvalue *v)
{
	struct openai *o = state(d);

	switch (v->id) {
	case F_CHOICE:
		if (v->type == TKS_JS_OBJECT_BEGIN)
			choice_begin(o);
		else if (v->type == TKS_JS_OBJECT)
			choice_end(d);
		break;
	case F_ID:
		o->tgi |= v->str && !v->len;
		tks_dialect_keep(d, v, d->rec->response_id, sizeof(d->rec->response_id));
		break;
	case F_MODEL:
		tks_dialect_keep(d, v, d->rec->model, sizeof(d->rec->model));
		break;
	case F_FINGERPRINT:
		fingerprint(d, v);
		break;
	case F_USAGE_OUT:
		o->usage.output_tokens = tks_jvalue_count(v);
		break;
	case F_USAGE_PROMPT:
		o->usage.prompt_tokens = tks_jvalue_count(v);
		break;
	case F_USAGE_CACHED:
		o->usage.cached_tokens = tks_jvalue_count(v);
		break;
	case F_USAGE_REASONING:
		o->usage.reasoning_tokens = tks_jvalue_count(v);
		break;
	case F_PREDICTED:
		o->predicted = tks_jvalue_count(v);
		break;
	case F_CHOICES:
		break;
	case F_OBJECT:
	case F_ERROR:
	case F_ERROR_TYPE:
	case F_ERROR_CODE:
	case F_TYPE:
	case F_CODE:
	case F_DETAIL:
		error_value(d, v);
		break;
	default:
		choice_value(d, v);
	}
}

/* Several answers in one: a usage that comes with one of them may be of that one only. */
static int64_t answers_of(const struct tks_dialect_ctx *d)
{
	int64_t n = d->ask->n != TKS_NULL && d->ask->n > 1 ? d->ask->n : 1;

	return n * d->ask->prompts;
}

/* A cumulative count that came with choices. */
static void counter(struct tks_dialect_ctx *d, int64_t n)
{
	struct openai *o = state(d);

	if (n == TKS_NULL || n <= 0)
		return;
	/* A frame that only names the role may count the token that comes in the next (llama.cpp).
	 */
	if (o->role && !o->choice.token && !o->any_finish)
		return;
	/* Gateways tell the total behind the finish, in a frame with an empty choice. */
	o->counting |= !o->any_finish && !o->finished;
	if (!o->counting)
		return;
	/* vLLM counts each choice by itself. */
	if (answers_of(d) > 1 && o->nchoices == 1 && !o->sglang) {
		o->choice.counter = n;
		o->choice.token = o->choice.text = o->choice.finish_is_token = false;
		o->choice.tokens = -1;
		o->choice.finish[0] = 0;
		tks_reqstate_choice(d->rs, &o->choice);
		return;
	}
	tks_reqstate_counter(d->rs, n);
}

/* The usage is of the choice that ends here; that of all is known when all have ended. */
static void add_up(struct tks_dialect_ctx *d, struct tks_usage *u)
{
	struct openai *o = state(d);
	bool ends = o->nchoices == 1 && o->any_finish && u->output_tokens != TKS_NULL;

	if (ends) {
		o->nsummed++;
		o->sum += u->output_tokens;
		o->sum_prompt += u->prompt_tokens != TKS_NULL ? u->prompt_tokens : 0;
	}
	*u = tks_no_usage;
	if (!ends || o->nsummed != answers_of(d))
		return;
	u->output_tokens = o->sum;
	/* Choices of one prompt repeat its count. */
	if (o->nsummed == d->ask->prompts)
		u->prompt_tokens = o->sum_prompt;
}

static void totals(struct tks_dialect_ctx *d)
{
	struct openai *o = state(d);
	struct tks_usage u = o->usage;
	bool streamed = d->streamed && !o->whole;
	bool per_choice = o->nchoices && answers_of(d) > 1;

	if (streamed && o->nchoices) {
		counter(d, u.output_tokens);
		if (u.output_tokens == TKS_NULL)
			counter(d, o->predicted);
	}
	if (u.output_tokens == TKS_NULL)
		u.output_tokens = o->predicted;
	/* What comes with choices is a total with the finish only, and of one choice. */
	if (streamed && per_choice)
		add_up(d, &u);
	else if (streamed && o->nchoices && !(o->any_finish || o->finished))
		u.output_tokens = TKS_NULL;
	tks_reqstate_usage(d->rs, &u);
}

static void name_server(struct tks_dialect_ctx *d)
{
	const struct openai *o = state(d);

	if (d->rec->server[0])
		return;
	if (o->tgi)
		strcpy(d->rec->server, "tgi");
	else if (o->trtllm)
		strcpy(d->rec->server, "tensorrt-llm");
	else if (o->sglang)
		strcpy(d->rec->server, "sglang");
	else if (o->vllm)
		strcpy(d->rec->server, "vllm");
}

static void end(struct tks_dialect_ctx *d, bool ok)
{
	struct openai *o = state(d);

	if (!ok)
		return;
	if (o->is_error || (o->detail && !o->nchoices))
		tks_reqstate_error(d->rs, o->error_type, o->error_code);
	totals(d);
	o->finished |= o->any_finish;
	name_server(d);
}

static const char *const stops[] = {
	"stop", "eos_token", "eos", "tool_calls", "function_call", NULL
};

static const char *const chat_signs[] = {
	"object=chat.completion.chunk",
	"object=chat.completion",
	"@stream !object choices[].delta",
	"!object choices[].message choices[].finish_reason?",
	NULL,
};

static const char *const chat_paths[] = { "/chat/completions", NULL };

static const char *const completions_signs[] = {
	"object=text_completion",
	"@stream !object choices[].text",
	"!object choices[].text choices[].finish_reason?",
	NULL,
};

static const char *const completions_paths[] = { "/v1/completions", "/completions", NULL };

const struct tks_dialect tks_dialect_openai_chat = {
	.name = "openai.chat",
	.stops = stops,
	.signs = chat_signs,
	.paths = chat_paths,
	.fields = fields,
	.nfields = NFIELDS,
	.begin = begin,
	.value = value,
	.end = end,
};

const struct tks_dialect tks_dialect_openai_completions = {
	.name = "openai.completions",
	.stops = stops,
	.signs = completions_signs,
	.paths = completions_paths,
	.fields = fields,
	.nfields = NFIELDS,
	.begin = begin,
	.value = value,
	.end = end,
};
