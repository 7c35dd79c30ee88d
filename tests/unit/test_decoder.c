// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Response bodies to figures, dialect by dialect, through the real request state: bytes by hand
 * after what each server writes, whole, a byte at a time and cut at every place. A byte's time is
 * its offset in microseconds, so that a frame's time is the offset of its blank line.
 */
#include <errno.h>
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

enum { NOT_LLM = -1000 };

struct input {
	const char *body, *type, *server, *encoding, *target;
	const struct tks_ask *ask;
	const size_t *sends; /* ends of sends, 0 behind the last; NULL: each byte is one */
	void (*more)(const struct tks_request *q); /* what else is to be checked */
	int llm; /* tells tks_decoder_is_llm() at the end; 0: 1 */
};

/* ctx: a struct input, or NULL. */
static void time_at(void *ctx, struct tks_frame_at *at)
{
	const struct input *in = ctx;

	at->send_id = at->last_off;
	for (size_t i = 0; in && in->sends && in->sends[i]; i++) {
		at->send_id = in->sends[i];
		if (in->sends[i] >= at->last_off)
			break;
	}
	at->t_ns = (int64_t)at->send_id * 1000;
}

static const struct tks_decoder_host host = { .time_at = time_at };
static const struct tks_http_head no_head;

struct want {
	int64_t tokens, token_frames, frames;
	enum tks_tokens_source source;
	enum tks_last_source last;
	uint32_t flags;
	const char *finish, *server, *error;
	int64_t reasoning_first; /* 1: the first token is not visible */
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
	struct tks_http_head head = { .side = TKS_RESPONSE, .status = 200 };
	struct tks_reqstate *rs = tks_reqstate_new(&mem, NULL);
	size_t n = strlen(in->body);
	struct tks_decoder *d;

	snprintf(head.content_type, sizeof(head.content_type), "%s",
		 in->type ? in->type : "text/event-stream");
	snprintf(head.server, sizeof(head.server), "%s", in->server ? in->server : "");
	snprintf(head.content_encoding, sizeof(head.content_encoding), "%s",
		 in->encoding ? in->encoding : "");
	d = tks_decoder_new(&mem,
			    &(struct tks_decoder_of){
				    .rs = rs,
				    .head = &head,
				    .ask = in->ask,
				    .target = in->target ? in->target : "/v1/chat/completions",
				    .host = &host,
				    .ctx = (void *)(uintptr_t)in,
			    });
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
	assert_int_equal(tks_decoder_is_llm(d), in->llm ? (in->llm == NOT_LLM ? 0 : in->llm) : 1);
	judge(tks_reqstate_finish(rs, TKS_OUT_COMPLETE), w);
	if (in->more)
		in->more(tks_reqstate_record(rs));
	tks_decoder_free(d);
	tks_reqstate_free(rs);
	assert_int_equal(mem.used, 0);
}

static void check_pieces(const struct input *in, size_t piece, const struct want *w)
{
	decode(in, piece, piece, w);
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
	const struct want w = { TKS_NULL,	 0,  3,	 TKS_SRC_NONE, TKS_LAST_NONE,
				TKS_F_ESTIMATED, "", "", "",	       0 };
	static const size_t one_send[] = { 3, 0 };
	const struct input coded = { .body = "\x1f\x9d\x90",
				     .encoding = "compress",
				     .sends = one_send };
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
		s = tks_askscan_new(&mem, &a, &no_head);
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

#define LEN(s) ((int64_t)sizeof(s) - 1)
#define FIN(reason)                                                                                \
	DATA(CH CHOICE("\"delta\":{\"content\":\"\"},\"finish_reason\":\"" reason                  \
		       "\",\"stop_reason\":null"))

/* Who it is and when it was: first token and last, the time of each. */
static void vllm_more(const struct tks_request *q)
{
	int64_t a = LEN(ROLE TEXT("a")) - 1, b = a + LEN(TEXT("b")), fin = b + LEN(FIN("stop"));

	assert_string_equal(q->dialect, "openai.chat");
	assert_string_equal(q->model, "m");
	assert_string_equal(q->response_id, "c1");
	assert_int_equal(q->streamed, 1);
	assert_int_equal(q->prompt_tokens, 5);
	assert_int_equal(q->cached_tokens, 4);
	assert_int_equal(q->reasoning_tokens, 2);
	assert_int_equal(q->t_first_ns, a * 1000);
	assert_int_equal(q->t_last_ns, fin * 1000);
	assert_int_equal(q->t_finish_ns, fin * 1000);
	assert_int_equal(q->ntoken_at, 3);
	assert_int_equal(q->token_at_ns[0], a * 1000);
	assert_int_equal(q->token_at_ns[1], b * 1000);
	assert_int_equal(q->token_at_ns[2], fin * 1000);
	assert_int_equal(q->tpot_ns, (fin - a) * 1000 / 2);
}

static void test_record(void **state)
{
	const struct input in = {
		.body = ROLE TEXT("a") TEXT("b") FIN("stop") DATA(
			CH "\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3,"
			   "\"prompt_tokens_details\":{\"cached_tokens\":4},"
			   "\"completion_tokens_details\":{\"reasoning_tokens\":2}}") DONE,
		.more = vllm_more,
	};
	const struct want w = { 3, 3, 6, TKS_SRC_USAGE, TKS_LAST_FINISH, 0, "stop", "vllm", "", 0 };

	(void)state;
	check(&in, &w);
}

#define CU(i, delta, fin, n)                                                                       \
	DATA(CH "\"choices\":[{\"index\":" #i ",\"delta\":{" delta "},\"finish_reason\":" fin      \
		"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":" #n "}")

/* continuous_usage_stats: a count as of each frame; a step of two is a frame of two tokens. */
static void test_continuous_usage(void **state)
{
	const struct input in = {
		.body = CU(0, "\"role\":\"assistant\",\"content\":\"\"", "null", 0)
			CU(0, "\"content\":\"a\"", "null", 1) CU(0, "\"content\":\"bc\"", "null", 3)
				CU(0, "\"content\":\"\"", "\"stop\",\"stop_reason\":null", 4)
					USAGE(4) DONE,
	};
	const struct want w = {
		4,	3,  6, TKS_SRC_PER_FRAME, TKS_LAST_FINISH, TKS_F_MULTI_TOKEN, "stop",
		"vllm", "", 0
	};

	(void)state;
	check(&in, &w);
}

static void two_choices(const struct tks_request *q)
{
	assert_int_equal(q->nchoices, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(q->choices[i].index, i);
		assert_int_equal(q->choices[i].token_frames, 2);
		assert_int_equal(q->choices[i].tokens, 2 + i);
	}
	assert_string_equal(q->choices[0].finish, "length");
	assert_string_equal(q->choices[1].finish, "stop");
	assert_int_equal(q->tpot_ns, TKS_NULL);
}

/* Two answers at once: each is counted by itself (1, 2 and 1, 3), the total at the end is both. */
static void test_two_choices(void **state)
{
	struct tks_ask ask;
	const struct input in = {
		.body = CU(0, "\"role\":\"assistant\",\"content\":\"\"", "null",
			   0) CU(1, "\"role\":\"assistant\",\"content\":\"\"", "null", 0)
			CU(0, "\"content\":\"a\"", "null", 1) CU(1, "\"content\":\"x\"", "null", 1)
				CU(1, "\"content\":\"yz\"", "\"stop\",\"stop_reason\":7", 3)
					CU(0, "\"content\":\"b\"",
					   "\"length\",\"stop_reason\":null", 2) USAGE(5) DONE,
		.ask = &ask,
		.more = two_choices,
	};
	const struct want w = {
		5,	4,  8, TKS_SRC_PER_FRAME, TKS_LAST_TEXT, TKS_F_MULTI_TOKEN, "length",
		"vllm", "", 0
	};

	(void)state;
	tks_ask_init(&ask);
	ask.n = 2;
	check(&in, &w);
}

/* Two token frames left in one send: they have one time, and it is said. */
static void one_send(const struct tks_request *q)
{
	int64_t end = LEN(ROLE TEXT("a") TEXT("b")) - 1;

	assert_int_equal(q->t_first_ns, end * 1000);
	assert_int_equal(q->token_at_ns[0], q->token_at_ns[1]);
	assert_true(q->token_at_ns[2] > q->token_at_ns[1]);
}

static void test_coalesced(void **state)
{
	static const size_t sends[] = { sizeof(ROLE TEXT("a") TEXT("b")) - 2,
					sizeof(ROLE TEXT("a") TEXT("b") TEXT("c")) - 2,
					sizeof(ROLE TEXT("a") TEXT("b") TEXT("c") DONE) - 2, 0 };
	const struct input in = { .body = ROLE TEXT("a") TEXT("b") TEXT("c") DONE,
				  .sends = sends,
				  .server = "llama.cpp",
				  .more = one_send };
	const struct want w = { 3,
				3,
				5,
				TKS_SRC_FRAMES,
				TKS_LAST_TEXT,
				TKS_F_ESTIMATED | TKS_F_COALESCED,
				"",
				"llama.cpp",
				"",
				0 };

	(void)state;
	check(&in, &w);
}

/* Errors that are all there is, framed or not, and what only looks like one. */
static void test_more_errors(void **state)
{
	static const struct {
		const char *body, *type, *error;
	} cases[] = {
		{ "{\"error\":{\"message\":\"secret\",\"type\":\"invalid\",\"param\":null,\"code\":404}}",
		  "application/json", "invalid: 404" },
		{ "{\"object\":\"error\",\"message\":\"secret\",\"type\":\"BadRequestError\",\"param\":null,"
		  "\"code\":400}",
		  "application/json", "BadRequestError: 400" },
		{ "{\"error\":\"secret\"}", "application/json", "error" },
		{ "{\"detail\":[{\"loc\":[\"body\"],\"msg\":\"secret\"}]}",
		  "application/problem+json", "error" },
		{ DATA("\"detail\":\"secret\""), NULL, "error" },
		{ DATA("\"error\":{\"code\":\"e1\",\"message\":\"secret\"}"), NULL, "e1" },
		{ "event: error\ndata: {\"error\":{\"type\":\"t\",\"code\":5}}\n\n", NULL, "t: 5" },
	};
	const struct input null_error = {
		.body = DATA(CH CHOICE("\"delta\":{\"content\":\"a\"}") ",\"error\":null") DONE
	};
	const struct want fine = { 1,  1,  2, TKS_SRC_FRAMES, TKS_LAST_TEXT, TKS_F_ESTIMATED, "",
				   "", "", 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct input in = { .body = cases[i].body, .type = cases[i].type };
		const struct want w = { cases[i].type ? TKS_NULL : 0,
					0,
					1,
					TKS_SRC_NONE,
					TKS_LAST_NONE,
					0,
					"error",
					"",
					cases[i].error,
					0 };

		check(&in, &w);
	}
	check(&null_error, &fine);
}

/* The shape is found without the object's name, behind members in any order, behind up to seven
 * documents that say nothing. */
static void test_detection(void **state)
{
#define D0 DATA("\"x\":{\"choices\":1}")
#define D7 D0 D0 D0 D0 D0 D0 D0
	static const struct {
		const char *body;
		int64_t tokens, frames;
	} cases[] = {
		{ DATA("\"choices\":[{\"delta\":{\"content\":\"a\"}}]") DONE, 1, 2 },
		{ DATA("\"choices\":[{\"text\":\"a\"}],\"object\":\"text_completion\"") DONE, 1,
		  2 },
		{ DATA("\"choices\":[{\"text\":\"a\"}]") DONE, 1, 2 },
		{ D7 DATA("\"choices\":[{\"text\":\"a\"}]") DONE, 1, 9 },
		{ D7 D0 DATA("\"choices\":[{\"text\":\"a\"}]") DONE, TKS_NULL, 10 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct input in = { .body = cases[i].body, .target = "/x" };
		bool known = cases[i].tokens != TKS_NULL;
		const struct want w = { cases[i].tokens,
					known,
					cases[i].frames,
					known ? TKS_SRC_FRAMES : TKS_SRC_NONE,
					known ? TKS_LAST_TEXT : TKS_LAST_NONE,
					TKS_F_ESTIMATED,
					"",
					"",
					"",
					0 };

		check(&in, &w);
	}
}

/* What is not ours, and what can't be read. */
static void test_modes(void **state)
{
	const struct input page = { .body = "<p>hi</p>", .type = "text/html", .llm = NOT_LLM };
	static const size_t one_send[] = { 3, 0 };
	const struct input coded = { .body = "\x1f\x9d\x90",
				     .type = "application/json",
				     .encoding = "compress",
				     .sends = one_send,
				     .llm = NOT_LLM };
	const struct input other = { .body = "{\"x\":1}",
				     .type = "application/json",
				     .target = "/v1/models",
				     .llm = NOT_LLM };
	const struct input plain = { .body = TEXT("a") DONE, .encoding = "identity" };
	const struct want none = { TKS_NULL, 0, 0, TKS_SRC_NONE, TKS_LAST_NONE, 0, "", "", "", 0 };
	const struct want opaque = { TKS_NULL,	   0,  0,  TKS_SRC_NONE, TKS_LAST_NONE,
				     TKS_F_OPAQUE, "", "", "",		 0 };
	const struct want one = { TKS_NULL, 0, 1, TKS_SRC_NONE, TKS_LAST_NONE, 0, "", "", "", 0 };
	const struct want read = { 1,  1,  2, TKS_SRC_FRAMES, TKS_LAST_TEXT, TKS_F_ESTIMATED, "",
				   "", "", 0 };

	(void)state;
	check(&page, &none);
	check(&coded, &opaque);
	check(&other, &one);
	check(&plain, &read);
}

/* An answer in one piece that is longer than what is kept before it is known, and that says what
 * it is at its end (llama.cpp writes choices first): the same in any pieces. */
static void test_long_json(void **state)
{
	static const struct {
		const char *head, *tail, *target;
	} cases[] = {
		{ "{\"choices\":[{\"text\":\"",
		  "\",\"index\":0,\"finish_reason\":\"length\"}],\"object\":\"text_completion\",",
		  "/v1/completions" },
		{ "{\"choices\":[{\"finish_reason\":\"length\",\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"",
		  "\"}}],\"object\":\"chat.completion\",", "/v1/chat/completions" },
		{ "{\"id\":\"c\",\"object\":\"text_completion\",\"choices\":[{\"text\":\"",
		  "\",\"index\":0,\"finish_reason\":\"length\"}],", "/elsewhere" },
	};
	static const size_t pieces[] = { 1 << 20, 65536, 65537, 4096, 1000, 1 };
	static char body[100000];
	const struct want w = { 9,	     0,	 1, TKS_SRC_USAGE, TKS_LAST_NONE, 0, "length",
				"llama.cpp", "", 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct input in = { .body = body,
					  .type = "application/json",
					  .server = "llama.cpp",
					  .target = cases[i].target };

		snprintf(body, sizeof(body), "%s%070000d%s\"usage\":{\"completion_tokens\":9}}",
			 cases[i].head, 0, cases[i].tail);
		for (size_t k = 0; k < sizeof(pieces) / sizeof(pieces[0]); k++)
			check_pieces(&in, pieces[k], &w);
	}
}

/* --- with bytes missing --- */

struct setup {
	struct tks_mem mem;
	struct tks_reqstate *rs;
	struct tks_decoder *d;
	uint64_t off;
};

static void setup_at(struct setup *s, const char *target, const char *type, bool resumed)
{
	struct tks_http_head head = { .side = TKS_RESPONSE, .status = 200, .resumed = resumed };

	memset(s, 0, sizeof(*s));
	snprintf(head.content_type, sizeof(head.content_type), "%s", type);
	s->rs = tks_reqstate_new(&s->mem, NULL);
	s->d = tks_decoder_new(&s->mem, &(struct tks_decoder_of){
						.rs = s->rs,
						.head = &head,
						.target = target,
						.host = &host,
					});
	assert_non_null(s->d);
}

static void setup(struct setup *s, const char *type, bool resumed)
{
	setup_at(s, "/v1/chat/completions", type, resumed);
}

static int feed(struct setup *s, const char *text, size_t n)
{
	const struct tks_slice in = { (const uint8_t *)text, n, s->off };

	s->off += n;
	return tks_decoder_data(s->d, &in);
}

static void feed_text(struct setup *s, const char *text)
{
	assert_int_equal(feed(s, text, strlen(text)), 0);
}

static void teardown(struct setup *s)
{
	tks_decoder_free(s->d);
	tks_reqstate_free(s->rs);
	assert_int_equal(s->mem.used, 0);
}

/* In the middle of a frame, at every place of it: it is void, and no gap is taken across. */
static void test_gap_events(void **state)
{
	static const char lost[] = TEXT("b");
	const struct want w = { 4,	3,  6, TKS_SRC_USAGE, TKS_LAST_FINISH, TKS_F_LOST, "stop",
				"vllm", "", 0 };

	(void)state;
	for (size_t cut = 0; cut < sizeof(lost) - 1; cut++) {
		const struct tks_request *q;
		struct setup s;

		setup(&s, "text/event-stream", false);
		feed_text(&s, ROLE TEXT("a"));
		assert_int_equal(feed(&s, lost, cut), 0);
		tks_decoder_gap(s.d, 0, 0);
		s.off += 100;
		feed_text(&s, TEXT("c") FIN("stop") USAGE(4) DONE);
		tks_decoder_end(s.d);
		q = tks_reqstate_finish(s.rs, TKS_OUT_COMPLETE);
		judge(q, &w);
		assert_int_equal(q->t_first_ns, (LEN(ROLE TEXT("a")) - 1) * 1000);
		assert_int_equal(q->itl.n, 1);
		assert_int_equal(q->itl.max_ns, LEN(FIN("stop")) * 1000);
		teardown(&s);
	}
}

/* Of a JSON body with a hole nothing is believed. */
static void test_gap_json(void **state)
{
	static const char body[] =
		"{\"object\":\"chat.completion\",\"choices\":[{\"message\":{\"content\":\"ab\"}}],"
		"\"usage\":{\"completion_tokens\":123456}}";
	struct want w = { TKS_NULL, 0, 1, TKS_SRC_NONE, TKS_LAST_NONE, TKS_F_LOST, "", "", "", 0 };

	(void)state;
	for (size_t cut = 0; cut < sizeof(body) - 2; cut++) {
		struct setup s;

		setup(&s, "application/json", false);
		assert_int_equal(feed(&s, body, cut), 0);
		tks_decoder_gap(s.d, 0, 0);
		s.off++;
		assert_int_equal(feed(&s, body + cut + 1, sizeof(body) - 2 - cut), 0);
		tks_decoder_end(s.d);
		judge(tks_reqstate_finish(s.rs, TKS_OUT_COMPLETE), &w);
		teardown(&s);
	}
}

/* Without a head: looked at as events, and an answer of a model only when its shape is known. */
static void test_resumed(void **state)
{
	struct setup s;

	(void)state;
	setup(&s, "", true);
	feed_text(&s, "il\"}\n\n");
	assert_int_equal(tks_decoder_is_llm(s.d), -EAGAIN);
	feed_text(&s, TEXT("a") TEXT("b"));
	assert_int_equal(tks_decoder_is_llm(s.d), 1);
	assert_int_equal(tks_reqstate_record(s.rs)->frames, 2);
	assert_int_equal(tks_reqstate_record(s.rs)->token_frames, 2);
	teardown(&s);
}

/* A large body that is no answer: nothing more of it is asked for. */
static void test_wants_no_body(void **state)
{
	static char big[70000];
	struct setup s;

	(void)state;
	setup(&s, "text/html", false);
	assert_true(tks_decoder_wants_no_body(s.d));
	teardown(&s);
	memset(big, 'x', sizeof(big));
	memcpy(big, "{\"x\":\"", 6);
	setup_at(&s, "/v1/models", "application/json", false);
	assert_false(tks_decoder_wants_no_body(s.d));
	assert_int_equal(feed(&s, big, 60000), 0);
	assert_false(tks_decoder_wants_no_body(s.d));
	assert_int_equal(feed(&s, big + 60000, 10000), 0);
	assert_int_equal(tks_decoder_is_llm(s.d), 0);
	assert_true(tks_decoder_wants_no_body(s.d));
	teardown(&s);
}

/* Memory runs out in the middle of a document and comes back: what is left of the document must
 * not be read as if it were whole, here as a count of 12. */
static void test_memory_comes_back(void **state)
{
	char pad[1024];
	struct setup s;
	const struct tks_request *q;

	(void)state;
	snprintf(pad, sizeof(pad), "data: {%s\"usage\":{\"completion_tokens\":1",
		 CH CHOICE("\"delta\":{\"content\":\"a\"}") ",");
	setup(&s, "text/event-stream", false);
	feed_text(&s, pad);
	s.mem.limit = s.mem.used;
	snprintf(pad, sizeof(pad), ",\"p\":\"%0800d\",\"q\":", 0);
	feed(&s, pad, strlen(pad));
	s.mem.limit = 0;
	feed_text(&s, "2}}\n\n");
	assert_true(tks_reqstate_record(s.rs)->flags & TKS_F_TRUNCATED);
	/* The next one is read. */
	feed_text(&s, TEXT("b") DONE);
	tks_decoder_end(s.d);
	q = tks_reqstate_finish(s.rs, TKS_OUT_COMPLETE);
	assert_int_equal(q->frames, 3);
	assert_int_equal(q->token_frames, 1);
	assert_int_equal(q->tokens, 1);
	teardown(&s);
}

/* One answer with the allocations from number `fail` on refused; true when none was. */
static bool starve(const char *type, const char *body, const struct tks_ask *ask, uint64_t fail)
{
	struct tks_mem mem = { .fail_at = fail };
	struct tks_http_head head = { .side = TKS_RESPONSE, .status = 200 };
	const struct tks_slice s = { (const uint8_t *)body, strlen(body), 0 };
	struct tks_reqstate *rs = tks_reqstate_new(&mem, NULL);
	struct tks_decoder *d;
	bool flagged = false;

	snprintf(head.content_type, sizeof(head.content_type), "%s", type);
	d = rs ? tks_decoder_new(&mem,
				 &(struct tks_decoder_of){
					 .rs = rs, .head = &head, .ask = ask, .host = &host })
	       : NULL;
	if (d) {
		if (tks_decoder_data(d, &s))
			flagged = true;
		tks_decoder_end(d);
		tks_reqstate_finish(rs, TKS_OUT_COMPLETE);
		flagged |= (tks_reqstate_record(rs)->flags & TKS_F_TRUNCATED) != 0;
		/* What failed is told: by an error or by the flag. */
		assert_int_equal(flagged, mem.failed > 0);
	}
	tks_decoder_free(d);
	tks_reqstate_free(rs);
	assert_int_equal(mem.used, 0);
	return !mem.failed;
}

/* Each allocation fails, and all behind it: nothing leaks, nothing crashes, and it is told. */
static void test_no_memory(void **state)
{
	static char big[70000];
	struct tks_ask ask;
	const struct {
		const char *type, *body;
		const struct tks_ask *ask;
	} cases[] = {
		{ "text/event-stream", ROLE TEXT("a") TEXT("b") USAGE(2) DONE, NULL },
		{ "text/event-stream",
		  CU(0, "\"content\":\"a\"", "null", 1) CU(1, "\"content\":\"b\"", "null", 1)
			  USAGE(2) DONE,
		  &ask },
		{ "application/json",
		  "{\"object\":\"chat.completion\",\"choices\":[],\"usage\":{\"completion_tokens\":2}}",
		  NULL },
		{ "application/json", big, NULL },
	};

	(void)state;
	tks_ask_init(&ask);
	ask.n = 2;
	snprintf(big, sizeof(big),
		 "{\"object\":\"text_completion\",\"choices\":[{\"text\":\"%066000d\"}]}", 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t fail = 1;

		while (!starve(cases[i].type, cases[i].body, cases[i].ask, fail))
			fail++;
		/* The state, the decoder and two scanners at least. */
		assert_in_range(fail, 5, 100);
	}
}

/* The request's scanner takes two blocks. */
static void test_ask_no_memory(void **state)
{
	(void)state;
	for (uint64_t fail = 1; fail <= 3; fail++) {
		struct tks_mem mem = { .fail_at = fail };
		struct tks_ask a;
		struct tks_askscan *s;

		tks_ask_init(&a);
		s = tks_askscan_new(&mem, &a, &no_head);
		assert_int_equal(s != NULL, fail == 3);
		tks_askscan_free(s);
		assert_int_equal(mem.used, 0);
	}
}

/* Prompts are counted, the tokens of one are not; a hole makes what is absent unknown. */
static void test_ask_more(void **state)
{
	static const struct {
		const char *body;
		int64_t prompts, stream;
		bool json;
	} cases[] = {
		{ "{\"prompt\":[1,2,3],\"stream\":false}", 1, 0, true },
		{ "{\"prompt\":[[1,2],[3]],\"stream\":true}", 2, 1, true },
		{ "{\"prompt\":\"a \\\"stream\\\":true\"}", 1, TKS_NULL, true },
		{ "{\"prompt\":[],\"stream\":null}", 1, TKS_NULL, true },
		{ "[{\"stream\":true}]", 1, TKS_NULL, false },
		{ "{\"stream\":true", 1, 1, false },
		{ "stream=true", 1, TKS_NULL, false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t n = strlen(cases[i].body);

		for (size_t cut = 0; cut < n; cut++) {
			const uint8_t *p = (const uint8_t *)cases[i].body;
			struct tks_mem mem = { 0 };
			struct tks_ask a;
			struct tks_askscan *s;

			tks_ask_init(&a);
			s = tks_askscan_new(&mem, &a, &no_head);
			tks_askscan_data(s, p, cut);
			tks_askscan_data(s, p + cut, n - cut);
			tks_askscan_end(s);
			tks_askscan_free(s);
			assert_int_equal(a.prompts, cases[i].prompts);
			assert_int_equal(a.stream, cases[i].stream);
			assert_int_equal(a.is_json, cases[i].json);
			assert_false(a.truncated);
		}
	}
}

/* The prompt is long, and a part of it was not seen. */
static void test_ask_gap(void **state)
{
	static const char head[] = "{\"model\":\"m\",\"prompt\":\"", tail[] = "\",\"n\":2}";
	struct tks_mem mem = { 0 };
	struct tks_ask a;
	struct tks_askscan *s;

	(void)state;
	tks_ask_init(&a);
	s = tks_askscan_new(&mem, &a, &no_head);
	tks_askscan_data(s, (const uint8_t *)head, sizeof(head) - 1);
	tks_askscan_gap(s);
	tks_askscan_data(s, (const uint8_t *)tail, sizeof(tail) - 1);
	tks_askscan_end(s);
	tks_askscan_free(s);
	assert_string_equal(a.model, "m");
	assert_true(a.truncated);
	assert_int_equal(a.n, TKS_NULL);
	assert_false(a.is_json);
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
		cmocka_unit_test(test_record),
		cmocka_unit_test(test_continuous_usage),
		cmocka_unit_test(test_two_choices),
		cmocka_unit_test(test_coalesced),
		cmocka_unit_test(test_more_errors),
		cmocka_unit_test(test_detection),
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_long_json),
		cmocka_unit_test(test_gap_events),
		cmocka_unit_test(test_gap_json),
		cmocka_unit_test(test_resumed),
		cmocka_unit_test(test_wants_no_body),
		cmocka_unit_test(test_memory_comes_back),
		cmocka_unit_test(test_ask_no_memory),
		cmocka_unit_test(test_ask_more),
		cmocka_unit_test(test_ask_gap),
	};

	return cmocka_run_group_tests_name("decoder", tests, NULL, NULL);
}
