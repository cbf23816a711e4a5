#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# An ordinary user's port on an interface of the kernel's: what is missing is named, in one line, with what to do; what little
# locked memory there is, is made do with.
#   rights_test.sh DEVICE_HOST
set -euo pipefail
device_host=$1
[ "$(id -u)" = 0 ] || { echo "SKIPPED: needs root"; exit 77; }
command -v setpriv >/dev/null || { echo "SKIPPED: needs setpriv"; exit 77; }
# A container's root may have none of these rights.
{ setpriv --reuid=60001 --regid=60001 --clear-groups true && unshare --mount true; } 2>/dev/null || { echo "SKIPPED: needs root's capabilities"; exit 77; }
folder=$(mktemp -d)
space="rights$$"
trap 'ip netns del "$space" 2>/dev/null || true; rm -rf "$folder"' EXIT
chmod 755 "$folder"
cp "$device_host" "$folder/device_host"
mkdir -m 700 "$folder/run"
chown 60001 "$folder/run"
ip netns add "$space"
ip -n "$space" link add r0 type veth peer name r1
ip -n "$space" link set r1 up

# try KIND MEMLOCK_KIB CAPABILITIES: as an ordinary user; the output is $folder/output
try() {
  printf '[[device]]\nname = "d"\nip = "198.18.0.1/24"\n[device.port]\nkind = "%s"\ninterface = "r0"\n' "$1" >"$folder/device.toml"
  local status=0
  timeout 60 ip netns exec "$space" env XDG_RUNTIME_DIR="$folder/run" prlimit --memlock="$(($2 * 1024))" \
    setpriv --reuid 60001 --regid 60001 --clear-groups --inh-caps "-all,$3" --ambient-caps "-all,$3" --bounding-set "-all,$3" \
    "$folder/device_host" --config "$folder/device.toml" --device d >"$folder/output" 2>&1 || status=$?
  return "$status"
}
# expect_output WORDS...
expect_output() {
  for words in "$@"; do
    grep -q -- "$words" "$folder/output" || { echo "FAILED: \"$words\" is missing:"; cat "$folder/output"; exit 1; }
  done
}
expect_no_output() {
  if grep -E -- "$1" "$folder/output"; then echo "FAILED: noise"; exit 1; fi
}

both=+net_raw,+net_admin
if try af_packet 8192 +net_admin; then echo "FAILED: opened without CAP_NET_RAW"; exit 1; fi
expect_output 'device.port.interface: a port of kind af_packet needs CAP_NET_RAW; '
expect_no_output 'EAL|PMD|af_packet_'
if try af_packet 8192 +net_raw; then echo "FAILED: opened without CAP_NET_ADMIN"; exit 1; fi
expect_output 'needs CAP_NET_ADMIN; '
if try af_packet 64 "$both"; then echo "FAILED: opened without memory for its rings"; exit 1; fi
expect_output 'RLIMIT_MEMLOCK) is 64 KiB' 'ulimit -l' CAP_IPC_LOCK
echo "ok: what is missing is named"
try af_packet 8192 "$both" || { echo "FAILED: with 8 MiB"; cat "$folder/output"; exit 1; }
expect_output '^open d' 'frames in place of 2048' 'the interface r0 is down'
ip -n "$space" link set r0 up
# Where the limit may be raised at all.
if prlimit --memlock=$((32768 * 1024)) true 2>/dev/null; then
  try af_packet 32768 "$both" || { echo "FAILED: with 32 MiB"; cat "$folder/output"; exit 1; }
  expect_output '^open d'
  expect_no_output 'frames in place of|is down'
fi
if try af_xdp 8192 +net_raw; then echo "FAILED: af_xdp opened without rights"; exit 1; fi
expect_output 'a port of kind af_xdp needs CAP_NET_ADMIN, CAP_BPF; '
expect_no_output 'libbpf|libxdp|PMD'
echo "ok: rings by the limit"
