#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Devices of kind udp in two user namespaces, which an ordinary user makes and pasta(1) connects. The host is itself a user and network
# namespace, so the test needs no rights: its interface has two addresses, one for each of the two.
#   pasta_test.sh FAULTLINE_PERF FAULTLINE_RUN
set -euo pipefail
# shellcheck source=tests/lib.sh
. "${PASTA_FOLDER:-$(dirname "$0")/../../..}/lib.sh"
here=$(realpath "$0")
perf=$(realpath "$1")
run=$(realpath "$2")
user=65534 # Debian's nobody

# As root: the rest as an ordinary user, in a folder that the user may read.
if [ -z "${PASTA_FOLDER:-}" ]; then
  need pasta unshare ip rping
  own_folder
  export PASTA_FOLDER=$folder
  cp "$tests_folder/lib.sh" "$PASTA_FOLDER/"
  mkdir -p "$PASTA_FOLDER"/{bin,stack/abi} && mkdir -m 700 "$PASTA_FOLDER/user"
  cp "$perf" "$run" "$here" "$PASTA_FOLDER/bin/"
  cp "$(dirname "$run")/../stack/abi/libibverbs.so.1" "$PASTA_FOLDER/stack/abi/"
  cp "$(dirname "$run")"/../libfaultline.so.0 "$PASTA_FOLDER/"
  chmod -R a+rX "$PASTA_FOLDER/bin" "$PASTA_FOLDER/stack" "$PASTA_FOLDER"/lib*
  chmod a+r "$PASTA_FOLDER/lib.sh"
  as_user=()
  if [ "$(id -u)" -eq 0 ]; then
    chown "$user:$user" "$PASTA_FOLDER" "$PASTA_FOLDER/user"
    as_user=(setpriv "--reuid=$user" "--regid=$user" --clear-groups --bounding-set=-all --inh-caps=-all)
  fi
  "${as_user[@]}" unshare --user --map-root-user --net true 2>/dev/null || skip "no user namespaces for an ordinary user"
  # In a namespace of processes too, so that none outlives the test.
  "${as_user[@]}" unshare --user --map-root-user --net --pid --fork --kill-child --mount-proc \
    bash "$PASTA_FOLDER/bin/$(basename "$here")" "$PASTA_FOLDER/bin/$(basename "$perf")" "$PASTA_FOLDER/bin/$(basename "$run")"
  exit
fi

folder=$PASTA_FOLDER
export LD_LIBRARY_PATH=$folder HOME=$folder XDG_RUNTIME_DIR=$folder/user
ip link set lo up
ip link add fl-a type veth peer name fl-b
for host in 1 2; do
  ip addr add "198.18.0.$host/24" dev fl-a
  ip addr add "2001:2::$host/64" dev fl-a nodad
done
ip link set fl-a up
ip link set fl-b up
ip route add default via 198.18.0.254 dev fl-a
ip route add default via 2001:2::fe dev fl-a

# pasta of 2023 learns the address of a namespace from what that sends, also from the packets without one of duplicate address detection.
# shellcheck disable=SC2016 # for the shell in the namespace
settle='while grep -q inet6 < <(ip addr show tentative); do sleep 0.1; done
echo >"/dev/udp/$0/9"
exec "$@"'
# inside HOST COMMAND...: runs it in a user namespace that has the host's address, with UDP port 4791, and a TCP port for faultline-perf
inside() {
  local address=$prefix$1
  shift
  pasta --quiet --config-net --no-map-gw "${family[@]}" --address "$address" --udp-ports "$address/4791" --tcp-ports "$address/20000" \
    --udp-ns none --tcp-ns none -- bash -c "$settle" "$gateway" "$@"
}
# pair SERVER :: CLIENT: the client is repeated until the server is there, which no other sign shows in another namespace
pair() {
  local words=()
  while [ "$1" != :: ]; do words+=("$1"); shift; done
  shift
  start server inside 1 "${words[@]}"
  watch=$started await_that connects "$@"
  await_end "$started" || fail "${words[*]}"
  echo "ok: ${*##*/}"
}
connects() { inside 2 "$@" >"$folder/client.out" 2>&1; }
for prefix in 198.18.0. 2001:2::; do
  gateway=198.18.0.254
  family=(-4 --netmask 24 --gateway "$gateway")
  if [ "$prefix" = 2001:2:: ]; then
    gateway=2001:2::fe
    family=(-6 --gateway "$gateway")
  fi
  pair "$run" --udp -- rping -s -a "${prefix}1" -C 20 -V :: "$run" --udp -- rping -c -a "${prefix}1" -C 20 -V
  for side in 1 2; do
    printf '[[device]]\nname = "faultline0"\nip = "%s%s"\n[device.port]\nkind = "udp"\n' "$prefix" "$side" >"$folder/$side.toml"
  done
  pair "$perf" --config "$folder/1.toml" --server --port 20000 :: "$perf" --config "$folder/2.toml" --client "${prefix}1" --port 20000 -- \
    --op write,read,send --size 64,1025,64k --depth 4 --iters 16 --verify
done
