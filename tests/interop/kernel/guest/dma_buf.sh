#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the tests of dma-bufs on the kernel peer's Linux, which exports them (udmabuf, the system heap), in an emulated machine.
#   dma_buf.sh INIT BUILD_DIRECTORY
# If QEMU or the kernel's package cannot be had, the script prints a line and exits with status 77.
set -euo pipefail
# shellcheck source=tests/interop/kernel/guest/tests_in_guest.sh
. "$(dirname "$0")/tests_in_guest.sh"

need_tools
image=$("$(dirname "$0")/image.sh")
run_in_guest "$image/vmlinuz" "$1" "$2" tests/unit/verbs/verbs_dma_buf 'tests/unit/verbs/verbs_unit --gtest_filter=DeviceMemory*'
! grep -a SKIPPED "$folder/output" || {
  echo "FAILED: the guest's kernel lacks an exporter"
  exit 1
}
