#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Headers and archives of the libraries for aarch64, and a busybox for it, out of Debian 12; prints their folder.
#
#   TKS_CACHE=DIR         cache folder (default: build/cache of this source tree)
#   TKS_DEBIAN_MIRROR=URI as in ../lib/apt_suite.sh
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${TKS_CACHE:-$here/../../build/cache}"
cache=$(cd "${TKS_CACHE:-$here/../../build/cache}" && pwd)
packages="libbpf-dev libelf-dev liblzma-dev libcapstone-dev libnghttp2-dev zlib1g-dev libbrotli-dev libzstd-dev libpcap-dev
	libcap-dev libseccomp-dev libssl-dev busybox-static"

die()
{
	echo "sysroot.sh: $*" >&2
	exit 1
}

# shellcheck disable=SC2034 # apt_suite.sh's
apt_arch=arm64
# shellcheck source=tests/lib/apt_suite.sh
. "$here/../lib/apt_suite.sh"

exec 9>"$cache/.arm64.lock"
flock 9
if [ ! -e "$cache/arm64/.complete" ]; then
	work=$(mktemp -d "$cache/.arm64.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' INT TERM
	mkdir "$work/root"
	apt_suite bookworm "$work"
	# shellcheck disable=SC2086 # a list
	apt_unpack "$work" "$work/root" $packages
	touch "$work/root/.complete"
	rm -rf "$cache/arm64"
	mv "$work/root" "$cache/arm64"
fi
echo "$cache/arm64"
