# SPDX-License-Identifier: BSD-3-Clause
# Functions that the scripts share. This file is sourced, never run.
# shellcheck shell=bash

root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# A compiler cache, where there is one, serves every checkout: a clone, the copy of scripts/mutants, a root filesystem. An object is the same
# whether warnings are errors or not; a cached one brings its warnings, and compile looks at them.
export CCACHE_BASEDIR=$root_dir CCACHE_NOHASHDIR=1 CCACHE_IGNOREOPTIONS=-Werror

say() { printf '== %s\n' "$*"; }
die() {
  printf 'faultline: %s\n' "$*" >&2
  exit 2
}

# Prints this user's build folder: build/ in the checkout, or one next to it if another user owns build/.
build_root() {
  local dir=${FAULTLINE_BUILD_DIR:-$root_dir/build}
  if [ -e "$dir" ] && [ ! -O "$dir" ]; then dir=$dir-$(id -un); fi
  mkdir -p "$dir" 2>/dev/null ||
    die "cannot make $dir: clone the repository as this user, or set FAULTLINE_BUILD_DIR to a folder it may write"
  printf '%s\n' "$dir"
}

# configure NAME [MESON OPTIONS...]: sets build_dir and makes it a configured build folder. Debug information has line numbers only, for
# stack traces: this takes a third of the time to compile. A unit is up to 16 sources of a target, as most of the time is spent in reading
# the headers. FAULTLINE_WERROR=true makes each warning an error, as in CI: no user's compiler is known here.
configure() {
  build_dir=$(build_root)/$1
  shift
  set -- -Ddebug=false -Dcpp_args=-g1 -Dunity=on -Dunity_size=16 ${FAULTLINE_WERROR:+"-Dwerror=$FAULTLINE_WERROR"} "$@"
  if [ -f "$build_dir/build.ninja" ]; then
    meson configure "$build_dir" "$@" >/dev/null
  else
    say "configuring $(shown "$build_dir")"
    meson setup "$build_dir" "$root_dir" "$@" >"$build_dir.setup.log" 2>&1 || {
      tail -n 30 "$build_dir.setup.log" >&2
      die "meson setup failed, see $build_dir.setup.log"
    }
  fi
}

# configure_run: configures build_dir for scripts/run. If scripts/test has configured it, its tests remain.
configure_run() {
  if [ -f "$(build_root)/plain/build.ninja" ]; then configure plain; else configure plain -Dtests=false -Dbenchmarks=false; fi
}

# shellcheck disable=SC2034 # for scripts/run
# The targets that a program needs. scripts/run builds only these, also if tests are configured.
run_targets=(apps/faultline apps/faultline-perf apps/faultline-run apps/faultline-sim apps/faultline-switch libfaultline.so.0 stack/abi/libibverbs.so.1)

# shown PATH: prints the path relative to the caller's folder
shown() { realpath --relative-base="$PWD" "$1"; }

# duration SECONDS
duration() { if [ "$1" -lt 120 ]; then printf '%d s\n' "$1"; else printf '%d min\n' $((($1 + 30) / 60)); fi; }

# ninja_count: prints the last "N/M" of ninja's counters in stdin
ninja_count() { grep -o '^\[[0-9]*/[0-9]*\]' | tail -n 1 | tr -d '[]'; }

# follow LOG: prints ninja's progress until this script ends or kills it: in one line on a terminal, otherwise a line each half minute.
follow() {
  local begun=$SECONDS next=30 count
  while sleep 1 && kill -0 $$ 2>/dev/null; do
    count=$(ninja_count <"$1") || true
    [ -n "$count" ] || continue
    if [ -t 1 ]; then
      printf '\r   [%s] %s ' "$count" "$(duration $((SECONDS - begun)))"
    elif [ $((SECONDS - begun)) -ge "$next" ]; then
      next=$((SECONDS - begun + 30))
      printf '   [%s] %s\n' "$count" "$(duration $((SECONDS - begun)))"
    fi
  done
}

# A step of the build takes about three seconds of CPU time, measured on two CPUs of 2024 without a compiler cache.
seconds_a_step=3

# compile [TARGETS...]: builds in build_dir; prints the amount of work, the progress and the duration.
compile() {
  local log=$build_dir.build.log begun=$SECONDS follower count
  # Without this, a changed option would make the count below one step: the regeneration of build.ninja.
  ninja -C "$build_dir" build.ninja >"$log" 2>&1 || true
  count=$({ ninja -C "$build_dir" -n "$@" 2>/dev/null || true; } | ninja_count) || true
  count=${count#*/}
  if [ "${count:-0}" -gt 5 ]; then
    say "building in $(shown "$build_dir"): $count steps, about $(duration $((count * seconds_a_step / $(nproc) + 1))) on $(nproc) free CPUs; log: $(shown "$log")"
  else
    say "building in $(shown "$build_dir")"
  fi
  : >"$log"
  follow "$log" &
  follower=$!
  local status=0
  ninja -C "$build_dir" "$@" >"$log" 2>&1 || status=$?
  kill "$follower" 2>/dev/null || true
  wait "$follower" 2>/dev/null || true
  [ ! -t 1 ] || printf '\r\033[K'
  if [ "$status" -ne 0 ]; then
    { grep -E -A 12 'FAILED|error:' "$log" || true; } | sed -n 1,60p >&2
    die "the build failed, see $log"
  fi
  if [ "${FAULTLINE_WERROR:-}" = true ] && warnings_of "$log" >&2; then die "the build has warnings, see $log"; fi
  if [ "${count:-0}" -gt 5 ]; then say "built in $(duration $((SECONDS - begun)))"; fi
}

# warnings_of LOG: prints the compiler's warnings; false if there is none.
warnings_of() { sed 's/\x1b\[[0-9;]*[mK]//g' "$1" | grep -E 'warning: .*\[-W' | sort -u; }
