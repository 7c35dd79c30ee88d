/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How many requests were in flight at a server address over time (design.md section 1): a history
 * of +1 and -1 per address, which may be entered late and out of order, as long as somebody can
 * still ask about it.
 */
#ifndef TKS_CONCURRENCY_H
#define TKS_CONCURRENCY_H

#include <stdint.h>

#include "tokensnoop/event.h"
#include "tokensnoop/mem.h"

struct tks_conc;

struct tks_conc *tks_conc_new(struct tks_mem *mem);
void tks_conc_free(struct tks_conc *c);

/* A request to addr in netns is in flight from t_ns on / until t_ns. 0 or -ENOMEM. */
int tks_conc_begin(struct tks_conc *c, uint32_t netns, const struct tks_endpoint *addr,
		   int64_t t_ns);
int tks_conc_end(struct tks_conc *c, uint32_t netns, const struct tks_endpoint *addr, int64_t t_ns);

/*
 * Value at `at`, and time-weighted mean and maximum over [from, to] (from == to: the value there).
 * A request counts at the very instant it begins, and no more at the instant it ends. 0, or -ENOENT
 * when the history does not reach back that far.
 */
int tks_conc_query(const struct tks_conc *c, uint32_t netns, const struct tks_endpoint *addr,
		   int64_t at, int64_t from, int64_t to, int64_t *at_start, double *mean,
		   int64_t *max);

/* Nobody will ask about times before t_ns any more (the oldest request still running began then).
 */
void tks_conc_trim(struct tks_conc *c, int64_t t_ns);

#endif
