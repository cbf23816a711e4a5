#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What bash completes for Faultline's programs.
#   completion_test.sh COMPLETION FAULTLINE
set -euo pipefail
# shellcheck source=apps/faultline/completion.bash
. "$1"
program=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/faultline"
: >"$folder/faultline/w7.control"
: >"$folder/nic.toml"
: >"$folder/nic.txt"
export XDG_RUNTIME_DIR=$folder

# expect "WORDS" WORD...: these are completions of the last of WORDS, which is empty after a blank. "-" before one: it is none.
expect() {
  local line=$1 wanted
  shift
  read -ra COMP_WORDS <<<"$line"
  case $line in *' ') COMP_WORDS+=("") ;; esac
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _faultline
  for wanted in "$@"; do
    case $wanted in
      -:*) if grep -qxF -- "${wanted#-:}" < <(printf '%s\n' "${COMPREPLY[@]}"); then echo "FAILED: '$line' offers ${wanted#-:}" && exit 1; fi ;;
      *) grep -qxF -- "$wanted" < <(printf '%s\n' "${COMPREPLY[@]}") || { echo "FAILED: '$line' offers no $wanted, but: ${COMPREPLY[*]}" && exit 1; } ;;
    esac
  done
}

expect "$program " run perf sim switch info doctor
expect "$program d" doctor -:run
expect "$program doctor --" --json --wire --config --udp --ip --help
expect "$program st" story
expect "$program story --" --json --output -:--wire
expect "$program story $folder/n" "$folder/nic.toml" "$folder/nic.txt"
expect "$program e" explore export
expect "$program explore --" --trouble --runs --shrink-runs -:--json
expect "$program explore --trouble $folder/" "$folder/nic.toml" "-:$folder/nic.txt"
expect "$program explore --wire w" w7
expect "$program run --" --wire --side --share --guards -:--json
expect "$program-run --s" --side --share -:--wire
expect "$program-run --wire " w7
expect "$program run --wire w" w7
expect "$program info --wire " w7
expect "$program-switch --status " w7
expect "$program-switch --uplink t" tap:
expect "$program-run --config $folder/" "$folder/nic.toml" "-:$folder/nic.txt"
expect "$program run --wire w7 ech" echo
expect "$program-perf --" --server --demo -:--op
expect "$program-perf --client h -- --" --op --size -:--server
expect "$program perf --both -- --op " ud_send
expect "$program sim --" --output --seed --cost -:--wire
expect "$program sim --congestion " none dcqcn swift
expect "$program-sim $folder/" "$folder/nic.toml" "-:$folder/nic.txt"
echo ok
