/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Exchanges of an HTTP/1 connection: responses belong to requests in their order (RFC 9112, section
 * 9.3).
 */
#ifndef TKS_EXCHANGE_H1_H
#define TKS_EXCHANGE_H1_H

#include "exchange.h"

/* What http1.c calls; its context is a struct tks_conn. */
extern const struct tks_h1_ops tks_exchange_h1_ops;

/* Bytes of a direction are missing or were not captured: flags the exchange they belong to. */
void tks_exchange_h1_hole(struct tks_conn *c, enum tks_side side);

/* Bytes of a side are not what they should be: flags the exchange they belong to. */
void tks_exchange_h1_unreadable(struct tks_conn *c, enum tks_side side);

/* Bytes are about to be parsed that a send of this duration carried (counted once a send). */
void tks_exchange_h1_sent(struct tks_conn *c, const struct tks_stamp *st);

/* The answer under way is nothing to us and large: heads of sends are enough. */
bool tks_exchange_h1_bulk(const struct tks_conn *c);

#endif
