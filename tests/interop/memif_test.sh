#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two processes on memif: either may come first; a killed one may come back; long frames pass; no rights are needed, and no home
# or runtime directory.
#   memif_test.sh DEVICE_HOST
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
device_host=$1
own_folder
memif_pair ''

# device ROLE OPTIONS...: the words that start it
device() {
  local role=$1
  shift
  words=(env -u HOME -u XDG_RUNTIME_DIR "$device_host" --config "$folder/$role.toml" --device faultline0 "$@")
}
# start_device ROLE OPTIONS...: in the background, until it is open; its pid in $started
start_device() {
  device "$@"
  start "$1" "${words[@]}"
  watch=$started await_line "$folder/$1.out" '^open'
}
# run_device ROLE OPTIONS...: the same, to its end
run_device() {
  device "$@"
  bounded "${words[@]}" >"$folder/$1.out" 2>&1 || fail "$*"
}

start_device client --stay
client=$started
run_device server --wait-link --resolve 198.18.0.2
echo "ok: the client comes first"

start_device server --stay
kill_now "$started"
run_device server --wait-link --resolve 198.18.0.2
echo "ok: the server comes back, and again after it was killed"

kill_now "$client"
start_device server --wait-link --send 4200 --stay
server=$started
start_device client --wait-link --receive 1000000000000
watch=$started await_line "$folder/client.out" '^receives'
kill_now "$started"
kill -USR1 "$server"
watch=$server await_line "$folder/server.out" '^sent [1-9]'
run_device client --wait-link --resolve 198.18.0.1
end "$server" || fail "the server of a killed client"
echo "ok: a client is killed in the middle of a stream, and comes back"

for sender in server client; do
  receiver=$([ "$sender" = server ] && echo client || echo server)
  start_device "$sender" --wait-link --send 4200 --stay
  run_device "$receiver" --wait-link --receive 5000
  kill -USR1 "$started"
  end "$started" || fail "the $sender of long frames"
done
echo "ok: long frames both ways"
