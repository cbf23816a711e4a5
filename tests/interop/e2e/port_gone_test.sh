#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs port_gone's tap cases in a network namespace of their own.
#   port_gone_test.sh PORT_GONE
set -euo pipefail
program=$1
skip() { echo "SKIPPED: $*"; exit 77; }
[ "$(id -u)" -eq 0 ] || skip "needs root for network namespaces"
command -v ip >/dev/null || skip "ip is not installed"
[ -c /dev/net/tun ] || skip "there is no /dev/net/tun"
space=fl-gone-$$
cleanup() { ip netns del "$space" 2>/dev/null || true; }
trap cleanup EXIT
for progress in inline dedicated; do
  ip netns add "$space" 2>/dev/null || skip "may not create network namespaces"
  ip netns exec "$space" timeout 100 "$program" tap "$progress"
  ip netns del "$space"
done
