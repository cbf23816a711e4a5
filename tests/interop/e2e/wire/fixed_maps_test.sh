#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A program on a wire maps memory at a fixed place: fixed_maps.cpp.
#   fixed_maps_test.sh FIXED_MAPS FAULTLINE_RUN
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../../lib.sh"
program=$1
run=$2
own_runtime_folder
"$run" --wire fixed -- "$program"
