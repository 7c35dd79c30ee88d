/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where in a function a probe costs least. The kernel executes a few instructions by itself; any
 * other it has the processor step over, which is a second trap, and in a virtual machine one that
 * costs ten times the first.
 */
#ifndef TKS_SPOT_H
#define TKS_SPOT_H

#include <stdbool.h>
#include <stdint.h>

struct tks_spot {
	uint64_t offset; /* of the file */
	uint32_t below; /* bytes that the stack pointer is lower there than at the function's entry
			 */
};

/*
 * The first instruction from the function's entry (an offset of the file) on that the kernel
 * executes by itself, if every call passes it once, and there the first three arguments of C are
 * where they were; else the entry. calls: calls may be taken (see tks_spot_calls_ok).
 */
struct tks_spot tks_spot_find(int fd, uint64_t entry, bool calls);

/* No process of this machine can have a shadow stack, on which the kernel may leave out a call that
 * it executes: at the return from it the process would die. */
bool tks_spot_calls_ok(void);

#endif
