#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""One program writes into the memory of another one by RDMA WRITE (Python, pyverbs).
  write.py [--port PORT] [--gid-index N]            the server: offers memory, waits, and checks every byte
  write.py [--port PORT] [--gid-index N] ADDRESS    the client: writes to the server at this address
The two exchange the parameters of their QPs over TCP, one line of text each, as write.c does: one may be in C, the other in Python."""
import argparse
import ipaddress
import random
import socket
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

BYTES = 1 << 20
PATTERN = bytes((i * 7 + i // 256) % 256 for i in range(BYTES))


def meet(address, port):
    """A TCP connection: to `address`, or from the first caller."""
    if address is None:
        with socket.create_server(("", port)) as listener:
            return listener.accept()[0]
    for _ in range(100):
        try:
            return socket.create_connection((address, port))
        except ConnectionRefusedError:  # the server may still start
            time.sleep(0.1)
    sys.exit(f"write.py: nobody listens at {address} port {port}")


def connect(qp, psn, peer, context, gid_index):
    """Takes the QP from RESET to RTS."""
    qpn, peer_psn, _, _, gid = peer
    # RoCE has no LIDs: the address is the GRH's. pyverbs takes all eight groups of a GID.
    route = GlobalRoute(dgid=GID(ipaddress.IPv6Address(gid).exploded), sgid_index=gid_index)
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.rq_psn, attr.sq_psn = int(qpn, 16), int(peer_psn, 16), psn
    attr.path_mtu = context.query_port(1).active_mtu
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 1
    attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
    attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
    attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
    qp.to_rts(attr)


def wait_for_completion(cq):
    count, completions = 0, []
    while count == 0:
        count, completions = cq.poll()
    if completions[0].status != e.IBV_WC_SUCCESS:
        sys.exit(f"write.py: completion with status {completions[0].status}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=18515)
    parser.add_argument("--gid-index", type=int, default=0)
    parser.add_argument("address", nargs="?")
    options = parser.parse_args()

    context = Context(name=get_device_list()[0].name.decode())
    pd = PD(context)
    cq = CQ(context, 1)
    mr = MR(pd, BYTES, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
    capacity = QPCap(max_send_wr=1, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=capacity))
    psn = random.getrandbits(24)
    gid = str(context.query_gid(1, options.gid_index))

    with meet(options.address, options.port) as connection, connection.makefile("r") as lines:
        # Not through `lines`: a text stream that is written to forgets what it has read ahead.
        def say(text):
            connection.sendall(f"{text}\n".encode())

        def hear():
            return lines.readline().split() or sys.exit("write.py: the peer ended")

        say(f"{qp.qp_num:x} {psn:x} {mr.rkey:x} {mr.buf:x} {gid}")
        peer = hear()
        connect(qp, psn, peer, context, options.gid_index)
        say("ready")  # neither end uses the connection before both are ready
        hear()
        if options.address is None:
            hear()
            wrong = sum(one != other for one, other in zip(mr.read(BYTES, 0), PATTERN))
            print(f"{BYTES} bytes arrived, {wrong} are wrong")
            return 1 if wrong else 0
        mr.write(PATTERN, BYTES)
        request = SendWR(num_sge=1, sg=[SGE(mr.buf, BYTES, mr.lkey)], opcode=e.IBV_WR_RDMA_WRITE)
        request.set_wr_rdma(int(peer[2], 16), int(peer[3], 16))
        qp.post_send(request)
        wait_for_completion(cq)
        print(f"wrote {BYTES} bytes")
        say("written")
    return 0


sys.exit(main())
