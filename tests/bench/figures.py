#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The README's figures: two processes joined by net_memif, one CPU a side, each figure the median of several runs.

    tests/bench/figures.py [--build build/plain] [--runs 5] [--seconds 1]

On-demand and pinned runs take turns, so that their ratio is of one stretch of time. Prints a Markdown table.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile

CONFIG = """[[device]]
name = "faultline0"
ip = "198.18.0.{host}/24"
[device.port]
kind = "memif"
role = "{role}"
socket = "{folder}/wire.sock"
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def on_cpu(cpu, command):
    return ["taskset", "-c", str(cpu)] + command if os.cpu_count() > 1 else command


def measure(perf, folder, options):
    """One server and one client; the client's results."""
    port = str(free_port())
    out = os.path.join(folder, "result.json")
    server = subprocess.Popen(
        on_cpu(0, [perf, "--config", f"{folder}/server.toml", "--server", "--listen", "127.0.0.1", "--port", port]),
        stdout=subprocess.PIPE, text=True)
    try:
        server.stdout.readline()
        subprocess.run(
            on_cpu(1, [perf, "--config", f"{folder}/client.toml", "--client", "127.0.0.1", "--port", port, "--",
                       "--json", out] + options),
            check=True, timeout=120, stdout=subprocess.DEVNULL)
        server.wait(timeout=30)
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    with open(out) as file:
        return json.load(file)["results"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/plain")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", default="1")
    parser.add_argument("--only", help="of the measurements those whose name begins so")
    parser.add_argument("--json", help="write every run's results to this file")
    arguments = parser.parse_args()
    perf = os.path.join(arguments.build, "apps", "faultline-perf")
    if not os.access(perf, os.X_OK):
        sys.exit(f"{perf} is not there: build first, or name the build folder with --build")

    plans = {
        "write64": ["--op", "write", "--size", "64", "--limits"],
        "write64 pinned": ["--op", "write", "--size", "64", "--region", "pinned"],
        "write64k": ["--op", "write", "--size", "64k", "--mtu", "4096", "--limits"],
        "write64k pinned": ["--op", "write", "--size", "64k", "--mtu", "4096", "--region", "pinned"],
        "qps16": ["--op", "write", "--size", "64", "--qps", "16", "--depth", "16"],
        "qps10000": ["--op", "write", "--size", "64", "--qps", "10000", "--depth", "16"],
        "read64": ["--op", "read", "--size", "64"],
        "send64": ["--op", "send", "--size", "64"],
        "send64 latency": ["--op", "send", "--size", "64", "--mode", "lat"],
        "send64 latency pinned": ["--op", "send", "--size", "64", "--mode", "lat", "--region", "pinned"],
        "cold": ["--op", "write", "--size", "64", "--mode", "lat", "--touch", "cold"],
    }
    if arguments.only:
        plans = {name: options for name, options in plans.items() if name.startswith(arguments.only)}
    runs = {name: [] for name in plans}
    with tempfile.TemporaryDirectory(prefix="fl-") as folder:
        for host, role in ((1, "server"), (2, "client")):
            with open(f"{folder}/{role}.toml", "w") as file:
                file.write(CONFIG.format(host=host, role=role, folder=folder))
        for _ in range(arguments.runs):
            for name, options in plans.items():
                runs[name].append(measure(perf, folder, options + ["--seconds", arguments.seconds]))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(runs, file, indent=2)

    if arguments.only:
        for name, results in runs.items():
            print(name, *(f"{result['messages_per_second'] / 1e6:.2f}" for result in results))
        if arguments.only == "qps":
            ratios = sorted(many["messages_per_second"] / few["messages_per_second"] for many, few in zip(runs["qps10000"], runs["qps16"]))
            print("10000 to 16:", *(f"{ratio:.2f}" for ratio in ratios), f"median {statistics.median(ratios):.2f}")
        return

    def median(name, value):
        return statistics.median(value(run) for run in runs[name])

    def rate(run):
        return run["messages_per_second"]

    def against_pinned(name, value, inverse=False):
        pairs = zip(runs[name], runs[name + " pinned"])
        ratio = statistics.median(value(odp) / value(pinned) for odp, pinned in pairs)
        return 1 / ratio if inverse else ratio

    def half_trip(run):
        return run["latency_us"]["p50"]

    rows = [
        ("64 B WRITE, messages/s", f"{median('write64', rate) / 1e6:.1f} M/s",
         f"{median('write64', lambda run: run['limits']['packets_to_raw_port']):.2f} of the raw port's packets/s",
         f"{against_pinned('write64', rate):.2f}"),
        ("64 KiB WRITE, path MTU 4096", f"{median('write64k', lambda run: run['gb_per_second']):.1f} GB/s",
         f"{median('write64k', lambda run: run['limits']['packets_to_raw_port']):.2f} of the raw port's packets/s, "
         f"{median('write64k', lambda run: run['limits']['gb_to_copy_crc']):.2f} of copy+CRC",
         f"{against_pinned('write64k', rate):.2f}"),
        ("64 B WRITE on 10,000 QPs in turn, messages/s", f"{median('qps10000', rate) / 1e6:.1f} M/s",
         f"{statistics.median(rate(many) / rate(few) for many, few in zip(runs['qps10000'], runs['qps16'])):.2f} of the rate of 16 QPs", ""),
        ("64 B READ, messages/s", f"{median('read64', rate) / 1e6:.1f} M/s", "", ""),
        ("64 B SEND, messages/s", f"{median('send64', rate) / 1e6:.1f} M/s", "", ""),
        ("64 B SEND, half round trip p50", f"{median('send64 latency', half_trip):.2f} us", "",
         f"{against_pinned('send64 latency', half_trip, inverse=True):.2f}"),
        ("what a cold page adds, p50", f"{median('cold', lambda run: run['fault_added_us']['p50']):.1f} us", "", ""),
        ("what a cold page adds, p99", f"{median('cold', lambda run: run['fault_added_us']['p99']):.1f} us", "", ""),
    ]
    print("| figure | on-demand memory, warm | against the limits | against pinned |")
    print("|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
