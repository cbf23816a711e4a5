#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# libfaultline.so gives programs the verbs and its own API, and does without libibverbs. That it gives them nothing else but the C
# library's names that it interposes on is the test interposed-names.
# Usage: exports_test.sh LIBRARY
set -eu
export LC_ALL=C
library=$1
exported=$(nm -D --defined-only "$library" | awk '{ sub(/@.*/, "", $3); print $3 }')
[ -n "$exported" ] || { echo "FAILED: $library exports nothing"; exit 1; }
for name in ibv_get_device_list ibv_create_qp ibv_reg_mr_iova2 _ibv_query_gid_ex faultline_configure; do
  echo "$exported" | grep -qx "$name" || { echo "FAILED: $name is not exported"; exit 1; }
done
# Directly: DPDK drivers that are linked in must not bring it either.
if readelf -d "$library" | grep NEEDED | grep -E 'libibverbs|libmlx|librdmacm'; then
  echo "FAILED: needs the real verbs"; exit 1
fi
linked=$(ldd "$library")
if echo "$linked" | grep libibverbs; then
  echo "FAILED: a library that it needs brings libibverbs"; exit 1
fi
echo "ok: $(echo "$exported" | wc -l) symbols"
