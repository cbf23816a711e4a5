#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs that we did not write, as Debian ships them (ibverbs-utils, perftest), preloaded with libfaultline.so: a pair of processes
# on memif for each. The pingpongs check every byte (-c).
#   programs_test.sh LIBFAULTLINE
set -euo pipefail
library=$1
skip() { echo "SKIPPED: $*"; exit 77; }
for tool in ibv_rc_pingpong ibv_ud_pingpong ib_write_bw; do
  command -v "$tool" >/dev/null || skip "$tool is not installed"
done

folder=$(mktemp -d)
server_pid=
cleanup() {
  if [ -n "$server_pid" ]; then kill -9 "$server_pid" 2>/dev/null || true; fi
  rm -rf "$folder"
}
trap cleanup EXIT
for role in server client; do
  host=$([ "$role" = server ] && echo 1 || echo 2)
  cat >"$folder/$role.toml" <<TOML
[[device]]
name = "faultline0"
ip = ["198.18.0.$host/24", "2001:2::$host/64"]
[device.port]
kind = "memif"
role = "$role"
socket = "$folder/wire.sock"
TOML
done

tcp_port=$((20000 + $$ % 20000))
run=0
# pair PROGRAM ARGS...: server and client of one program; both must end with 0.
pair() {
  run=$((run + 1))
  local port=$((tcp_port + run))
  FAULTLINE_CONFIG=$folder/server.toml LD_PRELOAD=$library timeout 60 "$@" -p "$port" >"$folder/server.out" 2>&1 &
  server_pid=$!
  # The client's own TCP connect is tried once: the server has to listen first.
  for _ in $(seq 100); do
    if grep -qi "$(printf ':%04X 00000000:0000 0A' "$port")" /proc/net/tcp ||
      grep -qi "$(printf ':%04X 0\{32\}:0000 0A' "$port")" /proc/net/tcp6; then break; fi
    sleep 0.1
  done
  local status=0
  FAULTLINE_CONFIG=$folder/client.toml LD_PRELOAD=$library timeout 60 "$@" -p "$port" 127.0.0.1 >"$folder/client.out" 2>&1 ||
    status=$?
  wait "$server_pid" || status=$?
  server_pid=
  if [ "$status" -ne 0 ]; then
    echo "FAILED ($status): $*"
    tail -n 8 "$folder/client.out" "$folder/server.out"
    exit 1
  fi
  echo "ok: $*"
}

listed=$(FAULTLINE_CONFIG=$folder/server.toml LD_PRELOAD=$library timeout 20 ibv_devices)
grep -q faultline0 <<<"$listed" || { echo "FAILED: ibv_devices does not list the device"; exit 1; }

for size in 1 1024 4096 65536; do pair ibv_rc_pingpong -g 0 -n 500 -s "$size" -c; done
for mtu in 256 512 2048 4096; do pair ibv_rc_pingpong -g 0 -n 200 -s 9000 -m "$mtu" -c; done
pair ibv_rc_pingpong -g 0 -n 500 -s 65536 -c -o     # on-demand memory
pair ibv_rc_pingpong -g 0 -n 500 -s 65536 -c -o -P  # prefetched
pair ibv_rc_pingpong -g 0 -n 500 -s 65536 -c -O     # the implicit region
pair ibv_rc_pingpong -g 0 -n 500 -s 65536 -c -O -P
pair ibv_ud_pingpong -g 0 -n 500 -s 1024 -c
pair ibv_uc_pingpong -g 0 -n 200 -s 9000 -c
pair ibv_srq_pingpong -g 0 -n 500 -c
pair ibv_xsrq_pingpong -g 0 -n 100
pair ibv_rc_pingpong -g 0 -n 500 -c -e  # completion events
pair ibv_srq_pingpong -g 0 -n 500 -c -e
pair ibv_ud_pingpong -g 0 -n 500 -s 1024 -c -e
pair ibv_rc_pingpong -g 0 -n 500 -c -t     # an extended CQ, with timestamps
pair ibv_rc_pingpong -g 0 -n 500 -c -N     # ibv_wr_*
pair ibv_rc_pingpong -g 0 -n 500 -c -t -N  # both
for program in ib_write_bw ib_read_bw ib_send_bw; do
  pair "$program" -d faultline0 -x 0 -F -n 500 -s 65536
  pair "$program" -d faultline0 -x 0 -F -n 500 -s 64 -q 4
  pair "$program" -d faultline0 -x 0 -F -n 500 -s 8192 --odp
done
for transport in UC XRC; do
  for program in ib_write_bw ib_send_bw ib_send_lat; do pair "$program" -c "$transport" -d faultline0 -x 0 -F -n 500; done
done
pair ib_read_bw -c XRC -d faultline0 -x 0 -F -n 500
pair ib_send_bw --use-srq -q 3 -d faultline0 -x 0 -F -n 500
for operation in FETCH_AND_ADD CMP_AND_SWAP; do pair ib_atomic_bw -A "$operation" -d faultline0 -x 0 -F -n 500; done
pair ib_atomic_lat -d faultline0 -x 0 -F -n 100
pair ib_atomic_bw -c XRC -d faultline0 -x 0 -F -n 500
pair ib_send_bw -c UD -g -d faultline0 -x 1 -F -n 100 -s 64  # multicast; as many as are posted: datagrams may be lost
for program in ib_write_lat ib_read_lat ib_send_lat; do pair "$program" -d faultline0 -x 0 -F -n 500 -s 64; done
for program in ib_send_bw ib_send_lat ib_read_bw; do pair "$program" -e -d faultline0 -x 0 -F -n 500 -s 64; done
pair ib_send_bw -c UD -d faultline0 -x 0 -F -n 500 -s 1024
pair ib_write_bw -d faultline0 -x 0 -F -n 200 -a
echo "$run programs, all as shipped"
