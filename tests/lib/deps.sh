#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Install the Debian packages that building (deps.sh build), packaging (deps.sh package) or testing (deps.sh test)
# need. Only what is missing is installed, so a second run returns at once.
set -eu

# node-llhttp carries llhttp's C sources.
build="gcc make clang llvm libbpf-dev bpftool libelf-dev libdw-dev liblzma-dev libcapstone-dev node-llhttp libnghttp2-dev
	zlib1g-dev libbrotli-dev libzstd-dev libpcap-dev libcap-dev libseccomp-dev pkg-config python3 curl iproute2"
package="debhelper dpkg-dev"
tests="libcmocka-dev qemu-system-x86 debootstrap debian-archive-keyring tshark python3-uvicorn
	python3-uvloop python3-httptools python3-fastapi python3-h11 busybox-static cpio jq valgrind
	clang-format shellcheck strace git util-linux xz-utils libjansson-dev nghttp2 brotli zstd nginx-light
	python3-hypercorn python3-h2 python3-hpack python3-hyperframe python3-websockets python3-grpcio openssl libssl-dev
	libgnutls28-dev libnss3-dev libnss3-tools android-libboringssl-dev golang-go caddy haproxy apache2-bin
	libcap2-bin clang-tidy clang-tools cppcheck lcov
	lintian mandoc bash-completion file gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-system-arm"

die()
{
	echo "deps.sh: $*" >&2
	exit 1
}

# The sanitizers' and libFuzzer's libraries have the version of clang in their name.
clang_rt()
{
	version=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9][0-9]*\)$/\1/p')
	[ -n "$version" ] || version=14
	echo "libclang-rt-$version-dev"
}

# Prints those of the packages that are not installed, one a line.
missing()
{
	have=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
		sed -n 's/^installed //p')
	for package in "$@"; do
		case "
$have
" in
		*"
$package
"*) ;;
		*) echo "$package" ;;
		esac
	done
}

as_root()
{
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo -E "$@"
	fi
}

# A mirror may be slow or in the middle of an update: every step is tried twice.
apt()
{
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" ||
		as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"
}

# Which packages are needed, one a line. Node and npm often come from elsewhere than Debian.
wanted()
{
	# shellcheck disable=SC2086 # lists
	printf '%s\n' $build
	# shellcheck disable=SC2086
	[ "$1" = build ] || printf '%s\n' $package
	[ "$1" = test ] || return 0
	# shellcheck disable=SC2086
	printf '%s\n' $tests
	clang_rt
	command -v node >/dev/null || echo nodejs
	command -v npm >/dev/null || echo npm
}

case "${1:-}" in
build | package | test) what=$1 ;;
*) die "usage: deps.sh build|package|test" ;;
esac
command -v apt-get >/dev/null || die "apt-get not found: this needs Debian (12 or newer) or a kin of it"

# shellcheck disable=SC2046 # lists
packages=$(missing $(wanted "$what"))
[ -n "$packages" ] || exit 0
if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
	# shellcheck disable=SC2086
	die "missing packages, and neither root nor sudo to install them: "$packages
fi
# shellcheck disable=SC2086
echo "deps.sh: installing" $packages >&2
apt update
# On a machine without lists the first look could not know clang's version.
# shellcheck disable=SC2046
packages=$(missing $(wanted "$what"))
# shellcheck disable=SC2086
apt install -y --no-install-recommends $packages >/dev/null
# shellcheck disable=SC2046
left=$(missing $(wanted "$what"))
# shellcheck disable=SC2086
[ -z "$left" ] || die "still missing: "$left
