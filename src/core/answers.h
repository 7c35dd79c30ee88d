/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Several answers in one stream: each client message that asks for one (OpenAI Realtime's
 * response.create over a WebSocket, a request message of ModelStreamInfer) opens an exchange of its
 * own below the stream's.
 */
#ifndef TKS_ANSWERS_H
#define TKS_ANSWERS_H

#include "exchange.h"

/* The response's head says that e's stream is of this kind, or its request's does. Its request
 * bytes are then given to tks_answers_asked. No-op for any other. -ENOMEM. */
int tks_answers_start(struct tks_exchange *e, const struct tks_http_head *h);
void tks_answers_free(struct tks_exchange *e);

/* One of e's answers is gone. */
void tks_answers_gone(struct tks_exchange *e);

void tks_answers_asked(struct tks_exchange *e, const struct tks_slice *s);
void tks_answers_asked_gap(struct tks_exchange *e, uint64_t off, uint64_t len);

/* For the decoder: the open answer with the key, else the oldest that has none yet and takes it.
 * An answer that nobody was seen to ask for is made. NULL: no memory. */
struct tks_reqstate *tks_answers_find(struct tks_exchange *e, const char *key);

/* Part of the answers' stream can't be read: it may have been any open answer's. */
void tks_answers_hole(struct tks_exchange *e);

/* Its last frame has been counted. */
void tks_answers_over(struct tks_exchange *e, struct tks_reqstate *rs, uint64_t last_off);

/* The stream ends, and its answers with it. */
void tks_answers_end_all(struct tks_exchange *e, enum tks_outcome how);

/* The client has closed the stream: what is open when it ends was given up by it. */
bool tks_answers_closed(const struct tks_exchange *e);

#endif
