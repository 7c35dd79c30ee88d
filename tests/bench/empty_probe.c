// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Puts an empty program on functions, in all processes, and holds it there until standard input
 * ends. Says "ready" when it is there.
 *
 * usage: empty_probe OBJECT FILE:FUNCTION[+BYTES]...
 *
 * Run-time statistics of BPF are on meanwhile, as they are while tokensnoop traces.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void attach(struct bpf_program *prog, char *where)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts);
	char *plus = strrchr(where, '+'), *function = strchr(where, ':');
	size_t offset = plus ? strtoul(plus + 1, NULL, 10) : 0;

	if (!function)
		errx(2, "%s: no FILE:FUNCTION", where);
	*function++ = 0;
	if (plus)
		*plus = 0;
	opts.func_name = function;
	if (!bpf_program__attach_uprobe_opts(prog, -1, where, offset, &opts))
		err(1, "%s in %s", function, where);
}

int main(int argc, char **argv)
{
	struct bpf_object *obj;
	struct bpf_program *prog;
	char c;

	if (argc < 3)
		errx(2, "usage: empty_probe OBJECT FILE:FUNCTION[+BYTES]...");
	obj = bpf_object__open_file(argv[1], NULL);
	prog = obj ? bpf_object__find_program_by_name(obj, "empty") : NULL;
	if (!prog || bpf_object__load(obj))
		err(1, "%s", argv[1]);
	if (bpf_enable_stats(BPF_STATS_RUN_TIME) < 0)
		err(1, "BPF run-time statistics");
	for (int i = 2; i < argc; i++)
		attach(prog, argv[i]);
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
	return 0;
}
