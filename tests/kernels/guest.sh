#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What run_kernels.py runs in the guest. It judges nothing: it leaves statuses and outputs in /out, and the host
# judges. In front of it the host sets
#   HOOKS      send hooks to force, one run each; "default" forces none
#   WORKLOADS  folder of files, one a workload: kclient's arguments after the port, COUNT first
#   ZOO        modes of the sender zoo to run with the default hook; empty if there is no zoo
#   ZOO_UNIX   those of unix sockets, to run with each of UNIX_HOOKS
port=8100

# wait_ready ERR PID: until the tracer says that it is attached; fails if it ends instead.
wait_ready()
{
	tries=600
	until grep -q '^tokensnoop: ready' "$1"; do
		kill -0 "$2" 2>/dev/null || return 1
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || return 1
		sleep 0.1
	done
}

# trace_run HOOK FOLDER: one traced run of every workload.
trace_run()
{
	mkdir -p "$2"
	: >"$2/tool.err"
	port=$((port + 1))
	truth_server "$port" "$2/log" >"$2/server.out" 2>&1 &
	server=$!
	if [ "$1" = default ]; then
		unset TOKENSNOOP_HOOK_SEND
	else
		export TOKENSNOOP_HOOK_SEND="$1"
	fi
	tokensnoop trace --port "$port" --format jsonl --tokens -o "$2/records.jsonl" \
		>"$2/tool.out" 2>"$2/tool.err" &
	tool=$!
	if wait_ready "$2/tool.err" "$tool"; then
		for w in "$WORKLOADS"/*; do
			# shellcheck disable=SC2046 # arguments, one a word
			kclient "$port" $(cat "$w") >"$2/client.$(basename "$w")" 2>&1
			echo $? >"$2/client.$(basename "$w").status"
		done
	fi
	kill -INT "$tool" 2>/dev/null
	wait "$tool"
	echo $? >"$2/tool.status"
	kill "$server" 2>/dev/null
	wait "$server"
	unset TOKENSNOOP_HOOK_SEND
}

uname -a >/out/uname
tokensnoop doctor >/out/doctor.out 2>/out/doctor.err
echo $? >/out/doctor.status
for hook in $HOOKS; do
	trace_run "$hook" "/out/trace.$hook"
done
if [ -n "$ZOO" ]; then
	# shellcheck disable=SC2086 # modes, one a word
	zoo $ZOO >/out/zoo.out 2>&1
	for hook in $UNIX_HOOKS; do
		# shellcheck disable=SC2086 # modes, one a word
		TOKENSNOOP_HOOK_UNIX="$hook" zoo $ZOO_UNIX >"/out/zoo.$hook.out" 2>&1
	done
fi
# Nothing may stay behind in the kernel; it frees programs a moment after their last user has gone.
tries=50
while bpftool prog list >/out/left 2>&1 && bpftool map list >>/out/left 2>&1 && [ -s /out/left ] &&
	[ "$tries" -gt 0 ]; do
	tries=$((tries - 1))
	sleep 0.1
done
