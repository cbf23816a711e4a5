#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The project of apps/examples/ctest, configured, built and tested as a user does; and a pair whose server or client fails is a failed test.
#   ctest_test.sh EXAMPLES_FOLDER FAULTLINE_RUN
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
examples=$1
run=$2
# Meson's variable, with which libraries of the build are found; a user does not have it.
unset LD_LIBRARY_PATH
need cmake ctest cc
own_runtime_folder
build=$folder/build
mkdir "$build"

{ cmake -S "$examples/ctest" -B "$build" -DFAULTLINE_RUN="$run" && cmake --build "$build"; } >"$folder/cmake.out" || fail "the project does not build"
ctest --test-dir "$build" --output-on-failure --no-tests=error | tee "$build/log"
grep -q "100% tests passed, 0 tests failed out of 2" "$build/log"

for pair in "false : true" "true : false"; do
  # shellcheck disable=SC2086 # words
  if "$examples/ctest/run_pair.sh" "$run" $pair; then
    fail "run_pair.sh $pair succeeds"
  fi
done
"$examples/ctest/run_pair.sh" "$run" true : true
echo "ok: a pair fails with either program"
