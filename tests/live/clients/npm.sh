#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Install what package.json names into the cache, once, and print the folder.
#
# TKS_CACHE=DIR   cache folder (default: build/cache of this source tree)
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${TKS_CACHE:-$here/../../../build/cache}/npm
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
exec 9>"$cache/.lock"
flock 9
if [ ! -f "$cache/.complete" ] || ! cmp -s "$here/package.json" "$cache/package.json"; then
	rm -f "$cache/.complete"
	cp "$here/package.json" "$cache/package.json"
	install="npm install --prefix $cache --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error"
	# An interrupted download is worth a second try.
	$install >&2 || $install >&2
	touch "$cache/.complete"
fi
echo "$cache"
