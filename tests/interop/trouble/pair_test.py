#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every action of a scenario, met by a small verbs program (verbs_pair.py), which prints exactly what it gets.   pair_test.py FAULTLINE_RUN [ACTION]..."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from actions import ACTIONS, OF_CM, scenario
from programs import decisions, end, end_all, enter_own_network, start

RUN = os.path.realpath(sys.argv[1])
PROGRAM = ["/usr/bin/python3", os.path.join(os.path.dirname(os.path.realpath(__file__)), "verbs_pair.py")]
WAIT_S = 30
BY_SCENARIO, DEVICE_LOST = 50, 49
SURVIVED = (0, "all rounds", [])

# Of memory and time, which perftest does not meet without options.
ACTIONS |= {
    "page-out": ('send = "*", every = 20', 'memory = "page_out"', "times = 0"),
    "slow-call": ('call = "ibv_post_send", every = 20', 'call = "delay", delay_us = 5000', "times = 0"),
}

# ibv_event_type
CQ_ERR, QP_FATAL, QP_ACCESS_ERR, DEVICE_FATAL, PORT_ACTIVE, PORT_ERR, GID_CHANGE = 0, 1, 3, 8, 9, 10, 18

# The client's exit status, what it prints, its asynchronous events. Those of a network change nothing.
EXPECTED = {
    "registration": (1, "Failed to register a MR. .*Cannot allocate memory", []),
    "creation": (1, "Failed to create QP. .*Cannot allocate memory", []),
    "transition": (1, "Failed to modify QP state to RTR. .*Input/output error", []),
    "post": (1, "Failed to post send. .*Cannot allocate memory", []),
    "poll": (1, "Failed to poll CQ", []),
    "device": (1, "Failed to query device.*Input/output error", []),
    "absent": (1, "Failed to find device faultline0", []),
    "retries": (3, f"send 0 status 12 vendor {BY_SCENARIO}", []),
    "access": (3, f"send 0 status 10 vendor {BY_SCENARIO}", []),
    "qp": (3, f"send 0 status 5 vendor {BY_SCENARIO}", [QP_FATAL]),
    "fatal": (3, f"status 5 vendor {DEVICE_LOST}", [DEVICE_FATAL]),
    "gone": (1, "Failed to post send. .*Input/output error", []),
    "event": (0, "all rounds", [GID_CHANGE]),
    "link": (0, "all rounds", [PORT_ERR, PORT_ACTIVE]),
    "port": (0, f"port 1 event {PORT_ACTIVE} port 4\nall rounds", []),
    "receive": (3, f"receive 0 status 4 vendor {BY_SCENARIO}", [QP_FATAL]),
    "overflow": (1, "Failed to poll CQ", []),
    "refusal": (3, r"send \d status 10", []),
    "refusal-here": (3, "status 5", [QP_ACCESS_ERR]),
}


def check(folder, action):
    status, text, events = EXPECTED.get(action, SURVIVED)
    path, journal = scenario(folder, action, action), f"{folder}/{action}.journal"
    wire = [RUN, "--wire", f"pair-{action}"]
    server = start([*wire, "--side", "a", *PROGRAM, "server"])
    client = start([*wire, "--side", "b", "--trouble", path, "--journal", journal, *PROGRAM, "client", str(len(events))])
    try:
        output = client.communicate(timeout=WAIT_S)[0]
    except subprocess.TimeoutExpired:
        output = end(client) + "\n(ended by the test)"
    if (status, text) == SURVIVED[:2]:
        server.wait(WAIT_S)
        assert server.returncode == 0, f"{action}: the server's exit status is {server.returncode}: {end(server)}"
    told = f"{action}: exit status {client.returncode}\n{output}\n-- server:\n{end(server)}"
    made = decisions(journal)
    assert made and all(one["rule"] == action for one in made), f"decisions: {made}\n{told}"
    assert client.returncode == status and re.search(text, output), told
    assert [int(number) for number in re.findall("^event ([0-9]+)$", output, re.MULTILINE)] == events, told
    print(f"{action}: as asked, {len(made)} decisions", flush=True)


def main():
    if not shutil.which("ip") or subprocess.run([PROGRAM[0], "-c", "import pyverbs"], check=False, capture_output=True).returncode != 0:
        print("SKIPPED: pyverbs or iproute2 is not installed")
        return 77
    enter_own_network()
    folder = tempfile.mkdtemp(prefix="faultline-pair-")
    failed = 0
    try:
        os.environ.update(XDG_RUNTIME_DIR=folder)
        for action in sys.argv[2:] or [action for action in ACTIONS if action not in OF_CM]:
            try:
                check(folder, action)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"FAILED: {error}", flush=True)
        return 1 if failed else 0
    finally:
        end_all()
        shutil.rmtree(folder, ignore_errors=True)


sys.exit(main())
