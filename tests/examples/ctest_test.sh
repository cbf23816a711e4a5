#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The project of apps/examples/ctest, configured, built and tested as a user does; and a pair whose server or client fails is a failed test.
#   ctest_test.sh EXAMPLES_FOLDER FAULTLINE_RUN
set -euo pipefail
folder=$1
run=$2
# Meson's variable, with which libraries of the build are found; a user does not have it.
unset LD_LIBRARY_PATH
for tool in cmake ctest cc; do
  command -v "$tool" >/dev/null || { echo "SKIPPED: $tool is not installed"; exit 77; }
done
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
export XDG_RUNTIME_DIR=$build

cmake -S "$folder/ctest" -B "$build" -DFAULTLINE_RUN="$run" >"$build/log" && cmake --build "$build" >>"$build/log" || { cat "$build/log"; exit 1; }
ctest --test-dir "$build" --output-on-failure --no-tests=error | tee "$build/log"
grep -q "100% tests passed, 0 tests failed out of 2" "$build/log"

for pair in "false : true" "true : false"; do
  # shellcheck disable=SC2086 # words
  if "$folder/ctest/run_pair.sh" "$run" $pair; then
    echo "FAILED: run_pair.sh $pair succeeds"
    exit 1
  fi
done
"$folder/ctest/run_pair.sh" "$run" true : true
echo "ok: a pair fails with either program"
