#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""rdma_cm between a Linux kernel and Faultline: its own programs and perftest's, each as server and as client, over IPv4 and IPv6; and
connections that are refused, that end, or that lose their peer.

    cm.py FAULTLINE_RUN [--reduced] [REGULAR EXPRESSION]
"""
import contextlib
import itertools
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import cm_cases  # noqa: E402
from testbed.testbed import Testbed  # noqa: E402
from program_pair import Failure, ends, run_pair  # noqa: E402
from testbed.held_requests import HeldRequests  # noqa: E402
from guest.lane import run_lane  # noqa: E402
from tally import Tally, lane_parser  # noqa: E402

# SERVER | CLIENT. {a;b}: a at Faultline's end, b at the kernel's, whose programs are newer. "a,b" in [] is expanded to all of its values.
# Marks: 4, R: IPv4 only; R: the server listens again between its exchange with the client and the measurement; +: in the reduced run too.
# There is no cmtime: the peer's version is newer, and exchanges data over TCP that Debian 12's version does not.
PROGRAMS = """
+  rping -s -a <server> -C 10 -V | rping -c -a <server> -I <client> -C 10 -V
-  rping -s -a <server> -C 3 -S 60000 -V -q | rping -c -a <server> -C 3 -S 60000 -V -q
+  ucmatose -b <server> -c 4 -C 5 -S 1000 | ucmatose -s <server> -c 4 -C 5 -S 1000
-  ucmatose -b <server> -m | ucmatose -s <server> -m
+  udaddy -b <server> -c 3 -C 5 -S 1000 | udaddy -s <server> -c 3 -C 5 -S 1000
-  rdma_server -s <server> | rdma_client -s <server>
4  rdma_xserver | rdma_xclient -s <server>
+  rstream -b <server> -S 4000 -C 20 -T [b,n,r,v] | rstream -s <server> -S 4000 -C 20 -T [b,n,r,v]
-  riostream -b <server> -S 4000 -C 20 -T [b,v] | riostream -s <server> -S 4000 -C 20 -T [b,v]
R  ib_[write,send,read,atomic]_[bw,lat] -R -F -n 20 | ib_[write,send,read,atomic]_[bw,lat] -R -F -n 20 <server>
R  ib_[write,send,read,atomic]_bw -R -F -n 20 -q 4 | ib_[write,send,read,atomic]_bw -R -F -n 20 -q 4 <server>
R  ib_send_[bw,lat] -R -c UD -F -n 20 -s 64 | ib_send_[bw,lat] -R -c UD -F -n 20 -s 64 <server>
4  ib_[write,send]_bw -z -F -n 20 {-x 0;-x 1} | ib_[write,send]_bw -z -F -n 20 {-x 0;-x 1} <server>
4  ib_read_bw -z -F -n 20 {-x 0;-x 1} | ib_read_bw -z -F -n 20 {-x 0;-x 1} <server>
"""


def expand(text):
    """Expands the brackets to every text; equal results appear once."""
    groups = list(dict.fromkeys(re.findall(r"\[[^\[\]]*,[^\[\]]*\]", text)))
    for choice in itertools.product(*(group[1:-1].split(",") for group in groups)):
        expanded = text
        for group, chosen in zip(groups, choice):
            expanded = expanded.replace(group, chosen)
        yield expanded


def rows():
    """Mark, name, server's and client's text of each program to run."""
    for line in PROGRAMS.strip().splitlines():
        mark, text = line.split(None, 1)
        for row in expand(text):
            server, client = row.split(" | ")
            yield mark, server, client


def ended_well(process):
    """rping's thread for events may find the channel closed by its main thread after all data has arrived, and exit with an error. So
    only its
    data is checked."""
    return "rping" in process.argv and "DISCONNECT EVENT" in process.output and not re.search(
        "cq completion failed|verification failed", process.output)


def run_programs(testbed, tally, reduced, wanted):
    for mark, server, client in rows():
        name = re.sub(r"<(\w+)>", lambda found: found.group(1).upper(), re.sub(r" \{[^{}]*\}", "", client))
        for family in (4,) if mark in "4R" else (4, 6):
            for ours in (True, False):
                case = f"{name}, IPv{family}, {'Faultline' if ours else 'the kernel'} serves"
                # Reduced: one run with IPv4 and one with IPv6 for each of these programs, at different ends.
                if reduced and (mark != "+" or (family == 4) != ours or "-T" in client and "-T v" not in client):
                    continue
                if not wanted.search(case):
                    continue
                try:
                    places = ends(testbed, ours)
                    listens_anew = mark == "R" and not ours
                    with HeldRequests(testbed, places[0].cm_listeners) if listens_anew else contextlib.nullcontext():
                        run_pair(*places, server, client, family, good=ended_well)
                    tally.ok(case)
                except Failure as failure:
                    tally.fail(case, failure)


def main():
    asked = lane_parser(__doc__).parse_intermixed_args()
    reduced, wanted = asked.reduced, asked.wanted
    tally = Tally("cm")
    with Testbed(asked.faultline_run, "cm") as testbed:
        run_programs(testbed, tally, reduced, wanted)
        cm_cases.run(testbed, tally, reduced, wanted)
    tally.finish()


run_lane(main)
