#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Behaviour at the edges, with the Linux kernel as the peer: each case in both directions, checked by the completions and events at
both ends and by a capture of the packets between them.
  edges.py FAULTLINE_RUN [--reduced] [REGEX]
"""
import contextlib
import os
import random
import sys
import time
import traceback

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, f"{HERE}/../../conformance")
import edges_peer_gone  # noqa: E402, F401  (they declare the cases)
import edges_lost  # noqa: E402, F401
import edges_refused  # noqa: E402, F401
from testbed import frames  # noqa: E402
from testbed.capture import Capture, require  # noqa: E402
from edge_cases import EDGES, Case, KernelCannot, Wire  # noqa: E402
from edge_control import End  # noqa: E402
from testbed.testbed import Testbed  # noqa: E402
from testbed.frame_filter import FrameFilter  # noqa: E402
from guest.lane import run_lane  # noqa: E402
from tally import Tally, lane_parser  # noqa: E402


class Lane:
    def __init__(self, testbed, frame_filter, tally):
        self.testbed, self.frame_filter, self.tally = testbed, frame_filter, tally
        self.random = random.Random(6)
        self.ends = {where: End(testbed, where) for where in ("kernel", "ours")}
        self.judged_later = []
        self.started_s = time.monotonic()

    def restart(self, where, reboot=False):
        if reboot:
            self.ends[where].close()
            self.testbed.peer.reboot()
        else:
            self.ends[where].kill()
        self.ends[where] = End(self.testbed, where)

    def revive(self):
        """A case that failed may have left any state behind."""
        for where in self.ends:
            self.ends[where].thaw()
            self.ends[where].kill()
            self.ends[where] = End(self.testbed, where)

    def run(self, name, function, variant, asks, family):
        for end in self.ends.values():
            end.events()
        # Their results are printed after the capture has been read.
        print(f"edges: {time.monotonic() - self.started_s:.1f} s: {name}", file=sys.stderr, flush=True)
        case = Case(self, name, asks, family)
        steps = function(case, **variant)
        try:
            queues = next(steps, None)
        except KernelCannot as error:
            self.tally.refused(name, str(error))
            case.close()
            return
        except AssertionError as error:
            self.tally.fail(name, str(error))
            self.judged_later.append((case, None, case.queues[:2]))
            case.close()
            return
        except Exception as error:
            self.tally.fail(name, f"{type(error).__name__}: {error}")
            traceback.print_exc()
            self.judged_later.append((case, None, case.queues[:2]))
            self.revive()
            case.close()
            return
        case.close()
        if queues is not None:
            self.judged_later.append((case, steps, queues))

    def judge(self, packets):
        kernels_mac = self.testbed.peer.mac
        for case, steps, queues in self.judged_later:
            if not queues:
                continue
            wire = Wire([p for p in packets if case.begun_s <= p.time_s <= case.ended_s], kernels_mac, *queues)
            why = None
            if steps is not None:
                try:
                    steps.send(wire)
                except StopIteration:
                    pass
                except AssertionError as error:
                    why = str(error)
                except Exception as error:
                    why = f"{type(error).__name__}: {error}"
                if why is None:
                    self.tally.ok(case.name, f"{len(wire.packets)} packets in {case.ended_s - case.begun_s:.1f} s")
                    continue
                self.tally.fail(case.name, why)
            print(f"what passed in {case.name}:\n{wire}", flush=True)

    def judge_all(self, packets):
        """Checks that apply to all of Faultline's packets on the wire."""
        own = [p for p in packets if p.mac != self.testbed.peer.mac]
        for name, bad in (("tshark finds none of our packets malformed", [p for p in own if p.malformed]),
                          ("the ICRC of each packet is right", [p for p in packets if not p.roce.icrc_is_right]),
                          ("a packet with one bit changed has a wrong ICRC", [p for p in own[:1] if changed(p.roce).icrc_is_right])):
            if bad or not own:
                self.tally.fail(name, "; ".join(map(str, bad[:5])) or "there are none")
            else:
                self.tally.ok(name, f"{len(packets)} packets, {len(own)} of them ours")


def changed(roce):
    frame = bytearray(roce.frame)
    frame[roce.end - 5] ^= 1
    return frames.parse(frame)


def main():
    parser = lane_parser(__doc__)
    parser.add_argument("--keep", help="where to keep the capture")
    asked = parser.parse_intermixed_args()
    require()
    tally = Tally("edges")
    wanted = []
    for family in (4,) if asked.reduced else (4, 6):
        for text, function, variant, reduced, directions in EDGES:
            for asks in directions:
                name = f"{text} IPv{family} {'Faultline' if asks == 'ours' else 'kernel'} asks"
                if (reduced or not asked.reduced) and asked.wanted.search(name):
                    wanted.append((name, function, variant, asks, family))
    with contextlib.ExitStack() as stack:
        testbed = stack.enter_context(Testbed(asked.faultline_run, "edges"))
        frame_filter = stack.enter_context(FrameFilter(testbed))
        capture = stack.enter_context(Capture(testbed))
        lane = Lane(testbed, frame_filter, tally)
        for case in wanted:
            lane.run(*case)
        packets = capture.read()
        if asked.keep:
            os.replace(capture.path, asked.keep)
        lane.judge(packets)
        lane.judge_all(packets)
    tally.finish()


if __name__ == "__main__":
    run_lane(main)
