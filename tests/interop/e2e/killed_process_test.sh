#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A peer that is killed in the middle: the other side ends with an error, in bounded time, never hangs; a server goes on with
# the next client over a wire that connects again.
#   killed_process_test.sh FAULTLINE_PERF
set -euo pipefail
# shellcheck source=tests/interop/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
memif_pair

for op in write read send; do
  start_server
  client --op "$op" --size 4096 --seconds 60 &
  client_pid=$!
  # Killed in the middle: not before the client is connected, which a busy machine delays.
  await_connection "$tcp_port"
  sleep 1.5
  kill -9 "$server_pid" "$(pgrep -P "$server_pid" || true)" 2>/dev/null || true
  status=0
  ( sleep 30; kill -9 "$client_pid" 2>/dev/null ) &
  guard=$!
  wait "$client_pid" || status=$?
  kill "$guard" 2>/dev/null || true
  [ "$status" -eq 1 ] || fail "$op: the client ended with $status after its server was killed"
  grep -qE 'transport retry counter exceeded|the peer has gone' "$folder/client.err" || fail "$op: the client gave no reason"
  server_pid=
  echo "ok: $op, server killed: $(tail -n 1 "$folder/client.err")"
done

start_server --keep-serving
timeout -s KILL 2 "$perf" --config "$folder/client.toml" --client 127.0.0.1 --port "$tcp_port" -- --op write --size 4096 \
  --seconds 60 >"$folder/client.out" 2>&1 || true
client --op write,read,send --size 64,64k --iters 64 --depth 16 --verify || fail "the next client"
echo "ok: client killed, the next one is served"
kill "$server_pid"
wait "$server_pid" 2>/dev/null || true
server_pid=
