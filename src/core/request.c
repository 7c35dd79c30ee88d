// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The empty record. */
#include "tokensnoop/request.h"

#include <math.h>
#include <string.h>

static void no_gaps(struct tks_gaps *g)
{
	g->n = 0;
	g->min_ns = g->mean_ns = g->max_ns = TKS_NULL;
	g->p50_ns = g->p90_ns = g->p99_ns = TKS_NULL;
}

void tks_request_init(struct tks_request *r)
{
	memset(r, 0, sizeof(*r));
	r->pid = r->status = r->streamed = TKS_NULL;
	r->dialect = "unknown";
	r->transport = "tcp";
	r->stream_id = TKS_NULL;
	r->t_request_ns = r->t_request_end_ns = r->t_headers_ns = TKS_NULL;
	r->t_first_ns = r->t_last_ns = r->t_finish_ns = r->t_end_ns = TKS_NULL;
	r->t_visible_ns = r->start_unix_ns = TKS_NULL;
	r->tokens = TKS_NULL;
	r->prompt_tokens = r->cached_tokens = r->reasoning_tokens = TKS_NULL;
	r->max_tokens = r->n = TKS_NULL;
	r->ttft_ns = r->ttft_visible_ns = r->tpot_ns = r->e2e_ns = r->send_wait_ns = TKS_NULL;
	no_gaps(&r->itl);
	no_gaps(&r->itl_per_token);
	r->conc_at_start = r->conc_max = TKS_NULL;
	r->conc_mean = NAN;
	r->slo_met = -1;
}
