#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""qperf: its RC tests by rdma_cm (-cm 1), with its TCP tests as reference. The ver_ tests compare every value.
qperf takes one host name for TCP and rdma_cm: a wire's address.
  qperf.py FAULTLINE_RUN [--brief]
"""
import re

import harness
from harness import Failure

SECONDS = 2
RUN_SECONDS = 300  # ends a hang
# Test, message bytes, the figure's name, the TCP test of its reference.
TESTS = [("rc_lat", 8, "latency", "tcp_lat"), ("rc_bw", 65536, "bw", "tcp_bw"), ("rc_bi_bw", 65536, "bw", ""),
         ("rc_rdma_write_lat", 8, "latency", "tcp_lat"), ("rc_rdma_write_bw", 65536, "bw", "tcp_bw"),
         ("rc_rdma_write_poll_lat", 8, "latency", "tcp_lat"), ("rc_rdma_read_lat", 8, "latency", "tcp_lat"),
         ("rc_rdma_read_bw", 65536, "bw", "tcp_bw"), ("rc_compare_swap_mr", 8, "msg_rate", ""), ("rc_fetch_add_mr", 8, "msg_rate", ""),
         ("ver_rc_compare_swap", 8, "msg_rate", ""), ("ver_rc_fetch_add", 8, "msg_rate", "")]
BRIEF_TESTS = {"rc_lat", "rc_rdma_write_bw", "rc_rdma_read_bw", "ver_rc_fetch_add"}


def figure(text, name):
    found = re.search(rf"^\s*{name}\s*=\s*(.*\S)", text, re.MULTILINE)
    if not found:
        raise Failure(f"printed no {name}: {harness.last_line(text)}")
    return found.group(1).replace("--", "")


def client(session, test, size, seconds, *options):
    return session.finish(session.on_wire("b", "qperf", harness.SERVER_IP, *options, "-t", seconds, "-m", size, test), RUN_SECONDS)


def with_server(session, work):
    """Runs work with a server of its own, because qperf's server serves one client after the other. The server opens its device when the
    client requests the test. If that takes longer than the client's two seconds to resolve the address, the test is repeated."""
    server = session.launch(session.on_wire("a", "qperf"))
    session.await_listener(19765)
    for left in reversed(range(3)):
        try:
            output = work()
            break
        except Failure as failure:
            if not left or not any("Address error" in session.output_of(process) for process in session.running[-1:]):
                raise failure
    if server.poll() is not None:
        raise Failure(f"the server ended: {harness.last_line(session.output_of(server))}")
    return output


def work(session):
    seconds = 1 if session.brief else SECONDS
    beside = {"": ""}
    for test, size, name, tcp in TESTS:
        if session.brief and test not in BRIEF_TESTS:
            continue
        if tcp not in beside and not session.brief:
            try:
                beside[tcp] = f"{tcp} " + figure(with_server(session, lambda: client(session, tcp, size, seconds)), name)
            finally:
                session.end_all()

        def run():
            text = with_server(session, lambda: client(session, test, size, seconds, "-cm", 1))
            return figure(text, name), beside.get(tcp, "")
        session.attempt(f"qperf -cm 1 {test} {size} B", run, "trick")
    if session.brief:
        return
    # Without -cm, and for datagrams, it makes address vectors from LIDs, without a GRH. RoCE has no LIDs (IBA A17.4.2).
    for test, proof in (("rc_lat", "failed to modify QP to RTR"), ("uc_lat", "failed to modify QP to RTR"),
                        ("ud_lat", "failed to create address handle")):
        session.fails_by_itself(f"qperf {test}", proof, lambda: with_server(session, lambda: client(session, test, 8, seconds)))


if __name__ == "__main__":
    harness.main(work, needs=["qperf"])
