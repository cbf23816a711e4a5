#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# faultline-run --guards prints the guards that a program started by it would have in this environment.
# Usage: guards_test.sh FAULTLINE_RUN REFUSE_SYSCALLS
set -eu
run=$1
refuse=$2
# expect LINES PATTERN: a line of the output matches
expect() {
  printf '%s\n' "$1" | grep -Eq "$2" || { printf 'FAILED: no line matches %s in:\n%s\n' "$2" "$1"; exit 1; }
}
all=$("$run" --guards)
for name in 'memory hooks' 'signal hooks' userfaultfd pins 'process map' descriptors memlock; do
  expect "$all" "^$name +(works|limited|missing) "
done
expect "$all" '^memory hooks +works '
expect "$all" '^signal hooks +works '
expect "$all" '^process map +works '
[ "$(printf '%s\n' "$all" | grep -c .)" -ge 7 ] || { echo "FAILED: too few lines"; exit 1; }

some=$("$refuse" EPERM userfaultfd,io_uring_setup -- "$run" --guards)
expect "$some" '^memory hooks +works '
expect "$some" '^userfaultfd +missing .*Operation not permitted'
expect "$some" '^pins +missing .*Operation not permitted.*seccomp'
some=$(ulimit -n 30 && "$run" --guards)
expect "$some" '^descriptors +limited .*ulimit -n'

if "$run" 2>/dev/null; then echo "FAILED: without a program and without --guards"; exit 1; fi
echo ok
