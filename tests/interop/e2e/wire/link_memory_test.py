#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The memory and the descriptors of a direct link go with it: of a server that stays while its clients end or are killed, and of the switch.
  link_memory_test.py FAULTLINE_RUN
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
CLIENTS = 40 if os.environ.get("FAULTLINE_SOAK") else 4
PATIENCE_S = 60
folder = tempfile.mkdtemp()
os.chmod(folder, 0o700)
environment = dict(os.environ, XDG_RUNTIME_DIR=folder)
wire = f"m{os.getpid()}"
running = []


def fail(what):
    print("FAILED:", what)
    for process in running:
        with open(process.output.name) as output:
            print("---", process.args[3:], process.poll(), output.read()[-1000:])
    sys.exit(1)


def start(*words):
    output = open(f"{folder}/{len(running)}.out", "w")
    process = subprocess.Popen([run, "--wire", wire, *words], stdout=output, stderr=subprocess.STDOUT, env=environment)
    process.output = output
    running.append(process)
    return process


def await_that(what, true):
    until = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > until:
            fail(what)
        time.sleep(0.02)


def said(process, words):
    with open(process.output.name) as output:
        return words in output.read()


def client(number):
    """With a side of its own, so that a later one has the address of an earlier one. It goes on until it is killed."""
    return start("--side", "bcdefghijklmnopqrstuvwxyz"[number % 25], "--", "rping", "-c", "-v", "-a", "198.18.0.1", "-C", "1000000")


def descriptors_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def mappings_of(pid, name):
    with open(f"/proc/{pid}/maps") as maps:
        return maps.read().count(f"/memfd:{name} ")


def switch():
    found = subprocess.run(["pgrep", "-u", str(os.getuid()), "-f", "--", f"faultline-switch --wire {wire} "], capture_output=True,
                           text=True).stdout.split()
    return int(found[0]) if found else None


def talk(server, how_many):
    """Clients that have a link each at one time, and then end: by a signal that rping handles in no way, or by one that none can."""
    clients = []
    for number in range(how_many):
        # One after the other: a second request makes rping's server forget the identifier of the first.
        process = client(number)
        clients.append(process)
        await_that("a client does not talk", lambda: said(process, "ping data") or process.poll() is not None)
        if process.poll() is not None:
            fail("a client ended")
    await_that("a link is missing", lambda: mappings_of(server.pid, "faultline-link") == how_many)
    for number, process in enumerate(clients):
        process.send_signal(signal.SIGKILL if number % 2 else signal.SIGTERM)
        process.wait()
    await_that("the server keeps the memory of a link", lambda: mappings_of(server.pid, "faultline-link") == 0)
    await_that("the server keeps the inbox of a peer", lambda: mappings_of(server.pid, "faultline-inbox") == 2)
    await_that("the switch keeps the ring of a client", lambda: mappings_of(switch(), "faultline-seat") == 1)


try:
    server = start("--side", "a", "--", "rping", "-s", "-P", "-a", "198.18.0.1")
    # It listens once its device is there.
    first = None
    while first is None or first.poll() is not None:
        if server.poll() is not None:
            fail("the server ended")
        first = client(0)
        await_that("no first client", lambda: said(first, "ping data") or first.poll() is not None)
    first.kill()
    first.wait()
    await_that("the server keeps the memory of its first link", lambda: mappings_of(server.pid, "faultline-link") == 0)
    talk(server, CLIENTS)
    # Not before: rping and the C library keep some that a first client makes.
    server_has, switch_has = descriptors_of(server.pid), descriptors_of(switch())
    for _ in range(2):
        talk(server, CLIENTS)
    await_that("the server has more descriptors", lambda: descriptors_of(server.pid) <= server_has)
    await_that("the switch has more descriptors", lambda: descriptors_of(switch()) <= switch_has)
    if server.poll() is not None:
        fail("the server ended")
    print(f"ok: {3 * CLIENTS} links left no memory and no descriptor")
finally:
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()
    if (pid := switch()) is not None:
        os.kill(pid, signal.SIGTERM)
    shutil.rmtree(folder, ignore_errors=True)
