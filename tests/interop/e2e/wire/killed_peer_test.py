#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A program of a wire is killed: its peer gets RDMA_CM_EVENT_DISCONNECTED, as from a kernel that closes the files of a process. rping's
server waits for that event alone.
  killed_peer_test.py FAULTLINE_RUN
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

run, = sys.argv[1:]
if shutil.which("rping") is None:
    print("SKIPPED: rping is not installed")
    sys.exit(77)
folder = tempfile.mkdtemp()
os.chmod(folder, 0o700)
environment = dict(os.environ, XDG_RUNTIME_DIR=folder)
PATIENCE_S = 60
running = []


def start(name, wire, where, *words):
    output = open(f"{folder}/{name}", "w+")
    process = subprocess.Popen([run, "--wire", wire, *where, "--", "rping", *words], stdout=output, stderr=subprocess.STDOUT,
                               env=environment)
    process.output = output
    running.append(process)
    return process


def output_of(process):
    process.output.seek(0)
    return process.output.read()


def await_that(what, true):
    until = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > until:
            for process in running:
                print("---", output_of(process)[-1000:])
            sys.exit(f"FAILED: {what}")
        time.sleep(0.05)


def attempt(how, where_server, where_client, address):
    wire = f"killed{how}{os.getpid()}"
    server = start(f"server.{how}", wire, where_server, "-s", "-v", "-a", address)
    client = None
    for number in range(40):
        # The server listens once its device is there.
        time.sleep(0.25)
        client = start(f"client.{how}.{number}", wire, where_client, "-c", "-v", "-C", "100000000", "-a", address)
        await_that("no message arrives", lambda: "ping data" in output_of(client) or client.poll() is not None)
        if client.poll() is None:
            break
    if server.poll() is not None or client.poll() is not None:
        sys.exit(f"FAILED: {how}: they do not connect: {output_of(server)} {output_of(client)}")
    client.send_signal(signal.SIGKILL)
    client.wait()
    await_that(f"{how}: the server of a killed client does not end", lambda: server.poll() is not None)
    if "DISCONNECT" not in output_of(server):
        sys.exit(f"FAILED: {how}: the server ends for another reason: {output_of(server)[-500:]}")
    print(f"ok: {how}")


try:
    attempt("own", ["--side", "a"], ["--side", "b"], "198.18.0.1")
    attempt("shared", ["--share"], ["--share"], "198.18.0.255")
finally:
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)
