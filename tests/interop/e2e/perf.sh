# SPDX-License-Identifier: BSD-3-Clause
# faultline-perf as a server and a client with configurations of their own. Sourced with the path of faultline-perf in $1.
# shellcheck shell=bash
# shellcheck source=tests/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
perf=$1
own_runtime_folder
server_pid=
tcp_port=           # the server's, once it listens
exchange=127.0.0.1  # its address

server_options=()

# start_server: in the background, until it listens; sets $server_pid and $tcp_port
start_server() {
  rm -f "$folder/server.out"  # the last one's port is not this one's
  "${in_space[@]}" "$perf" --config "$folder/server.toml" --server --port 0 "${server_options[@]}" \
    >"$folder/server.out" 2>"$folder/server.err" &
  server_pid=$!
  on_exit kill_now "$server_pid"
  watch=$server_pid await_line "$folder/server.out" '^listening on TCP port '
  tcp_port=$(sed -n 's/^listening on TCP port \([0-9]*\)$/\1/p' "$folder/server.out")
}
# client TEST_OPTIONS...: runs it; its exit status
client() {
  bounded "${in_client[@]}" "$perf" --config "$folder/client.toml" --client "$exchange" --port "$tcp_port" -- "$@" \
    >"$folder/client.out" 2>"$folder/client.err"
}
# expect_server WHAT: the server ends well
expect_server() { await_end "$server_pid" || fail "server of: $*"; }
# expect_pair TEST_OPTIONS...: a server and a client, both of which must end well
expect_pair() {
  start_server
  client "$@" || fail "client: $*"
  expect_server "$@"
  echo "ok: $*"
}
# await_traffic: until data moves between the server and a client. The programs have to start with RUNTIME_DIRECTORY=$folder/run.
await_traffic() { await_that "$tests_folder/interop/e2e/counters.py" "$folder/run" transport.rx_packets 100; }
