/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The commands. Each takes argv with argv[0] the command's name (its value is not looked at) and
 * returns an exit status, enum tks_exit. SIGPIPE is ignored: a reader that has gone shows as -EPIPE
 * and ends a command quietly with status 0, since whoever closed the pipe had what they wanted;
 * every other failed write is TKS_EXIT_FAILED.
 */
#ifndef TKS_CMD_H
#define TKS_CMD_H

int tks_cmd_trace(int argc, char **argv);
int tks_cmd_report(int argc, char **argv);
int tks_cmd_doctor(int argc, char **argv);

#endif
