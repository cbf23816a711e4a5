#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A server whose on-demand region is larger than the memory it may have: anonymous memory behind zram swap, or a shared mapping
# of a file on ext4. See odp_pressure.cpp for what is checked.
#   odp_pressure_test.sh ODP_PRESSURE swap|file [--full] [--image] [OPTIONS OF ODP_PRESSURE...]
#     --full    4 GiB of region (file: 2 GiB) in 1 GiB of memory, 256 MiB pinned
#     --image   file: on a loop-mounted image, also where the folder for temporary files is on ext4
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../../lib.sh"
program=$1
mode=$2
shift 2
here=$(dirname "$0")
region_mib=256 pin_mib=16
limit=(--limit-mib 64 --above-base)
size=(--operations 4000)
image=false
options=()
[ "$mode" = swap ] || region_mib=128
while [ $# -gt 0 ]; do
  case $1 in
    --full)
      region_mib=4096 pin_mib=256
      [ "$mode" = swap ] || region_mib=2048
      limit=(--limit-mib 1024)
      size=(--operations 500000)
      ;;
    --image) image=true ;;
    *) options+=("$1") ;;
  esac
  shift
done

need_root
own_folder

# cgroup_folder TYPE CONTROLLER: where this process's cgroup of that hierarchy is
cgroup_folder() {
  local root path
  root=$(awk -v type="$1" -v controller="$2" '$3 == type && (controller == "" || ("," $4 ",") ~ ("," controller ",")) {print $2; exit}' \
    /proc/self/mounts)
  [ -n "$root" ] || return 1
  path=$(awk -F: -v controller="$2" '$2 == controller || ("," $2 ",") ~ ("," controller ",") && controller != "" {print $3; exit}' \
    /proc/self/cgroup)
  if [ -d "$root$path" ]; then path=$root$path; else path=$root; fi
  echo "$root ${path%/}"
}
# Below our own, so that what limits us limits it too. In version 2 a group with processes has no children with controllers:
# below the nearest ancestor that has.
make_cgroup() {
  local root parent
  if read -r root parent < <(cgroup_folder cgroup memory); then
    :
  elif read -r root parent < <(cgroup_folder cgroup2 ""); then
    until grep -qw memory "$parent/cgroup.subtree_control"; do
      [ "$parent" != "$root" ] || return 1
      parent=${parent%/*}
    done
  else
    return 1
  fi
  mkdir "$parent/faultline-$$" 2>/dev/null && cgroup=$parent/faultline-$$
}
cgroup=
make_cgroup || skip "no memory cgroup can be made"
# It goes once its last process has.
on_exit await_that rmdir "$cgroup"

memif_pair ''
for role in server client; do printf '[odp]\npin_budget_mib = %s\n' "$pin_mib" >>"$folder/$role.toml"; done
command=("$program" "$mode" --config-folder "$folder" --cgroup "$cgroup" --region-mib "$region_mib" --pin-mib "$pin_mib"
  "${limit[@]}" "${size[@]}" "${options[@]}")

status=0
case $mode in
  swap) "$here/../with_zram.sh" $((region_mib * 2)) "${command[@]}" || status=$? ;;
  file)
    mkdir "$folder/disk"
    if $image || [ "$(stat -f -c %T "$folder")" != ext2/ext3 ]; then
      need mkfs.ext4 losetup mount
      truncate -s $((region_mib * 5 / 4 + 64))M "$folder/image"
      mkfs.ext4 -q -F "$folder/image"
      # Directly: the image's own pages would be kept in memory a second time.
      loop=$(losetup --find --show --direct-io=on "$folder/image" 2>/dev/null) || skip "may not set up a loop device"
      on_exit losetup -d "$loop"
      mount -t ext4 "$loop" "$folder/disk" 2>/dev/null || skip "may not mount an ext4 image"
      on_exit umount "$folder/disk"
    fi
    "${command[@]}" --file "$folder/disk/region" || status=$?
    ;;
  *) echo "odp_pressure_test.sh: swap or file, not $mode"; status=2 ;;
esac
exit "$status"
