#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""rsockets: unmodified TCP programs over RDMA by librspreload. iperf's streams, with iperf over TCP as reference, and rsockets' own
programs, which compare the transferred data.
  rsockets.py FAULTLINE_RUN [--brief]
"""
import filecmp
import glob
import os
import re
import shutil
import time

import harness
from harness import Failure

PRELOAD = next(iter(glob.glob("/usr/lib/*/rsocket/librspreload.so")), "librspreload.so")
RUN_SECONDS = 300  # ends a hang
PORT = 5001
FILE_BYTES = 16 << 20


def iperf(session, streams, amount, rdma):
    host = harness.SERVER_IP if rdma else "127.0.0.1"
    over = session.on_wire if rdma else lambda side, *words: words
    preload = {"LD_PRELOAD": PRELOAD} if rdma else {}
    server = session.launch(over("a", "stdbuf", "-oL", "iperf", "-s", "-B", host, "-p", PORT, "-P", streams), **preload)
    session.await_text(server, "listening")
    words = over("b", "iperf", "-c", host, "-p", PORT, "-n", amount, "-P", streams, "-f", "m", "-y", "C")
    for _ in range(20):
        process = session.launch(words, **preload)
        status, text = session.wait(process, RUN_SECONDS), session.output_of(process)
        if status == 0 and "failed" not in text:
            break
        if "onnection refused" not in text:
            raise Failure(f"iperf: status {status}: {harness.last_line(text)}")
    # The kernel has no such address in this namespace, so all received data used the wire. With several streams the last line is the sum:
    # its last fields are bytes and bits a second.
    fields = [line.split(",") for line in text.splitlines() if re.match(r"\d{14}", line)]
    if len(fields) < streams:
        raise Failure(f"iperf printed {len(fields)} of {streams} streams: {harness.last_line(text)}")
    moved = sum(int(line[7]) for line in fields[:streams])
    if moved < place_bytes(amount):
        raise Failure(f"iperf moved {moved} bytes of {amount}")
    return f"{int(fields[-1][8]) / 1e9:.2f} Gb/s"


def place_bytes(amount):
    return int(amount[:-1]) << 20


def copy(session):
    """rcopy sends a file to a server that does not end by itself."""
    folder = f"{session.folder}/home"
    with open(f"{folder}/sent", "wb") as file:
        file.write(os.urandom(FILE_BYTES))
    os.chmod(f"{folder}/sent", 0o644)
    session.launch(session.on_wire("a", "rcopy"))
    words = session.on_wire("b", "rcopy", f"{folder}/sent", f"{harness.SERVER_IP}:{folder}/copied")
    for _ in range(20):
        client = session.launch(words)
        status = session.wait(client, RUN_SECONDS)
        if status == 0:
            break
        time.sleep(0.3)
    if status != 0 or not filecmp.cmp(f"{folder}/sent", f"{folder}/copied", shallow=False):
        raise Failure(f"rcopy: status {status}: {harness.last_line(session.output_of(client))}")
    return f"{FILE_BYTES >> 20} MiB alike, {harness.last_line(session.output_of(client))}"


def verified(session):
    """rstream compares each byte that it receives."""
    server = session.launch(session.on_wire("a", "rstream", "-S", "65536", "-C", "500", "-T", "v"))
    words = session.on_wire("b", "rstream", "-s", harness.SERVER_IP, "-S", "65536", "-C", "500", "-T", "v")
    for _ in range(20):
        client = session.launch(words)
        status = session.wait(client, RUN_SECONDS)
        if status == 0 or server.poll() is not None:
            break
        time.sleep(0.3)
    if status != 0:
        raise Failure(f"rstream: status {status}: {harness.last_line(session.output_of(client))}")
    session.reap(server, RUN_SECONDS)
    return harness.last_line(session.output_of(client)).split()[-2] + " Gb/s"


def socat(session):
    """socat with librspreload crashes without Faultline and without a socket."""
    with open(f"{session.folder}/home/sent", "wb") as file:
        file.write(b"a line")
    os.chmod(f"{session.folder}/home/sent", 0o644)
    session.finish(["socat", "-u", f"OPEN:{session.folder}/home/sent", f"CREATE:{session.folder}/home/copied"], RUN_SECONDS, LD_PRELOAD=PRELOAD)


def work(session):
    for streams, amount in ((1, "64M"),) if session.brief else ((1, "256M"), (4, "64M")):
        def run():
            rdma = iperf(session, streams, amount, True)
            session.end_all()
            return rdma, f"TCP {iperf(session, streams, amount, False)}"
        session.attempt(f"iperf -P {streams} -n {amount} on rsockets", run)
    if session.brief:
        return
    session.attempt("rcopy of a file", lambda: copy(session))
    session.attempt("rstream -T v, 64 KiB", lambda: verified(session))
    if shutil.which("socat"):
        session.fails_by_itself("socat -u between files under librspreload, without Faultline", "status -11", lambda: socat(session))
    else:
        session.row("SKIPPED", "socat under librspreload", "socat is not installed")


if __name__ == "__main__":
    harness.main(work, needs=["iperf", "stdbuf", PRELOAD])
