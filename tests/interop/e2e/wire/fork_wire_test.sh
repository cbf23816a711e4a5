#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Forked processes with devices of their own (fork_wire.cpp): on a wire whose address they share, and on one where each is
# given its own. And what cannot be had twice, in one line.
#   fork_wire_test.sh FORK_WIRE
set -euo pipefail
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../../lib.sh"
program=$1
own_runtime_folder
memif_pair ''
bounded "$program" shared,share
bounded "$program" own
FAULTLINE_WIRE=side,side=a bounded "$program" --refused "start both with --share"
FAULTLINE_CONFIG="$folder/server.toml" bounded "$program" --refused "a port of kind memif cannot be had twice"
