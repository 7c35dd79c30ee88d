/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Exchanges of an HTTP/2 connection, by their streams.
 */
#ifndef TKS_EXCHANGE_H2_H
#define TKS_EXCHANGE_H2_H

#include "exchange.h"
#include "http2.h"

struct tks_h2_conn;

/* 0 or -ENOMEM; sets c->h2. mid: entered in the middle. */
int tks_h2_conn_start(struct tks_conn *c, bool mid);

/* The HTTP/1 connection was upgraded; e's request is stream 1. 0 or -ENOMEM. */
int tks_h2_conn_upgrade(struct tks_conn *c, struct tks_exchange *e);

void tks_h2_conn_free(struct tks_conn *c);

/* As in http2.h. */
int tks_h2_conn_feed(struct tks_conn *c, enum tks_side side, const struct tks_slice *s);
int tks_h2_conn_gap(struct tks_conn *c, enum tks_side side, uint64_t off, uint64_t len);
void tks_h2_conn_eof(struct tks_conn *c, enum tks_side side, uint64_t off);

/* The exchange is about to be freed. */
void tks_h2_conn_forget(struct tks_exchange *e);

#endif
