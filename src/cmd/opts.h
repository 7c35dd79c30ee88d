/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Command-line options. One row an option: parser, validation and help all come from it. A command
 * lists groups of rows; the FILTER, CAPTURE and OUTPUT groups are shared, with a struct each that
 * the command embeds in its own configuration:
 *
 *     struct trace_config { struct tks_filter_opts filter; struct tks_output_opts output; };
 *     static const struct tks_opt_group groups[] = {
 *             TKS_GROUP_FILTER(offsetof(struct trace_config, filter)),
 *             TKS_GROUP_OUTPUT(offsetof(struct trace_config, output)),
 *     };
 */
#ifndef TKS_OPTS_H
#define TKS_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tokensnoop/report.h"
#include "tokensnoop/stats.h"

/* The exit statuses of every command. */
enum tks_exit {
	TKS_EXIT_OK = 0,
	TKS_EXIT_FAILED = 1, /* failed while running */
	TKS_EXIT_USAGE = 2,
	TKS_EXIT_UNSUPPORTED = 3, /* not permitted or not supported here */
};

/* What a row's target is, and what min and max bound. */
enum tks_opt_type {
	TKS_OPT_FLAG, /* bool; no value */
	TKS_OPT_U32, /* uint32_t; its value */
	TKS_OPT_POW2, /* uint32_t, a power of two; its value */
	TKS_OPT_SECONDS, /* int64_t, nanoseconds; given in seconds, fractions allowed; bounds in
			    seconds */
	TKS_OPT_STRING, /* const char *; its length in bytes */
	TKS_OPT_ENUM, /* int; index into choices */
	TKS_OPT_PORTS, /* struct tks_ports; a port; may be repeated */
	TKS_OPT_SLO, /* struct tks_slo */
};

struct tks_opt {
	const char *name; /* without its dashes */
	char short_name; /* 0: none */
	enum tks_opt_type type;
	size_t offset; /* of the target, in the group's struct */
	uint64_t min, max;
	const char *metavar; /* how help calls the value; NULL for flags */
	const char *help; /* one line */
	const char *const *choices; /* ENUM: names, NULL-terminated */
};

struct tks_opt_group {
	const char *title;
	const struct tks_opt *rows;
	size_t nrows;
	size_t base; /* of the group's struct in the command's configuration */
};

enum { TKS_PORTS_MAX = 16 };

struct tks_ports {
	uint16_t port[TKS_PORTS_MAX];
	size_t n; /* 0: any port */
};

/* FILTERS: which connections. */
struct tks_filter_opts {
	uint32_t pid; /* with its children; 0: any */
	const char *comm; /* at most 15 bytes; NULL: any */
	const char *cgroup; /* NULL: any */
	struct tks_ports ports;
	bool no_tls;
	bool all; /* also sockets on which this host is the client */
};

/* CAPTURE: how long and how much. */
struct tks_capture_opts {
	int64_t duration_ns; /* 0: until interrupted */
	uint32_t ring_mb;
};

/* OUTPUT: what comes out. */
struct tks_output_opts {
	int format; /* enum tks_format */
	const char *file; /* NULL or "-": standard output */
	bool tokens;
	bool include_flagged;
	struct tks_slo slo; /* slo.any: --slo was given */
};

#define TKS_CAPTURE_OPTS_DEFAULT                                                                   \
	{                                                                                          \
		.duration_ns = 0, .ring_mb = 16                                                    \
	}

enum { TKS_FILTER_ROWS = 6, TKS_CAPTURE_ROWS = 2, TKS_OUTPUT_ROWS = 5 };
extern const struct tks_opt tks_filter_rows[TKS_FILTER_ROWS];
extern const struct tks_opt tks_capture_rows[TKS_CAPTURE_ROWS];
extern const struct tks_opt tks_output_rows[TKS_OUTPUT_ROWS];

#define TKS_GROUP_FILTER(base)                                                                     \
	{                                                                                          \
		"Filters", tks_filter_rows, TKS_FILTER_ROWS, (base)                                \
	}
#define TKS_GROUP_CAPTURE(base)                                                                    \
	{                                                                                          \
		"Capture", tks_capture_rows, TKS_CAPTURE_ROWS, (base)                              \
	}
#define TKS_GROUP_OUTPUT(base)                                                                     \
	{                                                                                          \
		"Output", tks_output_rows, TKS_OUTPUT_ROWS, (base)                                 \
	}

struct tks_cmd_spec {
	const char *name; /* "report" */
	const char *synopsis; /* what follows the name on the usage line */
	const char *doc; /* a paragraph for --help, lines ended by LF */
	const struct tks_opt_group *groups;
	size_t ngroups;
	const char *operand; /* how messages call one ("FILE"); NULL: none are taken */
	size_t min_operands;
};

/* What the command line asked for, beside the configuration. */
struct tks_args {
	char **operands; /* the arguments that are not options, in order */
	size_t noperands;
	bool verbose; /* -v */
	bool help, version; /* print that and end; nothing else was looked at after it */
	char error[320]; /* after -EINVAL: one line without LF */
};

/*
 * Parses argv[1..argc), argv[0] being the command's name, into config, which holds the defaults.
 * Every command also has -v, -h/--help and -V/--version. Long options take their value behind `=`
 * or as the next argument; short ones may be bundled and take theirs attached or as the next
 * argument; `--` ends the options; `-` is an operand; operands may stand between options (argv is
 * permuted). Strings point into argv. 0, or -EINVAL with args->error.
 */
int tks_opts_parse(const struct tks_cmd_spec *spec, void *config, int argc, char **argv,
		   struct tks_args *args);

/*
 * tks_opts_parse, and what ends there: prints help or version to stdout, an error to stderr. -1: go
 * on; else the exit status to end with.
 */
int tks_opts_begin(const struct tks_cmd_spec *spec, void *config, int argc, char **argv,
		   struct tks_args *args);

void tks_opts_help(const struct tks_cmd_spec *spec, FILE *out);

void tks_version_print(FILE *out);

/* The exit status after what a write returned: a reader that has gone (-EPIPE) is no failure. */
int tks_output_status(int err);

#endif
