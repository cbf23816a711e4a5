#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A program on a wire ends with the completion of what it received: last_ack.cpp.
#   last_ack_test.sh LAST_ACK FAULTLINE_RUN
set -euo pipefail
program=$1
folder=$(mktemp -d)
chmod 700 "$folder"
export XDG_RUNTIME_DIR=$folder
trap 'rm -rf "$folder"' EXIT
"$program" "last$$" "$([ -n "${FAULTLINE_SOAK:-}" ] && echo 100 || echo 12)"
