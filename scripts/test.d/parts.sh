# SPDX-License-Identifier: BSD-3-Clause
# The parts of scripts/test, which sources this file: part_NAME runs one; tests_of_part lists its tests.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # the variables of scripts/test and of common.sh

# Tests with threads. Not the suite dpdk: DPDK is not instrumented, so that a hand-over by its rings looks like a race.
threaded=(odp odp-unprivileged verbs verbs-allocation glue cm-service)
tidy_output=$(build_root)/tidy.txt
tidy_status=$(build_root)/tidy.status

# step NAME COMMAND...: one check that is not a meson test.
step() {
  local name=$1
  shift
  say "$name"
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: %s\n' "$name"
  fi
}

# tests_of_part PART: prints the names of the tests of meson that a part runs.
tests_of_part() {
  case $1 in
    tests | coverage) "$helpers/choose.py" tests "$plain" default ;;
    rest) "$helpers/choose.py" tests "$plain" rest ${third:+"$third"} ;;
    chosen) "$helpers/choose.py" tests "$plain" "$mode" "${words[@]}" ;;
    stress) if [ "${#words[@]}" -gt 0 ]; then printf '%s\n' "${words[@]}"; else "$helpers/choose.py" tests "$plain" default; fi ;;
  esac
}

# add_results NAME LOG: adds up the results of a log of meson.
add_results() {
  if [ -s "$2" ]; then logs+=("$1=$2"); fi
  local counts p f s
  counts=$("$helpers/results.py" counts "$2" 2>/dev/null) || counts="0 1 0"
  read -r p f s <<<"$counts"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  if [ "$s" -gt 0 ]; then "$helpers/results.py" skipped "$2"; fi
}

# run_tests NAME [MESON TEST OPTIONS...]: the tests of build_dir; adds their results up.
run_tests() {
  local name=$1
  shift
  local log_base=testlog-$name begun=$SECONDS last=$build_dir.tests-$name.seconds
  rm -f "$build_dir/meson-logs/$log_base.json"
  # Meson prints the number of tests.
  say "tests: $name$([ ! -s "$last" ] || echo ", last time $(duration "$(cat "$last")")"); log: $(shown "$build_dir")/meson-logs/$log_base.txt"
  # Most tests wait rather than compute; those that are sensitive to others run alone.
  meson test -C "$build_dir" --no-rebuild --print-errorlogs --num-processes $(($(nproc) * 2)) --logbase "$log_base" "$@" || true
  echo $((SECONDS - begun)) >"$last"
  add_results "$name" "$build_dir/meson-logs/$log_base.json"
}

# run_part_tests PART: the tests of a part in the plain build. Without a name meson would run all.
run_part_tests() {
  build_dir=$plain
  local names
  mapfile -t names < <(tests_of_part "$1")
  if [ "${#names[@]}" -gt 0 ]; then
    run_tests "$1" "${names[@]}"
  elif [ "$1" = tests ]; then
    step "the suite default has tests" false
  else
    say "no tests of meson here"
  fi
}

# build_plain: everything for the rest and the counts of instructions; otherwise the product, and of the tests' programs what they need.
build_plain() {
  configure plain -Dtests=true -Dbenchmarks=true
  local targets=() names=() part
  if ! has_any rest instructions; then
    # The names may be of files that have changed, so the list of tests has to be new.
    ninja -C "$build_dir" build.ninja >"$build_dir.build.log" 2>&1 || true
    for part in tests chosen stress; do
      if has_part "$part"; then mapfile -t -O "${#names[@]}" names < <(tests_of_part "$part"); fi
    done
    mapfile -t targets < <("$helpers/choose.py" targets "$build_dir" product "${names[@]}")
  fi
  compile "${targets[@]}"
}

# The sanitizers' builds: most of the time is spent in compilation, so they are less optimised.
build_asan() {
  configure asan -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false -Dtests=true -Dbenchmarks=false
  mapfile -t targets < <("$helpers/choose.py" targets "$build_dir" suite:unit suite:sim suite:dpdk)
  compile "${targets[@]}"
}

build_tsan() {
  configure tsan -Doptimization=1 -Db_sanitize=thread -Db_lundef=false -Dtests=true -Dbenchmarks=false
  mapfile -t targets < <("$helpers/choose.py" targets "$build_dir" "${threaded[@]}")
  compile "${targets[@]}"
}

# Of a run with other parts, an eighth of the files, another eighth with each commit: all of them take more time than all tests. All where
# the part is asked for by name, and with --soak.
run_tidy() {
  local status=0 options=()
  if [ "$mode" != parts ] && ! $soak; then options=(--rotate 8); fi
  "$root_dir/scripts/tidy" "${options[@]}" >"$tidy_output" 2>&1 || status=$?
  echo "$status" >"$tidy_status"
}

check_tidy() { cat "$tidy_output" && [ "$(cat "$tidy_status")" -eq 0 ]; }

check_format() {
  git ls-files -z -- '*.cpp' '*.hpp' '*.h' '*.c' | xargs -0 -n 50 -P "$(nproc)" clang-format --dry-run --Werror
}

part_rooms() {
  step "includes and tests follow docs/rooms.md" "$root_dir/scripts/check-rooms"
  step "the picture of the rooms shows them" "$root_dir/docs/design/rooms.py" --check
}
part_format() {
  step "clang-format" check_format
  step "no script pipes into a command that ends early" "$root_dir/tests/pipes_test.py"
}
part_tests() { run_part_tests tests; }
part_rest() { run_part_tests rest; }
part_chosen() { run_part_tests chosen; }
part_threats() { step "docs/threats.md and docs/security.md name tests that exist" "$root_dir/scripts/check-threats" "$plain"; }
part_state() { step "docs/design/process-state.md lists the process-wide state" "$root_dir/scripts/check-state" "$plain"; }
part_instructions() {
  step "instructions of a message" tests/bench/instructions.py --build "$plain" --check tests/bench/instructions.json
}
part_tidy() {
  [ -e "$tidy_status" ] || run_tidy
  step "clang-tidy" check_tidy
}
part_asan() {
  build_asan
  run_tests asan --suite unit --suite sim --suite dpdk
}
part_tsan() {
  build_tsan
  run_tests tsan "${threaded[@]}"
}
# Each removes one guard, and a test has to fail.
part_changed_mutants() {
  step "every mutant applies" "$root_dir/scripts/mutants" --check
  step "mutants of the changed files" "$root_dir/scripts/mutants" --changed "${words[0]:-HEAD~1}" --limit 2
}
part_mutants() {
  local mutants=(--rotate 3)
  if $soak; then mutants=(); fi
  step "mutants" "$root_dir/scripts/mutants" "${mutants[@]}"
}
part_fuzz() {
  local seconds=10
  if $soak; then seconds=300; fi
  step "fuzzers, $seconds s each" "$root_dir/scripts/fuzz" --seconds "$seconds"
}
# scripts/run, an installation, and the unit and simulated tests on other systems; and the relocatable archive, made and tried where most
# users are. A third of the rest has one of them.
part_systems() {
  local systems=(trixie forky archive) system
  if [ -n "$third" ]; then systems=("$("$helpers/choose.py" system)"); fi
  for system in "${systems[@]}"; do
    case $system in
      archive) step_of_script release "the archive is made and runs on bookworm" bookworm ;;
      *) step_of_script systems "scripts/run and the unit and simulated tests on $system" "$system" ;;
    esac
  done
}
# step_of_script NAME WHAT ARGUMENT...: a step of scripts/NAME, which a copy of the sources may lack.
step_of_script() {
  local script=$root_dir/scripts/$1 what=$2
  if [ ! -x "$script" ]; then
    echo "SKIPPED: $what: there is no scripts/$1"
    skipped=$((skipped + 1))
    return
  fi
  shift 2
  step "$what" "$script" "$@"
}

part_stress() {
  local names log=$plain/meson-logs/testlog-stress.json
  mapfile -t names < <(tests_of_part stress)
  [ "${#names[@]}" -gt 0 ] || die "no test is of the suite default"
  rm -f "$log"
  "$helpers/stress.py" "$plain" "$stress_times" testlog-stress "${names[@]}" || true
  add_results stress "$log"
  step "no test fails under load" "$helpers/results.py" repeated "$log"
}

# Optimised as little as the tests need: a line that the optimiser has joined with another counts for both.
part_coverage() {
  configure coverage -Doptimization=1 -Db_coverage=true -Dwerror=false -Dtests=true -Dbenchmarks=false
  mapfile -t targets < <("$helpers/choose.py" targets "$build_dir" suite:default)
  compile "${targets[@]}"
  find "$build_dir" -name '*.gcda' -delete
  run_tests coverage --suite default
  step "line coverage" "$helpers/coverage.sh" "$build_dir" "$(build_root)"
}
