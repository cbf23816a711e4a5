#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Frameworks over verbs as Debian ships them, over a wire: UCX, libfabric, Open MPI with ranks that share one device.
#   frameworks_test.sh FAULTLINE_RUN
set -euo pipefail
run=$1
skip() { echo "SKIPPED: $*"; exit 77; }
for tool in ucx_info ucx_perftest fi_info fi_pingpong mpirun mpicc; do
  command -v "$tool" >/dev/null || skip "$tool is not installed"
done
[ -e "$(dirname "$run")/../stack/abi/libibverbs.so.1" ] || skip "there is no drop-in library"
folder=$(mktemp -d)
export XDG_RUNTIME_DIR=$folder
chmod 700 "$folder"
wire=fw$$
server_pid=
cleanup() {
  if [ -n "$server_pid" ]; then kill -9 "$server_pid" 2>/dev/null || true; fi
  for name in $wire $wire-mpi; do
    pid=$(pgrep -u "$(id -u)" -f -- "faultline-switch --wire $name --listener" || true)
    if [ -n "$pid" ]; then kill "$pid" 2>/dev/null || true; fi
  done
  rm -rf "$folder"
}
trap cleanup EXIT
fail() {
  echo "FAILED: $*"
  tail -n 12 "$folder"/*.out 2>/dev/null || true
  exit 1
}
tcp_port=$((20000 + $$ % 20000))
# await_port PORT: until somebody listens there
await_port() {
  for _ in $(seq 200); do
    if grep -qi "$(printf ':%04X 0*:0000 0A' "$1")" /proc/net/tcp /proc/net/tcp6; then return; fi
    kill -0 "$server_pid" 2>/dev/null || break
    sleep 0.1
  done
  fail "nobody listens on TCP port $1"
}
# pair NAME "SERVER COMMAND" "CLIENT COMMAND": both must end with 0
pair() {
  timeout 60 "$run" --wire "$wire" --side a -- $2 >"$folder/server.out" 2>&1 &
  server_pid=$!
  await_port "$tcp_port"
  timeout 60 "$run" --wire "$wire" --side b -- $3 >"$folder/client.out" 2>&1 || fail "$1: client: $3"
  wait "$server_pid" || fail "$1: server: $2"
  server_pid=
  echo "ok: $1"
}

"$run" --wire "$wire" -- ucx_info -d >"$folder/ucx_info.out" 2>&1
for transport in rc_verbs ud_verbs; do grep -q "Transport: $transport" "$folder/ucx_info.out" || fail "ucx_info lists no $transport"; done
echo "ok: ucx_info -d"
export UCX_NET_DEVICES=faultline0:1
for transports in rc_verbs,ud_verbs ud_verbs; do
  export UCX_TLS=$transports
  for test in "ucp_am_lat -s 8" "tag_lat -s 4096" "tag_bw -s 1048576" "ucp_put_bw -s 65536" "ucp_get -s 4096" "ucp_fadd -s 8"; do
    tcp_port=$((tcp_port + 1))
    pair "ucx_perftest $transports $test" "ucx_perftest -p $tcp_port -t $test -n 200 -w 10" \
      "ucx_perftest 127.0.0.1 -p $tcp_port -t $test -n 200 -w 10"
  done
done

"$run" --wire "$wire" -- fi_info -p verbs >"$folder/fi_info.out" 2>&1 || fail "fi_info -p verbs"
for kind in FI_EP_MSG FI_EP_DGRAM; do grep -q "$kind" "$folder/fi_info.out" || fail "fi_info lists no $kind"; done
echo "ok: fi_info -p verbs"
for kind in "verbs -e msg -d faultline0" "verbs;ofi_rxm -e rdm -d faultline0" "verbs -e dgram -d faultline0-dgram" \
  "verbs;ofi_rxd -e rdm -d faultline0-dgram"; do
  tcp_port=$((tcp_port + 1))
  pair "fi_pingpong -p $kind" "fi_pingpong -p $kind -c -I 50 -B $tcp_port" "fi_pingpong -p $kind -c -I 50 -P $tcp_port 127.0.0.1"
done

cat >"$folder/ring.c" <<'C'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each rank passes buffers of many sizes to the next one; every byte is looked at. */
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size, wrong = 0, all = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int before = (rank + size - 1) % size;
  for (int bytes = 1; bytes <= 1 << 20; bytes *= 16) {
    char* const out = malloc(bytes);
    char* const in = malloc(bytes);
    memset(out, rank + bytes, bytes);
    MPI_Sendrecv(out, bytes, MPI_CHAR, (rank + 1) % size, 0, in, bytes, MPI_CHAR, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < bytes; ++i) wrong += in[i] != (char)(before + bytes);
    free(out);
    free(in);
  }
  int sum = 0;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  wrong += sum != size * (size - 1) / 2;
  MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks, %d wrong\n", size, all);
  MPI_Finalize();
  return all != 0;
}
C
mpicc -o "$folder/ring" "$folder/ring.c" || fail "mpicc"
export UCX_TLS=rc_verbs,ud_verbs,self
as_root=()
if [ "$(id -u)" -eq 0 ]; then as_root=(--allow-run-as-root); fi
for ranks in 2 4; do
  timeout 90 mpirun "${as_root[@]}" --oversubscribe -np "$ranks" --mca pml ucx --mca btl '^openib,uct' \
    "$run" --wire "$wire-mpi" --share -- "$folder/ring" >"$folder/mpi.out" 2>&1 || fail "mpirun -np $ranks"
  grep -q "^$ranks ranks, 0 wrong" "$folder/mpi.out" || fail "mpirun -np $ranks: wrong bytes"
  echo "ok: mpirun -np $ranks --mca pml ucx, one device shared"
done
