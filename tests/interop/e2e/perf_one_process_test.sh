#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Server and client in one process, on two devices that a ring joins: every byte compared, and a ping-pong.
#   perf_one_process_test.sh FAULTLINE_PERF
set -euo pipefail
# shellcheck source=tests/interop/e2e/perf.sh
. "$(dirname "$0")/perf.sh"

for side in a b; do
  printf '[[device]]\nname = "faultline%s"\nip = "198.18.0.%d/24"\n[device.port]\nkind = "ring"\nwire = "w0"\nside = "%s"\n' \
    "$side" "$((1 + $(printf '%d' "'$side") - 97))" "$side"
done >"$folder/ring.toml"
both() {
  bounded "$perf" --config "$folder/ring.toml" --both -- "$@" --json "$folder/result.json" >"$folder/both.out" 2>"$folder/both.err" ||
    fail "both: $*"
  echo "ok: $*"
}
"$perf" -- --help >"$folder/help"
grep -q 'a prompt: help lists its commands' "$folder/help" || fail "the help has not all options"
both --op write,read,send --size 1,64,5000,1m --depth 8 --iters 64 --verify
python3 - "$folder/result.json" <<'PY' || fail "not every run is in the JSON"
import json, sys
results = json.load(open(sys.argv[1]))["results"]
assert len(results) == 12 and all(run["messages"] >= 64 and run["wrong_bytes"] == 0 and run["verify"] for run in results)
PY
both --op write,send --size 64 --mode lat --iters 2000
# A client that fails ends its server too.
status=0
bounded "$perf" --config "$folder/ring.toml" --both -- --op ud_send --size 64k >"$folder/both.out" 2>"$folder/both.err" || status=$?
[ "$status" -eq 2 ] || fail "a datagram over the path MTU: exit status $status, not 2"
