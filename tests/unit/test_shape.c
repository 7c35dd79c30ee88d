// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What a document looks like: the forms that servers write (by hand, after what each sends) and
 * what only resembles them, whole, a byte at a time and cut at every place; then rows of signs
 * against a reading of them that has nothing to do with the compiled one; then bodies.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decoder.h"
#include "dialect.h"
#include "dialect_table.h"
#include "tokensnoop/mem.h"

enum { PLAIN = TKS_SHAPE_PLAIN, AWS = TKS_SHAPE_AWS, WS = TKS_SHAPE_WS };

/* --- one document --- */

struct doc {
	const char *json, *want; /* NULL: none */
	int kind;
	const char *event, *target; /* NULL: "" */
	bool one; /* it is the body, or an element of an array */
};

static const char *name_of(const struct tks_shape *s, const struct doc *d)
{
	const struct tks_shape_place place = {
		.kind = (enum tks_shape_kind)d->kind,
		.event = d->event ?: "",
		.target = d->target ?: "",
		.stream = !d->one,
	};
	const struct tks_dialect *dialect = tks_shape_dialect(s, &place);

	return dialect ? dialect->name : "";
}

static void feed(struct tks_shape *s, const char *p, size_t n)
{
	char *copy = malloc(n ? n : 1);

	assert_non_null(copy);
	memcpy(copy, p, n);
	tks_shape_feed(s, copy, n, NULL);
	free(copy);
}

static void feed_text(struct tks_shape *s, const char *text)
{
	feed(s, text, strlen(text));
}

/* Each time behind other documents, of whose signs none must be left. */
static void check_doc(struct tks_shape *s, const struct doc *d)
{
	const char *want = d->want ?: "";
	size_t n = strlen(d->json);

	for (size_t cut = 0; cut < n; cut++) {
		tks_shape_begin(s);
		feed(s, d->json, cut);
		feed(s, d->json + cut, n - cut);
		if (strcmp(name_of(s, d), want) != 0)
			fail_msg("%s: %s, not %s (cut at %zu)", d->json, name_of(s, d), want, cut);
	}
	tks_shape_begin(s);
	for (size_t i = 0; i < n; i++)
		feed(s, d->json + i, 1);
	assert_string_equal(name_of(s, d), want);
}

static void check_docs(const struct doc *d, size_t n)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_shape *s = tks_shape_new(&mem);

	assert_non_null(s);
	for (size_t i = 0; i < n; i++)
		check_doc(s, &d[i]);
	tks_shape_free(&mem, s);
	assert_int_equal(mem.used, 0);
}

#define CHECK(docs) check_docs(docs, sizeof(docs) / sizeof((docs)[0]))

#define CHUNK "\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","
#define TEXTC "\"id\":\"c\",\"object\":\"text_completion\",\"created\":1,\"model\":\"m\","

static void test_openai(void **state)
{
	static const struct doc docs[] = {
		{ .json = "{" CHUNK
			  "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":"
			  "\"\"},\"logprobs\":null,\"finish_reason\":null}]}",
		  "openai.chat" },
		{ .json = "{" CHUNK
			  "\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"total_tokens\":7,"
			  "\"completion_tokens\":2}}",
		  "openai.chat" },
		/* nlohmann's order. */
		{ .json = "{\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"created\":1,\"object\":"
			  "\"chat.completion.chunk\"}",
		  "openai.chat" },
		{ .json = "{\"id\": \"c\", \"object\": \"chat.completion.chunk\", \"choices\": []}",
		  "openai.chat" },
		{ .json = "{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}", "openai.chat" },
		{ .json = "{\"object\":null,\"choices\":[{\"delta\":{}}]}", "openai.chat" },
		{ .json = "{\"id\":\"c\",\"object\":\"chat.completion\",\"choices\":[{\"index\":0,"
			  "\"message\":{\"role\":\"assistant\",\"content\":\"hello\"}}],\"usage\":{}}",
		  "openai.chat",
		  .one = true },
		{ .json = "{\"choices\":[{\"message\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}",
		  "openai.chat",
		  .one = true },
		{ .json = "{\"choices\":[{\"message\":{\"content\":\"a\"},\"finish_reason\":null}]}",
		  "openai.chat",
		  .one = true },
		/* The whole JSON as one event: beam search. */
		{ .json = "{\"object\":\"chat.completion\",\"choices\":[{\"message\":{}}]}",
		  "openai.chat" },
		{ .json = "{" TEXTC "\"choices\":[{\"index\":0,\"text\":\"a\",\"logprobs\":null,"
			  "\"finish_reason\":null}],\"usage\":null}",
		  "openai.completions" },
		{ .json = "{" TEXTC "\"choices\":[],\"usage\":{\"completion_tokens\":2}}",
		  "openai.completions" },
		{ .json = "{\"choices\":[{\"text\":\"a\"}]}", "openai.completions" },
		{ .json = "{" TEXTC "\"choices\":[{\"text\":\"a\"}]}",
		  "openai.completions",
		  .one = true },
		{ .json = "{\"choices\":[{\"text\":\"a\",\"finish_reason\":\"\"}]}",
		  "openai.completions",
		  .one = true },
		/* Written otherwise, and the same. */
		{ .json = "{\"\\u006fbject\":\"chat.completion.\\u0063hunk\"}", "openai.chat" },
	};

	(void)state;
	CHECK(docs);
}

static void test_typed_events(void **state)
{
	static const struct doc docs[] = {
		{ .json = "{\"type\":\"response.created\",\"sequence_number\":0,\"response\":{}}",
		  "openai.responses" },
		{ .json = "{\"type\":\"response.output_text.delta\",\"delta\":\"a\"}",
		  "openai.responses" },
		{ .json = "{\"response\":{\"usage\":{}},\"type\":\"response.completed\"}",
		  "openai.responses" },
		{ .json = "{\"type\":\"error\",\"sequence_number\":3,\"message\":\"x\"}",
		  "openai.responses" },
		{ .json = "{\"id\":\"r\",\"object\":\"response\",\"status\":\"completed\",\"output\":[]}",
		  "openai.responses",
		  .one = true },
		{ .json = "{\"type\":\"session.created\",\"session\":{}}", "openai.realtime", WS },
		{ .json = "{\"type\":\"response.created\",\"response\":{}}",
		  "openai.realtime",
		  WS },
		{ .json = "{\"type\":\"response.output_text.delta\",\"delta\":\"a\"}",
		  "openai.realtime",
		  WS },
		{ .json = "{\"type\":\"error\",\"error\":{\"type\":\"x\"}}",
		  "openai.realtime",
		  WS },
		{ .json = "{\"type\":\"session.created\",\"session\":{}}", NULL },
		{ .json = "{\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{}}}",
		  "anthropic.messages" },
		{ .json = "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{}}",
		  "anthropic.messages" },
		{ .json = "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\","
			  "\"text\":\"Hi\"}}",
		  "anthropic.messages" },
		{ .json = "{\"type\":\"content_block_stop\",\"index\":0}", "anthropic.messages" },
		{ .json = "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{"
			  "\"output_tokens\":5}}",
		  "anthropic.messages" },
		{ .json = "{\"type\":\"message_stop\"}", "anthropic.messages" },
		{ .json = "{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],"
			  "\"model\":\"x\",\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}",
		  "anthropic.messages",
		  .one = true },
		/* What tells nothing: they may come before any of the above. */
		{ .json = "{\"type\":\"ping\"}", NULL },
		{ .json = "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}", NULL },
		{ .json = "{\"type\":\"message-start\",\"id\":\"x\"}", "cohere.v2" },
		{ .json = "{\"type\":\"content-start\",\"index\":0}", "cohere.v2" },
		{ .json = "{\"type\":\"content-delta\",\"index\":0,\"delta\":{}}", "cohere.v2" },
		{ .json = "{\"type\":\"content-end\",\"index\":0}", "cohere.v2" },
		{ .json = "{\"type\":\"tool-plan-delta\",\"delta\":{}}", "cohere.v2" },
		{ .json = "{\"type\":\"tool-call-start\",\"delta\":{}}", "cohere.v2" },
		{ .json = "{\"type\":\"tool-call-delta\",\"delta\":{}}", "cohere.v2" },
		{ .json = "{\"type\":\"tool-call-end\"}", "cohere.v2" },
		{ .json = "{\"type\":\"citation-start\"}", "cohere.v2" },
		{ .json = "{\"type\":\"citation-end\"}", "cohere.v2" },
		{ .json = "{\"type\":\"message-end\",\"delta\":{\"usage\":{}}}", "cohere.v2" },
		{ .json = "{\"id\":\"x\",\"finish_reason\":\"COMPLETE\",\"message\":{\"role\":\"assistant\"}"
			  ",\"usage\":{\"billed_units\":{},\"tokens\":{\"output_tokens\":2.0}}}",
		  "cohere.v2",
		  .one = true },
	};

	(void)state;
	CHECK(docs);
}

static void test_own_routes(void **state)
{
	static const struct doc docs[] = {
		{ .json = "{\"model\":\"m\",\"created_at\":\"t\",\"response\":\"Hi\",\"done\":false}",
		  "ollama.generate" },
		{ .json = "{\"model\":\"m\",\"created_at\":\"t\",\"response\":\"\",\"done\":true,"
			  "\"done_reason\":\"stop\",\"context\":[1,2],\"eval_count\":2}",
		  "ollama.generate" },
		{ .json = "{\"model\":\"m\",\"created_at\":\"t\",\"message\":{\"role\":\"assistant\","
			  "\"content\":\"a\"},\"done\":false}",
		  "ollama.chat" },
		{ .json = "{\"model\":\"m\",\"created_at\":\"t\",\"message\":{},\"done\":true}",
		  "ollama.chat",
		  .one = true },
		{ .json = "{\"text\":\" A\",\"meta_info\":{\"id\":\"r7\",\"finish_reason\":null,"
			  "\"prompt_tokens\":3,\"completion_tokens\":1}}",
		  "sglang.generate" },
		{ .json = "{\"text\":\"a\",\"output_ids\":[1],\"meta_info\":{\"finish_reason\":null,"
			  "\"completion_tokens\":1}}",
		  "lmdeploy.generate" },
		{ .json = "{\"text\":\"a\",\"meta_info\":{\"id\":null,\"completion_tokens\":1}}",
		  "lmdeploy.generate" },
		{ .json = "{\"index\":1,\"token\":{\"id\":42,\"text\":\" a\",\"special\":false},"
			  "\"generated_text\":null,\"details\":null}",
		  "tgi.generate_stream" },
		{ .json = "{\"index\":2,\"token\":{\"id\":2},\"generated_text\":\"a\"}",
		  "tgi.generate_stream" },
		{ .json = "{\"generated_text\":\"a\",\"details\":{\"generated_tokens\":2}}",
		  "tgi.generate_stream",
		  .one = true },
		{ .json = "{\"generated_text\":\"a\"}",
		  "tgi.generate_stream",
		  .one = true,
		  .target = "/generate" },
		{ .json = "{\"error\":\"x\",\"error_type\":\"generation\"}",
		  "tgi.generate_stream" },
		{ .json = "{\"index\":0,\"content\":\"Hi\",\"tokens\":[13347],\"stop\":false,\"id_slot\":0,"
			  "\"tokens_predicted\":1,\"tokens_evaluated\":4}",
		  "llamacpp.completion" },
		{ .json = "{\"content\":\"\",\"stop\":true,\"stop_type\":\"eos\"}",
		  "llamacpp.completion" },
		{ .json = "{\"model_name\":\"m\",\"model_version\":\"1\",\"text_output\":\" a\"}",
		  "triton.generate_stream" },
		{ .json = "{\"text_output\":\" a\"}",
		  "triton.generate_stream",
		  .target = "/v2/models/m/generate_stream" },
		{ .json = "{\"model_name\":\"m\",\"model_version\":\"1\",\"out\":[1]}",
		  "triton.generate_stream",
		  .target = "/v2/models/m/versions/3/generate" },
		{ .json = "{\"is_finished\":false,\"event_type\":\"stream-start\",\"generation_id\":\"g\"}",
		  "cohere.v1" },
		{ .json = "{\"is_finished\":false,\"event_type\":\"text-generation\",\"text\":\"a\"}",
		  "cohere.v1" },
		{ .json = "{\"response_id\":\"r\",\"text\":\"a\",\"generation_id\":\"g\"}",
		  "cohere.v1",
		  .one = true },
		{ .json = "{\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"a\"}]},"
			  "\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":1}}",
		  "gemini.generate" },
		{ .json = "{\"candidates\":[{\"finishReason\":\"STOP\"}]}", "gemini.generate" },
		{ .json = "{\"candidates\":[{\"content\":{\"parts\":[]}}]}",
		  "gemini.generate",
		  .one = true },
		{ .json = "{\"usageMetadata\":{\"totalTokenCount\":4},\"modelVersion\":\"gemini\"}",
		  "gemini.generate" },
		{ .json = "{\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}", "gemini.generate" },
	};

	(void)state;
	CHECK(docs);
}

/* A message's type says what its JSON does not. */
static void test_aws(void **state)
{
	static const struct doc docs[] = {
		{ .json = "{\"role\":\"assistant\"}", "bedrock.converse", AWS, "messageStart" },
		{ .json = "{\"contentBlockIndex\":0,\"start\":{}}",
		  "bedrock.converse",
		  AWS,
		  "contentBlockStart" },
		{ .json = "{\"contentBlockIndex\":0,\"delta\":{\"text\":\"a\"}}",
		  "bedrock.converse",
		  AWS,
		  "contentBlockDelta" },
		{ .json = "{\"contentBlockIndex\":0}",
		  "bedrock.converse",
		  AWS,
		  "contentBlockStop" },
		{ .json = "{\"stopReason\":\"end_turn\"}", "bedrock.converse", AWS, "messageStop" },
		{ .json = "{\"usage\":{\"outputTokens\":3},\"metrics\":{}}",
		  "bedrock.converse",
		  AWS,
		  "metadata" },
		{ .json = "{}", "bedrock.converse", AWS, "metadata" },
		{ .json = "{\"bytes\":\"e30=\"}", "bedrock.invoke", AWS, "chunk" },
		/* Other services' streams. */
		{ .json = "{\"Transcript\":{}}", NULL, AWS, "TranscriptEvent" },
		{ .json = "{\"bytes\":\"e30=\"}", NULL, AWS, "chunks" },
		{ .json = "{\"usage\":{}}", NULL, AWS, "metadatas" },
		{ .json = "{\"usage\":{}}", NULL, AWS, "meta" },
		{ .json = "{\"bytes\":\"e30=\"}", NULL, AWS },
		/* Events of that name elsewhere. */
		{ .json = "{\"role\":\"assistant\"}", NULL, PLAIN, "messageStart" },
		{ .json = "{\"bytes\":\"e30=\"}", NULL, PLAIN, "chunk" },
		{ .json = "{\"bytes\":\"e30=\"}", NULL, WS, "chunk" },
		{ .json = "{\"output\":{\"message\":{\"role\":\"assistant\"}},\"stopReason\":\"end_turn\","
			  "\"usage\":{\"inputTokens\":1,\"outputTokens\":2}}",
		  "bedrock.converse",
		  .one = true },
	};

	(void)state;
	CHECK(docs);
}

/* Ordinary JSON, some of it with members that the above have too. */
static void test_ordinary(void **state)
{
	static const char *const jsons[] = {
		"{}",
		"[]",
		"null",
		"1",
		"\"chat.completion.chunk\"",
		"{\"status\":\"ok\"}",
		"{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\"}]}",
		("{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"embedding\":[0.1]}],"
		 "\"model\":\"m\",\"usage\":{\"prompt_tokens\":3,\"total_tokens\":3}}"),
		"{\"models\":[{\"name\":\"m\",\"modified_at\":\"t\",\"size\":1}]}",
		"{\"model\":\"m\",\"embeddings\":[[0.1]],\"total_duration\":1}",
		"{\"status\":\"pulling manifest\"}",
		"{\"id\":1,\"text\":\"a comment\",\"user\":\"u\"}",
		"{\"message\":\"done\",\"done\":true}",
		"{\"type\":\"message\",\"content\":\"hi\",\"role\":\"user\"}",
		"{\"type\":\"message\",\"text\":\"hi\"}",
		"{\"type\":\"error\",\"message\":\"x\"}",
		"{\"token\":{\"id\":7,\"expires\":1}}",
		"{\"token\":\"abc\"}",
		"{\"candidates\":[{\"name\":\"a\",\"votes\":3}]}",
		"{\"usage\":{\"outputTokens\":2}}",
		"{\"content\":\"a\",\"stop\":true}",
		"{\"model_name\":\"m\",\"model_version\":\"1\"}",
		"{\"detail\":\"Not Found\"}",
		"{\"error\":{\"message\":\"x\"}}",
		"{\"response\":\"ok\",\"done\":true}",
		"{\"output\":{\"message\":\"x\"}}",
		"{\"object\":\"response\"}",
		"{\"object\":\"chat.completion.chunk.\"}",
		"{\"object\":\"chat.completio\"}",
		"{\"object\":\"\"}",
		"{\"type\":\"content_block\"}",
		"{\"type\":\"response\"}",
		"{\"type\":7}",
		/* Elsewhere in it, or within a text. */
		"{\"data\":{\"object\":\"chat.completion.chunk\"}}",
		"{\"object\":[\"chat.completion.chunk\"]}",
		"{\"object\":{\"object\":\"chat.completion.chunk\"}}",
		"[{\"object\":\"chat.completion.chunk\"}]",
		"{\"x\":\"{\\\"object\\\":\\\"chat.completion.chunk\\\"}\"}",
		"{\"chat.completion.chunk\":\"object\"}",
		"{\"Object\":\"chat.completion.chunk\"}",
		"{\"meta_info\":\"completion_tokens\"}",
		"{\"meta_info.completion_tokens\":1}",
	};
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_shape *s = tks_shape_new(&mem);

	(void)state;
	assert_non_null(s);
	for (size_t i = 0; i < sizeof(jsons) / sizeof(jsons[0]); i++) {
		check_doc(s, &(struct doc){ .json = jsons[i], NULL });
		check_doc(s, &(struct doc){ .json = jsons[i], NULL, .one = true });
	}
	tks_shape_free(&mem, s);
	assert_int_equal(mem.used, 0);
}

/* Where it stands decides, for those that many answer alike. */
static void test_place(void **state)
{
	static const struct doc docs[] = {
		{ .json = "{\"choices\":[{\"text\":\"yes\"}]}", NULL, .one = true },
		{ .json = "{\"choices\":[{\"delta\":{}}]}", NULL, .one = true },
		{ .json = "{\"choices\":[{\"message\":\"yes\"}]}", NULL, .one = true },
		{ .json = "{\"object\":\"poll\",\"choices\":[{\"text\":\"yes\"}]}", NULL },
		{ .json = "{\"object\":\"poll\",\"choices\":[{\"delta\":{}}]}", NULL },
		{ .json = "{\"object\":\"poll\",\"choices\":[{\"message\":{},\"finish_reason\":null}]}",
		  NULL },
		{ .json = "{\"generated_text\":\"a\"}", NULL, .target = "/pipeline" },
		{ .json = "{\"generated_text\":\"a\"}",
		  NULL,
		  .target = "/pipeline?next=/generate" },
		{ .json = "{\"generated_text\":null}", NULL, .target = "/generate" },
		{ .json = "{\"text_output\":\" a\"}", NULL, .target = "/v1/things" },
		{ .json = "{\"text_output\":\" a\"}",
		  "triton.generate_stream",
		  .target = "/proxy/v2/models/m/generate?x=1" },
		{ .json = "{\"text_output\":\" a\"}", NULL, .target = "/generate" },
		{ .json = "{\"model_name\":\"m\",\"model_version\":\"1\"}",
		  NULL,
		  .target = "/v2/models/m/infer" },
		/* Null is not there, but where it may be. */
		{ .json = "{\"model\":\"m\",\"created_at\":\"t\",\"message\":null,\"done\":false}",
		  NULL },
		{ .json = "{\"model\":\"m\",\"created_at\":\"t\",\"response\":null,\"done\":false}",
		  NULL },
		{ .json = "{\"tokens_predicted\":null}", NULL },
		{ .json = "{\"meta_info\":{\"completion_tokens\":null}}", NULL },
		{ .json = "{\"token\":{\"id\":null},\"generated_text\":null}", NULL },
	};

	(void)state;
	CHECK(docs);
}

/* Where two dialects' signs are there: the first row of the table. */
static void test_ties(void **state)
{
	static const struct doc docs[] = {
		{ .json = "{\"choices\":[{\"text\":\"a\",\"delta\":{}}]}", "openai.chat" },
		{ .json = "{\"object\":\"text_completion\",\"choices\":[{\"delta\":{}}]}",
		  "openai.completions" },
		{ .json = "{\"object\":\"text_completion\",\"type\":\"response.created\"}",
		  "openai.completions" },
		{ .json = "{\"model\":\"m\",\"created_at\":\"t\",\"message\":{},\"response\":\"\",\"done\":1}",
		  "ollama.chat" },
		{ .json = "{\"tokens_predicted\":1,\"model_name\":\"m\",\"text_output\":\"\"}",
		  "llamacpp.completion" },
		{ .json = "{\"object\":\"chat.completion.chunk\"}",
		  "bedrock.invoke",
		  AWS,
		  "chunk" },
		{ .json = "{\"object\":\"chat.completion.chunk\"}", "openai.chat", AWS, "other" },
		{ .json = "{\"type\":\"message_stop\"}", "bedrock.converse", AWS, "messageStop" },
		{ .json = "{\"meta_info\":{\"id\":1,\"completion_tokens\":1},\"tokens_predicted\":1}",
		  "sglang.generate" },
		{ .json = "{\"type\":\"response.done\",\"object\":\"chat.completion\"}",
		  "openai.realtime",
		  WS },
		{ .json = "{\"type\":\"message_stop\",\"object\":\"chat.completion\"}",
		  "openai.chat" },
	};

	(void)state;
	CHECK(docs);
}

/* --- part of a document, and more than one --- */

/* What is there so far counts. */
static void test_so_far(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_shape *s = tks_shape_new(&mem);
	struct doc d = { .json = "" };

	(void)state;
	assert_non_null(s);
	tks_shape_begin(s);
	feed_text(s, "{\"object\":\"chat.completion.chunk");
	assert_string_equal(name_of(s, &d), "");
	feed_text(s, "\"");
	assert_string_equal(name_of(s, &d), "openai.chat");
	/* An object that has begun is there. */
	tks_shape_begin(s);
	assert_string_equal(name_of(s, &d), "");
	feed_text(s, "{\"model\":\"m\",\"created_at\":\"t\",\"done\":false,\"message\":");
	assert_string_equal(name_of(s, &d), "");
	feed_text(s, "{");
	assert_string_equal(name_of(s, &d), "ollama.chat");
	/* Signs must be of one document. */
	tks_shape_begin(s);
	feed_text(s, "{\"model\":\"m\",\"created_at\":\"t\"}");
	tks_shape_begin(s);
	feed_text(s, "{\"message\":{},\"done\":false}");
	assert_string_equal(name_of(s, &d), "");
	/* Behind what is no JSON nothing counts. */
	tks_shape_begin(s);
	assert_int_equal(tks_shape_feed(s, "}", 1, NULL), TKS_JS_BAD);
	feed_text(s, "{\"object\":\"chat.completion.chunk\"}");
	assert_string_equal(name_of(s, &d), "");
	tks_shape_free(&mem, s);
	assert_int_equal(mem.used, 0);
}

static void test_feed_tells_the_end(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_shape *s = tks_shape_new(&mem);
	size_t used = 0;

	(void)state;
	assert_non_null(s);
	tks_shape_begin(s);
	assert_int_equal(tks_shape_feed(s, "{\"a\":", 5, &used), TKS_JS_MORE);
	assert_int_equal(tks_shape_feed(s, "1},{\"b\"", 7, &used), TKS_JS_DONE);
	assert_int_equal(used, 2);
	tks_shape_free(&mem, s);
}

/* A text that goes on behind what is kept of it. */
static void test_long_text(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_shape *s = tks_shape_new(&mem);
	char json[4096], text[3000];

	(void)state;
	assert_non_null(s);
	for (size_t n = 1; n < sizeof(text); n += n < 100 ? 1 : 97) {
		memset(text, 'x', n);
		text[n] = 0;
		snprintf(json, sizeof(json), "{\"type\":\"response.%s\"}", text);
		check_doc(s, &(struct doc){ .json = json, "openai.responses" });
		snprintf(json, sizeof(json), "{\"object\":\"text_completion%s\"}", text);
		check_doc(s, &(struct doc){ .json = json, NULL });
		snprintf(json, sizeof(json), "{\"x\":\"%s\",\"object\":\"text_completion\"}", text);
		check_doc(s, &(struct doc){ .json = json, "openai.completions" });
		snprintf(json, sizeof(json), "{\"%s\":1,\"object\":\"text_completion\"}", text);
		check_doc(s, &(struct doc){ .json = json, "openai.completions" });
	}
	tks_shape_free(&mem, s);
	assert_int_equal(mem.used, 0);
}

static void test_is_error(void **state)
{
	static const struct {
		const char *json;
		bool error;
	} docs[] = {
		{ "{\"error\":{\"message\":\"x\",\"type\":\"y\",\"code\":400}}", true },
		{ "{\"error\":\"x\"}", true },
		{ "{\"error\":{}}", true },
		{ "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}", true },
		{ "{\"detail\":\"Not Found\"}", true },
		{ "{\"detail\":[{\"loc\":[\"body\"],\"msg\":\"x\"}]}", true },
		{ "{\"object\":\"error\",\"message\":\"x\",\"code\":404}", true },
		{ "{\"error\":null}", false },
		{ "{\"object\":\"list\"}", false },
		{ "{\"object\":\"errors\"}", false },
		{ "{\"x\":{\"error\":1}}", false },
		{ "{\"message\":\"error\"}", false },
		{ "{}", false },
	};
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_shape *s = tks_shape_new(&mem);

	(void)state;
	assert_non_null(s);
	for (size_t i = 0; i < sizeof(docs) / sizeof(docs[0]); i++) {
		for (size_t cut = 0; cut < strlen(docs[i].json); cut++) {
			tks_shape_begin(s);
			feed(s, docs[i].json, cut);
			feed(s, docs[i].json + cut, strlen(docs[i].json) - cut);
			assert_int_equal(tks_shape_is_error(s), docs[i].error);
		}
	}
	tks_shape_free(&mem, s);
}

static void test_no_memory(void **state)
{
	(void)state;
	for (uint64_t at = 1;; at++) {
		struct tks_mem mem = { .fail_at = at };
		struct tks_shape *s = tks_shape_new(&mem);

		assert_true(s || at < 10);
		tks_shape_free(&mem, s);
		assert_int_equal(mem.used, 0);
		if (s)
			break;
		assert_int_equal(mem.failed, 1);
	}
}

/* --- rows, read in another way --- */

enum { FACTS = 16, FACT_LEN = 64 };

/* A document as a list of members: path and value as it is written. */
struct facts {
	char path[FACTS][FACT_LEN], value[FACTS][FACT_LEN];
	size_t n;
	int kind;
	char event[FACT_LEN], target[FACT_LEN];
	bool stream;
};

static bool is_above(const char *path, const char *other)
{
	size_t n = strlen(path);

	return !strncmp(path, other, n) && (other[n] == '.' || other[n] == '[');
}

/* The value at the path, "{" for what has members, or NULL. */
static const char *fact(const struct facts *f, const char *path)
{
	for (size_t i = 0; i < f->n; i++) {
		if (!strcmp(f->path[i], path))
			return f->value[i];
		if (is_above(path, f->path[i]))
			return "{";
	}
	return NULL;
}

static bool is_text(const char *value, const char *text)
{
	size_t n = strlen(text);
	bool begins = n && text[n - 1] == '*';

	if (begins)
		return value && !strncmp(value, text, n - 1);
	return value && !strcmp(value, text);
}

static bool term_holds(const struct facts *f, const struct tks_dialect *d, const char *term)
{
	char path[FACT_LEN], text[FACT_LEN];
	const char *equals = strchr(term, '='), *value;
	size_t n;

	if (!strcmp(term, "@aws"))
		return f->kind == AWS;
	if (!strcmp(term, "@ws"))
		return f->kind == WS;
	if (!strcmp(term, "@stream"))
		return f->stream;
	if (!strcmp(term, "@path"))
		return tks_dialect_at_path(d, f->target);
	if (!strncmp(term, "@event=", 7))
		return is_text(f->event, term + 7);
	assert_int_not_equal(*term, '@');
	snprintf(path, sizeof(path), "%s", *term == '!' ? term + 1 : term);
	n = strcspn(path, "=?");
	path[n] = 0;
	value = fact(f, path);
	if (*term == '!')
		return !value || !strcmp(value, "null");
	if (equals) {
		/* Only a string is one. */
		snprintf(text, sizeof(text), "\"%s%s", equals + 1,
			 equals[strlen(equals) - 1] == '*' ? "" : "\"");
		return is_text(value, text);
	}
	return value && (term[strlen(term) - 1] == '?' || strcmp(value, "null") != 0);
}

static bool row_holds(const struct facts *f, const struct tks_dialect *d, const char *row)
{
	char copy[256];
	char *save = NULL;

	snprintf(copy, sizeof(copy), "%s", row);
	for (char *t = strtok_r(copy, " ", &save); t; t = strtok_r(NULL, " ", &save)) {
		if (!term_holds(f, d, t))
			return false;
	}
	return true;
}

static const char *by_rows(const struct facts *f)
{
	for (size_t i = 0; i < tks_dialect_count(); i++) {
		const struct tks_dialect *d = tks_dialect_at(i);

		for (const char *const *row = d->signs; row && *row; row++) {
			if (row_holds(f, d, *row))
				return d->name;
		}
	}
	return "";
}

static void add_fact(struct facts *f, const char *path, size_t n, const char *value)
{
	char *p;

	if (f->n == FACTS)
		return;
	p = f->path[f->n];
	snprintf(p, FACT_LEN, "%.*s", (int)n, path);
	/* A member is there once. */
	for (size_t i = 0; i < f->n; i++) {
		if (!strcmp(f->path[i], p) || is_above(f->path[i], p) || is_above(p, f->path[i]))
			return;
	}
	snprintf(f->value[f->n], FACT_LEN, "%s", value);
	f->n++;
}

/* What the term asks for, or nearly. */
static void add_term(struct facts *f, const struct tks_dialect *d, const char *term, bool exact)
{
	static const char *const values[] = { "null", "1", "\"\"", "\"x\"", "true", "[]", "{}" };
	const char *equals = strchr(term, '=');
	const char *value = exact ? "7" : values[(size_t)random() % 7];
	char text[FACT_LEN];

	if (equals) {
		snprintf(text, sizeof(text), "\"%s", equals + 1);
		text[strcspn(text, "*")] = 0;
		if (!exact && random() % 2)
			text[1 + (size_t)random() % strlen(text)] = 0;
		strcat(text, random() % 2 && strchr(equals, '*') ? "tail\"" : "\"");
		value = text;
	}
	if (!strcmp(term, "@aws") || !strcmp(term, "@ws"))
		f->kind = exact ? (term[1] == 'a' ? AWS : WS) : (int)(random() % 3);
	else if (!strcmp(term, "@stream"))
		f->stream = exact;
	else if (!strcmp(term, "@path"))
		snprintf(f->target, sizeof(f->target), "%s%s", d->paths[0], exact ? "" : "x");
	else if (*term == '@')
		snprintf(f->event, sizeof(f->event), "%.*s", (int)strlen(value) - 2, value + 1);
	else if (*term != '!')
		add_fact(f, term, strcspn(term, "=?"), value);
	else if (!exact)
		add_fact(f, term + 1, strlen(term + 1), value);
}

static void add_row(struct facts *f, const struct tks_dialect *d, const char *row, bool exact)
{
	char copy[256];
	char *save = NULL;

	snprintf(copy, sizeof(copy), "%s", row);
	for (char *t = strtok_r(copy, " ", &save); t; t = strtok_r(NULL, " ", &save)) {
		if (exact || random() % 3)
			add_term(f, d, t, exact || random() % 3);
	}
}

/* Each member by itself from the top: names may come twice. */
static void write_fact(const struct facts *f, size_t i, char *out, size_t size)
{
	size_t n = 0, nclose = 0;
	char close[FACT_LEN];

	for (const char *p = f->path[i]; *p;) {
		size_t len = strcspn(p, ".[");
		bool array = p[len] == '[';

		n += (size_t)snprintf(out + n, size - n, "\"%.*s\":", (int)len, p);
		p += len + (array ? 2 : 0);
		if (array) {
			n += (size_t)snprintf(out + n, size - n, "[");
			close[nclose++] = ']';
		}
		if (*p == '.') {
			n += (size_t)snprintf(out + n, size - n, "{");
			close[nclose++] = '}';
			p++;
		}
	}
	n += (size_t)snprintf(out + n, size - n, "%s", f->value[i]);
	while (nclose)
		n += (size_t)snprintf(out + n, size - n, "%c", close[--nclose]);
	assert_true(n < size);
}

static const char *by_shape(struct tks_shape *s, const struct facts *f)
{
	const struct tks_shape_place place = { (enum tks_shape_kind)f->kind, f->event, f->target,
					       f->stream };
	const struct tks_dialect *dialect;
	char member[256];

	tks_shape_begin(s);
	feed(s, "{", 1);
	for (size_t i = 0; i < f->n; i++) {
		write_fact(f, i, member, sizeof(member));
		feed(s, member, strlen(member));
		feed(s, i + 1 < f->n ? "," : "}", 1);
	}
	dialect = tks_shape_dialect(s, &place);
	return dialect ? dialect->name : "";
}

/* Each row of each dialect is enough, if none before it holds too. */
static void test_every_row(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_shape *s = tks_shape_new(&mem);
	size_t rows = 0;

	(void)state;
	assert_non_null(s);
	for (size_t i = 0; i < tks_dialect_count(); i++) {
		const struct tks_dialect *d = tks_dialect_at(i);

		for (const char *const *row = d->signs; row && *row; row++, rows++) {
			struct facts f = { .n = 0 };

			add_row(&f, d, *row, true);
			assert_string_equal(by_shape(s, &f), by_rows(&f));
			if (strcmp(by_shape(s, &f), d->name) != 0)
				fail_msg("%s: %s: %s", d->name, *row, by_shape(s, &f));
		}
	}
	assert_true(rows > 40);
	tks_shape_free(&mem, s);
	assert_int_equal(mem.used, 0);
}

static void test_any_rows(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_shape *s = tks_shape_new(&mem);
	unsigned int found = 0;

	(void)state;
	assert_non_null(s);
	srandom(7);
	for (int round = 0; round < 30000; round++) {
		struct facts f = { .kind = (int)(random() % 3), .stream = random() % 2 };

		for (int k = (int)(random() % 3) + 1; k > 0;) {
			const struct tks_dialect *d =
				tks_dialect_at((size_t)random() % tks_dialect_count());
			size_t n = 0;

			while (d->signs && d->signs[n])
				n++;
			if (!n)
				continue;
			add_row(&f, d, d->signs[(size_t)random() % n], false);
			k--;
		}
		if (strcmp(by_shape(s, &f), by_rows(&f)) != 0) {
			for (size_t i = 0; i < f.n; i++)
				print_message("%s: %s\n", f.path[i], f.value[i]);
			fail_msg("%s, not %s", by_shape(s, &f), by_rows(&f));
		}
		found += *by_rows(&f) != 0;
	}
	/* Both ways often enough. */
	assert_true(found > 5000 && found < 25000);
	tks_shape_free(&mem, s);
}

/* --- paths --- */

static void test_paths(void **state)
{
	static const struct {
		const char *target, *want;
	} paths[] = {
		{ "/v1/chat/completions", "openai.chat" },
		{ "/openai/v1/chat/completions?api-version=1", "openai.chat" },
		{ "/v1/completions", "openai.completions" },
		{ "/completion", "llamacpp.completion" },
		{ "/infill", "llamacpp.completion" },
		{ "/v1/responses", "openai.responses" },
		{ "/v1/messages", "anthropic.messages" },
		{ "/api/chat", "ollama.chat" },
		{ "/api/generate", "ollama.generate" },
		{ "/generate", "sglang.generate" },
		{ "/generate_stream", "tgi.generate_stream" },
		{ "/v2/models/m/generate_stream", "triton.generate_stream" },
		{ "/v2/models/m/versions/1/generate", "triton.generate_stream" },
		{ "/v1beta/models/g:streamGenerateContent?alt=sse", "gemini.generate" },
		{ "/v1beta/models/g:generateContent", "gemini.generate" },
		{ "/model/vendor.name-v1%3A0/converse-stream", "bedrock.converse" },
		{ "/model/vendor.name/invoke-with-response-stream", "bedrock.invoke" },
		{ "/v2/chat", "cohere.v2" },
		{ "/v1/chat", "cohere.v1" },
		{ "/inference.GRPCInferenceService/ModelStreamInfer", "triton.grpc" },
		{ "/sglang.grpc.scheduler.SglangScheduler/Generate", "engine.grpc" },
		{ "/vllm.grpc.engine.VllmEngine/Generate", "engine.grpc" },
		{ "/v1/chat/completions#x", "openai.chat" },
		{ "", NULL },
		{ "/", NULL },
		{ "/metrics", NULL },
		{ "/health", NULL },
		{ "/v1/models", NULL },
		{ "/v1/embeddings", NULL },
		{ "/api/tags", NULL },
		{ "/search?next=/v1/chat/completions", NULL },
		{ "/v1/chat/completions/c1", NULL },
		{ "/v2/models/m/infer", NULL },
		{ "/inference.GRPCInferenceService/ModelInfer", NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		assert_string_equal(tks_path_dialect(paths[i].target), paths[i].want ?: "unknown");
		assert_int_equal(tks_path_is_llm(paths[i].target), paths[i].want != NULL);
	}
}

/* --- bodies: which document decides --- */

static void time_at(void *ctx, struct tks_frame_at *at)
{
	(void)ctx;
	at->t_ns = (int64_t)at->last_off * 1000;
	at->send_id = at->last_off;
}

static const struct tks_decoder_host host = { .time_at = time_at };

struct body {
	const char *type, *target, *text, *want;
	int llm; /* what tks_decoder_is_llm() tells at the end; 0: it is plainly another's */
	int64_t streamed;
};

static void decode(const struct body *b, size_t piece)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_http_head head = { .side = TKS_RESPONSE, .status = 200 };
	struct tks_reqstate *rs = tks_reqstate_new(&mem, NULL);
	struct tks_decoder *d;
	size_t n = strlen(b->text);

	snprintf(head.content_type, sizeof(head.content_type), "%s", b->type);
	d = tks_decoder_new(&mem,
			    &(struct tks_decoder_of){
				    .rs = rs, .head = &head, .target = b->target, .host = &host });
	assert_non_null(d);
	tks_reqstate_record(rs)->status = 200;
	for (size_t i = 0; i < n; i += piece) {
		size_t k = piece < n - i ? piece : n - i;

		assert_int_equal(
			tks_decoder_data(d,
					 &(struct tks_slice){ (const uint8_t *)b->text + i, k, i }),
			0);
	}
	tks_decoder_end(d);
	if (tks_decoder_is_llm(d) != b->llm || strcmp(tks_reqstate_record(rs)->dialect, b->want))
		fail_msg("%s: %s, %d", b->text, tks_reqstate_record(rs)->dialect,
			 tks_decoder_is_llm(d));
	assert_int_equal(tks_reqstate_record(rs)->streamed, b->streamed);
	assert_int_equal(tks_decoder_is_other(d), !b->llm);
	tks_decoder_free(d);
	tks_reqstate_free(rs);
	assert_int_equal(mem.used, 0);
}

static void check_bodies(const struct body *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		decode(&b[i], SIZE_MAX);
		for (size_t piece = 1; piece < 40; piece += 3)
			decode(&b[i], piece);
	}
}

#define BODIES(b) check_bodies(b, sizeof(b) / sizeof((b)[0]))
#define SSE "text/event-stream"
#define JSON "application/json"
#define LINES "application/x-ndjson"
#define EVENT(json) "data: {" json "}\n\n"
#define PING "event: ping\n" EVENT("\"type\":\"ping\"")
#define PING7 PING PING PING PING PING PING PING
#define ANTHROPIC EVENT("\"type\":\"content_block_stop\",\"index\":0")

/* The shape decides, whatever the path says. */
static void test_bodies(void **state)
{
	static const struct body bodies[] = {
		{ SSE, "/v1/messages", EVENT(CHUNK "\"choices\":[]"), "openai.chat", 1, 1 },
		{ SSE, "/v1/chat/completions", ANTHROPIC, "anthropic.messages", 1, 1 },
		{ SSE, "/x", EVENT("\"choices\":[{\"delta\":{\"content\":\"a\"}}]"), "openai.chat",
		  1, 1 },
		{ SSE, "/x", EVENT("\"meta_info\":{\"id\":\"r\",\"completion_tokens\":1}"),
		  "sglang.generate", 1, 1 },
		{ LINES, "/x",
		  "{\"model\":\"m\",\"created_at\":\"t\",\"response\":\"a\",\"done\":false}\n",
		  "ollama.generate", 1, 1 },
		{ JSON, "/x",
		  "{\"id\":\"c\",\"object\":\"chat.completion\",\"choices\":[{\"index\":0,"
		  "\"message\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}",
		  "openai.chat", 1, 0 },
		/* An array is Gemini's stream, or TGI's several prompts. */
		{ JSON, "/v1beta/models/g:streamGenerateContent",
		  "[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\n,\r\n"
		  "{\"candidates\":[{\"finishReason\":\"STOP\"}]}]",
		  "gemini.generate", 1, 1 },
		{ JSON, "/generate", "[{\"generated_text\":\"a\"}]", "tgi.generate_stream", 1, 0 },
	};

	(void)state;
	BODIES(bodies);
}

/* Other services'. */
static void test_bodies_of_others(void **state)
{
	static const struct body bodies[] = {
		{ JSON, "/x", "{\"status\":\"ok\"}", "unknown", 0, 0 },
		{ JSON, "/generate", "{\"status\":\"ok\"}", "unknown", 0, 0 },
		{ JSON, "/x", "{\"choices\":[{\"text\":\"yes\"}]}", "unknown", 0, 0 },
		{ JSON, "/v1/embeddings", "{\"object\":\"list\",\"data\":[]}", "unknown", 0, 0 },
		{ SSE, "/x", EVENT("\"status\":\"ok\""), "unknown", 1, 1 },
		{ SSE, "/x", "data: hello\n\n", "unknown", 1, 1 },
	};

	(void)state;
	BODIES(bodies);
}

/* An array is one as soon as it is whole, however many elements it has. */
static void test_arrays_of_others(void **state)
{
	static const struct body bodies[] = {
		{ JSON, "/generate",
		  "[{\"a\":1},{\"a\":2},{\"a\":3},{\"a\":4},{\"a\":5},{\"a\":6},"
		  "{\"a\":7},{\"a\":8},{\"a\":9}]",
		  "unknown", 0, 0 },
		{ JSON, "/generate", "[{\"a\":1},{\"a\":2}]", "unknown", 0, 0 },
		{ JSON, "/generate", "[{\"a\":1}]\n", "unknown", 0, 0 },
		{ JSON, "/generate", "[]", "unknown", 0, 0 },
		{ JSON, "/x", "[{\"generated_text\":\"a\"}]", "unknown", 0, 0 },
	};

	(void)state;
	BODIES(bodies);
}

/* Only with an error the path says what it is of. */
static void test_bodies_of_errors(void **state)
{
	static const struct body bodies[] = {
		{ SSE, "/v1/messages", EVENT("\"error\":{\"type\":\"x\"}"), "anthropic.messages", 1,
		  1 },
		{ SSE, "/v1/chat/completions", EVENT("\"error\":\"x\""), "openai.chat", 1, 1 },
		{ SSE, "/x", EVENT("\"error\":\"x\"") ANTHROPIC, "anthropic.messages", 1, 1 },
		{ JSON, "/v1/completions", "{\"error\":{\"message\":\"x\"}}", "openai.completions",
		  1, 0 },
		{ JSON, "/v1/responses", "{\"detail\":\"Not Found\"}", "openai.responses", 1, 0 },
		{ JSON, "/v1/messages", "{\"status\":\"ok\"}", "unknown", 0, 0 },
	};

	(void)state;
	BODIES(bodies);
}

/* Up to seven documents may tell nothing; with the eighth the path must do. */
static void test_bodies_late(void **state)
{
	static const struct body bodies[] = {
		{ SSE, "/x", PING ANTHROPIC, "anthropic.messages", 1, 1 },
		{ SSE, "/v1/chat/completions", PING7 ANTHROPIC, "anthropic.messages", 1, 1 },
		{ SSE, "/x", PING7 ANTHROPIC, "anthropic.messages", 1, 1 },
		{ SSE, "/x", PING7 PING ANTHROPIC, "unknown", 1, 1 },
		{ SSE, "/v1/messages", PING7 PING ANTHROPIC, "anthropic.messages", 1, 1 },
		{ SSE, "/v1/chat/completions", PING7 PING, "openai.chat", 1, 1 },
		/* Comments are no documents. */
		{ SSE, "/x", ": a\n\n: b\n\n: c\n\n: d\n\n: e\n\n: f\n\n: g\n\n: h\n\n" ANTHROPIC,
		  "anthropic.messages", 1, 1 },
		/* What isn't JSON is one. */
		{ SSE, "/x", "data: hi\n\ndata: {]\n\n" PING ANTHROPIC, "anthropic.messages", 1,
		  1 },
	};

	(void)state;
	BODIES(bodies);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_openai),
		cmocka_unit_test(test_typed_events),
		cmocka_unit_test(test_own_routes),
		cmocka_unit_test(test_aws),
		cmocka_unit_test(test_ordinary),
		cmocka_unit_test(test_place),
		cmocka_unit_test(test_ties),
		cmocka_unit_test(test_so_far),
		cmocka_unit_test(test_feed_tells_the_end),
		cmocka_unit_test(test_long_text),
		cmocka_unit_test(test_is_error),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_every_row),
		cmocka_unit_test(test_any_rows),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_bodies),
		cmocka_unit_test(test_bodies_of_others),
		cmocka_unit_test(test_arrays_of_others),
		cmocka_unit_test(test_bodies_of_errors),
		cmocka_unit_test(test_bodies_late),
	};

	return cmocka_run_group_tests_name("shape", tests, NULL, NULL);
}
