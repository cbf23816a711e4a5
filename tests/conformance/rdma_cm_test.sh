#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Debian's librdmacm and the programs over it, unmodified, with the drop-in preloaded: a pair of processes on memif for each, as
# whatever user runs this. librdmacm's rdma_cm device is answered in the process.
#   rdma_cm_test.sh LIBIBVERBS
set -euo pipefail
library=$1
skip() { echo "SKIPPED: $*"; exit 77; }
for tool in rping ucmatose udaddy mckey cmtime rdma_server rdma_xserver rstream riostream rcopy ib_send_lat; do
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

run=0
preload=$library
side() { # ROLE SECONDS PROGRAM ARGS...: in this shell's place
  local role=$1 seconds=$2
  shift 2
  exec env FAULTLINE_CONFIG="$folder/$role.toml" LD_PRELOAD="$preload" timeout "$seconds" "$@"
}
failed() {
  echo "FAILED ($1): $2"
  tail -v -n 8 "$folder/client.out" "$folder/server.out"
  exit 1
}
# pair SERVER CLIENT: both command lines must end with 0. The server is given a moment to listen; a client that comes too soon has
# nobody to resolve or is rejected, and asks again.
pair() {
  run=$((run + 1))
  local status=0 server_status=0
  # shellcheck disable=SC2086
  side server 30 $1 >"$folder/server.out" 2>&1 &
  server_pid=$!
  sleep 1
  # shellcheck disable=SC2086
  (side client 30 $2) >"$folder/client.out" 2>&1 || status=$?
  wait "$server_pid" || server_status=$?
  server_pid=
  # rping's server closes its channel while its own thread may be about to ask it for the next event; with a kernel below, too.
  if [ "$server_status" -eq 255 ] && grep -Eq 'rdma_get_cm_event: (Bad file descriptor|Invalid argument)' "$folder/server.out"; then
    server_status=0
  fi
  if [ "$status" -ne 0 ] || [ "$server_status" -ne 0 ]; then failed "client $status, server $server_status" "$1 | $2"; fi
  echo "ok: $2"
}
# client_of SERVER CLIENT: for servers that serve for ever.
client_of() {
  run=$((run + 1))
  local status=0
  # shellcheck disable=SC2086
  side server 60 $1 >"$folder/server.out" 2>&1 &
  server_pid=$!
  sleep 1
  # shellcheck disable=SC2086
  (side client 30 $2) >"$folder/client.out" 2>&1 || status=$?
  kill "$server_pid" 2>/dev/null || failed "the server ended" "$1"
  wait "$server_pid" || true
  server_pid=
  [ "$status" -eq 0 ] || failed "client $status" "$1 | $2"
  echo "ok: $2"
}

for address in 198.18.0.1 2001:2::1; do pair "rping -s -a $address -C 50 -V" "rping -c -a $address -C 50 -V"; done
pair "rping -s -a 198.18.0.1 -C 10 -S 60000 -V" "rping -c -a 198.18.0.1 -C 10 -S 60000 -V"
pair "ucmatose -c 10 -C 20 -S 1000" "ucmatose -s 198.18.0.1 -c 10 -C 20 -S 1000"
pair "ucmatose -m" "ucmatose -s 198.18.0.1 -m" # moves to another channel
pair "udaddy -c 5 -C 20 -S 1000" "udaddy -s 198.18.0.1 -c 5 -C 20 -S 1000"
pair "mckey -m 239.1.1.1 -b 198.18.0.1" "mckey -m 239.1.1.1 -b 198.18.0.2 -s"
pair "mckey -m ff0e::4:1 -b 2001:2::1" "mckey -m ff0e::4:1 -b 2001:2::2 -s"
client_of cmtime "cmtime -s 198.18.0.1 -c 500"
pair rdma_server "rdma_client -s 198.18.0.1"
pair rdma_xserver "rdma_xclient -s 198.18.0.1"
pair "rdma_xserver -c x" "rdma_xclient -s 198.18.0.1 -c x"
pair "rstream -S 4000 -C 100" "rstream -s 198.18.0.1 -S 4000 -C 100"
pair "rstream -S 4000 -C 100 -T b" "rstream -s 198.18.0.1 -S 4000 -C 100 -T b"
pair "riostream -S 4000 -C 100" "riostream -s 198.18.0.1 -S 4000 -C 100"
head -c 3000000 /dev/urandom >"$folder/sent"
client_of rcopy "rcopy $folder/sent 198.18.0.1:$folder/copied"
cmp "$folder/sent" "$folder/copied" || failed "the copy differs" rcopy
# perftest with the connection manager for its QPs (-R), and for its exchange alone (-z).
for program in ib_send_lat ib_send_bw ib_write_bw ib_read_lat ib_atomic_lat; do
  pair "$program -R -n 200 -d faultline0 -F" "$program -R -n 200 -d faultline0 -F 198.18.0.1"
done
pair "ib_write_bw -R -q 8 -n 200 -d faultline0 -F" "ib_write_bw -R -q 8 -n 200 -d faultline0 -F 198.18.0.1"
pair "ib_send_bw -R -c UD -n 200 -d faultline0 -F" "ib_send_bw -R -c UD -n 200 -d faultline0 -F 198.18.0.1"
pair "ib_write_bw -z -n 200 -d faultline0 -x 0 -F" "ib_write_bw -z -n 200 -d faultline0 -x 0 -F 198.18.0.1"
# A TCP program over rsockets; its addresses are on no interface of this host.
rspreload=$(find /usr/lib -name librspreload.so 2>/dev/null | head -n 1)
if [ -n "$rspreload" ] && command -v iperf >/dev/null; then
  preload=$rspreload:$library
  pair "iperf -s -P 1 -B 198.18.0.1" "iperf -c 198.18.0.1 -n 20M"
else
  echo "not tried: a TCP program (iperf, librspreload)"
fi
echo "$run pairs, all as shipped"
