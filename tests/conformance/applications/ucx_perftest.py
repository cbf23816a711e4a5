#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""ucx_perftest: UCX's UCT and UCP tests on rc_verbs and ud_verbs, with tcp as reference.
  ucx_perftest.py FAULTLINE_RUN
"""
import re

import harness
from harness import Failure

RUN_SECONDS = 60
PORT = 13337
UCP = [("tag_lat", 8), ("tag_bw", 65536), ("am_lat", 8), ("am_bw", 65536), ("stream_lat", 8), ("stream_bw", 65536), ("ucp_put_lat", 8),
       ("ucp_put_bw", 65536), ("ucp_get", 4096), ("ucp_add", 8), ("ucp_fadd", 8), ("ucp_swap", 8), ("ucp_cswap", 8)]
UCT = [("am_lat", 8), ("am_bw", 2048), ("put_lat", 8), ("put_bw", 2048), ("get", 2048)]
LAYERS = {"rc_verbs,ud_verbs": "faultline0:1", "ud_verbs": "faultline0:1", "tcp": "lo"}


def pair(session, test, size, transports, uct, count):
    words = ["ucx_perftest", "-t", test, "-s", size, "-n", count, "-w", 10, "-p", PORT]
    if uct:
        # `short` has room for some 100 bytes, UCT has no GET with it, and UD no packet of 4 KiB.
        words += ["-x", transports, "-d", "faultline0:1", "-D", "short" if size <= 64 else "bcopy"]
        variables = {}
    else:
        variables = {"UCX_TLS": transports, "UCX_NET_DEVICES": LAYERS[transports]}
        words[2] = {"am_lat": "ucp_am_lat", "am_bw": "ucp_am_bw"}.get(test, test)
    over = session.on_wire if transports != "tcp" else lambda side, *words: words
    server = session.launch(over("a", *words), **variables)
    session.await_listener(PORT)
    client = session.finish(over("b", *words, "127.0.0.1"), RUN_SECONDS, **variables)
    session.reap(server, RUN_SECONDS)
    final = re.search(r"^Final:\s+(.*)", client, re.MULTILINE)
    if not final:
        raise Failure(f"printed no result: {harness.last_line(client)}")
    fields = final.group(1).split()
    # Messages, percentile or average latency in us, and at the end two rates and two bandwidths.
    return f"{float(fields[-4]):.0f} MB/s" if test.endswith("bw") else f"{float(fields[-6]):.1f} us"


def work(session):
    beside = {}
    for test, size in UCP:
        try:
            beside[test] = pair(session, test, size, "tcp", False, 1000)
        except Failure as failure:
            beside[test] = str(failure)[:60]
        finally:
            session.end_all()
        for transports in ("rc_verbs,ud_verbs", "ud_verbs"):
            session.attempt(f"ucx_perftest UCP {test} {size} B, {transports}",
                         lambda: (pair(session, test, size, transports, False, 1000), beside[test]))
    for transport, tests in (("rc_verbs", UCT), ("ud_verbs", UCT[:2])):
        for test, size in tests:
            session.attempt(f"ucx_perftest UCT {test} {size} B, {transport}", lambda: pair(session, test, size, transport, True, 1000))
    # UCX 1.13 offers UCT's atomics on mlx5 only, and ud has no put.
    session.fails_by_itself("ucx_perftest UCT fadd, rc_verbs", "does not support|not supported|Unsupported",
                         lambda: pair(session, "fadd", 8, "rc_verbs", True, 100))


if __name__ == "__main__":
    harness.main(work, needs=["ucx_perftest"])
