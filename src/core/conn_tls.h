/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Connections that speak TLS, as the pipeline has them: their ciphertext goes to tls.c, and what
 * comes out of that is their stream. */
#ifndef TKS_CONN_TLS_H
#define TKS_CONN_TLS_H

#include "conn.h"
#include "tls.h"

extern const struct tks_tls_ops tks_conn_tls_ops;

/* The event's bytes are those of a TLS connection that was not known to be one. */
bool tks_conn_tls_begins(const struct tks_conn *c, const struct tks_event *ev);

/* From now on it is one. -ENOMEM: it is not. */
int tks_conn_tls_start(struct tks_conn *c);

/* How much is wanted of the object that it is tied to, or stands for. */
void tks_conn_tls_verdict(const struct tks_conn *c, enum tks_verdict v);

/* What of it is TLS goes. */
void tks_conn_tls_free(struct tks_conn *c);

#endif
