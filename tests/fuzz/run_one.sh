#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# run_one.sh FUZZER SECONDS: replays the fuzzer's corpus, then fuzzes from it for so long, as one TAP test each.
set -u
fuzzer=$1
seconds=$2
name=$(basename "$fuzzer")
corpus=$(dirname "$0")/corpus/${name#fuzz_}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Without a corpus there is nothing to replay, and that is a fault.
set -- "$corpus"/*
[ -e "$1" ] || { echo "not ok 1 - $name.corpus is empty"; exit 1; }
status=0
if "$fuzzer" -runs=0 -rss_limit_mb=1024 "$corpus" >"$work/log" 2>&1; then
	echo "ok 1 - $name.corpus ($# inputs)"
else
	tail -n 40 "$work/log"
	echo "not ok 1 - $name.corpus"
	status=1
fi
mkdir "$work/new"
if "$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -artifact_prefix="$work/" \
	"$work/new" "$corpus" >"$work/log" 2>&1; then
	runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$work/log")
	echo "ok 2 - $name.fuzz ($runs runs in $seconds s)"
else
	tail -n 60 "$work/log"
	for crash in "$work"/crash-* "$work"/timeout-* "$work"/oom-* "$work"/leak-*; do
		[ -e "$crash" ] && { echo "# input, base64:"; base64 "$crash" | head -n 40; }
	done
	echo "not ok 2 - $name.fuzz"
	status=1
fi
echo "1..2"
exit $status
