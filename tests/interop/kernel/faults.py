#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Page faults with a Linux kernel as the peer: at Faultline's responder, with each `stall` setting and with pages that are late, under
the kernel's requests; and at the kernel's responder under Faultline's.

    faults.py FAULTLINE_RUN [--reduced] [REGULAR EXPRESSION]

Besides the results of the programs, the lane checks the kernel's packets: it retransmits only after a NAK of Faultline.
"""
import collections
import json
import os
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from fault_cases import FORGOTTEN, MISPLACED, PAGE_BYTES, case_name, cases  # noqa: E402
from testbed.testbed import BRIDGE, Testbed, OUR_GIDS, PEER_GIDS  # noqa: E402
from program_pair import end, tail  # noqa: E402
from testbed.capture import Capture  # noqa: E402
from guest.guest import HANG_S  # noqa: E402
from guest.lane import run_lane  # noqa: E402
from tally import Tally, lane_parser  # noqa: E402

HERE = os.path.dirname(os.path.realpath(__file__))
PORT = 18700
PATIENCE_S = HANG_S
# The QPs' time-out: 4.096 us * 2^19 is 2.1 s, which a virtual machine meets.
TIMEOUT = 19
SHORT_DELAY_US = 20_000
# Exceeds the requester's time-out: only with settings that send it RNR NAKs.
LONG_DELAY_US = 2_500_000
SWAP_MIB = 256
COUNTERS = ("retry_exceeded_err", "retry_rnr_exceeded_err")

Setting = collections.namedtuple("Setting", "name stall delay_us kinds operations family requester offset reduced")
# Across pages, and aligned to nothing.
MIDDLE = PAGE_BYTES // 2 + 100
KINDS = ["fresh", "shared", "file", "swapped"]
SETTINGS = (
    Setting("park", "park", 0, KINDS, "all", 4, "kernel", MIDDLE, False),
    Setting("rnr", "rnr", 0, KINDS, "all", 6, "kernel", MIDDLE, False),
    Setting("park-then-rnr", "park-then-rnr", 0, KINDS, "all", 4, "kernel", MIDDLE, False),
    Setting("park, 20 ms late", "park", SHORT_DELAY_US, ["shared", "file"], "few", 4, "kernel", MIDDLE, False),
    Setting("rnr, 20 ms late", "rnr", SHORT_DELAY_US, ["shared", "file"], "few", 4, "kernel", MIDDLE, True),
    Setting("park-then-rnr, 20 ms late", "park-then-rnr", SHORT_DELAY_US, ["shared", "file"], "few", 6, "kernel", MIDDLE, True),
    Setting("rnr, 2.5 s late", "rnr", LONG_DELAY_US, ["shared"], "few", 4, "kernel", MIDDLE, False),
    Setting("park-then-rnr, 2.5 s late", "park-then-rnr", LONG_DELAY_US, ["shared"], "few", 4, "kernel", MIDDLE, False),
    Setting("the kernel's pages", None, 0, ["fresh", "shared"], "all", 4, "faultline", PAGE_BYTES, False),
    Setting("the kernel's pages", None, 0, ["fresh", "shared"], "few", 6, "faultline", PAGE_BYTES, True),
    Setting("the middle of the kernel's pages", None, 0, ["fresh", "shared"], "data", 4, "faultline", MIDDLE, False),
)


class Swap:
    """Compressed swap in memory, the preferred swap of this machine while it exists; `ready`: whether it could be created."""

    def __enter__(self):
        self.process = subprocess.Popen(["bash", f"{HERE}/../e2e/with_zram.sh", str(SWAP_MIB), "sh", "-c", "echo ready; exec sleep 3600"],
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.output = self.process.stdout.readline().strip()
        self.ready = self.output == "ready"
        return self

    def __exit__(self, *_):
        # The shell of with_zram.sh removes the device after its command has ended.
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(60)
        self.process.stdout.close()


def went_back_unbidden(packets, peer_mac):
    """Returns the kernel's requests that return to an earlier PSN, without a NAK of Faultline since the last transmission of that PSN."""
    last_sent, newest, naks, found = {}, {}, [], []
    for number, packet in enumerate(packets):
        if packet.mac == peer_mac and packet.is_request:
            key = packet.qpn, packet.psn
            goes_on = not_before(packet.psn, newest.get(packet.qpn, packet.psn))
            if key in last_sent and (not goes_on or newest[packet.qpn] == packet.psn) and not any(
                    at > last_sent[key] and not_before(packet.psn, psn) for at, psn in naks):
                found.append(packet)
            last_sent[key] = number
            newest[packet.qpn] = packet.psn
        elif packet.mac != peer_mac and (packet.is_rnr_nak or packet.nak is not None):
            naks.append((number, packet.psn))
    return found


def not_before(psn, other):
    return (psn - other) % (1 << 24) < 1 << 23


def forgets_addresses(packets, peer_mac):
    """Whether the kernel has sent an ATOMIC WRITE to address 0: the RETH follows the BTH."""
    return any(packet.mac == peer_mac and packet.name == "atomic_write" and not any(packet.roce.payload[:8]) for packet in packets)


class Lane:
    def __init__(self, testbed, tally, reduced, wanted):
        self.testbed, self.tally, self.reduced, self.wanted = testbed, tally, reduced, wanted

    def run(self, setting, swap):
        kinds = [kind for kind in setting.kinds if kind != "swapped" or swap is not None]
        config = None
        if setting.stall:
            device = f"[device.chaos]\nfault_delay_us = {setting.delay_us}" if setting.delay_us else ""
            config = self.testbed.config("faults", device, f'[odp]\nstall = "{setting.stall}"')
        settings = dict(requester="connect" if setting.requester == "kernel" else "listen", kinds=kinds, operations=setting.operations,
                        offset=setting.offset, timeout=TIMEOUT)
        before = self.testbed.peer.counters()
        with Capture(self.testbed) as capture:
            ours = self.testbed.popen(["/usr/bin/python3", "-B", f"{HERE}/fault_side.py", "listen", str(PORT),
                                       json.dumps(dict(settings, gid=OUR_GIDS[setting.family]))], config=config)
            theirs = None
            try:
                if self.testbed.await_listener(PORT, ours):
                    theirs = self.testbed.peer.popen(["/usr/bin/python3", "-B", "/mnt/share/fault_side.py", BRIDGE[4],
                                                      str(PORT), json.dumps(dict(settings, gid=PEER_GIDS[setting.family]))])
                    statuses = end(theirs, PATIENCE_S), end(ours, PATIENCE_S)
            finally:
                for process in (ours, theirs):
                    if process and process.poll() is None:
                        process.signal(signal.SIGKILL)
                        end(process, 10)
            packets = capture.read()
        self.judge_cases(setting, kinds, ours, theirs, forgets_addresses(packets, self.testbed.peer.mac))
        if setting.requester == "kernel":
            self.judge_wire(setting, packets, before, self.testbed.peer.counters())
        return statuses

    def judge_cases(self, setting, kinds, ours, theirs, forgets):
        results = [self.results(process) for process in (ours, theirs)]
        for kind, name, length, _ in cases(kinds, setting.operations):
            case = case_name(kind, name, length)
            title = f"{setting.name}: {case}, IPv{setting.family}"
            if not self.wanted.search(title):
                continue
            got = [each.get(case, "not reached") for each in results]
            if got == ["ok", "ok"]:
                self.tally.ok(title)
            elif setting.requester == "faultline" and MISPLACED in got:
                self.tally.refused(title, MISPLACED)
            elif name == "atomic_write" and forgets and "IBV_WC_REM_ACCESS_ERR" in got[1]:
                self.tally.refused(title, FORGOTTEN)
            else:
                output = " // ".join(tail(process) for process in (ours, theirs) if process) if "not reached" in got else ""
                self.tally.fail(title, f"Faultline: {got[0]}; the kernel: {got[1]} {output}")
                # Further results have no new information.
                if got == ["not reached", "not reached"]:
                    return

    @staticmethod
    def results(process):
        found = {}
        for line in process.output.splitlines() if process else ():
            try:
                words = json.loads(line)
                found[words["case"]] = words["result"]
            except (ValueError, KeyError, TypeError):
                pass
        return found

    def judge_wire(self, setting, packets, before, after):
        title = f"{setting.name}: the kernel asks again only when told, IPv{setting.family}"
        naks = [packet for packet in packets if packet.mac != self.testbed.peer.mac and packet.is_rnr_nak]
        requests = sum(packet.mac == self.testbed.peer.mac and packet.is_request for packet in packets)
        unbidden = went_back_unbidden(packets, self.testbed.peer.mac)
        counted = {name: after.get(name, 0) - before.get(name, 0) for name in COUNTERS}
        if requests == 0:
            self.tally.fail(title, "no request was captured")
        elif unbidden:
            self.tally.fail(title, f"{len(unbidden)} requests: {'; '.join(map(str, unbidden[:5]))}")
        elif any(counted.values()):
            self.tally.fail(title, f"{counted}")
        elif setting.delay_us and (not naks) != (setting.stall == "park"):
            self.tally.fail(title, f"{len(naks)} RNR NAKs")
        else:
            self.tally.ok(title, f"{requests} requests, {len(naks)} RNR NAKs")


def main():
    asked = lane_parser(__doc__).parse_intermixed_args()
    reduced, wanted = asked.reduced, asked.wanted
    tally = Tally("faults")
    with Testbed(asked.faultline_run, "faults") as testbed:
        lane = Lane(testbed, tally, reduced, wanted)
        for setting in SETTINGS:
            if reduced and not setting.reduced:
                continue
            if not any(wanted.search(f"{setting.name}: {case_name(*case[:3])}, IPv{setting.family}")
                       for case in cases(setting.kinds, setting.operations)):
                continue
            if "swapped" in setting.kinds:
                with Swap() as swap:
                    if not swap.ready:
                        print(f"SKIPPED: swapped pages: {swap.output}")
                    lane.run(setting, swap if swap.ready else None)
            else:
                lane.run(setting, None)
    tally.finish()


run_lane(main)
