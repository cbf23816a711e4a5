#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Every operation over memif, every byte compared: sizes round the path MTU, every path MTU, pinned and on-demand memory, warm,
# cold and prefetched, several QPs, inline and dedicated progress, as this user and as an ordinary one.
#   memif_test.sh FAULTLINE_PERF [brief]     brief: one path MTU and each kind of memory
set -euo pipefail
# shellcheck source=tests/interop/e2e/perf.sh
. "$(dirname "$0")/perf.sh"
memif_pair ''
export RUNTIME_DIRECTORY=$folder/run

brief=${2:-}
mtus=(256 512 1024 2048 4096)
if [ -n "${FAULTLINE_BRIEF:-}" ]; then mtus=(256 4096); fi
if [ -n "$brief" ]; then mtus=(1024); fi
for mtu in "${mtus[@]}"; do
  sizes=1,63,64,$((mtu - 1)),$mtu,$((mtu + 1)),64k,1m
  expect_pair --op write,write_imm,read,send --size "$sizes" --mtu "$mtu" --depth 8 --iters 16 --verify
  expect_pair --op ud_send --size "1,64,$mtu" --mtu "$mtu" --depth 8 --iters 64 --verify
  # A page fault drops datagrams until it is served: on a busy machine that can be all of them.
  expect_pair --op ud_send --size "1,64,$mtu" --mtu "$mtu" --region pinned --depth 8 --iters 64 --verify
  grep -q ' 0 of ' "$folder/client.out" && fail "no datagram arrived at path MTU $mtu"
done
expect_pair --op write,write_imm,read,send --size 64,5000,64k --region pinned --depth 16 --iters 64 --verify
for touch in cold prefetch; do
  expect_pair --op write,write_imm,read,send --size 64,5000,64k --touch "$touch" --depth 16 --iters 64 --verify
done
expect_pair --op write,read,send --size 64,5000 --qps 4 --depth 16 --iters 256 --verify
if [ -n "$brief" ]; then exit; fi
expect_pair --op write,read,send --size 64,5000 --qps 64 --depth 4 --iters 1024 --verify
# More QPs have something to send than the port takes at once. On a busy machine one round of all takes seconds; nothing is lost.
expect_pair --op write --size 64 --qps 10000 --depth 1 --iters 200000 --ack-timeout 22
for op in write write_imm read send ud_send; do
  expect_pair --op "$op" --size 64 --mode lat --iters 2000
done
expect_pair --op write,read --size 64 --mode lat --touch cold --iters 4096
for mode in bw lat; do
  expect_pair --op write,write_imm,read,send --size 64 --mode "$mode" --region odp,pinned --seconds 0.08 --json "$folder/turns.json"
  python3 - "$folder/turns.json" "$mode" <<'PY' || fail "the JSON of turns lacks something"
import json, sys
rows = json.load(open(sys.argv[1]))["results"]
assert [row["region"] for row in rows] == ["odp", "pinned"] * 4
assert all(row["beside"]["region"] == "pinned" and row["beside"]["quads"] == 8 and
           0 < row["beside"]["ratio"]["p10"] <= row["beside"]["ratio"]["p50"] <= row["beside"]["ratio"]["p90"] for row in rows[::2])
assert not any("beside" in row for row in rows[1::2])
assert all(row["messages"] > 0 and row["seconds"] >= 0.08 and ("latency_us" in row) == (sys.argv[2] == "lat") for row in rows)
PY
done

memif_pair 'progress = "dedicated"'
expect_pair --op write,read,send,ud_send --size 64,4096 --depth 8 --iters 64 --verify
if [ "$(nproc)" -ge 2 ]; then
  memif_pair $'progress = "dedicated"\nlcores = [0, 1]'
  expect_pair --op write,read,send --size 64,4096,64k --qps 4 --depth 8 --iters 64 --verify
  expect_pair --op ud_send --size 64,4096 --depth 8 --iters 64 --verify
fi
memif_pair ''

expect_pair --op write --size 64 --seconds 0.3 --limits --json "$folder/result.json"
python3 - "$folder/result.json" <<'PY' || fail "the JSON lacks something"
import json, sys
result = json.load(open(sys.argv[1]))["results"][0]
assert result["op"] == "write" and result["size"] == 64 and result["messages"] > 0 and result["timeouts"] == 0
assert result["limits"]["raw_port_packets_per_second"] > 0 and result["limits"]["packets_to_raw_port"] > 0
assert result["limits"]["copy_crc_gb_per_second"] > 0
PY

start_server
start telemetry-client "$perf" --config "$folder/client.toml" --client 127.0.0.1 --port "$tcp_port" -- --op write --size 64 \
  --seconds "$hang_seconds"
watch=$started await_traffic
"$(dirname "$0")/counters.py" "$folder/run" --names "$tests_folder/../docs/counters.md" || fail "DPDK's telemetry lacks counters"
kill_now "$started" "$server_pid"
echo "ok: telemetry"

start_server
status=0
printf 'start\nshow stats\nshow odp all\nstop\nset size 4096\nset size x\nstart\nnonsense\nstop\nquit\n' |
  bounded "$perf" --config "$folder/client.toml" --client 127.0.0.1 --port "$tcp_port" -- -i --op write \
    >"$folder/client.out" 2>"$folder/client.err" || status=$?
# Two commands of the script are wrong.
[ "$status" -eq 2 ] || fail "the prompt: status $status"
expect_server "the prompt"
for said in 'odp.num_page_faults' 'write .* 64 ' 'write .* 4096 '; do
  grep -q -- "$said" "$folder/client.out" || fail "the prompt did not print: $said"
done
for said in 'set size: "x"' 'unknown command "nonsense"'; do
  grep -q -- "$said" "$folder/client.err" || fail "the prompt did not refuse: $said"
done
echo "ok: the prompt"

bounded "$perf" --demo >"$folder/demo.out" 2>"$folder/demo.err" || fail "the demo"
if [ "$(id -u)" -eq 0 ] && setpriv --reuid=nobody --regid=nogroup --clear-groups true 2>/dev/null; then
  # As an ordinary user, from a folder of his own; the program may lie where he cannot read.
  own=$folder/own
  mkdir "$own"
  cp "$perf" "$own/faultline-perf"
  cp -L "$(dirname "$perf")/../libfaultline.so.0" "$own/"
  chmod 755 "$folder" && chown -R nobody "$own"
  bounded setpriv --reuid=nobody --regid=nogroup --clear-groups env -u HOME -u XDG_RUNTIME_DIR TMPDIR="$own" \
    LD_LIBRARY_PATH="$own" "$own/faultline-perf" --demo >"$folder/demo.out" 2>"$folder/demo.err" || fail "the demo as nobody"
  echo "ok: the demo, as root and as nobody"
else
  echo "ok: the demo"
fi
