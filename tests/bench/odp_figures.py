#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What on-demand paging costs: two processes joined by net_memif, one CPU a side, each figure the median of several runs.

    tests/bench/odp_figures.py [--build build/plain] [--runs 5] [--seconds 1]

The runs take turns, so that a ratio is of one stretch of time. Prints a Markdown table. What comes from swap needs root and
zram; without them that row says why it is missing.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import figures

HERE = os.path.dirname(os.path.abspath(__file__))
PLANS = {
    "minor": ["--op", "write", "--size", "64", "--mode", "lat", "--touch", "cold"],
    "4m": ["--op", "write", "--size", "4m", "--mode", "lat", "--touch", "cold"],
    "write64": ["--op", "write", "--size", "64"],
    "write64 pinned": ["--op", "write", "--size", "64", "--region", "pinned"],
    "write64k": ["--op", "write", "--size", "64k"],
    "write64k pinned": ["--op", "write", "--size", "64k", "--region", "pinned"],
    "read64k": ["--op", "read", "--size", "64k"],
    "read64k pinned": ["--op", "read", "--size", "64k", "--region", "pinned"],
    "send64": ["--op", "send", "--size", "64", "--mode", "lat"],
    "send64 pinned": ["--op", "send", "--size", "64", "--mode", "lat", "--region", "pinned"],
}


def measure_swap(build, laps):
    """odp_swap_latency's results, or why there are none."""
    zram = os.path.join(HERE, "..", "interop", "e2e", "with_zram.sh")
    program = os.path.join(build, "tests", "bench", "odp_swap_latency")
    if not os.access(program, os.X_OK):
        return f"{program} is not built"
    run = subprocess.run([zram, "256", program, "--laps", str(laps)], stdout=subprocess.PIPE, text=True, timeout=120)
    if run.returncode == 77:
        return run.stdout.strip()
    run.check_returncode()
    return json.loads(run.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/plain")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", default="1")
    parser.add_argument("--laps", type=int, default=8, help="of 2048 pages each, from swap")
    parser.add_argument("--only", help="of the measurements those whose name begins so (swap is one too)")
    parser.add_argument("--json", help="write every run's results to this file")
    arguments = parser.parse_args()
    perf = os.path.join(arguments.build, "apps", "faultline-perf")
    if not os.access(perf, os.X_OK):
        sys.exit(f"{perf} is not there: build first, or name the build folder with --build")

    def wanted(name):
        return not arguments.only or name.startswith(arguments.only)

    plans = {name: options for name, options in PLANS.items() if wanted(name)}
    runs = {name: [] for name in plans}
    no_swap = None if wanted("swap") else "not asked for"
    if no_swap is None:
        runs["swap"] = []
    with tempfile.TemporaryDirectory(prefix="fl-") as folder:
        for host, role in ((1, "server"), (2, "client")):
            with open(f"{folder}/{role}.toml", "w") as file:
                file.write(figures.CONFIG.format(host=host, role=role, folder=folder))
        for _ in range(arguments.runs):
            for name, options in plans.items():
                runs[name].append(figures.measure(perf, folder, options + ["--seconds", arguments.seconds]))
            if no_swap is None:
                result = measure_swap(arguments.build, arguments.laps)
                if isinstance(result, str):
                    no_swap = result
                else:
                    runs["swap"].append(result)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(runs, file, indent=2)

    def median(name, value):
        return statistics.median(value(run) for run in runs[name])

    def spread(name, value):
        values = [value(run) for run in runs[name]]
        return f"{min(values):.2f} to {max(values):.2f}"

    rows = []

    def row(figure, name, value, text, goal):
        rows.append((figure, text.format(median(name, value)), spread(name, value), goal))

    if runs.get("minor"):
        row("what a minor fault adds to a 64 B WRITE, p50", "minor", lambda run: run["fault_added_us"]["p50"], "{:.2f} us",
            "at most 6 us")
        row("the same, p99", "minor", lambda run: run["fault_added_us"]["p99"], "{:.2f} us", "at most 30 us")
    if runs.get("swap"):
        row("what a page in zram adds to a 64 B WRITE, p50", "swap", lambda run: run["added_us"]["p50"], "{:.2f} us", "")
        row("the same, p99", "swap", lambda run: run["added_us"]["p99"], "{:.2f} us", "")
        row("MADV_POPULATE_WRITE of such a page, p50", "swap", lambda run: run["populate_us"]["p50"], "{:.2f} us", "")
        row("what is added beyond that, p50", "swap", lambda run: run["added_us"]["p50"] - run["populate_us"]["p50"],
            "{:.2f} us", "at most 8 us")
    elif no_swap != "not asked for":
        rows.append(("what a page in zram adds", "none", no_swap, ""))
    if runs.get("4m"):
        def cold(run):
            return run["latency_us"]["p50"]

        def warm(run):
            return run["latency_us"]["p50"] - run["fault_added_us"]["p50"]

        row("4 MiB WRITE, warm, p50", "4m", warm, "{:.0f} us", "")
        row("4 MiB WRITE, cold, p50", "4m", cold, "{:.0f} us", "")
        row("cold less 1 ms, to warm", "4m", lambda run: (cold(run) - 1000) / warm(run), "{:.2f}", "at most 2")

    def against_pinned(figure, name, value, inverse=False):
        if not (runs.get(name) and runs.get(name + " pinned")):
            return
        ratios = [value(odp) / value(pinned) for odp, pinned in zip(runs[name], runs[name + " pinned"])]
        ratios = [1 / ratio if inverse else ratio for ratio in ratios]
        rows.append((figure, f"{statistics.median(ratios):.3f}", f"{min(ratios):.2f} to {max(ratios):.2f}", "at least 0.97"))

    def rate(run):
        return run["messages_per_second"]

    against_pinned("64 B WRITEs a second, warm on-demand to pinned", "write64", rate)
    against_pinned("64 KiB WRITEs a second, warm on-demand to pinned", "write64k", rate)
    against_pinned("64 KiB READs a second, warm on-demand to pinned", "read64k", rate)
    against_pinned("64 B SEND, half round trip p50, pinned to warm on-demand", "send64", lambda run: run["latency_us"]["p50"],
                   inverse=True)

    print(f"| figure | median of {arguments.runs} | the runs' range | wanted |")
    print("|---|---|---|---|")
    for cells in rows:
        print("| " + " | ".join(cells) + " |")
    timeouts = {name: sum(run["timeouts"] for run in results) for name, results in runs.items()}
    bad = {name: count for name, count in timeouts.items() if count != 0}
    print(f"\ntimeouts: {bad or 'none'}")


if __name__ == "__main__":
    main()
