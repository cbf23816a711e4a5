#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Many processes on one wire, each connected to each, exchange messages whose every byte is compared (crowd.cpp).
  crowd_test.py FAULTLINE_RUN CROWD [--processes N] [--laps N]
Ends with a failure if one message is missing or wrong, or if a process fails. Timeouts are printed, not judged: a busy machine causes
them as well.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

LIMIT_S = 60
SWITCH_END_S = 20

parser = argparse.ArgumentParser()
parser.add_argument("run")
parser.add_argument("crowd")
parser.add_argument("--processes", type=int, default=int(os.environ.get("FAULTLINE_CROWD", 24)))
parser.add_argument("--laps", type=int, default=2)
options = parser.parse_args()
if not (pathlib.Path(options.run).parent.parent / "stack/abi/libibverbs.so.1").exists():
    print("SKIPPED: there is no drop-in library")
    sys.exit(77)

folder = tempfile.mkdtemp(prefix="fl-crowd-")
environment = dict(os.environ, XDG_RUNTIME_DIR=folder)
wire = f"crowd{os.getpid()}"
# Started here and not by the first process, so that this test can await its end.
switch = subprocess.Popen([pathlib.Path(options.run).parent / "faultline-switch", "--wire", wire], env=environment)
try:
    control = pathlib.Path(folder, "faultline", f"{wire}.control")
    deadline = time.monotonic() + LIMIT_S
    while not control.exists():
        if switch.poll() is not None or time.monotonic() > deadline:
            sys.exit("FAILED: the switch does not start")
        time.sleep(0.01)
    program = subprocess.run([options.run, "--wire", wire, "--", options.crowd, str(options.processes), str(options.laps), str(LIMIT_S)],
                             env=environment, stdout=subprocess.PIPE, text=True, timeout=2 * LIMIT_S, check=False)
    if program.returncode != 0:
        sys.exit(f"FAILED: the crowd ended with {program.returncode}")
    report = json.loads(program.stdout)
    report.pop("pids")
    print(report)
    wanted = options.processes * (options.processes - 1) * 2 * options.laps
    if report["messages"] != wanted:
        sys.exit(f"FAILED: {report['messages']} messages arrived, not {wanted}")
finally:
    switch.terminate()
    try:
        switch.wait(SWITCH_END_S)
    except subprocess.TimeoutExpired:
        switch.kill()
        switch.wait()
    shutil.rmtree(folder, ignore_errors=True)
