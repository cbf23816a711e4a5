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
  client --op "$op" --size 4096 --ack-timeout 16 --seconds "$hang_seconds" &
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

# A server that stands still answers nothing, and the client's own ACK timeout decides: 4.096 us * 2^16.
start_server
export FAULTLINE_LOG=debug
client --op write --size 4096 --ack-timeout 16 --seconds "$hang_seconds" &
client_pid=$!
on_exit kill_now "$client_pid"
watch=$client_pid await_traffic
kill -STOP "$server_pid"
status=0
await_end "$client_pid" || status=$?
unset FAULTLINE_LOG
kill_now "$server_pid"
[ "$status" -eq 1 ] || fail "the client ended with $status after its server stood still"
grep -q 'the ACK timeout is 268 ms' "$folder/client.err" || fail "a server that stands still: another ACK timeout"
echo "ok: a server that stands still"

server_options=(--keep-serving)
start_server
start first-client "$perf" --config "$folder/client.toml" --client 127.0.0.1 --port "$tcp_port" -- --op write --size 4096 \
  --seconds "$hang_seconds"
watch=$started await_traffic
kill_now "$started"
client --op write,read,send --size 64,64k --iters 64 --depth 16 --verify || fail "the next client"
echo "ok: client killed, the next one is served"
end "$server_pid" || true
