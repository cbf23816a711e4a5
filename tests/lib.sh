# SPDX-License-Identifier: BSD-3-Clause
# Functions for the shell scripts of tests. This file is sourced, never run. tests/lib.py has the same for Python.
#
# Whatever a script starts or makes it hands to on_exit, so that nothing stays after a failure, a signal or Meson's
# timeout. A script waits for a condition with one of the await functions; it does not sleep.
# Functions that make something set a variable, named in their comment: $folder, $started.
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of the script

# Ends a hang. No verdict depends on it: a test on a stalled machine is slow, not wrong.
hang_seconds=${FAULTLINE_HANG_SECONDS:-300}
tests_folder=$(dirname "$(realpath "${BASH_SOURCE[0]}")")

# ---- the verdict

# skip REASON: Meson counts the test as skipped
skip() {
  echo "SKIPPED: $*"
  exit 77
}

# need TOOLS...: skips the test unless they are installed
need() {
  local tool
  for tool in "$@"; do command -v "$tool" >/dev/null || skip "$tool is not installed"; done
}

# need_root: skips the test for an ordinary user
need_root() { [ "$(id -u)" -eq 0 ] || skip "needs root"; }

# fail WHAT: prints the last lines of the programs, $folder/*.out and *.err
fail() {
  local file
  echo "FAILED: $*"
  for file in "${folder:-/nonexistent}"/*.out "${folder:-/nonexistent}"/*.err "${XDG_RUNTIME_DIR:-/nonexistent}"/faultline/*.log; do
    if [ -s "$file" ]; then
      echo "--- ${file##*/}"
      tail -n 8 "$file"
    fi
  done
  # What else is to be taken away still is.
  if $exiting; then return 1; fi
  exit 1
}

# ---- what is left is taken away

exit_stack=()
exiting=false
# on_exit COMMAND...: runs at the end of the script, the last one first
on_exit() { exit_stack+=("$(printf '%q ' "$@")"); }

run_exit_stack() {
  local status=$? index
  trap '' TERM INT HUP
  set +e
  exiting=true
  for ((index = ${#exit_stack[@]} - 1; index >= 0; index--)); do eval "${exit_stack[index]}"; done
  exit "$status"
}
trap run_exit_stack EXIT
# A signal ends the script, and so runs the stack. Bash waits until its foreground command has ended: see bounded.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# own_folder: makes $folder for the script's files. Another user may read it: programs and libraries are copied there.
own_folder() {
  folder=$(mktemp -d)
  chmod 755 "$folder"
  on_exit rm -rf "$folder"
}

# own_runtime_folder: the same, and $XDG_RUNTIME_DIR in it, so that the script's wires are its own whatever their names. The switches that
# programs have started there end with the script.
own_runtime_folder() {
  own_folder
  mkdir -m 700 "$folder/run"
  export XDG_RUNTIME_DIR=$folder/run
  on_exit end_switches_of "$XDG_RUNTIME_DIR"
}

# switches_of RUNTIME_FOLDER: prints the process ids of the switches there
switches_of() {
  local pid
  for pid in $(pgrep -u "$(id -u)" -x faultline-switc || true); do
    if grep -qzFx "XDG_RUNTIME_DIR=$1" "/proc/$pid/environ" 2>/dev/null; then echo "$pid"; fi
  done
}
end_switches_of() {
  local pid
  for pid in $(switches_of "$1"); do kill -KILL "$pid" 2>/dev/null || true; done
}

# ---- processes

# is_running PID: whether this child of the script still runs
is_running() { kill -0 "$1" 2>/dev/null; }

# start NAME COMMAND...: in the background, its output in $folder/NAME.out; sets $started to its process id
start() {
  local name=$1
  shift
  # Emptied here: the child opens it later, and until then a condition would see the lines of the last process of this name.
  : >"$folder/$name.out"
  "$@" >"$folder/$name.out" 2>&1 &
  started=$!
  on_exit kill_now "$started"
}

# bounded COMMAND...: in the foreground. A hang ends, and so does the command with the script: it stays in its process group.
bounded() { timeout --foreground -k 5 "$hang_seconds" "$@"; }

# kill_now PID...: SIGKILL for children of the script that still run, and their children
kill_now() {
  local pid
  for pid in "$@"; do
    if grep -qx "$pid" < <(jobs -pr); then
      pkill -KILL -P "$pid" || true
      kill -KILL "$pid" 2>/dev/null || true
      wait "$pid" 2>/dev/null || true
    fi
  done
}

# is_under_way PID: whether this child of the script runs its own program. Until then it has the script's command line.
is_under_way() {
  local own=() its=()
  mapfile -d '' own <"/proc/$$/cmdline"
  { mapfile -d '' its <"/proc/$1/cmdline"; } 2>/dev/null || true
  [ "${own[*]}" != "${its[*]}" ]
}

# end PID [SIGNAL]: asks a child of the script to end, and waits until it has; its exit status. PID runs a program, not a function.
# Between fork and exec a child of bash has the script's traps, and drops the signal.
end() {
  await_that is_under_way "$1"
  kill -"${2:-TERM}" "$1" 2>/dev/null || true
  await_end "$1"
}

# await_end PID: until this child of the script has ended; its exit status
await_end() {
  await_that has_ended "$1"
  wait "$1"
}
has_ended() { ! is_running "$1"; }

# ---- conditions

# await_that COMMAND...: until the command succeeds. With watch=PID before it: that process must not end before.
await_that() {
  local until=$((SECONDS + hang_seconds))
  until "$@"; do
    if [ -n "${watch:-}" ] && ! is_running "$watch"; then
      # The condition may have come true just before the end.
      if "$@"; then return; fi
      fail "a process ended before: $*"
    fi
    if [ "$SECONDS" -ge "$until" ]; then
      fail "not in $hang_seconds s: $*"
      return 1
    fi
    sleep 0.05
  done
}

# await_line FILE PATTERN [COUNT]: until the file has so many lines with the pattern (of grep)
await_line() { await_that has_lines "$@"; }
has_lines() { [ "$(grep -c -e "$2" "$1" 2>/dev/null || true)" -ge "${3:-1}" ] 2>/dev/null; }

# await_port PORT [PREFIX...]: until a program accepts TCP connections there. The prefix runs a command in another network
# namespace. A client's own connect is often tried once, so its server has to listen first.
await_port() { await_that listens "$@"; }
# await_listener: the name that await_port has in tests/conformance
await_listener() { await_port "$@"; }
# listens PORT [PREFIX...]: whether a program accepts TCP connections there
listens() {
  local line
  line=$(printf ':%04X [0:]*0000 0A' "$1")
  shift
  "$@" grep -qhi "$line" /proc/net/tcp /proc/net/tcp6
}

# polls PID DESCRIPTOR: whether the first thread of the process waits in poll(2) for this one descriptor
polls() { PYTHONPATH=$tests_folder python3 -B -c 'import sys, lib; sys.exit(not lib.polls(*sys.argv[1:]))' "$@"; }

# await_connection PORT [PREFIX...]: until a server has a client
await_connection() { await_that has_connection "$@"; }
has_connection() {
  local line
  line=$(printf ' [0-9A-F]*:%04X [0-9A-F]*:[0-9A-F]* 01 ' "$1")
  shift
  "$@" grep -qhi "$line" /proc/net/tcp /proc/net/tcp6
}

# await_cm_listener PID RUN...: until the process listens for connections of rdma_cm. RUN are faultline-run and the options of its device;
# needs the program rdma of iproute2.
await_cm_listener() { watch=$1 await_that has_cm_listener "$@"; }
has_cm_listener() {
  "${@:2}" -- rdma -j res show cm_id 2>/dev/null | python3 -c 'import json, sys
shown = sys.stdin.read()
sys.exit(not any(one.get("pid") == int(sys.argv[1]) and one.get("state") == "LISTEN" for one in json.loads(shown or "[]")))' "$1"
}

# free_port: prints a TCP port that no program uses
free_port() { python3 "$tests_folder/free_port.py"; }

# ---- networks

# own_network "$@": as root, runs the script again in a network namespace with a loopback, so that its addresses and ports meet no others.
# An ordinary user's script stays in the host's network, and needs a free_port. Call it before anything is made.
own_network() {
  if [ "$(id -u)" -ne 0 ] || [ -n "${FAULTLINE_OWN_NETWORK:-}" ]; then return; fi
  unshare --net true 2>/dev/null || return 0
  # shellcheck disable=SC2016 # for the shell in the namespace
  FAULTLINE_OWN_NETWORK=yes exec unshare --net bash -c 'ip link set lo up && exec "$0" "$@"' "$0" "$@"
}

in_space=()   # PREFIX: how a command runs in the namespace of the server, of a switch and of tcpdump
in_client=()  # and of the client

# new_namespace VARIABLE [NAME]: makes a network namespace of the script's own with its loopback up; its name in the variable
new_namespace() {
  local name=fl-${2:-$1}-$$
  ip netns add "$name" 2>/dev/null || skip "may not create network namespaces"
  on_exit ip netns del "$name"
  ip -n "$name" link set lo up
  printf -v "$1" %s "$name"
}

# veth_pair SPACE INTERFACE OTHER_SPACE OTHER_INTERFACE [MTU]: both ends up
veth_pair() {
  ip -n "$1" link add "$2" mtu "${5:-4500}" type veth peer name "$4" mtu "${5:-4500}" netns "$3"
  ip -n "$1" link set "$2" up
  ip -n "$3" link set "$4" up
}

# start_switch PROGRAM WIRE OPTIONS...: a faultline-switch of the script, until it answers; sets $started
start_switch() {
  local program=$1 wire=$2
  shift 2
  start "switch-$wire" "${in_space[@]}" "$program" --wire "$wire" "$@"
  watch=$started await_that switch_answers "$program" "$wire"
}
switch_answers() { bounded "$1" --status "$2" >/dev/null 2>&1; }

# switch_of WIRE: prints the process id of the switch of this wire in $XDG_RUNTIME_DIR, or nothing
switch_of() {
  local pid
  for pid in $(switches_of "$XDG_RUNTIME_DIR"); do
    if grep -qx -e "$1" < <(tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -A1 -x -e --wire); then echo "$pid"; fi
  done
}

# start_capture NAME INTERFACE FILTER...: tcpdump writes to $folder/NAME.pcap from now on
start_capture() {
  local name=$1 interface=$2
  shift 2
  # 64 MiB of buffer: the kernel drops what tcpdump has no CPU to take (-B, tcpdump(8)). In immediate mode each packet takes as many bytes
  # of it as -s allows: 6,000 packets, and 256 with the default.
  # The type of end_capture's frame comes first: behind the word vlan, offsets are those of a tagged frame (pcap-filter(7)).
  start "$name-tcpdump" "${in_space[@]}" tcpdump --immediate-mode -B 65536 -i "$interface" -s 10000 -U -w "$folder/$name.pcap" "ether proto 0x88b5 or ($*)"
  capture_pid=$started
  capture_file=$folder/$name.pcap
  watch=$started await_line "$folder/$name-tcpdump.out" 'listening on'
}
# end_capture INTERFACE: once the file has all that was on the interface before. A frame of no protocol is the last one.
end_capture() {
  "${in_space[@]}" python3 -c 'import socket, sys
end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
end.bind((sys.argv[1], 0))
end.send(b"\xff" * 6 + b"\x02FL\0\0\x99" + b"\x88\xb5" + b"the capture ends here".ljust(50, b"."))' "$1"
  watch=$capture_pid await_that grep -qa 'the capture ends here' "$capture_file"
  end "$capture_pid" INT || true
}

# ---- a pair of ends

# device_config NAME ADDRESS PORT_LINES [DEVICE_LINES]: $folder/NAME.toml with the device faultline0
device_config() {
  printf '[[device]]\nname = "faultline0"\nip = "%s"\n%s\n[device.port]\n%s\n' "$2" "${4:-}" "$3" >"$folder/$1.toml"
}

# A key of a device: programs fix the ACK timeout at 67 ms, and on a busy machine a peer may have no processor for longer than their retries
# last.
# shellcheck disable=SC2034 # for the scripts
patient='min_ack_timeout_ms = 500'

# memif_pair DEVICE_LINES: $folder/server.toml and client.toml, both ends of one memif
memif_pair() {
  local role host=1
  for role in server client; do
    device_config "$role" "198.18.0.$host/24" "$(printf 'kind = "memif"\nrole = "%s"\nsocket = "%s/wire.sock"' "$role" "$folder")" "$1"
    host=2
  done
}

# run_pair PORT SERVER... :: CLIENT...: both must end with status 0; the server listens at the TCP port before the client
# begins
run_pair() {
  local port=$1 words=() status=0
  shift
  while [ "$1" != :: ]; do
    words+=("$1")
    shift
  done
  shift
  start server "${in_space[@]}" "${words[@]}"
  local server_pid=$started
  watch=$server_pid await_port "$port" "${in_space[@]}"
  bounded "${in_client[@]}" "$@" >"$folder/client.out" 2>&1 || status=$?
  [ "$status" -eq 0 ] || fail "client, status $status: $*"
  await_end "$server_pid" || fail "server, status $?: ${words[*]}"
}
