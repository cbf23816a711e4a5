#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Linux's ping and its own neighbour discovery against a device on net_tap and on net_af_packet over a veth pair, in network
# namespaces, untagged and in a VLAN: every IPv4 and IPv6 address of the device answers, the link-local one too; the device
# finds its neighbours, and its gateway for what is behind it; what it captured must be read by tshark without a complaint.
#   ping_test.sh DEVICE_HOST tap|af_packet [vlan]
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
device_host=$1
kind=$2
vlan=${3:+100}

need_root
need ip ping
[[ $kind != tap || -c /dev/net/tun ]] || skip "there is no /dev/net/tun"
own_folder
new_namespace space "$kind"
in_space=(ip netns exec "$space")
switch_pid=

if [[ $kind == af_packet ]]; then
  interface=fl-v1
  link=fl-v0
  new_namespace peer "$kind-peer"
  veth_pair "$space" "$interface" "$peer" "$link"
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
    if [[ -n $switch_pid ]]; then kill_now "$switch_pid"; fi
    ip -n "$peer" link show "$ip_link" >/dev/null 2>&1 ||
      ip -n "$peer" link add "$ip_link" mtu 4500 type veth peer name fl-access mtu 4500
    ip -n "$peer" link set fl-access up
    ip netns exec "$peer" python3 "$(dirname "$0")/vlan_switch.py" fl-access "$link" "$vlan" &
    switch_pid=$!
    on_exit kill_now "$switch_pid"
  fi
  ip -n "$peer" link set "$ip_link" up
  for address in 198.18.1.1/24 198.18.2.1/24; do ip -n "$peer" addr replace "$address" dev "$ip_link"; done
  ip -n "$peer" addr replace 2001:2::1/64 dev "$ip_link" nodad
}
[[ $kind == tap ]] || peer_up

cat >"$folder/device.toml" <<TOML
[[device]]
name = "faultline0"
ip = ["198.18.1.2/24", "198.18.2.2/24", "2001:2::2/64"]
mac = "02:46:4c:00:00:02"
${vlan:+vlan = $vlan}
${vlan:+vlan_priority = 3}
gateway = "2001:2::1"
capture = "$folder/run.pcapng"
[[device.route]]
to = "198.19.0.0/16"
via = "198.18.2.1"
[device.port]
kind = "$kind"
interface = "$interface"
TOML
link_local=fe80::46:4cff:fe00:2

start host "${in_space[@]}" "$device_host" --config "$folder/device.toml" --device faultline0 --stay
host_pid=$started
watch=$host_pid await_line "$folder/host.out" '^open'
grep -q "^open faultline0 path_mtu $path_mtu" "$folder/host.out" || fail "the device has another path MTU"
if [[ $kind == tap ]]; then peer_up; fi

# The addresses of the kernel's end are tentative at first.
settled() { [ -z "$(ip -n "$peer" -6 addr show dev "$ip_link" tentative)" ]; }
await_that settled

echoes=0
# answered COUNT WORDS...: so many requests, each once the one before is answered. The answer may be late: the machine may be busy.
answered() {
  local count=$1 i
  shift
  for ((i = 0; i < count; i++)); do
    "${pinger[@]}" ping -c 1 -W "$hang_seconds" "$@" || fail "ping $*"
    echoes=$((echoes + 1))
  done
}
for address in 198.18.1.2 198.18.2.2; do answered 4 "$address"; done
answered 4 -6 2001:2::2
answered 2 -6 "$link_local%$ip_link"
# As long as the port's MTU allows, unfragmented.
answered 3 -s $data_bytes -M 'do' 198.18.1.2
answered 3 -6 -s $((data_bytes - 20)) -M 'do' 2001:2::2
if [[ -n $vlan ]]; then
  # Not in the VLAN: nobody is there.
  ip -n "$peer" addr add 198.18.1.9/24 dev "$link"
  if "${pinger[@]}" ping -c 1 -W 1 -I "$link" 198.18.1.2 >/dev/null 2>&1; then fail "an untagged request was answered"; fi
  # The device has seen the untagged frames before this one.
  answered 1 198.18.2.2
fi

end "$host_pid" || fail "the device"
cat "$folder/host.out"
grep -q "icmp_in $echoes icmp_out $echoes " "$folder/host.out" || fail "not every echo was counted"
[[ -z $vlan ]] || grep -Eq 'wrong_vlan [1-9]' "$folder/host.out" || fail "no untagged frame was refused"

if command -v tshark >/dev/null; then
  in_capture() { tshark -r "$folder/run.pcapng" "$@" 2>/dev/null | wc -l; }
  echo "echo frames captured: $(in_capture -Y 'icmp || icmpv6.type == 128 || icmpv6.type == 129')"
  [[ $(in_capture -Y 'icmp || icmpv6.type == 128 || icmpv6.type == 129') == $((2 * echoes)) ]] || fail "not every echo was captured"
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
start resolve "${in_space[@]}" "$device_host" --config "$folder/device.toml" --device faultline0 --await "$folder/go" \
  --resolve 198.18.1.1 --resolve 198.19.7.7 --resolve 2001:2::1 --resolve 2001:db8::9 --resolve 203.0.113.9 --resolve 198.18.1.77
watch=$started await_line "$folder/resolve.out" '^open'
# The tap goes with its program; its MAC address is new each time.
if [[ $kind == tap ]]; then peer_up; fi
await_that settled
mac=$(ip -n "$peer" -br link show "$ip_link" | awk '{print $3}')
touch "$folder/go"
status=0
await_end "$started" || status=$?
cat "$folder/resolve.out"
[[ $status == 1 ]] || fail "resolving ended with $status"
for address in 198.18.1.1 198.19.7.7 2001:2::1 2001:db8::9; do
  grep -q "^resolve $address: $mac\$" "$folder/resolve.out" || fail "$address is not at $mac"
done
grep -q '^resolve 203.0.113.9: Network is unreachable' "$folder/resolve.out" || fail "203.0.113.9 is somewhere"
grep -q '^resolve 198.18.1.77: No route to host' "$folder/resolve.out" || fail "198.18.1.77 is somewhere"
echo "ok: $kind${vlan:+, VLAN $vlan}"
