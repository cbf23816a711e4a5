#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Debian's unmodified ibv_devinfo -v and ibv_devices print the device as its configuration describes it. As root also the link's state,
# on a veth in a network namespace; and the properties that a configuration sets for a device on a wire. (A unit test of verbs checks that
# the printed limits hold.)
#   devinfo_test.sh LIBIBVERBS VERSION ring|veth
#   devinfo_test.sh FAULTLINE_RUN VERSION wire
# shellcheck disable=SC2317 # await_that calls functions
set -euo pipefail
library=$(realpath "$1")
version=$2
kind=$3
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need ibv_devinfo ibv_devices ibv_asyncwatch stdbuf
own_runtime_folder
# run PROGRAM ARGS...: runs it and keeps its output
run() {
  bounded "${in_space[@]}" env FAULTLINE_CONFIG="$folder/device.toml" LD_PRELOAD="$library" "$@" >"$folder/output.out" 2>&1 || fail "$*: $?"
}
# says NAME VALUE: the last run printed the line "NAME: VALUE"
says() {
  grep -qFx "$1: $2" < <(sed -E 's/[[:space:]]+/ /g; s/^ //' "$folder/output.out") || fail "$1 is not $2"
}

if [ "$kind" = veth ]; then
  need_root
  need ip
  new_namespace space
  in_space=(ip netns exec "$space")
  ip -n "$space" link add fl-own mtu 4500 type veth peer name fl-peer mtu 4500
  printf '[[device]]\nname = "faultline0"\nip = "198.18.0.1/24"\n[device.port]\nkind = "af_packet"\ninterface = "fl-own"\n' \
    >"$folder/device.toml"
  run ibv_devinfo -v
  says state 'PORT_DOWN (1)'
  says phys_state 'DISABLED (3)'
  ip -n "$space" link set fl-own up
  run ibv_devinfo -v
  says state 'PORT_DOWN (1)' # without a carrier
  ip -n "$space" link set fl-peer up
  run ibv_devinfo -v
  says state 'PORT_ACTIVE (4)'
  says phys_state 'LINK_UP (5)'
  says active_mtu '4096 (5)'
  echo "ok: the link's state"
  # A program that watches the device receives an event.
  start watcher "${in_space[@]}" env FAULTLINE_CONFIG="$folder/device.toml" LD_PRELOAD="$library" stdbuf -oL ibv_asyncwatch
  watch=$started
  event_count() { grep -c "event_type $1" "$folder/watcher.out" || true; }
  has_more() { [ "$(event_count "$1")" -gt "$2" ]; }
  # expect_event EVENT COMMAND...: the command causes this event
  expect_event() {
    local before
    before=$(event_count "$1")
    "${@:2}"
    await_that has_more "$1" "$before"
  }
  # It names the descriptor before it watches. Changes that it does not watch cause no event.
  await_line "$folder/watcher.out" 'async event FD [0-9]'
  await_that polls "$started" "$(sed -n 's/.*async event FD //p' "$folder/watcher.out")"
  for ((i = 0; i < 3; i++)); do
    expect_event IBV_EVENT_PORT_ERR ip -n "$space" link set fl-peer down
    expect_event IBV_EVENT_PORT_ACTIVE ip -n "$space" link set fl-peer up
  done
  expect_event IBV_EVENT_DEVICE_FATAL ip -n "$space" link del fl-own
  echo "ok: ibv_asyncwatch"
  exit 0
fi

if [ "$kind" = wire ]; then
  # on OPTIONS... -- PROGRAM ARGS...
  on() { bounded "$library" "$@" >"$folder/output.out" 2>&1 || fail "$*: $?"; }
  # refused LINE OPTIONS...
  refused() {
    local line=$1
    shift
    bounded "$library" "$@" ibv_devinfo >"$folder/output.out" 2>&1 || true
    grep -qF "$line" "$folder/output.out" || fail "$*: no line: $line"
  }
  settings='name = "told"\nvendor_id = 0x1234\nvendor_part_id = 4119\nmtu = 1500\n[device.port]\nkind = "wire"\n'
  printf '[[device]]\n%b' "$settings" >"$folder/settings.toml"
  printf '[[device]]\n%bwire = "own"\nside = "c"\n' "$settings"  >"$folder/whole.toml"
  for how in "--config $folder/whole.toml" "--config $folder/settings.toml --wire both --side c"; do
    # shellcheck disable=SC2086
    on $how -- ibv_devinfo -v
    says hca_id told
    says vendor_id 0x1234
    says vendor_part_id 4119
    says active_mtu '1024 (3)'
    says 'GID[ 0]' '::ffff:198.18.0.3, RoCE v2'
  done
  on --wire own --ip 198.18.0.9 -- ibv_devinfo -v
  says vendor_part_id 0
  says active_mtu '4096 (5)'
  says 'GID[ 0]' '::ffff:198.18.0.9, RoCE v2'
  refused 'device.port.wire: is missing' --config "$folder/settings.toml"
  refused 'that names no wire; there are 0' --config "$folder/whole.toml" --wire own
  refused 'faultline-run: --config:' --config "$folder/none.toml" --wire own
  sed -i 's/mtu = 1500/mtu = 9000/' "$folder/whole.toml"
  refused "told: device.mtu: wire own carries at most" --config "$folder/whole.toml"
  echo "ok: ibv_devinfo, over a wire as configured"
  exit 0
fi

cat >"$folder/device.toml" <<'TOML'
[[device]]
name = "plain"
ip = "198.18.0.1/24"
[device.port]
kind = "ring"
wire = "w0"
side = "a"
[[device]]
name = "told"
ip = ["198.18.0.2/24", "2001:2::2/64"]
mac = "02:46:4c:0a:0b:0c"
mtu = 1500
vendor_id = 0x1234
vendor_part_id = 4119
firmware = "16.35.4030"
device_memory_kib = 64
[device.port]
kind = "ring"
wire = "w0"
side = "b"
TOML
run ibv_devices
grep -Eq '^ +plain[[:space:]]+0046c6fffe120001$' "$folder/output.out" || fail "the first device and its GUID"
grep -Eq '^ +told[[:space:]]+00464cfffe0a0b0c$' "$folder/output.out" || fail "the second device and its GUID"
run ibv_devinfo -v -d told
says hca_id told
says fw_ver 16.35.4030
says node_guid 0046:4cff:fe0a:0b0c
says sys_image_guid 0046:4cff:fe0a:0b0c
says vendor_id 0x1234
says vendor_part_id 4119
says 'maximum available device memory' 65536Bytes
says phys_port_cnt 1
says max_mcast_grp 128
says max_srq_sge 16
says state 'PORT_ACTIVE (4)'
says max_mtu '1024 (3)'
says active_mtu '1024 (3)'
says link_layer Ethernet
says 'GID[ 0]' '::ffff:198.18.0.2, RoCE v2'
says 'GID[ 1]' '2001:2::2, RoCE v2'
says 'GID[ 2]' 'fe80::46:4cff:fe0a:b0c, RoCE v2'
[ "$(grep -c 'GID\[' "$folder/output.out")" -eq 3 ] || fail "it has three GIDs"
run ibv_devinfo -v -d plain
says fw_ver "$version"
says vendor_id 0xffffff
says vendor_part_id 0
says 'maximum available device memory' 1048576Bytes
says max_mtu '4096 (5)'
# Absent features are not reported.
for absent in max_ee max_rdd max_raw_ipv6_qp max_raw_ethy_qp max_fmr; do says "$absent" 0; done
for absent in RAW_SCATTER_FCS MANAGED_FLOW_STEERING UD_IP_CSUM AUTO_PATH_MIG; do
  if grep -q "$absent" "$folder/output.out"; then fail "$absent is claimed"; fi
done
for present in RC_RNR_NAK_GEN MEM_WINDOW_TYPE_2B XRC ODP_SUPPORT_IMPLICIT 'ATOMIC_GLOB'; do
  grep -q "$present" "$folder/output.out" || fail "$present is not reported"
done
echo "ok: ibv_devinfo, ibv_devices"
