#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Everything that a program can do to on-demand memory under full-speed traffic, as root and as an ordinary user, for whom
# userfaultfd tells less. Once with a pin budget smaller than the memory.
#   odp_mix_test.sh ODP_MIX [OPTIONS OF ODP_MIX...]
set -euo pipefail
mix=$1
shift
seconds=3
if [ -n "${FAULTLINE_SOAK:-}" ]; then seconds=60; fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

failures=0

# run NAME COMMAND...
run() {
  local name=$1 status=0
  shift
  echo "== $name"
  timeout $((seconds + 120)) "$@" || status=$?
  if [ "$status" -ne 0 ]; then
    echo "FAILED: $name: exit status $status"
    failures=$((failures + 1))
  fi
}

run "as this user" "$mix" --seconds "$seconds" "$@"
run "with 1 MiB to pin" "$mix" --seconds "$seconds" --seed 2 --pin-budget-mib 1 "$@"
if [ "$(id -u)" -eq 0 ] && setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null; then
  # From a folder of his own; the program may lie where he cannot read.
  cp "$mix" "$folder/odp_mix"
  cp -L "$(dirname "$mix")/../../../libfaultline.so.0" "$folder/"
  chmod 755 "$folder" && chown -R 65534:65534 "$folder"
  run "as an ordinary user" setpriv --reuid 65534 --regid 65534 --clear-groups \
    env -u HOME -u XDG_RUNTIME_DIR TMPDIR="$folder" LD_LIBRARY_PATH="$folder" \
    "$folder/odp_mix" --seconds "$seconds" --seed 3 "$@"
else
  echo "not root, or without its capabilities: nothing was run as another user"
fi
[ "$failures" -eq 0 ]
echo "ok"
