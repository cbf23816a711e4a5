# SPDX-License-Identifier: BSD-3-Clause
"""The lane's side of edge_end.py: the programs at both ends, and their QPs, as objects with methods."""
import json
import signal
import socket

from condition import stop
from guest.guest import HANG_S
from testbed.testbed import BRIDGE, HERE, OUR_ADDRESSES, PEER_ADDRESSES
from testbed.frame_filter import in_namespace

PORT = 18700
ADDRESSES = {"ours": OUR_ADDRESSES, "kernel": PEER_ADDRESSES}
# Exceeds the time for which wait() waits.
CALL_TIMEOUT_S = 2 * HANG_S


class End:
    """A program that runs edge_end.py. where: ours or kernel."""

    def __init__(self, testbed, where, config=None):
        self.testbed, self.where = testbed, where
        with in_namespace(testbed.namespace, lambda: socket.create_server((BRIDGE[4], PORT))) as listener:
            listener.settimeout(CALL_TIMEOUT_S)
            if where == "ours":
                self.process = testbed.popen(["/usr/bin/python3", "-B", f"{HERE}/edge_end.py", BRIDGE[4], str(PORT)], config=config)
            else:
                self.process = testbed.peer.popen(["python3", "-B", "/mnt/share/edge_end.py", BRIDGE[4], str(PORT)])
            try:
                self.link, _ = listener.accept()
            except TimeoutError:
                raise RuntimeError(f"the program at {where} did not come: {self.process.output}") from None
        self.link.settimeout(CALL_TIMEOUT_S)
        self.file = self.link.makefile("r")
        self.count = 0
        self._receive()

    def _receive(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError(f"the program at {self.where} is gone: {self.process.output[-2000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.where}: {answer['error']}")
        return answer["value"]

    def call(self, do, **words):
        self.link.sendall(json.dumps(dict(words, do=do)).encode() + b"\n")
        return self._receive()

    def open(self, family=4, **setup):
        self.count += 1
        return Queue(self, self.count, self.call("open", side=self.count, gid=ADDRESSES[self.where][family], **setup))

    def events(self, limit_s=0):
        return self.call("events", limit_s=limit_s)

    def freeze(self):
        if self.where == "kernel":
            self.testbed.peer.freeze()
        else:
            stop(self.process.pid)

    def thaw(self):
        if self.where == "kernel":
            self.testbed.peer.thaw()
        else:
            self.process.signal(signal.SIGCONT)

    def kill(self):
        self.process.signal(signal.SIGKILL)
        self.process.wait()
        self.close()

    def close(self):
        self.file.close()
        self.link.close()


class Queue:
    """A QP at one end, with its regions "source" and "target"."""

    def __init__(self, end, number, about):
        self.end, self.number, self.about = end, number, about
        self.where, self.qpn, self.psn = end.where, about["qpn"], about["psn"]

    def call(self, do, **words):
        return self.end.call(do, side=self.number, **words)

    def connect(self, other, lacks=()):
        self.call("connect", peer=other.about, lacks=lacks)

    def post(self, op, length, *args, offset=0):
        self.call("post", op=op, offset=offset, length=length, args=args)

    def recv(self, length=16384, offset=0):
        self.call("recv", offset=offset, length=length)

    def wait(self, count=1, limit_s=HANG_S):
        return self.call("wait", count=count, limit_s=limit_s)

    def status(self):
        """The status of the next completion, or None if none arrives."""
        done = self.wait()
        return done[0]["status"] if done else None

    def state(self):
        return self.call("state")

    def write(self, data, region="source", offset=0):
        self.call("write", region=region, offset=offset, data=data.hex())

    def read(self, length, region="target", offset=0):
        return bytes.fromhex(self.call("read", region=region, offset=offset, length=length))

    def remote(self, region="target", offset=0):
        """rkey and address of a region here, for the peer's requests."""
        rkey, address, _ = self.about["regions"][region]
        return rkey, address + offset

    def close(self):
        self.call("close")
