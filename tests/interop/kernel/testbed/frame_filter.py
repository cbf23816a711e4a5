# SPDX-License-Identifier: BSD-3-Clause
"""A wire between the Faultline device and the bridge that drops, records and repeats selected frames, and forwards all others.

To drop one selected packet, it needs no queueing disciplines or filters of this machine's kernel, which not every kernel has.
"""
import ctypes
import os
import select
import socket
import threading

from guest.guest import HANG_S
from testbed import frames

CLONE_NEWNET = 0x40000000
ETH_P_ALL = 3
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23


def in_namespace(namespace, function):
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

    def __init__(self, to, qpn, opcodes=None, psn=None, syndrome=None, skip=0, count=1, drops=True):
        self.to, self.qpn, self.syndrome = to, qpn, syndrome
        self.opcodes = {opcodes} if isinstance(opcodes, int) else opcodes
        self.psns = {psn} if isinstance(psn, int) else psn
        self.skip, self.left, self.drops = skip, count, drops
        self.matched = []
        self.changed = threading.Condition()

    def matches(self, to, roce):
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
        with self.changed:
            self.matched.append(roce)
            self.changed.notify_all()
        return True

    def wait(self, count=1, timeout_s=HANG_S):
        """Waits for that many selected frames; returns them."""
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.matched) >= count, timeout_s):
                raise AssertionError(f"{len(self.matched)} frames to {self.to}'s QP {self.qpn:#x} came by that {count} should have")
        return self.matched


class FrameFilter:
    """A context manager; the testbed must be of kind af_packet. Ends of the wire are called ours and kernel."""

    def __init__(self, testbed):
        self.testbed = testbed
        self.rules = []
        self.lock = threading.Lock()

    def __enter__(self):
        mtu = str(self.testbed.mtu_bytes)
        self.testbed.ip("link", "set", "fl-link", "nomaster")
        self.testbed.ip("link", "add", "fl-far", "mtu", mtu, "type", "veth", "peer", "name", "fl-near", "mtu", mtu)
        self.testbed.ip("link", "set", "fl-near", "master", "fl-bridge", "up")
        self.testbed.ip("link", "set", "fl-far", "up")
        self.sockets = in_namespace(self.testbed.namespace, lambda: {"ours": self._socket("fl-link"), "kernel": self._socket("fl-far")})
        self.stop_reader, self.stop_writer = os.pipe()
        self.thread = threading.Thread(target=self._forward, daemon=True)
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
        os.write(self.stop_writer, b"x")
        self.thread.join()
        for link in self.sockets.values():
            link.close()
        os.close(self.stop_reader)
        os.close(self.stop_writer)

    def _forward(self):
        destinations = {self.sockets["ours"]: "kernel", self.sockets["kernel"]: "ours"}
        while True:
            ready, _, _ = select.select([*destinations, self.stop_reader], [], [])
            if self.stop_reader in ready:
                return
            for link in ready:
                frame = link.recv(65536)
                if not self._is_dropped(destinations[link], frame):
                    self.send(destinations[link], frame)

    def _is_dropped(self, to, frame):
        roce = frames.parse(frame)
        if roce is None:
            return False
        with self.lock:
            return any([rule.drops for rule in self.rules if rule.matches(to, roce)])

    def send(self, to, frame):
        """Sends a frame as if the other end had sent it."""
        try:
            self.sockets[to].send(frame)
        except OSError:
            pass  # An interface that is removed loses frames.

    def drop(self, to, qpn, **which):
        return self._add(Rule(to, qpn, **which))

    def watch(self, to, qpn, **which):
        return self._add(Rule(to, qpn, drops=False, **which))

    def _add(self, rule):
        with self.lock:
            self.rules.append(rule)
        return rule

    def clear(self):
        with self.lock:
            self.rules = []
