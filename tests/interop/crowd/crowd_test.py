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
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("run")
parser.add_argument("crowd")
parser.add_argument("--processes", type=int, default=int(os.environ.get("FAULTLINE_CROWD", 24)))
parser.add_argument("--laps", type=int, default=2)
options = parser.parse_args()
built = pathlib.Path(options.run).resolve().parent
if not (built.parent / "stack/abi/libibverbs.so.1").exists():
    lib.skip("there is no drop-in library")
lib.own_runtime_folder()
# Started here and not by the first process, so that its output is known.
lib.start_switch(built / "faultline-switch", "crowd")
program = lib.start([options.run, "--wire", "crowd", "--", options.crowd, options.processes, options.laps, lib.LIMIT_S], name="crowd")
report = json.loads(program.succeed().splitlines()[-1])
report.pop("pids")
print(report)
wanted = options.processes * (options.processes - 1) * 2 * options.laps
lib.expect(report["messages"] == wanted, f"{report['messages']} messages arrived, not {wanted}")
