/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which bucket a request belongs to. */
#ifndef TKS_BUCKETS_H
#define TKS_BUCKETS_H

#include <stdint.h>

/* Index of the output-length bucket; -1: no tokens, or not known (TKS_NULL). */
int tks_len_bucket(int64_t tokens);

/* Index of the concurrency bucket of a (time-weighted mean) concurrency; -1: not known (NAN). */
int tks_conc_bucket(double mean);

#endif
