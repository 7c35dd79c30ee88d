#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# The sender zoo by the hook of last resort, which needs tracefs.
set -eu
[ -e /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing
TOKENSNOOP_HOOK_SEND=syscall exec "$(dirname "$0")/../../build/tests/zoo"
