// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The smallest program that a uprobe can have: what is left is the price of the probe. */
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("uprobe")
int empty(void *ctx)
{
	return 0;
}
