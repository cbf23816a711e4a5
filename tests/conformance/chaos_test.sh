#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Debian's unmodified ibv_rc_pingpong over memif, every byte checked, with [device.chaos] at both ends.
#   chaos_test.sh LIBFAULTLINE
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
library=$1
need ibv_rc_pingpong
own_folder
# devices LINES...: both ends with these lines under [device.chaos]
devices() {
  memif_pair "$patient"
  local role
  for role in server client; do printf '%s\n' '[device.chaos]' "$@" >>"$folder/$role.toml"; done
}
# once ARGS...: runs both ends; their statuses are in $server_status and $client_status
once() {
  tcp_port=$(free_port)
  server_status=0
  client_status=0
  start server env FAULTLINE_CONFIG="$folder/server.toml" LD_PRELOAD="$library" ibv_rc_pingpong "$@" -p "$tcp_port"
  local server=$started
  watch=$server await_port "$tcp_port"
  bounded env FAULTLINE_CONFIG="$folder/client.toml" LD_PRELOAD="$library" ibv_rc_pingpong "$@" -p "$tcp_port" 127.0.0.1 \
    >"$folder/client.out" 2>&1 || client_status=$?
  await_end "$server" || server_status=$?
}
# pingpong ARGS...: the program that ends first does not wait until the other receives its last acknowledgement. If that is lost, the
# other exceeds its retry counter, as on any network. This is no failure: the first has received all messages, and the other has
# acknowledged all of the first.
pingpong() {
  once "$@"
  grep -qi 'invalid data' "$folder"/*.out && fail "a wrong byte: $*"
  grep -q 'device.chaos. is on' "$folder/server.out" || fail "no line says that chaos is on"
  if [ "$server_status" -eq 0 ] && [ "$client_status" -eq 0 ]; then
    echo "ok: ibv_rc_pingpong $*"
    return
  fi
  grep -Eq '^(loss|corrupt) ' "$folder/server.toml" || fail "without a loss: $*"
  [ "$server_status" -eq 0 ] || [ "$client_status" -eq 0 ] || fail "both ends failed: $*"
  grep -q 'transport retry counter exceeded' "$folder"/*.out || fail "$*"
  echo "ok: ibv_rc_pingpong $*; the last acknowledgement of the end that ended first was lost"
}

devices 'loss = 0.01'
pingpong -g 0 -n 500 -s 16384 -c
pingpong -g 0 -n 200 -s 16384 -c -o
devices 'loss = 0.02' 'duplicate = 0.02' 'corrupt = 0.02' 'reorder = 0.05' 'seed = 7'
pingpong -g 0 -n 200 -s 16384 -c
devices 'delay_us = 100' 'delay_jitter_us = 50' 'direction = "tx"'
pingpong -g 0 -n 200 -s 16384 -c
devices 'fault_delay_us = 3000'
pingpong -g 0 -n 200 -s 16384 -c -o
