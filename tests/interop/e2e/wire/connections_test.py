#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Connections in a row and many at once (connections.cpp), between two processes of a wire that have an address each and that
share one. A QPN that came back too soon was refused: its peer still knew the connection before (TIME_WAIT).
  connections_test.py FAULTLINE_RUN CONNECTIONS [--in-a-row N] [--at-once N]
With FAULTLINE_SOAK a million in a row.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("run")
parser.add_argument("connections")
soak = bool(os.environ.get("FAULTLINE_SOAK"))
parser.add_argument("--in-a-row", type=int, default=1_000_000 if soak else 300)
parser.add_argument("--at-once", type=int, default=1000 if soak else 100)
parser.add_argument("--only", choices=["own", "shared"])
options = parser.parse_args()
if not (pathlib.Path(options.run).parent.parent / "stack/abi/libibverbs.so.1").exists():
    print("SKIPPED: there is no drop-in library")
    sys.exit(77)

folder = tempfile.mkdtemp()
os.chmod(folder, 0o700)
environment = dict(os.environ, XDG_RUNTIME_DIR=folder)
wires = []
# A connection may take long on a machine that is busy; a million take an hour and more.
patience_s = 120 + options.in_a_row * 0.05


def run(wire, options_of_server, options_of_client, address, at_once, groups):
    def start(role, where, **more):
        command = [options.run, "--wire", wire, *where, "--", options.connections, role, address, "7471", str(at_once), str(groups)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, **more)

    server = start("server", options_of_server)
    try:
        if server.stdout.readline() != "listening\n":
            sys.exit("FAILED: the server does not listen")
        client = start("client", options_of_client)
        try:
            output, _ = client.communicate(timeout=patience_s)
            print(output, end="")
            if client.returncode != 0:
                sys.exit("FAILED: the client")
            output, _ = server.communicate(timeout=patience_s)
            print(output, end="", flush=True)
            if server.returncode != 0:
                sys.exit("FAILED: the server")
        finally:
            client.kill()
            client.wait()
    finally:
        server.kill()
        server.wait()


try:
    for how, server, client, address in (("own", ["--side", "a"], ["--side", "b"], "198.18.0.1"),
                                         ("shared", ["--share"], ["--share"], "198.18.0.255")):
        if options.only not in (None, how):
            continue
        for at_once, groups in ((1, options.in_a_row), (options.at_once, 7)):
            wire = f"conn{how}{at_once}x{os.getpid()}"
            wires.append(wire)
            print(f"{how}: {groups} times {at_once}", flush=True)
            run(wire, server, client, address, at_once, groups)
except subprocess.TimeoutExpired:
    sys.exit(f"FAILED: no end after {patience_s:.0f} s")
finally:
    for wire in wires:
        output = subprocess.run(["pgrep", "-u", str(os.getuid()), "-f", "--", f"faultline-switch --wire {wire} --listener"],
                              stdout=subprocess.PIPE, text=True, check=False).stdout
        for pid in output.split():
            os.kill(int(pid), 9)
    shutil.rmtree(folder, ignore_errors=True)
