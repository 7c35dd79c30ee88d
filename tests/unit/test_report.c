// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The reporters: what a record looks like in each format, that what is written can be read and is
 * then written the same, that nothing foreign is taken for a record, and that a failed write is
 * told.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "lib_report.h"

#include "human.h"
#include "jscan.h"
#include "jsonw.h"

#define MS 1000000ll

/* --- the writer --- */

static void test_writer_structure(void **state)
{
	struct tks_jsonw w;
	struct lib_text t;

	(void)state;
	lib_text_open(&t);
	tks_jsonw_init(&w, t.out);
	tks_jsonw_begin(&w, '{');
	tks_jsonw_name(&w, "a");
	tks_jsonw_begin(&w, '[');
	tks_jsonw_end(&w, ']');
	tks_jsonw_name(&w, "b");
	tks_jsonw_begin(&w, '[');
	tks_jsonw_int(&w, -9223372036854775807 - 1);
	tks_jsonw_uint(&w, 18446744073709551615u);
	tks_jsonw_begin(&w, '{');
	tks_jsonw_end(&w, '}');
	tks_jsonw_null(&w);
	tks_jsonw_bool(&w, true);
	tks_jsonw_bool(&w, false);
	tks_jsonw_end(&w, ']');
	tks_jsonw_name(&w, "c");
	tks_jsonw_string(&w, "");
	tks_jsonw_end(&w, '}');
	tks_jsonw_newline(&w);
	tks_jsonw_int(&w, 1);
	assert_string_equal(
		lib_text_of(&t),
		"{\"a\":[],\"b\":[-9223372036854775808,18446744073709551615,{},null,true,"
		"false],\"c\":\"\"}\n1");
	assert_int_equal(w.err, 0);
	lib_text_close(&t);
}

static void check_string(const char *text, size_t room, const char *want)
{
	struct tks_jsonw w;
	struct lib_text t;

	lib_text_open(&t);
	tks_jsonw_init(&w, t.out);
	tks_jsonw_text(&w, text, room);
	assert_string_equal(lib_text_of(&t), want);
	lib_text_close(&t);
}

static void test_writer_strings(void **state)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "plain / text", "\"plain / text\"" },
		{ "a\"b\\c", "\"a\\\"b\\\\c\"" },
		{ "\b\f\n\r\t\x01\x1f\x7f",
		  "\"\\u0008\\u000c\\u000a\\u000d\\u0009\\u0001\\u001f\\u007f\"" },
		{ "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
		  "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"" },
		/* The edges of well-formedness: first and last of each length. */
		{ "\xc2\x80\xdf\xbf", "\"\xc2\x80\xdf\xbf\"" },
		{ "\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80",
		  "\"\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\"" },
		{ "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"" },
		/* Overlong, a surrogate, beyond Unicode, alone, cut at the end, cut by ASCII. */
		{ "\xc0\x80", "\"\\ufffd\\ufffd\"" },
		{ "\xe0\x9f\xbf", "\"\\ufffd\\ufffd\\ufffd\"" },
		{ "\xf0\x8f\xbf\xbf", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"" },
		{ "\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"" },
		{ "\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"" },
		{ "\xf5\xff\x80", "\"\\ufffd\\ufffd\\ufffd\"" },
		{ "a\xe2\x82", "\"a\\ufffd\\ufffd\"" },
		{ "\xe2\x82z", "\"\\ufffd\\ufffdz\"" },
		/* One way to write it, whether it was there or stands for something. */
		{ "\xef\xbf\xbd", "\"\\ufffd\"" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		check_string(cases[i].text, SIZE_MAX, cases[i].want);
}

/* What a reader gets is at most so long: a repaired byte is three there; no character is cut in
 * two. */
static void test_writer_room(void **state)
{
	(void)state;
	check_string("abc", 3, "\"abc\"");
	check_string("abcd", 3, "\"abc\"");
	check_string("abc", 0, "\"\"");
	check_string("a\xff\xff", 6, "\"a\\ufffd\"");
	check_string("a\xff\xff", 7, "\"a\\ufffd\\ufffd\"");
	check_string("a\xe2\x82\xac"
		     "b",
		     3, "\"a\"");
	check_string("a\xe2\x82\xac"
		     "b",
		     4, "\"a\xe2\x82\xac\"");
	check_string("\n\n\n", 2, "\"\\u000a\\u000a\"");
}

static void test_writer_doubles(void **state)
{
	static const struct {
		double v;
		const char *want;
	} cases[] = { { 0, "0" },
		      { 1, "1" },
		      { 1.5, "1.5" },
		      { 0.1, "0.1" },
		      { 1.0 / 3, "0.3333333333333333" },
		      { 2.0 / 3, "0.6666666666666666" },
		      { 123456789.25, "123456789.25" },
		      { NAN, "null" },
		      { INFINITY, "null" },
		      { -INFINITY, "null" } };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tks_jsonw w;
		struct lib_text t;

		lib_text_open(&t);
		tks_jsonw_init(&w, t.out);
		tks_jsonw_double(&w, cases[i].v);
		assert_string_equal(lib_text_of(&t), cases[i].want);
		lib_text_close(&t);
	}
}

/* --- records --- */

static const int64_t at[] = { 2000, 2100, TKS_NULL };
static const int32_t in_frame[] = { 1, -1, 2 };

static struct tks_request full(void)
{
	struct tks_request q;

	tks_request_init(&q);
	q.id = 7;
	q.pid = 4242;
	strcpy(q.comm, "vllm");
	strcpy(q.cgroup, "/a.slice");
	strcpy(q.local, "[::1]:8000");
	strcpy(q.peer, "127.0.0.1:4000");
	q.http = "1.1";
	strcpy(q.method, "POST");
	strcpy(q.path, "/v1/chat/completions");
	q.status = 200;
	q.dialect = "openai.chat";
	strcpy(q.model, "m\"1");
	strcpy(q.response_id, "c1");
	strcpy(q.server, "vllm");
	q.streamed = 1;
	q.t_request_ns = 900;
	q.t_request_end_ns = 1000;
	q.t_headers_ns = 1900;
	q.t_first_ns = 2000;
	q.t_last_ns = 2300;
	q.t_finish_ns = 2400;
	q.t_end_ns = 2500;
	q.start_unix_ns = 1700000000000000900;
	q.frames = 6;
	q.token_frames = 3;
	q.tokens = 4;
	q.tokens_source = TKS_SRC_USAGE;
	q.t_last_source = TKS_LAST_TEXT;
	q.prompt_tokens = 5;
	q.cached_tokens = 0;
	q.max_tokens = 9;
	q.ttft_ns = q.ttft_visible_ns = 1000;
	q.tpot_ns = 100;
	q.e2e_ns = 1500;
	q.send_wait_ns = 3;
	q.itl = (struct tks_gaps){ 2, 100, 150, 150, TKS_NULL, TKS_NULL, 200 };
	q.conc_at_start = 1;
	q.conc_mean = 1.25;
	q.conc_max = 2;
	strcpy(q.finish, "length");
	q.flags = TKS_F_TRUNCATED | TKS_F_COALESCED | TKS_F_MULTI_TOKEN;
	q.token_at_ns = at;
	q.tokens_in_frame = in_frame;
	q.ntoken_at = 3;
	return q;
}

static const char full_text[] =
	"{\"type\":\"request\",\"id\":7,\"pid\":4242,\"comm\":\"vllm\",\"cgroup\":\"/a.slice\","
	"\"local\":\"[::1]:8000\",\"peer\":\"127.0.0.1:4000\",\"transport\":\"tcp\",\"http\":\"1.1\","
	"\"stream_id\":null,"
	"\"method\":\"POST\",\"path\":\"/v1/chat/completions\",\"status\":200,"
	"\"dialect\":\"openai.chat\",\"model\":\"m\\\"1\",\"response_id\":\"c1\",\"server\":\"vllm\","
	"\"streamed\":true,\"boundary\":\"send\",\"t_request_ns\":900,\"t_request_end_ns\":1000,"
	"\"t_headers_ns\":1900,\"t_first_ns\":2000,\"t_last_ns\":2300,\"t_finish_ns\":2400,"
	"\"t_end_ns\":2500,\"start_unix_ns\":1700000000000000900,\"frames\":6,\"token_frames\":3,"
	"\"tokens\":4,\"tokens_source\":\"usage\",\"t_last_source\":\"text\",\"prompt_tokens\":5,"
	"\"cached_tokens\":0,\"reasoning_tokens\":null,\"max_tokens\":9,\"n\":null,\"ttft_ns\":1000,"
	"\"ttft_visible_ns\":1000,\"tpot_ns\":100,\"e2e_ns\":1500,\"send_wait_ns\":3,"
	"\"itl\":{\"n\":2,\"min_ns\":100,\"mean_ns\":150,\"p50_ns\":150,\"p90_ns\":null,"
	"\"p99_ns\":null,\"max_ns\":200},\"itl_per_token\":null,"
	"\"concurrency\":{\"at_start\":1,\"mean\":1.25,\"max\":2},\"finish\":\"length\",\"error\":null,"
	"\"flags\":[\"coalesced\",\"multi_token_frames\",\"truncated\"]";

static void check_line(const struct tks_request *q, bool tokens, const char *tail)
{
	char *line = lib_line_of(q, tokens);
	char want[2048];

	snprintf(want, sizeof(want), "%s%s}\n", full_text, tail);
	assert_string_equal(line, want);
	free(line);
}

static void test_record(void **state)
{
	struct tks_request q = full();

	(void)state;
	check_line(&q, false, "");
	check_line(&q, true, ",\"tokens_at_ns\":[2000,2100,null],\"tokens_in_frame\":[1,null,2]");
	q.tokens_in_frame = NULL;
	q.slo_met = 0;
	check_line(&q, true, ",\"slo_met\":false,\"tokens_at_ns\":[2000,2100,null]");
	/* Times that were not kept are not there; of no token frame there are none. */
	q.ntoken_at = 0;
	q.slo_met = 1;
	check_line(&q, true, ",\"slo_met\":true");
}

static void test_record_with_choices(void **state)
{
	struct tks_request q = full();
	struct tks_choice c[2] = {
		{ .index = 0,
		  .tokens = 3,
		  .token_frames = 2,
		  .tpot_ns = 50,
		  .finish = "stop",
		  .itl = { 1, 100, 100, TKS_NULL, TKS_NULL, TKS_NULL, 100 } },
		{ .index = 4, .tokens = TKS_NULL, .token_frames = 1, .tpot_ns = TKS_NULL },
	};

	(void)state;
	tks_gaps_from(NULL, 0, &c[1].itl);
	q.choices = c;
	q.nchoices = 2;
	check_line(
		&q, false,
		",\"choices\":[{\"index\":0,\"tokens\":3,\"token_frames\":2,\"tpot_ns\":50,"
		"\"itl\":{\"n\":1,\"min_ns\":100,\"mean_ns\":100,\"p50_ns\":null,\"p90_ns\":null,"
		"\"p99_ns\":null,\"max_ns\":100},\"finish\":\"stop\"},{\"index\":4,\"tokens\":null,"
		"\"token_frames\":1,\"tpot_ns\":null,\"itl\":null,\"finish\":null}]");
}

/* Nothing seen: every field is there all the same. */
static void test_empty_record(void **state)
{
	struct tks_request q;
	char *line;

	(void)state;
	tks_request_init(&q);
	line = lib_line_of(&q, false);
	assert_string_equal(
		line,
		"{\"type\":\"request\",\"id\":0,\"pid\":null,\"comm\":null,\"cgroup\":null,"
		"\"local\":null,\"peer\":null,\"transport\":\"tcp\",\"http\":null,\"stream_id\":null,\"method\":null,"
		"\"path\":null,\"status\":null,\"dialect\":\"unknown\",\"model\":null,"
		"\"response_id\":null,\"server\":null,\"streamed\":null,\"boundary\":\"send\","
		"\"t_request_ns\":null,\"t_request_end_ns\":null,\"t_headers_ns\":null,"
		"\"t_first_ns\":null,\"t_last_ns\":null,\"t_finish_ns\":null,\"t_end_ns\":null,"
		"\"start_unix_ns\":null,\"frames\":0,\"token_frames\":0,\"tokens\":null,"
		"\"tokens_source\":null,\"t_last_source\":null,\"prompt_tokens\":null,"
		"\"cached_tokens\":null,\"reasoning_tokens\":null,\"max_tokens\":null,\"n\":null,"
		"\"ttft_ns\":null,\"ttft_visible_ns\":null,\"tpot_ns\":null,\"e2e_ns\":null,"
		"\"send_wait_ns\":null,\"itl\":null,\"itl_per_token\":null,\"concurrency\":null,"
		"\"finish\":null,\"error\":null,\"flags\":[]}\n");
	free(line);
	line = lib_line_of(&q, true);
	assert_non_null(strstr(line, "\"flags\":[],\"tokens_at_ns\":[]}"));
	free(line);
}

/* --- reading back --- */

static struct tks_jsonl_reader *reader_new(struct tks_mem *mem)
{
	struct tks_jsonl_reader *r = tks_jsonl_reader_new(mem);

	assert_non_null(r);
	return r;
}

static int read_line(struct tks_jsonl_reader *r, const char *line, struct tks_request *q)
{
	return tks_jsonl_read(r, line, strcspn(line, "\n"), q);
}

static void test_read_full(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_jsonl_reader *r = reader_new(&mem);
	struct tks_request want = full(), q;
	char *line = lib_line_of(&want, true), *again;

	(void)state;
	assert_int_equal(read_line(r, line, &q), 0);
	assert_int_equal(q.id, 7);
	assert_int_equal(q.pid, 4242);
	assert_string_equal(q.local, "[::1]:8000");
	assert_string_equal(q.model, "m\"1");
	assert_int_equal(q.streamed, 1);
	assert_int_equal(q.start_unix_ns, 1700000000000000900);
	assert_int_equal(q.tokens_source, TKS_SRC_USAGE);
	assert_true(q.reasoning_tokens == TKS_NULL);
	assert_int_equal(q.itl.n, 2);
	assert_true(q.itl.p90_ns == TKS_NULL);
	assert_int_equal(q.itl.max_ns, 200);
	assert_int_equal(q.itl_per_token.n, 0);
	assert_true(q.conc_mean == 1.25);
	assert_int_equal(q.flags, want.flags);
	assert_int_equal(q.slo_met, -1);
	assert_int_equal(q.ntoken_at, 3);
	assert_int_equal(q.token_at_ns[1], 2100);
	assert_true(q.token_at_ns[2] == TKS_NULL);
	assert_int_equal(q.tokens_in_frame[1], -1);
	assert_null(q.choices);
	again = lib_line_of(&q, true);
	assert_string_equal(again, line);
	free(again);
	free(line);
	tks_jsonl_reader_free(r);
	tks_jsonl_reader_free(NULL);
	assert_int_equal(mem.used, 0);
}

/* Whatever a record holds, hostile names included: written, read and written it is the same, byte
 * for byte. */
static void test_round_trip(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_jsonl_reader *r = reader_new(&mem);

	(void)state;
	srandom(3);
	for (int i = 0; i < 2000; i++) {
		static struct lib_record l;
		struct tks_request q;
		bool tokens = i % 2;
		char *line, *again;

		lib_any_record(&l);
		line = lib_line_of(&l.q, tokens);
		if (read_line(r, line, &q))
			fail_msg("not read: %s", line);
		again = lib_line_of(&q, tokens);
		assert_string_equal(again, line);
		free(again);
		free(line);
	}
	tks_jsonl_reader_free(r);
	assert_int_equal(mem.used, 0);
}

/* The longest texts that fit, of bytes that are three when repaired. */
static void test_round_trip_of_longest_texts(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_jsonl_reader *r = reader_new(&mem);
	static const char fills[] = { 'x', '\xff', '\n', '"' };

	(void)state;
	for (size_t i = 0; i < sizeof(fills); i++) {
		struct tks_request want = full(), q;
		char *line, *again;

		memset(want.path, fills[i], sizeof(want.path) - 1);
		memset(want.model, fills[i], sizeof(want.model) - 1);
		memset(want.finish, fills[i], sizeof(want.finish) - 1);
		want.path[255] = want.model[127] = want.finish[31] = 0;
		line = lib_line_of(&want, false);
		assert_int_equal(read_line(r, line, &q), 0);
		assert_int_equal(strlen(q.path), 255);
		again = lib_line_of(&q, false);
		assert_string_equal(again, line);
		free(again);
		free(line);
	}
	tks_jsonl_reader_free(r);
}

/* Cut anywhere: not a record. */
static void test_read_cut(void **state)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_jsonl_reader *r = reader_new(&mem);
	struct tks_request want = full(), q;
	char *line = lib_line_of(&want, true);

	(void)state;
	for (size_t n = 1; n < strlen(line) - 1; n++) {
		/* In a block of its own size, so that a byte too many is noticed. */
		char *cut = malloc(n);

		memcpy(cut, line, n);
		assert_int_equal(tks_jsonl_read(r, cut, n, &q), -EBADMSG);
		free(cut);
	}
	assert_int_equal(read_line(r, line, &q), 0);
	free(line);
	tks_jsonl_reader_free(r);
}

static char *replaced(const char *line, const char *from, const char *to)
{
	const char *p = strstr(line, from);
	char *out = malloc(strlen(line) + strlen(to) + 1);

	assert_non_null(p);
	sprintf(out, "%.*s%s%s", (int)(p - line), line, to, p + strlen(from));
	return out;
}

static int read_with(const char *from, const char *to)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_jsonl_reader *r = reader_new(&mem);
	struct tks_request want = full(), q;
	char *line, *other;
	int err;

	want.slo_met = 1;
	line = lib_line_of(&want, true);
	other = replaced(line, from, to);
	err = read_line(r, other, &q);
	free(other);
	free(line);
	tks_jsonl_reader_free(r);
	assert_int_equal(mem.used, 0);
	return err;
}

static void test_read_wrong_types(void **state)
{
	static const struct {
		const char *from, *to;
	} cases[] = {
		{ "\"id\":7", "\"id\":\"7\"" },
		{ "\"id\":7", "\"id\":null" },
		{ "\"id\":7", "\"id\":-7" },
		{ "\"id\":7", "\"id\":7.5" },
		{ "\"pid\":4242", "\"pid\":true" },
		{ "\"pid\":4242", "\"pid\":-1" },
		{ "\"comm\":\"vllm\"", "\"comm\":5" },
		{ "\"comm\":\"vllm\"", "\"comm\":\"sixteen bytes!!!\"" },
		{ "\"comm\":\"vllm\"", "\"comm\":\"a\\u0000b\"" },
		{ "\"comm\":\"vllm\"", "\"comm\":{}" },
		{ "\"transport\":\"tcp\"", "\"transport\":\"udp\"" },
		{ "\"transport\":\"tcp\"", "\"transport\":null" },
		{ "\"dialect\":\"openai.chat\"", "\"dialect\":\"openai\"" },
		{ "\"dialect\":\"openai.chat\"", "\"dialect\":7" },
		{ "\"streamed\":true", "\"streamed\":1" },
		{ "\"boundary\":\"send\"", "\"boundary\":null" },
		{ "\"boundary\":\"send\"", "\"boundary\":\"sent\"" },
		{ "\"tokens_source\":\"usage\"", "\"tokens_source\":\"guess\"" },
		{ "\"t_first_ns\":2000", "\"t_first_ns\":-2000" },
		{ "\"t_first_ns\":2000", "\"t_first_ns\":4611686018427387905" },
		{ "\"t_first_ns\":2000", "\"t_first_ns\":1e300" },
		{ "\"t_first_ns\":2000", "\"t_first_ns\":\"2000\"" },
		{ "\"tokens\":4", "\"tokens\":-4" },
		{ "\"tokens\":4", "\"tokens\":[4]" },
		{ "\"ttft_ns\":1000", "\"ttft_ns\":-4611686018427387905" },
		{ "\"itl\":{", "\"itl\":[],\"x\":{" },
		{ "\"itl\":{", "\"itl\":5,\"x\":{" },
		{ "\"itl\":{", "\"itl\":{},\"x\":{" },
		{ "\"itl\":{\"n\":2", "\"itl\":{\"n\":0" },
		{ "\"itl\":{\"n\":2", "\"itl\":{\"n\":null" },
		{ "\"min_ns\":100", "\"min_ns\":\"100\"" },
		{ "\"concurrency\":{", "\"concurrency\":\"no\",\"x\":{" },
		{ "\"mean\":1.25", "\"mean\":-1.25" },
		{ "\"mean\":1.25", "\"mean\":1e999" },
		{ "\"mean\":1.25", "\"mean\":\"1.25\"" },
		{ "\"flags\":[", "\"flags\":\"lost\",\"x\":[" },
		{ "\"flags\":[", "\"flags\":null,\"x\":[" },
		{ "\"flags\":[", "\"flags\":[\"odd\"," },
		{ "\"flags\":[", "\"flags\":[[]," },
		{ "\"slo_met\":true", "\"slo_met\":null" },
		{ "\"slo_met\":true", "\"slo_met\":\"yes\"" },
		{ "\"tokens_at_ns\":[", "\"tokens_at_ns\":{},\"x\":[" },
		{ "[2000,2100,null]", "[2000,2100]" },
		{ "[2000,2100,null]", "[]" },
		{ "[2000,2100,null]", "[2000,2100,\"\"]" },
		{ "[2000,2100,null]", "[2000,2100,-1]" },
		{ "[1,null,2]", "[1,null]" },
		{ "[1,null,2]", "[]" },
		{ "[1,null,2]", "null" },
		{ "[1,null,2]", "[1,-1,2]" },
		{ "[1,null,2]", "[1,null,2147483648]" },
		{ "\"type\":\"request\"", "\"type\":\"answer\"" },
		{ "\"type\":\"request\",", "" },
		{ "{\"type\"", "[{\"type\"" },
		{ "\"id\":7,", "\"id\":7,," },
	};

	(void)state;
	assert_int_equal(read_with("\"id\":7", "\"id\":7"), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (read_with(cases[i].from, cases[i].to) != -EBADMSG)
			fail_msg("taken: %s", cases[i].to);
	}
}

static void test_read_wrong_choices(void **state)
{
	static const struct {
		const char *choices;
		int err;
	} cases[] = {
		{ "[{\"index\":0,\"token_frames\":1},{\"index\":1,\"token_frames\":1}]", 0 },
		{ "[{\"index\":0,\"itl\":null},{\"index\":1,\"itl\":{\"n\":1}}]", 0 },
		{ "{}", -EBADMSG },
		{ "null", -EBADMSG },
		{ "[1,2]", -EBADMSG },
		{ "[{\"index\":null},{}]", -EBADMSG },
		{ "[{\"index\":-1},{}]", -EBADMSG },
		{ "[{\"tokens\":\"3\"},{}]", -EBADMSG },
		{ "[{\"token_frames\":null},{}]", -EBADMSG },
		{ "[{\"itl\":[]},{}]", -EBADMSG },
		{ "[{\"itl\":{\"n\":0}},{}]", -EBADMSG },
		{ "[{\"itl\":{\"n\":1,\"max_ns\":\"\"}},{}]", -EBADMSG },
		{ "[{\"finish\":7},{}]", -EBADMSG },
	};
	char member[256];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(member, sizeof(member), "{\"choices\":%s,", cases[i].choices);
		if (read_with("{", member) != cases[i].err)
			fail_msg("%s", cases[i].choices);
	}
}

/* What later versions add is stepped over, and so is white space. */
static void test_read_unknown_keys(void **state)
{
	(void)state;
	assert_int_equal(read_with("{\"type\"", "{\"new\":{\"id\":\"x\",\"flags\":[1]},\"type\""),
			 0);
	assert_int_equal(read_with("{\"type\"", " { \"flags2\" : [ [ ] ] , \"type\""), 0);
	assert_int_equal(read_with("\"itl\":{", "\"itl\":{\"p95_ns\":\"x\","), 0);
	assert_int_equal(read_with("\"id\":7", "\"id\":7e0"), 0);
}

static void test_read_other_lines(void **state)
{
	static const struct {
		const char *line;
		size_t len; /* 0: all of it */
		int err;
	} cases[] = {
		{ "", 0, -ENOENT },
		{ " \t\r", 0, -ENOENT },
		{ "{\"type\":\"meta\",\"version\":\"0\",\"start_unix_ns\":5}", 0, -ENOENT },
		{ "{\"type\":\"meta\",\"start_unix_ns\":-5}", 0, -ENOENT },
		{ "{\"start_unix_ns\":\"x\",\"type\":\"meta\"}", 0, -ENOENT },
		{ "{\"type\":\"summary\"}", 0, -ENOENT },
		{ "{\"type\":\"request\"}", 0, -EBADMSG },
		{ "{\"type\":null}", 0, -EBADMSG },
		{ "{}", 0, -EBADMSG },
		{ "[]", 0, -EBADMSG },
		{ "null", 0, -EBADMSG },
		{ "7", 0, -EBADMSG },
		{ "request", 0, -EBADMSG },
		{ "{\"type\":\"meta\"", 0, -EBADMSG },
		{ "{\"type\":\"meta\"} x", 0, -EBADMSG },
		{ "\0\0\0", 3, -EBADMSG },
	};
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_jsonl_reader *r = reader_new(&mem);
	struct tks_request q;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t len = cases[i].len ? cases[i].len : strlen(cases[i].line);

		if (tks_jsonl_read(r, cases[i].line, len, &q) != cases[i].err)
			fail_msg("%s", cases[i].line);
	}
	tks_jsonl_reader_free(r);
}

/* Any allocation fails: said, nothing leaked, and with memory the reader goes on. */
static void test_read_no_memory(void **state)
{
	static struct lib_record l;
	struct tks_request q;
	char *line;
	uint64_t n;
	int err = -1;

	(void)state;
	srandom(5);
	do {
		lib_any_record(&l);
	} while (!l.q.tokens_in_frame || !l.q.nchoices);
	line = lib_line_of(&l.q, true);
	for (n = 1; err; n++) {
		struct tks_mem mem = { .fail_at = n };
		struct tks_jsonl_reader *r = tks_jsonl_reader_new(&mem);

		if (r) {
			err = read_line(r, line, &q);
			assert_true(!err || err == -ENOMEM);
			mem.fail_at = 0;
			assert_int_equal(read_line(r, line, &q), 0);
		}
		tks_jsonl_reader_free(r);
		assert_int_equal(mem.used, 0);
	}
	/* The reader, its paths, a builder and the scanner; the two series and the choices. */
	assert_int_equal(n, 9);
	free(line);
}

/* --- whole outputs --- */

static struct tks_meta meta_of_test(void)
{
	return (struct tks_meta){
		.version = "0.1",
		.host = "h",
		.kernel = "6.1",
		.source = "live",
		.hooks = "send=fentry",
		.start_unix_ns = 5,
		.duration_ns = 2000000000,
		.clock_offset_ns = TKS_NULL,
		.cpu_ns = 20000000,
		.prog_runs = 10,
		.prog_ns = 12345,
		.events = 99,
		.connections = 3,
	};
}

static const char meta_text[] =
	"\"version\":\"0.1\",\"host\":\"h\",\"kernel\":\"6.1\",\"source\":\"live\",\"hooks\":\"send=fentry\","
	"\"start_unix_ns\":5,\"duration_ns\":2000000000,\"clock_offset_ns\":null,\"cpu_ns\":20000000,"
	"\"prog_runs\":10,\"prog_ns\":12345,\"events\":99,\"connections\":3,\"encrypted\":0,\"tls_ties\":0,\"tls_untied\":0,\"tls_blind\":0,"
	"\"drops\":{\"lost_records\":0,\"lost_bytes\":0,\"unreadable_bytes\":0,\"conn_full\":0,"
	"\"inflight_lost\":0,\"evicted\":0,\"no_memory\":0,\"bad_messages\":0,\"skipped\":0}}";

/* Everything a reporter writes about n records; the caller frees it. */
static char *output(enum tks_format format, bool live, int n, const struct tks_request *q,
		    const struct tks_slo *slo)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_stats *stats = tks_stats_new(&mem, slo, false);
	struct tks_report_config cfg = { .format = format, .live = live };
	struct tks_meta meta = meta_of_test();
	struct tks_report *r;
	struct lib_text t;

	lib_text_open(&t);
	cfg.out = t.out;
	r = tks_report_new(&cfg);
	for (int i = 0; i < n; i++) {
		assert_int_equal(tks_stats_add(stats, q), 0);
		assert_int_equal(tks_report_record(r, q), 0);
	}
	assert_int_equal(tks_report_close(r, &meta, stats), 0);
	tks_report_free(r);
	tks_stats_free(stats);
	fclose(t.out);
	assert_int_equal(mem.used, 0);
	return t.p;
}

static void test_jsonl_ends_with_meta(void **state)
{
	struct tks_request q = full();
	char *text = output(TKS_FMT_JSONL, false, 1, &q, NULL);
	char want[4096];

	(void)state;
	snprintf(want, sizeof(want), "%s}\n{\"type\":\"meta\",%s\n", full_text, meta_text);
	assert_string_equal(text, want);
	free(text);
}

static void on_member(void *ctx, const struct tks_jvalue *v)
{
	(*(struct tks_jvalue *)ctx) = *v;
}

/* What is at the path of a document, which must be one. */
static struct tks_jvalue value_at(const char *text, const char *path)
{
	struct tks_jfield field = { path, 1, 0 };
	struct tks_jschema *schema = tks_jschema_new(&field, 1);
	struct tks_jscan *scan = calloc(1, tks_jscan_size());
	struct tks_jvalue v = { 0 };
	size_t used;

	tks_jscan_init(scan, schema, on_member, &v);
	assert_int_equal(tks_jscan_feed(scan, text, strlen(text), &used), TKS_JS_DONE);
	assert_int_equal(used, strlen(text));
	free(scan);
	tks_jschema_free(schema);
	return v;
}

static void test_json_document(void **state)
{
	struct tks_request q = full();
	struct tks_slo slo;
	const char *bad;

	(void)state;
	assert_int_equal(tks_slo_parse("ttft=1us,tpot=99ns", &slo, &bad), 0);
	for (int n = 0; n < 3; n++) {
		char *text = output(TKS_FMT_JSON, false, n, &q, &slo);

		assert_int_equal(value_at(text, "requests").count, n);
		assert_int_equal(value_at(text, "meta.events").inum, 99);
		assert_int_equal(value_at(text, "summary.requests").inum, n);
		assert_int_equal(value_at(text, "summary.ttft.n").inum, n);
		assert_int_equal(value_at(text, "summary.ttft.max_ns").type,
				 n ? TKS_JS_NUMBER : TKS_JS_NULL);
		assert_int_equal(value_at(text, "summary.ttft.p50_ns").type,
				 n > 1 ? TKS_JS_NUMBER : TKS_JS_NULL);
		assert_int_equal(value_at(text, "summary.tpot_by_bucket").count, n ? 1 : 0);
		assert_int_equal(value_at(text, "summary.goodput.judged").inum, n);
		assert_int_equal(value_at(text, "summary.goodput.good").inum, 0);
		assert_int_equal(value_at(text, "summary.goodput.missed").count, 2);
		assert_int_equal(value_at(text, "summary.goodput.missed.tpot").inum, n);
		free(text);
	}
}

static FILE *broken_pipe(void)
{
	int fd[2];

	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(pipe(fd), 0);
	close(fd[0]);
	return fdopen(fd[1], "w");
}

/* A failed write is told at once or at the next flush, and again at the end. */
static void check_failing(FILE *out, enum tks_format format, int want)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_stats *stats = tks_stats_new(&mem, NULL, false);
	struct tks_report_config cfg = { .format = format, .out = out, .live = true };
	struct tks_report *r = tks_report_new(&cfg);
	struct tks_meta meta = meta_of_test();
	struct tks_request q = full();
	int err;

	assert_non_null(out);
	err = tks_report_record(r, &q);
	assert_true(!err || err == want);
	assert_int_equal(tks_report_tick(r), want);
	for (int i = 0; i < 100; i++)
		err = tks_report_record(r, &q);
	assert_true(err < 0);
	assert_true(tks_report_close(r, &meta, stats) < 0);
	tks_report_free(r);
	tks_stats_free(stats);
	fclose(out);
}

static void test_write_errors(void **state)
{
	(void)state;
	for (int f = TKS_FMT_TABLE; f <= TKS_FMT_JSON; f++) {
		check_failing(broken_pipe(), (enum tks_format)f, -EPIPE);
		check_failing(fopen("/dev/full", "w"), (enum tks_format)f, -ENOSPC);
	}
}

/* --- for people --- */

static void test_milliseconds(void **state)
{
	static const struct {
		int64_t ns;
		const char *want;
	} cases[] = {
		{ 0, "0" },
		{ 1, "0.000001" },
		{ 12, "0.000012" },
		{ 1234, "0.00123" },
		{ 12345, "0.0123" },
		{ 999499, "0.999" },
		{ 999500, "1.00" },
		{ 1000000, "1.00" },
		{ 1234567, "1.23" },
		{ 9994999, "9.99" },
		{ 9996000, "10.0" },
		{ 12345678, "12.3" },
		{ 99960000, "100" },
		{ 123456789, "123" },
		{ 999600000, "1000" },
		{ 1234567890, "1230" },
		{ 98765432100, "98800" },
		{ -12345678, "-12.3" },
		{ TKS_NULL, "-" },
	};
	char buf[TKS_HUMAN];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_string_equal(tks_human_ms_int(cases[i].ns, buf), cases[i].want);
	assert_string_equal(tks_human_ms(NAN, buf), "-");
	assert_true(strlen(tks_human_ms(4.6e18, buf)) < TKS_HUMAN);
	assert_true(strlen(tks_human_ms(-4.6e18, buf)) < TKS_HUMAN);
}

static void check_width(const char *text)
{
	for (; *text; text += strcspn(text, "\n") + 1) {
		if (strcspn(text, "\n") > 80)
			fail_msg("%.*s", (int)strcspn(text, "\n"), text);
	}
}

static void check_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" is not in:\n%s", part, text);
}

static void test_live_table(void **state)
{
	struct tks_request q = full();
	char *text;

	(void)state;
	q.flags = 0;
	q.tpot_ns = 15 * MS;
	q.ttft_ns = 1234 * MS;
	strcpy(q.model, "org/a-model-with-a-long-name");
	text = output(TKS_FMT_TABLE, true, 2, &q, NULL);
	check_width(text);
	check_has(text, "ended");
	check_has(text, "th-a-long-name ");
	check_has(text, " 1230     15.0 ");
	check_has(text, " length\n");
	free(text);
	q.tpot_ns = TKS_NULL;
	q.flags = TKS_F_LOST | TKS_F_COALESCED;
	text = output(TKS_FMT_TABLE, true, 1, &q, NULL);
	check_has(text, " 1230        - ");
	check_has(text, " length coalesced,lost\n");
	free(text);
	/* Only live. */
	text = output(TKS_FMT_TABLE, false, 1, &q, NULL);
	assert_null(strstr(text, "ended"));
	free(text);
}

/* A name from the wire must not drive the terminal. */
static void test_hostile_names(void **state)
{
	struct tks_request q = full();
	char *text;

	(void)state;
	strcpy(q.model, "\033[2Jx\r\n\xff\x7f");
	strcpy(q.finish, "\033]0;t\a");
	text = output(TKS_FMT_TABLE, true, 1, &q, NULL);
	assert_null(strchr(text, '\033'));
	assert_null(strchr(text, '\r'));
	assert_null(strchr(text, '\a'));
	check_has(text, "?[2Jx????");
	free(text);
}

static void test_summary(void **state)
{
	struct tks_request q = full();
	struct tks_slo slo;
	const char *bad;
	char *text;

	(void)state;
	assert_int_equal(tks_slo_parse("ttft=1ms,tpot=1ns", &slo, &bad), 0);
	q.flags = 0;
	q.ttft_ns = 100 * MS;
	q.t_request_ns = 0;
	q.t_end_ns = 1000 * MS;
	text = output(TKS_FMT_TABLE, false, 4, &q, &slo);
	check_width(text);
	check_has(text, "boundary       send\n");
	check_has(text, "token source   4 usage\n");
	check_has(text, "requests       4: 4 completed, 0 errors, 0 aborted, 0 cut, 0 open\n");
	check_has(text, "throughput     4 requests/s, 16 output tokens/s over 1 s\n");
	check_has(
		text,
		"TTFT                  4      100      100        -        -        -      100\n");
	check_has(text, "TPOT by output tokens x concurrency\n");
	check_has(text, "goodput        0 of 4 good (0 %)");
	check_has(text, "ttft         <= 1.00 ms: missed by 4\n");
	check_has(text, "source         live: send=fentry\n");
	check_has(text, "drops          none\n");
	check_has(text, "1234 ns a run x 10 runs");
	assert_null(strstr(text, "NOTE"));
	free(text);
}

static char *summary_of(struct tks_request *q, int n, const struct tks_meta *meta)
{
	struct tks_mem mem = TKS_MEM_INIT(0);
	struct tks_stats *stats = tks_stats_new(&mem, NULL, false);
	struct lib_text t;

	lib_text_open(&t);
	for (int i = 0; i < n; i++)
		assert_int_equal(tks_stats_add(stats, &q[i]), 0);
	assert_int_equal(tks_summary_print(t.out, meta, stats, NULL), 0);
	tks_stats_free(stats);
	fclose(t.out);
	return t.p;
}

/* What must not be compared is said above the figures. */
static void test_summary_of_a_mixture(void **state)
{
	struct tks_meta meta = meta_of_test();
	struct tks_request q[3] = { full(), full(), full() };
	char *text, *figures;

	(void)state;
	q[1].boundary = TKS_B_WIRE;
	q[1].tokens_source = TKS_SRC_PER_FRAME;
	strcpy(q[1].model, "other");
	q[2].flags = TKS_F_LOST;
	q[2].tokens_source = TKS_SRC_NONE;
	meta.lost_records = 1234567;
	meta.lost_bytes = meta.unreadable_bytes = 987654321;
	meta.conn_full = meta.inflight_lost = meta.evicted = meta.no_memory = 12345;
	meta.bad_messages = meta.skipped_files_lines = 77;
	text = summary_of(q, 3, &meta);
	check_width(text);
	figures = strstr(text, "milliseconds");
	assert_non_null(figures);
	check_has(text, "NOTE: mixed boundaries");
	check_has(text, "NOTE: several models");
	check_has(text, "NOTE: several token sources");
	assert_true(strstr(text, "mixed boundaries") < figures);
	assert_true(strstr(text, "several models") < figures);
	assert_true(strstr(text, "several token sources") < figures);
	check_has(text, "1 lost or mid_stream requests are left out");
	check_has(text, "77 lines or packets skipped");
	free(text);
}

/* Nothing traced: no table heads without rows. */
static void test_summary_of_nothing(void **state)
{
	struct tks_meta meta = meta_of_test();
	char *text = summary_of(NULL, 0, &meta);

	(void)state;
	check_width(text);
	check_has(text, "requests       0: 0 completed");
	assert_null(strstr(text, "by output tokens"));
	assert_null(strstr(text, "NOTE"));
	assert_null(strstr(text, "throughput"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_writer_structure),
		cmocka_unit_test(test_writer_strings),
		cmocka_unit_test(test_writer_room),
		cmocka_unit_test(test_writer_doubles),
		cmocka_unit_test(test_record),
		cmocka_unit_test(test_record_with_choices),
		cmocka_unit_test(test_empty_record),
		cmocka_unit_test(test_read_full),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_round_trip_of_longest_texts),
		cmocka_unit_test(test_read_cut),
		cmocka_unit_test(test_read_wrong_types),
		cmocka_unit_test(test_read_wrong_choices),
		cmocka_unit_test(test_read_unknown_keys),
		cmocka_unit_test(test_read_other_lines),
		cmocka_unit_test(test_read_no_memory),
		cmocka_unit_test(test_jsonl_ends_with_meta),
		cmocka_unit_test(test_json_document),
		cmocka_unit_test(test_write_errors),
		cmocka_unit_test(test_milliseconds),
		cmocka_unit_test(test_live_table),
		cmocka_unit_test(test_hostile_names),
		cmocka_unit_test(test_summary),
		cmocka_unit_test(test_summary_of_a_mixture),
		cmocka_unit_test(test_summary_of_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
