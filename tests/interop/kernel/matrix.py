#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The matrix: every operation of every transport between Faultline and the kernel, in both directions, by matrix_cells.py at both
ends; and the rows of matrix_rows.py, of programs that others wrote.

    matrix.py FAULTLINE_RUN [--reduced] [REGULAR EXPRESSION]
"""
import itertools
import json
import re
import sys

sys.dont_write_bytecode = True
from meeting import BRIDGE, HERE, OURS, PEERS, Meeting  # noqa: E402
from tally import Tally  # noqa: E402

PORT = 18600
LOSS = 0.05
# Of the guest's own packets, RoCEv2's alone: what the ends tell each other by TCP is none of the matrix.
NETEM = f"""
tc qdisc add dev eth0 root handle 1: prio bands 4 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
tc qdisc add dev eth0 parent 1:4 handle 40: netem loss {LOSS * 100:.0f}% delay 1ms reorder 10%
tc filter add dev eth0 parent 1: protocol ip u32 match ip protocol 17 0xff match ip dport 4791 0xffff flowid 1:4
tc filter add dev eth0 parent 1: protocol ipv6 u32 match ip6 protocol 17 0xff match ip6 dport 4791 0xffff flowid 1:4
"""
# Ours are lost and overtaken at the device.
CHAOS = f'[device.chaos]\ndirection = "tx"\nloss = {LOSS}\nreorder = 0.05\nseed = 6\n'


def rooms(lossy, reduced):
    choices = itertools.product(("RC", "UC", "UD"), (4, 6), (1024, 4096), (False, True), (False, True))
    all_of_them = [dict(transport=transport, family=family, mtu=mtu, our_odp=our_odp, peer_odp=peer_odp, lossy=lossy)
                   for transport, family, mtu, our_odp, peer_odp in choices]
    if not reduced:
        return all_of_them
    return [room for room in all_of_them if (room["family"] == 4) == (room["mtu"] == 1024) and room["our_odp"] == room["peer_odp"] and
            room["our_odp"] == (room["family"] == 6)]


class Lane:
    def __init__(self, tally, faultline_run, reduced, wanted):
        self.tally, self.faultline_run, self.reduced, self.wanted = tally, faultline_run, reduced, wanted

    def take(self, words):
        name, problem = words["cell"], words["problem"]
        cannot = re.search("CANNOT (.*)", problem)
        if not problem:
            self.tally.ok(name)
        elif cannot:
            self.tally.refused(name, cannot.group(1))
        else:
            self.tally.fail(name, problem)

    def cells(self, meeting, rooms, config):
        settings = json.dumps(dict(addresses=dict(ours=OURS, peer=PEERS), wanted=self.wanted, rooms=rooms))
        ours = meeting.popen(["/usr/bin/python3", "-B", f"{HERE}/matrix_cells.py", "listen", str(PORT), settings], config=config)
        if not meeting.await_listener(PORT, ours):
            self.tally.fail("our end of the cells", ours.output[-2000:])
            return
        peer = meeting.peer.popen(["python3", "-B", "/mnt/share/matrix_cells.py", BRIDGE[4], str(PORT), settings])
        taken = 0
        ended = False
        while not ended:
            with ours.news:
                ours.news.wait_for(lambda: ours.said.count("\n", taken) or not ours.reader.is_alive(), 200)
                whole = ours.said.rfind("\n") + 1
                said, taken, silent = ours.said[taken:whole], whole, whole <= taken
            for line in said.splitlines():
                if not line.startswith("{"):
                    print(line, flush=True)
                    continue
                words = json.loads(line)
                ended = ended or "end" in words
                if "cell" in words:
                    self.take(words)
            if silent and not ended:
                self.tally.fail("the ends of the cells", f"ours: {ours.output[-2000:]}\npeer: {peer.output[-3000:]}\n"
                                                         f"{meeting.peer.console()[-2000:]}")
                break
        ours.signal(9)
        peer.signal(9)


def main():
    words = sys.argv[1:]
    reduced = "--reduced" in words
    words = [word for word in words if word != "--reduced"]
    tally = Tally("matrix")
    lane = Lane(tally, words[0], reduced, words[1] if len(words) > 1 else "")
    with Meeting(words[0], "matrix") as meeting:
        lane.cells(meeting, rooms(False, reduced), meeting.config())
        meeting.peer.check("sh", "-ec", NETEM)
        lane.cells(meeting, rooms(True, reduced), meeting.config("lossy", CHAOS))
    tally.finish()


main()
