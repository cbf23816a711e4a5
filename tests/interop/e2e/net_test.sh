#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two devices on kernel interfaces in network namespaces of their own, every byte compared; what was on the wire is decoded by tshark.
#   net_test.sh FAULTLINE_PERF tap|af_packet|af_xdp
set -euo pipefail
# shellcheck source=tests/interop/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
kind=$2
[ "$(id -u)" -eq 0 ] || skip "needs root for network namespaces"
for tool in ip tcpdump tshark; do command -v "$tool" >/dev/null || skip "$tool is not installed"; done
[ "$kind" != tap ] || [ -c /dev/net/tun ] || skip "there is no /dev/net/tun"

space=fl-e2e-$kind-$$
dump_pid=
extra_cleanup() {
  if [ -n "$dump_pid" ]; then kill "$dump_pid" 2>/dev/null || true; fi
  ip netns del "$space" 2>/dev/null || true
}
ip netns add "$space" 2>/dev/null || skip "may not create network namespaces"
ip -n "$space" link set lo up
in_space=(ip netns exec "$space")
in_client=(ip netns exec "$space")

# Both ends: a packet socket that bypasses the queueing discipline is not seen by others on its own end.
dump_on=any
case $kind in
  tap)
    # The PMD makes the taps; a bridge joins them once both stand.
    device_config server 1 $'kind = "tap"\ninterface = "fl-a"'
    device_config client 2 $'kind = "tap"\ninterface = "fl-b"'
    ip -n "$space" link add fl-br type bridge
    ip -n "$space" link set fl-br up
    ( for _ in $(seq 600); do
        for side in fl-a fl-b; do
          ip -n "$space" link set "$side" master fl-br up 2>/dev/null || true
        done
        sleep 0.1
        ip netns list | grep -q "$space" || exit 0
      done ) &
    joiner=$!
    extra_cleanup() {
      kill "$joiner" 2>/dev/null || true
      if [ -n "$dump_pid" ]; then kill "$dump_pid" 2>/dev/null || true; fi
      ip netns del "$space" 2>/dev/null || true
    }
    sizes=1,64,1023,1025,64k
    datagram=1024
    dump_on=fl-br
    ;;
  af_packet | af_xdp)
    ip -n "$space" link add fl-a mtu 4500 type veth peer name fl-b mtu 4500
    [ "$kind" = af_packet ] || { ip -n "$space" link set fl-a mtu 3000; ip -n "$space" link set fl-b mtu 3000; }
    ip -n "$space" link set fl-a up
    ip -n "$space" link set fl-b up
    device_config server 1 "$(printf 'kind = "%s"\ninterface = "fl-a"' "$kind")"
    device_config client 2 "$(printf 'kind = "%s"\ninterface = "fl-b"' "$kind")"
    sizes=1,64,2047,2049,64k
    datagram=1024
    ;;
esac

if [ "$kind" = af_xdp ]; then
  python3 -c 'import socket; socket.socket(44, socket.SOCK_RAW, 0)' 2>/dev/null || skip "the kernel has no AF_XDP sockets"
fi

expect_pair --op write,write_imm,read,send --size "$sizes" --depth 8 --iters 8 --verify
expect_pair --op ud_send --size "64,$datagram" --depth 4 --iters 32 --verify

# Once more for tshark, with payloads of zeros: it guesses at what is in a SEND (an EtherType, an RPC), and calls the patterns of
# verified runs malformed VLAN frames now and then.
start_server
if [ "$kind" != af_xdp ]; then
  # AF_XDP takes frames before a packet socket sees them.
  "${in_space[@]}" tcpdump -q -i "$dump_on" -s 0 -U -w "$folder/wire.pcap" udp port 4791 >/dev/null 2>&1 &
  dump_pid=$!
  sleep 0.5
fi
client --op write,write_imm,read,send --size 64,9000 --depth 8 --iters 32 || fail "client over $kind"
wait "$server_pid" || fail "server over $kind"
server_pid=
expect_pair --op ud_send --size 64 --depth 8 --iters 32

if [ -n "$dump_pid" ]; then
  sleep 1.5  # its ring hands over a block a second
  kill -INT "$dump_pid"
  wait "$dump_pid" 2>/dev/null || true
  dump_pid=
  read_wire() { tshark -r "$folder/wire.pcap" --disable-protocol rpcordma "$@" 2>/dev/null; }
  packets=$(read_wire -Y infiniband | wc -l)
  malformed=$(read_wire -Y '_ws.malformed' | wc -l)
  [ "$packets" -gt 100 ] || fail "tshark saw only $packets RoCEv2 packets"
  [ "$malformed" -eq 0 ] || fail "tshark calls $malformed packets malformed"
  for opcode in 4 6 10 12 17 100; do
    [ "$(read_wire -Y "infiniband.bth.opcode == $opcode" | wc -l)" -gt 0 ] || fail "no packet of opcode $opcode was on the wire"
  done
  echo "ok: $kind, tshark decoded $packets packets, none malformed"
fi
