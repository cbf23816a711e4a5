#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# ping of a device on net_tap and of one on net_af_packet over a veth pair, each in network namespaces of its own; what the device
# captured must be read by tshark without a malformed packet.
#   ping_test.sh DEVICE_HOST tap|af_packet
set -euo pipefail
device_host=$1
kind=$2

skip() { echo "SKIPPED: $*"; exit 77; }
[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
for tool in ip ping; do command -v "$tool" >/dev/null || skip "$tool is not installed"; done
[[ $kind != tap || -c /dev/net/tun ]] || skip "there is no /dev/net/tun"

space=fl-$kind-$$
directory=$(mktemp -d)
host_pid=
cleanup() {
  if [[ -n $host_pid ]]; then kill "$host_pid" 2>/dev/null || true; wait "$host_pid" 2>/dev/null || true; fi
  ip netns del "$space" 2>/dev/null || true
  ip netns del "$space-peer" 2>/dev/null || true
  rm -rf "$directory"
}
trap cleanup EXIT
ip netns add "$space" 2>/dev/null || skip "may not create network namespaces"

if [[ $kind == af_packet ]]; then
  interface=fl-v1
  ip netns add "$space-peer"
  ip -n "$space" link add "$interface" mtu 4500 type veth peer name fl-v0 mtu 4500 netns "$space-peer"
  ip -n "$space" link set "$interface" up
  ip -n "$space-peer" link set fl-v0 up
  ip -n "$space-peer" addr add 198.18.1.1/24 dev fl-v0
  pinger=(ip netns exec "$space-peer")
  path_mtu=4096
  data_bytes=4200
else
  interface=fl-t0
  path_mtu=1024
  data_bytes=1472
  pinger=(ip netns exec "$space")
fi

cat >"$directory/device.toml" <<TOML
[[device]]
name = "faultline0"
ip = "198.18.1.2/24"
capture = "$directory/run.pcapng"
[device.port]
kind = "$kind"
interface = "$interface"
TOML

ip netns exec "$space" timeout 60 "$device_host" --config "$directory/device.toml" --device faultline0 --seconds 50 \
  >"$directory/host.out" 2>&1 &
host_pid=$!
for _ in $(seq 100); do
  grep -q '^open' "$directory/host.out" && break
  kill -0 "$host_pid" 2>/dev/null || break
  sleep 0.1
done
grep -q '^open faultline0 path_mtu '"$path_mtu" "$directory/host.out" || { cat "$directory/host.out"; exit 1; }
if [[ $kind == tap ]]; then
  ip -n "$space" addr add 198.18.1.1/24 dev "$interface"
  ip -n "$space" link set "$interface" up
fi

"${pinger[@]}" ping -c 5 -i 0.2 -W 2 198.18.1.2
# As long as the port's MTU allows, unfragmented.
"${pinger[@]}" ping -c 3 -i 0.2 -W 2 -s $data_bytes -M do 198.18.1.2

# The program it runs in is timeout's child: the signal goes to both.
kill "$host_pid"
wait "$host_pid" || true
host_pid=
cat "$directory/host.out"
grep -q 'icmp_in 8 icmp_out 8 ' "$directory/host.out"

command -v tshark >/dev/null || { echo "tshark is not installed: the capture was not read"; exit 0; }
echo "echo frames captured: $(tshark -r "$directory/run.pcapng" -Y icmp 2>/dev/null | wc -l)"
[[ $(tshark -r "$directory/run.pcapng" -Y icmp 2>/dev/null | wc -l) == 16 ]]
[[ $(tshark -r "$directory/run.pcapng" -Y '_ws.malformed || _ws.expert.severity == error' 2>/dev/null | wc -l) == 0 ]]
[[ $(tshark -o ip.check_checksum:TRUE -r "$directory/run.pcapng" -Y 'icmp.checksum.status == 0 || ip.checksum.status == 0' 2>/dev/null | wc -l) == 0 ]]
