#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Make vmlinux/ARCH/vmlinux.h from the BTF of one of Debian's stock cloud kernels (default: trixie's 6.12).
#
#   make-vmlinux-h.sh [LABEL] [OUTPUT]     6.12-arm64 makes that of aarch64
#
# Types that changed before or since don't belong in here but in bpf/compat.bpf.h, as CO-RE flavours; so this
# file need not be made anew for each kernel. The kernel is unpacked here, as scripts/extract-vmlinux
# of the kernel's sources does: find a compressor's magic number, decompress from there, look
# whether an ELF file with BTF came out. arm64's image is not compressed and no ELF file: BTF is looked for in it.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
label=${1:-6.12}
case $label in
*-arm64) arch=aarch64 ;;
*) arch=x86_64 ;;
esac
output=${2:-$here/$arch/vmlinux.h}

die()
{
	echo "make-vmlinux-h.sh: $*" >&2
	exit 1
}

for tool in bpftool readelf strings grep; do
	command -v "$tool" >/dev/null || die "$tool not found"
done

folder=$("$here/../tests/kernels/fetch.sh" "$label")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# try MAGIC COMMAND...: MAGIC as a Perl pattern of bytes.
try()
{
	magic=$1
	shift
	command -v "$1" >/dev/null || return 1
	LC_ALL=C grep -aboP "$magic" "$folder/vmlinuz" | cut -d: -f1 >"$work/offsets"
	while read -r at; do
		# What follows the compressed kernel is an error to the decompressor: look at
		# what came out instead.
		tail -c "+$((at + 1))" "$folder/vmlinuz" | "$@" >"$work/vmlinux" 2>/dev/null || true
		if readelf -SW "$work/vmlinux" 2>/dev/null | grep -q ' \.BTF '; then
			return 0
		fi
	done <"$work/offsets"
	return 1
}

# BTF begins with its magic number, version 1, no flags, and the length of its header.
raw()
{
	[ "$arch" = aarch64 ] || return 1
	LC_ALL=C grep -aboP '\x9f\xeb\x01\x00\x18\x00\x00\x00' "$folder/vmlinuz" | cut -d: -f1 >"$work/offsets"
	cp "$folder/vmlinuz" "$work/image"
	while read -r at; do
		tail -c "+$((at + 1))" "$work/image" >"$work/vmlinux"
		if bpftool btf dump file "$work/vmlinux" format raw 2>/dev/null | grep -q "STRUCT 'tcp_sock'"; then
			release=$(strings -n 8 "$work/image" | sed -n 's/^Linux version \([^ ]*\) .*/\1/p' | head -n 1)
			return 0
		fi
	done <"$work/offsets"
	return 1
}

release=
raw ||
	try '\x28\xb5\x2f\xfd' zstd -dcq ||
	try '\x1f\x8b\x08' gzip -dcq ||
	try '\xfd7zXZ\x00' xz -dcq ||
	try '\x02!L\x18' lz4 -dcq ||
	die "no kernel with BTF found in $folder/vmlinuz"

[ -n "$release" ] || release=$(strings -n 8 "$work/vmlinux" | sed -n 's/^Linux version \([^ ]*\) .*/\1/p' | head -n 1)
read -r package version <"$folder/package"
mkdir -p "$(dirname "$output")"
{
	echo '/* SPDX-License-Identifier: GPL-2.0-only */'
	echo '/*'
	echo " * The kernel's types, for CO-RE. Made by vmlinux/make-vmlinux-h.sh; don't edit."
	echo " * Kernel:  Linux ${release:-$label} $arch"
	echo " * Package: $package $version (Debian)"
	echo ' */'
	bpftool btf dump file "$work/vmlinux" format c
} >"$output.tmp" || die "bpftool failed"
grep -q '^struct tcp_sock {' "$output.tmp" || die "the dump has no struct tcp_sock"
mv "$output.tmp" "$output"
echo "$output: $package $version"
