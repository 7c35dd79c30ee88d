/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The pipeline's own parts, for its two files. */
#ifndef TKS_PIPELINE_INT_H
#define TKS_PIPELINE_INT_H

#include "concurrency.h"
#include "conn.h"
#include "early.h"
#include "tls.h"
#include "tokensnoop/pipeline.h"

struct tks_pipeline {
	struct tks_pipeline_config cfg;
	struct tks_mem *mem;
	struct tks_conns conns;
	struct tks_conc *conc;
	struct tks_early early;
	struct tks_tls *tls; /* NULL: plaintext is not looked for */
	uint64_t next_untied; /* keys of what stands for connections that are not known */
	struct tks_list running; /* exchanges, oldest first */
	struct tks_pipeline_counters counters;
	uint64_t failed_before; /* mem->failed as the event under way came */
	bool short_of_memory; /* once: requests may be missing that nobody knows of */
	uint64_t next_id;
};

/* A connection that was not met before; the one idle longest may have to make room. role, addresses
 * and namespace as ev says. NULL without memory. */
struct tks_conn *tks_pipeline_conn_new(struct tks_pipeline *p, uint64_t key,
				       const struct tks_event *ev);

/* Something is missing of what its records say: in the event under way, or before. */
static inline bool tks_pipeline_starved(const struct tks_conn *c)
{
	return c->starved || c->pipeline->mem->failed != c->pipeline->failed_before;
}

/* Its streams begin anew, empty. */
void tks_pipeline_streams_init(struct tks_conn *c);

/* What was parsed is over: open requests end, as open ones or as the connection's end has it. */
void tks_pipeline_drop_protocol(struct tks_conn *c, bool open);

/* Nothing more will come: its open requests end, and it is gone. */
void tks_pipeline_conn_over(struct tks_conn *c);

#endif
