#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Get one of Debian's stock cloud kernels and print the folder it lies in.
#
#   fetch.sh LABEL        LABEL is 5.10, 6.1, 6.12, 7.x (newest of sid) or 6.12-arm64
#   fetch.sh --list       print the labels
#   TKS_REFRESH=1         fetch again although the cache has one
#   TKS_CACHE=DIR         cache folder (default: build/cache of this source tree)
#   TKS_DEBIAN_MIRROR=URI mirror, if the host's apt sources name none for Debian's main archive
#
# The folder then holds `vmlinuz`, `config`, `package` ("NAME VERSION") and `modules`: kernel TLS and the ciphers that
# it uses, as they lie below /, unpacked. The label picks a suite and a
# pattern for package names; the newest match is taken, so a point release needs no change here. apt
# runs with lists and caches of its own: the host's apt state isn't touched, nothing gets installed,
# and signatures are verified as usual.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${TKS_CACHE:-$here/../../build/cache}/kernels

die()
{
	echo "fetch.sh: $*" >&2
	exit 1
}

# shellcheck source=tests/lib/apt_suite.sh
. "$here/../lib/apt_suite.sh"

# Newer packages call the kernel image "linux-binary"; "unsigned" is the same code without the
# secure-boot signature, which qemu doesn't look at.
case "${1:-}" in
--list)
	printf '%s\n' 5.10 6.1 6.12 7.x 6.12-arm64
	exit 0
	;;
5.10) suite=bullseye version='5\.10\.' ;;
6.1) suite=bookworm version='6\.1\.' ;;
6.12) suite=trixie version='6\.12\.' ;;
7.x) suite=sid version='[0-9]+\.[0-9]+' ;;
6.12-arm64) suite=trixie version='6\.12\.' apt_arch=arm64 ;;
*) die "usage: fetch.sh 5.10|6.1|6.12|7.x|6.12-arm64|--list" ;;
esac
label=$1
arch=${apt_arch:-amd64}
pattern="^linux-(image-${version}[^ ]*-cloud-$arch-unsigned|binary-unsigned-${version}[^ ]*-cloud-$arch)\$"

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
exec 9>"$cache/.lock"
flock 9
if [ -z "${TKS_REFRESH:-}" ] && [ -s "$cache/$label/vmlinuz" ] &&
	[ -d "$cache/$label/modules" ]; then
	echo "$cache/$label"
	exit 0
fi

command -v unxz >/dev/null || die "unxz not found: this needs a Debian host"
work=$(mktemp -d "$cache/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
mkdir "$work/root"
apt_suite "$suite" "$work"
package=$(apt-cache -c "$work/apt.conf" pkgnames linux- | grep -E "$pattern" | sort -V | tail -n 1)
[ -n "$package" ] || die "$suite has no package that matches $pattern"
# "linux-binary" has its modules in a package beside it.
version=${package#linux-binary-unsigned-}
modules=
if [ "$version" != "$package" ]; then modules=linux-modules-$version; fi
# shellcheck disable=SC2086 # it may be none
apt_unpack "$work" "$work/root" "$package" $modules
# shellcheck disable=SC2016 # dpkg's own placeholders
dpkg-deb -W --showformat='${Package} ${Version}\n' "$work/$package"_*.deb >"$work/package"

image=$(find "$work/root" -name 'vmlinuz*' -type f | head -n 1)
[ -n "$image" ] || die "no vmlinuz in $package"
config=$(find "$work/root" -name 'config-*' -type f | head -n 1)
mkdir "$work/new"
cp "$image" "$work/new/vmlinuz"
if [ -n "$config" ]; then cp "$config" "$work/new/config"; fi
mv "$work/package" "$work/new/package"
modules=$(find "$work/root" -path '*/lib/modules/*' -name kernel -type d | head -n 1)
[ -n "$modules" ] || die "no modules in $package"
for part in net/tls crypto lib/crypto arch/x86/crypto arch/x86/lib/crypto; do
	if [ -d "$modules/$part" ]; then
		into=$work/new/modules/lib/modules/$(basename "$(dirname "$modules")")/kernel/$part
		mkdir -p "$into"
		find "$modules/$part" -name '*.ko*' -exec cp -t "$into" {} +
	fi
done
find "$work/new/modules" -name '*.ko.xz' -exec unxz {} +
rm -rf "${cache:?}/$label"
mv "$work/new" "$cache/$label"
echo "$cache/$label"
