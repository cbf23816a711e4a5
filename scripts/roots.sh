# SPDX-License-Identifier: BSD-3-Clause
# Root filesystems of Debian, in which scripts/packages, scripts/release and scripts/systems build and try. This file is sourced, after common.sh.
# shellcheck shell=bash

# The mirrors are those of this machine.
# shellcheck disable=SC2016 # for apt-get
repositories() { apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sort -u; }
debian_mirror=${FAULTLINE_DEBIAN_MIRROR:-$(repositories | awk '!/security/ && !n++')}
debian_security=${FAULTLINE_DEBIAN_SECURITY:-$(repositories | awk '/security/ && !n++')}

# need_roots: sets roots_dir, where the archives of root filesystems are kept from run to run.
need_roots() {
  [ "$(id -u)" -eq 0 ] || die "$(basename "$0"): makes root filesystems and enters them: run it as root"
  command -v mmdebstrap >/dev/null || die "$(basename "$0"): needs mmdebstrap: sudo apt-get install mmdebstrap"
  [ -n "$debian_mirror" ] || die "$(basename "$0"): apt's sources name no repository of Debian: set FAULTLINE_DEBIAN_MIRROR to the address of a mirror"
  [ -n "$debian_security" ] || die "$(basename "$0"): apt's sources name no repository with security updates: set FAULTLINE_DEBIAN_SECURITY to the address of one"
  roots_dir=${FAULTLINE_ROOTS:-$(build_root)/roots}
  mkdir -p "$roots_dir/ccache"
}

# packages_of SECTION: the section of scripts/packages.txt, in one line with commas.
# shellcheck disable=SC2154 # of common.sh
packages_of() { awk -v wanted="[$1]" '/^#/ || NF == 0 { next } /^\[/ { section = $0; next } section == wanted' "$root_dir/scripts/packages.txt" | paste -sd,; }

# root_archive NAME SUITE VARIANT [PACKAGES]: makes $roots_dir/NAME.tar once. PACKAGES are separated by commas.
root_archive() {
  local name=$1 suite=$2 variant=$3 packages=${4:-} begun=$SECONDS
  [ ! -e "$roots_dir/$name.tar" ] || return 0
  say "root filesystem $name"
  local options=() sources=("deb $debian_mirror $suite main" "deb-src $debian_mirror $suite main")
  case $suite in
    # Testing: not every mirror has its security suite, which is empty. Its index is valid for a week, less than some mirrors are old.
    forky) options=(--aptopt='Acquire::Check-Valid-Until "false"') ;;
    *) sources+=("deb $debian_security $suite-security main") ;;
  esac
  mmdebstrap --mode=root --variant="$variant" "${options[@]}" ${packages:+--include="$packages"} "$suite" "$roots_dir/new-$name.tar" \
    "${sources[@]}" >"$roots_dir/$name.log" 2>&1 || {
    tail -n 20 "$roots_dir/$name.log" >&2
    die "mmdebstrap could not make $name, see $roots_dir/$name.log"
  }
  mv "$roots_dir/new-$name.tar" "$roots_dir/$name.tar"
  say "made in $(duration $((SECONDS - begun)))"
}

# open_root NAME FOLDER: unpacks the archive, with what the network needs, and a user that owns nothing.
open_root() {
  mkdir -p "$2"
  tar -C "$2" -xpf "$roots_dir/$1.tar" --exclude=./dev
  mkdir -p "$2/dev" "$2/ccache"
  cp -L /etc/resolv.conf /etc/hosts "$2/etc/"
  chroot "$2" useradd --create-home --shell /bin/bash user 2>/dev/null || true
}

# in_root FOLDER COMMAND...: in namespaces of its own, so that no process and no mount outlives it. With bare_root=1, /proc/sys
# is empty and the root filesystem is read-only, as in a strict container.
in_root() {
  local folder=$1
  shift
  # shellcheck disable=SC2016 # for the shell that is started
  BARE=${bare_root:-} unshare --mount --pid --fork --kill-child --propagation private bash -euc '
    root=$1 cache=$2
    shift 2
    mount --bind "$root" "$root"
    mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
    for name in null zero full random urandom tty; do touch "$root/dev/$name"; mount --bind "/dev/$name" "$root/dev/$name"; done
    mkdir "$root/dev/shm" "$root/dev/pts"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    for name in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${name%:*}" "$root/dev/${name#*:}"; done
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount -t proc proc "$root/proc"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    mount --bind "$cache" "$root/ccache"
    mount --rbind /sys "$root/sys"  # DPDK counts the CPUs there
    if [ -n "$BARE" ]; then
      mount -t tmpfs -o mode=0555,size=4k tmpfs "$root/proc/sys"
      mount -o remount,bind,ro "$root"
    fi
    unset BARE FAULTLINE_ROOTS FAULTLINE_BUILD_DIR TMPDIR
    export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive CCACHE_DIR=/ccache CCACHE_NOHASHDIR=1
    export CCACHE_SLOPPINESS=include_file_ctime,include_file_mtime,time_macros
    exec chroot "$root" "$@"' bash "$folder" "$roots_dir/ccache" "$@"
}

# as_user FOLDER COMMAND...: as in_root, as an ordinary user.
as_user() {
  local folder=$1
  shift
  in_root "$folder" setpriv --reuid user --regid user --clear-groups env HOME=/home/user "$@"
}

# copy_tree FOLDER: the files of this checkout that git knows, and those it would, as they are now.
copy_tree() {
  mkdir -p "$1"
  git -C "$root_dir" ls-files -z --cached --others --exclude-standard | (cd "$root_dir" && xargs -0 ls -d 2>/dev/null) | tar -C "$root_dir" -cf - -T - | tar -C "$1" -xf -
}
