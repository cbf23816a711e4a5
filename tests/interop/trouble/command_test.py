#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`faultline trouble NAME`: commands for a running program's scenario.   command_test.py FAULTLINE FAULTLINE_RUN"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from programs import decisions, end_all, start

FAULTLINE, RUN = (os.path.realpath(path) for path in sys.argv[1:3])
WAIT_S = 60
SCENARIO = """
[[rule]]
name = "unplug"
when = { command = "unplug" }
do = { link = "down", for_ms = 50 }

[[rule]]
name = "bad cable"
when = { packet = "out RC.*", command = "bad cable" }
do = { packet = "lose" }
probability = 0.2
times = 0
"""

def expect(holds, what):
    if not holds:
        sys.exit(f"FAILED: {what}")


def give(*words, status=0):
    ended = subprocess.run([FAULTLINE, "trouble", *words], capture_output=True, text=True, timeout=WAIT_S, check=False)
    expect(ended.returncode == status and ended.stdout == "", f"{words}: {ended}")
    return ended.stderr


def decisions_of(rule, journal):
    return [one for one in decisions(journal) if one["rule"] == rule]


def await_true(condition, what, process):
    limit = time.monotonic() + WAIT_S
    while not condition():
        expect(time.monotonic() < limit and process.poll() is None, f"{what}: {process.poll()}")
        time.sleep(0.05)


def work(folder):
    scenario, journal = folder / "scenario.toml", folder / "journal"
    scenario.write_text(SCENARIO, encoding="utf-8")
    expect("no program of this user has that process number" in give("unplug", "--pid", str(os.getpid()), status=2), "no such program")
    server = start([RUN, "--wire", "commanded", "--side", "a", "rping", "-s", "-a", "198.18.0.1", "-C", "100000000"])
    while True:
        client = start([RUN, "--wire", "commanded", "--side", "b", "--trouble", scenario, "--journal", journal,
                        "rping", "-c", "-a", "198.18.0.1", "-C", "100000000"])
        try:
            client.wait(2)
        except subprocess.TimeoutExpired:
            break
        expect(server.poll() is None, "the server has ended")  # otherwise it did not listen yet
    print("ok: rping runs")
    said = give("nothing", status=2)
    expect("rules wait for: bad cable, unplug" in said and "without a scenario" in said, said)
    for round_ in (1, 2):
        expect(f"process {client.pid} (rping): ok" in give("unplug"), "unplug")
        expect(len(decisions_of("unplug", journal)) == round_, "one decision for each command")
    expect(decisions_of("unplug", journal)[0]["event"] == "command unplug", decisions_of("unplug", journal))
    expect("no program" in give("unplug", "--pid", "1", status=2), "another process")
    expect(not decisions_of("bad cable", journal), "not before the command")
    give("bad cable", "--pid", str(client.pid))
    await_true(lambda: len(decisions_of("bad cable", journal)) > 2, "packets are lost", client)
    give("--end", "bad cable")
    lost = len(decisions_of("bad cable", journal))
    time.sleep(0.3)
    expect(len(decisions_of("bad cable", journal)) == lost, "nothing is lost after the end")
    expect(client.poll() is None and server.poll() is None, "the programs survive")
    print(f"ok: {lost} packets were lost by command")


try:
    with tempfile.TemporaryDirectory(prefix="faultline-command-") as scratch:
        os.environ["XDG_RUNTIME_DIR"] = os.environ["RUNTIME_DIRECTORY"] = scratch
        work(pathlib.Path(scratch))
finally:
    end_all()
