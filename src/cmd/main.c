// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The program: finds the command and runs it. `trace` is what runs when none is named.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "confine.h"
#include "opts.h"
#include "output.h"

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
};

static const struct command commands[] = {
	{ "trace", tks_cmd_trace,
	  "live: one line a finished request, a summary at the end (default)" },
	{ "report", tks_cmd_report, "statistics from records (JSONL) or packets (pcap, pcapng)" },
	{ "doctor", tks_cmd_doctor, "what this kernel and this user may do" },
};

enum { NCOMMANDS = sizeof(commands) / sizeof(commands[0]) };

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < NCOMMANDS; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static int usage(FILE *out)
{
	fputs("Usage: tokensnoop [COMMAND] [OPTIONS] [FILE...]\n\n"
	      "Times every token that an LLM server on this host sends, without touching the server.\n\n"
	      "Commands:\n",
	      out);
	for (size_t i = 0; i < NCOMMANDS; i++)
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
	fputs("\ntokensnoop COMMAND --help tells a command's options.\n"
	      "Exit status: 0 success; 1 failed while running; 2 wrong usage; 3 not permitted or not\n"
	      "supported here. A reader that closes the output pipe early ends a command with 0.\n",
	      out);
	return tks_output_status(tks_output_close(out));
}

static bool is_option(const char *arg, const char *long_name, const char *short_name)
{
	return strcmp(arg, long_name) == 0 || strcmp(arg, short_name) == 0;
}

int main(int argc, char **argv)
{
	const struct command *c;

	tks_no_core_dumps();
	/* A reader that has gone is seen as -EPIPE, so that the trace can be ended in order. */
	signal(SIGPIPE, SIG_IGN);
	if (argc < 2)
		return tks_cmd_trace(argc, argv);
	if (is_option(argv[1], "--help", "-h"))
		return usage(stdout);
	if (argv[1][0] == '-' && argv[1][1])
		return tks_cmd_trace(argc, argv);
	c = find_command(argv[1]);
	if (c)
		return c->run(argc - 1, argv + 1);
	fprintf(stderr, "tokensnoop: there is no command \"%.64s\" (see tokensnoop --help)\n",
		argv[1]);
	return TKS_EXIT_USAGE;
}
