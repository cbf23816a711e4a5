# SPDX-License-Identifier: BSD-3-Clause
"""One end of an edge's QPs, the same file in the kernel peer and here under faultline-run: executes the commands of the lane.

    edge_end.py ADDRESS PORT
It connects to the lane, sends a greeting, and answers each call, a JSON object a line {"do", "side", ...}, with {"value"} or {"error"}.
"""
import sys
import traceback

import pyverbs.enums as e
from pyverbs.qp import QPAttr

from verbs_side import Device, Link, REMOTE, Side

RIGHTS = {"write": e.IBV_ACCESS_REMOTE_WRITE, "read": e.IBV_ACCESS_REMOTE_READ, "atomic": e.IBV_ACCESS_REMOTE_ATOMIC}
STATES = {getattr(e, f"IBV_QPS_{name.upper()}"): name for name in ("reset", "init", "rtr", "rts", "sqd", "sqe", "err")}
EVENTS = {getattr(e, name): name.removeprefix("IBV_EVENT_") for name in dir(e) if name.startswith("IBV_EVENT_")}


def rights_without(names):
    rights = REMOTE
    for name in names:
        rights &= ~RIGHTS[name]
    return rights


class End:
    def __init__(self, link):
        self.link = link
        self.device = Device()
        self.sides = {}

    def do_open(self, side, gid, lacks=(), **setup):
        """A QP and its regions; lacks: remote rights that the regions do not have."""
        made = self.sides[side] = Side(None, self.device, gid=gid, access=rights_without(lacks) | e.IBV_ACCESS_LOCAL_WRITE, **setup)
        return made.about()

    def do_connect(self, side, peer, lacks=()):
        """lacks: remote rights that the QP does not have."""
        made = self.sides[side]
        made.connect(peer)
        if lacks:
            attr = QPAttr()
            attr.qp_access_flags = rights_without(lacks)
            made.qp.modify(attr, e.IBV_QP_ACCESS_FLAGS)

    def do_post(self, side, op, offset, length, args):
        self.sides[side].post(op, "source", offset, length, *args)

    def do_recv(self, side, offset, length):
        self.sides[side].recv("target", offset, length)

    def do_wait(self, side, count, limit_s):
        return [dict(status=done.status, opcode=done.opcode, length=done.byte_len) for done in self.sides[side].wait(count, limit_s)]

    def do_events(self, limit_s):
        return [EVENTS[number] for number in self.device.events(limit_s)]

    def do_state(self, side):
        return STATES[self.sides[side].qp.query(e.IBV_QP_STATE)[0].qp_state]

    def do_write(self, side, region, offset, data):
        self.sides[side].regions[region].write(offset, bytes.fromhex(data))

    def do_read(self, side, region, offset, length):
        return self.sides[side].regions[region].read(offset, length).hex()

    def do_close(self, side):
        self.sides.pop(side).close()

    def serve(self):
        while True:
            call = self.link.receive()
            try:
                self.link.send(dict(value=getattr(self, f"do_{call.pop('do')}")(**call)))
            except Exception as error:  # The lane receives every error.
                traceback.print_exc()
                self.link.send(dict(error=f"{type(error).__name__}: {error}"))


connection = Link.connect(sys.argv[1], int(sys.argv[2]))
connection.connection.settimeout(None)
connection.send(dict(value="hello"))
try:
    End(connection).serve()
except ConnectionError:
    pass
