#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# An ordinary user's port on an interface of the kernel's: what is missing is named, in one line, with what to do; what little
# locked memory there is, is made do with.
#   rights_test.sh DEVICE_HOST
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
device_host=$1
need_root
need setpriv ip
# A container's root may have none of these rights.
{ setpriv --reuid=60001 --regid=60001 --clear-groups true && unshare --mount true; } 2>/dev/null || skip "needs root's capabilities"
own_folder
cp "$device_host" "$folder/device_host"
mkdir -m 700 "$folder/run"
chown 60001 "$folder/run"
space=
new_namespace space
ip -n "$space" link add r0 type veth peer name r1
ip -n "$space" link set r1 up

# try KIND MEMLOCK_KIB CAPABILITIES: as an ordinary user; the output is $folder/try.out
try() {
  printf '[[device]]\nname = "d"\nip = "198.18.0.1/24"\n[device.port]\nkind = "%s"\ninterface = "r0"\n' "$1" >"$folder/device.toml"
  local status=0
  bounded ip netns exec "$space" env XDG_RUNTIME_DIR="$folder/run" prlimit --memlock="$(($2 * 1024))" \
    setpriv --reuid 60001 --regid 60001 --clear-groups --inh-caps "-all,$3" --ambient-caps "-all,$3" --bounding-set "-all,$3" \
    "$folder/device_host" --config "$folder/device.toml" --device d >"$folder/try.out" 2>&1 || status=$?
  return "$status"
}
# expect_output WORDS...
expect_output() {
  local words
  for words in "$@"; do
    grep -q -- "$words" "$folder/try.out" || fail "\"$words\" is missing"
  done
}
expect_no_output() {
  if grep -E -- "$1" "$folder/try.out"; then fail "noise"; fi
}

both=+net_raw,+net_admin
if try af_packet 8192 +net_admin; then fail "opened without CAP_NET_RAW"; fi
expect_output 'device.port.interface: a port of kind af_packet needs CAP_NET_RAW; '
expect_no_output 'EAL|PMD|af_packet_'
if try af_packet 8192 +net_raw; then fail "opened without CAP_NET_ADMIN"; fi
expect_output 'needs CAP_NET_ADMIN; '
if try af_packet 64 "$both"; then fail "opened without memory for its rings"; fi
expect_output 'RLIMIT_MEMLOCK) is 64 KiB' 'ulimit -l' CAP_IPC_LOCK
echo "ok: what is missing is named"
try af_packet 8192 "$both" || fail "with 8 MiB"
expect_output '^open d' 'frames in place of 2048' 'the interface r0 is down'
ip -n "$space" link set r0 up
# Where the limit may be raised at all.
if prlimit --memlock=$((32768 * 1024)) true 2>/dev/null; then
  try af_packet 32768 "$both" || fail "with 32 MiB"
  expect_output '^open d'
  expect_no_output 'frames in place of|is down'
fi
if try af_xdp 8192 +net_raw; then fail "af_xdp opened without rights"; fi
expect_output 'a port of kind af_xdp needs CAP_NET_ADMIN, CAP_BPF; '
expect_no_output 'libbpf|libxdp|PMD'
echo "ok: rings by the limit"
