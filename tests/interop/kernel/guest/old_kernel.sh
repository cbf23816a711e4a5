#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs tests of the memory layer on Debian 12's own kernel, Linux 6.1, in an emulated machine (QEMU, TCG). Before 6.17 the kernel does
# not check the owner of a userfaultfd registration that it removes, and before 6.7 it has no WP_ASYNC and no PAGEMAP_SCAN.
#   old_kernel.sh INIT BUILD_DIRECTORY
# If QEMU or the kernel's package cannot be had, the script prints a line and exits with status 77.
set -euo pipefail
# shellcheck source=tests/interop/kernel/guest/tests_in_guest.sh
. "$(dirname "$0")/tests_in_guest.sh"

init=$1
build=$2
cache=${FAULTLINE_PEER_CACHE:-${XDG_CACHE_HOME:-$([ "$(id -u)" = 0 ] && echo /var/cache || echo "$HOME/.cache")}/faultline-peer}/linux-6.1
suite=bookworm
# The kernel for virtual machines: a third of the other one's size, the same source.
package=linux-image-cloud-amd64
# Programs of BUILD_DIRECTORY and their arguments, one a line. A filter leaves out those that need much time or the calls of Linux 6.7.
tests=(
  'tests/unit/odp/odp_watch_test --gtest_filter=OwnUserfault.*:ManySmallRegions.LeaveNothingWatched'
  'tests/unit/odp/odp_watch_hooked_test --gtest_filter=-ManySmallRegions.TakeFewMappings'
  'tests/unit/odp/odp_program_call_test --gtest_filter=*AFailedCall*'
)

private_apt() {
  local program=$1
  shift
  "$program" -q -q -o Dir::Etc::SourceList="$cache/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null -o Dir::State="$cache/apt/state" \
    -o Dir::State::Lists="$cache/apt/state/lists" -o Dir::State::Status="$cache/apt/state/status" \
    -o Dir::Cache="$cache/apt/cache" -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Sandbox::User=root "$@"
}

fetch_kernel() {
  local site keyring=/usr/share/keyrings/debian-archive-keyring.gpg real work
  mkdir -p "$cache/apt/state/lists/partial" "$cache/apt/cache/archives/partial"
  : >"$cache/apt/state/status"
  # shellcheck disable=SC2016 # for apt to expand
  site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Label: Debian' | sort -u | sed -n 1p)
  [ -n "$site" ] || cannot "apt knows no Debian archive here"
  [ -r $keyring ] || cannot "debian-archive-keyring is not installed"
  printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$site" "$suite" >"$cache/apt/sources.list"
  private_apt apt-get update >&2 || cannot "the mirror does not offer $suite"
  real=$(private_apt apt-cache show $package | sed -n 's/^Depends:.*\(linux-image-6[.]1[^ ,]*\).*/\1/p' | sort -V | tail -n 1)
  [ -n "$real" ] || cannot "$suite has no $package"
  work=$(mktemp -d "$cache/unpack.XXXXXX")
  (cd "$work" && private_apt apt-get download "$real" >/dev/null) || cannot "could not download $real"
  dpkg-deb -x "$work"/*.deb "$work/tree"
  cp "$work"/tree/boot/vmlinuz-* "$cache/vmlinuz.new"
  rm -rf "$work"
  mv "$cache/vmlinuz.new" "$cache/vmlinuz"
}

need_tools apt-get apt-cache dpkg-deb flock
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
[ -e "$cache/vmlinuz" ] || fetch_kernel
flock -u 9

run_in_guest "$cache/vmlinuz" "$init" "$build" "${tests[@]}"
