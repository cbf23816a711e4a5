#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures how programs share an uplink: ib_write_bw of 64 KiB alone, next to a second one, and next to floods.

  fairness.py FAULTLINE_RUN [--seconds N] [--mbps N] [--only TEXT] [--switch-arguments "..."]

Each line has the rates in Gb/s, the measured program's first. A flood is ib_write_bw with 8 QPs of 128 WRITEs each.
"""
import argparse
import os
import sys

from uplink_lab import HOSTS, SPACES, VETHS, run_in_lab, sh

# name, sizes and QPs of the programs
CASES = [
    ("alone", [(65536, 1)]),
    ("two", [(65536, 1), (65536, 1)]),
    ("a flood", [(65536, 1), (65536, 8)]),
    ("two floods", [(65536, 1), (65536, 8), (65536, 8)]),
    ("a flood of small messages", [(65536, 1), (64, 8)]),
]


def rate_of(text):
    """The average of `#bytes #iterations BW peak BW average MsgRate`."""
    rows = [line.split() for line in text.splitlines() if line.strip()[:1].isdigit()]
    return float(rows[-1][3]) if rows else 0.0


def slow_down(lab, mbps):
    """Puts a slow link between the two hosts. Frames of af_packet's ring are in use until it has sent them, as a NIC's."""
    middle = f"fl-up-{os.getpid()}-middle"
    lab.spaces.append(middle)
    sh("ip", "netns", "add", middle)
    sh("ip", "-n", middle, "link", "add", "bridge", "up", "mtu", "4000", "type", "bridge")
    for space, veth in zip(SPACES, VETHS):
        sh("ip", "-n", space, "link", "del", veth, check=False)
        sh("ip", "link", "add", veth, "netns", space, "type", "veth", "peer", "name", "to" + veth, "netns", middle)
        sh("ip", "netns", "exec", space, "sysctl", "-qw", f"net.ipv6.conf.{veth}.disable_ipv6=1")
        sh("ip", "-n", space, "link", "set", veth, "up", "mtu", "4000")
        sh("ip", "-n", middle, "link", "set", "to" + veth, "up", "mtu", "4000", "master", "bridge")
    sh("tc", "-n", middle, "qdisc", "add", "dev", "to" + VETHS[0], "root", "tbf", "rate", f"{mbps}mbit", "burst", "64k", "limit",
       "16m")


def measure(lab, name, programs, seconds):
    pairs = []
    label = name.replace(" ", "-")
    for index, (size, qps) in enumerate(programs):
        port = 18700 + index
        command = ["ib_write_bw", "-F", "--report_gbits", "-s", str(size), "-q", str(qps), "-t", "128", "-u", "17", "-D", str(seconds), "-p",
                   str(port)]
        lab.perftest(f"{label}-server{index}", 0, *command)
        lab.await_listener(port)
        pairs.append(lab.perftest(f"{label}-client{index}", 1, *command, HOSTS[0]))
    for index, client in enumerate(pairs):
        status = client.wait(timeout=60 + seconds)
        if status != 0:
            print(f"program {index} failed:", lab.output(f"{label}-client{index}")[-300:])
    for process in lab.started[2:]:
        process.wait(timeout=60)
    del lab.started[2:]
    print(f"{name:28}", *(f"{rate_of(lab.output(f'{label}-client{index}')):8.3f}" for index in range(len(programs))), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("faultline_run")
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--only", default="")
    parser.add_argument("--mbps", type=int, help="the rate of the senders' link")
    parser.add_argument("--switch", help="another faultline-switch")
    parser.add_argument("--switch-arguments", default="")
    options = parser.parse_args()

    def run(lab):
        lab.make()
        lab.switch = options.switch or lab.switch
        if options.mbps:
            slow_down(lab, options.mbps)
        for side in (0, 1):
            lab.start_switch(side, *options.switch_arguments.split())
        for name, programs in CASES:
            if options.only in name:
                measure(lab, name, programs, options.seconds)
        for side, process in enumerate(lab.started[:2]):
            process.terminate()
            process.wait(timeout=20)
            print(lab.output(f"switch{side}").splitlines()[-1])

    return run_in_lab(run, options.faultline_run)


if __name__ == "__main__":
    sys.exit(main())
