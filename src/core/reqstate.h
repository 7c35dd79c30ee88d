/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One request while it runs: the decoder says what each frame proves, the exchange says when things
 * happened, and finish() turns it into a struct tks_request by the definitions of the metrics.
 *
 * Order of calls for a frame: any number of _choice / _usage / _total / _meta / _error / _done
 * calls, then one _frame call, which gives the frame's time and makes them count.
 */
#ifndef TKS_REQSTATE_H
#define TKS_REQSTATE_H

#include <stdbool.h>
#include <stdint.h>

#include "tokensnoop/mem.h"
#include "tokensnoop/request.h"

struct tks_reqstate;

struct tks_reqstate_limits {
	uint32_t token_times; /* token frames whose times are kept; past it ITL percentiles are null
			       * and the flag `truncated` is set. 0: 262144 */
	uint32_t choices; /* 0: 128 */
};

/* What one frame says of one choice. */
struct tks_choice_facts {
	uint32_t index;
	bool token; /* proves at least one output token (text, reasoning, tool call, ids, counter
		       step) */
	bool text; /* ... and has text of any kind, not ids or counts alone */
	bool reasoning; /* ... of reasoning only, not visible */
	bool finish_is_token; /* the dialect says that this finish frame stands for a token */
	int32_t tokens; /* tokens it holds where the wire says so (ids, logprob entries); -1: not
			   said */
	int64_t counter; /* cumulative count of output tokens of the choice as of this frame; -1:
			    none */
	char finish[32]; /* "" : none in this frame */
	bool natural; /* the finish says that the model ended by itself, with an end-of-sequence
		       * token */
};

/* Cumulative totals as the server sent them; TKS_NULL: absent. */
struct tks_usage {
	int64_t output_tokens, prompt_tokens, cached_tokens, reasoning_tokens;
};

static const struct tks_usage tks_no_usage = { TKS_NULL, TKS_NULL, TKS_NULL, TKS_NULL };

struct tks_frame_at {
	uint64_t first_off, last_off;
	int64_t t_ns; /* time of the send with the last byte; TKS_NULL: not known (trimmed) */
	int64_t tls_ns; /* when that byte entered the TLS library; 0: it did not, or was not seen to
			 */
	uint64_t send_id; /* equal for frames whose last bytes left in the same send */
};

/* NULL without memory. */
struct tks_reqstate *tks_reqstate_new(struct tks_mem *mem,
				      const struct tks_reqstate_limits *limits);
void tks_reqstate_free(struct tks_reqstate *r);

/* The record under construction: the exchange and the decoder fill identity fields, times of head
 * and ends, model, server, dialect. Everything about tokens is filled by finish(). */
struct tks_request *tks_reqstate_record(struct tks_reqstate *r);

void tks_reqstate_choice(struct tks_reqstate *r, const struct tks_choice_facts *f);

/* A total that stands for the whole answer (final usage, or the latest of cumulative ones): the
 * last one counts. */
void tks_reqstate_usage(struct tks_reqstate *r, const struct tks_usage *u);

/* A cumulative counter over all choices as of this frame (continuous usage per request,
 * timings.predicted_n). */
void tks_reqstate_counter(struct tks_reqstate *r, int64_t output_tokens);

/* A frame that is an error; kind and code as the server sent them, either may be "". */
void tks_reqstate_error(struct tks_reqstate *r, const char *kind, const char *code);

/* The end marker of the protocol ([DONE], message_stop). */
void tks_reqstate_done(struct tks_reqstate *r);

/* The frame of an answer that can't be read: when it came is all that is known. The gaps between
 * such frames are the record's itl (flagged `estimated`) if no frame proved a token. */
void tks_reqstate_arrival(struct tks_reqstate *r);

/* Bytes came in which not even frames can be told apart: as an arrival, once a send. Stands for the
 * _frame call. */
int tks_reqstate_bytes(struct tks_reqstate *r, const struct tks_frame_at *at);

/* Between the last token frame and the next one something else ran than the model (a tool of the
 * server's): the gap is no ITL, and TPOT does not exist. */
void tks_reqstate_pause(struct tks_reqstate *r);

/* The frame ends; what was said since the last one counts as of at. 0 or -ENOMEM (flagged
 * `truncated`, counting goes on). */
int tks_reqstate_frame(struct tks_reqstate *r, const struct tks_frame_at *at);

/* Forget what was said since the last frame (its frame was voided by a gap), and: bytes of the
 * answer are missing here. Gaps between token frames across the hole are not ITLs; counts by frames
 * are void. */
void tks_reqstate_hole(struct tks_reqstate *r);

/* True once a finish reason, end marker or error was seen. */
bool tks_reqstate_ended(const struct tks_reqstate *r);

enum tks_outcome {
	TKS_OUT_COMPLETE = 1, /* the HTTP message is whole */
	TKS_OUT_ABORTED, /* the client left */
	TKS_OUT_CUT, /* the server closed without an end */
	TKS_OUT_OPEN, /* the trace ended first */
};

/*
 * Computes every figure that depends on tokens and times, by design.md section 1, into the record
 * and returns it; valid until free. concurrency and slo fields are the caller's. t_end_ns must be
 * set in the record where known. A figure that a hole or a mid-stream start made unknowable is
 * TKS_NULL, never a guess.
 */
const struct tks_request *tks_reqstate_finish(struct tks_reqstate *r, enum tks_outcome how);

#endif
