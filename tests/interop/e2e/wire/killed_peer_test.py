#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A program of a wire is killed: its peer gets RDMA_CM_EVENT_DISCONNECTED, as from a kernel that closes the files of a process. rping's
server waits for that event alone.
  killed_peer_test.py FAULTLINE_RUN
"""
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # tests
import lib  # noqa: E402

run, = sys.argv[1:]
lib.need("rping", "rdma")
lib.own_runtime_folder()


def attempt(how, where_server, where_client, address):
    wire = f"killed{how}{os.getpid()}"

    def start(role, where, *words):
        return lib.start([run, "--wire", wire, *where, "--", "rping", *words, "-v", "-a", address], name=f"{how} {role}")

    server = start("server", where_server, "-s")
    lib.await_cm_listener(run, wire, server)
    client = start("client", where_client, "-c", "-C", "100000000")
    lib.await_that(lambda: "ping data" in client.text(), f"{how}: a message arrives", client, server)
    client.end(signal.SIGKILL)
    lib.await_that(lambda: server.poll() is not None, f"{how}: the server of a killed client ends")
    lib.expect("DISCONNECT" in server.text(), f"{how}: the server ends for another reason")
    print(f"ok: {how}", flush=True)


attempt("own", ["--side", "a"], ["--side", "b"], "198.18.0.1")
attempt("shared", ["--share"], ["--share"], "198.18.0.255")
