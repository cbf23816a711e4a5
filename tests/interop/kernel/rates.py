#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The rate of perftest between the kernel in a guest and Faultline on the host, by a tap and by vhost-user, in turns in one run.
faultline-switch owns either port. No lane: it asserts no figure. The guest is emulated, so its kernel limits each rate; compare the
rates of one run with each other only.

    rates.py FAULTLINE_RUN [ROUNDS]
"""
import os
import re
import signal
import statistics
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from testbed.testbed import BRIDGE, OUR_ADDRESSES, PEER_ADDRESSES, PEER_GIDS, VHOST_ADDRESSES, Testbed  # noqa: E402

PROGRAMS = {"ib_write_bw": "-n 1000", "ib_send_bw": "-n 1000", "ib_read_bw": "-n 500"}
TIMEOUT_S = 300
# The last port may still be in use.
port = 18700


class Way:
    """A wire whose switch owns a port to the guest."""

    def __init__(self, testbed, name, device, address, lines):
        self.testbed, self.name, self.device = testbed, name, device
        self.apps = os.path.dirname(testbed.faultline_run)
        self.variables = dict(XDG_RUNTIME_DIR=testbed.folder)
        path = f"{testbed.folder}/{name}.toml"
        with open(path, "w") as file:
            file.write(f'[[device]]\nname = "uplink"\nip = "{address}/24"\nmtu = {testbed.mtu_bytes}\n[device.port]\n{lines}\n')
        self.switch = testbed.inside(f"{self.apps}/faultline-switch", "--wire", name, "--config", path, variables=self.variables)

    def popen(self, argv):
        return self.testbed.inside(self.testbed.faultline_run, "--wire", self.name, "--no-wire-sockets", *argv, variables=self.variables)

    def await_link(self):
        until = time.monotonic() + TIMEOUT_S
        while "ACTIVE" not in self.testbed.peer.check("rdma", "link", "show", f"{self.device}/1"):
            if time.monotonic() > until or self.switch.poll() is not None:
                raise RuntimeError(f"{self.name}: no link: {self.switch.output}")


def measure(way, program, ours_serves):
    """The rate in MB/s, as the client reports it."""
    global port
    port += 1
    peer = way.testbed.peer
    words = [program, "-F", "-s", "65536", *PROGRAMS[program].split(), "-u", "18", "-p", str(port)]
    own = [*words, "-x", "0"]
    peers = [*words, "-d", way.device, "-x", str(PEER_GIDS[4])]
    machine = way.testbed if ours_serves else peer
    server = way.popen(own) if ours_serves else peer.popen(peers)
    if not machine.await_listener(port, server, TIMEOUT_S):
        raise RuntimeError(f"the server does not listen: {server.output}")
    client = peer.popen([*peers, BRIDGE[4]]) if ours_serves else way.popen([*own, PEER_ADDRESSES[4]])
    if client.wait(TIMEOUT_S) != 0:
        raise RuntimeError(f"{program}: {client.output}\n{server.output}")
    server.wait(TIMEOUT_S)
    [rate] = re.findall(r"^ 65536 +\d+ +[\d.]+ +([\d.]+)", client.output, re.MULTILINE)
    return float(rate)


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    rates = {}
    with Testbed(sys.argv[1], "rates", with_vhost=True) as testbed:
        testbed.use_vhost("rxe1")
        ways = [Way(testbed, "tap", "rxe0", OUR_ADDRESSES[4], 'kind = "af_packet"\ninterface = "fl-port"'),
                Way(testbed, "vhost", "rxe1", VHOST_ADDRESSES["ours"][4], f'kind = "vhost"\nsocket = "{testbed.peer.back_end}"')]
        for way in ways:
            way.await_link()
        for number in range(rounds):
            for program in PROGRAMS:
                for ours_serves in (True, False):
                    for way in ways:
                        rate = measure(way, program, ours_serves)
                        print(f"round {number}: {program}, client {'the kernel' if ours_serves else 'ours'}, {way.name}: {rate:.1f} MB/s", flush=True)
                        rates.setdefault((program, ours_serves, way.name), []).append(rate)
    for (program, ours_serves, way), found in rates.items():
        print(f"{program}, client {'the kernel' if ours_serves else 'ours'}, {way}: median {statistics.median(found):.1f} MB/s, "
              f"{min(found):.1f} to {max(found):.1f}")
        if way == "vhost":
            # Of each turn: the machine's load changes from turn to turn.
            ratios = [rate / tap for rate, tap in zip(found, rates[program, ours_serves, "tap"])]
            print(f"  to tap: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
main()
