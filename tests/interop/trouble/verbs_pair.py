# SPDX-License-Identifier: BSD-3-Clause
"""A small verbs program of one thread: each round a WRITE, a SEND and a receive on one QP, with a completion channel.
  verbs_pair.py PORT server | verbs_pair.py PORT client EVENTS

The server listens at the TCP port. The client prints each failed completion, and so many asynchronous events. Its status is 3 if a completion failed."""
import json
import socket
import sys
import time
from pathlib import Path

from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests
import verbs_enums as e  # noqa: E402

SERVER = ("198.18.0.1", int(sys.argv[1]))
ROUNDS, BYTES, PSN = 100, 64, 77
RECEIVE_ID = 1000
IS_SERVER = sys.argv[2] == "server"


def meet():
    """Returns a connection to the other side."""
    if IS_SERVER:
        with socket.create_server(SERVER) as listener:
            return listener.accept()[0]
    return socket.create_connection(SERVER)


peer = meet()
context = Context(name="faultline0")
context.query_device()
state = context.query_port(1).state
if state != e.IBV_PORT_ACTIVE:
    event = context.get_async_event()
    print("port", state, "event", event.event_type, "port", context.query_port(1).state)
    event.ack()
pd = PD(context)
channel = CompChannel(context)
cq = CQ(context, 64, None, channel, 0)
mr = MR(pd, 3 * BYTES, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_ON_DEMAND)
WRITTEN, SENT, RECEIVED = 0, BYTES, 2 * BYTES
qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=8, max_recv_wr=8)))


def sge(offset):
    return SGE(mr.buf + offset, BYTES, mr.lkey)


def post_receive(number):
    qp.post_recv(RecvWR(wr_id=RECEIVE_ID + number, num_sge=1, sg=[sge(RECEIVED)]))


def post(number, opcode, offset):
    wr = SendWR(wr_id=number, opcode=opcode, num_sge=1, sg=[sge(offset)], send_flags=e.IBV_SEND_SIGNALED)
    if opcode == e.IBV_WR_RDMA_WRITE:
        wr.set_wr_rdma(remote["rkey"], remote["address"])
    qp.post_send(wr)


def finish(status):
    """Prints the asynchronous events that the test waits for."""
    for _ in range(int(sys.argv[3])):
        event = context.get_async_event()
        while event.event_type == e.IBV_EVENT_COMM_EST:
            event.ack()
            event = context.get_async_event()
        print("event", event.event_type, flush=True)
        event.ack()
    sys.exit(status)


done = set()


def complete(*wanted):
    """Waits until the requests are complete, each of them once."""
    while not done.issuperset(wanted):
        cq.req_notify()
        found = cq.poll(16)[1]
        if not found:
            channel.get_cq_event(cq)
            cq.ack_events(1)
        for one in found:
            if one.status != e.IBV_WC_SUCCESS:
                print("receive" if one.wr_id >= RECEIVE_ID else "send", one.wr_id % RECEIVE_ID, "status", one.status, "vendor", one.vendor_err, flush=True)
                finish(3)
            assert one.wr_id not in done, one.wr_id
            done.add(one.wr_id)
    done.difference_update(wanted)


def pattern(number):
    return "".join(chr(ord(" ") + (number + at) % 90) for at in range(BYTES))


def await_answer(number):
    """Waits until the answer is in memory, so that the completions of what came before gather; or until the QP is in error."""
    while mr.read(BYTES, RECEIVED) != pattern(number).encode() and qp.query(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_RTS:
        time.sleep(0.0002)


own = {"qpn": qp.qp_num, "gid": context.query_gid(1, 0).gid, "rkey": mr.rkey, "address": mr.buf}
peer.sendall(json.dumps(own).encode() + b"\n")
lines = peer.makefile()
remote = json.loads(lines.readline())
attr = QPAttr(port_num=1)
attr.dest_qp_num, attr.path_mtu, attr.timeout, attr.retry_cnt, attr.rnr_retry = remote["qpn"], e.IBV_MTU_1024, 16, 7, 7
attr.rq_psn = attr.sq_psn = PSN
attr.max_rd_atomic = attr.max_dest_rd_atomic = attr.min_rnr_timer = 1
attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=GID(remote["gid"]), sgid_index=0, hop_limit=1), is_global=1, port_num=1)
qp.to_rts(attr)
post_receive(0)
peer.sendall(b"ready\n")
assert lines.readline() == "ready\n"
for number in range(ROUNDS):
    if IS_SERVER:
        complete(RECEIVE_ID + number)
        # A WRITE is in memory before the SEND behind it completes here.
        assert mr.read(BYTES, WRITTEN) == mr.read(BYTES, RECEIVED) == pattern(number).encode(), number
        post_receive(number + 1)
        mr.write(pattern(number), BYTES, SENT)
        post(number, e.IBV_WR_SEND, SENT)
        complete(number)
    else:
        mr.write(pattern(number), BYTES, SENT)
        post(2 * number, e.IBV_WR_RDMA_WRITE, SENT)
        post(2 * number + 1, e.IBV_WR_SEND, SENT)
        await_answer(number)
        complete(2 * number, 2 * number + 1, RECEIVE_ID + number)
        assert mr.read(BYTES, RECEIVED) == pattern(number).encode(), number
        post_receive(number + 1)
if not IS_SERVER:
    print("all rounds", flush=True)
    finish(0)
