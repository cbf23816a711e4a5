#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Every operation between a port of kind vhost and one of kind virtio_user, every byte compared; and perftest. As root, each end has
# network and mount namespaces of its own, as containers have: only the socket file is common.
#   vhost_test.sh FAULTLINE_PERF FAULTLINE_RUN
set -euo pipefail
# shellcheck source=tests/interop/e2e/perf.sh
. "$(dirname "$0")/perf.sh"
faultline_run=$2

if [ "$(id -u)" -eq 0 ] && unshare --net true 2>/dev/null; then
  space_a='' space_b=''
  new_namespace space_a vhost-a
  new_namespace space_b vhost-b
  # For the TCP connection on which both ends exchange the parameters of their QPs.
  veth_pair "$space_a" tcp "$space_b" tcp 1500
  ip -n "$space_a" addr add 198.19.0.1/24 dev tcp
  ip -n "$space_b" addr add 198.19.0.2/24 dev tcp
  in_space=(ip netns exec "$space_a")
  in_client=(ip netns exec "$space_b")
  exchange=198.19.0.1
fi

# pair QUEUES DEVICE_LINES: both ends of one socket
pair() {
  device_config server 198.18.0.1/24 "$(printf 'kind = "vhost"\nsocket = "%s/vm.sock"\nqueues = %s' "$folder" "$1")" "$2"
  device_config client 198.18.0.2/24 "$(printf 'kind = "virtio_user"\nsocket = "%s/vm.sock"\nqueues = %s' "$folder" "$1")" "$2"
}
pair 1 ''
expect_pair --op write,write_imm,read,send --size 1,64,1023,1025,64k --depth 8 --iters 8 --verify
expect_pair --op ud_send --size 64,1024 --depth 4 --iters 32 --verify
pair 1 'mtu = 4500'
expect_pair --op write,read,send --size 4097,64k --depth 8 --iters 8 --verify
if [ "$(nproc)" -ge 2 ]; then
  pair 2 $'progress = "dedicated"\nlcores = [0, 1]'
  expect_pair --op write,send --size 64,4096 --qps 4 --depth 4 --iters 32 --verify
  # One core has both queues: the peer chooses the queue of each frame.
  device_config server 198.18.0.1/24 "$(printf 'kind = "vhost"\nsocket = "%s/vm.sock"\nqueues = 2' "$folder")"
  expect_pair --op write,send --size 64,4096 --qps 4 --depth 4 --iters 32 --verify
fi

command -v ib_send_bw >/dev/null || { echo "ok: without perftest, which is not installed"; exit 0; }
# perftest connects its TCP sockets before it opens the device. In these roles either end may open first.
pair 1 'mtu = 4500'
echo 'role = "client"' >>"$folder/server.toml"
echo 'role = "server"' >>"$folder/client.toml"
tcp_port=$(free_port)
run_pair "$tcp_port" "$faultline_run" --config "$folder/server.toml" -- ib_send_bw -F -n 200 -s 65536 -p "$tcp_port" :: \
  "$faultline_run" --config "$folder/client.toml" -- ib_send_bw -F -n 200 -s 65536 -p "$tcp_port" "$exchange"
echo "ok: ib_send_bw"
