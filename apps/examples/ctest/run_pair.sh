#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs two programs at the two ends of a wire of their own. The exit status is 0 if both succeed.
#   run_pair.sh FAULTLINE_RUN SERVER [ARGUMENT...] : CLIENT [ARGUMENT...]
# The server is at 198.18.0.1 (side a), the client at 198.18.0.2 (side b).
set -uo pipefail
faultline_run=$1
shift
server=()
while [ $# -gt 0 ] && [ "$1" != : ]; do
  server+=("$1")
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
"$faultline_run" --wire "$wire" --side b -- "$@"
client_status=$?
# A server whose client has failed would wait for another one.
[ "$client_status" -eq 0 ] || kill "$server_pid" 2>/dev/null
wait "$server_pid"
server_status=$?
echo "run_pair.sh: the client's exit status is $client_status, the server's $server_status" >&2
[ "$client_status" -eq 0 ] && [ "$server_status" -eq 0 ]
