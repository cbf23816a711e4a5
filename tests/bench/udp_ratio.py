#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares perftest over a port of kind udp with plain sockets, in two network namespaces that a veth pair joins.

    tests/bench/udp_ratio.py [--build build/plain] [--runs 5] [--only lat|plain|bw|tap] [--family 4|6] [--pin]
    tests/bench/udp_ratio.py --calls         the system calls of each message, as the kernel counts them

lat: the typical half round trip of ib_send_lat, 64 bytes, over that of sockperf's ping-pong with non-blocking sockets, which poll. plain: over
that of its ping-pong with the sockets as they are, which block. bw: the rate of
ib_write_bw, 64 KiB, over that of one TCP stream of iperf3. tap: the same rate over that of ports of kind tap, which bridges join to the same
veth pair. Both of a pair run in turns. After the table, the CPU time of both ends for each packet of 1024 bytes (with iperf3: for each 1024
bytes). Needs root, sockperf and iperf3; --calls needs perf and a mounted tracefs.
"""
import argparse
import contextlib
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ADDRESSES = {"4": "198.18.0.{}", "6": "2001:2::{}"}
MTU_BYTES = 1500
TIME_LIMIT_S = 60
LAT_ITERATIONS = 50_000
BW_ITERATIONS = 30_000
TAP_ITERATIONS = 5_000
BW_BYTES = 65536
PATH_MTU_BYTES = 1024


def cpu_of_children_s():
    """What the ended children have used, in the kernel too."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ip(*words):
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def two_hosts():
    """The names of two network namespaces that a veth pair joins."""
    hosts = [f"udplat-{os.getpid()}-{side}" for side in "ab"]
    try:
        for host in hosts:
            ip("netns", "add", host)
            ip("-n", host, "link", "set", "lo", "up")
        ip("-n", hosts[0], "link", "add", "fl-a", "mtu", str(MTU_BYTES), "type", "veth", "peer", "name", "fl-b", "mtu", str(MTU_BYTES),
           "netns", hosts[1])
        for number, (host, link) in enumerate(zip(hosts, ("fl-a", "fl-b")), 1):
            ip("-n", host, "addr", "add", ADDRESSES["4"].format(number) + "/24", "dev", link)
            ip("-n", host, "addr", "add", ADDRESSES["6"].format(number) + "/64", "dev", link, "nodad")
            ip("-n", host, "link", "set", link, "up")
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host], check=False, stderr=subprocess.DEVNULL)


class Pairs:
    """Runs a server on the first host and a client on the second."""

    def __init__(self, arguments, hosts):
        self.hosts = hosts
        self.address = [ADDRESSES[arguments.family].format(number) for number in (1, 2)]
        self.run = os.path.join(os.path.abspath(arguments.build), "apps", "faultline-run")
        self.pin = arguments.pin
        self.cpu_ns = {}  # of both ends for each packet, by what ran
        if not os.access(self.run, os.X_OK):
            sys.exit(f"{self.run} is not there: build first, or name the build folder with --build")

    def on(self, side, command, prefix=()):
        cpu = ["taskset", "-c", str(side)] if self.pin else []
        return [*prefix, "ip", "netns", "exec", self.hosts[side], *cpu, *command]

    def verbs(self, side, command):
        return [self.run, "--udp", "--ip", self.address[side], "--", *command]

    def note_cpu(self, what, used_s, payload_bytes):
        self.cpu_ns.setdefault(what, []).append(used_s * 1e9 / (payload_bytes / PATH_MTU_BYTES))

    def pair(self, server, client, prefix=()):
        """Returns what the client printed. The server has a second to listen."""
        before = cpu_of_children_s()
        printed = self.pair_of(server, client, prefix)
        self.used_s = cpu_of_children_s() - before
        return printed

    def pair_of(self, server, client, prefix):
        passive = subprocess.Popen(self.on(0, server), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(1.0)
            done = subprocess.run(self.on(1, client, prefix), timeout=TIME_LIMIT_S, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False)
            if done.returncode != 0:
                sys.exit(f"{' '.join(client)}: {done.stdout[-2000:]}")
            return done.stdout
        finally:
            passive.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                passive.wait(timeout=5)
            if passive.poll() is None:
                passive.kill()
                passive.wait()

    def perftest(self, words, size, iterations, prefix=(), verbs=None):
        """Returns the row of the size."""
        command = [*words, "-x", "0", "-F", "-s", str(size), "-n", str(iterations)]
        verbs = verbs or self.verbs
        # The programs' own control connection is TCP over the same link.
        printed = self.pair(verbs(0, command), verbs(1, [*command, ADDRESSES["4"].format(1)]), prefix)
        rows = [line.split() for line in printed.splitlines() if line.split()[:2] == [str(size), str(iterations)]]
        return rows[-1], printed


def plain(pairs, options=()):
    """Returns half round trips in us: the typical one of ib_send_lat, the median of sockperf."""
    row, _ = pairs.perftest(["ib_send_lat"], 64, LAT_ITERATIONS)
    printed = pairs.pair(["sockperf", "server", "-i", pairs.address[0], *options],
                         ["sockperf", "ping-pong", "-i", pairs.address[0], *options, "-m", "64", "-t", "2"])
    return float(row[4]), float(re.search(r"percentile 50\.0+ *= *([0-9.]+)", printed).group(1))


def lat(pairs):
    return plain(pairs, ["--nonblocked"])


def udp_rate(pairs):
    row, _ = pairs.perftest(["ib_write_bw", "-m", str(PATH_MTU_BYTES)], BW_BYTES, BW_ITERATIONS)
    pairs.note_cpu("udp", pairs.used_s, BW_BYTES * BW_ITERATIONS)
    return float(row[3]) * (1 << 20) / 1e9


def bw(pairs):
    """Returns rates in GB/s."""
    own = udp_rate(pairs)
    result = json.loads(pairs.pair(["iperf3", "-s", "-1"], ["iperf3", "-c", pairs.address[0], "-t", "2", "-J"]))["end"]["sum_received"]
    pairs.note_cpu("iperf3", pairs.used_s, result["bytes"])
    return own, result["bits_per_second"] / 8e9


@contextlib.contextmanager
def bridges(hosts):
    """Each host's end of the veth pair is on a bridge, which has the address; the PMD's tap joins it as soon as it is there."""
    try:
        for number, (host, link) in enumerate(zip(hosts, ("fl-a", "fl-b")), 1):
            ip("-n", host, "link", "add", "fl-br", "type", "bridge")
            ip("-n", host, "link", "set", link, "master", "fl-br")
            ip("-n", host, "addr", "flush", "dev", link)
            ip("-n", host, "addr", "add", ADDRESSES["4"].format(number) + "/24", "dev", "fl-br")
            ip("-n", host, "link", "set", "fl-br", "up")
        joiners = [subprocess.Popen(["sh", "-c", f"while sleep 0.05; do ip -n {host} link set fl-tap master fl-br up 2>/dev/null; done"])
                   for host in hosts]
        try:
            yield
        finally:
            for joiner in joiners:
                joiner.kill()
                joiner.wait()
    finally:
        for number, (host, link) in enumerate(zip(hosts, ("fl-a", "fl-b")), 1):
            ip("-n", host, "link", "del", "fl-br")
            ip("-n", host, "addr", "add", ADDRESSES["4"].format(number) + "/24", "dev", link)
            ip("-n", host, "addr", "add", ADDRESSES["6"].format(number) + "/64", "dev", link, "nodad")


def tap(pairs):
    """Returns rates in GB/s, over sockets and over taps."""
    own = udp_rate(pairs)
    with tempfile.TemporaryDirectory() as folder, bridges(pairs.hosts):
        def verbs(side, command):
            path = f"{folder}/{side}.toml"
            with open(path, "w", encoding="utf-8") as file:
                file.write(f'[[device]]\nname = "faultline0"\nip = "198.18.9.{side + 1}/24"\n[device.port]\nkind = "tap"\ninterface = "fl-tap"\n')
            return [pairs.run, "--config", path, "--", *command]

        row, _ = pairs.perftest(["ib_write_bw", "-m", str(PATH_MTU_BYTES)], BW_BYTES, TAP_ITERATIONS, verbs=verbs)
        pairs.note_cpu("tap", pairs.used_s, BW_BYTES * TAP_ITERATIONS)
    return own, float(row[3]) * (1 << 20) / 1e9


def calls(pairs):
    """Prints the system calls of the client for each of its messages: one is sent and one received."""
    counted = {"sendmsg": "sys_enter_sendmsg", "sendmmsg": "sys_enter_sendmmsg", "recvmsg": "sys_enter_recvmsg",
               "recvmsg that receives": "sys_exit_recvmsg", "recvmmsg": "sys_enter_recvmmsg", "recvmmsg that receives": "sys_exit_recvmmsg",
               "sched_yield": "sys_enter_sched_yield"}
    events = {what: f"syscalls:{event}" for what, event in counted.items()} | {"all system calls": "raw_syscalls:sys_enter"}
    prefix = ["perf", "stat", "-x", ";"]
    for event in events.values():
        prefix += ["-e", event] + (["--filter", "ret > 0"] if "sys_exit" in event else [])
    _, printed = pairs.perftest(["ib_send_lat"], 64, LAT_ITERATIONS, prefix)
    counts = {line.split(";")[2]: int(line.split(";")[0]) for line in printed.splitlines() if "syscalls:" in line}
    for what, event in events.items():
        print(f"| {what} | {counts[event] / LAT_ITERATIONS:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/plain")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", choices=("lat", "plain", "bw", "tap"))
    parser.add_argument("--family", choices=("4", "6"), default="4")
    parser.add_argument("--pin", action="store_true", help="one CPU for each host")
    parser.add_argument("--calls", action="store_true")
    arguments = parser.parse_args()
    with two_hosts() as hosts:
        pairs = Pairs(arguments, hosts)
        if arguments.calls:
            return calls(pairs)
        print("| figure | faultline over udp | the other | ratio, median (of each run) |\n|---|---|---|---|")
        for name, measure, unit in (("lat", lat, "us"), ("plain", plain, "us"), ("bw", bw, "GB/s"), ("tap", tap, "GB/s")):
            if arguments.only not in (None, name):
                continue
            figures = [measure(pairs) for _ in range(arguments.runs)]
            ratios = sorted(own / other for own, other in figures)
            own, other = (statistics.median(column) for column in zip(*figures))
            print(f"| {name} | {own:.2f} {unit} | {other:.2f} {unit} | {statistics.median(ratios):.2f} "
                  f"({', '.join(f'{ratio:.2f}' for ratio in ratios)}) |", flush=True)
        for what, used in pairs.cpu_ns.items():
            print(f"CPU time of a packet, {what}: {statistics.median(used):.0f} ns")


if __name__ == "__main__":
    main()
