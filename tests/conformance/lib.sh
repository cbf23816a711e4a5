# SPDX-License-Identifier: BSD-3-Clause
# Functions that the scripts in this folder share. This file is sourced, never run.
# shellcheck shell=bash

skip() {
  echo "SKIPPED: $*"
  exit 77
}

# need TOOLS...: skips the test unless they are installed
need() {
  local tool
  for tool in "$@"; do command -v "$tool" >/dev/null || skip "$tool is not installed"; done
}

# fail WHAT: prints the last lines of all programs; they are in $folder/*.out
# shellcheck disable=SC2154 # the script's own
fail() {
  echo "FAILED: $*"
  tail -v -n 8 "$folder"/*.out 2>/dev/null || true
  exit 1
}

# free_port: a TCP port that no program uses
free_port() { python3 "$(dirname "$0")/../free_port.py"; }

# listens PORT [PREFIX...]: a program accepts TCP connections there, in the environment in which the prefix runs a command
listens() {
  local line
  line=$(printf ':%04X [0:]*0000 0A' "$1")
  shift
  "$@" grep -qhi "$line" /proc/net/tcp /proc/net/tcp6
}

# await_listener PORT [PREFIX...]: a client's own TCP connect is tried once, so the server has to listen first
await_listener() {
  for _ in $(seq 100); do
    if listens "$@"; then return; fi
    sleep 0.1
  done
}
