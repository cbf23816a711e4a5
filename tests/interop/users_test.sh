#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two ordinary users without a runtime directory, on a host where a third one's DPDK has been before: each has its telemetry, and
# nothing about it on stderr.
#   users_test.sh DEVICE_HOST
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
device_host=$1
need_root
need setpriv
# A container's root may have none of these rights.
{ setpriv --reuid=60001 --regid=60001 --clear-groups true && unshare --mount true; } 2>/dev/null || skip "needs root's capabilities"
# Once more with a /tmp of its own.
if [ -z "${FAULTLINE_OWN_TMP:-}" ]; then
  own_folder
  cp "$device_host" "$folder/device_host"
  FAULTLINE_OWN_TMP=$folder unshare -m "$0" "$device_host"
  exit
fi
mount -t tmpfs -o mode=1777 tmpfs /mnt
cp "$FAULTLINE_OWN_TMP/device_host" /mnt/device_host
mount --move /mnt /tmp
folder=/tmp
mkdir -m 700 /tmp/dpdk
chown 60003 /tmp/dpdk
for user in 60001 60002; do
  mkdir -m 700 "/tmp/of$user"
  printf '[[device]]\nname = "d"\nip = "198.18.0.1/24"\n[device.port]\nkind = "memif"\nrole = "server"\nsocket = "/tmp/of%s/m.sock"\n' \
    "$user" >"/tmp/of$user/device.toml"
  chown -R "$user" "/tmp/of$user"
  (cd "/tmp/of$user" && exec env -u HOME -u XDG_RUNTIME_DIR -u RUNTIME_DIRECTORY setpriv --reuid "$user" --regid "$user" --clear-groups \
    /tmp/device_host --config "/tmp/of$user/device.toml" --device d --stay) >"/tmp/$user.out" 2>"/tmp/$user.err" &
  pid=$!
  on_exit kill_now "$pid"
  watch=$pid await_line "/tmp/$user.out" '^open'
  [ -S "/tmp/faultline-$user/dpdk/faultline/dpdk_telemetry.v2" ] || fail "$user has no telemetry"
  end "$pid" || fail "the device of $user"
  if grep -E 'EAL|dpdk|telemetry' "/tmp/$user.err"; then fail "$user is told of it"; fi
  echo "ok: user $user"
done
