#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A port of kind af_packet is had though another program in its namespace has the packet sockets' group that its driver
would take: of its process ID and its interface's index.

    packet_fanout_test.py FAULTLINE_SWITCH
"""
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

SOL_PACKET = 263
PACKET_FANOUT = 18
ETH_P_ALL = 0x0003
SPACE = f"fl-fanout-{os.getpid()}"
PATIENCE_S = 20


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def main():
    switch = os.path.realpath(sys.argv[1])
    if os.geteuid() != 0:
        skip("needs root for a network namespace")
    if subprocess.run(["ip", "netns", "add", SPACE], stderr=subprocess.DEVNULL).returncode != 0:
        skip("may not create network namespaces")
    pid = 0
    try:
        ip("-n", SPACE, "link", "add", "fl-a", "type", "veth", "peer", "name", "fl-b")
        for name in ("fl-a", "fl-b"):
            ip("-n", SPACE, "link", "set", name, "up")
        # By descriptor: what this process opens from now on is in there.
        with open(f"/run/netns/{SPACE}") as space:
            if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), 0) != 0:
                skip("may not enter a network namespace")
        with tempfile.TemporaryDirectory(prefix="fl-") as folder:
            os.chmod(folder, 0o700)
            start, go = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.read(start, 1)
                os.environ["XDG_RUNTIME_DIR"] = folder
                os.execv(switch, [switch, "--wire", "fanout", "--uplink", "af_packet:fl-a"])
            other = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            other.bind(("fl-b", ETH_P_ALL))
            other.setsockopt(SOL_PACKET, PACKET_FANOUT, (pid ^ socket.if_nametoindex("fl-a")) & 0xFFFF)
            os.write(go, b"g")
            until = time.monotonic() + PATIENCE_S
            # It sleeps at its control socket when all is there: what it takes a program's request with.
            while time.monotonic() < until:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended != 0:
                    pid = 0
                    sys.exit(f"FAILED: the switch ended with {os.waitstatus_to_exitcode(status)}")
                if answers(folder):
                    print("ok: a group that another has is no obstacle")
                    return
                time.sleep(0.05)
            sys.exit("FAILED: the switch does not answer")
    finally:
        if pid != 0:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
        subprocess.run(["ip", "netns", "del", SPACE])


def answers(folder):
    """Whoever is not understood is hung up on; but only by a switch that has come so far."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.settimeout(1)
    try:
        control.connect(f"{folder}/faultline/fanout.control")
        control.send(b"?")
        control.recv(1)
        return True
    except OSError:
        return False


main()
