# SPDX-License-Identifier: BSD-3-Clause
"""A wire between the Faultline device and the bridge that drops, records and repeats selected frames, and forwards all others.

To drop one selected packet, it needs no queueing disciplines or filters of this machine's kernel, which not every kernel has.
"""
import ctypes
import os
import select
import socket
import threading

from testbed import frames

CLONE_NEWNET = 0x40000000
ETH_P_ALL = 3
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23


def within(namespace, function):
    """Returns the function's value. A thread in the namespace calls it; its sockets stay there."""
    value = []

    def enter():
        with open(f"/run/netns/{namespace}") as place:
            if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        value.append(function())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return value[0]


class Rule:
    """Selects frames of one direction; keeps those that it selected. psn: a number or a set of numbers."""

    def __init__(self, to, qpn, opcodes=None, psn=None, syndrome=None, skip=0, count=1, loses=True):
        self.to, self.qpn, self.syndrome = to, qpn, syndrome
        self.opcodes = {opcodes} if isinstance(opcodes, int) else opcodes
        self.psns = {psn} if isinstance(psn, int) else psn
        self.skip, self.left, self.loses = skip, count, loses
        self.caught = []
        self.news = threading.Condition()

    def takes(self, to, roce):
        if not self.left or to != self.to or roce.qpn != self.qpn:
            return False
        if self.opcodes is not None and roce.opcode not in self.opcodes or self.psns is not None and roce.psn not in self.psns:
            return False
        if self.syndrome is not None and (roce.syndrome is None or not self.syndrome(roce.syndrome)):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.left -= 1
        with self.news:
            self.caught.append(roce)
            self.news.notify_all()
        return True

    def wait(self, count=1, timeout_s=60):
        """Waits for that many selected frames; returns them."""
        with self.news:
            if not self.news.wait_for(lambda: len(self.caught) >= count, timeout_s):
                raise AssertionError(f"{len(self.caught)} frames to {self.to}'s QP {self.qpn:#x} came by that {count} should have")
        return self.caught


class Sieve:
    """A context manager; the meeting must be of kind af_packet. Ends of the wire are called ours and kernel."""

    def __init__(self, meeting):
        self.meeting = meeting
        self.rules = []
        self.lock = threading.Lock()

    def __enter__(self):
        mtu = str(self.meeting.mtu_bytes)
        self.meeting.ip("link", "set", "fl-link", "nomaster")
        self.meeting.ip("link", "add", "fl-far", "mtu", mtu, "type", "veth", "peer", "name", "fl-near", "mtu", mtu)
        self.meeting.ip("link", "set", "fl-near", "master", "fl-bridge", "up")
        self.meeting.ip("link", "set", "fl-far", "up")
        self.sockets = within(self.meeting.namespace, lambda: {"ours": self._socket("fl-link"), "kernel": self._socket("fl-far")})
        self.quit, self.told = os.pipe()
        self.thread = threading.Thread(target=self._pass, daemon=True)
        self.thread.start()
        return self

    @staticmethod
    def _socket(interface):
        link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        link.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        link.bind((interface, ETH_P_ALL))
        # Also receives frames for the MAC address of the device at the other end.
        index = socket.if_nametoindex(interface)
        link.setsockopt(SOL_PACKET, 1, index.to_bytes(4, "little") + (1).to_bytes(2, "little") + bytes(10))
        return link

    def __exit__(self, *_):
        os.write(self.told, b"x")
        self.thread.join()
        for link in self.sockets.values():
            link.close()
        os.close(self.quit)
        os.close(self.told)

    def _pass(self):
        ways = {self.sockets["ours"]: "kernel", self.sockets["kernel"]: "ours"}
        while True:
            ready, _, _ = select.select([*ways, self.quit], [], [])
            if self.quit in ready:
                return
            for link in ready:
                frame = link.recv(65536)
                if not self._lost(ways[link], frame):
                    self.send(ways[link], frame)

    def _lost(self, to, frame):
        roce = frames.parse(frame)
        if roce is None:
            return False
        with self.lock:
            return any([rule.loses for rule in self.rules if rule.takes(to, roce)])

    def send(self, to, frame):
        """Sends a frame as if the other end had sent it."""
        try:
            self.sockets[to].send(frame)
        except OSError:
            pass  # An interface that is removed loses frames.

    def lose(self, to, qpn, **which):
        return self._add(Rule(to, qpn, **which))

    def watch(self, to, qpn, **which):
        return self._add(Rule(to, qpn, loses=False, **which))

    def _add(self, rule):
        with self.lock:
            self.rules.append(rule)
        return rule

    def clear(self):
        with self.lock:
            self.rules = []
