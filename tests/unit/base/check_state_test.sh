#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# scripts/check-state accepts docs/design/process-state.md, and reports a row that is missing, one too many, and one of the wrong file.
#   check_state_test.sh CHECK PAGE BUILD
set -euo pipefail
check=$1 page=$2 build=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$check" "$build" --table "$page"

# refuses NAME EDIT WANTED: the page changed by a sed script gives the line WANTED.
refuses() {
  sed -E "$2" "$page" >"$folder/page.md"
  if "$check" "$build" --table "$folder/page.md" >"$folder/said"; then
    echo "FAILED: accepts $1"
    exit 1
  fi
  grep -qF "$3" "$folder/said" || { echo "FAILED: $1 gives:"; cat "$folder/said"; exit 1; }
}

refuses "a page without a row" '/^\| `verbs::registry`/d' \
  'stack/verbs/device/device.cpp: page.md does not list the process-wide state verbs::registry'
refuses "a row of state that no object has" '/^\| `verbs::registry`/{p; s/verbs::registry/verbs::no_such_state/}' \
  'page.md: no object has the process-wide state verbs::no_such_state'
refuses "a row with another file" '/^\| `verbs::registry`/s/device\.cpp/query.cpp/' \
  'page.md: stack/verbs/device/query.cpp does not name verbs::registry'
refuses "a row with no file" '/^\| `verbs::registry`/s/device\.cpp/none.cpp/' 'page.md: there is no file stack/verbs/device/none.cpp'
echo "ok"
