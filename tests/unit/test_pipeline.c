// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The whole pipeline on events made by hand. Times are written down in the scenario, so every
 * expected figure is arithmetic on them.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "lib_pipeline.h"

#define MS 1000000ull

static const char request[] =
	"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 63\r\n\r\n"
	"{\"model\":\"m\",\"stream\":true,\"max_tokens\":9,\"messages\":[\"hello\"]}";
static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
			   "Transfer-Encoding: chunked\r\n\r\n";
static const char role[] =
	"data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\","
	"\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
	"\"finish_reason\":null}]}\n\n";
static const char token[] =
	"data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\","
	"\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},"
	"\"finish_reason\":null}]}\n\n";
static const char finish[] =
	"data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\","
	"\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n";
static const char usage3[] =
	"data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[],"
	"\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3,\"total_tokens\":8}}\n\n";
static const char done[] = "data: [DONE]\n\n";

static void setup(struct lib_pipe *l)
{
	struct tks_pipeline_config cfg = { .boundary = TKS_B_SEND, .clock_offset_ns = 1000 };

	memset(l, 0, sizeof(*l));
	assert_int_equal(lib_open_pipe(l, cfg), 0);
}

static void teardown(struct lib_pipe *l)
{
	tks_pipeline_free(l->p);
	assert_int_equal(l->mem.used, 0);
}

/* From base on: request at 100 ms, head and role at 150, tokens at 200, 210, 230, finish and usage
 * at 240, end at 250. */
static void answer_only(struct lib_pipe *l, int conn, uint64_t base)
{
	l->now = base + 150 * MS;
	lib_tx(l, conn, head);
	lib_tx_chunk(l, conn, role);
	l->now = base + 200 * MS;
	lib_tx_chunk(l, conn, token);
	l->now = base + 210 * MS;
	lib_tx_chunk(l, conn, token);
	l->now = base + 230 * MS;
	lib_tx_chunk(l, conn, token);
	l->now = base + 240 * MS;
	lib_tx_chunk(l, conn, finish);
	lib_tx_chunk(l, conn, usage3);
	l->now = base + 250 * MS;
	lib_tx_chunk(l, conn, done);
	lib_tx(l, conn, "0\r\n\r\n");
}

static void answer_at(struct lib_pipe *l, int conn, uint64_t base)
{
	l->now = base + 100 * MS;
	lib_rx(l, conn, request);
	answer_only(l, conn, base);
}

static void answer(struct lib_pipe *l, int conn)
{
	answer_at(l, conn, 0);
}

static void check_answer_at(const struct tks_request *r, uint64_t base)
{
	assert_int_equal(r->t_request_ns, base + 100 * MS);
	assert_int_equal(r->t_request_end_ns, base + 100 * MS);
	assert_int_equal(r->t_headers_ns, base + 150 * MS);
	assert_int_equal(r->t_first_ns, base + 200 * MS);
	assert_int_equal(r->t_last_ns, base + 230 * MS);
	assert_int_equal(r->t_finish_ns, base + 240 * MS);
	assert_int_equal(r->t_end_ns, base + 250 * MS);
	assert_int_equal(r->ttft_ns, 100 * MS);
	assert_int_equal(r->tpot_ns, 15 * MS);
	assert_int_equal(r->e2e_ns, 150 * MS);
	assert_int_equal(r->tokens, 3);
	assert_int_equal(r->tokens_source, TKS_SRC_USAGE);
	assert_int_equal(r->token_frames, 3);
	assert_int_equal(r->frames, 7);
	assert_int_equal(r->itl.n, 2);
	assert_int_equal(r->itl.min_ns, 10 * MS);
	assert_int_equal(r->itl.max_ns, 20 * MS);
	assert_int_equal(r->status, 200);
	assert_string_equal(r->finish, "length");
	assert_string_equal(r->dialect, "openai.chat");
	assert_string_equal(r->model, "m");
	assert_string_equal(r->response_id, "c1");
	assert_string_equal(r->path, "/v1/chat/completions");
	assert_string_equal(r->method, "POST");
	assert_int_equal(r->prompt_tokens, 5);
	assert_int_equal(r->max_tokens, 9);
	assert_int_equal(r->streamed, 1);
}

static void check_answer(const struct tks_request *r)
{
	check_answer_at(r, 0);
}

static void begin_answer(struct lib_pipe *l)
{
	lib_open(l, 1);
	l->now = 100 * MS;
	lib_rx(l, 1, request);
	l->now = 150 * MS;
	lib_tx(l, 1, head);
	lib_tx_chunk(l, 1, role);
	l->now = 200 * MS;
	lib_tx_chunk(l, 1, token);
}

static void test_one(void **state)
{
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	l.now = 90 * MS;
	lib_open(&l, 1);
	answer(&l, 1);
	assert_int_equal(l.n, 1);
	check_answer(&l.rec[0].r);
	assert_int_equal(l.rec[0].r.flags, 0);
	assert_int_equal(l.rec[0].r.pid, 77);
	assert_string_equal(l.rec[0].r.comm, "srv");
	assert_string_equal(l.rec[0].r.local, "127.0.0.1:8000");
	assert_string_equal(l.rec[0].r.peer, "127.0.0.1:40001");
	assert_int_equal(l.rec[0].r.start_unix_ns, 100 * MS + 1000);
	/* Six sends with entry times of their own, 500 ns each: 150, 200, 210, 230, 240, 250 ms. */
	assert_int_equal(l.rec[0].r.send_wait_ns, 6 * 500);
	assert_int_equal(l.rec[0].at[0], 200 * MS);
	assert_int_equal(l.rec[0].at[2], 230 * MS);
	assert_int_equal(l.rec[0].r.conc_at_start, 1);
	assert_int_equal(l.rec[0].r.conc_max, 1);
	assert_true(fabs(l.rec[0].r.conc_mean - 1.0) < 1e-9);
	teardown(&l);
}

/* The request came with the handshake's end, when only the listener had a socket (another's packet
 * too): it is known by the addresses when the connection opens. */
static void test_early_request(void **state)
{
	struct tks_event ev = { .kind = TKS_EV_DATA, .dir = TKS_RX, .seq = 1000 };
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	l.now = 100 * MS;
	ev.len = ev.cap = (uint32_t)strlen(request);
	ev.data = (const uint8_t *)request;
	lib_event(&l, 2, &ev);
	ev.conn = 0;
	assert_int_equal(tks_pipeline_feed(l.p, &ev), 0);
	lib_event(&l, 1, &ev);
	ev.conn = 0;
	assert_int_equal(tks_pipeline_feed(l.p, &ev), 0);
	l.now = 101 * MS;
	lib_open(&l, 1);
	l.rx_seq[1] += ev.len;
	answer_only(&l, 1, 0);
	assert_int_equal(l.n, 1);
	check_answer(&l.rec[0].r);
	assert_int_equal(l.rec[0].r.flags, 0);
	assert_string_equal(l.rec[0].r.peer, "127.0.0.1:40001");
	teardown(&l);
}

static void test_unix(void **state)
{
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	l.unix_name = "/run/x y\n.sock";
	lib_open(&l, 1);
	answer(&l, 1);
	l.returns_unseen = true;
	lib_open(&l, 2);
	answer_at(&l, 2, 1000 * MS);
	assert_int_equal(l.n, 2);
	check_answer(&l.rec[0].r);
	check_answer_at(&l.rec[1].r, 1000 * MS);
	assert_int_equal(l.rec[0].r.flags, 0);
	assert_string_equal(l.rec[0].r.transport, "unix");
	assert_string_equal(l.rec[0].r.local, "unix:/run/x y?.sock");
	assert_string_equal(l.rec[0].r.peer, "unix:");
	assert_int_equal(l.rec[0].r.send_wait_ns, 6 * 500);
	assert_int_equal(l.rec[1].r.send_wait_ns, TKS_NULL); /* not known, and not 0 */
	/* Both are at one server: the second began when the first was over. */
	assert_int_equal(l.rec[1].r.conc_at_start, 1);
	teardown(&l);
}

/* The record of the client's send was written after those of the whole answer. */
static void test_unix_answer_first(void **state)
{
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	l.unix_name = "/run/x.sock";
	lib_open(&l, 1);
	for (uint64_t base = 0; base < 3000 * MS; base += 1000 * MS) {
		answer_only(&l, 1, base);
		assert_int_equal(l.n, base / (1000 * MS));
		l.now = base + 100 * MS;
		lib_rx(&l, 1, request);
	}
	assert_int_equal(l.n, 3);
	for (int i = 0; i < 3; i++) {
		check_answer_at(&l.rec[i].r, i * 1000 * MS);
		assert_int_equal(l.rec[i].r.flags, 0);
	}
	teardown(&l);
}

/* The request never comes: its record was lost, or the client had sent it before the trace. */
static void test_unix_answer_only(void **state)
{
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	l.unix_name = "/run/x.sock";
	l.met = true;
	lib_open(&l, 1);
	answer_only(&l, 1, 0);
	assert_int_equal(l.n, 0);
	tks_pipeline_advance(l.p, 349 * MS);
	assert_int_equal(l.n, 0);
	tks_pipeline_advance(l.p, 351 * MS); /* 100 ms after the last of it */
	assert_int_equal(l.n, 1);
	assert_int_equal(l.rec[0].r.t_request_ns, TKS_NULL);
	assert_int_equal(l.rec[0].r.token_frames, 3);
	assert_int_equal(l.rec[0].r.ttft_ns, TKS_NULL);
	assert_true(l.rec[0].r.flags & TKS_F_MID_STREAM);
	answer_at(&l, 1, 1000 * MS);
	assert_int_equal(l.n, 2);
	check_answer_at(&l.rec[1].r, 1000 * MS);
	assert_int_equal(l.rec[1].r.flags, 0);
	teardown(&l);
}

/* Nobody knows whose call was missed: what is open over unix sockets is flagged, nothing else. */
static void test_unix_missed(void **state)
{
	static struct lib_pipe l;
	struct tks_pipeline_counters counters;

	(void)state;
	setup(&l);
	begin_answer(&l); /* TCP */
	l.unix_name = "/run/x.sock";
	lib_open(&l, 2);
	l.now = 100 * MS;
	lib_rx(&l, 2, request);
	tks_pipeline_unix_missed(l.p, 3);
	answer_only(&l, 2, 0);
	answer_at(&l, 2, 1000 * MS);
	l.unix_name = NULL;
	lib_close(&l, 1, 0);
	assert_int_equal(l.n, 3);
	assert_int_equal(l.rec[0].r.flags, TKS_F_LOST);
	assert_int_equal(l.rec[1].r.flags, 0);
	assert_string_equal(l.rec[2].r.transport, "tcp");
	assert_false(l.rec[2].r.flags & TKS_F_LOST);
	tks_pipeline_counters(l.p, &counters);
	assert_int_equal(counters.lost_records, 3);
	teardown(&l);
}

/* What was kept is not lost with the connection, or the trace. */
static void test_unix_kept_to_the_end(void **state)
{
	static struct lib_pipe l;

	(void)state;
	for (int closed = 0; closed < 2; closed++) {
		setup(&l);
		l.unix_name = "/run/x.sock";
		l.met = true;
		lib_open(&l, 1);
		answer_only(&l, 1, 0);
		if (closed)
			lib_close(&l, 1, 0);
		else
			tks_pipeline_finish(l.p, 260 * MS);
		assert_int_equal(l.n, 1);
		assert_int_equal(l.rec[0].r.token_frames, 3);
		teardown(&l);
	}
}

static void test_keep_alive(void **state)
{
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	lib_open(&l, 1);
	for (int i = 0; i < 3; i++)
		answer_at(&l, 1, (uint64_t)i * 300 * MS);
	assert_int_equal(l.n, 3);
	for (int i = 0; i < 3; i++)
		check_answer_at(&l.rec[i].r, (uint64_t)i * 300 * MS);
	teardown(&l);
}

/* Two requests in flight: 100..250 ms and 205..300 ms, so that [200, 230] has 5 ms of one and 25 ms
 * of two. */
static void test_concurrency(void **state)
{
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	lib_open(&l, 1);
	lib_open(&l, 2);
	l.now = 100 * MS;
	lib_rx(&l, 1, request);
	l.now = 150 * MS;
	lib_tx(&l, 1, head);
	l.now = 200 * MS;
	lib_tx_chunk(&l, 1, token);
	l.now = 205 * MS;
	lib_rx(&l, 2, request);
	l.now = 230 * MS;
	lib_tx_chunk(&l, 1, token);
	lib_tx_chunk(&l, 1, done);
	lib_tx(&l, 1, "0\r\n\r\n");
	assert_int_equal(l.n, 1);
	assert_int_equal(l.rec[0].r.conc_at_start, 1);
	assert_int_equal(l.rec[0].r.conc_max, 2);
	assert_true(fabs(l.rec[0].r.conc_mean - (5 * 1 + 25 * 2) / 30.0) < 1e-9);
	teardown(&l);
}

/* A lost token frame in the middle: flagged, no ITL across the hole, N from the server; the next
 * request is whole. */
static void test_lost_frame(void **state)
{
	static struct lib_pipe l;
	char buf[1024];

	(void)state;
	setup(&l);
	lib_open(&l, 1);
	lib_open(&l, 2);
	l.now = 100 * MS;
	lib_rx(&l, 1, request);
	l.now = 150 * MS;
	lib_tx(&l, 1, head);
	lib_tx_chunk(&l, 1, role);
	l.now = 200 * MS;
	lib_tx_chunk(&l, 1, token);
	l.now = 210 * MS;
	lib_chunk(buf, sizeof(buf), token);
	lib_bytes(&l, 1, TKS_TX, buf, strlen(buf), false);
	l.now = 230 * MS;
	lib_tx_chunk(&l, 1, token);
	lib_tx_chunk(&l, 1, finish);
	lib_tx_chunk(&l, 1, usage3);
	lib_tx_chunk(&l, 1, done);
	lib_tx(&l, 1, "0\r\n\r\n");
	answer(&l, 2);
	l.now = 900 * MS;
	tks_pipeline_advance(l.p, l.now);
	assert_int_equal(l.n, 2);
	check_answer(&l.rec[0].r);
	assert_true(l.rec[1].r.flags & TKS_F_LOST);
	assert_int_equal(l.rec[1].r.t_first_ns, 200 * MS);
	assert_int_equal(l.rec[1].r.ttft_ns, 100 * MS);
	assert_int_equal(l.rec[1].r.tokens, 3);
	assert_int_equal(l.rec[1].r.itl.n, 0);
	answer_at(&l, 1, 1000 * MS);
	assert_int_equal(l.n, 3);
	check_answer_at(&l.rec[2].r, 1000 * MS);
	assert_false(l.rec[2].r.flags & TKS_F_LOST);
	teardown(&l);
}

/* The last sends of an answer are lost and nothing follows: the close's sequence number tells. */
static void test_lost_tail(void **state)
{
	static struct lib_pipe l;
	char buf[1024];

	(void)state;
	setup(&l);
	lib_open(&l, 1);
	l.now = 100 * MS;
	lib_rx(&l, 1, request);
	l.now = 150 * MS;
	lib_tx(&l, 1, head);
	l.now = 200 * MS;
	lib_tx_chunk(&l, 1, token);
	lib_chunk(buf, sizeof(buf), done);
	lib_bytes(&l, 1, TKS_TX, buf, strlen(buf), false);
	lib_fin(&l, 1, TKS_TX);
	lib_close(&l, 1, 0);
	assert_int_equal(l.n, 1);
	assert_true(l.rec[0].r.flags & TKS_F_LOST);
	assert_string_equal(l.rec[0].r.finish, "");
	assert_int_equal(l.rec[0].r.tpot_ns, TKS_NULL);
	assert_int_equal(l.rec[0].r.tokens, TKS_NULL);
	teardown(&l);
}

/* A reset that comes within the send is told before the send's own bytes. */
static void test_close_before_bytes(void **state)
{
	static struct lib_pipe l;
	char buf[1024];

	(void)state;
	setup(&l);
	begin_answer(&l);
	l.now = 210 * MS;
	lib_chunk(buf, sizeof(buf), token);
	l.tx_seq[1] += (uint32_t)strlen(buf);
	lib_close(&l, 1, ECONNRESET);
	assert_int_equal(l.n, 0);
	l.tx_seq[1] -= (uint32_t)strlen(buf);
	lib_tx(&l, 1, buf);
	assert_int_equal(l.n, 1);
	assert_string_equal(l.rec[0].r.finish, "aborted");
	assert_int_equal(l.rec[0].r.token_frames, 2);
	assert_int_equal(l.rec[0].r.flags, TKS_F_ESTIMATED);
	teardown(&l);
}

/* ... and if they never come, they are lost. */
static void test_close_without_bytes(void **state)
{
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	begin_answer(&l);
	l.tx_seq[1] += 100;
	lib_close(&l, 1, ECONNRESET);
	assert_int_equal(l.n, 0);
	tks_pipeline_advance(l.p, l.now + 300 * MS);
	assert_int_equal(l.n, 1);
	assert_true(l.rec[0].r.flags & TKS_F_LOST);
	assert_string_equal(l.rec[0].r.finish, "");
	teardown(&l);
}

/* One token, and all in one send: the request still counts itself. */
static void test_one_send(void **state)
{
	static struct lib_pipe l;
	char buf[4096], chunk[1024];

	(void)state;
	setup(&l);
	lib_open(&l, 1);
	l.now = 100 * MS;
	lib_rx(&l, 1, request);
	l.now = 150 * MS;
	snprintf(buf, sizeof(buf), "%s%s0\r\n\r\n", head, lib_chunk(chunk, sizeof(chunk), token));
	lib_tx(&l, 1, buf);
	assert_int_equal(l.n, 1);
	assert_int_equal(l.rec[0].r.conc_max, 1);
	assert_true(fabs(l.rec[0].r.conc_mean - 1.0) < 1e-9);
	teardown(&l);
}

/* A whole answer is lost: the next one goes to its own request, by the times. */
static void test_lost_answer(void **state)
{
	static const char small[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	lib_open(&l, 1);
	answer(&l, 1);
	l.now = 400 * MS;
	lib_rx(&l, 1, "GET /health HTTP/1.1\r\n\r\n");
	l.now = 410 * MS;
	lib_bytes(&l, 1, TKS_TX, small, strlen(small), false);
	answer_at(&l, 1, 500 * MS);
	tks_pipeline_advance(l.p, 1000 * MS);
	assert_int_equal(l.n, 2);
	check_answer_at(&l.rec[1].r, 500 * MS);
	assert_int_equal(l.rec[1].r.flags, 0);
	teardown(&l);
}

/* Two requests at once, and all that was answered is lost: neither is said to be aborted. */
static void test_lost_pipelined(void **state)
{
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	lib_open(&l, 1);
	l.now = 100 * MS;
	lib_rx(&l, 1, request);
	lib_rx(&l, 1, request);
	l.now = 200 * MS;
	lib_bytes(&l, 1, TKS_TX, head, strlen(head), false);
	lib_fin(&l, 1, TKS_RX);
	lib_fin(&l, 1, TKS_TX);
	lib_close(&l, 1, 0);
	assert_int_equal(l.n, 2);
	for (int i = 0; i < 2; i++) {
		assert_true(l.rec[i].r.flags & TKS_F_LOST);
		assert_string_equal(l.rec[i].r.finish, "");
	}
	teardown(&l);
}

/* Entered in the middle of an answer: that one is flagged, its first token is not known; the next
 * is whole. */
static void test_mid_stream(void **state)
{
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	l.now = 200 * MS;
	lib_tx_chunk(&l, 1, token);
	l.now = 210 * MS;
	lib_tx_chunk(&l, 1, token);
	l.now = 230 * MS;
	lib_tx_chunk(&l, 1, token);
	lib_tx_chunk(&l, 1, finish);
	lib_tx_chunk(&l, 1, done);
	lib_tx(&l, 1, "0\r\n\r\n");
	assert_int_equal(l.n, 1);
	assert_true(l.rec[0].r.flags & TKS_F_MID_STREAM);
	assert_int_equal(l.rec[0].r.t_request_ns, TKS_NULL);
	assert_int_equal(l.rec[0].r.ttft_ns, TKS_NULL);
	assert_int_equal(l.rec[0].r.tpot_ns, TKS_NULL);
	assert_int_equal(l.rec[0].r.tokens, TKS_NULL);
	answer_at(&l, 1, 1000 * MS);
	assert_int_equal(l.n, 2);
	check_answer_at(&l.rec[1].r, 1000 * MS);
	assert_int_equal(l.rec[1].r.flags, 0);
	teardown(&l);
}

static void test_client_leaves(void **state)
{
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	begin_answer(&l);
	lib_fin(&l, 1, TKS_RX);
	l.now = 210 * MS;
	lib_tx_chunk(&l, 1, token);
	lib_close(&l, 1, EPIPE);
	assert_int_equal(l.n, 1);
	assert_string_equal(l.rec[0].r.finish, "aborted");
	assert_int_equal(l.rec[0].r.token_frames, 2);
	teardown(&l);
}

static void test_client_resets(void **state)
{
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	begin_answer(&l);
	lib_close(&l, 1, ECONNRESET);
	assert_int_equal(l.n, 1);
	assert_string_equal(l.rec[0].r.finish, "aborted");
	teardown(&l);
}

static void test_server_cuts(void **state)
{
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	begin_answer(&l);
	lib_fin(&l, 1, TKS_TX);
	lib_close(&l, 1, 0);
	assert_int_equal(l.n, 1);
	assert_string_equal(l.rec[0].r.finish, "cut");
	assert_int_equal(l.rec[0].r.flags, TKS_F_ESTIMATED);
	teardown(&l);
}

static void test_trace_ends(void **state)
{
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	begin_answer(&l);
	tks_pipeline_finish(l.p, 300 * MS);
	assert_int_equal(l.n, 1);
	assert_string_equal(l.rec[0].r.finish, "open");
	assert_int_equal(l.rec[0].r.e2e_ns, TKS_NULL);
	teardown(&l);
}

/* Left during prefill: no answer at all, and yet a record. */
static void test_no_answer(void **state)
{
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	lib_open(&l, 1);
	l.now = 100 * MS;
	lib_rx(&l, 1, request);
	lib_fin(&l, 1, TKS_RX);
	lib_fin(&l, 1, TKS_TX);
	lib_close(&l, 1, 0);
	assert_int_equal(l.n, 1);
	assert_string_equal(l.rec[0].r.finish, "aborted");
	assert_int_equal(l.rec[0].r.status, TKS_NULL);
	assert_int_equal(l.rec[0].r.t_first_ns, TKS_NULL);
	teardown(&l);
}

static void test_not_llm(void **state)
{
	static struct lib_pipe l;

	(void)state;
	setup(&l);
	lib_open(&l, 1);
	lib_rx(&l, 1, "GET /metrics HTTP/1.1\r\n\r\n");
	lib_tx(&l, 1,
	       "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nabc");
	answer(&l, 1);
	assert_int_equal(l.n, 1);
	check_answer(&l.rec[0].r);
	teardown(&l);
}

/* A large download is asked for by heads only; the next request on the connection is whole all the
 * same. */
static void test_bulk(void **state)
{
	static struct lib_pipe l;
	static char block[65536];

	(void)state;
	setup(&l);
	lib_open(&l, 1);
	lib_rx(&l, 1, "GET /file HTTP/1.1\r\n\r\n");
	lib_tx(&l, 1,
	       "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 2097152\r\n\r\n");
	assert_int_equal(l.verdicts, 1);
	assert_int_equal(l.verdict, TKS_VERDICT_HEADERS);
	for (int i = 0; i < 32; i++) {
		struct tks_event ev = {
			.kind = TKS_EV_DATA, .dir = TKS_TX, .len = sizeof(block), .cap = 512
		};

		ev.data = (uint8_t *)block;
		ev.seq = l.tx_seq[1];
		lib_event(&l, 1, &ev);
		tks_pipeline_feed(l.p, &ev);
		l.tx_seq[1] += sizeof(block);
	}
	assert_int_equal(l.n, 0);
	assert_int_equal(l.verdicts, 1);
	answer(&l, 1);
	assert_int_equal(l.n, 1);
	check_answer(&l.rec[0].r);
	assert_int_equal(l.rec[0].r.flags, 0);
	assert_int_equal(l.verdicts, 2); /* all is wanted again */
	assert_int_equal(l.verdict, TKS_VERDICT_FULL);
	teardown(&l);
}

static void test_other_protocols(void **state)
{
	static struct lib_pipe l;
	struct tks_pipeline_counters c;

	(void)state;
	setup(&l);
	lib_open(&l, 1);
	lib_rx(&l, 1, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
	assert_int_equal(l.verdict, TKS_VERDICT_IGNORE);
	assert_int_equal(l.verdict_conn, 1);
	lib_open(&l, 2);
	lib_rx(&l, 2, "SSH-2.0-OpenSSH_9.2\r\n");
	assert_int_equal(l.verdict_conn, 2);
	assert_int_equal(l.verdict, TKS_VERDICT_IGNORE);
	lib_close(&l, 1, 0);
	lib_close(&l, 2, 0);
	tks_pipeline_counters(l.p, &c);
	assert_int_equal(c.encrypted, 1);
	assert_int_equal(c.open_connections, 0);
	assert_int_equal(l.n, 0);
	teardown(&l);
}

static void test_eviction(void **state)
{
	static struct lib_pipe l;
	struct tks_pipeline_config cfg = { .max_connections = 2 };
	struct tks_pipeline_counters c;

	(void)state;
	memset(&l, 0, sizeof(l));
	assert_int_equal(lib_open_pipe(&l, cfg), 0);
	begin_answer(&l);
	lib_open(&l, 2);
	lib_tx(&l, 1, "x"); /* 1 is now the younger of the two */
	lib_open(&l, 3);
	tks_pipeline_counters(l.p, &c);
	assert_int_equal(c.evicted, 1);
	assert_int_equal(c.open_connections, 2);
	assert_int_equal(l.n, 0); /* 2 had no request: its eviction makes no record */
	lib_open(&l, 4);
	assert_int_equal(l.n, 1);
	assert_string_equal(l.rec[0].r.finish, "open");
	teardown(&l);
}

/* Every allocation fails once: never a crash or a leak, and what comes after memory is back is
 * whole. */
static void test_no_memory(void **state)
{
	static struct lib_pipe l;
	struct tks_pipeline_config cfg = { .boundary = TKS_B_SEND };
	uint64_t calls;

	(void)state;
	setup(&l);
	begin_answer(&l);
	answer(&l, 1);
	calls = l.mem.calls;
	teardown(&l);
	assert_true(calls > 10);
	for (uint64_t i = 1; i <= calls + 1; i++) {
		memset(&l, 0, sizeof(l));
		l.mem.fail_at = i;
		if (lib_open_pipe(&l, cfg)) {
			assert_int_equal(l.mem.used, 0);
			continue;
		}
		begin_answer(&l);
		l.mem.fail_at = 0;
		lib_close(&l, 1, 0);
		l.n = 0;
		lib_open(&l, 2);
		answer(&l, 2);
		assert_int_equal(l.n, 1);
		check_answer(&l.rec[0].r);
		teardown(&l);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one),
		cmocka_unit_test(test_early_request),
		cmocka_unit_test(test_unix),
		cmocka_unit_test(test_unix_answer_first),
		cmocka_unit_test(test_unix_answer_only),
		cmocka_unit_test(test_unix_missed),
		cmocka_unit_test(test_unix_kept_to_the_end),
		cmocka_unit_test(test_keep_alive),
		cmocka_unit_test(test_concurrency),
		cmocka_unit_test(test_lost_frame),
		cmocka_unit_test(test_lost_tail),
		cmocka_unit_test(test_mid_stream),
		cmocka_unit_test(test_client_leaves),
		cmocka_unit_test(test_client_resets),
		cmocka_unit_test(test_server_cuts),
		cmocka_unit_test(test_trace_ends),
		cmocka_unit_test(test_no_answer),
		cmocka_unit_test(test_not_llm),
		cmocka_unit_test(test_bulk),
		cmocka_unit_test(test_other_protocols),
		cmocka_unit_test(test_close_before_bytes),
		cmocka_unit_test(test_close_without_bytes),
		cmocka_unit_test(test_one_send),
		cmocka_unit_test(test_lost_answer),
		cmocka_unit_test(test_lost_pipelined),
		cmocka_unit_test(test_eviction),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests_name("pipeline", tests, NULL, NULL);
}
