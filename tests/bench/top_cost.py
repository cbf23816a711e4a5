#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The CPU time of `faultline top` on a terminal while a program has many QPs, at one refresh a second.

    tests/bench/top_cost.py [--build build/plain] [--qps 10000] [--seconds 15]
"""
import argparse
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

START_S = 20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/plain")
    parser.add_argument("--qps", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=15)
    options = parser.parse_args()
    apps = os.path.join(options.build, "apps")
    program = subprocess.Popen([f"{apps}/faultline-perf", "--both", "--config", "configs/ring.toml", "--", "--qps", str(options.qps), "--size", "64", "--depth", "1", "--seconds",
                                str(options.seconds + START_S)], stdout=subprocess.DEVNULL)
    try:
        time.sleep(START_S)
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.update(TERM="linux", LINES="50", COLUMNS="160")
            os.execv(f"{apps}/faultline", ["faultline", "top"])
        begun = time.monotonic()
        shown = b""
        while time.monotonic() < begun + options.seconds:
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 65536)
        os.kill(pid, signal.SIGTERM)
        while True:
            try:
                if not os.read(terminal, 65536):
                    break
            except OSError:
                break
        used = os.wait4(pid, 0)[2]
        passed_s = time.monotonic() - begun
    finally:
        program.kill()
        program.wait()
    qps = re.search(rb"(\d+) QPs", shown)
    cpu_s = used.ru_utime + used.ru_stime
    print(f"{qps[1].decode() if qps else '?'} QPs: {cpu_s:.2f} s of CPU time in {passed_s:.1f} s, {100 * cpu_s / passed_s:.1f} % of a CPU")
    return 0


sys.exit(main())
