#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Debian's unmodified pingpongs, every byte checked, with each kind of address and each mode of a device: IPv4 and IPv6, global and
# link-local, in a VLAN, on two lcores; over memif, and as root over a veth pair in network namespaces, where tshark reads the traffic.
#   addresses_test.sh LIBFAULTLINE memif|veth
set -euo pipefail
# shellcheck source=tests/conformance/lib.sh
. "$(dirname "$0")/lib.sh"
library=$1
kind=$2
need ibv_rc_pingpong ibv_ud_pingpong
cpus=$(python3 -c 'import os; print(",".join(map(str, sorted(os.sched_getaffinity(0))[:2])))')

folder=$(mktemp -d)
space=fl-addresses-$$
server_pid=
dump_pid=
cleanup() {
  for pid in $server_pid $dump_pid; do kill -9 "$pid" 2>/dev/null || true; done
  ip netns del "$space" 2>/dev/null || true
  rm -rf "$folder"
}
trap cleanup EXIT
in_space=()
if [ "$kind" = veth ]; then
  [ "$(id -u)" -eq 0 ] || skip "needs root for network namespaces"
  need ip tcpdump tshark
  ip netns add "$space" 2>/dev/null || skip "may not create network namespaces"
  in_space=(ip netns exec "$space")
  ip -n "$space" link set lo up
  ip -n "$space" link add fl-server mtu 4500 type veth peer name fl-client mtu 4500
  ip -n "$space" link set fl-server up
  ip -n "$space" link set fl-client up
fi

# devices LINES...: both ends with these keys in addition to their addresses
devices() {
  local role host
  for role in server client; do
    host=$([ "$role" = server ] && echo 1 || echo 2)
    {
      printf '[[device]]\nname = "faultline0"\nip = ["198.18.0.%s/24", "2001:2::%s/64"]\n' "$host" "$host"
      [ $# -eq 0 ] || printf '%s\n' "$@"
      echo "[device.port]"
      if [ "$kind" = veth ]; then
        printf 'kind = "af_packet"\ninterface = "fl-%s"\n' "$role"
      else
        printf 'kind = "memif"\nrole = "%s"\nsocket = "%s/wire.sock"\n' "$role" "$folder"
      fi
    } >"$folder/$role.toml"
  done
}

# pair PROGRAM ARGS...: both must exit with status 0
pair() {
  tcp_port=$(free_port)
  FAULTLINE_CONFIG=$folder/server.toml LD_PRELOAD=$library "${in_space[@]}" timeout 60 "$@" -p "$tcp_port" >"$folder/server.out" 2>&1 &
  server_pid=$!
  await_listener "$tcp_port" "${in_space[@]}"
  local status=0
  FAULTLINE_CONFIG=$folder/client.toml LD_PRELOAD=$library "${in_space[@]}" timeout 60 "$@" -p "$tcp_port" 127.0.0.1 \
    >"$folder/client.out" 2>&1 || status=$?
  wait "$server_pid" || status=$?
  server_pid=
  [ "$status" -eq 0 ] || fail "$*: $status"
  echo "ok: $*"
}
# each_address: IPv4, IPv6, link-local
each_address() {
  local gid
  for gid in 0 1 2; do
    pair ibv_rc_pingpong -g "$gid" -n 200 -s 9000 -c
    pair ibv_ud_pingpong -g "$gid" -n 200 -s 1024 -c
  done
}
# Captures at the receiving end: other sockets of the same end do not see frames of a packet socket that bypasses the queueing
# discipline.
dump() {
  [ "$kind" = veth ] || return 0
  "${in_space[@]}" tcpdump -q -i fl-server -s 0 -U -w "$folder/wire.pcap" >/dev/null 2>&1 &
  dump_pid=$!
  sleep 0.7
}
# read_dump FILTER: the number of frames of the last dump that match it
read_dump() { tshark -r "$folder/wire.pcap" --disable-protocol rpcordma -Y "$1" 2>/dev/null | wc -l; }
end_dump() {
  [ "$kind" = veth ] || return 1
  sleep 1.5 # its ring hands over a block a second
  kill -INT "$dump_pid"
  wait "$dump_pid" 2>/dev/null || true
  dump_pid=
}

devices
dump
each_address
if end_dump; then
  [ "$(read_dump 'ipv6 && infiniband')" -gt 100 ] || fail "tshark saw no RoCEv2 over IPv6"
  [ "$(read_dump 'ipv6.src == fe80::/10 && infiniband')" -gt 100 ] || fail "tshark saw none over link-local addresses"
  [ "$(read_dump 'icmpv6.type == 135')" -gt 0 ] || fail "nobody asked for a neighbour"
  [ "$(read_dump '_ws.malformed')" -eq 0 ] || fail "tshark calls something malformed"
  echo "ok: tshark, addresses"
fi

devices 'vlan = 100' 'vlan_priority = 3' 'dscp = 26'
dump
each_address
pair ibv_rc_pingpong -g 0 -n 200 -s 9000 -c -l 5 # its own service level
if end_dump; then
  [ "$(read_dump 'infiniband && vlan.id == 100 && vlan.priority == 3 && ip.dsfield.dscp == 26')" -gt 100 ] || fail "no tagged packets of DSCP 26"
  [ "$(read_dump 'infiniband && vlan.priority == 5')" -gt 100 ] || fail "the service level is not the priority"
  [ "$(read_dump 'infiniband && !vlan')" -eq 0 ] || fail "a RoCEv2 packet was not tagged"
  [ "$(read_dump '_ws.malformed')" -eq 0 ] || fail "tshark calls something malformed"
  echo "ok: tshark, VLAN"
fi

if [[ $cpus == *,* ]]; then
  devices 'progress = "dedicated"' "lcores = [$cpus]"
  each_address
  pair ibv_rc_pingpong -g 1 -n 200 -s 65536 -c -o
else
  echo "one CPU: nothing was run on two lcores"
fi
echo "ok: $kind"
