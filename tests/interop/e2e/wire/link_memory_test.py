#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The memory and the descriptors of a direct link go with it: of a server that stays while its clients end or are killed, and of the switch.
  link_memory_test.py FAULTLINE_RUN
"""
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # tests
import lib  # noqa: E402
from lib import await_that  # noqa: E402

run, = sys.argv[1:]
lib.need("rping", "rdma")
CLIENTS = 40 if os.environ.get("FAULTLINE_SOAK") else 4
folder = lib.own_runtime_folder()
wire = f"m{os.getpid()}"


def start(*words):
    return lib.start([run, "--wire", wire, *words], name=" ".join(words[:2]))


def client(number):
    """With a side of its own, so that a later one has the address of an earlier one. It goes on until it is killed."""
    return start("--side", "bcdefghijklmnopqrstuvwxyz"[number % 25], "--", "rping", "-c", "-v", "-a", "198.18.0.1", "-C", "1000000")


def descriptors_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def mappings_of(pid, name):
    with open(f"/proc/{pid}/maps") as maps:
        return maps.read().count(f"/memfd:{name} ")


def switch():
    return lib.processes_of(folder, "faultline-switch")[0]


def talk(server, how_many):
    """Clients that have a link each at one time, and then end: by a signal that rping handles in no way, or by one that none can."""
    clients = []
    for number in range(how_many):
        # One after the other: a second request makes rping's server forget the identifier of the first.
        process = client(number)
        clients.append(process)
        await_that(lambda: "ping data" in process.text(), "a client talks", process, server)  # noqa: B023
    await_that(lambda: mappings_of(server.pid, "faultline-link") == how_many, "each client has a link", server)
    for number, process in enumerate(clients):
        process.end(signal.SIGKILL if number % 2 else signal.SIGTERM)
    await_that(lambda: mappings_of(server.pid, "faultline-link") == 0, "the server gives back the memory of the links", server)
    await_that(lambda: mappings_of(server.pid, "faultline-inbox") == 2, "the server gives back the inboxes of its peers", server)
    await_that(lambda: mappings_of(switch(), "faultline-seat") == 1, "the switch gives back the rings of the clients", server)


server = start("--side", "a", "--", "rping", "-s", "-P", "-a", "198.18.0.1")
lib.await_cm_listener(run, wire, server)
first = client(0)
await_that(lambda: "ping data" in first.text(), "the first client talks", first, server)
first.end(signal.SIGKILL)
await_that(lambda: mappings_of(server.pid, "faultline-link") == 0, "the server gives back the memory of its first link", server)
talk(server, CLIENTS)
# Not before: rping and the C library keep some that a first client makes.
server_has, switch_has = descriptors_of(server.pid), descriptors_of(switch())
for _ in range(2):
    talk(server, CLIENTS)
await_that(lambda: descriptors_of(server.pid) <= server_has, "the server has no more descriptors", server)
await_that(lambda: descriptors_of(switch()) <= switch_has, "the switch has no more descriptors", server)
print(f"ok: {3 * CLIENTS} links left no memory and no descriptor")
