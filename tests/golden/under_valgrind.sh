#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# The tool under valgrind, for run_golden.py: a finding or a leak is exit status 9, which fails the case.
exec valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite \
	"$(dirname "$0")/../../build/tokensnoop" "$@"
