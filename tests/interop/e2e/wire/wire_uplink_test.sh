#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Wires with an uplink: programs of two wires reach each other over a veth pair between their switches, and the kernel
# reaches a program over a tap interface. The switches live in network namespaces; programs need none.
#   wire_uplink_test.sh FAULTLINE_RUN
set -euo pipefail
run=$1
switch=$(dirname "$run")/faultline-switch
skip() { echo "SKIPPED: $*"; exit 77; }
command -v ibv_rc_pingpong >/dev/null || skip "ibv_rc_pingpong is not installed"
[ "$(id -u)" -eq 0 ] || skip "not root"
space=fl-wire-$$
ip netns add "$space-a" 2>/dev/null || skip "network namespaces cannot be made"
folder=$(mktemp -d)
export XDG_RUNTIME_DIR=$folder
chmod 700 "$folder"
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  for side in a b; do ip netns del "$space-$side" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap cleanup EXIT
fail() {
  echo "FAILED: $*"
  tail -n 5 "$folder"/*.out "$folder"/*.err 2>/dev/null || true
  exit 1
}
# start_switch SIDE WIRE UPLINK
start_switch() {
  ip netns exec "$space-$1" timeout 120 "$switch" --wire "$2" --uplink "$3" 2>"$folder/$2.err" &
  pids+=($!)
  for _ in $(seq 100); do
    if [ -S "$folder/faultline/$2.control" ] && "$run" --wire "$2" ibv_devices >"$folder/$2.out" 2>&1; then return; fi
    kill -0 "${pids[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  fail "the switch of wire $2 did not start"
}
free_port() { python3 "$(dirname "$0")/../../../free_port.py"; }
await_port() {
  for _ in $(seq 100); do
    if grep -qi "$(printf ':%04X 0*:0000 0A' "$1")" /proc/net/tcp /proc/net/tcp6; then return; fi
    sleep 0.1
  done
  fail "nobody listens on TCP port $1"
}
# pair "SERVER OPTIONS" "CLIENT OPTIONS" PROGRAM ARGS...
pair() {
  local server=$1 client=$2
  shift 2
  tcp_port=$(free_port)
  # shellcheck disable=SC2086
  timeout 60 "$run" $server -- "$@" -p "$tcp_port" >"$folder/server.out" 2>&1 &
  pids+=($!)
  await_port "$tcp_port"
  # shellcheck disable=SC2086
  timeout 60 "$run" $client -- "$@" -p "$tcp_port" 127.0.0.1 >"$folder/client.out" 2>&1 || fail "client: $client $*"
  wait "${pids[-1]}" || fail "server: $server $*"
  echo "ok: $server | $client: $*"
}

ip netns add "$space-b"
ip link add "v$$a" netns "$space-a" type veth peer name "v$$b" netns "$space-b"
for side in a b; do ip -n "$space-$side" link set "v$$$side" up mtu 4500; done
start_switch a up1 "af_packet:v$$a"
start_switch b up2 "af_packet:v$$b"
pair "--wire up1 --side a" "--wire up2 --side b" ibv_rc_pingpong -g 0 -n 300 -s 20000 -c
pair "--wire up1 --side a" "--wire up2 --side b" ibv_rc_pingpong -g 1 -n 300 -c
pair "--wire up1 --side a --share" "--wire up2 --side b --share" ibv_rc_pingpong -g 0 -n 300 -c
pair "--wire up1 --side a" "--wire up1 --side b" ibv_rc_pingpong -g 0 -n 300 -c

start_switch a up3 "tap:t$$"
ip -n "$space-a" addr add 198.18.200.1/15 dev "t$$"
ip -n "$space-a" link set "t$$" up
for share in '' --share; do
  tcp_port=$(free_port)
  for _ in one two; do
    # shellcheck disable=SC2086
    timeout 30 "$run" --wire up3 --side c $share ibv_rc_pingpong -g 0 -p "$tcp_port" >"$folder/server.out" 2>&1 &
    pids+=($!)
    await_port "$tcp_port"
    [ -n "$share" ] || break
    tcp_port=$(free_port)
  done
  ip netns exec "$space-a" ping -c 3 -i 0.2 -W 5 198.18.0.3 >"$folder/ping.out" || fail "no answer to ping $share"
  if grep -q DUP "$folder/ping.out"; then fail "more than one answer to ping $share"; fi
  kill "${pids[-1]}"
  wait "${pids[-1]}" || true
  echo "ok: ping $share"
done
