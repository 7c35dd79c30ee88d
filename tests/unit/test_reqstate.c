// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A request's figures by the definitions of design.md section 1. Each scenario states its times, so
 * that every expected value is arithmetic on them. Unless it says otherwise the request ends at
 * 1000, text comes at 2000, 2100 and 2300, and the finish frame at 2400.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "reqstate.h"

struct run {
	struct tks_mem mem;
	struct tks_reqstate *r;
	struct tks_request *rec;
	uint64_t sends;
};

static void begin_limited(struct run *u, const struct tks_reqstate_limits *limits)
{
	*u = (struct run){ .mem = TKS_MEM_INIT(0) };
	u->r = tks_reqstate_new(&u->mem, limits);
	assert_non_null(u->r);
	u->rec = tks_reqstate_record(u->r);
	u->rec->t_request_ns = 900;
	u->rec->t_request_end_ns = 1000;
	u->rec->streamed = 1;
	u->rec->dialect = "openai.chat";
}

static void begin(struct run *u)
{
	begin_limited(u, NULL);
}

static void end(struct run *u)
{
	tks_reqstate_free(u->r);
	assert_int_equal(u->mem.used, 0);
}

static const struct tks_choice_facts text_facts = {
	.token = true, .text = true, .tokens = -1, .counter = -1
};
static const struct tks_choice_facts no_facts = { .tokens = -1, .counter = -1 };

/* A frame in a send of its own; what was said before counts. */
static void frame(struct run *u, int64_t t)
{
	struct tks_frame_at at = { .t_ns = t, .send_id = ++u->sends };

	assert_int_equal(tks_reqstate_frame(u->r, &at), 0);
}

static void text_of(struct run *u, int64_t t, uint32_t index, int32_t tokens)
{
	struct tks_choice_facts f = text_facts;

	f.index = index;
	f.tokens = tokens;
	tks_reqstate_choice(u->r, &f);
	frame(u, t);
}

static void text(struct run *u, int64_t t)
{
	text_of(u, t, 0, -1);
}

/* Text with the cumulative count of the request. */
static void counted(struct run *u, int64_t t, int64_t counter)
{
	tks_reqstate_choice(u->r, &text_facts);
	tks_reqstate_counter(u->r, counter);
	frame(u, t);
}

static struct tks_choice_facts finish_facts(const char *reason)
{
	struct tks_choice_facts f = no_facts;

	strcpy(f.finish, reason);
	f.natural = strcmp(reason, "length") != 0;
	return f;
}

static void finish_of(struct run *u, int64_t t, uint32_t index, const char *reason)
{
	struct tks_choice_facts f = finish_facts(reason);

	f.index = index;
	tks_reqstate_choice(u->r, &f);
	frame(u, t);
}

static void finish(struct run *u, int64_t t, const char *reason)
{
	finish_of(u, t, 0, reason);
}

static void total(struct run *u, int64_t output)
{
	struct tks_usage g = { output, TKS_NULL, TKS_NULL, TKS_NULL };

	tks_reqstate_usage(u->r, &g);
}

/* The usage frame, the end marker and the end of the body, at 2500. */
static const struct tks_request *complete(struct run *u, int64_t output)
{
	if (output != TKS_NULL) {
		total(u, output);
		frame(u, 2500);
	}
	tks_reqstate_done(u->r);
	frame(u, 2500);
	u->rec->t_end_ns = 2500;
	return tks_reqstate_finish(u->r, TKS_OUT_COMPLETE);
}

static void three(struct run *u, const char *reason)
{
	text(u, 2000);
	text(u, 2100);
	text(u, 2300);
	finish(u, 2400, reason);
}

#define assert_null_ns(v) assert_true((v) == TKS_NULL)

/* --- counts and their source --- */

static void test_usage(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	three(&u, "length");
	q = complete(&u, 3);
	assert_int_equal(q->frames, 6);
	assert_int_equal(q->token_frames, 3);
	assert_int_equal(q->tokens, 3);
	assert_int_equal(q->tokens_source, TKS_SRC_USAGE);
	assert_int_equal(q->t_first_ns, 2000);
	assert_int_equal(q->t_last_ns, 2300);
	assert_int_equal(q->t_last_source, TKS_LAST_TEXT);
	assert_int_equal(q->t_finish_ns, 2400);
	assert_int_equal(q->ttft_ns, 1000);
	assert_int_equal(q->ttft_visible_ns, 1000);
	assert_int_equal(q->tpot_ns, 150);
	assert_int_equal(q->e2e_ns, 1500);
	assert_int_equal(q->itl.n, 2);
	assert_int_equal(q->itl.min_ns, 100);
	assert_int_equal(q->itl.mean_ns, 150);
	assert_int_equal(q->itl.p50_ns, 150);
	assert_null_ns(q->itl.p90_ns);
	assert_int_equal(q->itl.max_ns, 200);
	assert_int_equal(q->itl_per_token.n, 0);
	assert_string_equal(q->finish, "length");
	assert_int_equal(q->flags, 0);
	assert_int_equal(q->ntoken_at, 3);
	assert_int_equal(q->token_at_ns[1], 2100);
	assert_null(q->tokens_in_frame);
	assert_null(q->choices);
	end(&u);
}

static void test_frames_are_an_estimate(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	three(&u, "stop");
	q = complete(&u, TKS_NULL);
	assert_int_equal(q->tokens, 3);
	assert_int_equal(q->tokens_source, TKS_SRC_FRAMES);
	assert_int_equal(q->flags, TKS_F_ESTIMATED);
	assert_int_equal(q->tpot_ns, 150);
	end(&u);
}

/* One more in the total than in the frames: with a natural stop the finish frame is the last
 * token's arrival. */
static void test_eos_by_the_total(void **state)
{
	static const struct {
		const char *reason;
		int64_t total, t_last, tpot;
		enum tks_last_source source;
	} cases[] = {
		{ "stop", 4, 2400, 133, TKS_LAST_FINISH }, /* 400 / 3 = 133.3 */
		{ "tool_calls", 4, 2400, 133, TKS_LAST_FINISH },
		{ "length", 4, 2300, 100, TKS_LAST_TEXT },
		{ "stop", 5, 2300, 75, TKS_LAST_TEXT },
		{ "stop", 3, 2300, 150, TKS_LAST_TEXT },
		{ "stop", 2, 2300, 300, TKS_LAST_TEXT },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct tks_request *q;
		struct run u;

		begin(&u);
		three(&u, cases[i].reason);
		q = complete(&u, cases[i].total);
		assert_int_equal(q->tokens, cases[i].total);
		assert_int_equal(q->tokens_source, TKS_SRC_USAGE);
		assert_int_equal(q->t_last_ns, cases[i].t_last);
		assert_int_equal(q->t_last_source, cases[i].source);
		assert_int_equal(q->tpot_ns, cases[i].tpot);
		assert_int_equal(q->token_frames, 3);
		assert_int_equal(q->itl.n, 2);
		assert_int_equal(q->flags, 0);
		end(&u);
	}
}

/* Ids: 1, 2 and 1 tokens. Gaps 100 and 200; per token 50 and 200. */
static const struct tks_request *ids(struct run *u, const char *reason, int64_t output)
{
	begin(u);
	text_of(u, 2000, 0, 1);
	text_of(u, 2100, 0, 2);
	text_of(u, 2300, 0, 1);
	finish(u, 2400, reason);
	return complete(u, output);
}

static void test_per_frame(void **state)
{
	static const int64_t totals[] = { TKS_NULL, 4 };
	const struct tks_request *q;
	struct run u;

	(void)state;
	for (int i = 0; i < 2; i++) {
		q = ids(&u, "length", totals[i]);
		assert_int_equal(q->tokens, 4);
		assert_int_equal(q->tokens_source, TKS_SRC_PER_FRAME);
		assert_int_equal(q->flags, TKS_F_MULTI_TOKEN);
		assert_int_equal(q->tpot_ns, 100);
		assert_int_equal(q->itl.n, 2);
		assert_int_equal(q->itl.mean_ns, 150);
		assert_int_equal(q->itl_per_token.n, 2);
		assert_int_equal(q->itl_per_token.min_ns, 50);
		assert_int_equal(q->itl_per_token.mean_ns, 125);
		assert_int_equal(q->itl_per_token.max_ns, 200);
		assert_int_equal(q->tokens_in_frame[0], 1);
		assert_int_equal(q->tokens_in_frame[1], 2);
		end(&u);
	}
}

/* The end-of-sequence token may account for a difference of exactly one; else the total wins. */
static void test_per_frame_against_the_total(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	q = ids(&u, "stop", 5);
	assert_int_equal(q->tokens, 5);
	assert_int_equal(q->tokens_source, TKS_SRC_PER_FRAME);
	assert_int_equal(q->t_last_ns, 2400);
	assert_int_equal(q->tpot_ns, 100);
	assert_int_equal(q->flags, TKS_F_MULTI_TOKEN);
	end(&u);
	q = ids(&u, "length", 5);
	assert_int_equal(q->tokens, 5);
	assert_int_equal(q->tokens_source, TKS_SRC_USAGE);
	assert_int_equal(q->t_last_ns, 2300);
	assert_int_equal(q->flags, TKS_F_MULTI_TOKEN | TKS_F_COUNT_MISMATCH);
	end(&u);
	q = ids(&u, "stop", 3);
	assert_int_equal(q->tokens, 3);
	assert_int_equal(q->tokens_source, TKS_SRC_USAGE);
	assert_int_equal(q->flags, TKS_F_MULTI_TOKEN | TKS_F_COUNT_MISMATCH);
	end(&u);
}

/* One frame does not say: it is not per_frame, and no mismatch either. */
static void test_one_frame_without_a_count(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	text_of(&u, 2000, 0, 1);
	text(&u, 2100);
	text_of(&u, 2300, 0, 1);
	finish(&u, 2400, "length");
	q = complete(&u, 7);
	assert_int_equal(q->tokens, 7);
	assert_int_equal(q->tokens_source, TKS_SRC_USAGE);
	assert_int_equal(q->flags, 0);
	assert_int_equal(q->itl_per_token.n, 0);
	assert_int_equal(q->tokens_in_frame[0], 1);
	assert_int_equal(q->tokens_in_frame[1], -1);
	end(&u);
}

/*
 * Counter 1, 2, 5 (a jump of three), 5 again with text (a token frame of no counted token), 6 with
 * the finish and no text (a token frame by its step). At 2000, 2100, 2300, 2350, 2400.
 */
static void counters(struct run *u)
{
	struct tks_choice_facts f = finish_facts("stop");

	begin(u);
	counted(u, 2000, 1);
	counted(u, 2100, 2);
	counted(u, 2300, 5);
	counted(u, 2350, 5);
	tks_reqstate_choice(u->r, &f);
	tks_reqstate_counter(u->r, 6);
	frame(u, 2400);
}

static void test_counter_steps(void **state)
{
	static const int32_t steps[] = { 1, 1, 3, 0, 1 };
	static const int64_t totals[] = { TKS_NULL, 6 };
	const struct tks_request *q;
	struct run u;

	(void)state;
	for (int k = 0; k < 2; k++) {
		counters(&u);
		q = complete(&u, totals[k]);
		assert_int_equal(q->tokens, 6);
		assert_int_equal(q->tokens_source, TKS_SRC_PER_FRAME);
		assert_int_equal(q->token_frames, 5);
		assert_int_equal(q->t_last_ns, 2400);
		assert_int_equal(q->t_last_source, TKS_LAST_FINISH);
		assert_int_equal(q->tpot_ns, 80);
		assert_int_equal(q->flags, TKS_F_MULTI_TOKEN);
		for (int i = 0; i < 5; i++)
			assert_int_equal(q->tokens_in_frame[i], steps[i]);
		/* 100 / 1, 200 / 3 (66.7), not 50 / 0, 50 / 1. */
		assert_int_equal(q->itl.n, 4);
		assert_int_equal(q->itl_per_token.n, 3);
		assert_int_equal(q->itl_per_token.min_ns, 50);
		assert_int_equal(q->itl_per_token.p50_ns, 67);
		assert_int_equal(q->itl_per_token.max_ns, 100);
		end(&u);
	}
}

/* The finish frame was counted as a token already: one more in the total is not another of its. */
static void test_eos_counts_once(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	counters(&u);
	q = complete(&u, 7);
	assert_int_equal(q->tokens, 7);
	assert_int_equal(q->tokens_source, TKS_SRC_USAGE);
	assert_int_equal(q->flags, TKS_F_MULTI_TOKEN | TKS_F_COUNT_MISMATCH);
	assert_int_equal(q->t_last_ns, 2400);
	end(&u);
}

/* A counter that falls behind the tokens, or back, proves nothing. */
static void test_counter_that_stops(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	counted(&u, 2000, 1);
	counted(&u, 2100, 2);
	text(&u, 2300);
	q = complete(&u, TKS_NULL);
	assert_int_equal(q->tokens, 3);
	assert_int_equal(q->tokens_source, TKS_SRC_FRAMES);
	assert_int_equal(q->flags, TKS_F_ESTIMATED);
	end(&u);
	begin(&u);
	counted(&u, 2000, 3);
	counted(&u, 2100, 1);
	counted(&u, 2300, 4);
	q = complete(&u, TKS_NULL);
	assert_int_equal(q->tokens, 4);
	assert_int_equal(q->tokens_in_frame[0], 3);
	assert_int_equal(q->tokens_in_frame[1], 0);
	assert_int_equal(q->tokens_in_frame[2], 1);
	end(&u);
}

/* Ids and a counter in one frame: the ids are what the frame holds. */
static void test_ids_before_counters(void **state)
{
	const struct tks_request *q;
	struct run u;
	struct tks_choice_facts f = text_facts;

	(void)state;
	begin(&u);
	f.tokens = 2;
	tks_reqstate_choice(u.r, &f);
	tks_reqstate_counter(u.r, 3);
	frame(&u, 2000);
	counted(&u, 2100, 4);
	q = complete(&u, TKS_NULL);
	assert_int_equal(q->tokens_in_frame[0], 2);
	assert_int_equal(q->tokens_in_frame[1], 1);
	assert_int_equal(q->tokens, 4);
	assert_int_equal(q->tokens_source, TKS_SRC_USAGE);
	assert_true(q->flags & TKS_F_COUNT_MISMATCH);
	end(&u);
}

/* Cumulative: the last counts; a zero from a server that fills in nothing does not. */
static void test_usage_is_cumulative(void **state)
{
	struct tks_usage first = { 0, 12, 8, TKS_NULL }, last = { 3, 0, TKS_NULL, 1 };
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	tks_reqstate_usage(u.r, &first);
	three(&u, "length");
	total(&u, 2);
	tks_reqstate_usage(u.r, &last);
	total(&u, 0);
	q = complete(&u, TKS_NULL);
	assert_int_equal(q->tokens, 3);
	assert_int_equal(q->prompt_tokens, 12);
	assert_int_equal(q->cached_tokens, 8);
	assert_int_equal(q->reasoning_tokens, 1);
	end(&u);
	begin(&u);
	three(&u, "length");
	q = complete(&u, 0);
	assert_int_equal(q->tokens, 3);
	assert_int_equal(q->tokens_source, TKS_SRC_FRAMES);
	end(&u);
}

/* --- the finish frame --- */

/* The dialect says that it is a token: vLLM's end-of-sequence token. */
static void test_finish_is_a_token(void **state)
{
	struct tks_choice_facts f = finish_facts("stop");
	const struct tks_request *q;
	struct run u;

	(void)state;
	f.finish_is_token = true;
	begin(&u);
	text(&u, 2000);
	text(&u, 2100);
	tks_reqstate_choice(u.r, &f);
	frame(&u, 2400);
	q = complete(&u, 3);
	assert_int_equal(q->token_frames, 3);
	assert_int_equal(q->t_last_ns, 2400);
	assert_int_equal(q->t_finish_ns, 2400);
	assert_int_equal(q->t_last_source, TKS_LAST_FINISH);
	assert_int_equal(q->tpot_ns, 200);
	assert_int_equal(q->flags, 0);
	end(&u);
}

/* ... but its ids say that it holds none. */
static void test_finish_that_says_none(void **state)
{
	struct tks_choice_facts f = finish_facts("stop");
	const struct tks_request *q;
	struct run u;

	(void)state;
	f.finish_is_token = true;
	f.tokens = 0;
	begin(&u);
	text_of(&u, 2000, 0, 1);
	text_of(&u, 2100, 0, 1);
	tks_reqstate_choice(u.r, &f);
	frame(&u, 2400);
	q = complete(&u, TKS_NULL);
	assert_int_equal(q->tokens, 2);
	assert_int_equal(q->tokens_source, TKS_SRC_PER_FRAME);
	assert_int_equal(q->t_last_ns, 2100);
	end(&u);
}

/* Text in the finish frame: its time is the last token's, as text. */
static void test_finish_with_text(void **state)
{
	struct tks_choice_facts f = text_facts;
	const struct tks_request *q;
	struct run u;

	(void)state;
	strcpy(f.finish, "stop");
	begin(&u);
	text(&u, 2000);
	tks_reqstate_choice(u.r, &f);
	frame(&u, 2400);
	q = complete(&u, 2);
	assert_int_equal(q->t_last_ns, 2400);
	assert_int_equal(q->t_last_source, TKS_LAST_TEXT);
	assert_int_equal(q->tpot_ns, 400);
	end(&u);
}

static void test_one_token(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	text(&u, 2000);
	finish(&u, 2400, "length");
	q = complete(&u, 1);
	assert_int_equal(q->tokens, 1);
	assert_int_equal(q->ttft_ns, 1000);
	assert_int_equal(q->t_last_ns, 2000);
	assert_null_ns(q->tpot_ns);
	assert_int_equal(q->itl.n, 0);
	assert_null_ns(q->itl.max_ns);
	end(&u);
}

/* Two tokens in the only frame: TPOT exists, and is 0. */
static void test_two_tokens_one_frame(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	text_of(&u, 2000, 0, 2);
	q = complete(&u, TKS_NULL);
	assert_int_equal(q->tokens, 2);
	assert_int_equal(q->tpot_ns, 0);
	assert_int_equal(q->itl.n, 0);
	end(&u);
}

static void test_no_token(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	tks_reqstate_choice(u.r, &no_facts);
	frame(&u, 1500);
	finish(&u, 2400, "length");
	q = complete(&u, TKS_NULL);
	assert_int_equal(q->frames, 3);
	assert_int_equal(q->token_frames, 0);
	assert_int_equal(q->tokens, 0);
	assert_int_equal(q->tokens_source, TKS_SRC_NONE);
	assert_null_ns(q->ttft_ns);
	assert_null_ns(q->ttft_visible_ns);
	assert_null_ns(q->t_last_ns);
	assert_int_equal(q->t_last_source, TKS_LAST_NONE);
	assert_null_ns(q->tpot_ns);
	assert_int_equal(q->ntoken_at, 0);
	end(&u);
	/* In a stream that nobody can read none were seen, which is not the same as none. */
	begin(&u);
	u.rec->dialect = "unknown";
	frame(&u, 1500);
	q = complete(&u, TKS_NULL);
	assert_null_ns(q->tokens);
	end(&u);
	begin(&u);
	u.rec->flags |= TKS_F_OPAQUE;
	q = complete(&u, TKS_NULL);
	assert_null_ns(q->tokens);
	end(&u);
}

/* --- sends, reasoning --- */

static void test_coalesced(void **state)
{
	struct tks_frame_at at = { .t_ns = 2100, .send_id = 5 };
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	text(&u, 2000);
	for (int i = 0; i < 2; i++) {
		tks_reqstate_choice(u.r, &text_facts);
		assert_int_equal(tks_reqstate_frame(u.r, &at), 0);
	}
	q = complete(&u, 3);
	assert_int_equal(q->flags, TKS_F_COALESCED);
	assert_int_equal(q->itl.n, 2);
	assert_int_equal(q->itl.min_ns, 0);
	assert_int_equal(q->tpot_ns, 50);
	end(&u);
	/* Other frames may share the send (vLLM's role frame and first token). */
	begin(&u);
	at.send_id = 9;
	tks_reqstate_choice(u.r, &no_facts);
	assert_int_equal(tks_reqstate_frame(u.r, &at), 0);
	tks_reqstate_choice(u.r, &text_facts);
	assert_int_equal(tks_reqstate_frame(u.r, &at), 0);
	text(&u, 2100);
	q = complete(&u, 2);
	assert_int_equal(q->flags, 0);
	end(&u);
}

static void test_reasoning(void **state)
{
	struct tks_choice_facts f = text_facts;
	const struct tks_request *q;
	struct run u;

	(void)state;
	f.reasoning = true;
	begin(&u);
	tks_reqstate_choice(u.r, &f);
	frame(&u, 2000);
	/* Reasoning and visible text in one frame: visible. */
	tks_reqstate_choice(u.r, &f);
	tks_reqstate_choice(u.r, &text_facts);
	frame(&u, 2100);
	text(&u, 2300);
	q = complete(&u, 3);
	assert_int_equal(q->ttft_ns, 1000);
	assert_int_equal(q->ttft_visible_ns, 1100);
	assert_int_equal(q->token_frames, 3);
	end(&u);
	begin(&u);
	tks_reqstate_choice(u.r, &f);
	frame(&u, 2000);
	q = complete(&u, 1);
	assert_int_equal(q->ttft_ns, 1000);
	assert_null_ns(q->ttft_visible_ns);
	end(&u);
}

/* Several entries for one choice in a frame (parallel tool calls) are one arrival; ids add up. */
static void test_entries_of_one_choice(void **state)
{
	struct tks_choice_facts f = text_facts;
	const struct tks_request *q;
	struct run u;

	(void)state;
	f.tokens = 2;
	begin(&u);
	tks_reqstate_choice(u.r, &f);
	f.tokens = 3;
	tks_reqstate_choice(u.r, &f);
	frame(&u, 2000);
	q = complete(&u, 5);
	assert_int_equal(q->token_frames, 1);
	assert_int_equal(q->tokens, 5);
	assert_int_equal(q->tokens_source, TKS_SRC_PER_FRAME);
	end(&u);
}

/* --- more than one choice --- */

/*
 * Choice 0 at 2000, 2100, 2300; choice 1 at 2050, 2250 and its finish at 2260. In time order 2000
 * 2050 2100 2250 2300: gaps 50, 50, 150, 50. Choice 0: 100, 200. Choice 1: 200.
 */
static void test_choices(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	text_of(&u, 2000, 0, 1);
	text_of(&u, 2050, 1, 2);
	text_of(&u, 2100, 0, 1);
	text_of(&u, 2250, 1, 2);
	finish_of(&u, 2260, 1, "stop");
	text_of(&u, 2300, 0, 1);
	finish_of(&u, 2400, 0, "length");
	q = complete(&u, 7);
	assert_int_equal(q->tokens, 7);
	assert_int_equal(q->tokens_source, TKS_SRC_PER_FRAME);
	assert_int_equal(q->token_frames, 5);
	assert_null_ns(q->tpot_ns);
	assert_int_equal(q->t_first_ns, 2000);
	assert_int_equal(q->t_last_ns, 2300);
	assert_int_equal(q->t_finish_ns, 2400);
	assert_int_equal(q->itl.n, 4);
	assert_int_equal(q->itl.mean_ns, 75);
	assert_int_equal(q->itl.max_ns, 150);
	assert_string_equal(q->finish, "length");
	assert_int_equal(q->nchoices, 2);
	assert_int_equal(q->choices[0].index, 0);
	assert_int_equal(q->choices[0].tokens, 3);
	assert_int_equal(q->choices[0].token_frames, 3);
	assert_int_equal(q->choices[0].tpot_ns, 150);
	assert_int_equal(q->choices[0].itl.n, 2);
	assert_int_equal(q->choices[0].itl.max_ns, 200);
	assert_string_equal(q->choices[0].finish, "length");
	assert_int_equal(q->choices[1].index, 1);
	assert_int_equal(q->choices[1].tokens, 4);
	assert_int_equal(q->choices[1].tpot_ns, 67); /* 200 / 3 */
	assert_int_equal(q->choices[1].itl.n, 1);
	assert_string_equal(q->choices[1].finish, "stop");
	end(&u);
}

/* Without counts in the frames nobody knows whose tokens the total's are. */
static void test_choices_with_a_total_only(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	text_of(&u, 2000, 0, -1);
	text_of(&u, 2050, 3, -1);
	finish_of(&u, 2100, 3, "stop");
	q = complete(&u, 3);
	assert_int_equal(q->tokens, 3);
	/* The rule of the finish frame is for one choice: whose is missing is not known. */
	assert_int_equal(q->t_last_ns, 2050);
	assert_int_equal(q->choices[1].index, 3);
	assert_null_ns(q->choices[1].tokens);
	assert_null_ns(q->choices[1].tpot_ns);
	assert_int_equal(q->choices[1].itl.n, 0);
	end(&u);
}

/* vLLM counts each choice by itself. */
static void test_counters_per_choice(void **state)
{
	struct tks_choice_facts f = text_facts;
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	for (int i = 0; i < 6; i++) {
		f.index = (uint32_t)i % 2;
		f.counter = f.index ? 3 * (i / 2 + 1) : i / 2 + 1;
		tks_reqstate_choice(u.r, &f);
		frame(&u, 2000 + 10 * i);
	}
	q = complete(&u, TKS_NULL);
	/* 3 in steps of one, 9 in steps of three. */
	assert_int_equal(q->tokens, 12);
	assert_int_equal(q->tokens_source, TKS_SRC_PER_FRAME);
	assert_int_equal(q->flags, TKS_F_MULTI_TOKEN);
	assert_int_equal(q->choices[0].tokens, 3);
	assert_int_equal(q->choices[1].tokens, 9);
	assert_int_equal(q->choices[1].tpot_ns, 5);
	end(&u);
}

/* All choices in one frame with the request's count: how many are whose is not said, the total is
 * known. */
static void test_one_counter_for_two_choices(void **state)
{
	struct tks_choice_facts f = text_facts;
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	for (int k = 1; k <= 2; k++) {
		for (f.index = 0; f.index < 2; f.index++)
			tks_reqstate_choice(u.r, &f);
		tks_reqstate_counter(u.r, 3 * k);
		frame(&u, 2000 + 100 * k);
	}
	q = complete(&u, TKS_NULL);
	assert_int_equal(q->frames, 3);
	assert_int_equal(q->token_frames, 4);
	assert_int_equal(q->tokens, 6);
	assert_int_equal(q->tokens_source, TKS_SRC_USAGE);
	assert_int_equal(q->choices[0].itl.n, 1);
	assert_int_equal(q->choices[0].itl.max_ns, 100);
	assert_null_ns(q->choices[0].tokens);
	end(&u);
}

/* --- holes --- */

static void test_hole_before_the_first(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	tks_reqstate_hole(u.r);
	three(&u, "length");
	q = complete(&u, 9);
	assert_int_equal(q->flags, TKS_F_LOST);
	assert_null_ns(q->t_first_ns);
	assert_null_ns(q->ttft_ns);
	assert_null_ns(q->ttft_visible_ns);
	assert_null_ns(q->tpot_ns);
	assert_int_equal(q->tokens, 9);
	assert_int_equal(q->tokens_source, TKS_SRC_USAGE);
	assert_int_equal(q->t_last_ns, 2300);
	assert_int_equal(q->itl.n, 2);
	end(&u);
}

/* In the middle: no gap across it; counts by frames are void, the total stands. */
static void test_hole_in_the_middle(void **state)
{
	static const int64_t totals[] = { TKS_NULL, 8 };

	(void)state;
	for (int i = 0; i < 2; i++) {
		const struct tks_request *q;
		struct run u;

		begin(&u);
		text_of(&u, 2000, 0, 1);
		text_of(&u, 2100, 0, 1);
		tks_reqstate_hole(u.r);
		text_of(&u, 2250, 0, 1);
		text_of(&u, 2300, 0, 1);
		finish(&u, 2400, "length");
		q = complete(&u, totals[i]);
		assert_int_equal(q->flags, TKS_F_LOST);
		assert_int_equal(q->tokens, totals[i]);
		assert_int_equal(q->tokens_source, i ? TKS_SRC_USAGE : TKS_SRC_NONE);
		assert_int_equal(q->t_first_ns, 2000);
		assert_int_equal(q->t_last_ns, 2300);
		assert_int_equal(q->ttft_ns, 1000);
		assert_int_equal(q->tpot_ns, i ? 43 : TKS_NULL); /* 300 / 7 = 42.9 */
		assert_int_equal(q->itl.n, 2);
		assert_int_equal(q->itl.min_ns, 50);
		assert_int_equal(q->itl.max_ns, 100);
		end(&u);
	}
}

/* Behind the last one seen: there may have been others. */
static void test_hole_behind_the_last(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	text(&u, 2000);
	text(&u, 2100);
	tks_reqstate_hole(u.r);
	finish(&u, 2400, "length");
	q = complete(&u, 5);
	assert_int_equal(q->tokens, 5);
	assert_int_equal(q->ttft_ns, 1000);
	assert_null_ns(q->t_last_ns);
	assert_int_equal(q->t_last_source, TKS_LAST_NONE);
	assert_null_ns(q->tpot_ns);
	assert_int_equal(q->itl.n, 1);
	end(&u);
}

/* The total may be one more than the frames for the hole's sake: whether the finish was a token is
 * not known. */
static void test_hole_and_natural_stop(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	text(&u, 2000);
	tks_reqstate_hole(u.r);
	text(&u, 2300);
	finish(&u, 2400, "stop");
	q = complete(&u, 3);
	assert_null_ns(q->t_last_ns);
	assert_null_ns(q->tpot_ns);
	assert_int_equal(q->ttft_ns, 1000);
	end(&u);
}

/* A counter's step across the hole is not what the frame behind it holds, for any choice. */
static void test_hole_and_counters(void **state)
{
	struct tks_choice_facts f = text_facts;
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	counted(&u, 2000, 1);
	tks_reqstate_hole(u.r);
	counted(&u, 2100, 40);
	counted(&u, 2300, 41);
	q = complete(&u, TKS_NULL);
	assert_int_equal(q->flags, TKS_F_LOST);
	assert_int_equal(q->tokens_in_frame[1], -1);
	assert_int_equal(q->tokens_in_frame[2], 1);
	assert_null_ns(q->tokens);
	end(&u);
	begin(&u);
	for (int round = 0; round < 2; round++) {
		for (f.index = 0; f.index < 3; f.index++) {
			f.counter = 1 + 50 * round;
			/* The third choice is first heard of behind the hole. */
			if (!round && f.index == 2)
				continue;
			tks_reqstate_choice(u.r, &f);
			frame(&u, 2000 + 100 * round + f.index);
		}
		if (!round)
			tks_reqstate_hole(u.r);
	}
	q = complete(&u, TKS_NULL);
	assert_int_equal(q->flags, TKS_F_LOST);
	for (int i = 2; i < 5; i++)
		assert_int_equal(q->tokens_in_frame[i], -1);
	end(&u);
}

/* What was said of a frame that the hole cut is forgotten. */
static void test_hole_voids_the_frame_under_way(void **state)
{
	struct tks_choice_facts f = text_facts;
	const struct tks_request *q;
	struct run u;

	(void)state;
	strcpy(f.finish, "stop");
	begin(&u);
	text(&u, 2000);
	tks_reqstate_choice(u.r, &f);
	tks_reqstate_counter(u.r, 9);
	tks_reqstate_hole(u.r);
	frame(&u, 2100);
	assert_false(tks_reqstate_ended(u.r));
	u.rec->t_end_ns = 2500;
	q = tks_reqstate_finish(u.r, TKS_OUT_CUT);
	assert_int_equal(q->token_frames, 1);
	assert_null_ns(q->t_finish_ns);
	assert_string_equal(q->finish, "cut");
	end(&u);
}

/* Joined in the middle: when it began and what came before are not known. */
static void test_mid_stream(void **state)
{
	static const int64_t totals[] = { TKS_NULL, 50 };

	(void)state;
	for (int i = 0; i < 2; i++) {
		const struct tks_request *q;
		struct run u;

		begin(&u);
		u.rec->flags |= TKS_F_MID_STREAM;
		counted(&u, 2000, 47);
		counted(&u, 2100, 48);
		counted(&u, 2300, 49);
		finish(&u, 2400, "length");
		q = complete(&u, totals[i]);
		assert_int_equal(q->flags, TKS_F_MID_STREAM);
		assert_null_ns(q->t_first_ns);
		assert_null_ns(q->ttft_ns);
		assert_null_ns(q->tpot_ns);
		assert_int_equal(q->tokens, totals[i]);
		assert_int_equal(q->t_last_ns, 2300);
		assert_int_equal(q->itl.n, 2);
		/* The first count heard is not the frame's own. */
		assert_int_equal(q->tokens_in_frame[0], -1);
		assert_int_equal(q->tokens_in_frame[1], 1);
		end(&u);
	}
}

/* A frame whose time is not known any more: no figure is made with it. */
static void test_unknown_times(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	text(&u, 2000);
	text(&u, TKS_NULL);
	text(&u, 2200);
	text(&u, 2300);
	q = complete(&u, 4);
	assert_int_equal(q->itl.n, 1);
	assert_int_equal(q->itl.max_ns, 100);
	assert_int_equal(q->tpot_ns, 100);
	end(&u);
	begin(&u);
	for (int i = 0; i < 3; i++) {
		struct tks_frame_at at = { .t_ns = TKS_NULL };

		tks_reqstate_choice(u.r, &text_facts);
		assert_int_equal(tks_reqstate_frame(u.r, &at), 0);
	}
	text_of(&u, 2300, 1, 1);
	text_of(&u, TKS_NULL, 1, 1);
	q = complete(&u, 5);
	assert_int_equal(q->flags, 0);
	assert_null_ns(q->ttft_ns);
	/* Which of the first three was the first visible one is known, when it came is not. */
	assert_null_ns(q->ttft_visible_ns);
	assert_null_ns(q->t_last_ns);
	assert_int_equal(q->itl.n, 0);
	assert_null_ns(q->choices[1].tpot_ns);
	end(&u);
}

/* --- how it ends --- */

static void test_outcomes(void **state)
{
	static const struct {
		enum tks_outcome how;
		const char *finish;
	} cases[] = {
		{ TKS_OUT_COMPLETE, "" },
		{ TKS_OUT_ABORTED, "aborted" },
		{ TKS_OUT_CUT, "cut" },
		{ TKS_OUT_OPEN, "open" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct tks_request *q;
		struct run u;

		begin(&u);
		text(&u, 2000);
		text(&u, 2100);
		u.rec->t_end_ns = 2500;
		q = tks_reqstate_finish(u.r, cases[i].how);
		assert_string_equal(q->finish, cases[i].finish);
		assert_int_equal(q->e2e_ns, i ? TKS_NULL : 1500);
		assert_int_equal(q->tokens, 2);
		assert_int_equal(q->ttft_ns, 1000);
		end(&u);
	}
}

/* The server's own word goes before how the connection ended; an error before both. */
static void test_finish_and_errors(void **state)
{
	static const struct {
		const char *kind, *code, *error;
	} cases[] = {
		{ "server_error", "500", "server_error: 500" },
		{ "server_error", "", "server_error" },
		{ "", "500", "500" },
		{ "", "", "error" },
	};
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	three(&u, "stop");
	q = tks_reqstate_finish(u.r, TKS_OUT_ABORTED);
	assert_string_equal(q->finish, "stop");
	end(&u);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		begin(&u);
		text(&u, 2000);
		assert_false(tks_reqstate_ended(u.r));
		tks_reqstate_error(u.r, cases[i].kind, cases[i].code);
		frame(&u, 2100);
		assert_true(tks_reqstate_ended(u.r));
		q = complete(&u, TKS_NULL);
		assert_string_equal(q->finish, "error");
		assert_string_equal(q->error, cases[i].error);
		end(&u);
	}
}

static void test_ended(void **state)
{
	struct run u;

	(void)state;
	begin(&u);
	text(&u, 2000);
	assert_false(tks_reqstate_ended(u.r));
	finish(&u, 2100, "stop");
	assert_true(tks_reqstate_ended(u.r));
	end(&u);
	begin(&u);
	tks_reqstate_done(u.r);
	assert_true(tks_reqstate_ended(u.r));
	end(&u);
}

/* An answer in one piece: counts and E2E, nothing else. */
static void test_not_streamed(void **state)
{
	struct tks_choice_facts f = finish_facts("stop");
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	u.rec->streamed = 0;
	u.rec->send_wait_ns = 7;
	tks_reqstate_choice(u.r, &f);
	total(&u, 12);
	frame(&u, 2400);
	u.rec->t_end_ns = 2500;
	q = tks_reqstate_finish(u.r, TKS_OUT_COMPLETE);
	assert_int_equal(q->tokens, 12);
	assert_int_equal(q->tokens_source, TKS_SRC_USAGE);
	assert_int_equal(q->e2e_ns, 1500);
	assert_int_equal(q->send_wait_ns, 7);
	assert_null_ns(q->ttft_ns);
	assert_null_ns(q->tpot_ns);
	assert_null_ns(q->t_last_ns);
	assert_int_equal(q->itl.n, 0);
	assert_string_equal(q->finish, "stop");
	end(&u);
}

/* Times of the ends that were not seen. */
static void test_unseen_ends(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	u.rec->t_request_end_ns = TKS_NULL;
	three(&u, "length");
	q = complete(&u, 3);
	assert_null_ns(q->ttft_ns);
	assert_null_ns(q->ttft_visible_ns);
	assert_null_ns(q->e2e_ns);
	assert_int_equal(q->t_first_ns, 2000);
	assert_int_equal(q->tpot_ns, 150);
	end(&u);
}

/* --- limits --- */

/* Past the limit the series and its percentiles go, and nothing else. */
static void test_limit_of_times(void **state)
{
	static const struct tks_reqstate_limits limits = { .token_times = 20 };

	(void)state;
	for (int n = 19; n <= 21; n++) {
		const struct tks_request *q;
		struct run u;

		begin_limited(&u, &limits);
		for (int i = 0; i < n; i++)
			text_of(&u, 2000 + 10 * i, 0, 1);
		q = complete(&u, TKS_NULL);
		assert_int_equal(q->token_frames, n);
		assert_int_equal(q->tokens, n);
		assert_int_equal(q->tokens_source, TKS_SRC_PER_FRAME);
		assert_int_equal(q->t_last_ns, 2000 + 10 * (n - 1));
		assert_int_equal(q->tpot_ns, 10);
		assert_int_equal(q->itl.n, n > 20 ? 0 : n - 1);
		assert_int_equal(q->flags, n > 20 ? TKS_F_TRUNCATED : 0);
		assert_int_equal(q->ntoken_at, n > 20 ? 20 : n);
		end(&u);
	}
}

static void test_limit_of_choices(void **state)
{
	static const struct tks_reqstate_limits limits = { .choices = 3 };

	(void)state;
	for (uint32_t n = 2; n <= 4; n++) {
		const struct tks_request *q;
		struct run u;

		begin_limited(&u, &limits);
		for (uint32_t i = 0; i < n; i++)
			text_of(&u, 2000 + i, i, 1);
		q = complete(&u, TKS_NULL);
		assert_int_equal(q->nchoices, n > 3 ? 3 : n);
		assert_int_equal(q->flags, n > 3 ? TKS_F_TRUNCATED : 0);
		/* What the choices left out held is not known. */
		assert_int_equal(q->tokens, n > 3 ? TKS_NULL : (int64_t)n);
		assert_int_equal(q->t_last_ns, n > 3 ? TKS_NULL : 2000 + (int64_t)n - 1);
		end(&u);
	}
}

static void test_many_tokens(void **state)
{
	const struct tks_request *q;
	struct run u;

	(void)state;
	begin(&u);
	/* Gaps of 1 ... 1000: p50 500.5, p90 900.1, p99 990.01. */
	for (int64_t i = 0, t = 2000; i <= 1000; i++, t += i)
		text_of(&u, t, 0, 1);
	assert_true(u.mem.peak < 64 * 1000);
	q = complete(&u, TKS_NULL);
	assert_int_equal(q->tokens, 1001);
	assert_int_equal(q->itl.n, 1000);
	assert_int_equal(q->itl.min_ns, 1);
	assert_int_equal(q->itl.mean_ns, 501);
	assert_int_equal(q->itl.p50_ns, 501);
	assert_int_equal(q->itl.p90_ns, 900);
	assert_int_equal(q->itl.p99_ns, 990);
	assert_int_equal(q->itl.max_ns, 1000);
	assert_int_equal(q->tpot_ns, 501); /* 500500 / 1000 = 500.5 */
	end(&u);
}

/* Whatever allocation fails: what is said is right, what is missing is flagged, nothing leaks. */
static void one_short_of_memory(uint64_t fail, bool *failed)
{
	struct tks_mem mem = { .fail_at = fail };
	struct tks_reqstate *r = tks_reqstate_new(&mem, NULL);
	struct tks_choice_facts f = text_facts;
	const struct tks_request *q;
	int err = 0;

	*failed = true;
	if (!r)
		return;
	tks_reqstate_record(r)->streamed = 1;
	tks_reqstate_record(r)->dialect = "openai.chat";
	f.tokens = 1;
	for (int i = 0; i < 40; i++) {
		struct tks_frame_at at = { .t_ns = 2000 + 10 * i, .send_id = (uint64_t)i };

		f.index = i >= 20;
		tks_reqstate_choice(r, &f);
		err |= tks_reqstate_frame(r, &at);
	}
	q = tks_reqstate_finish(r, TKS_OUT_COMPLETE);
	*failed = mem.failed;
	assert_int_equal(!!(q->flags & TKS_F_TRUNCATED), *failed);
	assert_true(!err || err == -ENOMEM);
	assert_true(q->tokens == 40 || (*failed && q->tokens == TKS_NULL));
	assert_true(q->itl.n == 39 || (*failed && !q->itl.n));
	/* The first call that fails is all that fails from then on: the first times may be missing.
	 */
	assert_true(q->t_first_ns == 2000 || (*failed && !q->token_frames));
	tks_reqstate_free(r);
	assert_int_equal(mem.used, 0);
}

static void test_no_memory(void **state)
{
	bool failed = true;
	uint64_t n = 0;

	(void)state;
	while (failed)
		one_short_of_memory(++n, &failed);
	/* New; choices 1 and 2; times 16, 32 and 64; choices, gaps, two series out. */
	assert_int_equal(n, 11);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_usage),
		cmocka_unit_test(test_frames_are_an_estimate),
		cmocka_unit_test(test_eos_by_the_total),
		cmocka_unit_test(test_per_frame),
		cmocka_unit_test(test_per_frame_against_the_total),
		cmocka_unit_test(test_one_frame_without_a_count),
		cmocka_unit_test(test_counter_steps),
		cmocka_unit_test(test_eos_counts_once),
		cmocka_unit_test(test_counter_that_stops),
		cmocka_unit_test(test_ids_before_counters),
		cmocka_unit_test(test_usage_is_cumulative),
		cmocka_unit_test(test_finish_is_a_token),
		cmocka_unit_test(test_finish_that_says_none),
		cmocka_unit_test(test_finish_with_text),
		cmocka_unit_test(test_one_token),
		cmocka_unit_test(test_two_tokens_one_frame),
		cmocka_unit_test(test_no_token),
		cmocka_unit_test(test_coalesced),
		cmocka_unit_test(test_reasoning),
		cmocka_unit_test(test_entries_of_one_choice),
		cmocka_unit_test(test_choices),
		cmocka_unit_test(test_choices_with_a_total_only),
		cmocka_unit_test(test_counters_per_choice),
		cmocka_unit_test(test_one_counter_for_two_choices),
		cmocka_unit_test(test_hole_before_the_first),
		cmocka_unit_test(test_hole_in_the_middle),
		cmocka_unit_test(test_hole_behind_the_last),
		cmocka_unit_test(test_hole_and_natural_stop),
		cmocka_unit_test(test_hole_and_counters),
		cmocka_unit_test(test_hole_voids_the_frame_under_way),
		cmocka_unit_test(test_mid_stream),
		cmocka_unit_test(test_unknown_times),
		cmocka_unit_test(test_outcomes),
		cmocka_unit_test(test_finish_and_errors),
		cmocka_unit_test(test_ended),
		cmocka_unit_test(test_not_streamed),
		cmocka_unit_test(test_unseen_ends),
		cmocka_unit_test(test_limit_of_times),
		cmocka_unit_test(test_limit_of_choices),
		cmocka_unit_test(test_many_tokens),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
