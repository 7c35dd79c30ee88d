/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The request record: what the pipeline produces, what reporters print and statistics read. The
 * names and meanings of the fields are those of the record schema (docs/records.md).
 */
#ifndef TOKENSNOOP_REQUEST_H
#define TOKENSNOOP_REQUEST_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokensnoop/event.h"

/* A number that does not exist or was not seen: null in the output. */
#define TKS_NULL INT64_MIN

enum tks_request_flag {
	TKS_F_BLIND = 1 << 0,
	TKS_F_COALESCED = 1 << 1, /* several token frames in one send */
	TKS_F_COUNT_MISMATCH = 1 << 2, /* per-frame counts and the server's total disagree */
	TKS_F_ESTIMATED = 1 << 3, /* tokens counted as one a frame: a lower bound */
	TKS_F_LOST = 1 << 4, /* bytes of this request or its answer were not captured */
	TKS_F_MID_STREAM = 1 << 5, /* the trace began after the request or its answer had begun */
	TKS_F_MULTI_TOKEN = 1 << 6, /* "multi_token_frames": a frame held more than one token */
	TKS_F_OPAQUE = 1 << 7, /* the body could not be read (content coding) */
	TKS_F_TRUNCATED = 1 << 8, /* a limit of the tool cut something off (a name, a frame, the
				     token series) */
};

enum tks_boundary { TKS_B_SEND = 0, TKS_B_WIRE = 1, TKS_B_TLS = 2, TKS_B_COUNT };

enum tks_tokens_source { TKS_SRC_NONE = 0, TKS_SRC_PER_FRAME, TKS_SRC_USAGE, TKS_SRC_FRAMES };

enum tks_last_source { TKS_LAST_NONE = 0, TKS_LAST_TEXT, TKS_LAST_FINISH };

/* Gaps between token frames of one request, nanoseconds; percentiles interpolate linearly between
 * ranks. */
struct tks_gaps {
	int64_t n; /* 0: no gap, null in the output */
	int64_t min_ns, mean_ns, p50_ns, p90_ns, p99_ns,
		max_ns; /* a percentile the n can't carry is TKS_NULL */
};

struct tks_choice {
	int64_t index;
	int64_t tokens; /* TKS_NULL: not known for the choice */
	int64_t token_frames;
	int64_t tpot_ns;
	struct tks_gaps itl;
	char finish[32]; /* "" : none seen */
};

/* The latencies as they were at one boundary. */
struct tks_at_boundary {
	enum tks_boundary boundary;
	int64_t ttft_ns, tpot_ns;
	struct tks_gaps itl;
};

struct tks_request {
	uint64_t id;
	int64_t pid; /* TKS_NULL: not known (packet files) */
	char comm[16];
	uint64_t cgroup_id; /* 0: not known */
	char cgroup[160]; /* path in the cgroup v2 tree; "" : null */
	char local[TKS_ENDPOINT_STR], peer[TKS_ENDPOINT_STR];
	const char *transport; /* "tcp", "tls", "unix" */
	const char *http; /* "1.0", "1.1", "2" */
	int64_t stream_id; /* HTTP/2's, else TKS_NULL */
	char method[16]; /* "" : null (not seen) */
	char path[256];
	int64_t status;
	const char *dialect; /* static string */
	char model[128];
	char response_id[128];
	char server[32];
	int64_t streamed; /* 0, 1 or TKS_NULL when no response was seen */
	enum tks_boundary boundary;
	int64_t t_request_ns, t_request_end_ns, t_headers_ns, t_first_ns, t_last_ns, t_finish_ns,
		t_end_ns;
	int64_t t_visible_ns; /* first token that is not reasoning; not printed itself */
	int64_t start_unix_ns;
	int64_t frames, token_frames, tokens;
	enum tks_tokens_source tokens_source;
	enum tks_last_source t_last_source;
	int64_t prompt_tokens, cached_tokens, reasoning_tokens, max_tokens, n;
	int64_t ttft_ns, ttft_visible_ns, tpot_ns, e2e_ns, send_wait_ns;
	struct tks_gaps itl, itl_per_token;
	int64_t conc_at_start, conc_max; /* TKS_NULL: not known */
	double conc_mean; /* NAN: not known */
	char finish[32]; /* "" : null */
	char error[160]; /* "" : null; "KIND" or "KIND: CODE", never the message's text */
	uint32_t flags;
	int slo_met; /* -1: no SLO was asked for */
	/* Token series in time order; kept for --tokens and for pooled figures. Owned by the
	 * producer of the record, valid during the callback. */
	const int64_t *token_at_ns;
	const int32_t *tokens_in_frame; /* -1: not known; NULL when known for no frame */
	size_t ntoken_at;
	/* With more than one boundary: the record's own first, then the others. */
	struct tks_at_boundary at_boundary[TKS_B_COUNT];
	size_t nboundaries;
	const struct tks_choice *choices; /* with more than one choice, else NULL */
	size_t nchoices;
};

/* Sets every field to null / empty / 0 as the schema has it. */
void tks_request_init(struct tks_request *r);

#endif
