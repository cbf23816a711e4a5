#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Both ends of vhost-user in two processes: a killed end comes back, in each assignment of the roles; a fault is one line, as is a back end
# that never answers; a forked child may not use frames that its parent shares with the peer.
#   vhost_test.sh DEVICE_HOST LIBIBVERBS
set -euo pipefail
device_host=$1
libibverbs=$2
directory=$(mktemp -d)
pids=()
silent_pids=()
cleanup() {
  for pid in "${pids[@]}" "${silent_pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  rm -rf "$directory"
}
trap cleanup EXIT
fail() {
  echo "FAILED: $*"
  tail -n 20 "$directory"/*.out
  exit 1
}

# config NAME KIND ROLE HOST [SOCKET]
config() {
  cat >"$directory/$1.toml" <<TOML
[log]
level = "info"
[[device]]
name = "faultline0"
ip = "198.18.0.$4/24"
[device.port]
kind = "$2"
role = "$3"
socket = "$directory/${5:-v}.sock"
TOML
}
# start NAME OPTIONS...: in the background, until the device is open; its pid in $started.
start() {
  local name=$1
  shift
  "$device_host" --config "$directory/$name.toml" --device faultline0 --seconds 120 "$@" >"$directory/$name.out" 2>&1 &
  started=$!
  pids+=("$started")
}
# await NAME TEXT [COUNT]: until the output has so many lines with the text. The limit is of a loaded machine with a sanitizer.
await() {
  for _ in $(seq 1800); do
    if [ "$(grep -c "$2" "$directory/$1.out")" -ge "${3:-1}" ]; then return; fi
    sleep 0.05
  done
  fail "$1 does not print: $2"
}
run() {
  local name=$1
  shift
  timeout -k 1 90 "$device_host" --config "$directory/$name.toml" --device faultline0 "$@" >"$directory/$name.run.out" 2>&1 ||
    fail "$name $*: $(cat "$directory/$name.run.out")"
}
# silent NAME ROLE: a front end whose back end connects, and sends nothing; the front end's status in NAME.status. The limit is 20 s, so
# this runs beside the other cases.
silent() {
  local peer
  python3 -c 'import signal, socket, sys, time
signal.alarm(300)
role, path = sys.argv[1:]
end = socket.socket(socket.AF_UNIX)
if role == "client":
    end.bind(path)
    end.listen()
    print("listens", flush=True)
    connections = []
    while True:
        connections.append(end.accept())
while end.connect_ex(path) != 0:
    time.sleep(0.05)
time.sleep(600)' "$2" "$directory/$1.sock" >"$directory/$1-peer.out" &
  peer=$!
  if [ "$2" = client ]; then await "$1-peer" listens; fi
  config "$1" virtio_user "$2" 2 "$1"
  local status=0
  timeout -k 1 150 "$device_host" --config "$directory/$1.toml" --device faultline0 >"$directory/$1.out" 2>&1 || status=$?
  kill -9 "$peer"
  echo "$status" >"$directory/$1.status"
}
silent silent-server client &
silent_pids+=($!)
silent silent-client server &
silent_pids+=($!)

config back vhost server 1
config front virtio_user client 2

start back
await back '^open'
run front --wait-link --resolve 198.18.0.1
start front --wait-link
await front 'link up'
kill -9 "$started"
run front --wait-link --resolve 198.18.0.1
echo "ok: the front end ends, is killed, and comes back"

# The front end is a client of the killed back end, and of the next one, which replaces the file of the socket.
start front --wait-link
front=$started
await front 'link up'
for round in 1 2; do
  kill -9 "${pids[0]}"
  await front "link is down" "$round"
  start back
  pids[0]=$started
  await back '^open'
  await front "link is up" "$round"
done
kill -0 "$front" || fail "the front end ended with its back end"
kill -TERM "$front"
wait "$front" || fail "the front end has a status"
run front --wait-link --resolve 198.18.0.1
echo "ok: a killed back end's socket file is replaced, and its front end connects again"

status=0
timeout 90 "$device_host" --config "$directory/back.toml" --device faultline0 >"$directory/refused.out" 2>&1 || status=$?
[ "$status" -eq 2 ] || fail "a second back end on the path: status $status"
grep -q 'device.port.socket: .* is served by another process' "$directory/refused.out" || fail "a second back end on the path"
for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
status=0
timeout 90 "$device_host" --config "$directory/front.toml" --device faultline0 >"$directory/refused.out" 2>&1 || status=$?
# The line on guards is of every program that is linked as this one is.
[ "$status" -eq 2 ] && [ "$(grep -vc 'faultline: guard' "$directory/refused.out")" -eq 1 ] || fail "a front end without a back end: status $status"
grep -q 'device.port.socket: no vhost-user back end listens on' "$directory/refused.out" || fail "a front end without a back end"
echo "ok: a path in use, and a path without a back end"

# The back end connects, again and again, to a front end that listens. The front end stays.
config back vhost client 1
config front virtio_user server 2
start front --wait-link
front=$started
start back
await front 'link up'
run_resolve() { run back --wait-link --resolve 198.18.0.2; }
kill -9 "$started"
run_resolve
run_resolve
kill -0 "$front" || fail "the front end ended with its back end"
echo "ok: the back end is killed, and comes back"

# The limit is 20 s, too long for each run.
if [ -n "${FAULTLINE_SOAK:-}" ]; then
  kill -9 "$front"
  status=0
  timeout 60 "$device_host" --config "$directory/front.toml" --device faultline0 >"$directory/refused.out" 2>&1 || status=$?
  [ "$status" -eq 2 ] && grep -q 'device.port.socket: no vhost-user back end has connected' "$directory/refused.out" || fail "the front end waits: status $status"
  [ ! -e "$directory/v.sock" ] || fail "the socket file is left"
  echo "ok: no back end connects"
  start front --wait-link
  front=$started
fi

wait "${silent_pids[@]}"
for name in silent-server silent-client; do
  [ "$(cat "$directory/$name.status")" = 2 ] || fail "$name: status $(cat "$directory/$name.status"): $(cat "$directory/$name.out")"
  [ "$(grep -c '^faultline: .*device.port.socket: .*\(has not answered\|has connected .* and answered\) .*in 20 s' "$directory/$name.out")" -eq 1 ] ||
    fail "$name: $(cat "$directory/$name.out")"
done
echo "ok: a back end that never answers"

if ldd "$libibverbs" | grep -q 'lib[at]san'; then
  echo "skipped: the forked child; Python cannot load a library with a sanitizer"
  exit 0
fi
# A child of a process whose frames the peer maps would write into its parent's memory.
config child virtio_user client 2
printf '[[device]]\nname = "faultline1"\nip = "198.18.1.1/24"\n[device.port]\nkind = "ring"\nwire = "w0"\nside = "a"\n' >>"$directory/child.toml"
kill -9 "$front"
config back vhost server 1
start back
await back '^open'
FAULTLINE_CONFIG=$directory/child.toml timeout 90 python3 - "$libibverbs" 2>"$directory/child.out" <<'PY' || fail "the forked child"
import ctypes, os, sys
verbs = ctypes.CDLL(sys.argv[1])
for name in ("ibv_get_device_list", "ibv_open_device", "ibv_alloc_pd"):
    getattr(verbs, name).restype = ctypes.c_void_p
def pd(index):
    devices = ctypes.cast(verbs.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))
    context = verbs.ibv_open_device(ctypes.c_void_p(devices[index]))
    return verbs.ibv_alloc_pd(ctypes.c_void_p(context)) if context else None
assert pd(0), "the parent has no protection domain"
child = os.fork()
if child == 0:
    os._exit(1 if pd(1) else 0)
assert os.waitpid(child, 0)[1] == 0, "the child has a device"
PY
grep -q 'device.port.kind: this process was forked from one that shares its frames with the peer of a virtio_user port' "$directory/child.out" ||
  fail "the child does not name the reason"
echo "ok: a forked child gets no device"
