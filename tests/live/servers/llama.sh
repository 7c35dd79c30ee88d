#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# llama.cpp's server out of Debian sid, in a folder, with a tiny model of random weights.
#
#   llama.sh fetch              make the folder and the model (once; later calls return at once)
#   llama.sh run PORT [LOG]     serve until killed; prints "ready" once /health answers
#
# TKS_CACHE=DIR         cache folder (default: build/cache of this source tree)
# TKS_DEBIAN_MIRROR=URI mirror instead of debootstrap's own default
# LLAMA_ARGS            further arguments of llama-server
# LLAMA_SOCKET=PATH     serve on this unix socket within the folder, not on PORT; must end in .sock
#
# Nothing is bind-mounted into the folder, so that removing it can never reach the host: the few
# devices it needs are nodes of its own, and a /proc lives only in the mount namespace of the process
# that serves (unshare -m), which takes it along when it ends.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${TKS_CACHE:-$here/../../../build/cache}
packages="llama.cpp-tools python3-gguf"
slots=4

die()
{
	echo "llama.sh: $*" >&2
	exit 1
}

[ "$(id -u)" = 0 ] || die "needs root (debootstrap, chroot)"
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
root=$cache/sid
stamp=$root/.tokensnoop-complete
model=/srv/tiny.gguf

# Runs a command in the folder, in a mount namespace of its own. With replace=exec it takes the place
# of this shell, so that who knows the shell's process id can end the command.
replace=
inside()
{
	# shellcheck disable=SC2016 # expanded by the inner shell
	$replace unshare -m --propagation private sh -c '
		root=$1
		shift
		mount -t proc proc "$root/proc" || exit 1
		exec chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 \
			PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
	' sh "$root" "$@"
}

remove_root()
{
	if grep -qs " $root/" /proc/self/mounts; then
		die "something is mounted below $root: unmount it first"
	fi
	rm -rf --one-file-system "$root"
}

# A device node of the folder's own, where debootstrap made none.
node()
{
	[ -c "$root/dev/$1" ] || {
		rm -f "$root/dev/$1"
		mknod -m 666 "$root/dev/$1" c "$2" "$3"
	}
}

# Sid's Release files expire after a week; a mirror that lags behind still serves for a test.
# Signatures are verified all the same.
install_packages()
{
	# shellcheck disable=SC2086 # a list
	inside apt-get -qq -o Acquire::Check-Valid-Until=false update &&
		inside apt-get -qq -o Acquire::Check-Valid-Until=false install -y --no-install-recommends $packages
}

bootstrap()
{
	command -v debootstrap >/dev/null || die "debootstrap is not installed: tests/lib/deps.sh test"
	remove_root
	# shellcheck disable=SC2086 # no argument if there is no mirror
	debootstrap --variant=minbase sid "$root" ${TKS_DEBIAN_MIRROR:-} >"$cache/sid.log" 2>&1 || {
		tail -n 20 "$cache/sid.log" >&2
		die "debootstrap failed"
	}
	node null 1 3
	node zero 1 5
	node random 1 8
	node urandom 1 9
	# An interrupted download is worth a second try.
	install_packages >>"$cache/sid.log" 2>&1 || install_packages >>"$cache/sid.log" 2>&1 || {
		tail -n 20 "$cache/sid.log" >&2
		die "apt-get failed in $root"
	}
	rm -rf "$root"/var/cache/apt/archives/*.deb
}

fetch()
{
	exec 9>"$cache/.sid.lock"
	flock 9
	if [ ! -f "$stamp" ]; then
		echo "llama.sh: making $root (some minutes)" >&2
		bootstrap
		touch "$stamp"
	fi
	if [ ! -s "$root$model" ] || ! cmp -s "$here/make_gguf.py" "$root/srv/make_gguf.py"; then
		cp "$here/make_gguf.py" "$root/srv/make_gguf.py"
		inside python3 /srv/make_gguf.py "$model.part" >&2
		mv "$root$model.part" "$root$model"
	fi
	flock -u 9
	exec 9>&-
}

run()
{
	port=$1
	log=${2:-/dev/null}
	# shellcheck disable=SC2086 # a list
	(replace="exec" && inside llama-server -m "$model" --host "${LLAMA_SOCKET:-127.0.0.1}" --port "$port" --parallel "$slots" -c 4096 \
		--threads 1 --threads-batch 1 --no-warmup ${LLAMA_ARGS:-} >"$log" 2>&1) &
	server=$!
	trap 'kill "$server" 2>/dev/null || :; wait "$server" || :; exit 0' INT TERM HUP
	trap 'kill "$server" 2>/dev/null || :' EXIT
	tries=600
	until curl -sf -o /dev/null ${LLAMA_SOCKET:+--unix-socket "$root$LLAMA_SOCKET"} "http://127.0.0.1:$port/health"; do
		kill -0 "$server" 2>/dev/null || {
			tail -n 20 "$log" >&2
			die "llama-server ended before it was ready"
		}
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || die "llama-server is not ready after a minute"
		sleep 0.1
	done
	echo ready
	wait "$server"
}

case "${1:-}" in
fetch) fetch ;;
run)
	[ $# -ge 2 ] || die "usage: llama.sh run PORT [LOG]"
	fetch
	run "$2" "${3:-}"
	;;
*) die "usage: llama.sh fetch | run PORT [LOG]" ;;
esac
