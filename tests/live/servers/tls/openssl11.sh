#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Gets OpenSSL 1.1 out of Debian 11 (its libraries and headers) and prints the folder that it lies in.
#
# TKS_CACHE=DIR         cache folder (default: build/cache of this source tree)
# TKS_DEBIAN_MIRROR=URI as in ../../../lib/apt_suite.sh
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${TKS_CACHE:-$here/../../../../build/cache}

die()
{
	echo "openssl11.sh: $*" >&2
	exit 1
}

# shellcheck source=tests/lib/apt_suite.sh
. "$here/../../../lib/apt_suite.sh"

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
exec 9>"$cache/.openssl11.lock"
flock 9
if [ ! -d "$cache/openssl11" ]; then
	work=$(mktemp -d "$cache/.fetch.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' INT TERM
	mkdir "$work/root"
	apt_suite bullseye "$work"
	apt_unpack "$work" "$work/root" libssl1.1 libssl-dev
	mv "$work/root" "$cache/openssl11"
fi
echo "$cache/openssl11"
