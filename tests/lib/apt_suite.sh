# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# shellcheck shell=sh
#
# To be sourced: packages of another suite of Debian than the host's. The caller has die().
#
# TKS_DEBIAN_MIRROR=URI mirror, if the host's apt sources name none for Debian's main archive
#
# apt runs with lists and caches of its own: the host's apt state isn't touched, nothing gets installed.

keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# apt_suite SUITE WORK: makes WORK/apt.conf, for apt-get -c, and fetches the suite's lists.
apt_suite()
{
	for tool in apt-get apt-cache dpkg; do
		command -v "$tool" >/dev/null || die "$tool not found: this needs a Debian host"
	done
	[ -r "$keyring" ] || die "$keyring not found: apt-get install debian-archive-keyring"

	# The host's own mirror of Debian's main archive; security and third-party archives don't have
	# all the suites.
	mirror=${TKS_DEBIAN_MIRROR:-}
	if [ -z "$mirror" ]; then
		# shellcheck disable=SC2016 # apt's own placeholders
		mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
			grep -E '/debian/?$' | head -n 1)
	fi
	[ -n "$mirror" ] || die "apt's sources name no Debian mirror: set TKS_DEBIAN_MIRROR"

	mkdir -p "$2/lists/partial" "$2/cache/archives/partial"
	echo "deb [arch=${apt_arch:-amd64} signed-by=$keyring] $mirror $1 main" >"$2/sources.list"
	# Hooks that the host runs after an update are none of this script's business.
	cat >"$2/apt.conf" <<-CONF
		#clear APT::Update;
		#clear DPkg::Post-Invoke;
		#clear DPkg::Pre-Install-Pkgs;
		Dir::Etc::sourcelist "$2/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
		Dir::State::lists "$2/lists";
		Dir::State::status "$2/status";
		Dir::Cache "$2/cache";
		APT::Architecture "${apt_arch:-amd64}";
		APT::Sandbox::User "root";
		Acquire::Languages "none";
		Acquire::Retries "3";
	CONF
	: >"$2/status"
	apt-get -qq -c "$2/apt.conf" update >&2 || die "apt-get update of $1 failed"
}

# apt_unpack WORK FOLDER PACKAGE...: what the packages hold, into FOLDER.
apt_unpack()
{
	from=$1 into=$2
	shift 2
	(cd "$from" && apt-get -qq -c "$from/apt.conf" download "$@" >&2) || die "cannot download $*"
	for deb in "$from"/*.deb; do dpkg -x "$deb" "$into"; done
}
