#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What it costs that a device can be looked into: the rate of 64-byte WRITEs over memif with a feature, over the rate without it.

    tests/bench/publish_ratio.py [--build build/plain] [--runs 5] [--seconds 3] [--only publish|top|record] [--qps 1]

publish: the status segment, with `publish = true` and `false`. top: published, with and without `faultline top --once` in a loop. record: with
and without a recording. Both of a pair run in turns; the ratio is of the medians.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

TIME_LIMIT_S = 120
CONFIG = """[[device]]
name = "faultline0"
ip = "198.18.0.{number}/24"
publish = {publish}
[device.port]
kind = "memif"
role = "{role}"
socket = "{folder}/memif.sock"
"""


def config_files(folder, publish):
    for number, role in enumerate(("server", "client"), 1):
        with open(f"{folder}/{role}.toml", "w", encoding="utf-8") as file:
            file.write(CONFIG.format(number=number, role=role, folder=folder, publish="true" if publish else "false"))


def rate(options, publish=True, watched=False, recorded=False):
    """Messages a second."""
    perf = os.path.join(options.build, "apps", "faultline-perf")
    with tempfile.TemporaryDirectory(prefix="faultline-bench-") as folder:
        config_files(folder, publish)
        result = f"{folder}/result.json"
        record = ["env", f"FAULTLINE_RECORD={folder}/record"] if recorded else []
        server = subprocess.Popen([*record, perf, "--config", f"{folder}/server.toml", "--server", "--port", "0"], stdout=subprocess.PIPE, text=True)
        watcher = None
        try:
            line = server.stdout.readline()
            port = line.rsplit(" ", 1)[-1].strip().rsplit(":", 1)[-1]
            if watched:
                top = os.path.join(options.build, "apps", "faultline")
                watcher = subprocess.Popen(["sh", "-c", f"while :; do {top} top --once > /dev/null; done"], start_new_session=True)
            subprocess.run([*record, perf, "--config", f"{folder}/client.toml", "--client", "127.0.0.1", "--port", port, "--", "--op", "write", "--size",
                            "64", "--qps", str(options.qps), "--seconds", str(options.seconds), "--json", result],
                           check=True, timeout=TIME_LIMIT_S, stdout=subprocess.DEVNULL)
        finally:
            if watcher is not None:
                os.killpg(watcher.pid, 15)
                watcher.wait()
            server.terminate()
            server.wait(TIME_LIMIT_S)
        with open(result, encoding="utf-8") as file:
            return json.load(file)["results"][0]["messages_per_second"]


PAIRS = {"publish": ({"publish": True}, {"publish": False}),
         "top": ({"publish": True, "watched": True}, {"publish": True}),
         "record": ({"recorded": True}, {})}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/plain")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--qps", type=int, default=1)
    parser.add_argument("--only", choices=PAIRS, default="publish")
    options = parser.parse_args()
    with_it, without = [], []
    for _ in range(options.runs):
        with_it.append(rate(options, **PAIRS[options.only][0]))
        without.append(rate(options, **PAIRS[options.only][1]))
        print(f"  {with_it[-1] / 1e6:.3f} M/s with, {without[-1] / 1e6:.3f} without, {with_it[-1] / without[-1]:.3f}", flush=True)
    print(f"{options.only}: {statistics.median(with_it) / 1e6:.3f} M/s over {statistics.median(without) / 1e6:.3f} M/s, "
          f"ratio {statistics.median(with_it) / statistics.median(without):.3f}")
    return 0


sys.exit(main())
