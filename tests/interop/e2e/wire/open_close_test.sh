#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Opens and closes a device many times: on a wire, over memif (either end) and over net_ring. FAULTLINE_SOAK takes as many cycles
# as a program with a long life may have.
#   open_close_test.sh OPEN_CLOSE FAULTLINE_RUN
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../../lib.sh"
open_close=$1
run=$2
cycles=$([ -n "${FAULTLINE_SOAK:-}" ] && echo 100000 || echo 400)
own_runtime_folder

echo "wire"
"$run" --wire open -- "$open_close" "$cycles"
for role in server client ring; do
  echo "$role"
  if [ "$role" = ring ]; then
    port=$'kind = "ring"\nwire = "w"\nside = "a"'
  else
    port=$(printf 'kind = "memif"\nrole = "%s"\nsocket = "%s/wire.sock"' "$role" "$folder")
  fi
  device_config device 198.18.0.1/24 "$port"
  "$run" --config "$folder/device.toml" -- "$open_close" "$cycles"
done
