#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every action of a scenario, met by a small verbs program (verbs_pair.py), which prints exactly what it gets.   pair_test.py FAULTLINE_RUN [ACTION]..."""
import os
import re
import sys

from actions import ACTIONS, OF_CM, scenario
from programs import PORT, decisions, lib, start_client, start_server

RUN = os.path.realpath(sys.argv[1])
PROGRAM = ["/usr/bin/python3", os.path.join(os.path.dirname(os.path.realpath(__file__)), "verbs_pair.py"), PORT]
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
    wire = f"pair-{action}"
    server = start_server(RUN, wire, [*PROGRAM, "server"])
    client = start_client(RUN, wire, [*PROGRAM, "client", len(events)], ["--trouble", path, "--journal", journal])
    client.wait()
    output = client.text()
    if (status, text) == SURVIVED[:2]:
        assert server.wait() == 0, f"{action}: the server's exit status is {server.returncode}: {server.text()}"
    server.end()
    told = f"{action}: exit status {client.returncode}\n{output}\n-- server:\n{server.text()}"
    made = decisions(journal)
    assert made and all(one["rule"] == action for one in made), f"decisions: {made}\n{told}"
    assert client.returncode == status and re.search(text, output), told
    assert [int(number) for number in re.findall("^event ([0-9]+)$", output, re.MULTILINE)] == events, told
    print(f"{action}: as asked, {len(made)} decisions", flush=True)


def main():
    lib.need("ip")
    if lib.call([PROGRAM[0], "-c", "import pyverbs"], status=None).returncode != 0:
        lib.skip("pyverbs is not installed")
    lib.own_network()
    folder = lib.own_runtime_folder()
    failed = 0
    for action in sys.argv[2:] or [action for action in ACTIONS if action not in OF_CM]:
        try:
            check(folder, action)
        except AssertionError as error:
            failed += 1
            print(f"FAILED: {error}", flush=True)
    return 1 if failed else 0


sys.exit(main())
