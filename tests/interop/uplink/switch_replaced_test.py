#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Replaces switches with an uplink under load: one is killed, and a new one starts after its end; the other gets SIGTERM,
as for an upgrade, and the new one starts at once. Programs keep their seats, QPNs and connections: ib_write_bw ends right, and rping goes on to verify
what it reads and writes.

  switch_replaced_test.py FAULTLINE_RUN
"""
import json
import re
import sys

from uplink_lab import HOSTS, end_run, has_sent, lib, run_in_lab

# The time-outs outlast the time without a switch, also on a busy machine. The run is ended when the switches are replaced.
WRITES = ["ib_write_bw", "-F", "-s", "65536", "-q", "2", "-u", "19", "-D", "3600", "-p", "18600"]
RPING = ["rping", "-v", "-V", "-S", "4096", "-C", "10000000", "-a", HOSTS[0], "-p", "18601"]


def seats(lab, side):
    return sorted((seat["pid"], seat["seat"], seat["ip"], seat["first_qpn"]) for seat in lab.status(side)["seats"])


def process_of_switch(lab, side):
    """Its process id; 0 while no switch answers. ip netns exec has become the switch."""
    asked = lab.ask(side, "--json")
    return json.loads(asked.stdout)["pid"] if asked.returncode == 0 else 0


def pings(lab):
    numbers = re.findall(r"rdma-ping-([0-9]+)", lab.output("rping-client"))
    return int(numbers[-1]) if numbers else 0


def run(lab):
    lab.make()
    switches = [lab.start_switch(side) for side in (0, 1)]
    server = lab.perftest("write-server", 0, *WRITES)
    lab.await_listener(18600)
    rpings = [lab.perftest("rping-server", 0, "stdbuf", "-oL", *RPING, "-s")]
    lab.await_cm_listener(0, rpings[0])
    lib.expect(len(seats(lab, 0)) == 2, "two servers are attached")
    rpings.append(lab.perftest("rping-client", 1, "stdbuf", "-oL", *RPING, "-c"))
    client = lab.perftest("write-client", 1, *WRITES, HOSTS[0])
    lib.await_that(lambda: has_sent(lab.status(1), client) and pings(lab) > 20, "traffic")

    for side, end in ((1, "kill"), (0, "terminate")):
        before = seats(lab, side)
        assert len(before) == 2, before
        old = switches[side]
        getattr(old, end)()
        if end == "kill":
            old.wait()
        # After SIGTERM it starts at once, and waits for the old one's end.
        switches[side] = lab.start_switch(side)
        old.wait(timeout=lib.LIMIT_S)
        lib.await_that(lambda: process_of_switch(lab, side) == switches[side].pid, "the new switch answers")
        lib.await_that(lambda: seats(lab, side) == before, "all programs have their seats again")
        pinged = pings(lab)
        lib.await_that(lambda: has_sent(lab.status(1), client) and pings(lab) > pinged + 20, "traffic goes on")
        print(f"ok: {end}: the programs have their seats and QPNs again, and traffic goes on")

    end_run(client)
    for process, name in ((client, "write-client"), (server, "write-server")):
        assert process.wait(timeout=lib.LIMIT_S) == 0, name
    for process in rpings:
        assert process.poll() is None, "rping has ended"
    assert "mismatch" not in lab.output("rping-client") + lab.output("rping-server")
    print(f"ok: ib_write_bw ends right, and rping has verified {pings(lab)} pings")


if __name__ == "__main__":
    sys.exit(run_in_lab(run, sys.argv[1]))
