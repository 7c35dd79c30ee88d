// SPDX-License-Identifier: GPL-2.0-only
/*
 * The one BPF object: maps and switches here, one included file a capture point. It only captures:
 * it decides whose bytes are wanted, stamps and copies them, and counts what it could not. All
 * sense is made of them in userspace.
 *
 * Every program is optional ("?"): userspace turns on one variant of each capture point, the best
 * that this kernel loads and attaches.
 */
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#include "tokensnoop/record.h"
#include "config.bpf.h"
#include "compat.bpf.h"
#include "conn.bpf.h"
#include "emit.bpf.h"
#include "iov.bpf.h"
#include "regs.bpf.h"
#include "tls.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#include "send.bpf.c"
#include "unix.bpf.c"
#include "mptcp.bpf.c"
#include "recv.bpf.c"
#include "state.bpf.c"
#include "tls.bpf.c"
#include "go.bpf.c"
#include "code.bpf.c"
