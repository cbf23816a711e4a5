# SPDX-License-Identifier: BSD-3-Clause
"""Edges whose request is refused: each has its NAK, its completion at the requester, its event and error at the responder."""
from edge_cases import (ACCESS, BAD_RESPONSE, FLUSHED, INVALID, LOCAL_LENGTH, LOCAL_OPERATION, OPERATIONAL, REMOTE_ACCESS,
                        REMOTE_INVALID, REMOTE_OPERATION, STATUSES, SUCCESS, KernelCannot, completes, edge, equal, holds, plus)

MTU = 1024
GRH_BYTES = 40  # before each datagram's data
NO_TIMEOUT = 0
SIZE = 65536
# The kernel raises only these events; Faultline raises one for each error (IBA 11.6.3.2).
KERNEL_RAISES = {"QP_ACCESS_ERR"}
RIGHTS = {"rdma_write": "write", "rdma_read": "read", "atomic_fetch_add": "atomic"}


def post(q, op, length, rkey, address):
    q.post(op, length, rkey, address, *([1] if op.startswith("atomic") else []))


def refused(c, q, r, status, receive, event):
    """Checks that both QPs are in error, and that other posted requests are flushed. event: of the responder's device."""
    completes(q, status)
    q.post("rdma_write", 8, *r.remote())
    completes(q, FLUSHED)
    completes(r, *receive)
    equal("the requester's QP", q.state(), "err")
    equal("the responder's QP", r.state(), "err")
    equal("the requester's events", c.asks.events(), [])
    raised = r.where == "ours" or event in KERNEL_RAISES
    equal("the responder's events", c.answers.events(20 if raised else 0.3), [event] if raised else [])
    if not raised:
        c.cannot("the responder's event", "of errors at a responding QP it raises IBV_EVENT_QP_ACCESS_ERR alone")


@edge(reduced={"rdma_write key", "rdma_read range", "atomic_fetch_add permission"}, op=list(RIGHTS), why=["key", "range", "permission"])
def access_error(c, op, why):
    q, r = c.pair(answers=dict(lacks=[RIGHTS[op]] if why == "permission" else []), mtu=MTU, timeout=NO_TIMEOUT, size=SIZE)
    c.filled(q, 3000)
    before = bytes(c.lane.random.randbytes(SIZE))
    r.write(before, "target")
    r.recv(16)
    length = 8 if op.startswith("atomic") else 3000
    rkey, address = r.remote(offset=SIZE - length + 8 if why == "range" else 0)
    post(q, op, length, rkey ^ 0x55 if why == "key" else rkey, address)
    refused(c, q, r, REMOTE_ACCESS, [FLUSHED], "QP_ACCESS_ERR")
    equal("the responder's memory", r.read(SIZE) == before, True)
    wire = yield q, r
    wire.refused_once(ACCESS, q.psn)


@edge(reduced={"rdma_read"}, op=list(RIGHTS))
def not_enabled(c, op):
    """The region would allow it, the QP does not (IBA table 54: a function that this QP does not support)."""
    q, r = c.pair(mtu=MTU, timeout=NO_TIMEOUT, lacks=[RIGHTS[op]])
    r.recv(16)
    post(q, op, 8, *r.remote())
    refused(c, q, r, REMOTE_INVALID, [FLUSHED], "QP_REQ_ERR")
    wire = yield q, r
    wire.refused_once(INVALID, q.psn)


@edge()
def misaligned_atomic(c):
    q, r = c.pair(mtu=MTU, timeout=NO_TIMEOUT)
    r.write(bytes(range(16)), "target")
    r.recv(16)
    post(q, "atomic_fetch_add", 8, *r.remote(offset=4))
    refused(c, q, r, REMOTE_INVALID, [FLUSHED], "QP_REQ_ERR")
    equal("the responder's memory", r.read(16), bytes(range(16)))
    wire = yield q, r
    wire.refused_once(INVALID, q.psn)


@edge()
def receive_too_small(c):
    q, r = c.pair(mtu=MTU, timeout=NO_TIMEOUT)
    c.filled(q, 3000)
    r.recv(1500)
    r.recv(1500)
    q.post("send", 3000)
    # The kernel has another NAK and another status for it (docs/interop.md).
    ours = r.where == "ours"
    refused(c, q, r, REMOTE_INVALID if ours else REMOTE_OPERATION, [LOCAL_LENGTH if ours else LOCAL_OPERATION, FLUSHED], "QP_FATAL")
    equal("the bytes beyond the receive", r.read(1500, offset=1500), bytes(1500))
    wire = yield q, r
    wire.refused_once(INVALID if ours else OPERATIONAL, plus(q.psn, 1))


@edge()
def datagram_longer_than_the_receive(c):
    """It is dropped without a completion or an event, the receive stays posted, and both QPs go on."""
    q, r = c.pair(transport="UD", mtu=MTU)
    data = c.filled(q, 600)
    r.recv(GRH_BYTES + 100)
    for length in (101, 600, 100):
        q.post("send", length)
        completes(q, SUCCESS)
    done = r.wait()
    equal("the completion", [(one["status"], one["length"]) for one in done], [(SUCCESS, GRH_BYTES + 100)])
    equal("the data", r.read(600, offset=GRH_BYTES), data[:100] + bytes(500))
    equal("events", c.asks.events() + c.answers.events(), [])
    equal("states", (q.state(), r.state()), ("rts", "rts"))
    wire = yield q, r
    equal("packets", len(wire.packets), 3)


@edge(reduced={"rdma_write 4096"}, op=["rdma_write", "send"], mtu=[4096, 512])
def path_mtu_differs(c, op, mtu):
    """The responder's QP has 1024: a packet that is not the last of its message is full for one end and not for the other."""
    q, r = c.pair(asks=dict(mtu=mtu), answers=dict(mtu=MTU), timeout=NO_TIMEOUT)
    c.filled(q, 9000)
    before = bytes(c.lane.random.randbytes(9000))
    r.write(before, "target")
    r.recv(9000)
    q.post(op, 9000, *([] if op == "send" else r.remote()))
    # The kernel completes a receive that it had begun with the status of the request.
    refused(c, q, r, REMOTE_INVALID, [REMOTE_INVALID if op == "send" and r.where == "kernel" else FLUSHED], "QP_REQ_ERR")
    equal("the responder's memory", r.read(9000) == before, True)
    wire = yield q, r
    wire.refused_once(INVALID, q.psn)


@edge(reduced=False)
def path_mtu_differs_in_one_packet(c):
    """A packet that fits both path MTUs is valid; one packet that exceeds the responder's is not."""
    q, r = c.pair(asks=dict(mtu=4096), answers=dict(mtu=MTU), timeout=NO_TIMEOUT)
    data = c.filled(q, MTU)
    q.post("rdma_write", MTU, *r.remote())
    completes(q, SUCCESS)
    equal("the data", r.read(MTU), data)
    r.recv()
    q.post("rdma_write", MTU + 4, *r.remote(offset=8192))
    refused(c, q, r, REMOTE_INVALID, [FLUSHED], "QP_REQ_ERR")
    equal("the responder's memory", r.read(MTU + 4, offset=8192), bytes(MTU + 4))
    wire = yield q, r
    wire.refused_once(INVALID, plus(q.psn, 1))
    holds(len(wire.requests) >= 2, "the second request is not on the wire")


@edge(reduced=False, mtu=[4096, 512])
def path_mtu_differs_in_a_read(c, mtu):
    """The response has packets of the responder's path MTU, 1024. This differs from the
    request, so the READ must fail, whatever the packets contain."""
    q, r = c.pair(asks=dict(mtu=mtu), answers=dict(mtu=MTU), timeout=14, retry_cnt=1)
    q.post("rdma_read", 9000, *r.remote())
    status = q.status()
    if q.where == "kernel" and status != BAD_RESPONSE:
        raise KernelCannot(f"a READ's answer in packets of another size than its path MTU's completes with {STATUSES[status]}")
    equal("the status", status, BAD_RESPONSE)
    equal("the requester's QP", q.state(), "err")
    wire = yield q, r
    equal("NAKs", wire.naks(), [])
