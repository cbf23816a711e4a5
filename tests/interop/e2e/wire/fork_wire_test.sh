#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Forked processes with devices of their own (fork_wire.cpp): on a wire whose address they share, and on one where each is
# given its own. And what cannot be had twice, in one line.
#   fork_wire_test.sh FORK_WIRE
set -euo pipefail
program=$1
folder=$(mktemp -d)
export XDG_RUNTIME_DIR=$folder
chmod 700 "$folder"
wires=("shared$$" "own$$" "side$$")
cleanup() {
  for wire in "${wires[@]}"; do
    pid=$(pgrep -u "$(id -u)" -f -- "faultline-switch --wire $wire --listener" || true)
    if [ -n "$pid" ]; then kill "$pid" 2>/dev/null || true; fi
  done
  rm -rf "$folder"
}
trap cleanup EXIT

timeout 120 "$program" "${wires[0]},share"
timeout 120 "$program" "${wires[1]}"
FAULTLINE_WIRE="${wires[2]},side=a" timeout 60 "$program" --refused "start both with --share"
cat >"$folder/memif.toml" <<END
[[device]]
name = "faultline0"
ip = "198.18.0.1/24"
[device.port]
kind = "memif"
role = "server"
socket = "$folder/m.sock"
END
FAULTLINE_CONFIG="$folder/memif.toml" timeout 60 "$program" --refused "a port of kind memif cannot be had twice"
