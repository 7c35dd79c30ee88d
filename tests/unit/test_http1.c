// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * HTTP/1. A case is a script of what either side sends and of what is missing, and the text of what
 * has to be reported (lib_http1.h). Where framing stays intact the same text has to come of every
 * way to cut the script: byte by byte, and in two at every place.
 */
#include <errno.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "lib_http1.h"

#include <cmocka.h>

enum what { STOPS = 0, SENDS, MISSES, ENDS };

struct step {
	enum what what;
	enum tks_side side;
	const char *text; /* SENDS */
	uint64_t n; /* MISSES: bytes */
	uint16_t at; /* time; 0: as before */
};

#define Q TKS_REQUEST
#define S TKS_RESPONSE
#define SEND(side, text)                                                                           \
	{                                                                                          \
		SENDS, side, text, 0, 0                                                            \
	}
#define SEND_AT(side, at, text)                                                                    \
	{                                                                                          \
		SENDS, side, text, 0, at                                                           \
	}
#define MISS(side, n)                                                                              \
	{                                                                                          \
		MISSES, side, NULL, n, 0                                                           \
	}
#define ENDS(side)                                                                                 \
	{                                                                                          \
		(ENDS), side, NULL, 0, 0                                                           \
	}
#define STOP                                                                                       \
	{                                                                                          \
		STOPS, Q, NULL, 0, 0                                                               \
	}

static void note(struct lib_h1 *l, int err)
{
	if (err && !l->err)
		l->err = err;
}

/* Cuts each send of the script into pieces of `piece` bytes (0: not), or at place `cut` only. */
static void play_step(struct lib_h1 *l, const struct step *st, size_t piece, size_t cut)
{
	size_t len = st->text ? strlen(st->text) : 0, done = 0;

	if (st->at)
		l->now = st->at;
	if (st->what == ENDS)
		note(l, lib_h1_eof(l, st->side));
	if (st->what == MISSES)
		note(l, lib_h1_miss(l, st->side, st->n));
	while (done < len) {
		size_t n = len - done;

		if (piece && n > piece)
			n = piece;
		if (!done && cut && cut < n)
			n = cut;
		note(l, lib_h1_feed(l, st->side, st->text + done, n));
		done += n;
	}
}

static void play(struct lib_h1 *l, const struct step *script, size_t piece, size_t cut, bool mid)
{
	assert_int_equal(lib_h1_open(l), 0);
	if (mid)
		tks_http1_mid_stream(l->h);
	for (const struct step *st = script; st->what; st++)
		play_step(l, st, piece, cut);
	lib_h1_line(l);
}

static void done(struct lib_h1 *l)
{
	lib_h1_close(l);
	free(l->text);
}

static void check_once(const struct step *script, const char *expect, int err, size_t piece,
		       size_t cut, bool mid)
{
	struct lib_h1 l;

	play(&l, script, piece, cut, mid);
	if (strcmp(l.text, expect))
		print_message("in pieces of %zu, cut at %zu:\n", piece, cut);
	assert_string_equal(l.text, expect);
	assert_int_equal(l.err, err);
	done(&l);
}

/* The script as it is; for places where slices matter. */
static void check_as_is(const struct step *script, const char *expect, int err)
{
	check_once(script, expect, err, 0, 0, false);
}

static void check_mid(const struct step *script, const char *expect)
{
	check_once(script, expect, 0, 0, 0, true);
}

/* Every way to cut it. */
static void check_cuts(const struct step *script, const char *expect, int err)
{
	size_t longest = 0;

	for (const struct step *st = script; st->what; st++) {
		if (st->text && strlen(st->text) > longest)
			longest = strlen(st->text);
	}
	check_as_is(script, expect, err);
	for (size_t piece = 1; piece <= 3; piece++)
		check_once(script, expect, err, piece, 0, false);
	for (size_t cut = 1; cut < longest; cut++)
		check_once(script, expect, err, 0, cut, false);
}

static void check(const struct step *script, const char *expect)
{
	check_cuts(script, expect, 0);
}

#define GET "GET / HTTP/1.1\r\n\r\n" /* 18 bytes */
#define GET_LOG(first, last)                                                                       \
	"Q begin " first "\nQ head " first "-" last " GET / 1.1\nQ end " last " complete\n"
#define CHUNKED "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" /* 47 bytes */

/* --- framing --- */

static void plain_exchange(void **state)
{
	static const struct step script[] = {
		SEND(Q, "POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: h\r\nContent-Type: "
			"Application/JSON; charset=utf-8\r\nContent-Length: 7\r\n\r\n{\"a\":1}"),
		SEND(S, "HTTP/1.1 200 OK\r\nserver: uvicorn\r\nContent-Encoding: GZIP\r\n"
			"content-length: 5\r\n\r\nhello"),
		STOP
	};

	(void)state;
	/* 40 + 9 + 47 + 19 + 2 = 117 bytes of head; 17 + 17 + 24 + 19 + 2 = 79. */
	check(script, "Q begin 0\n"
		      "Q head 0-116 POST /v1/chat/completions?x=1 1.1 length=7 "
		      "type=application/json\n"
		      "Q body 117 {\"a\":1}\nQ end 123 complete\n"
		      "S head 0-78 200 1.1 length=5 coding=gzip server=uvicorn\n"
		      "S body 79 hello\nS end 83 complete\n");
}

static void keep_alive_in_one_slice(void **state)
{
	static const struct step script[] = {
		SEND(Q, GET),
		SEND(S, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"), /* 40 */
		SEND(Q, GET),
		SEND(S, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), /* 45 */
		SEND(Q, GET GET), /* pipelined */
		SEND(S, CHUNKED "1\r\nx\r\n0\r\n\r\n" /* 47 + 6 + 5 */
				"HTTP/1.1 204 No Content\r\n\r\n"), /* 27 */
		STOP
	};

	(void)state;
	check(script,
	      GET_LOG("0",
		      "17") "S head 0-37 200 1.1 length=2\nS body 38 ab\n"
			    "S end 39 complete\n" GET_LOG(
				    "18",
				    "35") "S head 40-84 404 1.1 length=0\nS end 84 complete\n" GET_LOG("36",
												       "53")
				    GET_LOG("54", "71") "S head 85-131 200 1.1 chunked\n"
							"S body 135 x\nS end 142 complete\n"
							"S head 143-169 204 1.1\n"
							"S end 169 complete\n");
}

static void empty_lines_between_messages(void **state)
{
	static const struct step script[] = { SEND(Q, "\r\n" GET "\r\n\n" GET), STOP };

	(void)state;
	check(script, GET_LOG("2", "19") GET_LOG("23", "40"));
}

static void interim_responses_are_not_reported(void **state)
{
	static const struct step script[] = {
		SEND(Q, "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"),
		SEND(S, "HTTP/1.1 100 Continue\r\n\r\n"), /* 25 */
		SEND(Q, "ab"),
		SEND(S, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" /* 26 + 12 + 2 */
			"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nz"),
		STOP
	};

	(void)state;
	/* 17 + 22 + 19 + 2 = 60 */
	check(script, "Q begin 0\nQ head 0-59 POST / 1.1 length=2\nQ body 60 ab\n"
		      "Q end 61 complete\nS head 65-102 200 1.1 length=1\nS body 103 z\n"
		      "S end 103 complete\n");
}

static void responses_without_a_body(void **state)
{
	static const struct step script[] = {
		SEND(Q, "HEAD / HTTP/1.1\r\n\r\n" GET GET), /* 19 */
		SEND(S, "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" /* 40 */
			"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n" /* 48 */
			"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n" /* 55 */
			"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nq"),
		STOP
	};

	(void)state;
	check(script,
	      "Q begin 0\nQ head 0-18 HEAD / 1.1\nQ end 18 complete\n" GET_LOG("19", "36") GET_LOG(
		      "37",
		      "54") "S head 0-39 200 1.1 length=500\nS end 39 complete\n"
			    "S head 40-87 304 1.1 length=9\nS end 87 complete\n"
			    "S head 88-142 204 1.1 chunked\nS end 142 complete\n"
			    "S head 143-180 200 1.1 length=1\nS body 181 q\nS end 181 complete\n");
}

static void chunked_in_all_its_forms(void **state)
{
	static const struct step script[] = {
		SEND(Q, GET),
		/* 47 of head; chunks at 47 (10 bytes), 57 (5 + 10 + 2), 74 (22 + 10 + 2), 108
		 * (padded: 7), 115 (bare LF: 4); 119: the end (5 + 12 + 10 + 2) */
		SEND(S, CHUNKED "5\r\nhello\r\n"
				"00A\r\n0123456789\r\n"
				"a;name=value;q=\"x y\"\r\n0123456789\r\n"
				"1 \r\nx\r\n"
				"1\ny\n"
				"000\r\nTrailer: 1\r\nOther: 2\r\n\r\n"),
		SEND(S, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), STOP
	};

	(void)state;
	check(script, GET_LOG("0", "17") "S head 0-46 200 1.1 chunked\n"
					 "S body 50 hello\nS body 62 0123456789\n"
					 "S body 96 0123456789\nS body 112 x\nS body 117 y\n"
					 "S end 147 complete\nS head 148-185 200 1.1 length=0\n"
					 "S end 185 complete\n");
}

static void chunked_request(void **state)
{
	static const struct step script[] = {
		SEND(Q, "POST /a HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n" /* 54 */
			"2\r\nab\r\n0\r\n\r\n" GET),
		STOP
	};

	(void)state;
	check(script, "Q begin 0\nQ head 0-53 POST /a 1.1 chunked\nQ body 57 ab\n"
		      "Q end 65 complete\n" GET_LOG("66", "83"));
}

static void closed_by_the_end(void **state)
{
	static const struct step script[] = {
		SEND(Q, "GET / HTTP/1.0\r\n\r\n"),
		SEND(S, "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"), /* 52 */
		SEND(S, "data: HTTP/1.1 200 OK\n\n"),
		SEND(S, "HTTP/1.1 200 OK\r\n\r\n"), /* text, as nothing is ever looked at */
		ENDS(S),
		ENDS(S),
		STOP
	};

	(void)state;
	check(script, "Q begin 0\nQ head 0-17 GET / 1.0 close\nQ end 17 complete\n"
		      "S head 0-51 200 1.0 close type=text/event-stream\n"
		      "S body 52 data: HTTP/1.1 200 OK\\0a\\0aHTTP/1.1 200 OK\\0d\\0a\\0d\\0a\n"
		      "S end 93 closed\n");
}

static void cut_by_the_end(void **state)
{
	static const struct step chunked[] = { SEND(Q, GET), SEND(S, CHUNKED "5\r\nhel"), ENDS(S),
					       ENDS(Q), STOP };
	static const struct step counted[] = {
		SEND(Q, "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nab"), /* 38 */
		ENDS(Q),
		SEND(S, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nx"),
		ENDS(S), STOP
	};
	static const struct step head[] = { SEND(Q, "GET / HTT"), ENDS(Q), SEND(S, "HTTP/1.1 20"),
					    ENDS(S), STOP };

	(void)state;
	check(chunked, GET_LOG("0", "17") "S head 0-46 200 1.1 chunked\nS body 50 hel\n"
					  "S end 52 cut\n");
	check(counted, "Q begin 0\nQ head 0-37 POST / 1.1 length=9\nQ body 38 ab\nQ end 39 cut\n"
		       "S head 0-56 200 1.1 length=3 close\nS body 57 x\nS end 57 cut\n");
	check(head, "Q begin 0\nQ end 8 cut\n");
}

static void response_before_the_request_ends(void **state)
{
	static const struct step script[] = {
		SEND(Q, "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nab"), /* 38 */
		SEND(S, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"),
		SEND(Q, "cd"
			"HEAD / HTTP/1.1\r\n\r\n"),
		SEND(S, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n"), STOP
	};

	(void)state;
	check(script, "Q begin 0\nQ head 0-37 POST / 1.1 length=4\nQ body 38 ab\n"
		      "S head 0-44 413 1.1 length=0\nS end 44 complete\n"
		      "Q body 40 cd\nQ end 41 complete\n"
		      "Q begin 42\nQ head 42-60 HEAD / 1.1\nQ end 60 complete\n"
		      "S head 45-82 200 1.1 length=8\nS end 82 complete\n");
}

static void upgraded(void **state)
{
	static const struct step script[] = {
		SEND(Q, "GET /ws HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
		SEND(S, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
			"Connection: Upgrade\r\n\r\n\x81\x02"
			"hi"), /* 34 + 20 + 21 + 2 */
		SEND(Q, "\x81\x82zzzz"),
		MISS(S, 5),
		SEND(S, "GET"),
		ENDS(S),
		ENDS(Q),
		STOP
	};

	(void)state;
	/* 18 + 20 + 21 + 2 = 61 */
	check(script, "Q begin 0\nQ head 0-60 GET /ws 1.1 to=websocket\nQ end 60 complete\n"
		      "S head 0-76 101 1.1 upgrade to=websocket\nS body 77 \\81\\02hi\n"
		      "Q body 61 \\81\\82zzzz\nS gap 81+5\nS body 86 GET\nS end 88 closed\n");
}

static void connect_tunnels_if_accepted(void **state)
{
	static const struct step script[] = {
		SEND(Q, "CONNECT a:443 HTTP/1.1\r\n\r\n"), /* 26 */
		SEND(S, "HTTP/1.1 407 No\r\nContent-Length: 1\r\n\r\nx"),
		SEND(Q, "CONNECT a:443 HTTP/1.1\r\n\r\n"),
		SEND(S, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"),
		SEND(S, "abc"),
		STOP
	};

	(void)state;
	check(script, "Q begin 0\nQ head 0-25 CONNECT a:443 1.1\nQ end 25 complete\n"
		      "S head 0-37 407 1.1 length=1\nS body 38 x\nS end 38 complete\n"
		      "Q begin 26\nQ head 26-51 CONNECT a:443 1.1\nQ end 51 complete\n"
		      "S head 39-76 200 1.1 length=1 upgrade\nS body 77 abc\n");
}

static void upgrade_offered_but_not_taken(void **state)
{
	static const struct step script[] = {
		SEND(Q, "POST / HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n"
			"Content-Length: 1\r\n\r\nx" GET), /* 17 + 14 + 21 + 19 + 2 = 73 */
		SEND(S, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\ny"), STOP
	};

	(void)state;
	check(script,
	      "Q begin 0\nQ head 0-72 POST / 1.1 length=1 to=h2c\nQ body 73 x\n"
	      "Q end 73 complete\n" GET_LOG(
		      "74", "91") "S head 0-37 200 1.1 length=1\nS body 38 y\nS end 38 complete\n");
}

/* --- heads --- */

static void odd_headers(void **state)
{
	static const struct step script[] = {
		SEND(Q, GET),
		SEND(S,
		     "HTTP/1.1 200\r\nSERVER:\t x y \t\r\ncOnTeNt-TyPe:Text/Event-Stream ; a=b\r\n"
		     "X-Long-Name-That-Is-Longer-Than-Any-We-Know: 1\r\nServer: other\r\n"
		     "X-Fold: a\r\n  b\r\nX-Bin: \x80\xff\r\nContent-Length: 3\r\n"
		     "Content-Length: 3\r\n\r\nabc"),
		STOP
	};

	(void)state;
	/* 14 + 16 + 38 + 48 + 15 + 11 + 5 + 11 + 19 + 19 + 2 = 198 */
	check(script,
	      GET_LOG("0", "17") "S head 0-197 200 1.1 length=3 type=text/event-stream server=x y\n"
				 "S body 198 abc\nS end 200 complete\n");
}

static void both_length_and_chunked(void **state)
{
	static const struct step script[] = {
		SEND(Q, GET GET),
		/* 17 + 19 + 28 + 2 = 66 of head, 11 of chunks */
		SEND(S, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
			"1\r\na\r\n0\r\n\r\n"
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"
			"1\r\na\r\n0\r\n\r\n"),
		STOP
	};

	(void)state;
	check(script,
	      GET_LOG("0", "17") GET_LOG(
		      "18",
		      "35") "S head 0-65 200 1.1 chunked\nS body 69 a\nS end 76 complete\n"
			    "S head 77-142 200 1.1 chunked\nS body 146 a\nS end 153 complete\n");
}

static void a_coding_that_is_not_chunked(void **state)
{
	static const struct step script[] = {
		SEND(Q, "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n" GET),
		SEND(S, "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-Length: 1\r\n\r\n"),
		SEND(S, "abc"), ENDS(S), STOP
	};

	(void)state;
	/* 17 + 25 + 2 = 44; 17 + 25 + 19 + 2 = 63 */
	check(script,
	      "Q begin 0\nQ head 0-43 POST / 1.1\nQ end 43 complete\n" GET_LOG(
		      "44", "61") "S head 0-62 200 1.1 close\nS body 63 abc\nS end 65 closed\n");
}

static void what_does_not_fit_is_cut_off(void **state)
{
	char request[600], expect[700], a[256];
	struct step script[] = { SEND(Q, request), STOP };

	(void)state;
	memset(a, 'a', sizeof(a));
	for (int n = 254; n <= 256; n++) {
		int len = sprintf(request, "GET /%.*s HTTP/1.1\r\n\r\n", n, a);

		sprintf(expect, "Q begin 0\nQ head 0-%d GET /%.*s 1.1%s\nQ end %d complete\n",
			len - 1, n < 254 ? n : 254, a, n > 254 ? " truncated" : "", len - 1);
		check(script, expect);
	}
	for (int n = 63; n <= 64; n++) {
		int len = sprintf(request, "GET / HTTP/1.1\r\nServer: %.*s\r\n\r\n", n, a);

		sprintf(expect,
			"Q begin 0\nQ head 0-%d GET / 1.1%s server=%.63s\nQ end %d complete\n",
			len - 1, n > 63 ? " truncated" : "", a, len - 1);
		check(script, expect);
	}
}

/* A request head of exactly len bytes. */
static char *head_of(size_t len)
{
	static const char first[] = "GET / HTTP/1.1\r\n", last[] = "\r\n";
	char *head = malloc(len + 1);
	size_t n = strlen(first), end = len - strlen(last);

	assert_non_null(head);
	strcpy(head, first);
	while (n < end) {
		size_t line = end - n > 200 ? 100 : end - n;

		memset(head + n, 'x', line);
		head[n + 1] = ':';
		memcpy(head + n + line - 2, "\r\n", 2);
		n += line;
	}
	strcpy(head + end, last);
	return head;
}

static void heads_are_bounded(void **state)
{
	static const size_t pieces[] = { TKS_H1_HEAD_MAX * 2, 1, 4096, 65537 };

	(void)state;
	for (int over = -1; over <= 1; over++) {
		char *head = head_of((size_t)(TKS_H1_HEAD_MAX + over));

		for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
			struct step script[] = { SEND(Q, head), STOP };
			struct lib_h1 l;

			play(&l, script, pieces[i], 0, false);
			assert_int_equal(l.err, over > 0 ? -EBADMSG : 0);
			assert_int_equal(strstr(l.text, "Q end") != NULL, over <= 0);
			assert_true(l.mem.peak < 4096);
			done(&l);
		}
		free(head);
	}
}

/* --- what is not HTTP/1 --- */

static void not_http(void **state)
{
	static const struct step garbage[] = { SEND(Q, "\x16\x03\x01 hello"), ENDS(Q), STOP };
	static const struct step h2[] = { SEND(Q, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), ENDS(Q),
					  STOP };
	static const struct step old[] = { SEND(Q, "GET /\r\n\r\n"), ENDS(Q), STOP };
	struct lib_h1 l;

	(void)state;
	check_cuts(garbage, "Q begin 0\nQ end 8 cut\n", -EBADMSG);
	check_cuts(h2, "Q begin 0\nQ end 23 cut\n", -EBADMSG);
	check_cuts(old, "Q begin 0\nQ end 8 cut\n", -EBADMSG);
	/* It says so once, and goes on to look for a message. */
	assert_int_equal(lib_h1_open(&l), 0);
	assert_int_equal(lib_h1_feed(&l, TKS_RESPONSE, "hello", 5), -EBADMSG);
	assert_int_equal(lib_h1_feed(&l, TKS_RESPONSE, "hello", 5), 0);
	assert_int_equal(lib_h1_feed(&l, TKS_RESPONSE, "HTTP/1.1 204 x\r\n\r\n", 18), 0);
	assert_string_equal(l.text, "S head 10-27 204 1.1\nS end 27 complete\n");
	done(&l);
}

static void impossible_sizes(void **state)
{
	static const struct step huge[] = { SEND(Q, GET),
					    SEND(S, CHUNKED "10000000000\r\nabc"),
					    MISS(S, 1ull << 39),
					    SEND(S, "d"),
					    ENDS(S),
					    STOP };
	static const struct step over[] = { SEND(Q, GET),
					    SEND(S, CHUNKED "8000000000000000\r\nabc"), STOP };
	static const struct step length[] = {
		SEND(Q, GET),
		SEND(S, "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n"), STOP
	};
	static const struct step negative[] = {
		SEND(Q, GET), SEND(S, "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), STOP
	};
	static const struct step largest[] = {
		SEND(Q, GET),
		SEND(S, "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\nabc"), STOP
	};

	(void)state;
	/* A tebibyte is the most; 2^39 + 63. The eleventh digit of the other is one too many. */
	check(huge, GET_LOG("0", "17") "S head 0-46 200 1.1 chunked\nS body 60 abc\n"
				       "S gap 63+549755813888\n"
				       "S body 549755813951 d\n"
				       "S end 549755813951 cut\n");
	check_as_is(over, GET_LOG("0", "17") "S head 0-46 200 1.1 chunked\nS gap 57+0\n", -EBADMSG);
	check_cuts(length, GET_LOG("0", "17"), -EBADMSG);
	check_cuts(negative, GET_LOG("0", "17"), -EBADMSG);
	check(largest, GET_LOG("0", "17") "S head 0-56 200 1.1 length=9223372036854775807\n"
					  "S body 57 abc\n");
}

static void bad_chunks(void **state)
{
	static const char *const bodies[] = { "5\r\nhelloX", "5\r\nhello\rX", "g",  "\r\n",
					      "1X",	     "1\rX",	      "-1", "0\r\n\rX" };
	struct lib_h1 l;

	(void)state;
	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
		assert_int_equal(lib_h1_open(&l), 0);
		lib_h1_feed(&l, TKS_RESPONSE, CHUNKED, 47);
		assert_int_equal(lib_h1_feed(&l, TKS_RESPONSE, bodies[i], strlen(bodies[i])),
				 -EBADMSG);
		assert_non_null(strstr(l.text, "S gap"));
		done(&l);
	}
}

static void too_many_open_requests(void **state)
{
	struct lib_h1 l;
	int i;

	(void)state;
	assert_int_equal(lib_h1_open(&l), 0);
	for (i = 1; i <= TKS_H1_PIPELINE_MAX; i++) {
		assert_int_equal(lib_h1_feed(&l, TKS_REQUEST, GET, 18), 0);
		assert_int_equal(tks_http1_pending(l.h), i);
	}
	assert_int_equal(lib_h1_feed(&l, TKS_REQUEST, GET, 18), -EBADMSG);
	assert_int_equal(lib_h1_feed(&l, TKS_RESPONSE, "HTTP/1.1 204 x\r\n\r\n", 18), -EBADMSG);
	assert_int_equal(lib_h1_miss(&l, TKS_RESPONSE, 5), 0);
	done(&l);
	/* One fewer at a time goes on for ever. */
	assert_int_equal(lib_h1_open(&l), 0);
	for (i = 0; i < 3 * TKS_H1_PIPELINE_MAX; i++) {
		if (i >= TKS_H1_PIPELINE_MAX)
			lib_h1_feed(&l, TKS_RESPONSE, "HTTP/1.1 204 x\r\n\r\n", 18);
		assert_int_equal(lib_h1_feed(&l, TKS_REQUEST, GET, 18), 0);
	}
	assert_int_equal(tks_http1_pending(l.h), TKS_H1_PIPELINE_MAX);
	done(&l);
}

/* --- gaps --- */

static void gap_within_what_is_owed(void **state)
{
	static const struct step counted[] = {
		SEND(Q, "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nab"), MISS(Q, 5),
		SEND(Q, "hi" GET), STOP
	};
	static const struct step chunked[] = { SEND(Q, GET),
					       SEND(S, CHUNKED "9\r\nab"),
					       MISS(S, 3),
					       MISS(S, 2),
					       SEND(S, "hi\r\n1\r\n"),
					       MISS(S, 1),
					       SEND(S, "\r\n0\r\n\r\n"),
					       STOP };

	(void)state;
	check(counted, "Q begin 0\nQ head 0-37 POST / 1.1 length=9\nQ body 38 ab\nQ gap 40+5\n"
		       "Q body 45 hi\nQ end 46 complete\n" GET_LOG("47", "64"));
	check(chunked, GET_LOG("0", "17") "S head 0-46 200 1.1 chunked\nS body 50 ab\nS gap 52+3\n"
					  "S gap 55+2\nS body 57 hi\nS gap 64+1\n"
					  "S end 71 complete\n");
}

static void gap_up_to_a_known_end(void **state)
{
	static const struct step counted[] = {
		SEND(Q, "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nab"), MISS(Q, 7), SEND(Q, GET),
		STOP
	};
	static const struct step chunk_and_crlf[] = {
		SEND(Q, GET),
		SEND(S, CHUNKED "5\r\nab"),
		MISS(S, 5), /* "cde\r\n" */
		SEND(S, "1\r\nx\r"),
		MISS(S, 1), /* the LF */
		SEND(S, "1\r\ny"),
		MISS(S, 2), /* CRLF, in a send of its own */
		SEND(S, "0\r\n"),
		MISS(S, 2), /* the final CRLF */
		SEND(S, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
		STOP
	};

	(void)state;
	check(counted, "Q begin 0\nQ head 0-37 POST / 1.1 length=9\nQ body 38 ab\nQ gap 40+7\n"
		       "Q end 46 complete\n" GET_LOG("47", "64"));
	/* 52: cde CRLF; 57: "1 CRLF x CR"; 62: LF; 63: "1 CRLF y"; 67, 68: CRLF; 69: "0
	 * CRLF"; 72, 73: CRLF */
	check(chunk_and_crlf,
	      GET_LOG("0", "17") "S head 0-46 200 1.1 chunked\nS body 50 ab\nS gap 52+3\n"
				 "S body 60 x\nS body 66 y\nS end 73 complete\n"
				 "S head 74-111 200 1.1 length=0\nS end 111 complete\n");
}

static void gap_past_a_chunk(void **state)
{
	static const struct step script[] = {
		SEND(Q, GET),
		SEND(S, CHUNKED "5\r\nab"),
		MISS(S, 20),
		SEND(S, "data: some text\n\n\r\n"), /* 72: can't be placed */
		SEND(S, "8\r\ndata: y\n\r\n"), /* 91: a chunk */
		SEND(S, "0\r\n\r\n"), /* 104 */
		SEND(Q, GET),
		SEND(S, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
		STOP
	};

	(void)state;
	check_as_is(
		script,
		GET_LOG("0",
			"17") "S head 0-46 200 1.1 chunked\nS body 50 ab\nS gap 52+3\n"
			      "S gap 57+0\nS body 94 data: y\\0a\nS end 108 complete\n" GET_LOG(
				      "18",
				      "35") "S head 109-146 200 1.1 length=0\nS end 146 complete\n",
		0);
}

static void the_next_message_cuts(void **state)
{
	static const struct step script[] = {
		SEND(Q, GET),
		SEND(S, CHUNKED "5\r\nab"),
		MISS(S, 100),
		SEND(S, "lost"), /* 152 */
		SEND(Q, GET),
		SEND(S, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"), /* 156: 38 + 1 */
		STOP
	};
	static const struct step request[] = {
		SEND(Q, "POST / HTTP/1.1\r\nContent-Length: 900\r\n\r\nab"), /* 40 */
		MISS(Q, 2000), SEND(Q, "GET is a word at the start of a slice"),
		SEND(Q, GET), /* 2079 */
		STOP
	};
	static const struct step head[] = { SEND(Q, "POST / HTTP/1.1\r\nContent-Le"), MISS(Q, 10),
					    SEND(Q, GET), /* 37 */
					    STOP };

	(void)state;
	check_as_is(
		script,
		GET_LOG("0",
			"17") "S head 0-46 200 1.1 chunked\nS body 50 ab\nS gap 52+3\n"
			      "S gap 57+0\n" GET_LOG(
				      "18",
				      "35") "S end 155 cut\nS head 156-193 200 1.1 length=1\nS body 194 x\n"
					    "S end 194 complete\n",
		0);
	/* The length said where the first one ended: at 40 + 900. */
	check_as_is(request,
		    "Q begin 0\nQ head 0-39 POST / 1.1 length=900\nQ body 40 ab\n"
		    "Q gap 42+898\nQ end 939 complete\n" GET_LOG("2079", "2096"),
		    0);
	check_as_is(head, "Q begin 0\nQ end 26 cut\n" GET_LOG("37", "54"), 0);
}

/* A model that writes HTTP: nothing is sniffed while the framing is intact, and none is
 * believed when it is lost while no request can have asked for it. */
static void text_that_looks_like_http(void **state)
{
	static const struct step intact[] = { SEND(Q, GET), SEND(S, CHUNKED "26\r\n"),
					      SEND(S,
						   "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
					      SEND(S, "\r\n0\r\n\r\n"), STOP };
	static const struct step lost[] = { SEND(Q, GET),
					    SEND(S, CHUNKED "5\r\nab"),
					    MISS(S, 100),
					    SEND(S, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
					    SEND(S, "1\r\nx\r\n0\r\n\r\n"), /* 190 */
					    STOP };

	(void)state;
	check(intact, GET_LOG("0", "17") "S head 0-46 200 1.1 chunked\n"
					 "S body 51 HTTP/1.1 200 OK\\0d\\0aContent-Length: 0\\0d"
					 "\\0a\\0d\\0a\nS end 95 complete\n");
	check_as_is(lost,
		    GET_LOG("0", "17") "S head 0-46 200 1.1 chunked\nS body 50 ab\n"
				       "S gap 52+3\nS gap 57+0\nS body 193 x\n"
				       "S end 200 complete\n",
		    0);
}

static void no_chunk_after_all(void **state)
{
	static const struct step script[] = { SEND(Q, GET),
					      SEND(S, CHUNKED "5\r\nab"),
					      MISS(S, 100), /* to 152 */
					      SEND(S,
						   "3\r\nabXdef"), /* 8 bytes: no CRLF where it
								      should be, dropped at once */
					      SEND(S, "5\r\nab"), /* 161: might be */
					      SEND(S, "cdefg"), /* 166: was not */
					      SEND(S, "2\r\nhi\r\n"), /* 171 */
					      STOP };

	(void)state;
	check_as_is(script,
		    GET_LOG("0", "17") "S head 0-46 200 1.1 chunked\nS body 50 ab\nS gap 52+3\n"
				       "S gap 57+0\nS body 164 abcde\nS gap 169+0\nS body 174 hi\n",
		    -EBADMSG);
}

static void an_answer_lost_whole(void **state)
{
	static const struct step script[] = {
		SEND_AT(Q, 10, GET),
		MISS(S, 60),
		SEND_AT(Q, 20, GET),
		SEND_AT(S, 25, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
		SEND_AT(Q, 30, "HEAD / HTTP/1.1\r\n\r\n"), /* 36 */
		SEND_AT(S, 35, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"),
		STOP
	};

	(void)state;
	check_as_is(script,
		    GET_LOG("0", "17") GET_LOG(
			    "18", "35") "S head 60-60 resumed\nS end 59 cut\n"
					"S head 60-97 200 1.1 length=0\nS end 97 complete\n"
					"Q begin 36\nQ head 36-54 HEAD / 1.1\nQ end 54 complete\n"
					"S head 98-135 200 1.1 length=7\nS end 135 complete\n",
		    0);
}

/* The hole in an answer was waited for, so that the next request was parsed before the rest
 * of the answer: the order in which things are fed is not that in which they happened. */
static void the_hole_was_known_late(void **state)
{
	static const struct step same[] = { SEND_AT(Q, 10, GET),
					    SEND_AT(S, 20, CHUNKED "5\r\nab"),
					    SEND_AT(Q, 40, GET),
					    SEND_AT(Q, 60, GET),
					    MISS(S, 20), /* to 72 */
					    SEND_AT(S, 30, "1\r\nx\r\n0\r\n\r\n"), /* to 83 */
					    SEND_AT(S, 50, "HTTP/1.1 204 x\r\n\r\n"),
					    SEND_AT(S, 70,
						    "HTTP/1.1 205 x\r\nContent-Length: 0\r\n\r\n"),
					    STOP };
	static const struct step other[] = {
		SEND_AT(Q, 10, GET),
		SEND_AT(S, 20, CHUNKED "5\r\nab"),
		SEND_AT(Q, 40, GET),
		MISS(S, 200), /* to 252: its end, and the head of the next */
		SEND_AT(S, 50, "1\r\nx\r\n0\r\n\r\n"),
		STOP
	};

	(void)state;
	check_as_is(same,
		    GET_LOG("0", "17") "S head 0-46 200 1.1 chunked\nS body 50 ab\n" GET_LOG("18",
											     "35")
			    GET_LOG("36",
				    "53") "S gap 52+3\nS gap 57+0\nS body 75 x\nS end 82 complete\n"
					  "S head 83-100 204 1.1\nS end 100 complete\n"
					  "S head 101-137 205 1.1 length=0\nS end 137 complete\n",
		    0);
	check_as_is(other,
		    GET_LOG("0", "17") "S head 0-46 200 1.1 chunked\nS body 50 ab\n" GET_LOG(
			    "18",
			    "35") "S gap 52+3\nS gap 57+0\nS end 51 cut\n"
				  "S head 252-252 resumed\nS body 255 x\nS end 262 complete\n",
		    0);
}

/* A request that was lost, or came late, leaves an answer without one; the request that
 * comes after its answer must not take that of the next. */
static void answers_before_their_requests(void **state)
{
	static const struct step script[] = {
		SEND_AT(S, 20, "HTTP/1.1 204 x\r\n\r\n"),
		SEND_AT(Q, 10, GET),
		SEND_AT(Q, 30, GET),
		SEND_AT(S, 40, "HTTP/1.1 204 x\r\n\r\n"),
		SEND_AT(Q, 50, "HEAD / HTTP/1.1\r\n\r\n"),
		SEND_AT(S, 60, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"),
		STOP
	};

	(void)state;
	check(script,
	      "S head 0-17 204 1.1\nS end 17 complete\n" GET_LOG("0", "17")
		      GET_LOG("18", "35") "S head 18-18 resumed\nS end 17 cut\n"
					  "S head 18-35 204 1.1\nS end 35 complete\n"
					  "Q begin 36\nQ head 36-54 HEAD / 1.1\nQ end 54 complete\n"
					  "S head 36-73 200 1.1 length=7\nS end 73 complete\n");
}

static void a_client_that_pipelines_keeps_its_order(void **state)
{
	static const struct step script[] = { SEND_AT(Q, 10, GET GET GET GET),
					      SEND_AT(S, 20, "HTTP/1.1 204 x\r\n\r\n"),
					      SEND_AT(S, 30, CHUNKED "5\r\nab"), /* 18 */
					      MISS(S, 50), /* 70 to 120 */
					      SEND_AT(S, 40, "1\r\nx\r\n0\r\n\r\n"),
					      SEND_AT(S, 50, "HTTP/1.1 204 x\r\n\r\n"), /* 131 */
					      STOP };
	struct lib_h1 l;

	(void)state;
	play(&l, script, 0, 0, false);
	assert_non_null(strstr(l.text, "S gap 75+0\nS body 123 x\nS end 130 complete\n"
				       "S head 131-148 204 1.1\nS end 148 complete\n"));
	assert_null(strstr(l.text, "resumed"));
	assert_int_equal(tks_http1_pending(l.h), 1);
	done(&l);
}

static void without_times_the_order_decides(void **state)
{
	static const struct step script[] = { SEND(Q, GET), MISS(S, 60), SEND(Q, GET),
					      SEND(S, "HTTP/1.1 204 x\r\n\r\n"), STOP };

	(void)state;
	check_as_is(script,
		    GET_LOG("0", "17")
			    GET_LOG("18", "35") "S head 60-77 204 1.1\nS end 77 complete\n",
		    0);
}

/* --- entered in the middle --- */

static void entered_in_a_chunked_answer(void **state)
{
	static const struct step script[] = { SEND(S, "some text\r\n"), /* 11 bytes */
					      SEND(S, "\r\n"),
					      SEND(S, "4\r\nabcd\r\n4\r\nefgh\r\n"), /* 13 */
					      SEND(S, "0\r\n\r\n"), /* 31 */
					      SEND(Q, "rest of a body"), /* 14 */
					      SEND(Q, GET),
					      SEND(S, "HTTP/1.1 204 x\r\n\r\n"), /* 36 */
					      STOP };

	(void)state;
	check_mid(script, "S head 13-13 resumed\nS body 16 abcd\nS body 25 efgh\n"
			  "S end 35 complete\n" GET_LOG(
				  "14", "31") "S head 36-53 204 1.1\nS end 53 complete\n");
}

static void entered_between_or_in_an_end(void **state)
{
	static const struct step end[] = { SEND(S, "0\r\n\r\nHTTP/1.1 204 x\r\n\r\n"), STOP };
	static const struct step crlf[] = { SEND(S, "\r\n2\r\nab\r\n0\r\n\r\n"),
					    SEND(S, "HTTP/1.1 204 x\r\n\r\n"), STOP };
	static const struct step piece[] = {
		SEND(S, "cd\r\n"), /* reads as a size line, but nothing proves it */
		SEND(S, "4\r\nab"), /* nor this */
		SEND(S, "0\r\n\r\nHello"), /* what follows is no message */
		SEND(S, "HTTP/1.1 204 x\r\n\r\n"), /* 19 */
		STOP
	};

	(void)state;
	check_mid(end, "S head 0-0 resumed\nS end 4 complete\nS head 5-22 204 1.1\n"
		       "S end 22 complete\n");
	check_mid(crlf, "S head 2-2 resumed\nS body 5 ab\nS end 13 complete\n"
			"S head 14-31 204 1.1\nS end 31 complete\n");
	check_mid(piece, "S head 19-36 204 1.1\nS end 36 complete\n");
}

static void entered_in_a_request(void **state)
{
	static const struct step script[] = {
		SEND(Q, "POST is what the letter says\nHTTP/1.1"), /* 37 */
		SEND(Q, "GET /not-a-request at all"), /* 25 */
		SEND(Q, "POST /v1/completions HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"),
		SEND(S, "HTTP/1.1 204 x\r\n\r\n"), STOP
	};

	(void)state;
	/* 31 + 19 + 2 = 52 */
	check_mid(script, "Q begin 62\nQ head 62-113 POST /v1/completions 1.1 length=1\n"
			  "Q body 114 x\nQ end 114 complete\nS head 0-17 204 1.1\n"
			  "S end 17 complete\n");
}

/* The first line itself may be cut anywhere. */
static void entered_with_a_first_line_in_pieces(void **state)
{
	static const char request[] = "\r\nPOST /v1/completions HTTP/1.1\r\n\r\n";
	static const char response[] = "HTTP/1.1 204 No Content\r\n\r\n";

	(void)state;
	for (size_t cut = 1; cut < sizeof(request) - 1; cut++) {
		struct lib_h1 l;

		assert_int_equal(lib_h1_open(&l), 0);
		tks_http1_mid_stream(l.h);
		lib_h1_feed(&l, TKS_REQUEST, request, cut);
		lib_h1_feed(&l, TKS_REQUEST, request + cut, sizeof(request) - 1 - cut);
		if (cut < sizeof(response) - 1) {
			lib_h1_feed(&l, TKS_RESPONSE, response, cut);
			lib_h1_feed(&l, TKS_RESPONSE, response + cut, sizeof(response) - 1 - cut);
			assert_non_null(strstr(l.text, "S head 0-26 204 1.1\nS end 26 complete\n"));
		}
		assert_int_equal(strncmp(l.text,
					 "Q begin 2\nQ head 2-34 POST /v1/completions 1.1\n"
					 "Q end 34 complete\n",
					 65),
				 0);
		assert_int_equal(l.err, 0);
		done(&l);
	}
}

/* What seemed to begin in one slice does not go on in the next, which itself begins a
 * message. */
static void a_false_beginning(void **state)
{
	static const struct step script[] = { SEND(Q, "P"), SEND(Q, GET), SEND(S, "HTTP/1.1 "),
					      SEND(S, "HTTP/1.1 204 x\r\n\r\n"), /* 9 */
					      STOP };

	(void)state;
	check_mid(script, GET_LOG("1", "18") "S head 9-26 204 1.1\nS end 26 complete\n");
}

/* --- the first look --- */

static void sniff(void **state)
{
	static const struct {
		enum tks_side side;
		int expect;
		const char *text;
	} cases[] = {
		{ TKS_REQUEST, 1, "GET / HTTP/1.1\r\n" },
		{ TKS_REQUEST, 1, "POST /v1/chat/completions HTTP/1.0\n" },
		{ TKS_REQUEST, 1, "\r\nOPTIONS * HTTP/1.1\r" },
		{ TKS_REQUEST, -EAGAIN, "" },
		{ TKS_REQUEST, -EAGAIN, "\r\n" },
		{ TKS_REQUEST, -EAGAIN, "PO" },
		{ TKS_REQUEST, -EAGAIN, "P" },
		{ TKS_REQUEST, -EAGAIN, "POST " },
		{ TKS_REQUEST, -EAGAIN, "POST /v1" },
		{ TKS_REQUEST, -EAGAIN, "GET / HTTP/1." },
		{ TKS_REQUEST, -EAGAIN, "GET / HTTP/1.1" },
		{ TKS_REQUEST, 0, "GET / HTTP/2.0\r\n" },
		{ TKS_REQUEST, 0, "GET / HTTP/1.1x" },
		{ TKS_REQUEST, 0, "GET  / HTTP/1.1\r\n" },
		{ TKS_REQUEST, 0, "GET /\r\n" },
		{ TKS_REQUEST, 0, "get / HTTP/1.1\r\n" },
		{ TKS_REQUEST, 0, "PRI * HTTP/2.0\r\n" },
		{ TKS_REQUEST, 0, "HTTP/1.1 200 OK\r\n" },
		{ TKS_REQUEST, 0, "\x16\x03\x01" },
		{ TKS_RESPONSE, 1, "HTTP/1.1 200 OK\r\n" },
		{ TKS_RESPONSE, 1, "HTTP/1.0 404\r\n" },
		{ TKS_RESPONSE, 1, "HTTP/1.1 200" },
		{ TKS_RESPONSE, -EAGAIN, "H" },
		{ TKS_RESPONSE, -EAGAIN, "HTTP/1.1 20" },
		{ TKS_RESPONSE, 0, "HTTP/1.1 2000" },
		{ TKS_RESPONSE, 0, "HTTP/1.1 OK" },
		{ TKS_RESPONSE, 0, "HTTP/2 200" },
		{ TKS_RESPONSE, 0, "GET / HTTP/1.1\r\n" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t len = strlen(cases[i].text);
		uint8_t *copy = malloc(len ? len : 1);

		memcpy(copy, cases[i].text, len);
		if (tks_http1_sniff(cases[i].side, copy, len) != cases[i].expect)
			fail_msg("\"%s\"", cases[i].text);
		free(copy);
	}
}

/* --- failures --- */

static const struct step all_sorts[] = {
	SEND(Q, "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc" GET GET GET GET GET),
	SEND(S, "HTTP/1.1 100 Continue\r\n\r\n" CHUNKED "3\r\nabc\r\n"),
	MISS(S, 30),
	SEND(S, "3\r\nabc\r\n0\r\n\r\n" CHUNKED "3\r\nabc\r\n"),
	MISS(S, 30),
	SEND(S, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"),
	SEND(S, "HTTP/1.0 200 OK\r\n\r\nabc"),
	ENDS(S),
	ENDS(Q),
	STOP
};

static void without_memory(void **state)
{
	struct lib_h1 l;
	uint64_t calls;

	(void)state;
	play(&l, all_sorts, 0, 0, false);
	calls = l.mem.calls;
	assert_int_equal(l.err, 0);
	done(&l);
	assert_true(calls > 5);
	for (uint64_t fail_at = 2; fail_at <= calls; fail_at++) {
		assert_int_equal(lib_h1_open(&l), 0);
		l.mem.fail_at = fail_at;
		for (const struct step *st = all_sorts; st->what; st++)
			play_step(&l, st, 0, 0);
		assert_int_equal(l.err, -ENOMEM);
		/* With memory again, a message at a slice's start is read. */
		l.mem.fail_at = 0;
		lib_h1_line(&l);
		l.n = 0;
		l.text[0] = 0;
		assert_int_equal(lib_h1_feed(&l, TKS_REQUEST, GET, 18), 0);
		assert_non_null(strstr(l.text, "GET / 1.1"));
		done(&l);
	}
}

static void new_without_memory(void **state)
{
	struct tks_mem mem = { .fail_at = 1 };

	(void)state;
	assert_null(tks_http1_new(&mem, &lib_h1_ops, NULL));
	tks_http1_free(NULL);
	assert_int_equal(mem.used, 0);
}

static void failing_callbacks(void **state)
{
	struct lib_h1 l;
	unsigned int calls;

	(void)state;
	play(&l, all_sorts, 0, 0, false);
	calls = l.calls;
	done(&l);
	for (unsigned int fail_at = 1; fail_at <= calls; fail_at++) {
		assert_int_equal(lib_h1_open(&l), 0);
		l.fail_at = fail_at;
		for (const struct step *st = all_sorts; st->what && l.calls < fail_at; st++)
			play_step(&l, st, 0, 0);
		assert_int_equal(l.err, -EIO);
		assert_int_equal(lib_h1_feed(&l, TKS_REQUEST, GET, 18), 0);
		done(&l);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_exchange),
		cmocka_unit_test(keep_alive_in_one_slice),
		cmocka_unit_test(empty_lines_between_messages),
		cmocka_unit_test(interim_responses_are_not_reported),
		cmocka_unit_test(responses_without_a_body),
		cmocka_unit_test(chunked_in_all_its_forms),
		cmocka_unit_test(chunked_request),
		cmocka_unit_test(closed_by_the_end),
		cmocka_unit_test(cut_by_the_end),
		cmocka_unit_test(response_before_the_request_ends),
		cmocka_unit_test(upgraded),
		cmocka_unit_test(connect_tunnels_if_accepted),
		cmocka_unit_test(upgrade_offered_but_not_taken),
		cmocka_unit_test(odd_headers),
		cmocka_unit_test(both_length_and_chunked),
		cmocka_unit_test(a_coding_that_is_not_chunked),
		cmocka_unit_test(what_does_not_fit_is_cut_off),
		cmocka_unit_test(heads_are_bounded),
		cmocka_unit_test(not_http),
		cmocka_unit_test(impossible_sizes),
		cmocka_unit_test(bad_chunks),
		cmocka_unit_test(too_many_open_requests),
		cmocka_unit_test(gap_within_what_is_owed),
		cmocka_unit_test(gap_up_to_a_known_end),
		cmocka_unit_test(gap_past_a_chunk),
		cmocka_unit_test(the_next_message_cuts),
		cmocka_unit_test(text_that_looks_like_http),
		cmocka_unit_test(no_chunk_after_all),
		cmocka_unit_test(an_answer_lost_whole),
		cmocka_unit_test(the_hole_was_known_late),
		cmocka_unit_test(answers_before_their_requests),
		cmocka_unit_test(a_client_that_pipelines_keeps_its_order),
		cmocka_unit_test(without_times_the_order_decides),
		cmocka_unit_test(entered_in_a_chunked_answer),
		cmocka_unit_test(entered_between_or_in_an_end),
		cmocka_unit_test(entered_in_a_request),
		cmocka_unit_test(entered_with_a_first_line_in_pieces),
		cmocka_unit_test(a_false_beginning),
		cmocka_unit_test(sniff),
		cmocka_unit_test(without_memory),
		cmocka_unit_test(new_without_memory),
		cmocka_unit_test(failing_callbacks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
