#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A program on a wire ends with the completion of what it received: last_ack.cpp.
#   last_ack_test.sh LAST_ACK FAULTLINE_RUN
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../../lib.sh"
program=$1
own_runtime_folder
"$program" last "$([ -n "${FAULTLINE_SOAK:-}" ] && echo 100 || echo 12)"
