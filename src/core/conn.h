/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections: the table by key, who was idle longest, and what is known of each. What happens on
 * them is for pipeline.c (streams and protocols) and exchange.c (requests and answers).
 */
#ifndef TKS_CONN_H
#define TKS_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "early.h"
#include "http1.h"
#include "list.h"
#include "stream.h"
#include "tokensnoop/event.h"
#include "tokensnoop/record.h"

struct tks_pipeline;
struct tks_tls_conn;
struct tks_exchange;

enum tks_proto { TKS_PROTO_UNKNOWN = 0, TKS_PROTO_HTTP1, TKS_PROTO_HTTP2, TKS_PROTO_IGNORED };

struct tks_conn {
	uint64_t key;
	struct tks_conn *hash_next;
	struct tks_list lru; /* the table's list, longest idle first */
	struct tks_pipeline *pipeline;
	uint64_t last_ns; /* time of the last event */
	enum tks_role role;
	enum tks_proto proto;
	enum tks_verdict verdict;
	bool from_start; /* its establishment was seen */
	bool trusted; /* a message head was seen, so that the role is certain */
	bool fin[2]; /* by enum tks_dir */
	bool first_seen[2]; /* by enum tks_dir: the first bytes have been looked at */
	bool closing; /* closed, but bytes sent before are still on their way to us */
	bool returns_seen; /* of its sends: how long they waited is known */
	bool starved; /* something of it was dropped for want of memory: nobody knows what */
	uint32_t err;
	uint32_t close_seq[2]; /* by enum tks_dir, valid when closing */
	uint32_t lost;
	uint32_t netns;
	uint64_t searched; /* bytes without a trusted place, entered in the middle */
	struct tks_endpoint local, peer;
	char *unix_name; /* what local.name is, or NULL */
	struct tks_process proc;
	struct tks_early ahead; /* unix sockets: sent before the request came to us */
	struct tks_stream stream[2]; /* by enum tks_dir; with TLS: its plaintext */
	struct tks_tls_conn *tls; /* its bytes are TLS records */
	struct tks_exchange *blind; /* what leaves it while nobody knows its plaintext */
	uint64_t blind_since_ns; /* since when something does */
	bool blind_told;
	bool kernel_tls; /* the kernel makes the records that are sent */
	uint64_t untied; /* no connection: what goes through this object of a TLS library */
	struct tks_http1 *http;
	struct tks_h2_conn *h2; /* HTTP/2, or HTTP/1 that was upgraded to it */
	uint8_t npreface; /* bytes of HTTP/2's preface that have come and are held back */
	struct tks_list exchanges; /* in the order of the requests */
	struct tks_exchange *receiving; /* whose request is under way */
	uint64_t wait_ts_ns; /* entry time of the send that was counted last */
	int64_t carry_wait_ns; /* waits of sends that went before a response's head */
};

/* The direction in which requests travel. */
static inline enum tks_dir tks_conn_request_dir(const struct tks_conn *c)
{
	return c->role == TKS_ROLE_CLIENT ? TKS_TX : TKS_RX;
}

static inline enum tks_side tks_conn_side(const struct tks_conn *c, enum tks_dir dir)
{
	return dir == tks_conn_request_dir(c) ? TKS_REQUEST : TKS_RESPONSE;
}

struct tks_conns {
	struct tks_mem *mem;
	struct tks_conn **buckets;
	uint32_t nbuckets; /* a power of two */
	uint32_t count, max;
	uint64_t seed;
	struct tks_list lru;
};

/* 0 or -ENOMEM. */
int tks_conns_init(struct tks_conns *t, struct tks_mem *mem, uint32_t max);

struct tks_conn *tks_conns_find(const struct tks_conns *t, uint64_t key);

/* A new, zeroed one; the caller has looked for the key and made room. NULL without memory. */
struct tks_conn *tks_conns_add(struct tks_conns *t, uint64_t key);

/* It was active just now. */
void tks_conns_touch(struct tks_conns *t, struct tks_conn *c);

/* The one idle longest, or NULL. */
struct tks_conn *tks_conns_oldest(const struct tks_conns *t);

/* Takes it off the table and frees the structure, not what hangs on it. */
void tks_conns_remove(struct tks_conns *t, struct tks_conn *c);

/* Frees the (empty) table. */
void tks_conns_free(struct tks_conns *t);

#endif
