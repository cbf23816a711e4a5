# SPDX-License-Identifier: BSD-3-Clause
"""Edges whose packets are lost, duplicated or too early: RNR NAKs, gaps, duplicates."""
from testbed.capture import OPCODES, RESPONSES
from edge_cases import (RNR_EXCEEDED, RNR_TIMERS_10US, SEQUENCE, SUCCESS, completes, edge, equal, holds, is_rnr, plus)

MTU = 1024
# 0.5 s by 4.096 us << timeout, and seven retries of it: the emulated machine may be without a processor for seconds.
SHORT_TIMEOUT = 17
# No time-out that these cases would reach.
NO_TIMEOUT = 0


def waits_out(wire, naks, psn, code, exact):
    """After each RNR NAK the requester does not retransmit before the timer expires. Timers of the emulated kernel tick irregularly, so
    the
    kernel must wait an eighth only, which distinguishes the longer codes in use from the shortest."""
    allowed_s = RNR_TIMERS_10US[code] * 1e-5 * (1 if exact else 0.125)
    for nak in naks:
        equal("the timer's code", nak.syndrome & 31, code)
        equal("the PSN of an RNR NAK", nak.psn, psn)
        again = wire.after(nak, psn)
        if again:
            waited_s = again[0].time_s - nak.time_s
            holds(waited_s >= allowed_s, f"sent again {waited_s:.6f} s after an RNR NAK of code {code}")


@edge(reduced={"send 26"}, op=["send", "rdma_write_imm"], code=[1, 20, 26, 0])
def rnr_nak(c, op, code):
    """The receive is posted once the NAK is on the wire."""
    q, r = c.pair(mtu=MTU, min_rnr_timer=code, timeout=NO_TIMEOUT)
    data = c.filled(q, 2500)
    nak = c.frame_filter.watch(q.where, q.qpn, syndrome=is_rnr)
    q.post(op, len(data), *([] if op == "send" else [*r.remote(), 7]))
    nak.wait()
    r.recv()
    completes(q, SUCCESS)
    completes(r, SUCCESS)
    equal("the data", r.read(len(data)), data)
    wire = yield q, r
    first_psn = q.psn if op == "send" else plus(q.psn, 2)
    holds(wire.rnr_naks, "no RNR NAK on the wire")
    waits_out(wire, wire.rnr_naks, first_psn, code, q.where == "ours")
    equal("the last answer", (wire.answers[-1].name, wire.answers[-1].psn, wire.answers[-1].syndrome >> 5),
          ("acknowledge", plus(q.psn, 2), 0))


@edge(reduced={"3"}, retries=[0, 1, 3])
def rnr_exhausted(c, retries):
    """No receive is ever posted."""
    q, r = c.pair(mtu=MTU, min_rnr_timer=12, rnr_retry=retries, timeout=NO_TIMEOUT)
    q.post("send", 16)
    completes(q, RNR_EXCEEDED)
    equal("the requester's QP", q.state(), "err")
    equal("the responder's QP", r.state(), "rts")
    wire = yield q, r
    equal("requests", [p.psn for p in wire.requests], [q.psn] * (retries + 1))
    equal("RNR NAKs", len(wire.rnr_naks), retries + 1)
    waits_out(wire, wire.rnr_naks, q.psn, 12, q.where == "ours")


@edge(reduced={"rdma_write middle"}, op=["rdma_write", "send"], lost=["first", "middle"])
def sequence_nak(c, op, lost):
    """One packet of five is lost: one NAK names it, and the requester retransmits all from there on."""
    q, r = c.pair(mtu=MTU, timeout=NO_TIMEOUT)
    data = c.filled(q, 4 * MTU + 100)
    gone = plus(q.psn, 0 if lost == "first" else 2)
    c.frame_filter.drop(r.where, r.qpn, psn=gone)
    r.recv()
    q.post(op, len(data), *([] if op == "send" else r.remote()))
    completes(q, SUCCESS)
    if op == "send":
        completes(r, SUCCESS)
    equal("the data", r.read(len(data)), data)
    wire = yield q, r
    wire.refused_once(SEQUENCE, gone)
    again = wire.after(wire.naks()[0], gone)
    equal("sends of the lost packet after the NAK", len(again), 1)
    equal("what was sent from there on", [p.psn for p in wire.requests if p.number >= again[0].number],
          [plus(gone, n) for n in range((plus(q.psn, 5) - gone) & 0xffffff)])


@edge()
def sequence_nak_where_psns_wrap(c):
    """A gap whose packets have the PSNs 0xfffffe, 0xffffff, 0 ..., and the lost one has PSN 0."""
    q, r = c.pair(asks=dict(psn=0xfffffe), mtu=MTU, timeout=NO_TIMEOUT)
    data = c.filled(q, 4 * MTU + 100)
    c.frame_filter.drop(r.where, r.qpn, psn=0)
    q.post("rdma_write", len(data), *r.remote())
    completes(q, SUCCESS)
    equal("the data", r.read(len(data)), data)
    wire = yield q, r
    wire.refused_once(SEQUENCE, 0)
    equal("what was sent after the NAK", [p.psn for p in wire.requests if p.number >= wire.after(wire.naks()[0], 0)[0].number], [0, 1, 2])


@edge(reduced=False)
def last_packet_lost(c):
    """Only the requester's time-out detects the loss."""
    q, r = c.pair(mtu=MTU, timeout=SHORT_TIMEOUT)
    data = c.filled(q, 2 * MTU + 100)
    c.frame_filter.drop(r.where, r.qpn, psn=plus(q.psn, 2))
    q.post("rdma_write", len(data), *r.remote())
    completes(q, SUCCESS)
    equal("the data", r.read(len(data)), data)
    wire = yield q, r
    equal("NAKs", wire.naks(), [])
    holds([p.psn for p in wire.requests].count(plus(q.psn, 2)) >= (1 if r.where == "ours" else 2), "the lost packet was not sent again")


@edge(reduced={"send"}, op=["send", "rdma_write"])
def acknowledge_lost(c, op):
    """The request arrives twice and executes once: a SEND consumes one receive, a WRITE does not write again."""
    q, r = c.pair(mtu=MTU, timeout=SHORT_TIMEOUT)
    data = c.filled(q, 600)
    lost = c.frame_filter.drop(q.where, q.qpn, opcodes=OPCODES["acknowledge"])
    r.recv()
    r.recv()
    q.post(op, len(data), *([] if op == "send" else r.remote()))
    lost.wait()
    # The program's own write during this time must stay.
    own = bytes(600)
    if op == "rdma_write":
        equal("the data", r.read(len(data)), data)
        r.write(own, "target")
    completes(q, SUCCESS)
    if op == "send":
        completes(r, SUCCESS)
        equal("the data", r.read(len(data)), data)
    equal("completions of the second receive", r.wait(limit_s=0.5), [])
    if op == "rdma_write":
        equal("the program's own bytes", r.read(600), own)
    wire = yield q, r
    equal("NAKs", wire.naks(), [])
    equal("requests", {p.psn for p in wire.requests}, {q.psn})
    holds(len(wire.requests) >= 2, "the request came once")


@edge(reduced={"middle"}, lost=["first", "middle", "last", "all"])
def read_response_lost(c, lost):
    """The requester repeats the READ from the first missing packet on. Each READ request has the same memory for the same PSN."""
    q, r = c.pair(mtu=MTU, timeout=SHORT_TIMEOUT)
    length = 4 * MTU + 100
    data = bytes(c.lane.random.randbytes(length))
    r.write(data, "target")
    psns = {"first": 0, "middle": 2, "last": 4}
    gone = {plus(q.psn, psns[lost])} if lost in psns else {plus(q.psn, n) for n in range(5)}
    c.frame_filter.drop(q.where, q.qpn, opcodes=RESPONSES, psn=gone, count=len(gone))
    rkey, va = r.remote()
    q.post("rdma_read", length, rkey, va)
    completes(q, SUCCESS)
    equal("the data", q.read(length, "source"), data)
    wire = yield q, r
    equal("NAKs", wire.naks(), [])
    holds(len(wire.requests) >= 2, "there was one READ request")
    for p in wire.requests:
        equal("the opcode", p.name, "read")
        offset = (p.psn - q.psn & 0xffffff) * MTU
        equal(f"the range of the READ request for PSN {p.psn}", (p.va, p.length, p.rkey), (va + offset, length - offset, rkey))


@edge()
def read_repeated(c):
    """The responder answers a duplicate READ request again, with the memory's bytes; the requester has already received its response."""
    q, r = c.pair(mtu=MTU, timeout=NO_TIMEOUT)
    data = bytes(c.lane.random.randbytes(2500))
    r.write(data, "target")
    request = c.frame_filter.watch(r.where, r.qpn, opcodes=OPCODES["read"])
    q.post("rdma_read", len(data), *r.remote())
    completes(q, SUCCESS)
    last = c.frame_filter.watch(q.where, q.qpn, opcodes=OPCODES["response_last"])
    q.write(bytes(len(data)))
    c.frame_filter.send(r.where, request.matched[0].frame)
    last.wait()
    equal("completions of the second answer", q.wait(limit_s=0.3), [])
    equal("what the second answer wrote", q.read(len(data), "source"), bytes(len(data)))
    q.post("rdma_read", len(data), *r.remote())
    completes(q, SUCCESS)
    equal("the data of the next READ", q.read(len(data), "source"), data)
    wire = yield q, r
    answers = [(p.name, p.psn, p.roce.payload) for p in wire.answers]
    equal("responses", len(answers), 9)
    equal("the second answer", answers[3:6], answers[0:3])


ATOMICS = {"atomic_fetch_add": ([5], 105), "atomic_cmp_swp": ([100, 77], 77)}


@edge(reduced={"atomic_fetch_add"}, op=list(ATOMICS))
def atomic_response_lost(c, op):
    """The request arrives twice, executes once, and receives two equal responses."""
    q, r = c.pair(mtu=MTU, timeout=SHORT_TIMEOUT)
    words, after = ATOMICS[op]
    r.write((100).to_bytes(8, "little"), "target")
    lost = c.frame_filter.drop(q.where, q.qpn, opcodes=OPCODES["atomic_acknowledge"])
    q.post(op, 8, *r.remote(), *words)
    completes(q, SUCCESS)
    equal("answers lost", len(lost.matched), 1)
    equal("the original value", int.from_bytes(q.read(8, "source"), "little"), 100)
    equal("the memory", int.from_bytes(r.read(8), "little"), after)
    wire = yield q, r
    holds(len(wire.requests) >= 2, "the request came once")
    equal("PSNs of the requests", {p.psn for p in wire.requests}, {q.psn})
    equal("values in the answers", {p.original for p in wire.answers}, {100})


@edge()
def atomic_repeated(c):
    """A duplicate of an old request, after others: the responder repeats the original response, and the memory does not change."""
    q, r = c.pair(mtu=MTU, timeout=NO_TIMEOUT)
    r.write((100).to_bytes(8, "little"), "target")
    first = c.frame_filter.watch(r.where, r.qpn)
    for _ in range(3):
        q.post("atomic_fetch_add", 8, *r.remote(), 5)
        completes(q, SUCCESS)
    answer = c.frame_filter.watch(q.where, q.qpn)
    c.frame_filter.send(r.where, first.matched[0].frame)
    answer.wait()
    equal("the memory", int.from_bytes(r.read(8), "little"), 115)
    equal("completions of the fourth answer", q.wait(limit_s=0.3), [])
    q.post("atomic_fetch_add", 8, *r.remote(), 5)
    completes(q, SUCCESS)
    equal("the next original value", int.from_bytes(q.read(8, "source"), "little"), 115)
    wire = yield q, r
    equal("answers", [(p.psn, p.original) for p in wire.answers],
          [(q.psn, 100), (plus(q.psn, 1), 105), (plus(q.psn, 2), 110), (q.psn, 100), (plus(q.psn, 3), 115)])
