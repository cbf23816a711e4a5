#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a command while a zram device of its own is the machine's preferred swap; takes it away again, however the command ends.
#   with_zram.sh MIB COMMAND...
# Ends with the command's status, or with 77 and the reason where zram cannot be had.
set -euo pipefail
mib=$1
shift
control=/sys/class/zram-control
number=
swaps=false
made_node=false
skip() { echo "SKIPPED: $*"; exit 77; }
cleanup() {
  [ -n "$number" ] || return 0
  if $swaps; then swapoff "$device" || true; fi
  # Who looks at new disks (udev) may hold it for a moment.
  for _ in $(seq 50); do
    echo 1 >"/sys/block/zram$number/reset" && echo "$number" >"$control/hot_remove" && break
    sleep 0.1
  done 2>/dev/null
  if $made_node; then rm -f "$device"; fi
}
trap cleanup EXIT

[ "$(id -u)" -eq 0 ] || skip "needs root for zram swap"
for tool in mkswap swapon swapoff; do command -v "$tool" >/dev/null || skip "$tool is not installed"; done
[ -d "$control" ] || modprobe zram num_devices=0 2>/dev/null || true
[ -r "$control/hot_add" ] || skip "the kernel has no zram"
number=$(cat "$control/hot_add" 2>/dev/null) || skip "may not add a zram device"
device=/dev/zram$number
if [ ! -b "$device" ]; then
  IFS=: read -r major minor <"/sys/block/zram$number/dev"
  mknod "$device" b "$major" "$minor" 2>/dev/null || skip "may not make $device"
  made_node=true
fi
echo "${mib}M" >"/sys/block/zram$number/disksize"
mkswap "$device" >/dev/null
swapon -p 32767 "$device" 2>/dev/null || skip "may not swap to $device"
swaps=true
status=0
"$@" || status=$?
exit "$status"
