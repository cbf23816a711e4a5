#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a command while a zram device of its own is the machine's preferred swap; takes it away again, however the command ends.
#   with_zram.sh MIB COMMAND...
# Ends with the command's status, or with 77 and the reason where zram cannot be had.
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
mib=$1
shift
control=/sys/class/zram-control
need_root
need mkswap swapon swapoff
[ -d "$control" ] || modprobe zram num_devices=0 2>/dev/null || true
[ -r "$control/hot_add" ] || skip "the kernel has no zram"
number=$(cat "$control/hot_add" 2>/dev/null) || skip "may not add a zram device"
device=/dev/zram$number
# udev, which looks at new disks, may hold it for a moment.
reset() { echo 1 >"/sys/block/zram$number/reset"; } 2>/dev/null
remove() { echo "$number" >"$control/hot_remove"; } 2>/dev/null
on_exit await_that remove
on_exit await_that reset
if [ ! -b "$device" ]; then
  IFS=: read -r major minor <"/sys/block/zram$number/dev"
  mknod "$device" b "$major" "$minor" 2>/dev/null || skip "may not make $device"
  on_exit rm -f "$device"
fi
echo "${mib}M" >"/sys/block/zram$number/disksize"
mkswap "$device" >/dev/null
swapon -p 32767 "$device" 2>/dev/null || skip "may not swap to $device"
on_exit swapoff "$device"
status=0
"$@" || status=$?
exit "$status"
