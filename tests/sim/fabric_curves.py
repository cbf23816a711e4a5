#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The rows of "Beside published curves" in docs/fabrics.md, from faultline-sim and configs/fabrics. Virtual time: the same on every machine.
  fabric_curves.py FAULTLINE_SIM CONFIGS_FABRICS             prints all tables
  fabric_curves.py --commands FAULTLINE_SIM CONFIGS_FABRICS  prints the command of each row
  fabric_curves.py --check FAULTLINE_SIM CONFIGS_FABRICS     runs the rows whose shape the page states, and checks the shape"""
import argparse
import csv
import json
import pathlib
import re
import subprocess
import tempfile

# Of each table its file and its rows. A row changes keys of the file.
STRAWMAN = {"kmin_bytes": 40_000, "kmax_bytes": 40_000, "pmax": 1.0, "gain_divisor": 16}
TABLES = {
    "dcqcn-degree": ("dcqcn-incast", [{"senders": n, "pmax": p} for p in (0.01, 0.1) for n in (2, 4, 8, 16, 19)]),
    "dcqcn-gain": ("dcqcn-incast", [{"senders": n, "gain_divisor": g} for n in (2, 16) for g in (256, 16)]),
    "dcqcn-timer": ("dcqcn-incast", [{"senders": n, **STRAWMAN, "increase_timer_us": t, "increase_bytes": b}
                                     for n in (2, 4, 16) for t, b in ((1500, 153_600), (55, 10_485_760))]),
    "swift-degree": ("swift-incast", [{"senders": min(n, 50), "connections": max(n // 50, 1)}
                                      for n in (2, 10, 50, 100, 500, 1000, 5000)]),
    "swift-scaling": ("swift-incast", [{"senders": 50, "connections": n, "scaling_range_us": r} for n in (2, 10, 100) for r in (0, 100)]),
    "swift-target": ("swift-incast", [{"senders": 10, "outstanding": 64, "target_delay_us": t} for t in (25, 50, 100, 200)]),
    "permutation": ("permutation", [{"connections": n, "algorithm": f'"{a}"'} for a in ("dcqcn", "swift") for n in (1, 2, 4, 8, 16)]),
}
# Rows that --check runs; the others take longer or show nothing else.
CHECKED = {"dcqcn-degree": (0, 3, 5, 8), "dcqcn-gain": (2, 3), "dcqcn-timer": (4, 5), "swift-degree": (1, 3, 5),
           "swift-scaling": (0, 1), "swift-target": (1, 3), "permutation": (0, 3, 5, 8)}


def changed(text, row):
    for key, value in row.items():
        text, count = re.subn(rf"^{key} = .*", f"{key} = {value}", text, flags=re.M)
        assert count == 1, f"{key}: {count} lines"
    return text


def command(config, row):
    edits = "; ".join(f"s/^{key} = .*/{key} = {value}/" for key, value in row.items())
    return f"sed '{edits}' configs/fabrics/{config}.toml > row.toml && faultline-sim --output out row.toml"


def number(text, key):
    return int(re.search(rf"^{key} = ([\d_]+)", text, re.M)[1].replace("_", ""))


def measure(program, text):
    """Goodput and shares of the connections, and the receiver's queue, over the second half of the time."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "row.toml").write_text(text)
        ended = subprocess.run([program, "--json", "--output", place / "out", place / "row.toml"], capture_output=True, text=True, check=True,
                               timeout=200)
        summary = json.loads(ended.stdout)
        if "sample_ns" not in text:
            return {"gbps": summary["goodput_gbps"]["all"], "least": summary["goodput_gbps"]["least"]}
        duration, middle = number(text, "duration_ns"), number(text, "duration_ns") // 2
        rates, queue = {}, []
        for flow in csv.DictReader((place / "out/flows.csv").open()):
            key = flow["source"], flow["connection"]
            counts = flow["state"] == "done" and int(flow["end_ns"]) > middle
            rates[key] = rates.get(key, 0) + (int(flow["bytes"]) if counts else 0)
        for sample in csv.DictReader((place / "out/queues.csv").open()):
            if sample["port"] == "leaf0->h0" and int(sample["time_ns"]) > middle:
                queue.append(int(sample["bytes"]))
    samples = middle // number(text, "sample_ns")
    queue = sorted([0] * (samples - len(queue)) + queue)
    total, squares = sum(rates.values()), sum(rate * rate for rate in rates.values())
    return {"gbps": total * 8 / (duration - middle), "jain": total * total / (len(rates) * squares),
            "mean": sum(queue) / len(queue), "median": queue[len(queue) // 2], "p99": queue[len(queue) * 99 // 100],
            "us": sum(queue) / len(queue) * 8 / number(text, "host_gbps") / 1000,
            "drops": summary["drops"]["full"] / summary["frames"]["sent"], "pauses": summary["pauses"]}


def line(row, got):
    cells = [f"{key} = {value}" for key, value in row.items()]
    if "jain" not in got:
        return f"| {', '.join(cells)} | {got['gbps']:.0f} | {got['least']:.1f} |"
    return (f"| {', '.join(cells)} | {got['gbps']:.1f} | {got['jain']:.3f} | {got['mean'] / 1000:.0f} | {got['median'] / 1000:.0f} "
            f"| {got['p99'] / 1000:.0f} | {got['us']:.0f} us | {got['drops'] * 100:.2f} % |")


def check(tables):
    few, many, few_marked, many_marked = tables["dcqcn-degree"]
    for got in (few, many, few_marked, many_marked):
        assert got["jain"] > 0.98 and got["drops"] == 0 and got["pauses"] == 0, got
    assert few["gbps"] > 36.5 and many["gbps"] > 34 and many_marked["gbps"] > 36, (few, many, many_marked)
    assert many["p99"] > 1.5 * few["p99"] and many_marked["p99"] < 0.5 * many["p99"] < 150_000, (few, many, many_marked)
    small, large = tables["dcqcn-gain"]
    assert large["p99"] > small["p99"] and large["gbps"] < small["gbps"], (small, large)
    slow, quick = tables["dcqcn-timer"]
    assert slow["jain"] < 0.5 and quick["jain"] > 0.9, (slow, quick)
    ten, hundred, thousand = tables["swift-degree"]
    assert 0.5 * 50 < ten["us"] < hundred["us"] < 2 * 50 < thousand["us"] < 3 * 50, (ten, hundred, thousand)
    assert ten["jain"] > 0.98 and hundred["jain"] > 0.9 and thousand["jain"] > 0.6, (ten, hundred, thousand)
    for got in (ten, hundred, thousand):
        assert got["gbps"] > 48 and got["drops"] == 0, got
    alike, scaled = tables["swift-scaling"]
    assert alike["jain"] < 0.9 < 0.98 < scaled["jain"] and alike["us"] < scaled["us"], (alike, scaled)
    near, far = tables["swift-target"]
    for got, target_us in ((near, 50), (far, 200)):
        assert 0.85 * target_us < got["us"] < 1.15 * target_us, (got, target_us)
        assert got["jain"] > 0.98 and got["gbps"] > 48 and got["drops"] == 0, got
    one, eight, swift_one, swift_eight = (got["gbps"] for got in tables["permutation"])
    assert one < 0.5 * 1203 and swift_one < 0.5 * 1203, (one, swift_one)
    assert 1.5 * one < eight and 1.5 * swift_one < swift_eight, (one, eight, swift_one, swift_eight)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("program")
    parser.add_argument("configs", type=pathlib.Path)
    options = parser.parse_args()
    tables = {}
    for name, (config, rows) in TABLES.items():
        text = (options.configs / f"{config}.toml").read_text()
        if options.check:
            rows = [rows[i] for i in CHECKED[name]]
        if not options.commands:
            print(f"{name}, {config}.toml", flush=True)
        for row in rows:
            if options.commands:
                print(command(config, row))
                continue
            got = measure(options.program, changed(text, row))
            tables.setdefault(name, []).append(got)
            print(line(row, got), flush=True)
    if options.check:
        check(tables)
        print("ok")


main()
