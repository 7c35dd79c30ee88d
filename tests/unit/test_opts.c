// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Command-line options: values, their bounds, the ways to write them, and what is said of wrong
 * ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

/* The commands' code is in no library. */
#include "opts.c"
#include "output.c"

struct config {
	struct tks_filter_opts filter;
	struct tks_capture_opts capture;
	struct tks_output_opts output;
};

static const struct tks_opt_group groups[] = {
	TKS_GROUP_FILTER(offsetof(struct config, filter)),
	TKS_GROUP_CAPTURE(offsetof(struct config, capture)),
	TKS_GROUP_OUTPUT(offsetof(struct config, output)),
};

static const struct tks_cmd_spec with_files = {
	.name = "report",
	.synopsis = "[OPTIONS] FILE...",
	.doc = "What it does.\n",
	.groups = groups,
	.ngroups = 3,
	.operand = "FILE",
	.min_operands = 1,
};

static const struct tks_cmd_spec without_files = {
	.name = "trace",
	.synopsis = "[OPTIONS]",
	.doc = "What it does.\n",
	.groups = groups,
	.ngroups = 3,
};

struct outcome {
	int err;
	struct config cfg;
	struct tks_args args;
	char words[512]; /* the command line, split; argv points into it */
	char *argv[40];
};

/* Parses a command line given as one string, words divided by single blanks ("''" is an empty
 * word). */
static void parse(struct outcome *o, const struct tks_cmd_spec *spec, const char *line)
{
	int argc = 1;
	char *save = NULL;

	memset(o, 0, sizeof(*o));
	o->cfg.capture = (struct tks_capture_opts)TKS_CAPTURE_OPTS_DEFAULT;
	assert_true(strlen(line) < sizeof(o->words));
	strcpy(o->words, line);
	o->argv[0] = "command";
	for (char *w = strtok_r(o->words, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		assert_true(argc < 40);
		o->argv[argc++] = strcmp(w, "''") == 0 ? w + 2 : w;
	}
	o->err = tks_opts_parse(spec, &o->cfg, argc, o->argv, &o->args);
}

static void good(struct outcome *o, const char *line)
{
	parse(o, &without_files, line);
	assert_string_equal(o->args.error, "");
	assert_int_equal(o->err, 0);
}

static void bad(const struct tks_cmd_spec *spec, const char *line, const char *error)
{
	struct outcome o;

	parse(&o, spec, line);
	assert_int_equal(o.err, -EINVAL);
	assert_string_equal(o.args.error, error);
}

static void test_nothing_given(void **state)
{
	struct outcome o;

	(void)state;
	good(&o, "");
	assert_int_equal(o.cfg.filter.pid, 0);
	assert_null(o.cfg.filter.comm);
	assert_int_equal(o.cfg.filter.ports.n, 0);
	assert_int_equal(o.cfg.capture.duration_ns, 0);
	assert_int_equal(o.cfg.capture.ring_mb, 16);
	assert_int_equal(o.cfg.output.format, TKS_FMT_TABLE);
	assert_null(o.cfg.output.file);
	assert_false(o.cfg.output.slo.any);
	assert_false(o.args.verbose);
	assert_int_equal(o.args.noperands, 0);
	assert_int_equal(tks_opts_parse(&without_files, &o.cfg, 0, o.argv, &o.args), 0);
}

static void test_filters(void **state)
{
	struct outcome o;

	(void)state;
	good(&o,
	     "-p 77 --comm vllm --port 8000 --port=9000 --cgroup /sys/fs/cgroup/a --no-tls --all");
	assert_int_equal(o.cfg.filter.pid, 77);
	assert_string_equal(o.cfg.filter.comm, "vllm");
	assert_int_equal(o.cfg.filter.ports.n, 2);
	assert_int_equal(o.cfg.filter.ports.port[0], 8000);
	assert_int_equal(o.cfg.filter.ports.port[1], 9000);
	assert_string_equal(o.cfg.filter.cgroup, "/sys/fs/cgroup/a");
	assert_true(o.cfg.filter.no_tls);
	assert_true(o.cfg.filter.all);
}

static void test_capture_and_output(void **state)
{
	struct outcome o;

	(void)state;
	good(&o, "-d 2.5 --ring-mb 64 --format jsonl -o out.jsonl --tokens --include-flagged -v");
	assert_int_equal(o.cfg.capture.duration_ns, 2500000000);
	assert_int_equal(o.cfg.capture.ring_mb, 64);
	assert_int_equal(o.cfg.output.format, TKS_FMT_JSONL);
	assert_string_equal(o.cfg.output.file, "out.jsonl");
	assert_true(o.cfg.output.tokens);
	assert_true(o.cfg.output.include_flagged);
	assert_true(o.args.verbose);
	good(&o, "--slo ttft=500ms,tpot=50ms");
	assert_true(o.cfg.output.slo.any);
	assert_int_equal(o.cfg.output.slo.limit_ns[TKS_SLO_TTFT], 500000000);
	assert_int_equal(o.cfg.output.slo.limit_ns[TKS_SLO_TPOT], 50000000);
	assert_int_equal(o.cfg.output.slo.limit_ns[TKS_SLO_E2E], TKS_NULL);
}

static void test_ways_to_write_them(void **state)
{
	static const char *const lines[] = {
		"-v -p 5 -o f",
		"-vp5 -of",
		"-vp 5 --output=f",
		"--verbose --pid=5 --output f",
		"-vvp5 -o f",
		"-p5 -v -o f",
		"-o g -p 4 -p 5 -v -o f", /* the last one counts */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct outcome o;

		good(&o, lines[i]);
		assert_true(o.args.verbose);
		assert_int_equal(o.cfg.filter.pid, 5);
		assert_string_equal(o.cfg.output.file, "f");
	}
}

static void test_operands(void **state)
{
	struct outcome o;

	(void)state;
	parse(&o, &with_files, "a.pcap -v - --format json b.jsonl -- -c --tokens");
	assert_int_equal(o.err, 0);
	assert_int_equal(o.args.noperands, 5);
	assert_string_equal(o.args.operands[0], "a.pcap");
	assert_string_equal(o.args.operands[1], "-");
	assert_string_equal(o.args.operands[2], "b.jsonl");
	assert_string_equal(o.args.operands[3], "-c");
	assert_string_equal(o.args.operands[4], "--tokens");
	assert_false(o.cfg.output.tokens);
	assert_int_equal(o.cfg.output.format, TKS_FMT_JSON);
	bad(&with_files, "", "report: needs a FILE (see tokensnoop report --help)");
	bad(&with_files, "-v --", "report: needs a FILE (see tokensnoop report --help)");
	bad(&without_files, "x", "\"x\": trace takes options only (see tokensnoop trace --help)");
}

static void test_wrong_options(void **state)
{
	(void)state;
	bad(&without_files, "--frob", "there is no option --frob (see tokensnoop trace --help)");
	bad(&without_files, "--frob=1", "there is no option --frob (see tokensnoop trace --help)");
	bad(&without_files, "--por 1", "there is no option --por (see tokensnoop trace --help)");
	bad(&without_files, "--ports 1",
	    "there is no option --ports (see tokensnoop trace --help)");
	bad(&without_files, "-vx", "there is no option -x (see tokensnoop trace --help)");
	bad(&without_files, "--tokens=1", "--tokens: takes no value (see tokensnoop trace --help)");
	bad(&without_files, "--port", "--port: needs a value, N (see tokensnoop trace --help)");
	bad(&without_files, "-vp", "--pid: needs a value, PID (see tokensnoop trace --help)");
	bad(&without_files, "--=", "there is no option -- (see tokensnoop trace --help)");
}

static void test_numbers(void **state)
{
	static const char *const wrong[] = { "0",
					     "-1",
					     "+1",
					     "1x",
					     "''",
					     "0x10",
					     "1.0",
					     "2147483648",
					     "4294967297",
					     "18446744073709551617",
					     "99999999999999999999999999" };
	struct outcome o;

	(void)state;
	good(&o, "--pid 1");
	assert_int_equal(o.cfg.filter.pid, 1);
	good(&o, "--pid 2147483647");
	assert_int_equal(o.cfg.filter.pid, 2147483647);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char line[64], error[160];

		snprintf(line, sizeof(line), "--pid %s", wrong[i]);
		snprintf(
			error, sizeof(error),
			"--pid: \"%s\" is not a number from 1 to 2147483647 (see tokensnoop trace --help)",
			strcmp(wrong[i], "''") == 0 ? "" : wrong[i]);
		bad(&without_files, line, error);
	}
	bad(&without_files, "--ring-mb 12",
	    "--ring-mb: \"12\" is not a power of two from 1 to 1024 (see tokensnoop trace --help)");
	bad(&without_files, "--ring-mb 2048",
	    "--ring-mb: \"2048\" is not a power of two from 1 to 1024 (see tokensnoop trace --help)");
}

static void test_seconds(void **state)
{
	static const char *const wrong[] = { "0",   "0.0", "-1", ".",	      "1.0000000001",
					     "1e3", "x",   "''", "315360000", "1.2.3" };
	struct outcome o;

	(void)state;
	good(&o, "-d 1");
	assert_int_equal(o.cfg.capture.duration_ns, 1000000000);
	good(&o, "-d 1."); /* as C reads it */
	assert_int_equal(o.cfg.capture.duration_ns, 1000000000);
	good(&o, "-d .25");
	assert_int_equal(o.cfg.capture.duration_ns, 250000000);
	good(&o, "-d 0.000000001");
	assert_int_equal(o.cfg.capture.duration_ns, 1);
	good(&o, "-d 315359999");
	assert_int_equal(o.cfg.capture.duration_ns, 315359999000000000);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char line[64];

		snprintf(line, sizeof(line), "-d %s", wrong[i]);
		parse(&o, &without_files, line);
		assert_int_equal(o.err, -EINVAL);
		assert_non_null(strstr(o.args.error, "is not a number of seconds above 0"));
	}
}

static void test_ports(void **state)
{
	char line[512] = "";
	struct outcome o;

	(void)state;
	for (int i = 1; i <= 16; i++)
		snprintf(line + strlen(line), sizeof(line) - strlen(line), "--port %d ", i);
	good(&o, line);
	assert_int_equal(o.cfg.filter.ports.n, 16);
	assert_int_equal(o.cfg.filter.ports.port[15], 16);
	strcat(line, "--port 16"); /* known already */
	good(&o, line);
	strcat(line, "5");
	bad(&without_files, line,
	    "--port: may be given at most 16 times (see tokensnoop trace --help)");
	bad(&without_files, "--port 65536",
	    "--port: \"65536\" is not a number from 1 to 65535 (see tokensnoop trace --help)");
	bad(&without_files, "--port http",
	    "--port: \"http\" is not a number from 1 to 65535 (see tokensnoop trace --help)");
}

static void test_strings(void **state)
{
	struct outcome o;

	(void)state;
	good(&o, "--comm 123456789012345");
	bad(&without_files, "--comm 1234567890123456",
	    "--comm: is longer than 15 bytes (see tokensnoop trace --help)");
	bad(&without_files, "--comm ''", "--comm: is empty (see tokensnoop trace --help)");
	bad(&without_files, "-o ''", "--output: is empty (see tokensnoop trace --help)");
}

static void test_format_and_slo(void **state)
{
	struct outcome o;

	(void)state;
	bad(&without_files, "--format xml",
	    "--format: \"xml\" is not one of: table (default), jsonl or json (see tokensnoop trace --help)");
	bad(&without_files, "--format jso",
	    "--format: \"jso\" is not one of: table (default), jsonl or json (see tokensnoop trace --help)");
	parse(&o, &without_files, "--slo ttft=fast");
	assert_int_equal(o.err, -EINVAL);
	assert_non_null(strstr(o.args.error, "--slo: can't read \""));
	assert_non_null(strstr(o.args.error, "ttft=500ms,tpot=50ms,e2e=10s"));
}

static void test_help_and_version_end_it(void **state)
{
	struct outcome o;

	(void)state;
	parse(&o, &with_files, "-h --frob");
	assert_int_equal(o.err, 0);
	assert_true(o.args.help);
	parse(&o, &with_files, "-vV x --port 0");
	assert_int_equal(o.err, 0);
	assert_true(o.args.version);
	parse(&o, &with_files, "--frob -h");
	assert_int_equal(o.err, -EINVAL);
}

static void test_long_values_do_not_spill(void **state)
{
	char line[500], *tail;
	struct outcome o;

	(void)state;
	memset(line, 'x', sizeof(line));
	memcpy(line, "--format ", 9);
	line[sizeof(line) - 1] = 0;
	parse(&o, &without_files, line);
	assert_int_equal(o.err, -EINVAL);
	assert_true(strlen(o.args.error) < sizeof(o.args.error));
	tail = strstr(o.args.error, " (see tokensnoop trace --help)");
	assert_non_null(tail);
	memcpy(line, "--xxxxxxx", 9);
	parse(&o, &without_files, line);
	assert_int_equal(o.err, -EINVAL);
	assert_non_null(strstr(o.args.error, " (see tokensnoop trace --help)"));
}

/* Every row is in the help, with its letter and its value's name; lines fit a terminal. */
static void test_help_names_every_option(void **state)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	(void)state;
	assert_non_null(f);
	tks_opts_help(&with_files, f);
	fclose(f);
	assert_ptr_equal(strstr(text,
				"Usage: tokensnoop report [OPTIONS] FILE...\n\nWhat it does.\n"),
			 text);
	assert_non_null(strstr(text, "\nFilters:\n"));
	assert_non_null(strstr(text, "  -p, --pid PID "));
	assert_non_null(strstr(text, "      --slo LIMITS "));
	assert_non_null(strstr(text, "  -o, --output FILE "));
	assert_non_null(strstr(text, "  -V, --version "));
	for (size_t i = 0; i < with_files.ngroups; i++)
		for (size_t j = 0; j < groups[i].nrows; j++) {
			char want[64];

			snprintf(want, sizeof(want), "--%s", groups[i].rows[j].name);
			assert_non_null(strstr(text, want));
		}
	for (char *line = text, *lf; (lf = strchr(line, '\n')); line = lf + 1)
		assert_true(lf - line <= 100);
	free(text);
}

/* No two rows of a command answer to the same name or letter. */
static void test_rows_are_distinct(void **state)
{
	const struct tks_opt *rows[64];
	size_t n = 0;

	(void)state;
	for (size_t i = 0; i < 3; i++)
		for (size_t j = 0; j < groups[i].nrows; j++)
			rows[n++] = &groups[i].rows[j];
	for (size_t j = 0; j < common_group.nrows; j++)
		rows[n++] = &common_group.rows[j];
	for (size_t i = 0; i < n; i++)
		for (size_t j = i + 1; j < n; j++) {
			assert_string_not_equal(rows[i]->name, rows[j]->name);
			assert_false(rows[i]->short_name &&
				     rows[i]->short_name == rows[j]->short_name);
		}
}

static void test_status_of_a_write(void **state)
{
	(void)state;
	assert_int_equal(tks_output_status(-ENOSPC), TKS_EXIT_FAILED);
	assert_int_equal(tks_output_status(-EPIPE), TKS_EXIT_OK);
	assert_int_equal(tks_output_status(0), TKS_EXIT_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_given),
		cmocka_unit_test(test_filters),
		cmocka_unit_test(test_capture_and_output),
		cmocka_unit_test(test_ways_to_write_them),
		cmocka_unit_test(test_operands),
		cmocka_unit_test(test_wrong_options),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_seconds),
		cmocka_unit_test(test_ports),
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_format_and_slo),
		cmocka_unit_test(test_help_and_version_end_it),
		cmocka_unit_test(test_long_values_do_not_spill),
		cmocka_unit_test(test_help_names_every_option),
		cmocka_unit_test(test_rows_are_distinct),
		cmocka_unit_test(test_status_of_a_write),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
