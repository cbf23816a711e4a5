#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Devices of kind udp in two network namespaces that a veth pair joins. Root makes the namespaces; the programs have no capability and are
# not root, as /proc/PID/status shows.
#   udp_test.sh FAULTLINE_PERF FAULTLINE_RUN [brief]     brief: the data of each operation, and what is refused
set -euo pipefail
# shellcheck source=tests/interop/e2e/perf.sh
. "$(dirname "$0")/../perf.sh"
run=$2
need_root
need ip setpriv rdma python3

user=65534 # Debian's nobody
one='' other=''
new_namespace one udp-a
new_namespace other udp-b
veth_pair "$one" fl-a "$other" fl-b
host=1
for place in "$one fl-a" "$other fl-b"; do
  read -r space interface <<<"$place"
  ip -n "$space" addr add "198.18.0.$host/24" dev "$interface"
  ip -n "$space" addr add "2001:2::$host/64" dev "$interface" nodad
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
export HOME=$folder
chown "$user" "$XDG_RUNTIME_DIR"
as_user=(setpriv "--reuid=$user" "--regid=$user" --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs)
in_space=(ip netns exec "$one" "${as_user[@]}")
in_client=(ip netns exec "$other" "${as_user[@]}")
exchange=198.18.0.1

# config_of ADDRESS_PREFIX: the two ends' configuration
config_of() {
  printf '[[device]]\nname = "faultline0"\nip = "%s1"\n%s\n[device.port]\nkind = "udp"\n' "$1" "$patient" >"$folder/server.toml"
  printf '[[device]]\nname = "faultline0"\nip = "%s2"\n%s\n[device.port]\nkind = "udp"\n' "$1" "$patient" >"$folder/client.toml"
}

# expect_no_rights: the server's program is neither root nor has a capability
expect_no_rights() {
  local status
  status=$(cat "/proc/$server_pid/status")
  grep -q "^Uid:[[:space:]]${user}[[:space:]]${user}[[:space:]]${user}[[:space:]]${user}$" <<<"$status" || fail "the server's user is not $user"
  [ "$(grep -c '^Cap\(Inh\|Prm\|Eff\|Bnd\|Amb\):[[:space:]]*0*$' <<<"$status")" -eq 5 ] || fail "the server has capabilities"
}

# snmp6 NAME: a counter of the server's namespace
snmp6() { ip netns exec "$one" awk -v name="$1" '$1 == name {print $2}' /proc/net/snmp6; }
counted() { [ $(($(snmp6 Udp6InDatagrams) + $(snmp6 Udp6InErrors) - counted_before)) -ge "$1" ]; }
# expect_no_checksum_needed: the server's socket takes IPv6 datagrams with the checksum 0, as Linux rxe and NICs send (IBA A17.3.2)
expect_no_checksum_needed() {
  local counted_before
  counted_before=$(($(snmp6 Udp6InDatagrams) + $(snmp6 Udp6InErrors)))
  ip netns exec "$other" python3 -c '
import socket, struct
raw = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_UDP)
for _ in range(10):
    raw.sendto(struct.pack("!HHHH", 4791, 4791, 8 + 32, 0) + bytes(32), ("2001:2::1", 0))
'
  # Each is taken or refused.
  await_that counted 10
  [ "$(snmp6 Udp6InErrors)" -eq 0 ] || fail "the kernel drops datagrams without a UDP checksum"
}

for family in 198.18.0. 2001:2::; do
  config_of "$family"
  expect_pair --op write,write_imm,read,send --size 1,64,1025,4097,64k --depth 8 --iters 8 --verify
  expect_pair --op ud_send --size 64,1024 --depth 4 --iters 32 --verify
  start_server
  expect_no_rights
  # A second process on the address is refused with one line.
  status=0
  bounded "${in_space[@]}" "$perf" --config "$folder/server.toml" --server --port 0 >"$folder/second.out" 2>"$folder/second.err" || status=$?
  [ "$status" -ne 0 ] || fail "two processes have the address ${family}1"
  grep -q "another process has UDP port 4791 of ${family}1 " "$folder/second.err" || fail "no line names the address that is in use"
  if [ "$family" = 2001:2:: ]; then expect_no_checksum_needed; fi
  client --op write --size 64 --iters 8 || fail "the client of a server that a second process could not disturb"
  expect_server "a second process, which could not disturb it"
  echo "ok: ${family}1 has one process, of user $user without a capability"
done

if [ -n "${3:-}" ]; then exit; fi
# The ICRC covers the identification, which the kernel chooses: 0, 1, 2, ... in a train. Without offloads the veth pair carries the packets of
# a train one by one, and the receiver gets them so.
if command -v ethtool >/dev/null && command -v tcpdump >/dev/null; then
  ip netns exec "$one" ethtool -K fl-a tx-udp-segmentation off gro off >/dev/null
  ip netns exec "$other" ethtool -K fl-b tx-udp-segmentation off gro off >/dev/null
  for family in 198.18.0. 2001:2::; do
    config_of "$family"
    in_space=(ip netns exec "$one")
    start_capture wire fl-a udp port 4791
    in_space+=("${as_user[@]}")
    expect_pair --op write,read --size 64k --depth 8 --iters 8 --verify
    in_space=(ip netns exec "$one")
    end_capture fl-a
    in_space+=("${as_user[@]}")
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

# pair PORT SERVER_COMMAND :: CLIENT_COMMAND: programs on both devices; the server listens at the TCP port first
pair() {
  local port=$1 server=()
  shift
  while [ "$1" != :: ]; do server+=("$1"); shift; done
  shift
  run_pair "$port" "$run" --udp --ip "${family}1" -- "${server[@]}" :: "$run" --udp --ip "${family}2" -- "$@"
  echo "ok: $*"
}

# In these namespaces no other program has a port.
port=18515
for family in 198.18.0. 2001:2::; do
  if command -v ib_write_bw >/dev/null; then
    for program in 'ib_write_bw -n 200 -s 65536' 'ib_read_bw -n 100 -s 65536' 'ib_send_bw -n 200 -s 4096 -c UD' 'ib_send_lat -n 100 -s 64' \
      'ib_write_lat -n 100 -s 64'; do
      read -ra words <<<"$program"
      port=$((port + 1))
      words+=(-p "$port" -x 0 -F)
      pair "$port" "${words[@]}" :: "${words[@]}" 198.18.0.1
    done
  fi
  if command -v rping >/dev/null; then
    start server "${in_space[@]}" "$run" --udp --ip "${family}1" -- rping -s -a "${family}1" -C 20 -v
    server_pid=$started
    await_cm_listener "$server_pid" "${in_space[@]}" "$run" --udp --ip "${family}1"
    bounded "${in_client[@]}" "$run" --udp --ip "${family}2" -- rping -c -a "${family}1" -C 20 -v >"$folder/client.out" 2>&1 || fail rping
    await_end "$server_pid" || fail "the server of rping"
    echo "ok: rping"
  fi
done

# The port's events, as the interface goes down and up and the address is removed and added.
count_of() { grep -c "$1" "$folder/events.out" || true; }
has_progress() { grep -sqx fl-progress "/proc/$1/task/"*/comm; }
has_more() { [ "$(count_of "$1")" -gt "$2" ]; }
# leads_to EVENT WORDS...: ip WORDS leads to one more such event
leads_to() {
  local event=$1 before
  before=$(count_of "$event")
  shift
  ip -n "$one" "$@"
  await_that has_more "$event" "$before"
}
if command -v ibv_asyncwatch >/dev/null; then
  start events "${in_space[@]}" "$run" --udp --ip 198.18.0.1 -- stdbuf -oL ibv_asyncwatch -d faultline0
  # The device starts when the program first waits for an event: a change before that has none.
  watch=$started await_that has_progress "$started"
  watch=$started
  leads_to IBV_EVENT_PORT_ERR link set fl-a down
  leads_to IBV_EVENT_PORT_ACTIVE link set fl-a up
  leads_to IBV_EVENT_PORT_ERR addr del 198.18.0.1/24 dev fl-a
  leads_to IBV_EVENT_PORT_ACTIVE addr add 198.18.0.1/24 dev fl-a
  watch=
  end "$started" || true
  echo "ok: events of the interface and the address"
fi
