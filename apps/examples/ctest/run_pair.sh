#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs two programs at the two ends of a wire of their own. The exit status is 0 if both succeed.
#   run_pair.sh FAULTLINE_RUN SERVER [ARGUMENT...] : CLIENT [ARGUMENT...]
# The server is at 198.18.0.1 (side a), the client at 198.18.0.2 (side b). An argument PORT becomes a free TCP port, the same for both:
# ports are the whole host's, on whichever wire.
set -uo pipefail
faultline_run=$1
shift
port=$((10000 + RANDOM % 22000))
while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((10000 + RANDOM % 22000)); done
server=()
while [ $# -gt 0 ] && [ "$1" != : ]; do
  if [ "$1" = PORT ]; then server+=("$port"); else server+=("$1"); fi
  shift
done
shift || {
  echo "run_pair.sh: there is no client: its command follows a colon" >&2
  exit 2
}
wire=pair-$$
"$faultline_run" --wire "$wire" --side a -- "${server[@]}" &
server_pid=$!
trap 'kill "$server_pid" 2>/dev/null' EXIT
client=()
for argument; do
  if [ "$argument" = PORT ]; then client+=("$port"); else client+=("$argument"); fi
done
"$faultline_run" --wire "$wire" --side b -- "${client[@]}"
client_status=$?
# A server whose client has failed would wait for another one.
[ "$client_status" -eq 0 ] || kill "$server_pid" 2>/dev/null
wait "$server_pid"
server_status=$?
echo "run_pair.sh: the client's exit status is $client_status, the server's $server_status" >&2
[ "$client_status" -eq 0 ] && [ "$server_status" -eq 0 ]
