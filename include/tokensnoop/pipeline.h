/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The pipeline: events in, request records out. A plain library: no kernel, no threads, no global
 * state; two pipelines in one process do not know of each other.
 */
#ifndef TOKENSNOOP_PIPELINE_H
#define TOKENSNOOP_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "tokensnoop/event.h"
#include "tokensnoop/mem.h"
#include "tokensnoop/record.h"
#include "tokensnoop/request.h"

struct tks_pipeline;

struct tks_pipeline_config {
	struct tks_mem *mem;
	enum tks_boundary boundary;
	bool client_side; /* follow connections on which this host is the client, too */
	int64_t clock_offset_ns; /* wall clock minus the events' clock (0 for packet files) */
	uint32_t max_connections; /* 0: 65536; past it the one idle longest is evicted, and counted
				   */
	/* A request has ended. The record is valid during the call only. */
	void (*on_request)(void *ctx, const struct tks_request *r);
	/* How much of a connection is still wanted; may be NULL. */
	void (*on_verdict)(void *ctx, uint64_t conn, enum tks_verdict v);
	/* The same of an object of a TLS library; may be NULL. */
	void (*on_obj_verdict)(void *ctx, uint32_t pid, uint64_t obj, enum tks_verdict v);
	/* A connection of this process has sent TLS records for a second, and no library's object
	 * is known to be behind it; kernel_tls: the kernel makes these; may be NULL. */
	void (*on_blind)(void *ctx, const struct tks_process *proc,
			 const struct tks_endpoint *local, bool kernel_tls);
	bool plaintext; /* events of TLS libraries' objects come: connections that speak TLS are
			 * waited for, not left alone */
	bool untied; /* with them: objects without a connection are records too */
	void *ctx;
};

struct tks_pipeline_counters {
	uint64_t events, connections, evicted, requests;
	uint64_t lost_records; /* as the events said, over all connections */
	uint64_t lost_bytes, duplicate_segments, refused_segments;
	uint64_t bad_messages; /* places where a parser lost its footing */
	uint64_t no_memory; /* things dropped because the budget was used up */
	uint64_t encrypted; /* connections that speak TLS */
	uint64_t tls_ties; /* objects of TLS libraries whose connection was found */
	uint64_t tls_blind; /* connections that sent records of which nobody saw the plaintext */
	uint64_t tls_untied; /* objects for which none was */
	uint64_t open_connections, open_requests; /* now */
};

/* -errno in *err and NULL on failure. */
struct tks_pipeline *tks_pipeline_new(const struct tks_pipeline_config *cfg, int *err);

/* Frees; open requests are dropped without a record: call finish first. */
void tks_pipeline_free(struct tks_pipeline *p);

/* Takes an event. 0, or -ENOMEM (counted; the connection it hit is flagged, the others go on). */
int tks_pipeline_feed(struct tks_pipeline *p, const struct tks_event *ev);

/* Time has come to now_ns (the events' clock): gives up holes that waited too long. Call it about
 * ten times a second, live. */
void tks_pipeline_advance(struct tks_pipeline *p, uint64_t now_ns);

/*
 * n calls on unix sockets were not seen, nobody knows on which: their streams have no numbers that
 * would show it. Requests open on such connections are flagged lost.
 */
void tks_pipeline_unix_missed(struct tks_pipeline *p, uint64_t n);

/* The trace ends at now_ns: every request still open becomes a record with finish "open". */
void tks_pipeline_finish(struct tks_pipeline *p, uint64_t now_ns);

void tks_pipeline_counters(const struct tks_pipeline *p, struct tks_pipeline_counters *out);

#endif
