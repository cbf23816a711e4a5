# SPDX-License-Identifier: BSD-3-Clause
# What the scripts share. Sourced, never run.
# shellcheck shell=bash

root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '== %s\n' "$*"; }
die() {
  printf 'faultline: %s\n' "$*" >&2
  exit 2
}

# Where this user builds: build/ in the checkout, or beside it where another user's build stands there already.
build_root() {
  local dir=${FAULTLINE_BUILD_DIR:-$root_dir/build}
  if [ -e "$dir" ] && [ ! -O "$dir" ]; then dir=$dir-$(id -un); fi
  mkdir -p "$dir" 2>/dev/null ||
    die "cannot make $dir: clone the repository as this user, or set FAULTLINE_BUILD_DIR to a folder it may write"
  printf '%s\n' "$dir"
}

# configure NAME [MESON OPTIONS...]: sets build_dir and makes it a configured build folder. With line numbers, for what a stack
# trace needs, and nothing else for a debugger: that takes a third of the time to compile.
configure() {
  build_dir=$(build_root)/$1
  shift
  set -- -Ddebug=false -Dcpp_args=-g1 "$@"
  if [ -f "$build_dir/build.ninja" ]; then
    meson configure "$build_dir" "$@" >/dev/null
  else
    meson setup "$build_dir" "$root_dir" "$@" >"$build_dir.setup.log" 2>&1 || {
      tail -n 30 "$build_dir.setup.log" >&2
      die "meson setup failed, see $build_dir.setup.log"
    }
  fi
}

# compile [TARGETS...]: builds in build_dir, quiet unless it fails.
compile() {
  local log=$build_dir.build.log
  ninja -C "$build_dir" "$@" >"$log" 2>&1 || {
    grep -E -A 12 'FAILED|error:' "$log" | head -n 60 >&2
    die "the build failed, see $log"
  }
}
