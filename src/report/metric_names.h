/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the metrics are called, in JSON and for people. */
#ifndef TKS_METRIC_NAMES_H
#define TKS_METRIC_NAMES_H

#include "tokensnoop/stats.h"

struct tks_metric_name {
	const char *key, *label;
};

extern const struct tks_metric_name tks_metric_names[TKS_METRICS];

#endif
