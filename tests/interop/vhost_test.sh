#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Both ends of vhost-user in two processes: a killed end comes back, in each assignment of the roles; a fault is one line, as is a back end
# that never answers; a forked child may not use frames that its parent shares with the peer.
#   vhost_test.sh DEVICE_HOST LIBIBVERBS
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
device_host=$1
libibverbs=$2
own_folder

# config NAME KIND ROLE HOST [SOCKET]
config() {
  cat >"$folder/$1.toml" <<TOML
[log]
level = "info"
[[device]]
name = "faultline0"
ip = "198.18.0.$4/24"
[device.port]
kind = "$2"
role = "$3"
socket = "$folder/${5:-v}.sock"
TOML
}
# start_device NAME OPTIONS...: in the background; its pid in $started
start_device() {
  local name=$1
  shift
  start "$name" "$device_host" --config "$folder/$name.toml" --device faultline0 --stay "$@"
}
# await NAME TEXT [COUNT]: until the output has so many lines with the text
await() { await_line "$folder/$1.out" "${@:2}"; }
# run NAME OPTIONS...: to its end, which has to be a good one
run() {
  local name=$1
  shift
  bounded "$device_host" --config "$folder/$name.toml" --device faultline0 "$@" >"$folder/$name.run.out" 2>&1 || fail "$name $*"
}
# refused NAME LINE WHAT: the device does not open: status 2, and the line
refused() {
  local status=0
  bounded "$device_host" --config "$folder/$1.toml" --device faultline0 >"$folder/refused.out" 2>&1 || status=$?
  [ "$status" -eq 2 ] || fail "$3: status $status"
  grep -q "$2" "$folder/refused.out" || fail "$3: no line: $2"
}
# silent NAME ROLE: a front end whose back end connects, and sends nothing; its pid in $started. The product's limit is 20 s, so this runs
# beside the other cases.
silent() {
  start "$1-peer" python3 -c 'import socket, sys, time
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
end.recv(1)
while True:
    time.sleep(600)' "$2" "$folder/$1.sock"
  if [ "$2" = client ]; then await "$1-peer" listens; fi
  config "$1" virtio_user "$2" 2 "$1"
  start "$1" "$device_host" --config "$folder/$1.toml" --device faultline0
}
silent silent-server client
silent_server=$started
silent silent-client server
silent_client=$started

config back vhost server 1
config front virtio_user client 2

start_device back
back=$started
await back '^open'
run front --wait-link --resolve 198.18.0.1
start_device front --wait-link
await front 'link up'
kill_now "$started"
run front --wait-link --resolve 198.18.0.1
echo "ok: the front end ends, is killed, and comes back"

# The front end is a client of the killed back end, and of the next one, which replaces the file of the socket.
start_device front --wait-link
front=$started
await front 'link up'
for round in 1 2; do
  kill_now "$back"
  await front "link is down" "$round"
  start_device back
  back=$started
  await back '^open'
  await front "link is up" "$round"
done
is_running "$front" || fail "the front end ended with its back end"
end "$front" || fail "the front end has a status"
run front --wait-link --resolve 198.18.0.1
echo "ok: a killed back end's socket file is replaced, and its front end connects again"

refused back 'device.port.socket: .* is served by another process' "a second back end on the path"
kill_now "$back"
refused front 'device.port.socket: no vhost-user back end listens on' "a front end without a back end"
# The line on guards is of every program that is linked as this one is.
[ "$(grep -vc 'faultline: guard' "$folder/refused.out")" -eq 1 ] || fail "a front end without a back end: more than one line"
echo "ok: a path in use, and a path without a back end"

# The back end connects, again and again, to a front end that listens. The front end stays.
config back vhost client 1
config front virtio_user server 2
start_device front --wait-link
front=$started
start_device back
back=$started
await front 'link up'
run_resolve() { run back --wait-link --resolve 198.18.0.2; }
kill_now "$back"
run_resolve
run_resolve
is_running "$front" || fail "the front end ended with its back end"
echo "ok: the back end is killed, and comes back"

# The product's limit is 20 s, too long for each run.
if [ -n "${FAULTLINE_SOAK:-}" ]; then
  kill_now "$front"
  refused front 'device.port.socket: no vhost-user back end has connected' "the front end waits"
  [ ! -e "$folder/v.sock" ] || fail "the socket file is left"
  echo "ok: no back end connects"
  start_device front --wait-link
  front=$started
fi

for name in silent-server silent-client; do
  pid=$([ "$name" = silent-server ] && echo "$silent_server" || echo "$silent_client")
  status=0
  await_end "$pid" || status=$?
  [ "$status" -eq 2 ] || fail "$name: status $status"
  [ "$(grep -c '^faultline: .*device.port.socket: .*\(has not answered\|has connected .* and answered\) .*in 20 s' "$folder/$name.out")" -eq 1 ] ||
    fail "$name: not one line"
done
echo "ok: a back end that never answers"

if grep -q 'lib[at]san' < <(ldd "$libibverbs"); then
  echo "skipped: the forked child; Python cannot load a library with a sanitizer"
  exit 0
fi
# A child of a process whose frames the peer maps would write into its parent's memory.
config child virtio_user client 2
printf '[[device]]\nname = "faultline1"\nip = "198.18.1.1/24"\n[device.port]\nkind = "ring"\nwire = "w0"\nside = "a"\n' >>"$folder/child.toml"
kill_now "$front"
config back vhost server 1
start_device back
await back '^open'
FAULTLINE_CONFIG=$folder/child.toml bounded python3 - "$libibverbs" 2>"$folder/child.out" <<'PY' || fail "the forked child"
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
grep -q 'device.port.kind: this process was forked from one that shares its frames with the peer of a virtio_user port' "$folder/child.out" ||
  fail "the child does not name the reason"
echo "ok: a forked child gets no device"
