// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Option parsing from tables. A row says where its value goes and what is allowed; this file knows
 * types, not options. Relies on tks_slo_parse for the one type with a language of its own. Nothing
 * here exits.
 */
#include "opts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "output.h"

static const char *const format_names[] = {
	[TKS_FMT_TABLE] = "table",
	[TKS_FMT_JSONL] = "jsonl",
	[TKS_FMT_JSON] = "json",
	NULL,
};

#define FILTER(field) offsetof(struct tks_filter_opts, field)
const struct tks_opt tks_filter_rows[TKS_FILTER_ROWS] = {
	{ "pid", 'p', TKS_OPT_U32, FILTER(pid), 1, INT32_MAX, "PID",
	  "only this process and its descendants", NULL },
	{ "comm", 0, TKS_OPT_STRING, FILTER(comm), 1, 15, "NAME",
	  "only processes of this name (the kernel keeps 15 bytes of it)", NULL },
	{ "port", 0, TKS_OPT_PORTS, FILTER(ports), 1, UINT16_MAX, "N",
	  "only servers on this port; may be given up to 16 times", NULL },
	{ "cgroup", 0, TKS_OPT_STRING, FILTER(cgroup), 1, 4095, "PATH",
	  "only processes in this cgroup (v2) and below", NULL },
	{ "no-tls", 0, TKS_OPT_FLAG, FILTER(no_tls), 0, 0, NULL, "leave TLS libraries alone",
	  NULL },
	{ "all", 0, TKS_OPT_FLAG, FILTER(all), 0, 0, NULL,
	  "also connections on which this host is the client", NULL },
};

#define CAPTURE(field) offsetof(struct tks_capture_opts, field)
const struct tks_opt tks_capture_rows[TKS_CAPTURE_ROWS] = {
	{ "duration", 'd', TKS_OPT_SECONDS, CAPTURE(duration_ns), 0, 10 * 365 * 86400, "SECONDS",
	  "stop after this time (default: at Ctrl-C)", NULL },
	{ "ring-mb", 0, TKS_OPT_POW2, CAPTURE(ring_mb), 1, 1024, "N",
	  "size of the ring buffer in MiB, a power of two (default 16)", NULL },
};

#define OUTPUT(field) offsetof(struct tks_output_opts, field)
const struct tks_opt tks_output_rows[TKS_OUTPUT_ROWS] = {
	{ "format", 0, TKS_OPT_ENUM, OUTPUT(format), 0, 0, "FORMAT",
	  "table (default), jsonl or json", format_names },
	{ "output", 'o', TKS_OPT_STRING, OUTPUT(file), 1, 4095, "FILE",
	  "write there instead of to standard output", NULL },
	{ "tokens", 0, TKS_OPT_FLAG, OUTPUT(tokens), 0, 0, NULL,
	  "the time of each token frame in the records", NULL },
	{ "include-flagged", 0, TKS_OPT_FLAG, OUTPUT(include_flagged), 0, 0, NULL,
	  "lost, mid_stream and estimated requests in the distributions too", NULL },
	{ "slo", 0, TKS_OPT_SLO, OUTPUT(slo), 0, 0, "LIMITS",
	  "goodput: what a good request keeps, e.g. ttft=500ms,tpot=50ms,e2e=10s", NULL },
};

/* Every command's; their target is struct tks_args. */
static const struct tks_opt common_rows[] = {
	{ "verbose", 'v', TKS_OPT_FLAG, offsetof(struct tks_args, verbose), 0, 0, NULL,
	  "say more on standard error", NULL },
	{ "help", 'h', TKS_OPT_FLAG, offsetof(struct tks_args, help), 0, 0, NULL, "this text",
	  NULL },
	{ "version", 'V', TKS_OPT_FLAG, offsetof(struct tks_args, version), 0, 0, NULL,
	  "the program's version", NULL },
};
static const struct tks_opt_group common_group = { "Common", common_rows,
						   sizeof(common_rows) / sizeof(common_rows[0]),
						   0 };

struct parse {
	const struct tks_cmd_spec *spec;
	void *config;
	int argc, next; /* next: index of the argument to look at */
	char **argv;
	struct tks_args *args;
};

/* The row that an option on the command line means, and where its value goes. */
struct match {
	const struct tks_opt *row;
	void *target;
};

__attribute__((format(printf, 2, 3))) static int wrong(struct parse *p, const char *fmt, ...)
{
	char *error = p->args->error;
	size_t size = sizeof(p->args->error);
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(error, size, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= size)
		n = (int)size - 1;
	snprintf(error + n, size - (size_t)n, " (see tokensnoop %s --help)", p->spec->name);
	return -EINVAL;
}

static const struct tks_opt *find_row(const struct tks_opt_group *g, const char *name, size_t len,
				      char short_name)
{
	for (size_t i = 0; i < g->nrows; i++) {
		const struct tks_opt *row = &g->rows[i];

		if (short_name ? row->short_name == short_name
			       : strlen(row->name) == len && !memcmp(row->name, name, len))
			return row;
	}
	return NULL;
}

/* By long name (short_name 0) or by letter. */
static bool find(struct parse *p, const char *name, size_t len, char short_name, struct match *m)
{
	for (size_t i = 0; i < p->spec->ngroups; i++) {
		const struct tks_opt_group *g = &p->spec->groups[i];

		m->row = find_row(g, name, len, short_name);
		if (m->row) {
			m->target = (char *)p->config + g->base + m->row->offset;
			return true;
		}
	}
	m->row = find_row(&common_group, name, len, short_name);
	if (m->row)
		m->target = (char *)p->args + m->row->offset;
	return m->row != NULL;
}

/* Decimal digits and nothing else; saturates, so that an overflow is out of every range. */
static bool parse_digits(const char *s, size_t len, uint64_t *v)
{
	*v = 0;
	for (size_t i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		if (__builtin_mul_overflow(*v, 10u, v) ||
		    __builtin_add_overflow(*v, (uint64_t)(s[i] - '0'), v))
			*v = UINT64_MAX / 16;
	}
	return len > 0;
}

static int bad_number(struct parse *p, const struct tks_opt *row, const char *value)
{
	return wrong(p, "--%s: \"%.64s\" is not a %s from %" PRIu64 " to %" PRIu64, row->name,
		     value, row->type == TKS_OPT_POW2 ? "power of two" : "number", row->min,
		     row->max);
}

static int set_u32(struct parse *p, const struct match *m, const char *value)
{
	uint64_t v;

	if (!parse_digits(value, strlen(value), &v) || v < m->row->min || v > m->row->max)
		return bad_number(p, m->row, value);
	if (m->row->type == TKS_OPT_POW2 && (v & (v - 1)))
		return bad_number(p, m->row, value);
	*(uint32_t *)m->target = (uint32_t)v;
	return 0;
}

static int set_seconds(struct parse *p, const struct match *m, const char *value)
{
	const char *dot = strchr(value, '.');
	size_t whole = dot ? (size_t)(dot - value) : strlen(value), decimals = 0;
	uint64_t sec = 0, frac = 0;
	bool ok = whole ? parse_digits(value, whole, &sec) : dot != NULL;

	if (ok && dot) {
		decimals = strlen(dot + 1);
		ok = decimals <= 9 &&
		     (decimals ? parse_digits(dot + 1, decimals, &frac) : whole > 0);
	}
	while (ok && decimals++ < 9)
		frac *= 10;
	if (!ok || sec < m->row->min || sec >= m->row->max || (!sec && !frac))
		return wrong(
			p, "--%s: \"%.64s\" is not a number of seconds above 0 and below %" PRIu64,
			m->row->name, value, m->row->max);
	*(int64_t *)m->target = (int64_t)(sec * 1000000000u + frac);
	return 0;
}

static int set_string(struct parse *p, const struct match *m, char *value)
{
	size_t len = strlen(value);

	if (len < m->row->min)
		return wrong(p, "--%s: is empty", m->row->name);
	if (len > m->row->max)
		return wrong(p, "--%s: is longer than %" PRIu64 " bytes", m->row->name,
			     m->row->max);
	*(char **)m->target = value;
	return 0;
}

static int set_enum(struct parse *p, const struct match *m, const char *value)
{
	for (int i = 0; m->row->choices[i]; i++) {
		if (strcmp(m->row->choices[i], value) == 0) {
			*(int *)m->target = i;
			return 0;
		}
	}
	return wrong(p, "--%s: \"%.64s\" is not one of: %s", m->row->name, value, m->row->help);
}

static int set_port(struct parse *p, const struct match *m, const char *value)
{
	struct tks_ports *ports = m->target;
	uint64_t v;

	if (!parse_digits(value, strlen(value), &v) || v < m->row->min || v > m->row->max)
		return bad_number(p, m->row, value);
	for (size_t i = 0; i < ports->n; i++)
		if (ports->port[i] == v)
			return 0;
	if (ports->n == TKS_PORTS_MAX)
		return wrong(p, "--%s: may be given at most %d times", m->row->name, TKS_PORTS_MAX);
	ports->port[ports->n++] = (uint16_t)v;
	return 0;
}

static int set_slo(struct parse *p, const struct match *m, const char *value)
{
	const char *bad = value;

	if (tks_slo_parse(value, m->target, &bad))
		return wrong(
			p,
			"--%s: can't read \"%.64s\"; wanted is e.g. ttft=500ms,tpot=50ms,e2e=10s",
			m->row->name, bad);
	return 0;
}

/* value: NULL for flags. */
static int set(struct parse *p, const struct match *m, char *value)
{
	switch (m->row->type) {
	case TKS_OPT_FLAG:
		*(bool *)m->target = true;
		return 0;
	case TKS_OPT_U32:
	case TKS_OPT_POW2:
		return set_u32(p, m, value);
	case TKS_OPT_SECONDS:
		return set_seconds(p, m, value);
	case TKS_OPT_STRING:
		return set_string(p, m, value);
	case TKS_OPT_ENUM:
		return set_enum(p, m, value);
	case TKS_OPT_PORTS:
		return set_port(p, m, value);
	case TKS_OPT_SLO:
		return set_slo(p, m, value);
	}
	return -EINVAL;
}

static int set_from_next(struct parse *p, const struct match *m)
{
	if (p->next == p->argc)
		return wrong(p, "--%s: needs a value, %s", m->row->name, m->row->metavar);
	return set(p, m, p->argv[p->next++]);
}

/* arg: behind the two dashes. */
static int parse_long(struct parse *p, char *arg)
{
	char *eq = strchr(arg, '=');
	size_t len = eq ? (size_t)(eq - arg) : strlen(arg);
	struct match m;

	if (!find(p, arg, len, 0, &m))
		return wrong(p, "there is no option --%.*s", (int)(len < 64 ? len : 64), arg);
	if (m.row->type == TKS_OPT_FLAG && eq)
		return wrong(p, "--%s: takes no value", m.row->name);
	if (m.row->type == TKS_OPT_FLAG || eq)
		return set(p, &m, eq ? eq + 1 : NULL);
	return set_from_next(p, &m);
}

/* arg: behind the dash; flags, then at most one option with a value. */
static int parse_short(struct parse *p, char *arg)
{
	struct match m;
	int err = 0;

	for (; *arg && !err; arg++) {
		if (!find(p, NULL, 0, *arg, &m))
			return wrong(p, "there is no option -%c", *arg);
		if (m.row->type != TKS_OPT_FLAG)
			return arg[1] ? set(p, &m, arg + 1) : set_from_next(p, &m);
		err = set(p, &m, NULL);
	}
	return err;
}

static int check_operands(struct parse *p)
{
	const struct tks_cmd_spec *spec = p->spec;

	if (p->args->noperands && !spec->operand)
		return wrong(p, "\"%.64s\": %s takes options only", p->args->operands[0],
			     spec->name);
	if (p->args->noperands < spec->min_operands)
		return wrong(p, "%s: needs a %s", spec->name, spec->operand);
	return 0;
}

int tks_opts_parse(const struct tks_cmd_spec *spec, void *config, int argc, char **argv,
		   struct tks_args *args)
{
	struct parse p = {
		.spec = spec, .config = config, .argc = argc, .next = 1, .argv = argv, .args = args
	};
	bool only_operands = false;
	int err = 0;

	*args = (struct tks_args){ .operands = argc > 0 ? argv + 1 : argv };
	while (p.next < argc && !err && !args->help && !args->version) {
		char *arg = argv[p.next++];

		if (only_operands || arg[0] != '-' || !arg[1])
			args->operands[args->noperands++] = arg;
		else if (strcmp(arg, "--") == 0)
			only_operands = true;
		else if (arg[1] == '-')
			err = parse_long(&p, arg + 2);
		else
			err = parse_short(&p, arg + 1);
	}
	if (err || args->help || args->version)
		return err;
	return check_operands(&p);
}

static void help_group(const struct tks_opt_group *g, FILE *out)
{
	char left[64];

	fprintf(out, "\n%s:\n", g->title);
	for (size_t i = 0; i < g->nrows; i++) {
		const struct tks_opt *row = &g->rows[i];
		char dash[8] = "    ";

		if (row->short_name)
			snprintf(dash, sizeof(dash), "-%c, ", row->short_name);
		snprintf(left, sizeof(left), "%s--%s%s%s", dash, row->name, row->metavar ? " " : "",
			 row->metavar ? row->metavar : "");
		fprintf(out, "  %-24s %s\n", left, row->help);
	}
}

void tks_opts_help(const struct tks_cmd_spec *spec, FILE *out)
{
	fprintf(out, "Usage: tokensnoop %s %s\n\n%s", spec->name, spec->synopsis, spec->doc);
	for (size_t i = 0; i < spec->ngroups; i++)
		help_group(&spec->groups[i], out);
	help_group(&common_group, out);
}

void tks_version_print(FILE *out)
{
	fprintf(out, "tokensnoop %s\n", TKS_VERSION);
}

int tks_opts_begin(const struct tks_cmd_spec *spec, void *config, int argc, char **argv,
		   struct tks_args *args)
{
	if (tks_opts_parse(spec, config, argc, argv, args)) {
		fprintf(stderr, "tokensnoop: %s\n", args->error);
		return TKS_EXIT_USAGE;
	}
	if (!args->help && !args->version)
		return -1;
	if (args->help)
		tks_opts_help(spec, stdout);
	else
		tks_version_print(stdout);
	return tks_output_status(tks_output_close(stdout));
}

int tks_output_status(int err)
{
	return err && err != -EPIPE ? TKS_EXIT_FAILED : TKS_EXIT_OK;
}
