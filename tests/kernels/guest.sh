#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What run_kernels.py runs in the guest. It judges nothing: it leaves statuses and outputs in /out, and the host
# judges. In front of it the host sets
#   HOOKS      send hooks to force, one run each; "default" forces none
#   WORKLOADS  folder of files, one a workload: kclient's arguments after the port, COUNT first
#   ZOO        modes of the sender zoo to run with each of HOOKS but the default; empty if there is no zoo
#   ZOO_UNIX   those of unix sockets, to run with each of UNIX_HOOKS
#   TLS_HOOKS  the runs over TLS: the hook to force for sends, a colon, that for TLS libraries
#   TLS        folder of files, one a server: "early" or "late" (than the tracer), its program, and its arguments behind
#              the certificate
#   TLS_LOAD   kclient's arguments after the port
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

force_hook()
{
	if [ "$1" = default ]; then
		unset TOKENSNOOP_HOOK_SEND
	else
		export TOKENSNOOP_HOOK_SEND="$1"
	fi
}

# trace_run HOOK FOLDER: one traced run of every workload.
trace_run()
{
	mkdir -p "$2"
	: >"$2/tool.err"
	port=$((port + 1))
	truth_server "$port" "$2/log" >"$2/server.out" 2>&1 &
	server=$!
	force_hook "$1"
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

# start_tls early|late FOLDER: the servers of that kind, each at a port of its own. A late one is a copy of its program
# with a copy of libssl: files that the tracer has not met.
start_tls()
{
	for s in "$TLS"/*; do
		read -r when program mode <"$s"
		name=$(basename "$s")
		port=$((port + 1))
		[ "$when" = "$1" ] || continue
		mkdir -p "$2/$name"
		echo "$port" >"$2/$name/port"
		path=/bin/$program libs=/nowhere
		if [ "$when" = late ]; then
			libs=$(mktemp -d)
			find /lib /usr/lib -name 'libssl.so*' -exec cp {} "$libs" \;
			cp "/bin/$program" "$libs"
			path=$libs/$program
		fi
		LD_LIBRARY_PATH=$libs "$path" "$port" "$2/$name/log" /etc/tls.pem "$mode" >"$2/$name/server.out" 2>&1 &
		echo $! >"$2/$name/pid"
	done
}

# ask_tls FOLDER: the workload, and whether the client was still waiting when the tracer said that it is blind.
ask_tls()
{
	# shellcheck disable=SC2086 # arguments, one a word
	KCLIENT_TLS=1 kclient "$(cat "$1/port")" $TLS_LOAD >"$1/client" 2>&1 &
	client=$!
	while kill -0 "$client" 2>/dev/null; do
		if grep -q "^tokensnoop: blind .*:$(cat "$1/port"):" "$1/../tool.err"; then
			: >"$1/blind_in_time"
			break
		fi
		sleep 0.1
	done
	wait "$client"
	echo $? >"$1/client.status"
}

# tls_run HOOK TLS_HOOK FOLDER: one traced run of all servers over TLS.
tls_run()
{
	force_hook "$1"
	export TOKENSNOOP_HOOK_TLS="$2"
	shift
	mkdir -p "$2"
	: >"$2/tool.err"
	first=$port
	start_tls early "$2"
	ports=
	for i in $(seq $((first + 1)) "$port"); do ports="$ports --port $i"; done
	# shellcheck disable=SC2086 # arguments, one a word
	tokensnoop trace $ports --format jsonl --tokens -o "$2/records.jsonl" >"$2/tool.out" 2>"$2/tool.err" &
	tool=$!
	if wait_ready "$2/tool.err" "$tool"; then
		port=$first
		start_tls late "$2"
		# Emulated, a server that comes into being has answers sooner than the tracer has looked at it.
		sleep 3
		for s in "$TLS"/*; do ask_tls "$2/$(basename "$s")"; done
	fi
	kill -INT "$tool" 2>/dev/null
	wait "$tool"
	echo $? >"$2/tool.status"
	for s in "$2"/*/pid; do kill "$(cat "$s")"; done 2>/dev/null
	unset TOKENSNOOP_HOOK_SEND TOKENSNOOP_HOOK_TLS
}

uname -a >/out/uname
tokensnoop doctor >/out/doctor.out 2>/out/doctor.err
echo $? >/out/doctor.status
for hook in $HOOKS; do
	trace_run "$hook" "/out/trace.$hook"
done
if [ -n "$TLS_HOOKS" ]; then
	depmod
	modprobe tls
	for hook in $TLS_HOOKS; do
		tls_run "${hook%:*}" "${hook#*:}" "/out/tls.${hook%:*}"
	done
fi
if [ -n "$ZOO" ]; then
	for hook in ${HOOKS#default}; do
		# shellcheck disable=SC2086 # modes, one a word
		TOKENSNOOP_HOOK_SEND="$hook" zoo $ZOO >"/out/zoo.send.$hook.out" 2>&1
	done
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
