#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Every operation between a port of kind vhost and one of kind virtio_user, every byte compared; and perftest. As root, each end has
# network and mount namespaces of its own, as containers have: only the socket file is common.
#   vhost_test.sh FAULTLINE_PERF FAULTLINE_RUN
set -euo pipefail
# shellcheck source=tests/interop/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
faultline_run=$2

space_a=fl-vhost-a-$$
space_b=fl-vhost-b-$$
extra_cleanup() {
  ip netns del "$space_a" 2>/dev/null || true
  ip netns del "$space_b" 2>/dev/null || true
}
if [ "$(id -u)" -eq 0 ] && ip netns add "$space_a" 2>/dev/null && ip netns add "$space_b"; then
  # For the TCP connection on which both ends exchange the parameters of their QPs.
  ip -n "$space_a" link add tcp type veth peer name tcp netns "$space_b"
  ip -n "$space_a" addr add 198.19.0.1/24 dev tcp
  ip -n "$space_b" addr add 198.19.0.2/24 dev tcp
  for space in "$space_a" "$space_b"; do ip -n "$space" link set tcp up; ip -n "$space" link set lo up; done
  in_space=(ip netns exec "$space_a")
  in_client=(ip netns exec "$space_b")
  exchange=198.19.0.1
fi

# pair QUEUES DEVICE_LINES: both ends of one socket
pair() {
  device_config server 1 "$(printf 'kind = "vhost"\nsocket = "%s/vm.sock"\nqueues = %s' "$folder" "$1")" "$2"
  device_config client 2 "$(printf 'kind = "virtio_user"\nsocket = "%s/vm.sock"\nqueues = %s' "$folder" "$1")" "$2"
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
  device_config server 1 "$(printf 'kind = "vhost"\nsocket = "%s/vm.sock"\nqueues = 2' "$folder")"
  expect_pair --op write,send --size 64,4096 --qps 4 --depth 4 --iters 32 --verify
fi

command -v ib_send_bw >/dev/null || { echo "ok: without perftest, which is not installed"; exit 0; }
# perftest connects its TCP sockets before it opens the device. In these roles either end may open first.
pair 1 'mtu = 4500'
echo 'role = "client"' >>"$folder/server.toml"
echo 'role = "server"' >>"$folder/client.toml"
"${in_space[@]}" timeout 60 "$faultline_run" --config "$folder/server.toml" -- ib_send_bw -F -n 200 -s 65536 >"$folder/server.out" 2>"$folder/server.err" &
server_pid=$!
# The server accepts one connection, so the client connects once, to a server that listens (18515).
listens() { "${in_space[@]}" cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q ':4853 0*:0000 0A'; }
for _ in $(seq 200); do
  if listens; then break; fi
  kill -0 "$server_pid" 2>/dev/null || fail "ib_send_bw: the server ended"
  sleep 0.1
done
"${in_client[@]}" timeout 60 "$faultline_run" --config "$folder/client.toml" -- ib_send_bw -F -n 200 -s 65536 "$exchange" \
  >"$folder/client.out" 2>"$folder/client.err" || fail "ib_send_bw: the client"
wait "$server_pid" || fail "ib_send_bw: the server"
server_pid=
echo "ok: ib_send_bw"
