#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Everything that a program can do to on-demand memory under full-speed traffic, as root and as an ordinary user, for whom
# userfaultfd tells less. Once with a pin budget smaller than the memory.
#   odp_mix_test.sh ODP_MIX AMOUNT [OPTIONS OF ODP_MIX...]
# With FAULTLINE_SOAK twenty times the amount of work.
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../../lib.sh"
mix=$1
amount=$2
shift 2
if [ -n "${FAULTLINE_SOAK:-}" ]; then amount=$((20 * amount)); fi
own_folder
failures=0

# run NAME COMMAND...: the mix itself ends a hang
run() {
  local name=$1 status=0
  shift
  echo "== $name"
  "$@" || status=$?
  if [ "$status" -ne 0 ]; then
    echo "FAILED: $name: exit status $status"
    failures=$((failures + 1))
  fi
}

run "as this user" "$mix" --amount "$amount" "$@"
run "with 1 MiB to pin" "$mix" --amount "$amount" --seed 2 --pin-budget-mib 1 "$@"
if [ "$(id -u)" -eq 0 ] && setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null; then
  # From a folder of his own; the program may lie where he cannot read.
  cp "$mix" "$folder/odp_mix"
  cp -L "$(dirname "$mix")/../../../libfaultline.so.0" "$folder/"
  chown -R 65534:65534 "$folder"
  run "as an ordinary user" setpriv --reuid 65534 --regid 65534 --clear-groups \
    env -u HOME -u XDG_RUNTIME_DIR TMPDIR="$folder" LD_LIBRARY_PATH="$folder" \
    "$folder/odp_mix" --amount "$amount" --seed 3 "$@"
else
  echo "not root, or without its capabilities: nothing was run as another user"
fi
[ "$failures" -eq 0 ]
echo "ok"
