// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Response bodies to figures, dialect by dialect, through the real request state: bytes by hand
 * after what each server writes, whole, a byte at a time and cut at every place. A byte's time is
 * its offset in microseconds, so that a frame's time is the offset of its blank line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decoder.h"

#define CH "\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","
#define CT "\"id\":\"c2\",\"object\":\"text_completion\",\"created\":1,\"model\":\"m\","
#define DATA(json) "data: {" json "}\n\n"
#define CHOICE(rest) "\"choices\":[{\"index\":0," rest "}]"
#define TEXT(t) DATA(CH CHOICE("\"delta\":{\"content\":\"" t "\"},\"finish_reason\":null"))
#define ROLE                                                                                       \
	DATA(CH CHOICE(                                                                            \
		"\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null"))
#define USAGE(n)                                                                                   \
	DATA(CH "\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":" #n "}")
#define DONE "data: [DONE]\n\n"

static void time_at(void *ctx, struct tks_frame_at *at)
{
	(void)ctx;
	at->t_ns = (int64_t)at->last_off * 1000;
	at->send_id = at->last_off;
}

struct want {
	int64_t tokens, token_frames, frames;
	enum tks_tokens_source source;
	enum tks_last_source last;
	uint32_t flags;
	const char *finish, *server, *error;
	int64_t reasoning_first; /* 1: the first token is not visible */
};

struct input {
	const char *body, *type, *server, *encoding, *target;
	const struct tks_ask *ask;
};

static void judge(const struct tks_request *q, const struct want *w)
{
	assert_int_equal(q->tokens, w->tokens);
	assert_int_equal(q->token_frames, w->token_frames);
	assert_int_equal(q->frames, w->frames);
	assert_int_equal(q->tokens_source, w->source);
	assert_int_equal(q->t_last_source, w->last);
	assert_int_equal(q->flags, w->flags);
	assert_string_equal(q->finish, w->finish);
	assert_string_equal(q->server, w->server);
	assert_string_equal(q->error, w->error);
	if (w->reasoning_first)
		assert_true(q->t_visible_ns > q->t_first_ns);
}

static void decode(const struct input *in, size_t first, size_t piece, const struct want *w)
{
	struct tks_mem mem = { 0 };
	struct tks_h1_head head = { .side = TKS_H1_RESPONSE, .status = 200 };
	struct tks_reqstate *rs = tks_reqstate_new(&mem, NULL);
	size_t n = strlen(in->body);
	struct tks_decoder *d;

	snprintf(head.content_type, sizeof(head.content_type), "%s",
		 in->type ? in->type : "text/event-stream");
	snprintf(head.server, sizeof(head.server), "%s", in->server ? in->server : "");
	snprintf(head.content_encoding, sizeof(head.content_encoding), "%s",
		 in->encoding ? in->encoding : "");
	d = tks_decoder_new(&mem, rs, &head, in->ask,
			    in->target ? in->target : "/v1/chat/completions", time_at, NULL);
	for (size_t i = 0; i < n;) {
		size_t k = i ? piece : first;
		struct tks_slice s = { NULL, k < n - i ? k : n - i, i };
		uint8_t *copy = malloc(s.len);

		memcpy(copy, in->body + i, s.len);
		s.data = copy;
		assert_int_equal(tks_decoder_data(d, &s), 0);
		free(copy);
		i += s.len;
	}
	tks_decoder_end(d);
	judge(tks_reqstate_finish(rs, TKS_OUT_COMPLETE), w);
	tks_decoder_free(d);
	tks_reqstate_free(rs);
	assert_int_equal(mem.used, 0);
}

static void check(const struct input *in, const struct want *w)
{
	size_t n = strlen(in->body);

	decode(in, n, n, w);
	decode(in, 1, 1, w);
	for (size_t cut = 1; cut < n; cut++)
		decode(in, cut, n, w);
}

/* The role frame is no token, the finish frame with its stop_reason is the last one. */
static void test_vllm_chat(void **state)
{
	const struct input in = {
		.body = ROLE TEXT("a") TEXT("b") DATA(CH CHOICE(
			"\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\",\"stop_reason\":null"))
			USAGE(3) DONE,
		.server = "uvicorn",
	};
	const struct want w = { 3, 3, 6, TKS_SRC_USAGE, TKS_LAST_FINISH, 0, "stop", "vllm", "", 0 };

	(void)state;
	check(&in, &w);
}

static void test_vllm_ids(void **state)
{
	const struct input in = {
		.body = ROLE DATA(CH CHOICE(
			"\"delta\":{\"content\":\"ab\"},\"token_ids\":[7,8],\"finish_reason\":null"))
			DATA(CH CHOICE(
				"\"delta\":{\"content\":\"\"},\"token_ids\":[9],\"finish_reason\":null"))
				DATA(CH CHOICE(
					"\"delta\":{\"content\":\"\"},\"token_ids\":[2],\"finish_reason\":\"stop\","
					"\"stop_reason\":null")) USAGE(4) DONE,
	};
	const struct want w = {
		4,	3,  6, TKS_SRC_PER_FRAME, TKS_LAST_FINISH, TKS_F_MULTI_TOKEN, "stop",
		"vllm", "", 0
	};

	(void)state;
	check(&in, &w);
}

static void test_vllm_logprobs_mismatch(void **state)
{
	const struct input in = {
		.body = DATA(CH CHOICE(
			"\"delta\":{\"content\":\"a\"},\"logprobs\":{\"content\":[{\"token\":\"a\"}]},"
			"\"finish_reason\":null"))
			DATA(CH CHOICE(
				"\"delta\":{\"content\":\"b\"},\"logprobs\":{\"content\":[{\"token\":\"b\"}]},"
				"\"finish_reason\":\"length\",\"stop_reason\":null")) USAGE(5) DONE,
	};
	const struct want w = {
		5, 2, 4, TKS_SRC_USAGE, TKS_LAST_TEXT, TKS_F_COUNT_MISMATCH, "length", "vllm", "", 0
	};

	(void)state;
	check(&in, &w);
}

/* Every choice says stop_reason, so every choice frame is a token, text or none. */
static void test_vllm_completions(void **state)
{
#define VT(t, fin)                                                                                 \
	DATA(CT CHOICE("\"text\":\"" t "\",\"logprobs\":null,\"finish_reason\":" fin               \
		       ",\"stop_reason\":null") ",\"usage\":null")
	const struct input in = {
		.body = VT("a", "null") VT("", "null") VT("b", "null") VT("", "\"stop\"") DATA(
			CT "\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":4}")
			DONE,
		.target = "/v1/completions",
	};
	const struct want w = { 4, 4, 6, TKS_SRC_USAGE, TKS_LAST_FINISH, 0, "stop", "vllm", "", 0 };

	(void)state;
	check(&in, &w);
}

/* reasoning_content is null where there is none; the finish frame is extra; the end-of-sequence
 * token has no frame. */
static void test_sglang_chat(void **state)
{
#define SG(c, r) "\"delta\":{\"content\":" c ",\"reasoning_content\":" r ",\"tool_calls\":null}"
	const struct input in = {
		.body = DATA(CH CHOICE(
			"\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":null},"
			"\"finish_reason\":null"))
			DATA(CH CHOICE(SG("null",
					  "\"h\"") ",\"finish_reason\":null,\"matched_stop\":null"))
				DATA(CH CHOICE(
					SG("\"a\"",
					   "null") ",\"finish_reason\":null,\"matched_stop\":null"))
					DATA(CH CHOICE(SG(
						"null",
						"null") ",\"finish_reason\":\"stop\",\"matched_stop\":2"))
						USAGE(3) DONE,
		.server = "uvicorn",
	};
	const struct want w = {
		3, 2, 6, TKS_SRC_USAGE, TKS_LAST_FINISH, 0, "stop", "sglang", "", 1
	};

	(void)state;
	check(&in, &w);
}

/* The role frame counts the token that comes in the next frame; a jump of two is a token without a
 * frame. */
static void test_llamacpp_timings(void **state)
{
#define LT(delta, n)                                                                               \
	DATA(CH CHOICE("\"delta\":{" delta                                                         \
		       "},\"finish_reason\":null") ",\"timings\":{\"predicted_n\":" #n "}")
	const struct input in = {
		.body = LT("\"role\":\"assistant\",\"content\":null", 1) LT("\"content\":\"a\"", 1)
			LT("\"content\":\"b\"", 3) DATA(CH CHOICE(
				"\"delta\":{},\"finish_reason\":\"length\"") ",\"timings\":{\"predicted_n\":3}")
				DONE,
		.server = "llama.cpp",
	};
	const struct want w = {
		3,	     2,	 5, TKS_SRC_PER_FRAME, TKS_LAST_TEXT, TKS_F_MULTI_TOKEN, "length",
		"llama.cpp", "", 0
	};

	(void)state;
	check(&in, &w);
}

/* Usage on the finish frame, unasked: a total, not a counter. */
static void test_llamacpp_completions(void **state)
{
	const struct input in = {
		.body = DATA(CT CHOICE("\"text\":\"a\",\"finish_reason\":null"))
			DATA(CT CHOICE("\"text\":\"b\",\"finish_reason\":null")) DATA(CT CHOICE(
				"\"text\":\"\",\"finish_reason\":\"length\"") ",\"usage\":{\"completion_tokens\":4,\"prompt_tokens\":2}")
				DONE,
		.server = "llama.cpp",
		.target = "/v1/completions",
	};
	const struct want w = { 4,	     2,	 4, TKS_SRC_USAGE, TKS_LAST_TEXT, 0, "length",
				"llama.cpp", "", 0 };

	(void)state;
	check(&in, &w);
}

/* Nobody says how many: one a frame, and it is said. */
static void test_frames_only(void **state)
{
	const struct input in = { .body = ": ping\n\n" ROLE TEXT("a") TEXT("") TEXT("[DONE]")
					  DATA(CH CHOICE("\"delta\":{},\"finish_reason\":\"stop\""))
						  DONE };
	const struct want w = { 2,  2,	6, TKS_SRC_FRAMES, TKS_LAST_TEXT, TKS_F_ESTIMATED, "stop",
				"", "", 0 };

	(void)state;
	check(&in, &w);
}

static void test_echo(void **state)
{
	struct tks_ask ask;
	const struct input in = { .body = ROLE TEXT("the prompt") TEXT("a") USAGE(1) DONE,
				  .ask = &ask };
	const struct want w = { 1, 1, 5, TKS_SRC_USAGE, TKS_LAST_TEXT, 0, "", "", "", 0 };

	(void)state;
	tks_ask_init(&ask);
	ask.echo = true;
	check(&in, &w);
}

/* Two tool calls in one delta are one arrival; index comes behind the delta. */
static void test_tools(void **state)
{
	const struct input in = {
		.body = DATA(
			CH
			"\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\","
			"\"arguments\":\"\"}},{\"index\":1,\"function\":{\"arguments\":\"{\"}}]},\"index\":0}]")
			DATA(CH CHOICE(
				"\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":\"}\"}}]}"))
				DATA(CH CHOICE("\"delta\":{},\"finish_reason\":\"tool_calls\""))
					DONE,
	};
	const struct want w = {
		2, 2, 4, TKS_SRC_FRAMES, TKS_LAST_TEXT, TKS_F_ESTIMATED, "tool_calls", "", "", 0
	};

	(void)state;
	check(&in, &w);
}

static void test_errors(void **state)
{
	static const struct {
		const char *body, *error;
	} cases[] = {
		{ TEXT("a") DATA(
			  "\"error\":{\"message\":\"secret\",\"type\":\"server_error\",\"code\":500}"),
		  "server_error: 500" },
		{ TEXT("a") DATA("\"error\":\"broken\""), "error" },
		{ TEXT("a") DATA(
			  "\"object\":\"error\",\"message\":\"x\",\"type\":\"Bad\",\"code\":\"c\""),
		  "Bad: c" },
		{ TEXT("a") "event: error\n: upstream gone\n\n", "error" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct input in = { .body = cases[i].body };
		const struct want w = { 1,
					1,
					2,
					TKS_SRC_FRAMES,
					TKS_LAST_TEXT,
					TKS_F_ESTIMATED,
					"error",
					"",
					cases[i].error,
					0 };

		check(&in, &w);
	}
}

/* An answer in one piece has counts, but no token times. */
static void test_json(void **state)
{
	const struct input in = {
		.body = "{\"id\":\"c\",\"object\":\"chat.completion\",\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":"
			"{\"role\":\"assistant\",\"content\":\"hello\"},\"finish_reason\":\"stop\"}],"
			"\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":6}}",
		.type = "application/json",
	};
	const struct want w = { 6, 0, 1, TKS_SRC_USAGE, TKS_LAST_NONE, 0, "stop", "", "", 0 };
	const struct input refused = { .body = "{\"detail\":\"Not Found\"}",
				       .type = "application/json" };
	const struct want none = { TKS_NULL, 0,	      1,  TKS_SRC_NONE, TKS_LAST_NONE,
				   0,	     "error", "", "error",	0 };

	(void)state;
	check(&in, &w);
	check(&refused, &none);
}

/* Counts that can't be are not believed. */
static void test_absurd_counts(void **state)
{
	static const char *const counts[] = { "1e999", "9223372036854775807", "1099511627777", "-1",
					      "\"3\"" };
	char body[512];

	(void)state;
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		const struct input in = { .body = body };
		const struct want w = {
			1, 1, 3, TKS_SRC_FRAMES, TKS_LAST_TEXT, TKS_F_ESTIMATED, "", "", "", 0
		};

		snprintf(
			body, sizeof(body),
			TEXT("a") "data: {\"choices\":[],\"usage\":{\"completion_tokens\":%s}}\n\n" DONE,
			counts[i]);
		check(&in, &w);
	}
}

static void test_unknown(void **state)
{
	const struct input in = { .body = "data: {\"x\":1}\n\ndata: hello\n\n" DONE,
				  .target = "/events" };
	const struct want w = { TKS_NULL, 0, 3, TKS_SRC_NONE, TKS_LAST_NONE, 0, "", "", "", 0 };
	const struct input coded = { .body = "\x1f\x8b\x08", .encoding = "gzip" };
	const struct want opaque = { TKS_NULL,	   0,  0,  TKS_SRC_NONE, TKS_LAST_NONE,
				     TKS_F_OPAQUE, "", "", "",		 0 };

	(void)state;
	check(&in, &w);
	check(&coded, &opaque);
}

static void test_ask(void **state)
{
	static const char body[] =
		"{\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true},"
		"\"prompt\":[\"a\",\"b\",\"c\"],\"model\":\"big\",\"stream\":\"true\",\"n\":2,"
		"\"max_completion_tokens\":77,\"echo\":true}";

	(void)state;
	for (size_t piece = 1; piece <= sizeof(body); piece++) {
		struct tks_mem mem = { 0 };
		struct tks_ask a;
		struct tks_askscan *s;

		tks_ask_init(&a);
		s = tks_askscan_new(&mem, &a);
		for (size_t i = 0; i < sizeof(body) - 1; i += piece)
			tks_askscan_data(s, (const uint8_t *)body + i,
					 piece < sizeof(body) - 1 - i ? piece
								      : sizeof(body) - 1 - i);
		tks_askscan_end(s);
		tks_askscan_free(s);
		assert_int_equal(mem.used, 0);
		assert_true(a.is_json && a.echo && a.include_usage && a.continuous_usage);
		assert_string_equal(a.model, "big");
		assert_int_equal(a.stream, 1);
		assert_int_equal(a.n, 2);
		assert_int_equal(a.max_tokens, 77);
		assert_int_equal(a.prompts, 3);
	}
}

static void test_paths(void **state)
{
	(void)state;
	assert_true(tks_path_is_llm("/v1/chat/completions?x=1"));
	assert_true(tks_path_is_llm("/proxy/openai/v1/completions"));
	assert_false(tks_path_is_llm("/metrics"));
	assert_false(tks_path_is_llm("/v1/models"));
	assert_string_equal(tks_path_dialect("/v1/chat/completions"), "openai.chat");
	assert_string_equal(tks_path_dialect("/v1/completions"), "openai.completions");
	assert_string_equal(tks_path_dialect("/x"), "unknown");
}

/* Each allocation fails once: nothing leaks, nothing crashes. */
static void test_no_memory(void **state)
{
	static const char body[] = ROLE TEXT("a") TEXT("b") USAGE(2) DONE;
	const struct tks_h1_head head = { .side = TKS_H1_RESPONSE,
					  .status = 200,
					  .content_type = "text/event-stream" };
	const struct tks_slice s = { (const uint8_t *)body, sizeof(body) - 1, 0 };

	(void)state;
	for (uint64_t fail = 1; fail < 40; fail++) {
		struct tks_mem mem = { .fail_at = fail };
		struct tks_reqstate *rs = tks_reqstate_new(&mem, NULL);
		struct tks_decoder *d =
			rs ? tks_decoder_new(&mem, rs, &head, NULL, NULL, time_at, NULL) : NULL;

		if (d) {
			tks_decoder_data(d, &s);
			tks_decoder_end(d);
			tks_reqstate_finish(rs, TKS_OUT_COMPLETE);
		}
		tks_decoder_free(d);
		tks_reqstate_free(rs);
		assert_int_equal(mem.used, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vllm_chat),
		cmocka_unit_test(test_vllm_ids),
		cmocka_unit_test(test_vllm_logprobs_mismatch),
		cmocka_unit_test(test_vllm_completions),
		cmocka_unit_test(test_sglang_chat),
		cmocka_unit_test(test_llamacpp_timings),
		cmocka_unit_test(test_llamacpp_completions),
		cmocka_unit_test(test_frames_only),
		cmocka_unit_test(test_echo),
		cmocka_unit_test(test_tools),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_absurd_counts),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_ask),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests_name("decoder", tests, NULL, NULL);
}
