/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Giving up what a command needs no longer: bytes from the network and from other processes are
 * read with as little in hand as can be.
 */
#ifndef TKS_CONFINE_H
#define TKS_CONFINE_H

#include <stdint.h>

/*
 * No core dumps: they would hold what others say to their servers. By a limit of one byte: it is
 * too small for a file, and the kernel takes it, and not 0, to turn down a core_pattern that is a
 * pipe, too (core(5)).
 */
void tks_no_core_dumps(void);

/*
 * Of a trace that has been set up: keeps those of its capabilities that are in keep (a bit each, as
 * in linux/capability.h), gives up all others and the ways to get them back, closes itself to
 * debuggers and dumps, and installs a system
 * call filter which ends the process if it asks for anything but reading, probing, and writing to
 * what is open. 0, or a negative errno with what did not work in *what (static).
 */
int tks_confine_trace(uint64_t keep, const char **what);

/* Gives up the capabilities that the program's file lends to whoever runs it (getauxval(3):
 * AT_SECURE), of a command that reads what its caller may read and no more. 0, or a negative errno.
 */
int tks_drop_lent_caps(void);

#endif
