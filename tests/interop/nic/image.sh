#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds what a guest of the NIC lab boots: the kernel of the kernel peer (../kernel/guest/image.sh), its modules for NICs and vfio, and a
# first process that makes this machine's files the guest's.
#   image.sh            prints the directory that has vmlinuz and initrd; builds them if they are missing
# If something cannot be had, the script prints a line and exits with status 77.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
modules=(9pnet_virtio 9p overlay virtio-rng virtio_net e1000e igb vmxnet3 tun vfio-pci vfio_iommu_type1 veth sch_netem sch_tbf sch_red sch_fq_codel)

cannot() {
  printf 'SKIPPED: no NIC lab: %s\n' "$*" >&2
  exit 77
}

for tool in dpkg-deb depmod modprobe cpio sha256sum flock; do
  command -v $tool >/dev/null || cannot "$tool is not installed"
done
peer=$(bash "$here/../kernel/guest/image.sh") || exit $?
cache=$(dirname "$peer")
image=$cache/nic-$(cat "$here/image.sh" "$here/init" "$peer/manifest" | sha256sum | cut -c 1-16)
exec 9>"$cache/nic-lock"
flock 9
if [ ! -e "$image/initrd" ]; then
  work=$(mktemp -d "$cache/build.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  root=$work/root
  tree=$work/tree
  mkdir -p "$image" "$tree" "$root"/{bin,proc,sys,dev,new,lib/modules}
  # The peer's image came from these archives, so vmlinuz and modules agree.
  while read -r package version; do
    case $package in
      linux-* | busybox-static) ;;
      *) continue ;;
    esac
    archive=$cache/apt/cache/archives/${package}_${version//:/%3a}_amd64.deb
    [ -e "$archive" ] || cannot "$archive is gone; remove $peer to fetch it again"
    dpkg-deb -x "$archive" "$tree"
  done <"$peer/manifest"
  [ -e "$tree/lib/modules" ] || ln -s usr/lib "$tree/lib"
  kver=$(basename "$(dirname "$(printf '%s\n' "$tree"/lib/modules/*/kernel | sed -n 1p)")")
  depmod -b "$tree" "$kver"
  for module in "${modules[@]}"; do
    modprobe -d "$tree" -S "$kver" --show-depends "$module" || cannot "the kernel has no $module"
  done | sed -n "s|^insmod .*/lib/modules/||p" | sort -u | while read -r file; do
    mkdir -p "$(dirname "$root/lib/modules/$file")"
    case $file in
      *.xz) xz -dc "$tree/lib/modules/$file" >"$root/lib/modules/${file%.xz}" ;;
      *) cp "$tree/lib/modules/$file" "$root/lib/modules/$file" ;;
    esac
  done
  cp "$tree/lib/modules/$kver"/modules.{order,builtin,builtin.modinfo} "$root/lib/modules/$kver/"
  depmod -b "$root" "$kver"
  install -m 755 "$tree/usr/bin/busybox" "$root/bin/busybox"
  install -m 755 "$here/init" "$root/init"
  ln -sf "$peer/vmlinuz" "$image/vmlinuz"
  (cd "$root" && find . -print0 | LC_ALL=C sort -z | cpio --quiet -0 -o -H newc -R 0:0 --reproducible) >"$work/initrd"
  mv "$work/initrd" "$image/initrd"
  find "$cache" -maxdepth 1 -name 'nic-?*' -type d ! -path "$image" -mtime +2 -exec rm -rf {} +
fi
printf '%s\n' "$image"
