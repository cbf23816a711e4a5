#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A peer that is killed in the middle: the other side ends with an error, in bounded time, never hangs; a server goes on with
# the next client over a wire that connects again.
#   killed_process_test.sh FAULTLINE_PERF
set -euo pipefail
# shellcheck source=tests/interop/e2e/perf.sh
. "$(dirname "$0")/perf.sh"
memif_pair ''
export RUNTIME_DIRECTORY=$folder/run

for op in write read send; do
  start_server
  client --op "$op" --size 4096 --seconds "$hang_seconds" &
  client_pid=$!
  on_exit kill_now "$client_pid"
  # In the middle of the data: the server's port has received more than the set-up.
  watch=$client_pid await_traffic
  kill_now "$server_pid"
  status=0
  await_end "$client_pid" || status=$?
  [ "$status" -eq 1 ] || fail "$op: the client ended with $status after its server was killed"
  grep -qE 'transport retry counter exceeded|the peer has gone' "$folder/client.err" || fail "$op: the client gave no reason"
  echo "ok: $op, server killed: $(tail -n 1 "$folder/client.err")"
done

server_options=(--keep-serving)
start_server
start first-client "$perf" --config "$folder/client.toml" --client 127.0.0.1 --port "$tcp_port" -- --op write --size 4096 \
  --seconds "$hang_seconds"
watch=$started await_traffic
kill_now "$started"
client --op write,read,send --size 64,64k --iters 64 --depth 16 --verify || fail "the next client"
echo "ok: client killed, the next one is served"
end "$server_pid" || true
