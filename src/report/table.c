// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The live table. What the server or the client chose (model, finish) is shown without control
 * characters. */
#include "table.h"

#include <errno.h>
#include <inttypes.h>
#include <time.h>

#include "fields.h"
#include "human.h"

/* The clock time at which the request ended. */
static void end_time(const struct tks_request *r, char *buf, size_t len)
{
	int64_t ns = r->start_unix_ns;
	struct tm tm;
	time_t sec;

	snprintf(buf, len, "-");
	if (ns == TKS_NULL)
		return;
	if (r->t_end_ns != TKS_NULL && r->t_request_ns != TKS_NULL)
		ns += r->t_end_ns - r->t_request_ns;
	sec = (time_t)(ns / 1000000000);
	if (localtime_r(&sec, &tm))
		strftime(buf, len, "%H:%M:%S", &tm);
}

static void number(int64_t v, char *buf, size_t len)
{
	if (v == TKS_NULL)
		snprintf(buf, len, "-");
	else
		snprintf(buf, len, "%" PRId64, v);
}

static void flags(const struct tks_request *r, FILE *out)
{
	const char *sep = " ";

	for (size_t i = 0; i < tks_nflag_names; i++) {
		if (r->flags & tks_flag_names[i].flag) {
			fprintf(out, "%s%s", sep, tks_flag_names[i].name);
			sep = ",";
		}
	}
}

int tks_table_row(FILE *out, const struct tks_request *r, bool first)
{
	char when[16], model[17], finish[11], tokens[24], b[4][TKS_HUMAN];

	if (first)
		fprintf(out, "%-8s %-16s %7s %8s %8s %8s %8s %-10s\n", "ended", "model", "tokens",
			"TTFT ms", "TPOT ms", "ITLmax", "E2E ms", "finish");
	end_time(r, when, sizeof(when));
	tks_human_text(r->model, sizeof(model) - 1, model);
	tks_human_text(r->finish, sizeof(finish) - 1, finish);
	number(r->tokens, tokens, sizeof(tokens));
	errno = 0;
	fprintf(out, "%-8s %-16s %7s %8s %8s %8s %8s %s", when, model, tokens,
		tks_human_ms_int(r->ttft_ns, b[0]), tks_human_ms_int(r->tpot_ns, b[1]),
		tks_human_ms_int(r->itl.max_ns, b[2]), tks_human_ms_int(r->e2e_ns, b[3]), finish);
	flags(r, out);
	fputc('\n', out);
	if (ferror(out))
		return errno ? -errno : -EIO;
	return 0;
}
