#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The functions of tests/lib.sh, on which the verdicts of the other scripts rest.
#   lib_test.sh
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
own_folder

# The child of a start opens its output when it first has a CPU. A condition must not be true by the last process of the name.
for _ in $(seq 200); do
  echo "ready" >"$folder/again.out"
  start again true
  # No program is started to look: the child would use its time.
  line=
  read -r line <"$folder/again.out" || true
  [ -z "$line" ] || fail "a process that starts has the output of the last one"
  await_end "$started"
done
echo "ok: a process starts with an empty output"

start fails bash -c 'echo "it fails"; exit 3'
status=0
await_end "$started" || status=$?
[ "$status" -eq 3 ] || fail "the exit status of a process: $status"
await_line "$folder/fails.out" '^it fails$'
echo "ok: the exit status of a process"

start ends sleep 600
status=0
end "$started" || status=$?
[ "$status" -eq 143 ] || fail "a process that is asked to end: $status"
# Between fork and exec a child drops the signal: end must not send it there. This child waits there for a writer of its input.
mkfifo "$folder/input"
sleep 600 <"$folder/input" &
child=$!
on_exit kill_now "$child"
if is_under_way "$child"; then fail "a process that has not started is under way"; fi
asked_early=false
kill() {
  if [ "$1" = -TERM ] && ! is_under_way "$2"; then asked_early=true; fi
  builtin kill "$@"
}
{ sleep 0.3 && : <>"$folder/input"; } &  # both ends: it waits for nobody
status=0
end "$child" || status=$?
unset -f kill
[ "$status" -eq 143 ] || fail "a process that is asked to end while it starts: $status"
if $asked_early; then fail "a process was asked to end before it had started"; fi
start killed sleep 600
kill_now "$started"
if is_running "$started"; then fail "a killed process runs"; fi
echo "ok: a process that is asked to end, and one that is killed"

# left SIGNAL: a script that the signal ends (0: a script that fails) leaves neither its folder nor its processes.
left() {
  local status=0 script
  # shellcheck disable=SC2016 # for the shell that is started
  start script bash -euo pipefail -c '. "$1"/lib.sh
own_folder
start long sleep 600
echo "$folder $started" >"$2"
if [ "$3" != 0 ]; then await_that false; fi
fail "as it has to"' bash "$tests_folder" "$folder/made" "$1"
  script=$started
  await_line "$folder/made" .
  if [ "$1" != 0 ]; then kill -"$1" "$script"; fi
  await_end "$script" || status=$?
  [ "$status" -ne 0 ] || fail "signal $1: the script succeeds"
  read -r made process <"$folder/made"
  [ ! -e "$made" ] || fail "signal $1: the folder is left"
  if kill -0 "$process" 2>/dev/null; then fail "signal $1: the process is left"; fi
  rm "$folder/made"
}
for signal in 0 TERM HUP; do left "$signal"; done
echo "ok: a script that fails or is ended leaves nothing"

status=0
output=$(hang_seconds=1 await_that false 2>&1) || status=$?
[ "$status" -ne 0 ] && [[ $output == *"not in 1 s: false"* ]] || fail "a hang: status $status: $output"
echo "ok: a hang ends, and names its condition"
