/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Plaintext and its TCP connection. Probes tell what goes through objects of TLS libraries; the
 * capture tells what ciphertext connections carry. Here the two are tied, without a look into any
 * library's structures:
 *
 *   - by content: OpenSSL and its kin hand the ciphertext of a call to a BIO; the connection that
 *     carries the same bytes is the object's. That holds for sockets and for memory BIOs, whoever
 *     sends the bytes, and when;
 *   - by nesting: a send within a library's write, which carries TLS records, is that of the
 *     object written to.
 *
 * From then on each record that is sent takes with it the plaintext that it has room for, in order:
 * so plaintext gets the time of the send that carried its last byte, and what a library refused
 * (WANT_WRITE) and was handed again counts once. What was read gets the time of arrival of the
 * record that it was in.
 */
#ifndef TKS_TLS_H
#define TKS_TLS_H

#include <stdbool.h>
#include <stdint.h>

#include "stream.h"
#include "tokensnoop/event.h"
#include "tokensnoop/mem.h"

struct tks_tls;
struct tks_tls_conn;

struct tks_tls_ops {
	/* Whose plaintext the connection carries is known. whole: none of it was missed. */
	void (*tied)(void *ctx, void *conn, const struct tks_process *proc, bool whole);
	/* Plaintext, numbered from 0 in each direction. */
	void (*plain)(void *ctx, void *conn, enum tks_dir dir, const struct tks_segment *seg);
	/* No connection carries what goes through the object (for long enough): what stands for
	 * one, or NULL where it is of no interest. */
	void *(*untied)(void *ctx, const struct tks_process *proc, uint64_t obj, bool whole);
	/* So much went through the object, and no connection of interest carries it: no more of it
	 * is wanted. */
	void (*unwanted)(void *ctx, const struct tks_process *proc, uint64_t obj);
	/* What untied gave is over. */
	void (*gone)(void *ctx, void *conn);
	/* A record of application data of a connection whose plaintext is not known (yet): when its
	 * last byte was sent or arrived, and the length of its payload. */
	void (*closed)(void *ctx, void *conn, enum tks_dir dir, const struct tks_stamp *st,
		       uint32_t len);
	/* The object's connection has sent a record that the kernel made of something else than
	 * what was written to the object. */
	void (*past)(void *ctx, void *conn, const struct tks_stamp *st);
};

/* NULL without memory. */
struct tks_tls *tks_tls_new(struct tks_mem *mem, const struct tks_tls_ops *ops, void *ctx);
void tks_tls_free(struct tks_tls *t);

/* An event of an object: PLAIN, CIPHER or OBJ_GONE. 0 or -ENOMEM (the object's plaintext has a hole
 * then). */
int tks_tls_event(struct tks_tls *t, const struct tks_event *ev);

/* What untied gave for the object is no more: it is of no interest. */
void tks_tls_disown(struct tks_tls *t, uint32_t pid, uint64_t obj);

/* Gives up on objects that nothing was found for until now_ns. */
void tks_tls_advance(struct tks_tls *t, uint64_t now_ns);

/* A connection that carries TLS; conn: what ops know it by. NULL without memory. */
struct tks_tls_conn *tks_tls_conn_new(struct tks_tls *t, void *conn);
void tks_tls_conn_free(struct tks_tls_conn *c);

/* Its first byte in that direction has this sequence number. */
void tks_tls_conn_start(struct tks_tls_conn *c, enum tks_dir dir, uint32_t seq);

/* Ciphertext of it; ev: a DATA event. 0 or -ENOMEM. */
int tks_tls_cipher(struct tks_tls_conn *c, const struct tks_event *ev);

/* Holes in its ciphertext that waited too long are given up; all, with end: up to seq, which ends
 * the direction. */
void tks_tls_conn_advance(struct tks_tls_conn *c, uint64_t now_ns);
void tks_tls_conn_end(struct tks_tls_conn *c, enum tks_dir dir, uint32_t seq);

/* The object it is tied to; false: none. */
bool tks_tls_conn_obj(const struct tks_tls_conn *c, uint32_t *pid, uint64_t *obj);

struct tks_tls_counters {
	uint64_t objects, ties; /* objects met; ties made */
	uint64_t untied; /* objects that no connection was found for */
	uint64_t retries; /* writes that were handed over again */
	uint64_t unmatched; /* reads whose record was not found: timed by the newest one */
};

void tks_tls_counters(const struct tks_tls *t, struct tks_tls_counters *out);

#endif
