#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reads the counters of running programs by DPDK's telemetry, from those that have FOLDER as RUNTIME_DIRECTORY.
  counters.py FOLDER NAME LEAST    exit status 0 if the counter of a device faultline0 is at least so high
  counters.py FOLDER --names PAGE  exit status 0 if one has the counters of docs/counters.md, and no others"""
import glob
import json
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402


def counters(folder):
    """The counters of each program that answers."""
    for path in glob.glob(f"{folder}/dpdk/faultline/dpdk_telemetry.v2*"):
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as telemetry:
                # A program that has just started, or that is ended now, answers the next time.
                telemetry.settimeout(lib.LIMIT_S)
                telemetry.connect(path)
                telemetry.recv(4096)
                telemetry.send(b"/faultline/counters,faultline0")
                yield json.loads(telemetry.recv(65536)).get("/faultline/counters") or {}
        except (OSError, ValueError):
            continue


def names_of(page):
    """faultline-perf has no connection manager."""
    with open(page) as file:
        lines = file.read().split("## Of one region")[0].splitlines()
    return {line.split("`")[1].replace(".", "/") for line in lines if line.startswith("| `") and not line.startswith("| `cm.")}


def main():
    folder, name, value = sys.argv[1:]
    if name != "--names":
        return any(told.get(name.replace(".", "/"), 0) >= int(value) for told in counters(folder))
    wanted = names_of(value)
    told = [set(one) for one in counters(folder)]
    if wanted not in told:
        print("the names differ:", [sorted(wanted ^ names) for names in told])
    return wanted in told


sys.exit(0 if main() else 1)
