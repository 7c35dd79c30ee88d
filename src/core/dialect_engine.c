// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The gRPC between a router and an engine: SGLang's scheduler, vLLM's engine, TensorRT-LLM
 * (lightseekorg/smg: grpc_client/proto/{sglang_scheduler,vllm_engine,trtllm_service}.proto).
 * Chunks hold new ids and the count so far; the last message repeats all ids, and is a frame with
 * tokens only where no chunk came before it (an answer that was not to be streamed).
 */
#include <string.h>

#include "dialect.h"

enum pfield {
	P_ID = 1,
	P_CHUNK,
	P_COMPLETE,
	P_TOKENS,
	P_INDEX,
	P_FINISH,
	P_IN,
	P_COUNT,
	P_CACHED,
	P_REASONED,
};

/* clang-format off */
static const struct tks_pfield sglang_fields[] = {
	{ { 1 }, P_ID, 0 },
	{ { 2 }, P_CHUNK, 0 },
	{ { 2, 1 }, P_TOKENS, TKS_PF_PACKED },
	{ { 2, 2 }, P_IN, 0 },
	{ { 2, 3 }, P_COUNT, 0 },
	{ { 2, 4 }, P_CACHED, 0 },
	{ { 2, 8 }, P_INDEX, 0 },
	{ { 2, 9 }, P_REASONED, 0 },
	{ { 3 }, P_COMPLETE, 0 },
	{ { 3, 2 }, P_FINISH, 0 },
	{ { 3, 3 }, P_IN, 0 },
	{ { 3, 4 }, P_COUNT, 0 },
	{ { 3, 5 }, P_CACHED, 0 },
	{ { 3, 11 }, P_INDEX, 0 },
	{ { 3, 12 }, P_REASONED, 0 },
};

static const struct tks_pfield vllm_fields[] = {
	{ { 1 }, P_CHUNK, 0 },
	{ { 1, 1 }, P_TOKENS, TKS_PF_PACKED },
	{ { 1, 2 }, P_IN, 0 },
	{ { 1, 3 }, P_COUNT, 0 },
	{ { 1, 4 }, P_CACHED, 0 },
	{ { 1, 7 }, P_INDEX, 0 },
	{ { 2 }, P_COMPLETE, 0 },
	{ { 2, 2 }, P_FINISH, 0 },
	{ { 2, 3 }, P_IN, 0 },
	{ { 2, 4 }, P_COUNT, 0 },
	{ { 2, 5 }, P_CACHED, 0 },
	{ { 2, 8 }, P_INDEX, 0 },
};

static const struct tks_pfield trtllm_fields[] = {
	{ { 1 }, P_ID, 0 },
	{ { 2 }, P_CHUNK, 0 },
	{ { 2, 1 }, P_TOKENS, TKS_PF_PACKED },
	{ { 2, 2 }, P_INDEX, 0 },
	{ { 2, 3 }, P_IN, 0 },
	{ { 2, 4 }, P_COUNT, 0 },
	{ { 2, 5 }, P_CACHED, 0 },
	{ { 3 }, P_COMPLETE, 0 },
	{ { 3, 2 }, P_INDEX, 0 },
	{ { 3, 3 }, P_FINISH, 0 },
	{ { 3, 5 }, P_IN, 0 },
	{ { 3, 6 }, P_COUNT, 0 },
	{ { 3, 7 }, P_CACHED, 0 },
};
/* GenerateRequest: in its SamplingParams, but for TensorRT-LLM's. */
static const struct tks_pfield sglang_ask[] = {
	{ { 4, 8 }, TKS_ASK_MAX_TOKENS, 0 },
	{ { 4, 17 }, TKS_ASK_N, 0 },
};

static const struct tks_pfield vllm_ask[] = {
	{ { 4, 8 }, TKS_ASK_MAX_TOKENS, 0 },
	{ { 4, 15 }, TKS_ASK_N, 0 },
};

static const struct tks_pfield trtllm_ask[] = {
	{ { 5 }, TKS_ASK_MAX_TOKENS, 0 },
};
/* clang-format on */

struct engine {
	int64_t total; /* of the choices that are complete */
	uint64_t open; /* choices (by bit) that have begun and are not complete */
	bool chunks; /* there was one */

	struct tks_choice_facts choice;
	struct tks_usage usage;
	bool chunk, complete;
	int64_t count;
};

_Static_assert(sizeof(struct engine) <= TKS_DIALECT_STATE, "the dialect's state fits");

static struct engine *state(struct tks_dialect_ctx *d)
{
	return (struct engine *)d->state;
}

static void begin(struct tks_dialect_ctx *d)
{
	struct engine *e = state(d);

	memset(&e->choice, 0, sizeof(e->choice));
	e->choice.tokens = -1;
	e->choice.counter = -1;
	e->usage = tks_no_usage;
	e->chunk = e->complete = false;
	e->count = TKS_NULL;
}

/* A number of tokens; none that no answer can have. */
static int64_t count_of(const struct tks_pvalue *v)
{
	return v->type == TKS_PS_INT && v->num <= UINT32_MAX ? (int64_t)v->num : TKS_NULL;
}

static void total_value(struct engine *e, const struct tks_pvalue *v)
{
	switch (v->id) {
	case P_IN:
		e->usage.prompt_tokens = count_of(v);
		break;
	case P_CACHED:
		e->usage.cached_tokens = count_of(v);
		break;
	case P_REASONED:
		e->usage.reasoning_tokens = count_of(v);
		break;
	default:
		e->count = count_of(v);
	}
}

static void pvalue(struct tks_dialect_ctx *d, const struct tks_pvalue *v)
{
	struct engine *e = state(d);

	switch (v->id) {
	case P_ID:
		tks_pvalue_copy(v, d->rec->response_id, sizeof(d->rec->response_id));
		break;
	case P_CHUNK:
		e->chunk = true;
		break;
	case P_COMPLETE:
		e->complete = true;
		break;
	case P_TOKENS:
		/* Unpacked, they come one by one. */
		if (v->type == TKS_PS_PACKED && v->num <= INT16_MAX)
			e->choice.tokens =
				(e->choice.tokens > 0 ? e->choice.tokens : 0) + (int32_t)v->num;
		break;
	case P_INDEX:
		e->choice.index = v->num <= INT32_MAX ? (uint32_t)v->num : 0;
		break;
	case P_FINISH:
		tks_pvalue_copy(v, e->choice.finish, sizeof(e->choice.finish));
		break;
	default:
		total_value(e, v);
	}
}

static void end(struct tks_dialect_ctx *d, bool ok)
{
	struct engine *e = state(d);

	if (!ok)
		return;
	e->chunks |= e->chunk;
	if (e->chunk) {
		e->choice.token = e->choice.tokens > 0;
		e->choice.counter = e->count != TKS_NULL ? e->count : -1;
	}
	if (e->chunk)
		e->open |= 1ull << (e->choice.index & 63);
	if (e->complete && e->count != TKS_NULL) {
		e->open &= ~(1ull << (e->choice.index & 63));
		e->total += e->count;
		/* More is to come of the others. */
		if (!e->open)
			e->usage.output_tokens = e->total;
	}
	if (e->complete && !e->chunks)
		d->rec->streamed = 0;
	e->choice.natural = tks_dialect_stops(d->dialect, e->choice.finish);
	tks_reqstate_choice(d->rs, &e->choice);
	tks_reqstate_usage(d->rs, &e->usage);
	if (e->complete)
		tks_reqstate_done(d->rs);
}

static const char *const stops[] = { "stop", NULL };

static const char *const sglang_methods[] = { "/sglang.grpc.scheduler.SglangScheduler/Generate",
					      NULL };
static const char *const vllm_methods[] = { "/vllm.grpc.engine.VllmEngine/Generate", NULL };
static const char *const trtllm_methods[] = { "/trtllm.TrtllmService/Generate", NULL };

/* --- without the method's name --- */

struct first {
	bool chunk, complete;
	int64_t tokens, count, prompt;
};

static void first_value(void *ctx, const struct tks_pvalue *v)
{
	struct first *f = ctx;

	switch (v->id) {
	case P_CHUNK:
		f->chunk = true;
		break;
	case P_COMPLETE:
		f->complete = true;
		break;
	case P_TOKENS:
		if (v->type == TKS_PS_PACKED && v->num <= UINT32_MAX)
			f->tokens += (int64_t)v->num;
		break;
	case P_IN:
		f->prompt = count_of(v);
		break;
	case P_COUNT:
		f->count = count_of(v);
		break;
	default:
		break;
	}
}

/* A chunk that counts a prompt, and as many tokens as it has ids. */
static bool is_first(const struct tks_pfield *fields, size_t nfields, const void *message, size_t n)
{
	struct first f = { .count = TKS_NULL, .prompt = TKS_NULL };
	struct tks_pscan p;

	tks_pscan_begin(&p, fields, nfields, first_value, &f);
	tks_pscan_feed(&p, message, n);
	return tks_pscan_end(&p) && f.chunk && !f.complete && f.tokens > 0 && f.count == f.tokens &&
	       f.prompt > 0;
}

static void end_of(struct tks_dialect_ctx *d, bool ok, const char *product)
{
	if (!d->rec->server[0])
		strcpy(d->rec->server, product);
	end(d, ok);
}

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#define ENGINE(which, product)                                                                     \
	static void which##_end(struct tks_dialect_ctx *d, bool ok)                                \
	{                                                                                          \
		end_of(d, ok, product);                                                            \
	}                                                                                          \
	static bool which##_first(const void *message, size_t n)                                   \
	{                                                                                          \
		return is_first(which##_fields, COUNT(which##_fields), message, n);                \
	}                                                                                          \
	const struct tks_dialect tks_dialect_engine_##which = {                                    \
		.name = "engine.grpc",                                                             \
		.stops = stops,                                                                    \
		.grpc = which##_methods,                                                           \
		.begin = begin,                                                                    \
		.end = which##_end,                                                                \
		.pfields = which##_fields,                                                         \
		.npfields = COUNT(which##_fields),                                                 \
		.pvalue = pvalue,                                                                  \
		.is_first = which##_first,                                                         \
		.ask_pfields = which##_ask,                                                        \
		.nask_pfields = COUNT(which##_ask),                                                \
	}

ENGINE(sglang, "sglang");
ENGINE(vllm, "vllm");
ENGINE(trtllm, "tensorrt-llm");
