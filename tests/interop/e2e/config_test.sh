#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Bad configuration and bad options: exit status 2 and one line that names what is wrong.
#   config_test.sh FAULTLINE_PERF
set -euo pipefail
# shellcheck source=tests/interop/e2e/perf.sh
. "$(dirname "$0")/perf.sh"
memif_pair ''

# refused WORD COMMAND...: status 2, one line on standard error, with WORD in it
refused() {
  local word=$1 status=0
  shift
  bounded "$@" >"$folder/refused.out" 2>"$folder/refused.err" || status=$?
  [ "$status" -eq 2 ] || fail "$word: exit status $status, not 2"
  [ "$(wc -l <"$folder/refused.err")" -eq 1 ] || fail "$word: not one line"
  grep -qF -- "$word" "$folder/refused.err" || fail "$word: the line does not name it: $(cat "$folder/refused.err")"
}
# bad_config WORD SED_SCRIPT
bad_config() {
  sed "$2" "$folder/server.toml" >"$folder/bad.toml"
  refused "$1" "$perf" --config "$folder/bad.toml" --server --port 0
}
bad_config colour '1a colour = "red"'
bad_config device.port.kind 's/"memif"/"foo"/'
bad_config device.ip 's/198.18.0.1/198.18.0.300/'
bad_config device.mtu '1a mtu = 12'
bad_config device.mac '1a mac = "zz"'
bad_config device.progress '1a progress = "sometimes"'
bad_config device.port.role 's/"server"/"waiter"/'
bad_config device.port.socket '/^socket/d'
bad_config transport.window_packets '$a [transport]\nwindow_packets = "many"'
bad_config odp.pin_budget_mib '$a [odp]\npin_budget_mib = -1'
bad_config odp.unpinned_classic '$a [odp]\nunpinned_classic = "never"'
bad_config eal.memory_mib '$a [eal]\nmemory_mib = 0'
refused nowhere.toml "$perf" --config "$folder/nowhere.toml" --server --port 0
refused faultline9 "$perf" --config "$folder/server.toml" --device faultline9 --server --port 0
# The port opens with the first PD.
device_config absent 198.18.0.1/24 "$(printf 'kind = "pci"\naddress = "ffff:ff:1f.7"')"
refused "device.port.address: there is no PCI device ffff:ff:1f.7" "$perf" --config "$folder/absent.toml" --server --port 0
run=("$perf" --config "$folder/client.toml" --client 127.0.0.1)
refused --op "${run[@]}" -- --op jump
refused --mtu "${run[@]}" -- --mtu 1000
refused --size "${run[@]}" -- --size 12x
refused --qps "${run[@]}" -- --qps 0
refused --touch "${run[@]}" -- --region pinned --touch cold
refused --touch "${run[@]}" -- --region odp,pinned --touch cold
refused --region "${run[@]}" -- --region odp,huge
refused --region "${run[@]}" -- --region odp,pinned,odp
refused --region "${run[@]}" -- --region odp,pinned --verify
refused --region "${run[@]}" -- --region odp,pinned --iters 100
refused --qps "${run[@]}" -- --mode lat --qps 2
refused --verify "${run[@]}" -- --mode lat --verify --op write
refused --verify "${run[@]}" -- --mode lat --verify --op read
refused --nonsense "${run[@]}" -- --nonsense
refused --server "$perf" --config "$folder/client.toml"
refused "--server, --client HOST" "$perf" --config "$folder/client.toml" --server --client 127.0.0.1
refused --both "$perf" --config "$folder/client.toml" --both
echo "ok"
