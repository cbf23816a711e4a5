# SPDX-License-Identifier: BSD-3-Clause
# What the end-to-end tests share. Sourced with the path of faultline-perf in $1.
# shellcheck shell=bash
perf=$1
folder=$(mktemp -d)
server_pid=
tcp_port=       # the server's, once it listens
in_space=()     # how to enter the server's network namespace
in_client=()    # and the client's
exchange=127.0.0.1

skip() { echo "SKIPPED: $*"; exit 77; }
fail() {
  echo "FAILED: $*"
  tail -n 5 "$folder"/*.out "$folder"/*.err 2>/dev/null || true
  exit 1
}
extra_cleanup() { :; }
cleanup() {
  if [ -n "$server_pid" ]; then kill -9 "$server_pid" 2>/dev/null || true; fi
  extra_cleanup
  rm -rf "$folder"
}
trap cleanup EXIT

# device_config ROLE HOST PORT_LINES [DEVICE_LINES]: $folder/ROLE.toml
device_config() {
  printf '[[device]]\nname = "faultline0"\nip = "198.18.0.%s/24"\n%s\n[device.port]\n%s\n' "$2" "${4:-}" "$3" >"$folder/$1.toml"
}
# memif_pair [DEVICE_LINES]: both ends of one memif wire
memif_pair() {
  device_config server 1 "$(printf 'kind = "memif"\nrole = "server"\nsocket = "%s/wire.sock"' "$folder")" "${1:-}"
  device_config client 2 "$(printf 'kind = "memif"\nrole = "client"\nsocket = "%s/wire.sock"' "$folder")" "${1:-}"
}

# start_server [OPTIONS...]: in the background, until it listens
start_server() {
  rm -f "$folder/server.out"  # the last one's port is not this one's
  "${in_space[@]}" timeout 300 "$perf" --config "$folder/server.toml" --server --port 0 "$@" \
    >"$folder/server.out" 2>"$folder/server.err" &
  server_pid=$!
  for _ in $(seq 300); do
    tcp_port=$(sed -n 's/^listening on TCP port \([0-9]*\)$/\1/p' "$folder/server.out" 2>/dev/null) && [ -n "$tcp_port" ] && return
    kill -0 "$server_pid" 2>/dev/null || break
    sleep 0.05
  done
  fail "the server did not start"
}
# await_connection PORT: until the server has a client, or for 30 s
await_connection() {
  for _ in $(seq 300); do
    [ -z "$("${in_space[@]}" ss -Htn state established "( sport = :$1 )")" ] || return 0
    sleep 0.1
  done
  fail "no client connects"
}
# client TEST_OPTIONS...: runs it; its exit status
client() {
  "${in_client[@]}" timeout 120 "$perf" --config "$folder/client.toml" --client "$exchange" --port "$tcp_port" -- "$@" \
    >"$folder/client.out" 2>"$folder/client.err"
}
# expect_pair TEST_OPTIONS...: a server and a client, both of which must end well
expect_pair() {
  start_server
  client "$@" || fail "client: $*"
  wait "$server_pid" || fail "server of: $*"
  server_pid=
  echo "ok: $*"
}
