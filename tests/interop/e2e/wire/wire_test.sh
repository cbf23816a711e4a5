#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs as Debian ships them meet on a wire (faultline-run --wire): sides, addresses, sharers, refusals, and the switch
# that comes and goes with them.
#   wire_test.sh FAULTLINE_RUN
set -euo pipefail
run=$1
folder=$(mktemp -d)
# A runtime directory of the test's own, so that its wires are too.
export XDG_RUNTIME_DIR=$folder
chmod 700 "$folder"
skip() { echo "SKIPPED: $*"; exit 77; }
fail() {
  echo "FAILED: $*"
  tail -n 5 "$folder"/*.out "$folder"/faultline/*.log 2>/dev/null || true
  exit 1
}
command -v ibv_rc_pingpong >/dev/null || skip "ibv_rc_pingpong is not installed"
server_pid=
# switch_of WIRE: its process id, or nothing
switch_of() { pgrep -u "$(id -u)" -f -- "faultline-switch --wire $1 --listener" || true; }
wires="t1 t2 t3"
cleanup() {
  if [ -n "$server_pid" ]; then kill "$server_pid" 2>/dev/null && wait "$server_pid" 2>/dev/null || true; fi
  for wire in $wires; do
    pid=$(switch_of "$wire$$")
    if [ -n "$pid" ]; then kill -9 "$pid" 2>/dev/null || true; fi
  done
  rm -rf "$folder"
}
trap cleanup EXIT
free_port() { python3 "$(dirname "$0")/../../../free_port.py"; }

await_port() {
  for _ in $(seq 100); do
    if grep -qi "$(printf ':%04X 0*:0000 0A' "$1")" /proc/net/tcp /proc/net/tcp6; then return; fi
    sleep 0.1
  done
  fail "nobody listens on TCP port $1"
}
# pair "SERVER OPTIONS" "CLIENT OPTIONS" PROGRAM ARGS...
pair() {
  local server=$1 client=$2
  shift 2
  tcp_port=$(free_port)
  # shellcheck disable=SC2086
  timeout 60 "$run" $server -- "$@" -p "$tcp_port" >"$folder/server.out" 2>&1 &
  server_pid=$!
  await_port "$tcp_port"
  # shellcheck disable=SC2086
  timeout 60 "$run" $client -- "$@" -p "$tcp_port" 127.0.0.1 >"$folder/client.out" 2>&1 || fail "client: $client $*"
  wait "$server_pid" || fail "server: $server $*"
  server_pid=
  echo "ok: $server | $client: $*"
}
# refused "WANTED LINE" OPTIONS...: the line is on stderr
refused() {
  local wanted=$1
  shift
  if timeout 20 "$run" "$@" ibv_rc_pingpong -g 0 127.0.0.1 >"$folder/refused.out" 2>&1; then fail "not refused: $*"; fi
  grep -q -- "$wanted" "$folder/refused.out" || { cat "$folder/refused.out"; fail "no line \"$wanted\" for $*"; }
  echo "ok: refused, $wanted"
}

# housekeeping_of PID: how often its progress thread has slept
housekeeping_of() {
  local task
  for task in /proc/"$1"/task/*; do
    if grep -q fl-progress "$task/comm"; then awk '/^voluntary/ {print $2}' "$task/status"; fi
  done
}

one=t1$$
pair "--wire $one" "--wire $one" ibv_rc_pingpong -g 0 -n 500 -c
[ -n "$(switch_of "$one")" ] || fail "the switch ended at once"
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

two=t2$$
tcp_port=$(free_port)
timeout 60 "$run" --wire "$two" --side a ibv_rc_pingpong -g 0 -p "$tcp_port" >"$folder/server.out" 2>&1 &
server_pid=$!
await_port "$tcp_port"
# A program that has a device, and a QP on it, but does nothing is woken by nothing but a look at its port, once a second.
program_pid=$(pgrep -P "$server_pid")
sleep 1
before=$(housekeeping_of "$program_pid")
sleep 3
slept=$(($(housekeeping_of "$program_pid") - before))
[ "$slept" -le 10 ] || fail "an idle program is woken $slept times in 3 s"
echo "ok: an idle program sleeps"
# One that is stopped keeps no other from starting: EAL asks it whether its telemetry socket is its own. (They start, and then find
# nobody at TCP port 1.)
kill -STOP "$program_pid"
for _ in 1 2 3 4 5; do
  status=0
  timeout 20 "$run" --wire "$two" ibv_rc_pingpong -g 0 -p 1 127.0.0.1 >/dev/null 2>"$folder/beside.out" || status=$?
  [ "$status" -eq 1 ] || { kill -CONT "$program_pid"; fail "beside a stopped program another ended with $status"; }
done
kill -CONT "$program_pid"
echo "ok: a stopped program keeps no other from starting"
refused "wire $two: 198.18.0.1 is taken by process" --wire "$two" --side a
refused "start it with --share too" --wire "$two" --side a --share
refused 'a side is one letter' --wire "$two" --side aa
refused 'is not an address of 198.18.0.0/15' --wire "$two" --ip 10.0.0.1
refused "a wire's name is" --wire a/b
refused 'wire NAME, --udp or --config FILE is required' --
# Foreign processes: what is no request, and another build's.
python3 - "$folder/faultline/$two.control" <<'PY' || fail "a foreign process was not refused with a line"
import socket, struct, sys
def ask(message):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(5)
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
  python3 - "$(dirname "$0")/../hostile_wire" "$folder/faultline/$two.control" <<'PY' || fail "the wire's last seat"
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
kill "$server_pid"
wait "$server_pid" || true
server_pid=
# What it had is free at once.
pair "--wire $two --side a" "--wire $two --side b" ibv_rc_pingpong -g 0 -n 100 -c

# A program that closes its descriptors, or is killed, leaves nothing behind; a switch that idles burns no CPU.
pid=$(switch_of "$two")
before=$(awk '{print $14 + $15}' "/proc/$pid/stat")
sleep 2
[ "$(($(awk '{print $14 + $15}' "/proc/$pid/stat") - before))" -le 2 ] || fail "an idle switch burns CPU"
for _ in $(seq 100); do
  [ -n "$(switch_of "$two")" ] || break
  sleep 0.1
done
[ -z "$(switch_of "$two")" ] || fail "the switch goes on without programs"
[ ! -e "$folder/faultline/$two.control" ] || fail "the switch left its socket"
echo "ok: the switch came and went"

# One whose directory is gone ends too.
three=t3$$
XDG_RUNTIME_DIR=$folder/gone
mkdir -m 700 "$XDG_RUNTIME_DIR"
timeout 20 "$run" --wire "$three" ibv_rc_pingpong -g 0 -p 1 127.0.0.1 >/dev/null 2>&1 || true
[ -n "$(switch_of "$three")" ] || fail "no switch in another directory"
rm -rf "$XDG_RUNTIME_DIR"
XDG_RUNTIME_DIR=$folder
for _ in $(seq 100); do
  [ -n "$(switch_of "$three")" ] || break
  sleep 0.1
done
[ -z "$(switch_of "$three")" ] || fail "the switch outlives its directory"
echo "ok: a switch without its directory ends"
