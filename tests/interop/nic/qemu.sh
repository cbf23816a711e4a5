#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Prints the path of a program that runs Debian 13's QEMU, which has an igb. It is unpacked next to the guests' images, with its libraries,
# and runs with its own loader: nothing is installed. Uses the apt state of ../kernel/guest/image.sh, which runs first.
# If something cannot be had, the script prints a line and exits with status 77.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lib_dir=usr/lib/x86_64-linux-gnu

cannot() {
  printf 'SKIPPED: no QEMU of Debian 13: %s\n' "$*" >&2
  exit 77
}

peer=$(bash "$here/../kernel/guest/image.sh") || exit $?
cache=$(dirname "$peer")
into=$cache/qemu-$(sha256sum "$here/qemu.sh" | cut -c 1-16)
exec 9>"$cache/nic-lock"
flock 9
if [ ! -e "$into/run" ]; then
  private_apt() {
    apt-get -q -q -o Dir::Etc::SourceList="$cache/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::Preferences=/dev/null \
      -o Dir::Etc::PreferencesParts=/dev/null -o Dir::State="$cache/apt/state" -o Dir::State::Lists="$cache/apt/state/lists" \
      -o Dir::State::Status="$cache/apt/state/status" -o Dir::Cache="$work" -o APT::Architecture=amd64 -o APT::Architectures=amd64 \
      -o APT::Sandbox::User=root install -y --no-install-recommends "$@" qemu-system-x86
  }
  work=$(mktemp -d "$cache/build.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/archives/partial" "$work/tree"
  private_apt --download-only >&2 || cannot "the mirror does not offer it"
  for archive in "$work"/archives/*.deb; do dpkg-deb -x "$archive" "$work/tree"; done
  # It finds its files by its own path. It would load the modules of this machine's QEMU, and refuse each, so their folder is empty for it.
  mkdir "$work/tree/empty"
  cat >"$work/tree/run" <<'RUN'
#!/bin/sh
root=$(dirname "$(readlink -f "$0")")
set -- "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/LIB" "$root/usr/bin/qemu-system-x86_64" -L "$root/usr/share/qemu" \
  -L "$root/usr/share/seabios" "$@"
[ -d /LIB/qemu ] || exec "$@"
[ "$(id -u)" = 0 ] || user=--map-root-user
exec unshare --mount $user sh -c 'mount --bind "$0/empty" /LIB/qemu; exec "$@"' "$root" "$@"
RUN
  sed -i "s|LIB|$lib_dir|g" "$work/tree/run"
  chmod +x "$work/tree/run"
  "$work/tree/run" --version >&2 || cannot "it does not run here"
  rm -rf "$into"
  mv "$work/tree" "$into"
fi
printf '%s\n' "$into/run"
