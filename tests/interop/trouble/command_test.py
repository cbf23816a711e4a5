#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`faultline trouble NAME`: commands for a running program's scenario.   command_test.py FAULTLINE FAULTLINE_RUN"""
import json
import os
import sys

from programs import decisions, lib, start_client, start_server

FAULTLINE, RUN = (os.path.realpath(path) for path in sys.argv[1:3])
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


def ask(*words):
    ended = lib.call([FAULTLINE, "trouble", *words], status=None)
    lib.expect(ended.stdout == "", f"{words}: {ended}")
    return ended.returncode, ended.stderr


def give(*words, status=0):
    """Gives the command, which has to have this exit status; returns what it prints."""
    ended, text = ask(*words)
    lib.expect(ended == status, f"{words}: {ended}, {text}")
    return text


def decisions_of(rule, journal):
    return [one for one in decisions(journal) if one["rule"] == rule]


def sent_by(process):
    """The packets that the process has sent."""
    shown = json.loads(lib.call([FAULTLINE, "top", "--json", "--interval", "0.1", "--pid", process.pid]).stdout)
    return sum(device["counters"]["transport.tx_packets"] for device in shown["devices"])


def main():
    lib.need("rping", "rdma")
    folder = lib.own_runtime_folder()
    os.environ["RUNTIME_DIRECTORY"] = str(folder)  # of DPDK's telemetry, which takes the commands
    scenario, journal = folder / "scenario.toml", folder / "journal"
    scenario.write_text(SCENARIO, encoding="utf-8")
    lib.expect("no program of this user has that process number" in give("unplug", "--pid", str(os.getpid()), status=2), "no such program")
    server = start_server(RUN, "commanded", ["rping", "-s", "-a", "198.18.0.1", "-C", "100000000"])
    client = start_client(RUN, "commanded", ["rping", "-c", "-a", "198.18.0.1", "-C", "100000000"], ["--trouble", scenario, "--journal", journal])
    lib.await_that(lambda: "rules wait for" in ask("nothing")[1] and sent_by(client) > 100, "the client takes commands", client, server)
    print("ok: rping runs")
    said = give("nothing", status=2)
    lib.expect("rules wait for: bad cable, unplug" in said and "without a scenario" in said, said)
    for round_ in (1, 2):
        lib.expect(f"process {client.pid} (rping): ok" in give("unplug"), "unplug")
        lib.await_that(lambda: len(decisions_of("unplug", journal)) >= round_, "a decision for the command", client)
        lib.expect(len(decisions_of("unplug", journal)) == round_, "one decision for each command")
    lib.expect(decisions_of("unplug", journal)[0]["event"] == "command unplug", decisions_of("unplug", journal))
    lib.expect("no program" in give("unplug", "--pid", "1", status=2), "another process")
    lib.expect(not decisions_of("bad cable", journal), "not before the command")
    give("bad cable", "--pid", str(client.pid))
    lib.await_that(lambda: len(decisions_of("bad cable", journal)) > 2, "packets are lost", client)
    give("--end", "bad cable")
    lost, sent = len(decisions_of("bad cable", journal)), sent_by(client)
    # A rule in force would lose a fifth of them.
    lib.await_that(lambda: sent_by(client) > sent + 500, "traffic goes on", client, server)
    lib.expect(len(decisions_of("bad cable", journal)) == lost, "nothing is lost after the end")
    lib.expect(client.poll() is None and server.poll() is None, "the programs survive")
    print(f"ok: {lost} packets were lost by command")


main()
