#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Wires with an uplink: programs of two wires reach each other over a veth pair between their switches, and the kernel
# reaches a program over a tap interface. The switches live in network namespaces; programs need none.
#   wire_uplink_test.sh FAULTLINE_RUN
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../../lib.sh"
run=$1
switch=$(dirname "$run")/faultline-switch
need ibv_rc_pingpong ip
need_root
own_runtime_folder
space_a='' space_b=''
new_namespace space_a wire-a
new_namespace space_b wire-b
# switch_in SPACE WIRE UPLINK
switch_in() {
  in_space=(ip netns exec "$1")
  start_switch "$switch" "$2" --uplink "$3"
  in_space=()
}
# pair "SERVER OPTIONS" "CLIENT OPTIONS" PROGRAM ARGS...
pair() {
  local port server client
  port=$(free_port)
  read -ra server <<<"$1"
  read -ra client <<<"$2"
  shift 2
  run_pair "$port" "$run" "${server[@]}" -- "$@" -p "$port" :: "$run" "${client[@]}" -- "$@" -p "$port" 127.0.0.1
  echo "ok: ${server[*]} | ${client[*]}: $*"
}

veth_pair "$space_a" fl-a "$space_b" fl-b
switch_in "$space_a" up1 af_packet:fl-a
switch_in "$space_b" up2 af_packet:fl-b
pair "--wire up1 --side a" "--wire up2 --side b" ibv_rc_pingpong -g 0 -n 300 -s 20000 -c
pair "--wire up1 --side a" "--wire up2 --side b" ibv_rc_pingpong -g 1 -n 300 -c
pair "--wire up1 --side a --share" "--wire up2 --side b --share" ibv_rc_pingpong -g 0 -n 300 -c
pair "--wire up1 --side a" "--wire up1 --side b" ibv_rc_pingpong -g 0 -n 300 -c

switch_in "$space_a" up3 tap:fl-tap
ip -n "$space_a" addr add 198.18.200.1/15 dev fl-tap
ip -n "$space_a" link set fl-tap up
for share in '' --share; do
  for name in one two; do
    port=$(free_port)
    # shellcheck disable=SC2086
    start "$name" "$run" --wire up3 --side c $share ibv_rc_pingpong -g 0 -p "$port"
    watch=$started await_port "$port"
    [ -n "$share" ] || break
  done
  # A second answer would come before the answer to the next request.
  for _ in 1 2 3; do
    ip netns exec "$space_a" ping -c 1 -W "$hang_seconds" 198.18.0.3 >>"$folder/ping$share.out" || fail "no answer to ping $share"
  done
  ! ip netns exec "$space_a" ping -c 3 -i 0.2 -W 60 198.18.0.3 | grep DUP || fail "more than one answer to ping $share"
  kill_now "$started"
  echo "ok: ping $share"
done
