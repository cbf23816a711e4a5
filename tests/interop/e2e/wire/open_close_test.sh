#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Opens and closes a device many times: on a wire, over memif (either end) and over net_ring. FAULTLINE_SOAK takes as many cycles
# as a program with a long life may have.
#   open_close_test.sh OPEN_CLOSE FAULTLINE_RUN
set -euo pipefail
open_close=$1
run=$2
cycles=$([ -n "${FAULTLINE_SOAK:-}" ] && echo 100000 || echo 400)
folder=$(mktemp -d)
chmod 700 "$folder"
export XDG_RUNTIME_DIR=$folder
trap 'rm -rf "$folder"' EXIT

echo "wire"
"$run" --wire "open$$" -- "$open_close" "$cycles"
for role in server client ring; do
  echo "$role"
  if [ "$role" = ring ]; then
    port=$'kind = "ring"\nwire = "w"\nside = "a"'
  else
    port=$(printf 'kind = "memif"\nrole = "%s"\nsocket = "%s/wire.sock"' "$role" "$folder")
  fi
  printf '[[device]]\nname = "faultline0"\nip = "198.18.0.1/24"\n[device.port]\n%s\n' "$port" >"$folder/device.toml"
  "$run" --config "$folder/device.toml" -- "$open_close" "$cycles"
done
