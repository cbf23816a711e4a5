#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two ordinary users without a runtime directory, on a host where a third one's DPDK has been before: each has its telemetry, and
# nothing about it on stderr.
#   users_test.sh DEVICE_HOST
set -euo pipefail
device_host=$1
[ "$(id -u)" = 0 ] || { echo "SKIPPED: needs root"; exit 77; }
command -v setpriv >/dev/null || { echo "SKIPPED: needs setpriv"; exit 77; }
# A container's root may have none of these rights.
{ setpriv --reuid=60001 --regid=60001 --clear-groups true && unshare --mount true; } 2>/dev/null || { echo "SKIPPED: needs root's capabilities"; exit 77; }
# A /tmp of its own.
if [ -z "${FAULTLINE_OWN_TMP:-}" ]; then
  copy=$(mktemp -d)
  trap 'rm -rf "$copy"' EXIT
  FAULTLINE_OWN_TMP=$copy unshare -m "$0" "$device_host"
  exit
fi
cp "$device_host" "$FAULTLINE_OWN_TMP/device_host"
mount -t tmpfs -o mode=1777 tmpfs /mnt
cp "$FAULTLINE_OWN_TMP/device_host" /mnt/device_host
mount --move /mnt /tmp
mkdir -m 700 /tmp/dpdk
chown 60003 /tmp/dpdk
for user in 60001 60002; do
  mkdir -m 700 "/tmp/of$user"
  printf '[[device]]\nname = "d"\nip = "198.18.0.1/24"\n[device.port]\nkind = "memif"\nrole = "server"\nsocket = "/tmp/of%s/m.sock"\n' \
    "$user" >"/tmp/of$user/device.toml"
  chown -R "$user" "/tmp/of$user"
  (cd "/tmp/of$user" && exec env -u HOME -u XDG_RUNTIME_DIR -u RUNTIME_DIRECTORY setpriv --reuid "$user" --regid "$user" --clear-groups \
    /tmp/device_host --config "/tmp/of$user/device.toml" --device d --seconds 30) >"/tmp/out$user" 2>"/tmp/err$user" &
  pid=$!
  for _ in $(seq 200); do grep -q '^open' "/tmp/out$user" && break; sleep 0.1; done
  grep -q '^open' "/tmp/out$user" || { echo "FAILED: $user's device does not open"; cat "/tmp/err$user"; exit 1; }
  [ -S "/tmp/faultline-$user/dpdk/faultline/dpdk_telemetry.v2" ] || { echo "FAILED: $user has no telemetry"; exit 1; }
  kill "$pid"
  wait "$pid" || true
  if grep -E 'EAL|dpdk|telemetry' "/tmp/err$user"; then echo "FAILED: $user is told of it"; exit 1; fi
  echo "ok: user $user"
done
