/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One request and its answer, however HTTP frames them: when it happened is asked of the timelines,
 * what it says is told by the decoder, and the record is made when the answer has ended. Which
 * exchange bytes belong to is for exchange_h1.c and exchange_h2.c; several answers in one stream
 * are for answers.c.
 */
#ifndef TKS_EXCHANGE_H
#define TKS_EXCHANGE_H

#include "conn.h"
#include "decoder.h"
#include "http_msg.h"
#include "reqstate.h"

struct tks_asks;

struct tks_exchange {
	struct tks_list in_conn, running;
	struct tks_conn *conn;
	struct tks_reqstate *rs;
	struct tks_request *rec;
	struct tks_decoder *dec;
	struct tks_askscan *askscan;
	struct tks_ask ask;
	char target[256];
	uint64_t begin_off; /* of the request's first byte, where seen */
	uint64_t body_bytes;
	int64_t content_length; /* of the response, -1: not said */
	bool llm_path;
	bool answered; /* the response's head was seen */
	bool maybe_lost; /* bytes of the response direction were, while it waited */
	bool counted; /* entered into the concurrency history, from begun_ns on */
	int64_t begun_ns;
	uint64_t wait_ts_ns; /* entry time of the send whose wait was added last */
	/* HTTP/2 */
	uint32_t stream;
	struct tks_exchange *stream_next;
	/* Several answers in one stream: of the stream's exchange, the answers that are open and
	 * the reader of what is asked; of an answer, its key and the stream's exchange. */
	struct tks_list answers;
	struct tks_asks *asks;
	struct tks_exchange *parent;
	char key[128];
	bool name_lost; /* its key may have been in bytes that are missing: no other can be its */
};

/* A new one, the connection's last. NULL without memory (counted). */
struct tks_exchange *tks_exchange_new(struct tks_conn *c);

/* An answer to nothing that was seen: flagged. */
struct tks_exchange *tks_exchange_orphan(struct tks_conn *c);

/* The one that began first, or NULL. */
struct tks_exchange *tks_exchange_first(const struct tks_conn *c);

/* Ends it, with its answers: a record if it is an LLM's, and it is gone. */
void tks_exchange_end(struct tks_exchange *e, enum tks_outcome how);

/* Its request. */
void tks_exchange_request_begin(struct tks_exchange *e, uint64_t off);
void tks_exchange_request_head(struct tks_exchange *e, const struct tks_http_head *h);
void tks_exchange_request_body(struct tks_exchange *e, const struct tks_slice *s);
void tks_exchange_request_gap(struct tks_exchange *e, uint64_t off, uint64_t len);
void tks_exchange_request_end(struct tks_exchange *e, uint64_t last_off, enum tks_msg_end how);

/* Its response. The end ends it. */
void tks_exchange_response_head(struct tks_exchange *e, const struct tks_http_head *h);
void tks_exchange_response_body(struct tks_exchange *e, const struct tks_slice *s);
void tks_exchange_response_gap(struct tks_exchange *e, uint64_t off, uint64_t len);
void tks_exchange_response_end(struct tks_exchange *e, uint64_t last_off, enum tks_msg_end how);

/* It is of interest: enters it into the concurrency history, from the end of its request on, or
 * from seen_ns if that was not seen. */
void tks_exchange_count_in(struct tks_exchange *e, int64_t seen_ns);

/* The time of a byte of a side: TKS_NULL where not known. */
int64_t tks_exchange_time(const struct tks_conn *c, enum tks_side side, uint64_t off);
const struct tks_stamp *tks_exchange_stamp(const struct tks_conn *c, enum tks_side side,
					   uint64_t off);

/* How long sends waited is known of the connection. */
bool tks_exchange_waits_known(const struct tks_conn *c);

/* A send with this stamp carried bytes of the response: how long it waited counts, once. */
void tks_exchange_waited(struct tks_exchange *e, const struct tks_stamp *st);

/* The connection closes, or is given up: every exchange still open ends; by the connection's state
 * it is seen who left. open: the trace ended (or looks away), nobody left. */
void tks_exchange_end_all(struct tks_conn *c, bool open);

/* Who left when a response was not whole. */
enum tks_outcome tks_exchange_who_left(const struct tks_conn *c);

#endif
