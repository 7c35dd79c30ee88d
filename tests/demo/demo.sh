#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The main job on a built-in example: a small streaming server (OpenAI chat frames), clients at 1, 4 and
# 16 at once, and the tracer beside them. Needs root; build/ must be made (make demo does both).
set -eu
cd "$(dirname "$0")/../.."

if [ "$(id -u)" != 0 ]; then
	echo "demo: tracing needs root: run sudo make demo" >&2
	exit 3
fi
work=$(mktemp -d)
server='' tracer=''
cleanup() {
	for pid in $tracer $server; do
		kill "$pid" 2>/dev/null || true
	done
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

# A free port, from the kernel's own choice.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

build/tests/truth_server "$port" "$work/truth.log" >"$work/server.out" &
server=$!
build/tokensnoop trace --port "$port" --slo ttft=100ms,tpot=30ms 2>"$work/trace.err" >"$work/report" &
tracer=$!
until grep -q '^tokensnoop: ready' "$work/trace.err"; do
	kill -0 "$tracer" 2>/dev/null || { cat "$work/trace.err" >&2; exit 1; }
	sleep 0.1
done
cat "$work/trace.err"

for concurrency in 1 4 16; do
	echo "demo: 32 requests, $concurrency at once"
	python3 tests/demo/clients.py "$port" 32 "$concurrency"
done
kill -INT "$tracer"
wait "$tracer"
tracer=''
cat "$work/report"
