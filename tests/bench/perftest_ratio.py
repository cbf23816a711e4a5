#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares perftest, as Debian ships it, with faultline-perf on the same wire.

    tests/bench/perftest_ratio.py [--build build/plain] [--runs 5] [--only send_lat] [--json FILE]

Both run under faultline-run, on the same library, with the same messages, depth, path MTU and number of iterations. Each side has
one CPU; the switch runs on any CPU. They run in turns: each figure is the median of its runs, each ratio the median of the ratios of
consecutive runs. Prints a Markdown table; 1.00 is equal speed, less is slower.
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from suite.processes import free_port, listens  # noqa: E402

MTU = "4096"
DEPTH = "128"

# name: (perftest's program, faultline-perf's operation, mode, message bytes, iterations)
CASES = {
    "send_lat 2": ("ib_send_lat", "send", "lat", 2, 20_000),
    "send_lat 16": ("ib_send_lat", "send", "lat", 16, 20_000),
    "send_lat 64": ("ib_send_lat", "send", "lat", 64, 20_000),
    "write_bw 64k": ("ib_write_bw", "write", "bw", 65536, 60_000),
    "write_bw 1m": ("ib_write_bw", "write", "bw", 1 << 20, 5_000),
}
TIME_LIMIT_S = 60


class Wire:
    """Pairs of programs on one wire, whose switch stays for all of them."""

    def __init__(self, build, prefix):
        self.run = os.path.join(build, "apps", "faultline-run")
        self.perf = os.path.join(build, "apps", "faultline-perf")
        self.name = f"ratio{os.getpid()}"
        self.prefix = prefix
        # Started here, because a program that starts the switch would bind it to its own CPU.
        self.switch = subprocess.Popen(prefix + [os.path.join(build, "apps", "faultline-switch"), "--wire", self.name])

    def end(self):
        self.switch.terminate()
        self.switch.wait(timeout=10)

    def command(self, side, program):
        cpu = ["taskset", "-c", str("ab".index(side))] if os.cpu_count() > 1 else []
        return self.prefix + cpu + [self.run, "--wire", self.name, "--side", side, "--"] + program

    def pair(self, server, client, port):
        """Runs both to their end; returns the client's output."""
        passive = subprocess.Popen(self.command("a", server), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            deadline = time.monotonic() + TIME_LIMIT_S
            while not listens(port):
                if passive.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{server[0]} does not listen")
                time.sleep(0.02)
            return subprocess.run(self.command("b", client), check=True, timeout=TIME_LIMIT_S, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"{client[0]}: {error.stdout[-2000:]}") from error
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                passive.wait(timeout=10)
            if passive.poll() is None:
                passive.kill()
                passive.wait()


def perftest(wire, case, extra):
    """Returns latency in us or bandwidth in GB/s, by the case."""
    program, _, mode, size, iterations = case
    port = free_port()
    arguments = [program, "-d", "faultline0", "-x", "0", "-F", "-m", MTU, "-s", str(size), "-n", str(iterations), "-p", str(port)]
    arguments += ["-t", DEPTH] if mode == "bw" else []
    arguments += extra
    printed = wire.pair(arguments, arguments + ["127.0.0.1"], port)
    row = next(line.split() for line in printed.splitlines() if line.split()[:2] == [str(size), str(iterations)])
    # Latency: min, max, typical (the median). Bandwidth: peak, average, in units of 2^20 bytes.
    return float(row[4]) if mode == "lat" else float(row[3]) * (1 << 20) / 1e9


def faultline_perf(wire, case, folder):
    _, operation, mode, size, iterations = case
    port = str(free_port())
    out = os.path.join(folder, "result.json")
    wire.pair([wire.perf, "--server", "--listen", "127.0.0.1", "--port", port],
              [wire.perf, "--client", "127.0.0.1", "--port", port, "--", "--op", operation, "--mode", mode, "--size", str(size),
               "--mtu", MTU, "--depth", DEPTH, "--iters", str(iterations), "--region", "pinned", "--json", out], int(port))
    with open(out) as file:
        result = json.load(file)["results"][0]
    return result["latency_us"]["p50"] if mode == "lat" else result["gb_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/plain")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="", help="of the cases those whose name begins so")
    parser.add_argument("--perftest", default="", help="more options of perftest's, as one word")
    parser.add_argument("--prefix", default="", help="what every program is started by, as one word: nice -n -19")
    parser.add_argument("--json", help="write every run's figure to this file")
    arguments = parser.parse_args()
    build = os.path.abspath(arguments.build)
    if not os.access(os.path.join(build, "apps", "faultline-run"), os.X_OK):
        sys.exit(f"{build}/apps/faultline-run is not there: build first, or name the build folder with --build")

    cases = {name: case for name, case in CASES.items() if name.startswith(arguments.only)}
    figures = {name: {"perftest": [], "faultline-perf": []} for name in cases}
    with tempfile.TemporaryDirectory(prefix="fl-") as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        wire = Wire(build, arguments.prefix.split())
        try:
            for _ in range(arguments.runs):
                for name, case in cases.items():
                    figures[name]["perftest"].append(perftest(wire, case, arguments.perftest.split()))
                    figures[name]["faultline-perf"].append(faultline_perf(wire, case, folder))
        finally:
            wire.end()
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file, indent=2)

    print("| figure | perftest | faultline-perf | as fast, median (of each run) |")
    print("|---|---|---|---|")
    for name, case in cases.items():
        theirs, ours = figures[name].values()
        unit = "us" if case[2] == "lat" else "GB/s"
        ratios = [own / other if case[2] == "lat" else other / own for other, own in zip(theirs, ours)]
        print(f"| {name} | {statistics.median(theirs):.2f} {unit} | {statistics.median(ours):.2f} {unit} | "
              f"{statistics.median(ratios):.2f} ({', '.join(f'{ratio:.2f}' for ratio in sorted(ratios))}) |")


if __name__ == "__main__":
    main()
