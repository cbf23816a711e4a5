#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# libfaultline.so gives programs the verbs, its own API and the calls that it must see before the kernel, nothing else, and does without libibverbs.
# Usage: exports_test.sh LIBRARY
set -eu
export LC_ALL=C
library=$1
exported=$(nm -D --defined-only "$library" | awk '{ sub(/@.*/, "", $3); print $3 }')
[ -n "$exported" ] || { echo "FAILED: $library exports nothing"; exit 1; }
# The two are rdma-core's own names without the prefix.
strange=$(echo "$exported" | grep -vE '^(_?ibv_|faultline_)|^(mult|mbps)_to_ibv_rate$|^(mmap|mmap64|munmap|mremap|madvise|mprotect|ioctl|shmat|shmdt|brk|sbrk|fallocate|fallocate64|ftruncate|ftruncate64|truncate|truncate64)$|^(sigaction|signal|bsd_signal|ssignal|(__)?sysv_signal|siginterrupt|sigset|sigignore|sighold|sigrelse|sigprocmask|pthread_sigmask|sigblock|sigsetmask)$|^(_|sig)?longjmp$|^__longjmp_chk$|^_(exit|Exit)$|^(set|swap)context$' || true)
[ -z "$strange" ] || { echo "FAILED: exports beyond the API:"; echo "$strange"; exit 1; }
for name in ibv_get_device_list ibv_create_qp ibv_reg_mr_iova2 _ibv_query_gid_ex faultline_configure munmap sigaction _exit; do
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
