#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Debian's unmodified pingpongs, every byte checked, with each kind of address and each mode of a device: IPv4 and IPv6, global and
# link-local, in a VLAN, on two lcores; over memif, and as root over a veth pair in network namespaces, where tshark reads the traffic.
#   addresses_test.sh LIBFAULTLINE memif|veth
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
library=$1
kind=$2
need ibv_rc_pingpong ibv_ud_pingpong
cpus=$(python3 -c 'import os; print(",".join(map(str, sorted(os.sched_getaffinity(0))[:2])))')

own_folder
in_space=()
if [ "$kind" = veth ]; then
  need_root
  need ip tcpdump tshark
  new_namespace space
  in_space=(ip netns exec "$space")
  in_client=("${in_space[@]}") # both ends are in it
  veth_pair "$space" fl-server "$space" fl-client
fi

# devices LINES...: both ends with these keys in addition to their addresses
devices() {
  local role host
  for role in server client; do
    host=$([ "$role" = server ] && echo 1 || echo 2)
    {
      printf '[[device]]\nname = "faultline0"\nip = ["198.18.0.%s/24", "2001:2::%s/64"]\n%s\n' "$host" "$host" "$patient"
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
  local port
  port=$(free_port)
  run_pair "$port" env FAULTLINE_CONFIG="$folder/server.toml" LD_PRELOAD="$library" "$@" -p "$port" :: \
    env FAULTLINE_CONFIG="$folder/client.toml" LD_PRELOAD="$library" "$@" -p "$port" 127.0.0.1
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
  start_capture "$1" fl-server ip or ip6 or vlan
}
# read_dump FILTER: the number of frames of the last dump that match it
read_dump() { tshark -r "$capture_file" --disable-protocol rpcordma -Y "$1" 2>/dev/null | wc -l; }
end_dump() {
  [ "$kind" = veth ] || return 1
  end_capture fl-client
}

devices
dump addresses
each_address
if end_dump; then
  [ "$(read_dump 'ipv6 && infiniband')" -gt 100 ] || fail "tshark saw no RoCEv2 over IPv6"
  [ "$(read_dump 'ipv6.src == fe80::/10 && infiniband')" -gt 100 ] || fail "tshark saw none over link-local addresses"
  # The end that asks first is known to the other, which then need not ask: its answer arrives here instead.
  [ "$(read_dump 'icmpv6.type == 135 || icmpv6.type == 136')" -gt 0 ] || fail "neither a question for a neighbour nor an answer came"
  [ "$(read_dump '_ws.malformed')" -eq 0 ] || fail "tshark calls something malformed"
  echo "ok: tshark, addresses"
fi

devices 'vlan = 100' 'vlan_priority = 3' 'dscp = 26'
dump vlan
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
