#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Who shares memory with a wire's switch writes garbage into it, and so does a switch to its programs: only that link ends. Another
pair on the wire goes on, the switch stays the same process, and the one whose memory was written to gets a new link.
  hostile_wire_test.py FAULTLINE_RUN
"""
import glob
import json
import mmap
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

run, = sys.argv[1:]
folder = tempfile.mkdtemp()
os.chmod(folder, 0o700)
environment = dict(os.environ, XDG_RUNTIME_DIR=folder)
wire = f"hostile{os.getpid()}"
rounds = 200 if os.environ.get("FAULTLINE_SOAK") else 6
random.seed(1)
running = []
port = 21000 + os.getpid() % 20000
HEADER, DESCRIPTOR = 128, 16


def fail(what):
    sys.exit(f"FAILED: {what}")


def start(*arguments):
    errors = open(f"{folder}/{len(running)}.err", "w+")
    process = subprocess.Popen([run, "--wire", wire, "--", "ibv_rc_pingpong", "-g", "0", *arguments], stdout=subprocess.PIPE,
                               stderr=errors, env=environment, text=True)
    process.errors = errors
    running.append(process)
    return process


def await_that(what, true, seconds=60):
    for _ in range(seconds * 20):
        if true():
            return
        time.sleep(0.05)
    fail(what)


def is_listening(number):
    wanted = f":{number:04X} "
    with open("/proc/net/tcp") as v4, open("/proc/net/tcp6") as v6:
        return any(wanted in line and " 0A " in line for line in [*v4, *v6])


def start_pair(iterations):
    global port
    port += 1
    server = start("-n", str(iterations), "-p", str(port))
    await_that("a server does not start", lambda: is_listening(port))
    return server, start("-n", str(iterations), "-p", str(port), "127.0.0.1")


def switch():
    found = subprocess.run(["pgrep", "-u", str(os.getuid()), "-f", "--", f"faultline-switch --wire {wire} "], capture_output=True,
                           text=True).stdout.split()
    return int(found[0]) if found else None


def region_of(process):
    """The shared memory of a process's link."""
    for name in os.listdir(f"/proc/{process.pid}/fd"):
        path = f"/proc/{process.pid}/fd/{name}"
        try:
            if "memif_region" in os.readlink(path):
                file = os.open(path, os.O_RDWR)
                return mmap.mmap(file, os.fstat(file).st_size), os.fstat(file).st_ino
        except OSError:
            pass
    return None


def violations():
    """What the programs of this user count of it, by DPDK's telemetry: the most of one."""
    most = 0
    for path in glob.glob("/var/run/dpdk/faultline/dpdk_telemetry.v2*") + glob.glob(f"{folder}/dpdk/faultline/dpdk_telemetry.v2*"):
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as telemetry:
                telemetry.settimeout(2)
                telemetry.connect(path)
                telemetry.recv(4096)
                telemetry.send(b"/faultline/counters,faultline0")
                counters = json.loads(telemetry.recv(65536)).get("/faultline/counters") or {}
                most = max(most, counters.get("port/peer_violations", 0))
        except OSError:
            continue
    return most


class Rings:
    """Towards the switch, and from it, as net_memif's client lays them out."""

    def __init__(self, memory):
        self.memory = memory
        self.slots = next(1 << log for log in range(1, 15)
                          if memory[HEADER + (DESCRIPTOR << log):][:4] == memory[:4])
        self.starts = 0, HEADER + DESCRIPTOR * self.slots

    def describe(self, ring, slot, **fields):
        at = self.starts[ring] + HEADER + DESCRIPTOR * slot
        flags, region, length, offset = struct.unpack_from("<HHII", self.memory, at)
        old = {"flags": flags, "region": region, "length": length, "offset": offset} | fields
        struct.pack_into("<HHII", self.memory, at, old["flags"], old["region"], old["length"], old["offset"])

    def describe_all(self, ring, **fields):
        for slot in range(self.slots):
            self.describe(ring, slot, **fields)

    def move(self, ring, head=0, tail=0):
        for at, by in ((6, head), (64, tail)):
            old, = struct.unpack_from("<H", self.memory, self.starts[ring] + at)
            struct.pack_into("<H", self.memory, self.starts[ring] + at, (old + by) & 0xffff)


def offset_to_switch(rings):
    rings.describe_all(0, offset=0xf0000000, length=1000)
    rings.move(0, head=16)


def length_to_switch(rings):
    rings.describe_all(0, offset=len(rings.memory) - 100, length=65535)
    rings.move(0, head=16)


def region_to_switch(rings):
    rings.describe_all(0, region=77)
    rings.move(0, head=16)


def head_to_switch(rings):
    rings.move(0, head=40000)


def endless_chain(rings):
    rings.describe_all(0, flags=1)
    rings.move(0, head=16)


def anything(rings):
    for _ in range(200):
        struct.pack_into("<Q", rings.memory, random.randrange(0, rings.starts[1] * 2 - 8), random.getrandbits(64))
    rings.move(0, head=random.getrandbits(16) | 1)


ATTACKS = (offset_to_switch, length_to_switch, region_to_switch, head_to_switch, endless_chain, anything)


def offender():
    global port
    port += 1
    number = port
    process = start("-n", "1000", "-p", str(number))
    await_that("the offender does not start", lambda: is_listening(number) and region_of(process) is not None)
    return process


def log_lines():
    with open(f"{folder}/faultline/{wire}.log") as log:
        return [line for line in log if "its link is closed" in line]


try:
    if shutil.which("ibv_rc_pingpong") is None:
        print("SKIPPED: ibv_rc_pingpong is not installed")
        sys.exit(77)
    honest = start_pair(100_000_000)
    await_that("no switch", switch)
    first = switch()
    for number in range(rounds):
        attack = ATTACKS[number % len(ATTACKS)] if number < len(ATTACKS) or rounds > len(ATTACKS) else anything
        process = offender()
        memory, inode = region_of(process)
        os.kill(process.pid, signal.SIGSTOP)
        attack(Rings(memory))
        # The link is over when the switch has closed it and the program has made another.
        os.kill(process.pid, signal.SIGCONT)
        await_that(f"{attack.__name__}: the link does not end", lambda: (region_of(process) or (None, inode))[1] != inode)
        if switch() != first:
            fail(f"{attack.__name__}: the switch died")
        for each in honest:
            if each.poll() is not None:
                fail(f"{attack.__name__}: another pair ended")
        process.kill()
        process.wait()
        print("ok:", attack.__name__)
    if not log_lines():
        fail("the switch says nothing of it")

    # A switch that does the same to a program: the program lives, says so, and has a link again.
    victim = offender()
    memory, inode = region_of(victim)
    rings = Rings(memory)
    rings.describe_all(1, length=0xffffffff, offset=0xf0000000, region=9)
    rings.move(1, tail=16)
    await_that("the program keeps a broken link", lambda: (region_of(victim) or (None, inode))[1] != inode)
    victim.errors.seek(0)
    if "its link is closed" not in victim.errors.read():
        fail("the program says nothing of it")
    if victim.poll() is not None:
        fail("the program ended")
    await_that("the program does not count it", lambda: violations() == 1, 10)
    print("ok: a program whose switch writes garbage")
    for each in honest:
        each.kill()
        each.wait()
    for each in start_pair(1000):
        if each.wait(60) != 0:
            fail("the wire is not what it was")
    if switch() != first:
        fail("another switch at the end")
finally:
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()
    if (pid := switch()) is not None:
        os.kill(pid, signal.SIGTERM)
    shutil.rmtree(folder, ignore_errors=True)
