#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two devices on kernel interfaces in network namespaces of their own, every byte compared; what was on the wire is decoded by tshark.
#   net_test.sh FAULTLINE_PERF tap|af_packet|af_xdp
set -euo pipefail
# shellcheck source=tests/interop/e2e/perf.sh
. "$(dirname "$0")/perf.sh"
kind=$2
need_root
need ip tcpdump tshark python3
[ "$kind" != tap ] || [ -c /dev/net/tun ] || skip "there is no /dev/net/tun"

space=
new_namespace space "e2e-$kind"
in_space=(ip netns exec "$space")
in_client=("${in_space[@]}")

# Both ends: a packet socket that bypasses the queueing discipline is not seen by others on its own end.
dump_on=any
marker_on=fl-a
case $kind in
  tap)
    # The PMD makes the taps; a bridge joins them once both stand.
    device_config server 198.18.0.1/24 $'kind = "tap"\ninterface = "fl-a"'
    device_config client 198.18.0.2/24 $'kind = "tap"\ninterface = "fl-b"'
    ip -n "$space" link add fl-br type bridge
    ip -n "$space" link set fl-br up
    # It keeps the bridge up when the taps have gone.
    veth_pair "$space" fl-c "$space" fl-d
    ip -n "$space" link set fl-c master fl-br
    start joiner bash -c 'while sleep 0.05; do for side in fl-a fl-b; do ip -n "$0" link set "$side" master fl-br up 2>/dev/null; done; done' \
      "$space"
    sizes=1,64,1023,1025,64k
    datagram=1024
    dump_on=fl-br
    marker_on=fl-br
    ;;
  af_packet | af_xdp)
    veth_pair "$space" fl-a "$space" fl-b "$([ "$kind" = af_packet ] && echo 4500 || echo 3000)"
    device_config server 198.18.0.1/24 "$(printf 'kind = "%s"\ninterface = "fl-a"' "$kind")"
    device_config client 198.18.0.2/24 "$(printf 'kind = "%s"\ninterface = "fl-b"' "$kind")"
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
# AF_XDP takes frames before a packet socket sees them.
[ "$kind" = af_xdp ] || start_capture wire "$dump_on" udp port 4791
client --op write,write_imm,read,send --size 64,9000 --depth 8 --iters 32 || fail "client over $kind"
expect_server "over $kind"
expect_pair --op ud_send --size 64 --depth 8 --iters 32

if [ "$kind" != af_xdp ]; then
  end_capture "$marker_on"
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
