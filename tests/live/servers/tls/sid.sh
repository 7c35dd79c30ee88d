#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Debian sid's programs, in the folder that ../llama.sh makes.
#
#   sid.sh install                     install golang-go and caddy there (once; later calls return at once)
#   sid.sh go OUTPUT MAIN.go [FLAG]    build a Go program with sid's go
#   sid.sh run FOLDERS COMMAND...      run a command there, as this process; it sees FOLDERS (separated by colons) too
#
# TKS_CACHE=DIR    cache folder, as for llama.sh
# TKS_UNSHARE=...  further namespaces of `run`: options of unshare
#
# The folders are bound in a mount namespace of the command's own, so that removing sid's folder can never reach them.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${TKS_CACHE:-$here/../../../../build/cache}
packages="golang-go caddy"

die()
{
	echo "sid.sh: $*" >&2
	exit 1
}

sh "$here/../llama.sh" fetch >&2
cache=$(cd "$cache" && pwd)
root=$cache/sid
stamp=$root/.tokensnoop-tls-complete

# Runs a command in the folder, which sees the folders of the first argument; takes the place of this shell.
inside()
{
	# shellcheck disable=SC2016,SC2086 # expanded by the inner shell; options
	exec unshare -m --propagation private ${TKS_UNSHARE:-} sh -c '
		root=$1 IFS=:
		for folder in $2; do
			mkdir -p "$root$folder" && mount --bind "$folder" "$root$folder" || exit 1
		done
		unset IFS
		shift 2
		mount -t proc proc "$root/proc" || exit 1
		ip link set lo up
		exec chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
			DEBIAN_FRONTEND=noninteractive GO111MODULE=off GOTOOLCHAIN=local CGO_ENABLED=0 \
			GOCACHE=/var/cache/go "$@"
	' sh "$root" "$@"
}

install_packages()
{
	# shellcheck disable=SC2086 # a list
	(inside "" apt-get -qq -o Acquire::Check-Valid-Until=false update) &&
		(inside "" apt-get -qq -o Acquire::Check-Valid-Until=false install -y --no-install-recommends $packages)
}

install()
{
	exec 9>"$cache/.sid.lock"
	flock 9
	if [ ! -f "$stamp" ]; then
		echo "sid.sh: installing $packages (some minutes)" >&2
		# An interrupted download is worth a second try.
		install_packages >>"$cache/sid.log" 2>&1 || install_packages >>"$cache/sid.log" 2>&1 || {
			tail -n 20 "$cache/sid.log" >&2
			die "apt-get failed in $root"
		}
		rm -rf "$root"/var/cache/apt/archives/*.deb
		touch "$stamp"
	fi
	flock -u 9
	exec 9>&-
}

case "${1:-}" in
install) install ;;
go)
	[ $# -ge 3 ] || die "usage: sid.sh go OUTPUT MAIN.go [FLAG]"
	install
	cp "$3" "$root/srv/main.go"
	(inside "" go build ${4:+"$4"} -o /srv/go_server /srv/main.go)
	cp "$root/srv/go_server" "$2"
	;;
run)
	[ $# -ge 3 ] || die "usage: sid.sh run FOLDERS COMMAND..."
	shift
	inside "$@"
	;;
*) die "usage: sid.sh install | go OUTPUT MAIN.go [FLAG] | run FOLDERS COMMAND..." ;;
esac
