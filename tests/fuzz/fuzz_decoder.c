// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fuzzes a response's body through framing, detection, dialect and figures. The first byte chooses
 * the content type, the second where it is cut. Oracles: the same record whole and a byte at a
 * time, the memory budget, nothing left.
 */
#include <stdlib.h>
#include <string.h>

#include "decoder.h"

enum { BUDGET = 4 << 20 };

static void time_at(void *ctx, struct tks_frame_at *at)
{
	(void)ctx;
	at->t_ns = (int64_t)at->last_off * 1000;
	at->send_id = at->last_off;
}

static const struct tks_decoder_host host = { .time_at = time_at };

static void decode(const uint8_t *p, size_t n, const char *type, size_t piece,
		   struct tks_request *out)
{
	struct tks_mem mem = TKS_MEM_INIT(BUDGET);
	struct tks_http_head head = { .side = TKS_RESPONSE, .status = 200 };
	struct tks_reqstate *rs = tks_reqstate_new(&mem, NULL);
	struct tks_decoder *d;

	strcpy(head.content_type, type);
	strcpy(head.server, "uvicorn");
	d = tks_decoder_new(&mem, &(struct tks_decoder_of){ .rs = rs,
							    .head = &head,
							    .target = "/v1/chat/completions",
							    .host = &host });
	for (size_t i = 0; i < n;) {
		struct tks_slice s = { p + i, piece < n - i ? piece : n - i, i };

		tks_decoder_data(d, &s);
		i += s.len;
	}
	tks_decoder_end(d);
	*out = *tks_reqstate_finish(rs, TKS_OUT_COMPLETE);
	out->token_at_ns = NULL;
	out->tokens_in_frame = NULL;
	out->choices = NULL;
	tks_decoder_free(d);
	tks_reqstate_free(rs);
	if (mem.used || mem.peak > BUDGET)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tks_request whole, cut, bytes;
	const char *type;

	if (size < 2)
		return 0;
	type = data[0] & 1 ? "application/json" : "text/event-stream";
	decode(data + 2, size - 2, type, size, &whole);
	decode(data + 2, size - 2, type, data[1] + 1u, &cut);
	decode(data + 2, size - 2, type, 1, &bytes);
	if (whole.tokens != bytes.tokens || whole.token_frames != bytes.token_frames ||
	    whole.frames != bytes.frames || whole.tpot_ns != bytes.tpot_ns ||
	    whole.flags != bytes.flags || strcmp(whole.finish, bytes.finish) ||
	    strcmp(whole.error, bytes.error) || strcmp(whole.model, bytes.model) ||
	    whole.tokens != cut.tokens || whole.flags != cut.flags || whole.frames != cut.frames)
		abort();
	return 0;
}
