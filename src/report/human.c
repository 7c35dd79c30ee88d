// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Numbers for people. */
#include "human.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
	/* Digits behind the point so that three count, but never finer than a nanosecond. What
	 * rounds up to the next power of ten has one less. */
	decimals = 2 - (int)floor(log10(fabs(ms)));
	if (fabs(ms) * pow(10, decimals) >= 999.5)
		decimals--;
	if (decimals > 6)
		decimals = 6;
	if (decimals >= 0) {
		snprintf(buf, TKS_HUMAN, "%.*f", decimals, ms);
		return buf;
	}
	snprintf(buf, TKS_HUMAN, "%.0f", round(ms * pow(10, decimals)) * pow(10, -decimals));
	return buf;
}

char *tks_human_text(const char *s, size_t width, char *buf)
{
	size_t n = strlen(s), i;

	if (!n) {
		s = "-";
		n = 1;
	}
	if (n > width) {
		s += n - width;
		n = width;
	}
	for (i = 0; i < n; i++)
		buf[i] = s[i] < 0x20 || s[i] > 0x7e ? '?' : s[i];
	buf[i] = 0;
	return buf;
}

char *tks_human_ms_int(int64_t ns, char *buf)
{
	return tks_human_ms(ns == TKS_NULL ? NAN : (double)ns, buf);
}
