// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Service level objectives: the little language of --slo, and whether a request kept them. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tokensnoop/stats.h"

static const char *const names[TKS_SLO_METRICS] = {
	[TKS_SLO_TTFT] = "ttft",       [TKS_SLO_TTFT_VISIBLE] = "ttft_visible",
	[TKS_SLO_TPOT] = "tpot",       [TKS_SLO_E2E] = "e2e",
	[TKS_SLO_ITL_P50] = "itl_p50", [TKS_SLO_ITL_P90] = "itl_p90",
	[TKS_SLO_ITL_P99] = "itl_p99", [TKS_SLO_ITL_MAX] = "itl_max",
};

const char *tks_slo_name(enum tks_slo_metric m)
{
	return names[m];
}

static int metric_of(const char *s, size_t len)
{
	for (int i = 0; i < TKS_SLO_METRICS; i++) {
		if (strlen(names[i]) == len && !memcmp(names[i], s, len))
			return i;
	}
	return -1;
}

/* "500ms": digits, at most one point, a unit. Behind the text read, or NULL. */
static const char *parse_time(const char *s, int64_t *ns)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = { { "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 } };
	size_t len = strspn(s, "0123456789.");
	double v;
	char *end;

	if (!len || len > 18 || s[0] == '.')
		return NULL;
	v = strtod(s, &end);
	if (end != s + len)
		return NULL;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		size_t n = strlen(units[i].unit);

		if (strncmp(end, units[i].unit, n) || (end[n] && end[n] != ','))
			continue;
		v *= units[i].ns;
		if (v < 1 || v > 9e17)
			return NULL;
		*ns = llround(v);
		return end + n;
	}
	return NULL;
}

int tks_slo_parse(const char *text, struct tks_slo *slo, const char **bad)
{
	struct tks_slo out = { .any = true };
	const char *s = text;

	for (int i = 0; i < TKS_SLO_METRICS; i++)
		out.limit_ns[i] = TKS_NULL;
	for (;;) {
		size_t len = strcspn(s, "=,");
		int m = metric_of(s, len);
		const char *end;

		*bad = s;
		if (m < 0 || s[len] != '=' || out.limit_ns[m] != TKS_NULL)
			return -EINVAL;
		end = parse_time(s + len + 1, &out.limit_ns[m]);
		if (!end)
			return -EINVAL;
		if (!*end)
			break;
		s = end + 1;
	}
	*slo = out;
	return 0;
}

/* Where the gaps are too few for the percentile the largest is judged, which is at least as strict.
 */
static int64_t itl_or_max(const struct tks_request *r, int64_t percentile)
{
	return percentile != TKS_NULL ? percentile : r->itl.max_ns;
}

static int64_t value_of(const struct tks_request *r, int m)
{
	switch (m) {
	case TKS_SLO_TTFT:
		return r->ttft_ns;
	case TKS_SLO_TTFT_VISIBLE:
		return r->ttft_visible_ns;
	case TKS_SLO_TPOT:
		return r->tpot_ns;
	case TKS_SLO_E2E:
		return r->e2e_ns;
	case TKS_SLO_ITL_P50:
		return itl_or_max(r, r->itl.p50_ns);
	case TKS_SLO_ITL_P90:
		return itl_or_max(r, r->itl.p90_ns);
	case TKS_SLO_ITL_P99:
		return itl_or_max(r, r->itl.p99_ns);
	default:
		return r->itl.max_ns;
	}
}

static bool failed(const struct tks_request *r)
{
	static const char *const bad[] = { "aborted", "cut", "error", "open" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (!strcmp(r->finish, bad[i]))
			return true;
	}
	return r->error[0] || (r->status != TKS_NULL && r->status >= 400);
}

/* A figure that is missing was there, and was not seen. */
static bool unmeasured(const struct tks_request *r)
{
	if (r->flags & (TKS_F_BLIND | TKS_F_LOST | TKS_F_MID_STREAM | TKS_F_OPAQUE))
		return true;
	/* Of the series only: a name that was cut costs no figure. */
	return (r->flags & TKS_F_TRUNCATED) && r->token_frames > 1 && !r->itl.n;
}

int tks_slo_met(const struct tks_slo *slo, const struct tks_request *r, uint32_t *missed)
{
	bool unseen = unmeasured(r);
	uint32_t bits = 0;

	for (int m = 0; m < TKS_SLO_METRICS; m++) {
		int64_t limit = slo->limit_ns[m], v = value_of(r, m);

		/* With bytes missing the worst gap may be the one that was not seen. */
		bool whole = v != TKS_NULL && (m < TKS_SLO_ITL_P50 || !unseen);

		if (limit != TKS_NULL && ((v != TKS_NULL && v > limit) || (unseen && !whole)))
			bits |= 1u << m;
	}
	if (missed)
		*missed = bits;
	return !bits && !failed(r);
}
