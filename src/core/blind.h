/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TLS connections whose plaintext nobody sees. What leaves them is still timed: a record of
 * application data is taken for a frame, and an answer is what leaves between two requests. Only
 * what looks like a stream is reported, flagged `blind` and `estimated`.
 */
#ifndef TKS_BLIND_H
#define TKS_BLIND_H

#include "conn.h"
#include "timeline.h"

enum { TKS_BLIND_FRAMES = 8 }; /* an answer of fewer records is none that streams */

/* A record of the connection. */
void tks_blind_record(struct tks_conn *c, enum tks_dir dir, const struct tks_stamp *st,
		      uint32_t len);

/* A record that is of nothing which was written to the library: the answers under way are not all
 * seen. */
void tks_blind_past(struct tks_conn *c, const struct tks_stamp *st);

/* Its plaintext is known after all: what was gathered is void. */
void tks_blind_void(struct tks_conn *c);

/* The connection ends (open: the trace does): so does its answer. */
void tks_blind_end(struct tks_conn *c, bool open);

/* True once: records have left for a second, and nobody knows of what. */
bool tks_blind_noticed(struct tks_conn *c, uint64_t now_ns);

#endif
