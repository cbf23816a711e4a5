#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Devices of kind udp over bad networks: a guest has two hosts and a router between them, which are network namespaces. The router's queues
lose, delay and reorder packets (tc-netem(8)), or mark them (tc-red(8), tc-fq_codel(8)). Every byte of WRITE, READ and SEND is compared,
then, without --reduced, the rate of WRITE is measured beside a TCP stream of the guest's kernel. No figure is asserted: the guest is
emulated.

    netem.py FAULTLINE_RUN [--reduced] [REGULAR EXPRESSION]
"""
import json
import os
import re
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, f"{HERE}/../nic")
sys.path.insert(0, f"{HERE}/../kernel")
import nic_guest  # noqa: E402
from guest.guest import HANG_S, Guest  # noqa: E402
from guest.lane import run_lane  # noqa: E402
from tally import Tally, lane_parser  # noqa: E402

SPACES = ("near", "router", "far")
SERVER = {4: "198.18.2.2", 6: "2001:2:0:2::2"}
CLIENT = {4: "198.18.1.2", 6: "2001:2:0:1::2"}
# Over a link of its own: a queue that marks the devices' packets drops those of TCP, whose time-out then doubles beyond the exchange's limit.
EXCHANGE = "198.18.3.2"
PORT = 20000
SECONDS = 6

NARROW = "tbf rate 100mbit burst 16kb limit 300kb"
# Of both directions of the router, by name: the queue at the root, and one below it. The congestion control of the QPs.
CASES = {
    "no fault": ("", "", "none"),
    "1 % loss": ("netem limit 10000 loss 1%", "", "none"),
    "20 ms round trip": ("netem limit 10000 delay 10ms", "", "none"),
    "20 ms round trip, 1 % loss": ("netem limit 10000 delay 10ms loss 1%", "", "none"),
    "reordering: 25 % of the packets leave 5 ms early": ("netem limit 10000 delay 5ms reorder 25% 50%", "", "none"),
    "duplicates and wrong bytes, 1 % each": ("netem limit 10000 duplicate 1% corrupt 1%", "", "none"),
    "100 Mbit/s, queue of 300 KB": (NARROW, "", "none"),
    "100 Mbit/s, red ecn, DCQCN": (NARROW, "red limit 300kb min 15kb max 60kb avpkt 1500 burst 20 probability 0.2 bandwidth 100mbit ecn", "dcqcn"),
    "100 Mbit/s, fq_codel ce_threshold, DCQCN": (NARROW, "fq_codel limit 1000 ce_threshold 1ms ecn", "dcqcn"),
}
REDUCED = ("20 ms round trip, 1 % loss", "100 Mbit/s, red ecn, DCQCN")


class PathGuest(Guest):
    """A guest with the files of this machine and no NIC."""

    def _boot(self):
        files = nic_guest.image()
        agent = os.path.realpath(f"{HERE}/../kernel/guest/agent.py")
        self.launch([], ["-machine", "q35", "-m", "1536", "-smp", "2", "-kernel", f"{files}/vmlinuz", "-initrd", f"{files}/initrd",
                         "-append", f"console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on net.ifnames=0 lab.agent={agent}",
                         "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"])
        for module in ("veth", "sch_netem", "sch_tbf", "sch_red", "sch_fq_codel"):
            self.check("modprobe", module)
        self._join()

    def _join(self):
        for space in SPACES:
            self.check("ip", "netns", "add", space)
            self.check("ip", "-n", space, "link", "set", "lo", "up")
        for number, space in ((1, "near"), (2, "far")):
            self.check("ip", "-n", space, "link", "add", "fl", "type", "veth", "peer", "name", f"fl-{space}", "netns", "router")
            for where, name, host in ((space, "fl", 2), ("router", f"fl-{space}", 1)):
                self.check("ip", "-n", where, "addr", "add", f"198.18.{number}.{host}/24", "dev", name)
                self.check("ip", "-n", where, "addr", "add", f"2001:2:0:{number}::{host}/64", "dev", name, "nodad")
                self.check("ip", "-n", where, "link", "set", name, "up")
            self.check("ip", "-n", space, "route", "add", "default", "via", f"198.18.{number}.1")
            self.check("ip", "-n", space, "route", "add", "default", "via", f"2001:2:0:{number}::1")
            # A queue takes a whole train for one packet otherwise.
            self.inside(space, "ethtool", "-K", "fl", "tso", "off", "gso", "off", "tx-udp-segmentation", "off")
        self.check("ip", "-n", "near", "link", "add", "aside", "type", "veth", "peer", "name", "aside", "netns", "far")
        for space, address in (("near", "198.18.3.1"), ("far", EXCHANGE)):
            self.check("ip", "-n", space, "addr", "add", f"{address}/24", "dev", "aside")
            self.check("ip", "-n", space, "link", "set", "aside", "up")
        for key in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
            self.inside("router", "sysctl", "-q", "-w", f"{key}=1")

    def inside(self, space, *words):
        return self.check("ip", "netns", "exec", space, *words)

    def set_queues(self, root, below):
        for name in ("fl-near", "fl-far"):
            self.run(["ip", "netns", "exec", "router", "tc", "qdisc", "del", "dev", name, "root"])
            if root:
                self.inside("router", "tc", "qdisc", "add", "dev", name, "root", "handle", "1:", *root.split())
            if below:
                self.inside("router", "tc", "qdisc", "add", "dev", name, "parent", "1:1", "handle", "2:", *below.split())

    def queue_counts(self):
        """Drops and marks of the queues to the server since they were made."""
        text = self.inside("router", "tc", "-s", "qdisc", "show", "dev", "fl-far")
        dropped = sum(int(count) for count in re.findall(r"dropped (\d+)", text))
        marked = sum(int(count) for count in re.findall(r"\b(?:marked|ecn_mark|ce_mark) (\d+)", text))
        return dropped, marked


def pair(guest, server, client, port):
    """Runs both; returns the client's output, and raises RuntimeError if one fails."""
    serving = guest.popen(["ip", "netns", "exec", "far", *server])
    try:
        if not serving.await_output("istening on", HANG_S):
            raise RuntimeError(f"the server does not listen: {serving.output}")
        asking = guest.run(["ip", "netns", "exec", "near", *client], HANG_S)
        if asking.returncode != 0:
            raise RuntimeError(f"{' '.join(client[-8:])}: status {asking.returncode}: {asking.output[-800:]}\n{serving.output[-400:]}")
        return asking.output
    finally:
        if serving.poll() is None:
            serving.signal(signal.SIGTERM)
            serving.wait(HANG_S)


def perf(guest, program, family, algorithm, words):
    """Results of faultline-perf, as it writes them."""
    global PORT
    PORT += 1
    for name, address in (("server", SERVER[family]), ("client", CLIENT[family])):
        text = f'[transport.congestion]\nalgorithm = "{algorithm}"\n[[device]]\nname = "faultline0"\nip = "{address}"\n[device.port]\nkind = "udp"\n'
        guest.check("sh", "-c", 'printf %s "$1" >"$0"', f"/tmp/{name}.toml", text)
    pair(guest, [program, "--config", "/tmp/server.toml", "--server", "--port", str(PORT)],
         [program, "--config", "/tmp/client.toml", "--client", EXCHANGE, "--port", str(PORT), "--", *words, "--json", "/tmp/results.json"], PORT)
    return json.loads(guest.check("cat", "/tmp/results.json"))["results"]


def tcp_rate(guest):
    """MB/s of one TCP stream."""
    output = pair(guest, ["iperf3", "-s", "-1", "--forceflush", "-p", "20999"],
                  ["iperf3", "-c", SERVER[4], "-p", "20999", "-t", str(SECONDS), "-J"], 20999)
    return json.loads(output)["end"]["sum_received"]["bits_per_second"] / 8e6


def run_case(guest, program, name, with_rates):
    root, below, algorithm = CASES[name]
    for family in (4, 6):
        guest.set_queues(root, below)
        results = perf(guest, program, family, algorithm, ["--op", "write,read,send", "--size", "64,64k", "--depth", "4", "--iters", "40", "--verify"])
        wrong = sum(result["wrong_bytes"] for result in results)
        if wrong or len(results) != 6:
            raise RuntimeError(f"{len(results)} results, {wrong} wrong bytes")
    if not with_rates:
        dropped, marked = guest.queue_counts()
        return f"queue: {dropped} packets dropped, {marked} marked"
    guest.set_queues(root, below)
    [result] = perf(guest, program, 4, algorithm, ["--op", "write", "--size", "64k", "--depth", "8", "--seconds", str(SECONDS)])
    dropped, marked = guest.queue_counts()
    rate = result["gb_per_second"] * 1000
    guest.set_queues(root, below)
    tcp = tcp_rate(guest)
    return (f"WRITE {rate:.1f} MB/s, TCP {tcp:.1f} MB/s: {rate / tcp:.2f}; queue: {dropped} packets dropped, {marked} marked; "
            f"{result['retransmissions']} packets sent again of {result['messages'] * 64}, {result['timeouts']} time-outs")


def main():
    arguments = lane_parser(__doc__).parse_intermixed_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tally = Tally("netem")
    nic_guest.image()  # skips before anything is set up
    program = f"{os.path.dirname(os.path.realpath(arguments.faultline_run))}/faultline-perf"
    cases = [name for name in CASES if arguments.wanted.search(name) and (not arguments.reduced or name in REDUCED)]
    with PathGuest("netem") as guest:
        print(f"netem: Linux {guest.release}", flush=True)
        for case in cases:
            try:
                tally.ok(case, run_case(guest, program, case, not arguments.reduced))
            except (RuntimeError, OSError, KeyError, ValueError) as error:
                tally.fail(case, str(error))
            except subprocess.TimeoutExpired as error:
                tally.fail(case, f"no end after {error.timeout:.0f} s: {error.cmd}")
            if guest.gone:
                break
    tally.finish()


run_lane(main)
