#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two switches whose uplinks are both ends of one vhost-user socket: programs of their wires reach each other, without root. Each switch
# ends and starts again in turn, while the other one stays.
#   vhost_uplink_test.sh FAULTLINE_RUN
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
run=$1
switch=$(dirname "$run")/faultline-switch
need ibv_rc_pingpong
own_runtime_folder
# pair PROGRAM ARGS...
pair() {
  local port
  port=$(free_port)
  run_pair "$port" "$run" --wire back --ip 198.18.5.1 -- "$@" -p "$port" :: "$run" --wire front --ip 198.18.5.2 -- "$@" -p "$port" 127.0.0.1
  echo "ok: $*"
}
start_switch "$switch" back --uplink "vhost:$folder/vm.sock"
back=$started
start_switch "$switch" front --uplink "virtio_user:$folder/vm.sock"
front=$started
pair ibv_rc_pingpong -g 0 -c -n 100 -s 20000
end "$front" || true
start_switch "$switch" front --uplink "virtio_user:$folder/vm.sock"
pair ibv_rc_pingpong -g 0 -c -n 100 -s 64
end "$back" || true
start_switch "$switch" back --uplink "vhost:$folder/vm.sock"
pair ibv_rc_pingpong -g 0 -c -n 100 -s 64
