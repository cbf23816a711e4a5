#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Devices of kind udp in two network namespaces that a veth pair joins. Root makes the namespaces; the programs have no capability and are
# not root, as /proc/PID/status shows.
#   udp_test.sh FAULTLINE_PERF FAULTLINE_RUN
set -euo pipefail
# shellcheck source=tests/interop/e2e/lib.sh
. "$(dirname "$0")/../lib.sh"
run=$2
[ "$(id -u)" -eq 0 ] || skip "needs root for network namespaces"
for tool in ip setpriv; do command -v "$tool" >/dev/null || skip "$tool is not installed"; done

user=65534 # Debian's nobody
one=fl-udp-a-$$
other=fl-udp-b-$$
peer_pid=
extra_cleanup() {
  # timeout(1) has a process group of its own, with its program in it.
  if [ -n "$peer_pid" ]; then kill -9 -- "-$peer_pid" 2>/dev/null || kill -9 "$peer_pid" 2>/dev/null || true; fi
  ip netns del "$one" 2>/dev/null || true
  ip netns del "$other" 2>/dev/null || true
}
ip netns add "$one" 2>/dev/null || skip "may not create network namespaces"
ip netns add "$other"
ip -n "$one" link add fl-a mtu 4500 type veth peer name fl-b mtu 4500 netns "$other"
host=1
for place in "$one fl-a" "$other fl-b"; do
  read -r space interface <<<"$place"
  ip -n "$space" link set lo up
  ip -n "$space" addr add "198.18.0.$host/24" dev "$interface"
  ip -n "$space" addr add "2001:2::$host/64" dev "$interface" nodad
  ip -n "$space" link set "$interface" up
  host=$((host + 1))
done
ip -n "$other" route add default via 198.18.0.1

# In a folder that the user may read: the build's may be root's.
mkdir "$folder/bin" "$folder/stack" "$folder/stack/abi"
cp "$perf" "$run" "$folder/bin/"
cp "$(dirname "$run")/../stack/abi/libibverbs.so.1" "$folder/stack/abi/"
cp "$(dirname "$run")"/../libfaultline.so.0 "$folder/"
chmod -R a+rX "$folder"
perf=$folder/bin/$(basename "$perf")
run=$folder/bin/$(basename "$run")
export LD_LIBRARY_PATH=$folder
export HOME=$folder XDG_RUNTIME_DIR=$folder/user
mkdir -m 700 "$folder/user"
chown "$user" "$folder/user"
as_user=(setpriv "--reuid=$user" "--regid=$user" --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs)
in_space=(ip netns exec "$one" "${as_user[@]}")
in_client=(ip netns exec "$other" "${as_user[@]}")
exchange=198.18.0.1

# config_of ADDRESS_PREFIX: the two ends' configuration
config_of() {
  printf '[[device]]\nname = "faultline0"\nip = "%s1"\n[device.port]\nkind = "udp"\n' "$1" >"$folder/server.toml"
  printf '[[device]]\nname = "faultline0"\nip = "%s2"\n[device.port]\nkind = "udp"\n' "$1" >"$folder/client.toml"
}

# expect_no_rights: the server's program is neither root nor has a capability
expect_no_rights() {
  local status
  status=$(cat /proc/"$(pgrep -P "$server_pid" -x faultline-perf)"/status)
  grep -q "^Uid:[[:space:]]${user}[[:space:]]${user}[[:space:]]${user}[[:space:]]${user}$" <<<"$status" || fail "the server's user is not $user"
  [ "$(grep -c '^Cap\(Inh\|Prm\|Eff\|Bnd\|Amb\):[[:space:]]*0*$' <<<"$status")" -eq 5 ] || fail "the server has capabilities"
}

# expect_no_checksum_needed: the server's socket takes IPv6 datagrams with the checksum 0, as Linux rxe and NICs send (IBA A17.3.2)
expect_no_checksum_needed() {
  ip netns exec "$other" python3 -c '
import socket, struct
raw = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_UDP)
for _ in range(10):
    raw.sendto(struct.pack("!HHHH", 4791, 4791, 8 + 32, 0) + bytes(32), ("2001:2::1", 0))
'
  local table
  table=$(ip netns exec "$one" cat /proc/net/snmp6)
  grep -q '^Udp6InDatagrams[[:space:]]*[1-9]' <<<"$table" || fail "the kernel counts no datagrams"
  grep -q '^Udp6InErrors[[:space:]]*0$' <<<"$table" || fail "the kernel drops datagrams without a UDP checksum"
}

for family in 198.18.0. 2001:2::; do
  config_of "$family"
  expect_pair --op write,write_imm,read,send --size 1,64,1025,4097,64k --depth 8 --iters 8 --verify
  expect_pair --op ud_send --size 64,1024 --depth 4 --iters 32 --verify
  start_server
  expect_no_rights
  # A second process on the address is refused with one line.
  status=0
  "${in_space[@]}" timeout 60 "$perf" --config "$folder/server.toml" --server --port 0 >"$folder/second.out" 2>"$folder/second.err" || status=$?
  [ "$status" -ne 0 ] || fail "two processes have the address ${family}1"
  grep -q "another process has UDP port 4791 of ${family}1 " "$folder/second.err" || fail "no line names the address that is in use"
  if [ "$family" = 2001:2:: ]; then expect_no_checksum_needed; fi
  client --op write --size 64 --iters 8 || fail "the client of a server that a second process could not disturb"
  wait "$server_pid" || fail "the server that a second process could not disturb"
  server_pid=
  echo "ok: ${family}1 has one process, of user $user without a capability"
done

# The ICRC covers the identification, which the kernel chooses: 0, 1, 2, ... in a train. Without offloads the veth pair carries the packets of
# a train one by one, and the receiver gets them so.
if command -v ethtool >/dev/null && command -v tcpdump >/dev/null; then
  ip netns exec "$one" ethtool -K fl-a tx-udp-segmentation off gro off >/dev/null
  ip netns exec "$other" ethtool -K fl-b tx-udp-segmentation off gro off >/dev/null
  for family in 198.18.0. 2001:2::; do
    config_of "$family"
    ip netns exec "$one" tcpdump -q -i fl-a -s 0 -U -w "$folder/wire.pcap" udp port 4791 >/dev/null 2>&1 &
    peer_pid=$!
    sleep 0.5
    expect_pair --op write,read --size 64k --depth 8 --iters 8 --verify
    sleep 1.5 # the ring of tcpdump hands over a block a second
    kill -INT "$peer_pid"
    wait "$peer_pid" 2>/dev/null || true
    peer_pid=
    "$(dirname "$0")/check_icrcs.py" "$folder/wire.pcap" || fail "the ICRCs on the wire"
  done
  ip netns exec "$one" ethtool -K fl-a tx-udp-segmentation on gro on >/dev/null
  ip netns exec "$other" ethtool -K fl-b tx-udp-segmentation on gro on >/dev/null
else
  echo "SKIPPED: the ICRCs on the wire: ethtool or tcpdump is not installed"
fi

# The default is the address of the default route.
"${in_client[@]}" "$run" --udp -- ibv_devinfo -v >"$folder/devinfo.out" 2>"$folder/devinfo.err" || fail "ibv_devinfo"
grep -q 'GID\[ *0\].*::ffff:198.18.0.2' "$folder/devinfo.out" || fail "the default address is not that of the default route"
! grep -q 'GID\[ *1\]' "$folder/devinfo.out" || fail "the device has an address that the host has not"
status=0
"${in_space[@]}" "$run" --udp -- ibv_devinfo >"$folder/none.out" 2>&1 || status=$?
grep -q "device.ip: is missing, and the host has no default route" "$folder/none.out" || fail "no line says that there is no default route"
"${in_space[@]}" "$run" --udp --ip 198.18.0.77 -- ibv_devinfo >"$folder/none.out" 2>&1 || true
grep -q "no interface of this host has the address 198.18.0.77" "$folder/none.out" || fail "no line says that the address is not the host's"
echo "ok: addresses by default, and those that the host has not"

# pair SERVER_COMMAND -- CLIENT_COMMAND: programs on both devices; the server waits for a connection
pair() {
  local server=()
  while [ "$1" != -- ]; do server+=("$1"); shift; done
  shift
  "${in_space[@]}" timeout 100 "$run" --udp --ip "${family}1" -- "${server[@]}" >"$folder/peer.out" 2>&1 &
  peer_pid=$!
  sleep 1.5
  "${in_client[@]}" timeout 100 "$run" --udp --ip "${family}2" -- "$@" >"$folder/program.out" 2>&1 || fail "$*"
  wait "$peer_pid" || fail "${server[*]}"
  peer_pid=
  echo "ok: $*"
}

for family in 198.18.0. 2001:2::; do
  if command -v ib_write_bw >/dev/null; then
    for program in 'ib_write_bw -n 200 -s 65536' 'ib_read_bw -n 100 -s 65536' 'ib_send_bw -n 200 -s 4096 -c UD' 'ib_send_lat -n 100 -s 64' \
      'ib_write_lat -n 100 -s 64'; do
      read -ra words <<<"$program"
      pair "${words[@]}" -x 0 -F -- "${words[@]}" -x 0 -F 198.18.0.1
    done
  fi
  if command -v rping >/dev/null; then pair rping -s -a "${family}1" -C 20 -v -- rping -c -a "${family}1" -C 20 -v; fi
done

# The port's events, as the interface goes down and up and the address is removed and added.
count_of() { grep -c "$1" "$folder/events.out" || true; }
# leads_to EVENT WORDS...: ip WORDS leads to one more such event
leads_to() {
  local event=$1 before
  before=$(count_of "$event")
  shift
  ip -n "$one" "$@"
  for _ in $(seq 100); do
    [ "$(count_of "$event")" -le "$before" ] || return 0
    sleep 0.1
  done
  return 1
}
if command -v ibv_asyncwatch >/dev/null; then
  : >"$folder/events.out"  # count_of reads it, also before the program has begun
  "${in_space[@]}" timeout 200 "$run" --udp --ip 198.18.0.1 -- stdbuf -oL ibv_asyncwatch -d faultline0 >"$folder/events.out" 2>&1 &
  peer_pid=$!
  # The device starts when the program first waits for an event: a change before that has none.
  seen=false
  for _ in $(seq 5); do
    if leads_to IBV_EVENT_PORT_ERR link set fl-a down; then seen=true; fi
    if "$seen"; then break; fi
    ip -n "$one" link set fl-a up
    sleep 1
  done
  "$seen" || fail "no event reports that the interface went down"
  leads_to IBV_EVENT_PORT_ACTIVE link set fl-a up || fail "no event reports that the interface came up"
  leads_to IBV_EVENT_PORT_ERR addr del 198.18.0.1/24 dev fl-a || fail "no event reports that the address was removed"
  leads_to IBV_EVENT_PORT_ACTIVE addr add 198.18.0.1/24 dev fl-a || fail "no event reports that the address came back"
  kill "$peer_pid"
  wait "$peer_pid" 2>/dev/null || true
  peer_pid=
  echo "ok: events of the interface and the address"
fi
