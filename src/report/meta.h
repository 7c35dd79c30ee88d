/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The measurement's own description and the summary, as JSON. */
#ifndef TKS_META_H
#define TKS_META_H

#include "jsonw.h"
#include "tokensnoop/report.h"

/* The members of the meta object, without its brackets. */
void tks_meta_write(struct tks_jsonw *w, const struct tks_meta *m);

/* The summary object. */
void tks_summary_write(struct tks_jsonw *w, struct tks_stats *stats, const struct tks_slo *slo);

#endif
