// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Fuzzes WebSocket frames. The first byte chooses side and extension, the second where the
 * input is cut. Oracles: the same messages whole, cut and a byte at a
 * time; offsets in order; the budget.
 */
#include "websocket.h"
#include "messages.h"

static void on_message(void *ctx, const struct tks_ws_message *m)
{
	log_message(ctx, m->first_off, m->last_off, m->bytes, m->broken);
	mix(ctx, m->text);
}

static void on_close(void *ctx, uint16_t code, uint64_t last_off)
{
	mix(ctx, code);
	mix(ctx, last_off);
}

static const struct tks_ws_ops ops = { .data = on_data, .message = on_message, .close = on_close };

static int run(uint8_t which, const uint8_t *p, size_t n, size_t piece, struct log *l)
{
	static const char *const extensions[] = {
		"", "permessage-deflate",
		"permessage-deflate; server_no_context_takeover; client_no_context_takeover",
		"x-other"
	};
	struct tks_mem mem = TKS_MEM_INIT(BUDGET);
	struct tks_ws *w = tks_ws_new(&mem, which & 4 ? TKS_REQUEST : TKS_RESPONSE,
				      extensions[which & 3], &ops, l);
	int err = 0;

	*l = (struct log){ .size = n };
	if (!w)
		abort();
	for (size_t i = 0; i < n; i += piece) {
		struct tks_slice s = { p + i, piece < n - i ? piece : n - i, i };

		err = tks_ws_feed(w, &s) ?: err;
	}
	tks_ws_free(w);
	if (mem.used || mem.peak > BUDGET)
		abort();
	return err;
}
