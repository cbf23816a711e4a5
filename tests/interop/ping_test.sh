#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Linux's ping and its own neighbour discovery against a device on net_tap and on net_af_packet over a veth pair, in network
# namespaces, untagged and in a VLAN: every IPv4 and IPv6 address of the device answers, the link-local one too; the device
# finds its neighbours, and its gateway for what is behind it; what it captured must be read by tshark without a complaint.
#   ping_test.sh DEVICE_HOST tap|af_packet [vlan]
set -euo pipefail
device_host=$1
kind=$2
vlan=${3:+100}

skip() { echo "SKIPPED: $*"; exit 77; }
fail() { echo "FAILED: $*"; cat "$directory"/*.out; exit 1; }
[[ $(id -u) == 0 ]] || skip "needs root for network namespaces"
for tool in ip ping; do command -v "$tool" >/dev/null || skip "$tool is not installed"; done
[[ $kind != tap || -c /dev/net/tun ]] || skip "there is no /dev/net/tun"

space=fl-$kind-$$
directory=$(mktemp -d)
host_pid=
switch_pid=
cleanup() {
  if [[ -n $host_pid ]]; then kill "$host_pid" 2>/dev/null || true; wait "$host_pid" 2>/dev/null || true; fi
  if [[ -n $switch_pid ]]; then kill "$switch_pid" 2>/dev/null || true; fi
  ip netns del "$space" 2>/dev/null || true
  ip netns del "$space-peer" 2>/dev/null || true
  rm -rf "$directory"
}
trap cleanup EXIT
ip netns add "$space" 2>/dev/null || skip "may not create network namespaces"

if [[ $kind == af_packet ]]; then
  interface=fl-v1
  link=fl-v0
  ip netns add "$space-peer"
  ip -n "$space" link add "$interface" mtu 4500 type veth peer name "$link" mtu 4500 netns "$space-peer"
  ip -n "$space" link set "$interface" up
  peer=$space-peer
  path_mtu=4096
  data_bytes=4200
else
  interface=fl-t0
  link=$interface
  peer=$space
  path_mtu=1024
  data_bytes=1472
fi
pinger=(ip netns exec "$peer")
ip_link=$link
if [[ -n $vlan ]]; then
  # Linux's own VLAN device where the kernel has them, or a switch that tags and untags.
  ip_link=fl-in-vlan
  ip -n "$space" link add fl-probe type veth peer name fl-probe2
  if ip -n "$space" link add link fl-probe name fl-probe.1 type vlan id 1 2>/dev/null; then switch=; else switch=yes; fi
  ip -n "$space" link del fl-probe
  [[ -z $switch ]] || command -v python3 >/dev/null || skip "the kernel has no VLANs, and python3 is not installed"
fi

# peer_up: Linux's end gets its addresses.
peer_up() {
  ip -n "$peer" link set "$link" up
  if [[ -n $vlan && -z $switch ]]; then
    ip -n "$peer" link add link "$link" name "$ip_link" type vlan id "$vlan"
  elif [[ -n $vlan ]]; then
    if [[ -n $switch_pid ]]; then kill "$switch_pid" 2>/dev/null || true; fi
    ip -n "$peer" link show "$ip_link" >/dev/null 2>&1 ||
      ip -n "$peer" link add "$ip_link" mtu 4500 type veth peer name fl-access mtu 4500
    ip -n "$peer" link set fl-access up
    ip netns exec "$peer" timeout 90 python3 "$(dirname "$0")/vlan_switch.py" fl-access "$link" "$vlan" &
    switch_pid=$!
  fi
  ip -n "$peer" link set "$ip_link" up
  for address in 198.18.1.1/24 198.18.2.1/24; do ip -n "$peer" addr replace "$address" dev "$ip_link"; done
  ip -n "$peer" addr replace 2001:2::1/64 dev "$ip_link" nodad
}
[[ $kind == tap ]] || peer_up

cat >"$directory/device.toml" <<TOML
[[device]]
name = "faultline0"
ip = ["198.18.1.2/24", "198.18.2.2/24", "2001:2::2/64"]
mac = "02:46:4c:00:00:02"
${vlan:+vlan = $vlan}
${vlan:+vlan_priority = 3}
gateway = "2001:2::1"
capture = "$directory/run.pcapng"
[[device.route]]
to = "198.19.0.0/16"
via = "198.18.2.1"
[device.port]
kind = "$kind"
interface = "$interface"
TOML
link_local=fe80::46:4cff:fe00:2

# start OPTIONS...: the device, until it is open
start() {
  : >"$directory/host.out"
  ip netns exec "$space" timeout 60 "$device_host" --config "$directory/device.toml" --device faultline0 "$@" \
    >"$directory/host.out" 2>&1 &
  host_pid=$!
  for _ in $(seq 100); do
    grep -q '^open' "$directory/host.out" && break
    kill -0 "$host_pid" 2>/dev/null || break
    sleep 0.1
  done
  grep -q '^open faultline0 path_mtu '"$path_mtu" "$directory/host.out" || fail "the device did not open"
  if [[ $kind == tap ]]; then peer_up; fi
}

start --seconds 50
for address in 198.18.1.2 198.18.2.2; do "${pinger[@]}" ping -c 4 -i 0.2 -W 2 "$address" || fail "ping $address"; done
"${pinger[@]}" ping -6 -c 4 -i 0.2 -W 2 2001:2::2 || fail "ping of 2001:2::2"
"${pinger[@]}" ping -6 -c 2 -i 0.2 -W 2 "$link_local%$ip_link" || fail "ping of the link-local address"
# As long as the port's MTU allows, unfragmented.
"${pinger[@]}" ping -c 3 -i 0.2 -W 2 -s $data_bytes -M 'do' 198.18.1.2 || fail "a long ping"
"${pinger[@]}" ping -6 -c 3 -i 0.2 -W 2 -s $((data_bytes - 20)) -M 'do' 2001:2::2 || fail "a long ping, IPv6"
if [[ -n $vlan ]]; then
  # Not in the VLAN: nobody is there.
  ip -n "$peer" addr add 198.18.1.9/24 dev "$link"
  if "${pinger[@]}" ping -c 2 -W 1 -I "$link" 198.18.1.2 >/dev/null 2>&1; then fail "an untagged request was answered"; fi
fi

# The program it runs in is timeout's child: the signal goes to both.
kill "$host_pid"
wait "$host_pid" || true
host_pid=
cat "$directory/host.out"
grep -q 'icmp_in 20 icmp_out 20 ' "$directory/host.out" || fail "not every echo was counted"
[[ -z $vlan ]] || grep -Eq 'wrong_vlan [1-9]' "$directory/host.out" || fail "no untagged frame was refused"

if command -v tshark >/dev/null; then
  in_capture() { tshark -r "$directory/run.pcapng" "$@" 2>/dev/null | wc -l; }
  echo "echo frames captured: $(in_capture -Y 'icmp || icmpv6.type == 128 || icmpv6.type == 129')"
  [[ $(in_capture -Y 'icmp || icmpv6.type == 128 || icmpv6.type == 129') == 40 ]] || fail "not every echo was captured"
  [[ $(in_capture -Y 'icmpv6.type == 136 && eth.src == 02:46:4c:00:00:02') -ge 2 ]] || fail "no neighbour advertisement was captured"
  [[ $(in_capture -Y '_ws.malformed || _ws.expert.severity == error') == 0 ]] || fail "tshark calls something malformed"
  bad='icmp.checksum.status == 0 || ip.checksum.status == 0 || icmpv6.checksum.status == 0'
  [[ $(in_capture -o ip.check_checksum:TRUE -Y "$bad") == 0 ]] || fail "tshark finds a wrong checksum"
  own='eth.src == 02:46:4c:00:00:02'
  tagged=$(in_capture -Y "$own && vlan.id == 100")
  if [[ -n $vlan ]]; then
    [[ $tagged == $(in_capture -Y "$own") ]] || fail "not every frame was tagged"
    [[ $(in_capture -Y "$own && arp && vlan.priority == 3") -gt 0 ]] || fail "the tag's priority is not 3"
  else
    [[ $tagged == 0 ]] || fail "a frame was tagged"
  fi
else
  echo "tshark is not installed: the capture was not read"
fi

# The other way: the device asks Linux; what is behind a gateway has the gateway's MAC address; and some things are nowhere.
if [[ $kind == tap ]]; then
  # The interface goes with the program; its MAC address is new each time.
  mac_of_peer() { ip -n "$peer" -br link show "$ip_link" 2>/dev/null | awk '{print $3}'; }
  ( for _ in $(seq 100); do sleep 0.1; if ip -n "$peer" link show "$link" >/dev/null 2>&1; then peer_up; mac_of_peer >"$directory/mac"; exit; fi; done ) &
else
  ip -n "$peer" -br link show "$ip_link" | awk '{print $3}' >"$directory/mac"
fi
status=0
ip netns exec "$space" timeout 60 "$device_host" --config "$directory/device.toml" --device faultline0 \
  --resolve 198.18.1.1 --resolve 198.19.7.7 --resolve 2001:2::1 --resolve 2001:db8::9 --resolve 203.0.113.9 --resolve 198.18.1.77 \
  >"$directory/resolve.out" 2>&1 || status=$?
cat "$directory/resolve.out"
[[ $status == 1 ]] || fail "resolving ended with $status"
mac=$(cat "$directory/mac")
for address in 198.18.1.1 198.19.7.7 2001:2::1 2001:db8::9; do
  grep -q "^resolve $address: $mac\$" "$directory/resolve.out" || fail "$address is not at $mac"
done
grep -q '^resolve 203.0.113.9: Network is unreachable' "$directory/resolve.out" || fail "203.0.113.9 is somewhere"
grep -q '^resolve 198.18.1.77: No route to host' "$directory/resolve.out" || fail "198.18.1.77 is somewhere"
echo "ok: $kind${vlan:+, VLAN $vlan}"
