#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Errors that the network reports to devices of kind udp. Three network namespaces: two hosts, and a router whose link to the second host
# carries 1400 bytes only.
#   path_test.sh FAULTLINE_PERF
set -euo pipefail
# shellcheck source=tests/interop/e2e/perf.sh
. "$(dirname "$0")/../perf.sh"
need_root
need ip python3

near='' router='' far=''
new_namespace near udp-near
new_namespace router udp-router
new_namespace far udp-far
veth_pair "$near" fl-a "$router" fl-a
veth_pair "$far" fl-b "$router" fl-b
ip -n "$router" link set fl-b mtu 1400
# join SPACE INTERFACE NETWORK HOST: the interface with an address of each family; the router is host 1 of the networks
join() {
  ip -n "$1" addr add "198.18.$3.$4/24" dev "$2"
  ip -n "$1" addr add "2001:2:0:$3::$4/64" dev "$2" nodad
  [ "$4" -ne 1 ] || return 0
  ip -n "$1" route add default via "198.18.$3.1"
  ip -n "$1" route add default via "2001:2:0:$3::1"
}
join "$router" fl-a 1 1
join "$router" fl-b 2 1
join "$near" fl-a 1 2
join "$far" fl-b 2 2
for key in net.ipv4.ip_forward net.ipv6.conf.all.forwarding; do ip netns exec "$router" sysctl -q -w "$key=1"; done

in_space=(ip netns exec "$far")
in_client=(ip netns exec "$near")
exchange=198.18.2.2

# config_of NEAR FAR [DEVICE_LINE]: both ends; the line is the near one's
config_of() {
  printf '[[device]]\nname = "faultline0"\nip = "%s"\n[device.port]\nkind = "udp"\n' "$2" >"$folder/server.toml"
  printf '[[device]]\nname = "faultline0"\nip = "%s"\n%s\n[device.port]\nkind = "udp"\n' "$1" "${3:-}" >"$folder/client.toml"
}

for hosts in '198.18.1.2 198.18.2.2' '2001:2:0:1::2 2001:2:0:2::2'; do
  read -r here there <<<"$hosts"
  config_of "$here" "$there"
  start_server
  ! client --op write --size 64k --depth 8 --iters 8 || fail "packets of 4096 bytes passed a link of 1400"
  end "$server_pid" || true
  line="$here: packets to $there are dropped: they are longer than the 1400 bytes that the path holds; give its QPs a path MTU of at most 1024"
  [ "$(grep -c "$line" "$folder/client.err")" -eq 1 ] || fail "no line, or more than one, names the path"
  config_of "$here" "$there" 'mtu = 1400'
  expect_pair --op write,read,send --size 64,64k --depth 8 --iters 8 --verify
done

# Forged reports that a third host has no socket come all the time of a transfer.
start forger ip netns exec "$far" python3 -c '
import socket, struct, time
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
address = socket.inet_aton
quoted = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 60, 0, 0x4000, 64, 17, 0, address("198.18.1.2"), address("198.18.2.3"))
quoted += struct.pack("!HHHH", 4791, 4791, 40, 0)
message = struct.pack("!BBHI", 3, 3, 0, 0) + quoted
total = sum(struct.unpack(f"!{len(message) // 2}H", message))
while total >> 16:
    total = (total & 0xFFFF) + (total >> 16)
message = message[:2] + struct.pack("!H", total ^ 0xFFFF) + message[4:]
while True:
    for _ in range(20):
        raw.sendto(message, ("198.18.1.2", 0))
    time.sleep(0.001)
'
config_of 198.18.1.2 198.18.2.2 'mtu = 1400'
export FAULTLINE_LOG=debug
expect_pair --op write,read,send --size 64,64k --depth 8 --iters 50 --verify
expect_pair --op ud_send --size 64,1024 --depth 4 --iters 32 --verify
# A transfer that goes on until a report has arrived.
start_server
start reported "${in_client[@]}" "$perf" --config "$folder/client.toml" --client "$exchange" --port "$tcp_port" -- --op write --size 64 \
  --seconds "$hang_seconds"
watch=$started await_line "$folder/reported.out" "198.18.1.2: ICMP reports that packets to 198.18.2.3 reach no socket"
