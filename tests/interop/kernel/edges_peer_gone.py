# SPDX-License-Identifier: BSD-3-Clause
"""Edges whose peer is absent: for a while, or permanently."""
import time

from guest.guest import HANG_S
from edge_cases import RETRIES_EXCEEDED, SUCCESS, completes, edge, equal, holds

MTU = 1024


def local_ack_timeout_s(code, q):
    """The lower bound of the time-out (IBA 9.7.6.1.3). Timers of the emulated kernel tick irregularly, so the kernel must meet a part of
    it only."""
    return 4.096e-6 * (1 << code) * (1 if q.where == "ours" else 0.25)


def works(c, **ends):
    """Checks that a new pair of QPs works."""
    q, r = c.pair(mtu=MTU, **ends)
    data = c.filled(q, 3000)
    q.post("rdma_write", len(data), *r.remote())
    completes(q, SUCCESS)
    equal("the data of a new QP", r.read(len(data)), data)


@edge(reduced=True)
def frozen(c):
    """The peer stops permanently: as many time-outs as the retry count allows, none too early, and an error. The kernel retransmits once
    a
    time-out; Faultline also sends probes in between, which use no retry."""
    retries, timeout = 3, 14
    q, r = c.pair(mtu=MTU, timeout=timeout, retry_cnt=retries)
    c.answers.freeze()
    try:
        posted_s = time.monotonic()
        q.post("rdma_write", 16, *r.remote())
        completes(q, RETRIES_EXCEEDED)
        took_s = time.monotonic() - posted_s
    finally:
        c.answers.thaw()
    allowed_s = local_ack_timeout_s(timeout, q)
    holds(took_s >= allowed_s * (retries + 1), f"given up after {took_s:.6f} s")
    equal("the requester's QP", q.state(), "err")
    equal("the responder's QP", r.state(), "rts")
    works(c)
    wire = yield q, r
    equal("PSNs of the requests", {p.psn for p in wire.requests}, {q.psn})
    times_s = [p.time_s for p in wire.requests]
    if q.where == "kernel":
        equal("requests", len(times_s), retries + 1)
    holds(len(times_s) > retries, f"sent {len(times_s)} times")


@edge(reduced={"atomic_fetch_add"}, op=["atomic_fetch_add", "send", "rdma_read"])
def frozen_for_a_while(c, op):
    """The peer resumes while retries are left: every request completes, and executes once."""
    q, r = c.pair(mtu=MTU, timeout=19, retry_cnt=7)
    data = c.filled(q, 3000)
    r.write((100).to_bytes(8, "little") + data[8:], "target")
    r.recv()
    r.recv()
    sent = c.frame_filter.watch(r.where, r.qpn, psn=q.psn, count=2)
    length = 8 if op.startswith("atomic") else len(data)
    c.answers.freeze()
    try:
        q.post(op, length, *([] if op == "send" else r.remote()), *([5] if op.startswith("atomic") else []))
        sent.wait(2, HANG_S)
    finally:
        c.answers.thaw()
    completes(q, SUCCESS)
    if op == "atomic_fetch_add":
        equal("the original value", int.from_bytes(q.read(8, "source"), "little"), 100)
        equal("the memory", int.from_bytes(r.read(8), "little"), 105)
    elif op == "send":
        completes(r, SUCCESS)
        equal("the data", r.read(len(data)), data)
        equal("completions of the second receive", r.wait(limit_s=0.3), [])
    else:
        equal("the data", q.read(len(data), "source"), (100).to_bytes(8, "little") + data[8:])
    works(c)
    wire = yield q, r
    holds([p.psn for p in wire.requests].count(q.psn) >= 2, "the request was sent once")
    equal("NAKs", wire.naks(), [])


@edge(reduced=False)
def program_started_again(c):
    """The responder's program is killed and another one starts. The old QP's requests get no response, and do not affect the new QP."""
    where = c.answers.where
    q, r = c.pair(mtu=MTU, timeout=14, retry_cnt=3)
    old = r.remote()
    c.lane.restart(where)
    fresh = c.lane.ends[where]
    new_q, new_r = c.pair(answerer=fresh, mtu=MTU)
    before = bytes(c.lane.random.randbytes(4096))
    new_r.write(before, "target")
    q.post("rdma_write", 16, *old)
    completes(q, RETRIES_EXCEEDED)
    equal("the requester's QP", q.state(), "err")
    equal("the new program's memory", new_r.read(4096) == before, True)
    equal("the new program's events", fresh.events(), [])
    data = c.filled(new_q, 3000)
    new_q.post("rdma_write", len(data), *new_r.remote())
    completes(new_q, SUCCESS)
    equal("the data of the new QP", new_r.read(len(data)), data)
    wire = yield q, r
    equal("PSNs of the old QP's requests", {p.psn for p in wire.requests}, {q.psn})
    equal("answers to it", wire.answers, [])


@edge(reduced=False, asks=("ours",))
def rebooted_with_the_same_number(c):
    """The kernel reboots and gives its first QP the same number. Faultline's old QP still sends to that number, and so to the new QP.
    Neither of
    Faultline's QPs may be affected."""
    c.lane.restart("kernel", reboot=True)
    q, r = c.pair(mtu=MTU, answerer=c.lane.ends["kernel"], timeout=14, retry_cnt=3, asks=dict(psn=0x100000), answers=dict(psn=0x200000))
    old = r.remote()
    c.lane.restart("kernel", reboot=True)
    new_q, new_r = c.pair(mtu=MTU, answerer=c.lane.ends["kernel"], asks=dict(psn=0x700000), answers=dict(psn=0x600000))
    equal("the number of the kernel's first QP", new_r.qpn, r.qpn)
    before = bytes(c.lane.random.randbytes(4096))
    new_r.write(before, "target")
    q.post("rdma_write", 3000, *old)
    completes(q, RETRIES_EXCEEDED)
    equal("the old QP", q.state(), "err")
    equal("the new QP", new_q.state(), "rts")
    equal("the peer's memory", new_r.read(4096) == before, True)
    data = c.filled(new_q, 3000)
    new_q.post("rdma_write", len(data), *new_r.remote())
    completes(new_q, SUCCESS)
    equal("the data of the new QP", new_r.read(len(data)), data)
    equal("our events", c.asks.events(), [])
    wire = yield q, r
    holds(0x100000 in {p.psn for p in wire.requests}, "the old QP's request is not on the wire")
