// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The metrics' names. */
#include "metric_names.h"

const struct tks_metric_name tks_metric_names[TKS_METRICS] = {
	[TKS_M_TTFT] = { "ttft", "TTFT" },
	[TKS_M_TTFT_VISIBLE] = { "ttft_visible", "TTFT visible" },
	[TKS_M_TPOT] = { "tpot", "TPOT" },
	[TKS_M_ITL_P50] = { "itl_p50", "ITL p50/request" },
	[TKS_M_ITL_P99] = { "itl_p99", "ITL p99/request" },
	[TKS_M_ITL_MAX] = { "itl_max", "ITL max/request" },
	[TKS_M_ITL_POOLED] = { "itl_pooled", "ITL pooled *" },
	[TKS_M_E2E] = { "e2e", "E2E" },
	[TKS_M_SEND_WAIT] = { "send_wait", "send wait" },
};
