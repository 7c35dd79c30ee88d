/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a message's body to facts: response bodies through framing (SSE, plain JSON), detection by
 * shape and a dialect into a tks_reqstate; request bodies into what was asked for.
 */
#ifndef TKS_DECODER_H
#define TKS_DECODER_H

#include <stdbool.h>
#include <stdint.h>

#include "http1.h"
#include "reqstate.h"
#include "slice.h"

/* What the request asked for; TKS_NULL / false / "" where it does not say. */
struct tks_ask {
	char model[128];
	int64_t stream; /* 0, 1 or TKS_NULL */
	int64_t n, max_tokens;
	int64_t prompts; /* completions: number of prompts in a batch, else 1 */
	bool echo;
	bool include_usage, continuous_usage;
	bool is_json; /* the body was a JSON object, whole */
	bool empty, of_model; /* it has no member; one that requests to models have */
	bool truncated; /* a part of the body was not seen: absent fields mean nothing */
};

void tks_ask_init(struct tks_ask *a);

/* Reads a request body in pieces into *ask (valid after end). head: the request's. NULL without
 * memory. */
struct tks_askscan;
struct tks_askscan *tks_askscan_new(struct tks_mem *mem, struct tks_ask *ask,
				    const struct tks_http_head *head);
void tks_askscan_free(struct tks_askscan *a);
void tks_askscan_data(struct tks_askscan *a, const uint8_t *data, size_t len);
void tks_askscan_gap(struct tks_askscan *a);
void tks_askscan_end(struct tks_askscan *a);

/* True when requests to this path (query allowed) are generations, so that one without any answer
 * is a record too. */
bool tks_path_is_llm(const char *target);

/* The dialect's name that a path suggests, "unknown" otherwise; a static string. */
const char *tks_path_dialect(const char *target);

/* What the decoder asks of whoever has the connection. */
struct tks_decoder_host {
	/* When a byte left: fills t_ns and send_id of *at from at->last_off. */
	void (*time_at)(void *ctx, struct tks_frame_at *at);
	/*
	 * In a stream of several answers: the one with that key ("" : the one asked for first that
	 * has none yet), or NULL. These may be NULL where no stream has several.
	 */
	struct tks_reqstate *(*answer)(void *ctx, const char *key);
	/* The answer turned to last ended with the frame that was just counted. */
	void (*answer_over)(void *ctx, struct tks_reqstate *rs, uint64_t last_off);
	/* The server says that it ends the stream. */
	void (*closed)(void *ctx);
	/* Part of the stream can't be read; it may have been any open answer's. */
	void (*hole)(void *ctx);
};

struct tks_decoder;

/*
 * For one response. head: the response's; ask, target and get: the request's (NULL, false where not
 * seen). The facts go to rs, and rs's record gets dialect, model, response_id, server, streamed.
 * NULL without memory.
 */
struct tks_decoder_of {
	struct tks_reqstate *rs;
	const struct tks_http_head *head;
	const struct tks_ask *ask;
	const char *target;
	bool get;
	bool mid_connection; /* the connection is older than the trace */
	const struct tks_decoder_host *host;
	void *ctx;
};

struct tks_decoder *tks_decoder_new(struct tks_mem *mem, const struct tks_decoder_of *of);
void tks_decoder_free(struct tks_decoder *d);

/* Body bytes (transfer coding removed; offsets are those of the connection's stream). 0 or -ENOMEM.
 */
int tks_decoder_data(struct tks_decoder *d, const struct tks_slice *s);
/* len 0: how many are missing is not known. */
void tks_decoder_gap(struct tks_decoder *d, uint64_t off, uint64_t len);
void tks_decoder_end(struct tks_decoder *d);

/* Trailers of the response: gRPC's status, "" for none. */
void tks_decoder_trailers(struct tks_decoder *d, const char *grpc_status);

/* 1: an LLM's answer; 0: not; -EAGAIN: can't tell yet. A text/event-stream is always one (`unknown`
 * at worst). A stream of several answers is none itself. */
int tks_decoder_is_llm(const struct tks_decoder *d);

/* The answer was seen whole, was no refusal, and is no model's. */
bool tks_decoder_is_other(const struct tks_decoder *d);

/* It is from a server of LLMs, but no generation: no record, whatever the path. */
bool tks_decoder_not_generated(const struct tks_decoder *d);

/* 1: nothing in this body is of interest (the capture may be told to send heads only). */
bool tks_decoder_wants_no_body(const struct tks_decoder *d);

#endif
