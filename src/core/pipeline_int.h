/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The pipeline's own parts, for its two files. */
#ifndef TKS_PIPELINE_INT_H
#define TKS_PIPELINE_INT_H

#include "concurrency.h"
#include "conn.h"
#include "tokensnoop/pipeline.h"

struct tks_pipeline {
	struct tks_pipeline_config cfg;
	struct tks_mem *mem;
	struct tks_conns conns;
	struct tks_conc *conc;
	struct tks_list running; /* exchanges, oldest first */
	struct tks_pipeline_counters counters;
	uint64_t next_id;
};

#endif
