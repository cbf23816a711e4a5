# SPDX-License-Identifier: BSD-3-Clause
"""A switch of a wire in Python, which does to its programs what it likes."""
import os
import select
import socket

import wire_peer
from wire_peer import Inbox, Rings


class Attachment:
    """A connection of a program, from its request to attach."""

    def __init__(self, connection, patience):
        self.socket = connection
        self.socket.settimeout(patience)
        message, files, _, _ = socket.recv_fds(connection, 4096, 4)
        (_, _, self.number, self.verb, self.ipv4, self.shared, self.range, self.port, *_) = wire_peer.REQUEST.unpack(message)
        self.files = files
        self.rings = None

    def grant(self, before=None, files=None, **fields):
        """`before` changes the memory before the program has it. Returns False if the program has ended."""
        wanted = {"ipv4": self.ipv4 or wire_peer.number_of("198.18.9.9"), "range_": self.range or 1, "port": self.port}
        memory = wire_peer.memory_file(wire_peer.SEAT.bytes)
        inbox = wire_peer.memory_file(wire_peer.INBOX_BYTES)
        event = wire_peer.event_file()
        self.rings = Rings(memory, wire_peer.SEAT, 0, Inbox(self.files[0], self.files[1]), wire_peer.SWITCH_SEAT)
        self.rings.attach()
        if before:
            before(self.rings)
        try:
            self.send(self.number, files if files is not None else (memory, inbox, event), **(wanted | fields))
        except BrokenPipeError:
            return False
        finally:
            for file in (memory, inbox, event):
                os.close(file)
        return True

    def send(self, number, files=(), **fields):
        message = wire_peer.answer_bytes(number, **fields)
        if files:
            socket.send_fds(self.socket, [message], list(files))
        else:
            self.socket.send(message)

    def has_ended(self):
        """The program has closed the connection."""
        try:
            while select.select([self.socket], [], [], 0)[0]:
                if not self.socket.recv(4096):
                    return True
            return False
        except ConnectionResetError:
            return True

    def close(self):
        self.socket.close()
        for file in self.files:
            os.close(file)


class HostileSwitch:
    def __init__(self, path, patience):
        self.patience = patience
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.listener.listen(64)
        self.listener.settimeout(patience)

    def next(self):
        connection, _ = self.listener.accept()
        return Attachment(connection, self.patience)

    def close(self):
        self.listener.close()
