#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A port of kind af_packet is had though another program in its namespace has the packet sockets' group that its driver
would take: of its process ID and its interface's index.

    packet_fanout_test.py FAULTLINE_SWITCH
"""
import os
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests
import lib  # noqa: E402

SOL_PACKET = 263
PACKET_FANOUT = 18
ETH_P_ALL = 0x0003


def main():
    switch = os.path.realpath(sys.argv[1])
    lib.need_root("for a network namespace")
    lib.need("ip")
    if not lib.own_network():
        lib.skip("may not make a network namespace")
    lib.call(["ip", "link", "add", "fl-a", "type", "veth", "peer", "name", "fl-b"])
    for name in ("fl-a", "fl-b"):
        lib.call(["ip", "link", "set", name, "up"])
    lib.own_runtime_folder()
    # The shell is the switch once the group of its process ID is taken.
    process = lib.start(["sh", "-c", 'read -r _ && exec "$@"', "sh", switch, "--wire", "fanout", "--uplink", "af_packet:fl-a"], stdin=lib.subprocess.PIPE)
    other = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    other.bind(("fl-b", ETH_P_ALL))
    other.setsockopt(SOL_PACKET, PACKET_FANOUT, (process.pid ^ socket.if_nametoindex("fl-a")) & 0xFFFF)
    process.stdin.write(b"go\n")
    process.stdin.close()
    lib.await_that(lambda: (status := lib.status_of_switch(switch, "fanout")) and status["pid"] == process.pid, "the switch answers", process)
    print("ok: a group that another has is no obstacle")


main()
