// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Numbers for people. */
#include "human.h"

#include <math.h>
#include <stdio.h>

#include "tokensnoop/request.h"

char *tks_human_ms(double ns, char *buf)
{
	double ms = ns / 1e6;
	int decimals;

	if (!isfinite(ns)) {
		snprintf(buf, TKS_HUMAN, "-");
		return buf;
	}
	if (ms == 0) {
		snprintf(buf, TKS_HUMAN, "0");
		return buf;
	}
	/* Digits behind the point so that three count, but never finer than a nanosecond. */
	decimals = 2 - (int)floor(log10(fabs(ms)));
	if (decimals > 6)
		decimals = 6;
	if (decimals >= 0) {
		snprintf(buf, TKS_HUMAN, "%.*f", decimals, ms);
		return buf;
	}
	snprintf(buf, TKS_HUMAN, "%.0f", round(ms * pow(10, decimals)) * pow(10, -decimals));
	return buf;
}

char *tks_human_ms_int(int64_t ns, char *buf)
{
	return tks_human_ms(ns == TKS_NULL ? NAN : (double)ns, buf);
}
