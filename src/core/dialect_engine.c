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
	tks_reqstate_choice(d->rs, &e->choice);
	tks_reqstate_usage(d->rs, &e->usage);
	if (e->complete)
		tks_reqstate_done(d->rs);
}

static const char *const sglang_methods[] = { "/sglang.grpc.scheduler.SglangScheduler/Generate",
					      NULL };
static const char *const vllm_methods[] = { "/vllm.grpc.engine.VllmEngine/Generate", NULL };
static const char *const trtllm_methods[] = { "/trtllm.TrtllmService/Generate", NULL };

#define ENGINE(which)                                                                              \
	const struct tks_dialect tks_dialect_engine_##which = {                                    \
		.name = "engine.grpc",                                                             \
		.grpc = which##_methods,                                                           \
		.begin = begin,                                                                    \
		.end = end,                                                                        \
		.pfields = which##_fields,                                                         \
		.npfields = sizeof(which##_fields) / sizeof(which##_fields[0]),                    \
		.pvalue = pvalue,                                                                  \
	}

ENGINE(sglang);
ENGINE(vllm);
ENGINE(trtllm);
