#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Hostile frames to a Faultline device that exchanges data with the kernel. (tests/interop/hostile has more, between two Faultline
devices.) No byte is wrong, each frame is counted under the reason that its sender predicted, and the exchange continues.

    hostile.py FAULTLINE_RUN [--reduced] [REGULAR EXPRESSION]
"""
import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from testbed.testbed import BRIDGE, HERE, OUR_ADDRESSES, PEER_ADDRESSES, Testbed, kernel_peer  # noqa: E402
from guest.lane import run_lane  # noqa: E402
from tally import Tally, lane_parser  # noqa: E402

PORT = 18900
PATIENCE_S = kernel_peer.HANG_S
# Exceeds a packet of the largest path MTU that the sender has lengthened.
LINK_MTU_BYTES = 4600
# Kinds of frames that need more QPs, or a link with a larger MTU.
WITHOUT = {"wrong-qkey", "peers-with-all-known", "oversize"}
ALL = re.compile(r'^ +\{"([a-z-]+)", &Attacks::', re.MULTILINE)


def kinds():
    with open(f"{HERE}/../hostile/attacks.cpp") as file:
        return [kind for kind in ALL.findall(file.read()) if kind not in WITHOUT]


def mac_of(testbed, address):
    """From the bridge's own neighbour table, after a ping that fills it."""
    testbed.inside("ping", "-c", "1", "-w", str(PATIENCE_S), address).wait()
    words = subprocess.run(["ip", "-j", "-n", testbed.namespace, "neigh", "show", address], stdout=subprocess.PIPE, text=True).stdout
    return json.loads(words)[0]["lladdr"]


class Stream:
    def __init__(self, testbed, odp, number):
        self.stop = f"{testbed.folder}/stop-{number}"
        settings = json.dumps(dict(addresses=dict(ours=OUR_ADDRESSES[4], peer=PEER_ADDRESSES[4]), odp=odp, stop=self.stop))
        port = str(PORT + number)
        self.ours = testbed.popen(["/usr/bin/python3", "-B", f"{HERE}/hostile_end.py", "listen", port, settings])
        if not testbed.await_listener(int(port), self.ours):
            raise RuntimeError(f"our end: {self.ours.output[-1000:]}")
        self.peer = testbed.peer.popen(["python3", "-B", "/mnt/share/hostile_end.py", BRIDGE[4], port, settings])

    def lines(self):
        """The output of Faultline's end so far, whole lines only."""
        return [json.loads(line) for line in self.ours.output.split("\n")[:-1] if line.startswith("{")]

    def wait_for(self, condition, what):
        found = []

        def has_come():
            lines = self.lines()
            if wrong := [line["wrong"] for line in lines if "wrong" in line]:
                raise RuntimeError(wrong[0])
            found[:] = [line for line in lines if condition(line)]
            return found or not self.ours.reader.is_alive()
        with self.ours.changed:
            self.ours.changed.wait_for(has_come, PATIENCE_S)
        if not found:
            raise RuntimeError(f"{what} does not come: ours: {self.ours.output[-300:]} peer's: {self.peer.output[-600:]}")
        return found[-1]

    def facts(self):
        return self.wait_for(lambda line: "qpn" in line, "the facts")

    def report_after(self, rounds):
        return self.wait_for(lambda line: line.get("rounds", -1) > rounds, f"a report after {rounds} rounds")

    def end(self):
        with open(self.stop, "w"):
            pass
        self.ours.wait(PATIENCE_S)
        self.peer.wait(PATIENCE_S)
        return self.ours.returncode == 0 and self.peer.returncode == 0


def attack(testbed, sender, facts, frames, seed):
    path = f"{testbed.folder}/facts.json"
    with open(path, "w") as file:
        json.dump(facts, file)
    words = ["ip", "netns", "exec", testbed.namespace, sender, "--interface", "fl-third", "--facts", path, "--count", str(frames), "--seed",
             str(seed), "--rate", "5000"]
    for kind in kinds():
        words += ["--kind", kind]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    if done.returncode != 0:
        raise RuntimeError(f"the sender: {done.stderr}")
    return json.loads(done.stdout)


def differences(before, after, expected):
    """Lists the device's counters that differ from the sender's prediction. The link also has other stations, whose frames are not
    RoCEv2."""
    grown = {name: after[name] - before[name] for name in after}
    reached = expected.pop("reached", 0)
    missed = grown["port.rx_missed"]
    return [f"{name}: foreseen {count}, counted {grown[name]}" for name, count in sorted(expected.items())
            if grown[name] < count - missed or
            (not name.startswith("port.") and grown[name] > count + (reached if name.startswith("drop.") else 0))]


def case(testbed, sender, odp, frames, number):
    stream = Stream(testbed, odp, number)
    try:
        qp = stream.facts()
        target = dict(mac=mac_of(testbed, OUR_ADDRESSES[4]), ipv4=OUR_ADDRESSES[4], ipv6=OUR_ADDRESSES[6])
        peer = dict(mac=testbed.peer.mac, ipv4=PEER_ADDRESSES[4], ipv6=PEER_ADDRESSES[6])
        facts = dict(target=target, peer=peer, qkey=0x11111111, services=[0x01061234], management=False,
                     qps=[dict(qp, name=name, service="rc") for name in ("serves", "asks", "idle")])
        before = stream.report_after(5)
        sent = attack(testbed, sender, facts, frames, number + 1)
        rounds = stream.lines()[-1]["rounds"]
        after = stream.report_after(rounds + 1)
        wrong = differences(before["counters"], after["counters"], sent["expected"])
        if wrong:
            return "; ".join(wrong), ""
        stream.report_after(after["rounds"] + 5)
        if not stream.end():
            return f"it did not end well: {stream.ours.output[-300:]} {stream.peer.output[-300:]}", ""
        return "", (f"{sent['frames']} frames in {sent['seconds']:.0f} s, {after['rounds'] - before['rounds']} rounds meanwhile, "
                    f"{after['counters']['port.rx_missed'] - before['counters']['port.rx_missed']} not taken by the packet socket")
    finally:
        stream.ours.signal()
        stream.peer.signal()


def main():
    asked = lane_parser(__doc__).parse_intermixed_args()
    reduced, wanted = asked.reduced, asked.wanted
    sender = os.path.realpath(f"{os.path.dirname(os.path.realpath(asked.faultline_run))}/../tests/interop/hostile/hostile_sender")
    if not os.path.exists(sender):
        kernel_peer.skip("the sender of hostile frames is not built")
    tally = Tally("hostile")
    with Testbed(asked.faultline_run, name="hostile", mtu_bytes=LINK_MTU_BYTES) as testbed:
        # Filters on bridges would drop broken packets before they reach a station.
        testbed.inside("sh", "-c", "if [ -d /proc/sys/net/bridge ]; then echo 0 | tee /proc/sys/net/bridge/bridge-nf-call-*tables; fi").wait()
        mtu = str(testbed.mtu_bytes)
        testbed.ip("link", "add", "fl-third", "mtu", mtu, "type", "veth", "peer", "name", "fl-third-br", "mtu", mtu)
        testbed.ip("link", "set", "fl-third-br", "master", "fl-bridge", "up")
        testbed.ip("link", "set", "fl-third", "up")
        for number, odp in enumerate((False, True)):
            name = f"data both ways under hostile frames, ODP {'on' if odp else 'off'}"
            if not wanted.search(name):
                continue
            try:
                problem, note = case(testbed, sender, odp, 20_000 if reduced else 200_000, number)
            except (RuntimeError, subprocess.TimeoutExpired, LookupError) as error:
                problem, note = str(error), ""
            tally.fail(name, problem) if problem else tally.ok(name, note)
        console = testbed.peer.console()
        if "Oops" in console or "BUG:" in console:
            tally.fail("the kernel", console[-1000:])
    tally.finish()


run_lane(main)
