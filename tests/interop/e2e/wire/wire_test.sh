#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs as Debian ships them meet on a wire (faultline-run --wire): sides, addresses, sharers, refusals, and the switch
# that comes and goes with them.
#   wire_test.sh FAULTLINE_RUN
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../../lib.sh"
run=$1
need ibv_rc_pingpong python3
own_runtime_folder

# pair "SERVER OPTIONS" "CLIENT OPTIONS" PROGRAM ARGS...
pair() {
  local port server client
  port=$(free_port)
  read -ra server <<<"$1"
  read -ra client <<<"$2"
  shift 2
  run_pair "$port" "$run" "${server[@]}" -- "$@" -p "$port" :: "$run" "${client[@]}" -- "$@" -p "$port" 127.0.0.1
  echo "ok: ${server[*]} | ${client[*]}: $*"
}
# idle_server WIRE: a program that has a device and a QP, and does nothing; its pid in $started
idle_server() {
  local port
  port=$(free_port)
  start idle "$run" --wire "$1" --side a ibv_rc_pingpong -g 0 -p "$port"
  watch=$started await_port "$port"
}
# refused "WANTED LINE" OPTIONS...: the line is on stderr
refused() {
  local wanted=$1
  shift
  if bounded "$run" "$@" ibv_rc_pingpong -g 0 127.0.0.1 >"$folder/refused.out" 2>&1; then fail "not refused: $*"; fi
  grep -q -- "$wanted" "$folder/refused.out" || fail "no line \"$wanted\" for $*"
  echo "ok: refused, $wanted"
}

# sleeps_of PID: how often its progress thread has slept
sleeps_of() {
  local task
  for task in /proc/"$1"/task/*; do
    if grep -sq fl-progress "$task/comm"; then awk '/^voluntary/ {print $2}' "$task/status"; fi
  done
}
has_slept() { [ "$(sleeps_of "$1")" -ge "$2" ]; }
# is_idle PID: five sleeps of its progress thread took 1.5 s or more; it looks at its port once a second. A busy machine makes them longer.
is_idle() {
  local from=${EPOCHREALTIME//[.,]/}
  watch=$1 await_that has_slept "$1" $(($(sleeps_of "$1") + 5))
  [ $((${EPOCHREALTIME//[.,]/} - from)) -ge 1500000 ]
}
ticks_of() { awk '{print $14 + $15}' "/proc/$1/stat"; }
# burns_little PID: at most two ticks of CPU time in two seconds
burns_little() {
  local before
  before=$(ticks_of "$1")
  sleep 2
  [ $(($(ticks_of "$1") - before)) -le 2 ]
}
has_no_switch() { [ -z "$(switch_of "$1")" ]; }

one=t1
pair "--wire $one" "--wire $one" ibv_rc_pingpong -g 0 -n 500 -c
pair "--wire $one --side a" "--wire $one --ip 198.19.7.7" ibv_rc_pingpong -g 0 -n 500 -s 65536 -c
grep -q 'GID ::ffff:198.18.0.1' "$folder/server.out" || fail "side a is not 198.18.0.1"
grep -q 'GID ::ffff:198.19.7.7' "$folder/client.out" || fail "--ip has another address"
pair "--wire $one --side a" "--wire $one --side b" ibv_ud_pingpong -g 0 -n 500 -s 1024 -c
pair "--wire $one --side a" "--wire $one --side b" ibv_rc_pingpong -g 1 -n 500 -c  # IPv6, link-local
# Processes that share one address, and reach each other at it.
pair "--wire $one --side a" "--wire $one --side b --share" ibv_rc_pingpong -g 0 -n 500 -c
pair "--wire $one --share" "--wire $one --share" ibv_rc_pingpong -g 0 -n 500 -c
cmp <(grep -o 'local address.*GID.*' "$folder/server.out" | grep -o 'GID.*') \
  <(grep -o 'local address.*GID.*' "$folder/client.out" | grep -o 'GID.*') || fail "sharers have different addresses"

two=t2
idle_server "$two"
idle=$started
# As soon as all is set up.
await_that is_idle "$idle"
echo "ok: an idle program sleeps"
switch=$(switch_of "$two")
[ -n "$switch" ] || fail "a program has no switch"
await_that burns_little "$switch"
echo "ok: an idle switch sleeps"
# One that is stopped keeps no other from starting: EAL asks it whether its telemetry socket is its own. (They start, and then find
# nobody at TCP port 1.)
kill -STOP "$idle"
for _ in 1 2 3 4 5; do
  status=0
  bounded "$run" --wire "$two" ibv_rc_pingpong -g 0 -p 1 127.0.0.1 >/dev/null 2>"$folder/beside.out" || status=$?
  [ "$status" -eq 1 ] || fail "beside a stopped program another ended with $status"
done
kill -CONT "$idle"
echo "ok: a stopped program keeps no other from starting"
refused "wire $two: 198.18.0.1 is taken by process" --wire "$two" --side a
refused "start it with --share too" --wire "$two" --side a --share
refused 'a side is one letter' --wire "$two" --side aa
refused 'is not an address of 198.18.0.0/15' --wire "$two" --ip 10.0.0.1
refused "a wire's name is" --wire a/b
refused 'wire NAME, --udp or --config FILE is required' --
# Foreign processes: what is no request, and another build's.
python3 - "$XDG_RUNTIME_DIR/faultline/$two.control" <<'PY' || fail "a foreign process was not refused with a line"
import socket, struct, sys
def ask(message):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(120)
        connection.connect(sys.argv[1])
        connection.send(message)
        answer = connection.recv(4096)
        assert connection.recv(1) == b"", "the connection goes on"
        return struct.unpack_from("=II", answer), answer[-256:].split(b"\0")[0].decode()
for message, wanted in ((b"x", "does not understand"), (b"\0" * 64, "does not understand"),
                        (struct.pack("=II", 0x464c5357, 99) + b"\0" * 500, "of another build"),
                        (struct.pack("=II", 0x464c5357, 4) + b"\0" * 3, "of another build")):
    (magic, version), line = ask(message)
    assert (magic, version) == (0x464c5357, 4) and wanted in line, line
PY
echo "ok: foreign processes are refused"
# As many seats as there can be; the next is refused with a line; and all is free again when they have ended.
for _ in one two; do
  python3 - "$(dirname "$0")/../hostile_wire" "$XDG_RUNTIME_DIR/faultline/$two.control" <<'PY' || fail "the wire's last seat"
import os, resource, sys
sys.path.insert(0, sys.argv[1])
import wire_peer
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
# The switch takes five descriptors a seat, and has the same limit.
if 0 < most < 6000:
    print(f"no full wire: ulimit -Hn is {most}")
    sys.exit()
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
inbox = wire_peer.memory_file(wire_peer.INBOX_BYTES), wire_peer.event_file()
def seat():
    process = wire_peer.Process(sys.argv[2])
    process.send(wire_peer.ATTACH, inbox)
    answer = process.answer()
    for file in answer.files:
        os.close(file)
    return process, answer
# The server has a seat too.
seats = [seat() for _ in range(wire_peer.MOST_SEATS - 1)]
assert all(answer.error == 0 for _, answer in seats), [answer.line for _, answer in seats if answer.error][0]
assert len({answer.ipv4 for _, answer in seats}) == len({answer.port for _, answer in seats}) == wire_peer.MOST_SEATS - 1
_, answer = seat()
assert answer.error != 0 and "which is all it can" in answer.line, answer.line
PY
done
echo "ok: a full wire"
end "$idle" || true
# What it had is free at once.
pair "--wire $two --side a" "--wire $two --side b" ibv_rc_pingpong -g 0 -n 100 -c

# A switch stays a moment after its programs, then ends, and leaves nothing behind.
idle_server "$two"
from=${EPOCHREALTIME//[.,]/}
end "$started" || true
await_that has_no_switch "$two"
[ $((${EPOCHREALTIME//[.,]/} - from)) -ge 1000000 ] || fail "the switch ended at once"
[ ! -e "$XDG_RUNTIME_DIR/faultline/$two.control" ] || fail "the switch left its socket"
echo "ok: the switch came and went"

# One whose directory is gone ends too.
export XDG_RUNTIME_DIR=$folder/gone
mkdir -m 700 "$XDG_RUNTIME_DIR"
on_exit end_switches_of "$XDG_RUNTIME_DIR"
idle_server t3
[ -n "$(switch_of t3)" ] || fail "no switch in another directory"
rm -rf "$XDG_RUNTIME_DIR"
end "$started" || true
await_that has_no_switch t3
echo "ok: a switch without its directory ends"
