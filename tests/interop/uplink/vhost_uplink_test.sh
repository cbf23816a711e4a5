#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two switches whose uplinks are both ends of one vhost-user socket: programs of their wires reach each other, without root. Each switch
# ends and starts again in turn, while the other one stays.
#   vhost_uplink_test.sh FAULTLINE_RUN
set -euo pipefail
run=$1
switch=$(dirname "$run")/faultline-switch
command -v ibv_rc_pingpong >/dev/null || { echo "SKIPPED: ibv_rc_pingpong is not installed"; exit 77; }
folder=$(mktemp -d)
export XDG_RUNTIME_DIR=$folder
chmod 700 "$folder"
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap cleanup EXIT
fail() {
  echo "FAILED: $*"
  tail -n 5 "$folder"/*.out "$folder"/*.err 2>/dev/null || true
  exit 1
}
# start_switch WIRE UPLINK
start_switch() {
  timeout 200 "$switch" --wire "$1" --uplink "$2" 2>"$folder/$1.err" &
  pids+=($!)
  for _ in $(seq 200); do
    if [ -S "$folder/faultline/$1.control" ] && "$run" --wire "$1" ibv_devices >"$folder/$1.out" 2>&1; then return; fi
    kill -0 "${pids[-1]}" 2>/dev/null || break
    sleep 0.05
  done
  fail "the switch of wire $1 did not start"
}
# pair PROGRAM ARGS...
pair() {
  local port server
  port=$(python3 "$(dirname "$0")/../../free_port.py")
  timeout 60 "$run" --wire back --ip 198.18.5.1 -- "$@" -p "$port" >"$folder/server.out" 2>&1 &
  server=$!
  pids+=("$server")
  for _ in $(seq 200); do
    if grep -qi "$(printf ':%04X 0*:0000 0A' "$port")" /proc/net/tcp /proc/net/tcp6; then break; fi
    sleep 0.05
  done
  timeout 60 "$run" --wire front --ip 198.18.5.2 -- "$@" -p "$port" 127.0.0.1 >"$folder/client.out" 2>&1 || fail "client: $*"
  wait "$server" || fail "server: $*"
  echo "ok: $*"
}
start_switch back "vhost:$folder/vm.sock"
start_switch front "virtio_user:$folder/vm.sock"
pair ibv_rc_pingpong -g 0 -c -n 100 -s 20000
kill "${pids[1]}"
wait "${pids[1]}" || true
start_switch front "virtio_user:$folder/vm.sock"
pair ibv_rc_pingpong -g 0 -c -n 100 -s 64
kill "${pids[0]}"
wait "${pids[0]}" || true
start_switch back "vhost:$folder/vm.sock"
pair ibv_rc_pingpong -g 0 -c -n 100 -s 64
