#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints the counters of this user's running programs, of all that are not 0, or of those that changed. It asks DPDK's telemetry.
  counters.py [PID]              now
  counters.py --seconds 5 [PID]  by how much they changed in that time"""
import argparse
import json
import os
import pathlib
import socket
import sys
import time


def folders():
    """Where the programs of this user may have their telemetry sockets: EAL's runtime folder, or the wires' (docs/wires.md)."""
    user = os.getuid()
    bases = [os.environ.get("RUNTIME_DIRECTORY"), "/var/run" if user == 0 else os.environ.get("XDG_RUNTIME_DIR"),
             f"{os.environ.get('XDG_RUNTIME_DIR', '')}/faultline", f"/tmp/faultline-{user}", f"/run/user/{user}/faultline"]
    return {pathlib.Path(base) / "dpdk/faultline" for base in bases if base}


class Program:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(5)
        self.socket.connect(str(path))
        greeting = json.loads(self.socket.recv(1 << 16))
        self.pid, self.reply_bytes = greeting["pid"], greeting["max_output_len"]

    def ask(self, command):
        self.socket.send(command.encode())
        return json.loads(self.socket.recv(self.reply_bytes))[command.split(",", maxsplit=1)[0]]

    def counters(self):
        """{(device, name): value}"""
        return {(device, name.replace("/", ".")): value for device in self.ask("/faultline/devices") or []
                for name, value in self.ask(f"/faultline/counters,{device}").items()}


def running():
    for folder in folders():
        for path in sorted(folder.glob("dpdk_telemetry.v2*")):
            try:
                yield Program(path)
            except OSError:  # of a program that has ended
                continue


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float)
    parser.add_argument("pid", type=int, nargs="?")
    options = parser.parse_args()
    before = {program: program.counters() for program in running() if options.pid in (None, program.pid)}
    if not any(before.values()):
        sys.exit("counters.py: no program of this user has a device")
    if options.seconds is not None:
        time.sleep(options.seconds)
    for program, old in before.items():
        new = program.counters() if options.seconds is not None else {key: value for key, value in old.items() if value != 0}
        for (device, name), value in new.items():
            if options.seconds is None:
                print(program.pid, device, name, value)
            elif value != old.get((device, name), 0):
                print(program.pid, device, name, f"{value - old.get((device, name), 0):+}")


main()
