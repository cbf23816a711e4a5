#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds the image that a kernel peer boots: Debian's newest kernel, with Soft-RoCE, and a file system with Debian's RDMA programs.
#   image.sh            prints the directory that has vmlinuz, initrd and manifest; builds them if they are missing
# All of it is from Debian packages, fetched with a private apt state: nothing is installed here. The machine's own apt configuration is
# only read, to find its mirror. If something cannot be had, the script prints a line and exits with status 77.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FAULTLINE_PEER_CACHE:-${XDG_CACHE_HOME:-$([ "$(id -u)" = 0 ] && echo /var/cache || echo "$HOME/.cache")}/faultline-peer}
suite=trixie
kernel_suite=trixie-backports
lib_dir=usr/lib/x86_64-linux-gnu
boot_modules=(virtio_net virtio-rng 9pnet_virtio 9p ib_core ib_uverbs rdma_cm rdma_ucm rdma_rxe)
spare_modules=(8021q sch_netem sch_prio cls_u32 cls_flower)
# Copied whole, except their documentation; readelf finds the libraries that they need.
packages=(busybox-static dash iproute2 ibverbs-utils rdmacm-utils perftest)

cannot() {
  printf 'SKIPPED: no kernel peer: %s\n' "$*" >&2
  exit 77
}

# private_apt PROGRAM WORDS...: with the image's suites and lists, and nothing installed, so that apt lists all dependencies.
private_apt() {
  local program=$1
  shift
  "$program" -q -q -o Dir::Etc::SourceList="$cache/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null -o Dir::State="$cache/apt/state" \
    -o Dir::State::Lists="$cache/apt/state/lists" -o Dir::State::Status="$cache/apt/state/status" \
    -o Dir::Cache="$cache/apt/cache" -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Sandbox::User=root "$@"
}

prepare_apt() {
  local site keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  mkdir -p "$cache/apt/state/lists/partial" "$cache/apt/cache/archives/partial"
  : >"$cache/apt/state/status"
  # shellcheck disable=SC2016 # for apt to expand
  site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Label: Debian' | sort -u | sed -n 1p)
  [ -n "$site" ] || cannot "apt knows no Debian archive here"
  [ -r $keyring ] || cannot "debian-archive-keyring is not installed"
  printf "deb [signed-by=$keyring] %s %s main\n" "$site" "$suite" "$site" "$kernel_suite" >"$cache/apt/sources.list"
  private_apt apt-get update >&2 || cannot "the mirror does not offer $suite and $kernel_suite"
}

# archive_of PACKAGE VERSION: the path of its download
archive_of() {
  local file
  for file in "$cache/apt/cache/archives/$1_${2//:/%3a}"_{amd64,all}.deb; do
    if [ -e "$file" ]; then
      printf '%s\n' "$file"
      return
    fi
  done
  cannot "$1 $2 is not there after its download"
}

# unpack_closure INTO PACKAGES...: unpacks them and all their dependencies; INTO.manifest has the version of each
unpack_closure() {
  local into=$1 package version
  shift
  mkdir -p "$into"
  private_apt apt-get install -y --no-install-recommends --download-only "$@" >/dev/null || cannot "could not download $*"
  private_apt apt-get install -y --no-install-recommends -s "$@" |
    awk '$1 == "Inst" { print $2, substr($3, 2) }' >"$into.manifest"
  while read -r package version; do dpkg-deb -x "$(archive_of "$package" "$version")" "$into"; done <"$into.manifest"
}

# add_libraries FROM ROOT: adds the loader and the libraries that ROOT's programs need, until none is missing
add_libraries() {
  local from=$1 root=$2 again=1 lib
  mkdir -p "$root/usr/lib64" "$root/$lib_dir"
  cp -L "$from/usr/lib64/ld-linux-x86-64.so.2" "$root/usr/lib64/"
  # No program is linked with it: the C library loads it to end a thread.
  cp -L "$from/$lib_dir/libgcc_s.so.1" "$root/$lib_dir/"
  while ((again)); do
    again=0
    while read -r lib; do
      if [ -e "$root/$lib_dir/$lib" ] || [ -e "$root/usr/lib64/$lib" ]; then continue; fi
      [ -e "$from/$lib_dir/$lib" ] || cannot "no package has $lib"
      cp -L "$from/$lib_dir/$lib" "$root/$lib_dir/$lib"
      again=1
    done < <(find "$root/usr" -type f \( -perm /111 -o -name '*.so*' \) ! -path '*/modules/*' -exec readelf -d {} + 2>/dev/null |
      sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p' | sort -u)
  done
}

# add_kernel OUT ROOT WORK: adds OUT/vmlinuz, and below ROOT the required modules with their dependencies
add_kernel() {
  local out=$1 root=$2 tree=$3/kernel real version package kver modules module
  real=$(private_apt apt-cache show -t "$kernel_suite" linux-image-amd64 | sed -n 's/^Depends:.*\(linux-image-[0-9][^ ,]*\).*/\1/p' |
    sort -V | tail -n 1)
  [ -n "$real" ] || cannot "$kernel_suite has no kernel"
  version=$(private_apt apt-cache madison "$real" | awk -F ' *[|] *' '!seen++ { print $2 }')
  mkdir -p "$tree"
  # Newer kernels are split into several packages.
  while read -r package; do
    (cd "$cache/apt/cache/archives" && private_apt apt-get download "$package=$version" >/dev/null) || cannot "could not download $package"
    dpkg-deb -x "$(archive_of "$package" "$version")" "$tree"
    printf '%s %s\n' "$package" "$version" >>"$out/manifest"
  done < <(
    printf '%s\n' "$real"
    private_apt apt-cache show "$real=$version" | sed -n 's/^Depends: //p' | sed 's/[,|]/\n/g' |
      sed -n 's/^ *\(linux-\(base\|binary\|modules\)-[0-9][^ ]*\).*/\1/p'
  )
  [ -e "$tree/lib" ] || ln -s usr/lib "$tree/lib"
  kver=$(basename "$(dirname "$(printf '%s\n' "$tree"/lib/modules/*/kernel | sed -n 1p)")")
  modules=$tree/lib/modules/$kver
  cp "$(printf '%s\n' "$modules/vmlinuz" "$tree/boot/vmlinuz-$kver" | xargs ls -d 2>/dev/null | sed -n 1p)" "$out/vmlinuz"
  depmod -b "$tree" "$kver"
  mkdir -p "$root/usr/lib/modules/$kver"
  cp "$modules"/modules.{order,builtin,builtin.modinfo} "$root/usr/lib/modules/$kver/"
  for module in "${boot_modules[@]}" "${spare_modules[@]}"; do
    awk -v want="${module//-/_}" '
      function base(path) { sub(".*/", "", path); sub("[.]ko.*", "", path); gsub("-", "_", path); return path }
      { split($1, file, ":"); if (base(file[1]) == want) { sub(":", ""); print } }' "$modules/modules.dep"
  done | tr ' ' '\n' | sed '/^$/d' | sort -u | while read -r module; do
    mkdir -p "$(dirname "$root/usr/lib/modules/$kver/$module")"
    case $module in
      *.xz) xz -dc "$modules/$module" >"$root/usr/lib/modules/$kver/${module%.xz}" ;;
      *) cp "$modules/$module" "$root/usr/lib/modules/$kver/$module" ;;
    esac
  done
  depmod -b "$root" "$kver"
  printf '%s\n' "${boot_modules[@]}" >"$root/etc/boot-modules"
}

build() {
  local out=$1 work=$2 root=$2/root all=$2/all package version dir
  prepare_apt
  unpack_closure "$all" "${packages[@]}" python3-pyverbs ibverbs-providers
  cp "$all.manifest" "$out/manifest"
  mkdir -p "$root"/{usr/{bin,sbin,lib,lib64,libexec},etc/libibverbs.d,dev,proc,sys,run,tmp,root} "$root/$lib_dir/libibverbs"
  for dir in bin sbin lib lib64; do ln -s "usr/$dir" "$root/$dir"; done
  for package in "${packages[@]}"; do
    version=$(awk -v package="$package" '$1 == package { print $2 }' "$all.manifest")
    dpkg-deb --fsys-tarfile "$(archive_of "$package" "$version")" | tar -x -C "$root" --keep-directory-symlink \
      --exclude='./usr/share' --exclude='./etc/init.d' --exclude='./usr/lib/systemd'
  done
  # Of the verbs providers, only rxe's.
  cp "$all/etc/libibverbs.d/rxe.driver" "$root/etc/libibverbs.d/"
  cp "$all/$lib_dir"/libibverbs/librxe-*.so "$root/$lib_dir/libibverbs/"
  cp -a "$all"/usr/bin/python3* "$root/usr/bin/"
  cp -a "$all"/usr/lib/python3* "$root/usr/lib/"
  find "$root"/usr/lib/python3* -depth \( -name test -o -name idlelib -o -name ensurepip -o -name __pycache__ -o -name pydoc_data \) \
    -exec rm -rf {} +
  # pyverbs' tests have the classes that set up pairs of QPs.
  mkdir -p "$root/usr/share/rdma-core"
  cp -a "$all/usr/share/doc/rdma-core/tests" "$root/usr/share/rdma-core/"
  gunzip -r "$root/usr/share/rdma-core/tests"
  add_libraries "$all" "$root"
  ln -sf dash "$root/usr/bin/sh"
  ln -sf ../bin/busybox "$root/usr/sbin/modprobe"
  printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
  printf 'root:x:0:0:root:/root:/bin/sh\n' >"$root/etc/passwd"
  printf 'root:x:0:\n' >"$root/etc/group"
  printf 'hosts: files\n' >"$root/etc/nsswitch.conf"
  install -m 755 "$here/init" "$root/init"
  install -m 755 "$here/agent.py" "$root/usr/libexec/agent.py"
  add_kernel "$out" "$root" "$work"
  (cd "$root" && find . -print0 | LC_ALL=C sort -z | cpio --quiet -0 -o -H newc -R 0:0 --reproducible) >"$out/initrd"
}

for tool in apt-get apt-cache dpkg-deb readelf depmod cpio xz sha256sum flock; do
  command -v $tool >/dev/null || cannot "$tool is not installed"
done
mkdir -p "$cache"
# These files determine the contents of an image; newer packages of the same name do not cause a new build.
image=$cache/image-$(cat "$here/image.sh" "$here/init" "$here/agent.py" | sha256sum | cut -c 1-16)
exec 9>"$cache/lock"
flock 9
if [ ! -e "$image/initrd.complete" ]; then
  work=$(mktemp -d "$cache/build.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$image"
  build "$image" "$work"
  : >"$image/initrd.complete"
  # Removes the images of older versions of these files.
  find "$cache" -maxdepth 1 -name 'image-*' ! -path "$image" -mtime +2 -exec rm -rf {} +
fi
printf '%s\n' "$image"
