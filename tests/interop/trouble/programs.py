# SPDX-License-Identifier: BSD-3-Clause
"""Programs that a test of trouble starts on a wire, and the journals of their decisions."""
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402

# Of perftest and ucx_perftest. As root the test has a network of its own; otherwise another test may be on the host.
PORT = str(lib.free_port())


def start_server(run, wire, words, options=()):
    """Starts a server at side a of a wire, and waits until it listens: for rdma_cm if it is rping, otherwise at PORT."""
    server = lib.start([run, "--wire", wire, "--side", "a", *options, *words], name=f"server of {wire}")
    if words[0] == "rping":
        lib.await_cm_listener(run, wire, server)
    else:
        lib.await_port(PORT, server)
    return server


def start_client(run, wire, words, options=()):
    """Starts a client at side b."""
    return lib.start([run, "--wire", wire, "--side", "b", *options, *words], name=f"client of {wire}")


def decisions(journal):
    """The complete lines after the header; none before the program has begun."""
    if not os.path.exists(journal):
        return []
    with open(journal, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.endswith("\n")]
    assert not lines or lines[0]["faultline_journal"] == 1, lines[0]
    return lines[1:]
