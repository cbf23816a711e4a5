#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A program on a wire maps memory at a fixed place: fixed_maps.cpp.
#   fixed_maps_test.sh FIXED_MAPS FAULTLINE_RUN
set -euo pipefail
program=$1
run=$2
folder=$(mktemp -d)
chmod 700 "$folder"
export XDG_RUNTIME_DIR=$folder
trap 'rm -rf "$folder"' EXIT
"$run" --wire "fixed$$" -- "$program"
