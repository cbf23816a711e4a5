#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Stands for a program on Faultline in tests of `faultline explore`: draws decisions from the seed, or reads those of a replay, writes a
journal, and fails in the way MODE if decisions 3 and 11 are both made.
  pretender.py MODE [DECISION...]    the decisions that make it fail; default: 3 11"""
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time

MODE = sys.argv[1]
CAUSE = {int(word) for word in sys.argv[2:]} or {3, 11}
HANG_SECONDS = 600  # far above the timeout of any test
seed = os.environ.get("FAULTLINE_TROUBLE_SEED")
replayed = os.environ.get("FAULTLINE_TROUBLE_REPLAY")
journal = os.environ.get("FAULTLINE_TROUBLE_JOURNAL")


def decisions():
    if replayed:
        assert "FAULTLINE_TROUBLE" not in os.environ and seed is None
        with open(replayed, encoding="utf-8") as file:
            return [json.loads(line) for line in file.read().splitlines()[1:]]
    if seed is None:
        assert "FAULTLINE_TROUBLE" not in os.environ
        return []
    assert os.path.isabs(os.environ["FAULTLINE_TROUBLE"])
    draw = random.Random(int(seed))
    return [{"rule": "post", "event": "call ibv_post_send", "object": "faultline0 qp 0", "n": n, "do": {"errno": "ENOMEM"}}
            for n in range(20) if draw.random() < 0.6]


def write_journal(made):
    header = {"faultline_journal": 1, "scenario": "pretended", "seed": int(seed or 0), "program": "pretender"}
    with open(journal, "w", encoding="utf-8") as file:
        file.write("".join(json.dumps(line) + "\n" for line in [header, *made]))


def fail():
    if MODE in ("exit", "luck"):
        sys.exit(3)
    if MODE == "crash":
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        os.abort()
    if MODE == "hang":
        # A child that only the end of the whole group ends.
        subprocess.Popen(["sleep", str(HANG_SECONDS)])
        time.sleep(HANG_SECONDS)
    if MODE == "sanitizer":
        sys.exit("==1==ERROR: AddressSanitizer: heap-use-after-free on address 0x1\nmore")
    if MODE == "undefined":
        print("a.c:3:1: runtime error: shift exponent -1 is negative", file=sys.stderr)
    if MODE == "output":
        print("wrong")


def serve():
    """A server that ends with SIGTERM alone; its peer is the mode `client`."""
    with socket.create_server(("127.0.0.1", PORT)) as listener:
        while True:
            listener.accept()[0].close()


PORT = int(os.environ.get("PRETENDER_PORT", 0))
if MODE == "stubborn":  # a test that is interrupted: it ignores all but SIGKILL, and leaves a daemon
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if seed is not None:
        subprocess.Popen(["sleep", str(HANG_SECONDS)], start_new_session=True)
        print("started", flush=True)
        time.sleep(HANG_SECONDS)
all_made = decisions()
if journal:
    write_journal(all_made)
if MODE == "serve":
    serve()
if MODE == "patient-client":  # explore does not know when its server listens
    while True:
        try:
            socket.create_connection(("127.0.0.1", PORT)).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
if MODE == "client":
    socket.create_connection(("127.0.0.1", PORT)).close()
    MODE = "exit"
if CAUSE <= {one["n"] for one in all_made}:
    # Luck does not repeat.
    if MODE != "luck" or replayed is None:
        fail()
