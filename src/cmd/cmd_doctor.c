// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * tokensnoop doctor: what this kernel and this user may do: each hook tried for real, the one that
 * trace would take, and why not the others.
 */
#include "cmd.h"

#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "opts.h"
#include "output.h"
#include "preflight.h"
#include "tls_attach.h"

/* True when nothing is missing. */
static bool preconditions(FILE *out)
{
	struct tks_finding f[TKS_FINDINGS];
	const struct tks_finding *wrong = tks_preflight(f);

	fprintf(out, "tokensnoop %s\n\n", TKS_VERSION);
	for (int i = 0; i < TKS_FINDINGS; i++)
		fprintf(out, "%-13s %s%s\n", f[i].name, f[i].err ? "NO: " : "", f[i].text);
	return !wrong;
}

static void capabilities(FILE *out)
{
	fprintf(out, "\nCapabilities: what each is for\n");
	for (int i = 0; i < TKS_CAP_USES; i++) {
		const struct tks_cap_use *u = &tks_cap_uses[i];

		fprintf(out, "%-23s %-4s %s\n", u->name,
			tks_has_cap(u->cap) ? "yes"
			: u->needed	    ? "NO"
					    : "no",
			u->use);
	}
	fputc('\n', out);
}

static void print_trial(FILE *out, const struct tks_trial *t, bool chosen)
{
	fprintf(out, "%-5s %-13s %-9s %s\n", t->point, t->hook,
		chosen	   ? "chosen"
		: t->works ? "works"
			   : "no",
		t->what);
	if (!t->works)
		fprintf(out, "%-28s%s: %s\n", "", t->step, t->reason);
	else if (t->compat)
		fprintf(out, "%-28swithout task storage and cookies in tracing programs (5.12)\n",
			"");
}

/* True when a hook works at each point that tracing needs; prints all rows. */
static bool print_trials(FILE *out, const struct tks_trial *trials, size_t n)
{
	const char *found = "", *point = "";
	int needed = 0;

	for (size_t i = 0; i < n; i++) {
		const struct tks_trial *t = &trials[i];
		bool first = strcmp(found, t->point) != 0;
		const char *forced = tks_hook_forced(t->point);
		bool allowed = !forced || !strcmp(forced, t->hook);

		/* A point's rows stand together. */
		needed += strcmp(point, t->point) && !t->optional;
		point = t->point;
		print_trial(out, t, t->works && first && allowed);
		if (!t->works || !first || !allowed)
			continue;
		found = t->point;
		needed -= !t->optional;
	}
	return !needed;
}

static void print_tls_file(void *ctx, const struct tks_tls_file *f)
{
	FILE *out = ctx;

	fprintf(out, "%s\n    %s of process %d: ", f->path, f->libs, f->pid);
	if (f->err)
		fprintf(out, "not read: %s\n", f->reason);
	else
		fprintf(out, "%u probes%s%s\n", f->probes, f->reason[0] ? "; " : "", f->reason);
}

/* What of the processes that run now would be read: attached for real, and taken off again. */
static void print_tls_files(FILE *out)
{
	struct tks_capture_config cfg = { .nports = 1 };
	struct tks_capture *c;
	char why[400];

	fputs("\nTLS libraries in use\n", out);
	if (tks_capture_open(&cfg, &c, why, sizeof(why))) {
		fprintf(out, "    can't be looked for: %s\n", why);
		return;
	}
	tks_capture_tls_files(c, print_tls_file, out);
	tks_capture_close(c);
}

int tks_cmd_doctor(int argc, char **argv)
{
	static const struct tks_cmd_spec spec = {
		.name = "doctor",
		.synopsis = "",
		.doc = "Tries every hook on this kernel, as this user, and says which ones trace would use\n"
		       "and why not the others. Exit status 0 only if tracing can work, else 3.\n",
	};
	struct tks_trial trials[TKS_TRIALS];
	struct tks_args args;
	bool ok;
	int status = tks_opts_begin(&spec, NULL, argc, argv, &args);

	if (status >= 0)
		return status;
	ok = preconditions(stdout);
	capabilities(stdout);
	if (ok)
		ok = print_trials(stdout, trials, tks_hooks_try(trials, true));
	if (ok)
		print_tls_files(stdout);
	printf("\n%s\n", ok ? "tracing can work here" : "tracing can't work here");
	status = tks_output_status(tks_output_close(stdout));
	return status ? status : ok ? TKS_EXIT_OK : TKS_EXIT_UNSUPPORTED;
}
