#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Connections in a row and many at once (connections.cpp), between two processes of a wire that have an address each and that
share one. A QPN that came back too soon was refused: its peer still knew the connection before (TIME_WAIT).
  connections_test.py FAULTLINE_RUN CONNECTIONS [--in-a-row N] [--at-once N]
With FAULTLINE_SOAK a million in a row.
"""
import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # tests
import lib  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("run")
parser.add_argument("connections")
soak = bool(os.environ.get("FAULTLINE_SOAK"))
parser.add_argument("--in-a-row", type=int, default=1_000_000 if soak else 300)
parser.add_argument("--at-once", type=int, default=1000 if soak else 100)
parser.add_argument("--only", choices=["own", "shared"])
options = parser.parse_args()
if not (Path(options.run).parent.parent / "stack/abi/libibverbs.so.1").exists():
    lib.skip("there is no drop-in library")
lib.own_runtime_folder()


def run(wire, options_of_server, options_of_client, address, at_once, groups):
    def start(role, where):
        command = [options.run, "--wire", wire, *where, "--", options.connections, role, address, "7471", at_once, groups]
        return lib.start(command, name=role)

    server = start("server", options_of_server)
    lib.await_line(server, "^listening$")
    ends = [start("client", options_of_client), server]
    for end in ends:
        # A million connections take an hour and more: Meson's limit ends a hang.
        if end.wait(timeout=None) != 0:
            lib.fail(f"the {end.name}")
        print(end.text(), end="", flush=True)


for how, where_server, where_client, address in (("own", ["--side", "a"], ["--side", "b"], "198.18.0.1"),
                                                 ("shared", ["--share"], ["--share"], "198.18.0.255")):
    if options.only not in (None, how):
        continue
    for at_once, groups in ((1, options.in_a_row), (options.at_once, 7)):
        print(f"{how}: {groups} times {at_once}", flush=True)
        run(f"conn{how}{at_once}x{os.getpid()}", where_server, where_client, address, at_once, groups)
