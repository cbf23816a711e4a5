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

import place
from place import Failure

PRELOAD = next(iter(glob.glob("/usr/lib/*/rsocket/librspreload.so")), "librspreload.so")
RUN_SECONDS = 90
PORT = 5001
FILE_BYTES = 16 << 20


def iperf(here, streams, amount, rdma):
    host = place.SERVER_IP if rdma else "127.0.0.1"
    over = here.on_wire if rdma else lambda side, *words: words
    preload = {"LD_PRELOAD": PRELOAD} if rdma else {}
    server = here.launch(over("a", "stdbuf", "-oL", "iperf", "-s", "-B", host, "-p", PORT, "-P", streams), **preload)
    here.await_text(server, "listening")
    words = over("b", "iperf", "-c", host, "-p", PORT, "-n", amount, "-P", streams, "-f", "m", "-y", "C")
    for _ in range(20):
        process = here.launch(words, **preload)
        status, text = here.wait(process, RUN_SECONDS), here.said(process)
        if status == 0 and "failed" not in text:
            break
        if "onnection refused" not in text:
            raise Failure(f"iperf: status {status}: {place.last_line(text)}")
    # The kernel has no such address in this namespace, so all received data used the wire. With several streams the last line is the sum:
    # its last fields are bytes and bits a second.
    fields = [line.split(",") for line in text.splitlines() if re.match(r"\d{14}", line)]
    if len(fields) < streams:
        raise Failure(f"iperf printed {len(fields)} of {streams} streams: {place.last_line(text)}")
    moved = sum(int(line[7]) for line in fields[:streams])
    if moved < place_bytes(amount):
        raise Failure(f"iperf moved {moved} bytes of {amount}")
    return f"{int(fields[-1][8]) / 1e9:.2f} Gb/s"


def place_bytes(amount):
    return int(amount[:-1]) << 20


def copy(here):
    """rcopy sends a file to a server that does not end by itself."""
    folder = f"{here.folder}/home"
    with open(f"{folder}/sent", "wb") as file:
        file.write(os.urandom(FILE_BYTES))
    os.chmod(f"{folder}/sent", 0o644)
    here.launch(here.on_wire("a", "rcopy"))
    words = here.on_wire("b", "rcopy", f"{folder}/sent", f"{place.SERVER_IP}:{folder}/copied")
    for _ in range(20):
        client = here.launch(words)
        status = here.wait(client, RUN_SECONDS)
        if status == 0:
            break
        time.sleep(0.3)
    if status != 0 or not filecmp.cmp(f"{folder}/sent", f"{folder}/copied", shallow=False):
        raise Failure(f"rcopy: status {status}: {place.last_line(here.said(client))}")
    return f"{FILE_BYTES >> 20} MiB alike, {place.last_line(here.said(client))}"


def verified(here):
    """rstream compares each byte that it receives."""
    server = here.launch(here.on_wire("a", "rstream", "-S", "65536", "-C", "500", "-T", "v"))
    words = here.on_wire("b", "rstream", "-s", place.SERVER_IP, "-S", "65536", "-C", "500", "-T", "v")
    for _ in range(20):
        client = here.launch(words)
        status = here.wait(client, RUN_SECONDS)
        if status == 0 or server.poll() is not None:
            break
        time.sleep(0.3)
    if status != 0:
        raise Failure(f"rstream: status {status}: {place.last_line(here.said(client))}")
    here.reap(server, RUN_SECONDS)
    return place.last_line(here.said(client)).split()[-2] + " Gb/s"


def socat(here):
    """socat with librspreload crashes without Faultline and without a socket."""
    with open(f"{here.folder}/home/sent", "wb") as file:
        file.write(b"a line")
    os.chmod(f"{here.folder}/home/sent", 0o644)
    here.finish(["socat", "-u", f"OPEN:{here.folder}/home/sent", f"CREATE:{here.folder}/home/copied"], RUN_SECONDS, LD_PRELOAD=PRELOAD)


def work(here):
    for streams, amount in ((1, "64M"),) if here.brief else ((1, "256M"), (4, "64M")):
        def run():
            rdma = iperf(here, streams, amount, True)
            here.end_all()
            return rdma, f"TCP {iperf(here, streams, amount, False)}"
        here.attempt(f"iperf -P {streams} -n {amount} on rsockets", run)
    if here.brief:
        return
    here.attempt("rcopy of a file", lambda: copy(here))
    here.attempt("rstream -T v, 64 KiB", lambda: verified(here))
    if shutil.which("socat"):
        here.fails_by_itself("socat -u between files under librspreload, without Faultline", "status -11", lambda: socat(here))
    else:
        here.row("SKIPPED", "socat under librspreload", "socat is not installed")


if __name__ == "__main__":
    place.main(work, needs=["iperf", "stdbuf", PRELOAD])
