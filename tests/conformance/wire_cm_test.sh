#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rdma_cm's programs as Debian ships them, over a wire: with an address each, and with a shared one. With a shared address, connection
# requests reach the process that listens, and all other messages the process that owns the connection.
#   wire_cm_test.sh FAULTLINE_RUN
set -euo pipefail
# shellcheck source=tests/conformance/lib.sh
. "$(dirname "$0")/lib.sh"
run=$1
need rping udaddy ucmatose mckey rstream rdma_server
[ -e "$(dirname "$run")/../stack/abi/libibverbs.so.1" ] || skip "there is no drop-in library"
folder=$(mktemp -d)
export XDG_RUNTIME_DIR=$folder
chmod 700 "$folder"
wire=cm$$
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; done
  pid=$(pgrep -u "$(id -u)" -f -- "faultline-switch --wire $wire --listener" || true)
  if [ -n "$pid" ]; then kill "$pid" 2>/dev/null || true; fi
  rm -rf "$folder"
}
trap cleanup EXIT
# serve NAME OPTIONS -- PROGRAM ARGS...: in the background
serve() {
  local name=$1
  shift
  timeout 60 "$run" --wire "$wire" "$@" >"$folder/$name.out" 2>&1 &
  pids+=($!)
}
# client OPTIONS -- PROGRAM ARGS...: repeated until it is answered, because no other sign shows that a server listens
client() {
  for _ in $(seq 40); do
    if timeout 30 "$run" --wire "$wire" "$@" >"$folder/client.out" 2>&1; then return; fi
    kill -0 "${pids[-1]}" 2>/dev/null || break
    sleep 0.25
  done
  fail "client: $*"
}
# pair "SERVER OPTIONS" "CLIENT OPTIONS" "SERVER COMMAND" "CLIENT COMMAND"
pair() {
  # shellcheck disable=SC2086
  serve server $1 -- $3
  # shellcheck disable=SC2086
  client $2 -- $4
  end_server server "${pids[-1]}" || fail "server: $1 $3"
  echo "ok: $4, $2 to $1"
}
# end_server NAME PID: rping's event thread may find the channel closed by its main thread after all data has arrived, and exit with an
# error (perror, exit in cm_thread). So only its data is checked.
end_server() {
  wait "$2" || grep -q 'server ping data: rdma-ping-4' "$folder/$1.out"
}

for how in own shared; do
  if [ "$how" = own ]; then server="--side a" other="--side b" ip=198.18.0.1; else server=--share other=--share ip=198.18.0.255; fi
  pair "$server" "$other" "rping -s -v -C 5 -a 0.0.0.0" "rping -c -C 5 -a $ip"
  pair "$server" "$other" "ucmatose -b $ip" "ucmatose -s $ip"
  pair "$server" "$other" "udaddy -b $ip" "udaddy -s $ip"
  pair "$server" "$other" "rdma_server" "rdma_client -s $ip"
  pair "$server" "$other" "rstream -S 4096 -I 5" "rstream -s $ip -S 4096 -I 5"
done

# Three processes that share an address, and one with its own: each request reaches its listener.
serve one --share -- rping -s -v -C 5 -p 7001
serve two --share -- rping -s -v -C 5 -p 7002
for port in 7002 7001; do
  client --side c -- rping -c -C 5 -a 198.18.0.255 -p "$port" -v
done
end_server one "${pids[-2]}" && end_server two "${pids[-1]}" || fail "a server among sharers"
echo "ok: two listeners at one address"
serve one --share -- rping -s -C 5 -p 7003
# The first process that listens has it.
timeout 10 "$run" --wire "$wire" --share rping -s -C 5 -p 7003 >"$folder/second.out" 2>&1 || true
cat "$folder/one.out" >>"$folder/second.out"
grep -q 'Address already in use' "$folder/second.out" || fail "a second listener is not told why"
echo "ok: a port has one listener"
