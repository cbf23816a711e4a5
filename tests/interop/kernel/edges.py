#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Behaviour at the edges, with the Linux kernel as the peer: each cell in both directions, checked by the completions and events at
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
import edges_gone  # noqa: E402, F401  (they declare the cells)
import edges_lost  # noqa: E402, F401
import edges_refused  # noqa: E402, F401
from testbed import frames  # noqa: E402
from testbed.capture import Capture, require  # noqa: E402
from edge_cells import EDGES, Cell, KernelCannot, Wire  # noqa: E402
from ends import End  # noqa: E402
from testbed.testbed import Meeting  # noqa: E402
from testbed.frame_filter import Sieve  # noqa: E402
from tally import Tally, lane_parser  # noqa: E402


class Lane:
    def __init__(self, meeting, sieve, tally):
        self.meeting, self.sieve, self.tally = meeting, sieve, tally
        self.random = random.Random(6)
        self.ends = {where: End(meeting, where) for where in ("kernel", "ours")}
        self.judged_later = []
        self.started_s = time.monotonic()

    def restart(self, where, reboot=False):
        if reboot:
            self.ends[where].close()
            self.meeting.peer.reboot()
        else:
            self.ends[where].kill()
        self.ends[where] = End(self.meeting, where)

    def revive(self):
        """A cell that failed may have left any state behind."""
        for where in self.ends:
            self.ends[where].thaw()
            self.ends[where].kill()
            self.ends[where] = End(self.meeting, where)

    def run(self, name, function, variant, asks, family):
        for end in self.ends.values():
            end.events()
        # Their results are printed after the capture has been read.
        print(f"edges: {time.monotonic() - self.started_s:.1f} s: {name}", file=sys.stderr, flush=True)
        cell = Cell(self, name, asks, family)
        steps = function(cell, **variant)
        try:
            queues = next(steps, None)
        except KernelCannot as error:
            self.tally.refused(name, str(error))
            cell.close()
            return
        except AssertionError as error:
            self.tally.fail(name, str(error))
            self.judged_later.append((cell, None, cell.queues[:2]))
            cell.close()
            return
        except Exception as error:
            self.tally.fail(name, f"{type(error).__name__}: {error}")
            traceback.print_exc()
            self.judged_later.append((cell, None, cell.queues[:2]))
            self.revive()
            cell.close()
            return
        cell.close()
        if queues is not None:
            self.judged_later.append((cell, steps, queues))

    def judge(self, packets):
        kernels_mac = self.meeting.peer.mac
        for cell, steps, queues in self.judged_later:
            if not queues:
                continue
            wire = Wire([p for p in packets if cell.begun_s <= p.time_s <= cell.ended_s], kernels_mac, *queues)
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
                    self.tally.ok(cell.name, f"{len(wire.packets)} packets in {cell.ended_s - cell.begun_s:.1f} s")
                    continue
                self.tally.fail(cell.name, why)
            print(f"what passed in {cell.name}:\n{wire}", flush=True)

    def judge_all(self, packets):
        """Checks that apply to all of Faultline's packets on the wire."""
        own = [p for p in packets if p.mac != self.meeting.peer.mac]
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
    asked = parser.parse_args()
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
        meeting = stack.enter_context(Meeting(asked.faultline_run, "edges"))
        sieve = stack.enter_context(Sieve(meeting))
        capture = stack.enter_context(Capture(meeting))
        lane = Lane(meeting, sieve, tally)
        for cell in wanted:
            lane.run(*cell)
        packets = capture.read()
        if asked.keep:
            os.replace(capture.path, asked.keep)
        lane.judge(packets)
        lane.judge_all(packets)
    tally.finish()


if __name__ == "__main__":
    main()
