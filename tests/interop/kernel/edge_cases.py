# SPDX-License-Identifier: BSD-3-Clause
"""Functions that the cases of the edges share: the declaration of a case, its QPs, and their packets on the wire.

A case is a generator: it does its part at both ends, and checks the completions and events there. Then it yields, and receives the
packets of the wire; all captures are read at once, at the end.
"""
import itertools
import time


# Numbers of ibv_wc_status.
STATUSES = {0: "success", 1: "local length error", 2: "local QP operation error", 4: "local protection error", 5: "flushed",
            7: "bad response", 9: "remote invalid request", 10: "remote access error", 11: "remote operation error",
            12: "retries exceeded", 13: "RNR retries exceeded", None: "no completion"}
SUCCESS, LOCAL_LENGTH, LOCAL_OPERATION, FLUSHED, BAD_RESPONSE = 0, 1, 2, 5, 7
REMOTE_INVALID, REMOTE_ACCESS, REMOTE_OPERATION, RETRIES_EXCEEDED, RNR_EXCEEDED = 9, 10, 11, 12, 13
# Codes of NAKs (IBA table 46).
SEQUENCE, INVALID, ACCESS, OPERATIONAL = 0, 1, 2, 3
# IBA table 45, in units of 10 us.
RNR_TIMERS_10US = (65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
                   8192, 12288, 16384, 24576, 32768, 49152)
EDGES = []


def edge(reduced=True, asks=("ours", "kernel"), **variants):
    """Declares a case, for each combination of the variants. reduced: the combinations of a reduced run: all, or a set of their texts.
    asks:
    the requesters that it runs with, each in turn."""
    def note(function):
        for values in itertools.product(*variants.values()):
            text = " ".join([function.__name__.replace("_", " "), *map(str, values)])
            wanted = reduced if isinstance(reduced, bool) else " ".join(map(str, values)) in reduced
            EDGES.append((text, function, dict(zip(variants, values)), wanted, asks))
        return function
    return note


def equal(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: {got}, not {wanted}")


def holds(condition, what):
    if not condition:
        raise AssertionError(what)


def completes(queue, *wanted):
    """Checks that the next completions of the queue have these statuses."""
    for status in wanted:
        got = queue.status()
        if got != status:
            raise AssertionError(f"completion at {queue.where}: {STATUSES.get(got, got)}, not {STATUSES[status]}")


class KernelCannot(Exception):
    """The kernel cannot do it: not a failure of Faultline; has the kernel's own message."""


class Case:
    """asks: the end of the requester, ours or kernel; the other end is the responder."""

    def __init__(self, lane, name, asks, family):
        self.lane, self.name, self.family = lane, name, family
        self.asks, self.answers = lane.ends[asks], lane.ends["kernel" if asks == "ours" else "ours"]
        self.frame_filter = lane.frame_filter
        self.queues = []
        self.begun_s = self.ended_s = time.time()

    def pair(self, asks=None, answers=None, asker=None, answerer=None, lacks=(), **both):
        """Two connected QPs; asks, answers: settings of that end alone. lacks: rights that the responder's QP does not have."""
        q = (asker or self.asks).open(self.family, **both, **(asks or {}))
        r = (answerer or self.answers).open(self.family, **both, **(answers or {}))
        self.queues += [q, r]
        r.connect(q, lacks)
        q.connect(r)
        return q, r

    def filled(self, q, length):
        data = bytes(self.lane.random.randbytes(length))
        q.write(data)
        return data

    def cannot(self, what, reason):
        """A part of the case that the kernel does not do."""
        self.lane.tally.refused(f"{self.name}: {what}", reason)

    def close(self):
        self.frame_filter.clear()
        for queue in self.queues:
            try:
                queue.close()
            except (ConnectionError, OSError, ValueError):
                pass  # An edge may end together with its program.
        self.ended_s = time.time()


class Wire:
    """The packets between two queues, in order."""

    def __init__(self, packets, kernels_mac, q, r):
        def of(packet, sender, receiver):
            return packet.qpn == receiver.qpn and (packet.mac == kernels_mac) == (sender.where == "kernel")

        self.packets = [p for p in packets if of(p, q, r) or of(p, r, q)]
        self.requests = [p for p in self.packets if of(p, q, r) and p.is_request]
        self.answers = [p for p in self.packets if of(p, r, q) and not p.is_request]
        self.rnr_naks = [p for p in self.answers if p.is_rnr_nak]

    def naks(self, code=None):
        return [p for p in self.answers if p.nak is not None and code in (None, p.nak)]

    def refused_once(self, code, psn):
        """Returns the NAK; there must be exactly one."""
        equal("NAKs", [(p.nak, p.psn) for p in self.naks()], [(code, psn)])

    def named(self, *names):
        return [p for p in self.packets if p.name in names]

    def after(self, packet, psn):
        """The requests for that PSN after that packet."""
        return [p for p in self.requests if p.number > packet.number and p.psn == psn]

    def __str__(self):
        return "\n".join(map(str, self.packets))


def plus(psn, count):
    return (psn + count) & 0xffffff


def is_rnr(syndrome):
    return syndrome >> 5 == 1
