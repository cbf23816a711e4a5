# SPDX-License-Identifier: BSD-3-Clause
"""A server program and its client, one of them in the kernel peer, the other over Faultline."""
import json
import re
import shlex
import signal
import subprocess

from condition import await_that
from guest.guest import HANG_S
from testbed.testbed import OUR_ADDRESSES, OUR_GIDS, PEER_ADDRESSES, PEER_GIDS

PATIENCE_S = HANG_S
LISTENERS = ["rdma", "-j", "resource", "show", "cm_id"]


class Failure(Exception):
    pass


class Place:
    """One end: Faultline's or the kernel's."""

    def __init__(self, testbed, name):
        self.testbed, self.name = testbed, name
        self.ours = name == "faultline"
        self.addresses = OUR_ADDRESSES if self.ours else PEER_ADDRESSES
        self.gids = OUR_GIDS if self.ours else PEER_GIDS

    def popen(self, argv, **how):
        return self.testbed.popen(argv, **how) if self.ours else self.testbed.peer.popen(argv)

    def cm_listeners(self):
        """What rdma(8) tells of each identifier of rdma_cm that listens."""
        output = (self.testbed if self.ours else self.testbed.peer).run(LISTENERS).output
        return [one for one in json.loads(output[max(output.find("["), 0):] or "[]") if one.get("state") == "LISTEN"]

    def await_cm_listener(self, process):
        """Whether the process listens. One program at a time does so in the kernel; a killed one of Faultline's may still be told of."""
        def listens():
            return any(not self.ours or one.get("pid") == process.pid for one in self.cm_listeners())
        return await_that(lambda: listens() or process.poll() is not None, PATIENCE_S) and process.poll() is None


def ends(testbed, server_is_ours):
    """The places of server and client."""
    return (Place(testbed, "faultline"), Place(testbed, "kernel"))[:: 1 if server_is_ours else -1]


def words_of(text, server, client, family, own):
    """The command: <server> and <client> are their addresses, {ours;theirs} is the text that differs between the two ends."""
    text = re.sub(r"\{([^;{}]*);([^;{}]*)\}", lambda found: found.group(1 if own.ours else 2), text)
    values = {"server": server.addresses[family], "client": client.addresses[family], "gid": str(own.gids[family])}
    return shlex.split(re.sub(r"<(\w+)>", lambda found: values[found.group(1)], text))


def end(process, patience_s=PATIENCE_S):
    """Its status, or None if it had to be killed."""
    try:
        return process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.signal(signal.SIGKILL)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        return None


def tail(process):
    lines = [line for line in process.output.splitlines() if line.strip()]
    return " / ".join(lines[-6:])


def run_pair(server_place, client_place, server_text, client_text, family, await_server=None, good=None):
    """Returns both ended processes. Raises Failure if they failed; good(process) may accept one, whatever its status."""
    arguments = (server_place, client_place, family)
    server = server_place.popen(words_of(server_text, *arguments, server_place))
    client = None
    try:
        if not (await_server or server_place.await_cm_listener)(server):
            raise Failure(f"the server does not listen: {tail(server)}")
        client_words = words_of(client_text, *arguments, client_place)
        client = client_place.popen(client_words)
        status = end(client)
        if status != 0 and not (good and good(client)):
            raise Failure(f"client ({client_place.name}): status {status}: {tail(client)} // server: {tail(server)}")
        status = end(server)
        if status != 0 and not (good and good(server)):
            raise Failure(f"server ({server_place.name}): status {status}: {tail(server)} // client: {tail(client)}")
        return server, client
    finally:
        for process in (server, client):
            if process and process.poll() is None:
                process.signal(signal.SIGKILL)
                end(process, 10)
