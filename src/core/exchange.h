/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One request and its answer on an HTTP/1 connection: takes what http1.c finds, asks the timelines
 * when it happened, feeds the decoder, and makes the record when the answer has ended.
 */
#ifndef TKS_EXCHANGE_H
#define TKS_EXCHANGE_H

#include "conn.h"
#include "http1.h"

/* What http1.c calls; its context is a struct tks_conn. */
extern const struct tks_h1_ops tks_exchange_ops;

/* The connection closes, or is given up: every exchange still open ends; by the connection's state
 * it is seen who left. open: the trace ended (or looks away), nobody left. */
void tks_exchange_end_all(struct tks_conn *c, bool open);

/* Bytes of a direction are missing or were not captured: flags the exchange they belong to. */
void tks_exchange_hole(struct tks_conn *c, enum tks_side side);

/* Bytes are about to be parsed that a send of this duration carried (counted once a send). */
void tks_exchange_sent(struct tks_conn *c, const struct tks_stamp *st);

/* The answer under way is nothing to us and large: heads of sends are enough. */
bool tks_exchange_bulk(const struct tks_conn *c);

#endif
