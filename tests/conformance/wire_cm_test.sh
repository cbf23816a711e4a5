#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rdma_cm's programs as Debian ships them, over a wire: with an address each, and with a shared one. With a shared address, connection
# requests reach the process that listens, and all other messages the process that owns the connection.
#   wire_cm_test.sh FAULTLINE_RUN
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
run=$1
need rdma rping udaddy ucmatose mckey rstream rdma_server
[ -e "$(dirname "$run")/../stack/abi/libibverbs.so.1" ] || skip "there is no drop-in library"
own_runtime_folder
wire=cm
# serve NAME OPTIONS -- PROGRAM ARGS...: in the background, until it listens; sets $started
serve() {
  start "$1" "$run" --wire "$wire" "${@:2}"
  await_cm_listener "$started" "$run" --wire "$wire" --side d
}
# client OPTIONS -- PROGRAM ARGS...
client() { bounded "$run" --wire "$wire" "$@" >"$folder/client.out" 2>&1 || fail "client: $*"; }
# pair "SERVER OPTIONS" "CLIENT OPTIONS" "SERVER COMMAND" "CLIENT COMMAND"
pair() {
  # shellcheck disable=SC2086
  serve server $1 -- $3
  # shellcheck disable=SC2086
  client $2 -- $4
  end_server server "$started" || fail "server: $1 $3"
  echo "ok: $4, $2 to $1"
}
# end_server NAME PID: rping's event thread may find the channel closed by its main thread after all data has arrived, and exit with an
# error (perror, exit in cm_thread). So only its data is checked.
end_server() {
  await_end "$2" || grep -q 'server ping data: rdma-ping-4' "$folder/$1.out"
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
one=$started
serve two --share -- rping -s -v -C 5 -p 7002
two=$started
for port in 7002 7001; do
  client --side c -- rping -c -C 5 -a 198.18.0.255 -p "$port" -v
done
end_server one "$one" || fail "the first server among sharers"
end_server two "$two" || fail "the second server among sharers"
echo "ok: two listeners at one address"
# The first process that listens has it.
serve first --share -- rping -s -C 5 -p 7003
bounded "$run" --wire "$wire" --share rping -s -C 5 -p 7003 >"$folder/second.out" 2>&1 && fail "a second listener"
grep -q 'Address already in use' "$folder/second.out" || fail "a second listener is not told why"
echo "ok: a port has one listener"
