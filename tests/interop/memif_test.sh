#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two processes on memif: either may come first; a killed one may come back; long frames pass; no rights are needed, and no home
# or runtime directory.
#   memif_test.sh DEVICE_HOST
set -euo pipefail
device_host=$1
directory=$(mktemp -d)
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  rm -rf "$directory"
}
trap cleanup EXIT

for role in server client; do
  number=$([[ $role == server ]] && echo 1 || echo 2)
  cat >"$directory/$role.toml" <<TOML
[[device]]
name = "faultline0"
ip = "198.18.0.$number/24"
[device.port]
kind = "memif"
role = "$role"
socket = "$directory/m.sock"
TOML
done

# start ROLE OPTIONS...: in the background; its pid in $started.
start() {
  local role=$1
  shift
  env -u HOME -u XDG_RUNTIME_DIR "$device_host" --config "$directory/$role.toml" --device faultline0 "$@" \
    >"$directory/$role.out" 2>&1 &
  started=$!
  pids+=("$started")
}
# run ROLE OPTIONS...: the same, waited for.
run() {
  local role=$1
  shift
  timeout -k 1 40 env -u HOME -u XDG_RUNTIME_DIR "$device_host" --config "$directory/$role.toml" --device faultline0 "$@"
}

echo "client first"
start client --seconds 120
client=$started
sleep 0.5
run server --wait-link --resolve 198.18.0.2

echo "server comes back, and again after it was killed"
start server --seconds 60
killed=$started
run_out=
for _ in $(seq 100); do grep -q '^open' "$directory/server.out" && break; sleep 0.1; done
kill -9 "$killed"
run server --wait-link --resolve 198.18.0.2

echo "client killed in the middle of a stream, and comes back"
kill -9 "$client"
start server --wait-link --resolve 198.18.0.2 --measure-tx 4200 --tx-ms 1500 --seconds 60
server=$started
start client --wait-link --seconds 60
client=$started
for _ in $(seq 100); do grep -q '^resolve' "$directory/server.out" && break; sleep 0.1; done
sleep 0.3
kill -9 "$client"
for _ in $(seq 100); do grep -q '^tx_mpps' "$directory/server.out" && break; sleep 0.1; done
kill -0 "$server" || { cat "$directory/server.out"; echo "the server died with its peer"; exit 1; }
run client --wait-link --resolve 198.18.0.1
kill "$server"

echo "long frames both ways"
wait "$server" || true
start server --wait-link --measure-tx 4200 --tx-ms 500 --measure-rx 1500
server=$started
run client --wait-link --measure-rx 700 --measure-tx 4200 --tx-ms 400 | tee "$directory/client.out"
wait "$server"
cat "$directory/server.out"
for role in server client; do
  grep -Eq '^rx_mpps (0\.0[1-9]|0\.[1-9]|[1-9])' "$directory/$role.out" || { echo "$role received next to nothing"; exit 1; }
done
