#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs port_gone's tap cases in a network namespace of their own.
#   port_gone_test.sh PORT_GONE
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
program=$1
need_root
need ip
[ -c /dev/net/tun ] || skip "there is no /dev/net/tun"
for progress in inline dedicated; do
  space=
  new_namespace space "gone-$progress"
  bounded ip netns exec "$space" "$program" tap "$progress" || fail "$progress"
done
