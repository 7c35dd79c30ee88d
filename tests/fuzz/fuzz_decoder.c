// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fuzzes a response's body through coding, framing, detection, dialect and figures. The first byte
 * chooses the head, the second where it is cut. Oracles: the same record whole, cut, and a byte at
 * a time; the memory budget; nothing left.
 */
#include <stdlib.h>
#include <string.h>

#include "decoder.h"

enum { BUDGET = 4 << 20 };

static const struct {
	const char *type, *encoding, *target;
} heads[] = {
	{ "text/event-stream", "", "/v1/chat/completions" },
	{ "application/json", "", "/v1/chat/completions" },
	{ "application/x-ndjson", "", "/api/chat" },
	{ "application/json", "", "/v1/models/m:streamGenerateContent" },
	{ "application/vnd.amazon.eventstream", "", "/model/m/converse-stream" },
	{ "application/grpc", "", "/inference.GRPCInferenceService/ModelStreamInfer" },
	{ "text/event-stream", "gzip", "/v1/messages" },
	{ "text/event-stream", "br", "/v1/messages" },
	{ "text/event-stream", "zstd", "/v1/messages" },
	{ "text/event-stream", "deflate", "/generate" },
	{ "", "", "/generate" },
	{ "websocket", "", "/v1/realtime" },
};

struct run {
	struct tks_reqstate *rs, *answer;
	uint64_t len;
};

/* All bytes left in one send, so that it does not matter where they are cut. */
static void time_at(void *ctx, struct tks_frame_at *at)
{
	const struct run *r = ctx;

	if (at->last_off >= r->len)
		abort();
	at->t_ns = 1000;
	at->send_id = 1;
}

static struct tks_reqstate *answer(void *ctx, const char *key)
{
	struct run *r = ctx;

	return *key == 'x' ? NULL : r->answer;
}

static void answer_over(void *ctx, struct tks_reqstate *rs, uint64_t last_off)
{
	(void)ctx;
	(void)rs;
	(void)last_off;
}

static const struct tks_decoder_host host = { .time_at = time_at,
					      .answer = answer,
					      .answer_over = answer_over };

static void finish(struct tks_reqstate *rs, struct tks_request *out)
{
	*out = *tks_reqstate_finish(rs, TKS_OUT_COMPLETE);
	out->token_at_ns = NULL;
	out->tokens_in_frame = NULL;
	out->choices = NULL;
}

static void decode(const uint8_t *p, size_t n, unsigned int which, size_t piece,
		   struct tks_request out[2])
{
	struct tks_mem mem = TKS_MEM_INIT(BUDGET);
	struct tks_http_head head = { .side = TKS_RESPONSE, .status = 200 };
	struct run r = { tks_reqstate_new(&mem, NULL), tks_reqstate_new(&mem, NULL), n };
	struct tks_decoder *d;

	strcpy(head.content_type, heads[which].type);
	strcpy(head.content_encoding, heads[which].encoding);
	strcpy(head.server, "uvicorn");
	if (!strcmp(head.content_type, "websocket")) {
		head.upgrade = true;
		strcpy(head.upgrade_to, "websocket");
		strcpy(head.ws_extensions, "permessage-deflate");
	}
	d = tks_decoder_new(&mem, &(struct tks_decoder_of){ .rs = r.rs,
							    .head = &head,
							    .target = heads[which].target,
							    .host = &host,
							    .ctx = &r });
	for (size_t i = 0; d && i < n;) {
		struct tks_slice s = { p + i, piece < n - i ? piece : n - i, i };

		tks_decoder_data(d, &s);
		i += s.len;
	}
	if (d)
		tks_decoder_end(d);
	finish(r.rs, &out[0]);
	finish(r.answer, &out[1]);
	tks_decoder_free(d);
	tks_reqstate_free(r.rs);
	tks_reqstate_free(r.answer);
	if (mem.used || mem.peak > BUDGET)
		abort();
}

/* Where a message that can be read begins again is looked for at the starts of slices. */
static bool resynced(const struct tks_request *a, unsigned int which)
{
	return a->flags & TKS_F_LOST &&
	       (strstr(heads[which].type, "amazon") || !strcmp(heads[which].type, "websocket"));
}

static void same(const struct tks_request *a, const struct tks_request *b)
{
	if (a->tokens != b->tokens || a->token_frames != b->token_frames ||
	    a->frames != b->frames || a->tpot_ns != b->tpot_ns || a->flags != b->flags ||
	    strcmp(a->finish, b->finish) || strcmp(a->error, b->error) ||
	    strcmp(a->model, b->model) || strcmp(a->dialect, b->dialect) ||
	    strcmp(a->response_id, b->response_id) || a->prompt_tokens != b->prompt_tokens)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tks_request whole[2], cut[2], bytes[2];
	unsigned int which;

	if (size < 2)
		return 0;
	which = data[0] % (sizeof(heads) / sizeof(heads[0]));
	decode(data + 2, size - 2, which, size, whole);
	decode(data + 2, size - 2, which, data[1] + 1u, cut);
	decode(data + 2, size - 2, which, 1, bytes);
	if (resynced(&whole[0], which) && resynced(&cut[0], which) && resynced(&bytes[0], which))
		return 0;
	for (int i = 0; i < 2; i++) {
		same(&whole[i], &bytes[i]);
		same(&whole[i], &cut[i]);
	}
	return 0;
}
