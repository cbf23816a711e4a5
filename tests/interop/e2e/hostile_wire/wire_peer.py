# SPDX-License-Identifier: BSD-3-Clause
"""A process of a wire in Python: it attaches to the switch, sends frames, and sees all memory that a process of a wire shares. The layouts
are those of pmd_glue/wires/switch_protocol.hpp, pmd_glue/wires/inbox.hpp and pmd_glue/direct/shared_ring.hpp."""
import array
import ctypes
import fcntl
import mmap
import os
import select
import socket
import struct
import time

MAGIC, VERSION = 0x464c5357, 4
REQUEST = struct.Struct("=IIQIIIIIIQ16s")
# Without the members on an uplink by sockets.
ANSWER = struct.Struct("=IIQIIIiIIIIII6s2x288x256s")
ATTACH, CLAIM, RELEASE, JOIN, LEAVE, KEEP_LINK, END_LINK, BAR_LINK = range(8)
IS_ANSWER, IS_LINK, IS_LINK_ENDED = range(3)
MOST_SEATS = SWITCH_SEAT = 1023
INBOX_BYTES = 4096
ENDS_BYTES, END_BYTES = 128, 64
HEADER_BYTES, DESCRIPTOR_BYTES = 128, 16
TO_SERVER = ENDS_BYTES
HEAD, TAIL = 6, 64
ABSENT, ATTACHED, CLOSING = range(3)
HANG_S = 300
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Shape:
    """Descriptors of a ring, the bytes of their buffers, and the bytes of the memory of both rings."""

    def __init__(self, ring_size, buffer_bytes, bytes_):
        self.ring_size, self.buffer_bytes, self.bytes = ring_size, buffer_bytes, bytes_
        self.ring_bytes = HEADER_BYTES + ring_size * DESCRIPTOR_BYTES
        self.to_client = TO_SERVER + self.ring_bytes
        self.buffers = TO_SERVER + 2 * self.ring_bytes


LINK = Shape(64, 1920, 252_000)
SEAT = Shape(512, 1024, 1_066_000)


def memory_file(size, seals=SEALS):
    file = os.memfd_create("hostile", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


def event_file():
    return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)


def mac_of(ipv4):
    return struct.pack("=2sI", b"\x02\x46", socket.htonl(ipv4))


def number_of(text):
    return struct.unpack("!I", socket.inet_aton(text))[0]


def text_of(ipv4):
    return socket.inet_ntoa(struct.pack("!I", ipv4))


def request_bytes(verb, number=1, ipv4=0, shared=0, range_=0, port=0, service=0, group=b"", magic=MAGIC, version=VERSION):
    return REQUEST.pack(magic, version, number, verb, ipv4, shared, range_, port, 0, service, group)


class Answer:
    def __init__(self, message, files):
        (self.magic, self.version, self.number, self.what, self.side, _, self.error, self.ipv4, self.prefix_bits, self.shared, self.range,
         self.port, self.mtu, self.mac, line) = ANSWER.unpack(message)
        self.line = line.split(b"\0")[0].decode()
        self.files = files


def answer_bytes(number, what=IS_ANSWER, side=0, error=0, ipv4=0, prefix_bits=15, shared=0, range_=1, port=0, mtu=4500, mac=None, line=b"",
                 magic=MAGIC, version=VERSION):
    return ANSWER.pack(magic, version, number, what, side, 0, error, ipv4, prefix_bits, shared, range_, port, mtu,
                       mac if mac is not None else mac_of(ipv4), line)


class Memory:
    """A mapping whose words are loaded and stored as a whole."""

    def __init__(self, file, size):
        self.map = mmap.mmap(file, size)
        self.size = size

    def word(self, at, kind=ctypes.c_uint32):
        return kind.from_buffer(self.map, at)

    def load(self, at, kind=ctypes.c_uint32):
        return self.word(at, kind).value

    def store(self, at, value, kind=ctypes.c_uint32):
        self.word(at, kind).value = value


class Inbox:
    def __init__(self, file, event):
        self.memory = Memory(file, INBOX_BYTES)
        self.event = event

    def wake(self):
        try:
            os.eventfd_write(self.event, 1)
        except BlockingIOError:
            pass

    # Python has no atomic OR: a bit of another process may be lost, as any garbage of this page.
    def ring(self, seat):
        at = 64 + seat // 64 * 8
        self.memory.store(at, self.memory.load(at, ctypes.c_uint64) | 1 << seat % 64, ctypes.c_uint64)
        self.memory.store(0, self.memory.load(0) | 1 << seat // 64)
        self.memory.store(4, 0)
        self.wake()

    def scribble(self, chance):
        """One word that is not as it should be."""
        kind = chance.randrange(4)
        if kind == 0:
            self.memory.store(0, chance.getrandbits(32))
        elif kind == 1:
            self.memory.store(4, chance.choice((0, 1, chance.getrandbits(32))))
        elif kind == 2:
            self.memory.store(64 + 8 * chance.randrange(16), chance.getrandbits(64), ctypes.c_uint64)
        else:
            self.memory.store(4 * chance.randrange(INBOX_BYTES // 4), chance.getrandbits(32))
        self.wake()


class Rings:
    """One end of the memory of two rings. Side 0 is memif's client: it lays the rings out."""

    def __init__(self, file, shape, side, inbox, own_seat):
        self.memory = Memory(file, shape.bytes)
        self.shape, self.to_client = shape, shape.to_client
        self.size = shape.ring_size
        self.side, self.inbox, self.own_seat = side, inbox, own_seat
        self.sent = self.offered = self.taken = 0

    def attach(self):
        if self.side == 0:
            self.offer(self.size)
        self.memory.store(END_BYTES * self.side + 4, 1)
        self.set_state(ATTACHED)

    def set_state(self, state):
        self.memory.store(END_BYTES * self.side, state)

    def other_state(self):
        return self.memory.load(END_BYTES * (1 - self.side))

    def buffer_at(self, slot, receive):
        return self.shape.buffers + ((self.size if receive else 0) + slot % self.size) * self.shape.buffer_bytes

    def offer(self, count):
        for slot in range(self.offered, self.offered + count):
            self.describe(self.to_client, slot, 0, 0, self.shape.buffer_bytes, self.buffer_at(slot, True))
        self.offered += count
        self.move(self.to_client, HEAD, self.offered)

    def describe(self, ring, slot, flags, region, length, offset):
        struct.pack_into("=HHII", self.memory.map, ring + HEADER_BYTES + DESCRIPTOR_BYTES * (slot % self.size), flags, region, length, offset)

    def move(self, ring, index, value):
        self.memory.store(ring + index, value & 0xffff, ctypes.c_uint16)

    def index(self, ring, index):
        return self.memory.load(ring + index, ctypes.c_uint16)

    def put(self, frame):
        """One frame in the next buffer; send() shows it to the other end."""
        if self.side == 0:
            ring, at = TO_SERVER, self.buffer_at(self.sent, False)
        else:
            ring = self.to_client
            at, = struct.unpack_from("=I", self.memory.map, ring + HEADER_BYTES + DESCRIPTOR_BYTES * (self.sent % self.size) + 8)
        self.memory.map[at:at + len(frame)] = frame
        self.describe(ring, self.sent, 0, 0, len(frame), at)
        self.sent += 1

    def send(self, *frames):
        for frame in frames:
            self.put(frame)
        self.show(0)
        self.inbox.ring(self.own_seat)

    def show(self, more):
        """Moves the index of what this end has sent."""
        self.move(*((TO_SERVER, HEAD) if self.side == 0 else (self.to_client, TAIL)), self.sent + more)

    def is_taken(self):
        """The other end has received every frame."""
        if self.side == 0:
            return self.index(TO_SERVER, TAIL) == self.sent & 0xffff
        return self.index(self.to_client, HEAD) == (self.sent + self.size) & 0xffff

    def fill(self, chance):
        self.memory.map[ENDS_BYTES:] = chance.randbytes(self.shape.bytes - ENDS_BYTES)

    def scribble(self, chance):
        """A burst of garbage in both rings, some of which the other end does not see as such at once."""
        shape, whole = self.shape, self.shape.bytes
        for ring in (TO_SERVER, self.to_client):
            for _ in range(chance.choice((1, 4, self.size))):
                self.describe(ring, chance.randrange(self.size), chance.choice((0, 0, 0, 1, 0xffff)), chance.choice((0, 0, 0, 1, 0xffff)),
                              chance.choice((0, 1, 60, shape.buffer_bytes, shape.buffer_bytes + 1, 65535, whole, 0xffffffff)),
                              chance.choice((0, 1, shape.buffers, whole - shape.buffer_bytes, whole - 1, whole, 0xffffffff,
                                             chance.getrandbits(32))))
            for index in (HEAD, TAIL):
                if chance.random() < 0.7:
                    old = self.index(ring, index)
                    self.move(ring, index, old + chance.choice((1, chance.randrange(self.size), self.size + 1, chance.getrandbits(16))))
            if chance.random() < 0.1:
                self.memory.store(ring + 4 * chance.randrange(shape.ring_bytes // 4), chance.getrandbits(32))
        if chance.random() < 0.1:
            self.memory.store(4 * chance.randrange(ENDS_BYTES // 4), chance.choice((0, 1, 2, 3, 0xffffffff)))
        self.inbox.ring(self.own_seat)


class Process:
    """A connection to the switch, and the seat that it is."""

    def __init__(self, path, patience=HANG_S):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(patience)
        self.socket.connect(path)
        self.number = 0
        self.links = {}
        self.ended = set()
        self.heard = 0
        self.events = []
        self.seat = None

    def close(self):
        self.socket.close()

    def send(self, verb, files=(), **fields):
        self.number += 1
        message = request_bytes(verb, self.number, **fields)
        if files:
            socket.send_fds(self.socket, [message], list(files))
        else:
            self.socket.send(message)

    def receive(self):
        message, files, _, _ = socket.recv_fds(self.socket, 4096, 4)
        if not message:
            raise ConnectionResetError
        return Answer(message, files)

    def keep(self, message):
        if message.what == IS_LINK:
            self.links[message.port] = message
        elif message.what == IS_LINK_ENDED:
            self.ended.add(message.port)
            self.heard += 1
        return message.what != IS_ANSWER

    def answer(self):
        """The answer to the latest request. Keeps the links that come before it."""
        while True:
            answer = self.receive()
            if not self.keep(answer) and answer.number in (self.number, 0):
                return answer

    def attach(self, **fields):
        inbox = memory_file(INBOX_BYTES)
        event = event_file()
        self.own = Inbox(inbox, event)
        self.send(ATTACH, (inbox, event), **fields)
        os.close(inbox)
        granted = self.answer()
        if granted.error != 0:
            return granted
        self.seat = granted.port
        self.ipv4, self.mac = granted.ipv4, granted.mac
        self.switch = Inbox(granted.files[1], granted.files[2])
        self.rings = Rings(granted.files[0], SEAT, 1, self.switch, self.seat)
        # The mappings hold the memory.
        os.close(granted.files[0])
        os.close(granted.files[1])
        self.rings.attach()
        return granted

    def release(self):
        """Ends the connection, and what belongs to it."""
        self.close()
        for file in (self.own.event, self.switch.event, *self.events, *(file for link in self.links.values() for file in link.files)):
            os.close(file)

    def look(self):
        """Takes what the switch has sent."""
        while select.select([self.socket], [], [], 0)[0]:
            self.keep(self.receive())

    def has_ended(self):
        """The switch has closed the connection."""
        try:
            self.look()
            return False
        except ConnectionResetError:
            return True

    def settle(self):
        """The switch has forwarded all frames, and sent the links that these make."""
        until = time.monotonic() + HANG_S
        while not self.rings.is_taken():
            if time.monotonic() > until:
                raise TimeoutError("the switch takes no frames")
            self.switch.ring(self.seat)
            time.sleep(0.01)
        self.send(LEAVE, group=bytes(16))
        self.answer()

    def frame(self, to, **fields):
        return roce_frame(self.mac, self.ipv4, to, **fields)

    def link_with(self, ipv4, qpn=0x123):
        """Sends the process of that address a frame, and returns its link; None if the switch makes none."""
        self.rings.send(self.frame(ipv4, qpn=qpn))
        self.settle()
        for port, link in list(self.links.items()):
            if link.ipv4 == ipv4:
                return self.take_link(port)
        return None

    def mark(self, link):
        """The marker, after which the frames of a link are received at once."""
        self.rings.send(mac_of(link.ipv4) + self.mac + struct.pack("!HIHH", 0x88b5, 0x464c4c4d, self.seat, link.port) + bytes(38))
        self.settle()

    def take_link(self, port):
        link = self.links.pop(port)
        rings = Rings(link.files[0], LINK, link.side, Inbox(link.files[1], link.files[2]), self.seat)
        for file in link.files[:2]:
            os.close(file)
        self.events.append(link.files[2])
        rings.port, rings.ipv4 = port, link.ipv4
        rings.attach()
        return rings


def checksum(header):
    words = array.array("H", header)
    total = sum(words)
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return struct.pack("=H", ~total & 0xffff)


def roce_frame(mac, ipv4, to, to_mac=None, qpn=0x123, opcode=4, payload=b""):
    bth = struct.pack("!BBHII", opcode, 0, 0xffff, qpn, 1) + payload + bytes(4)
    udp = struct.pack("!HHHH", 49152, 4791, 8 + len(bth), 0)
    ip = struct.pack("!BBHHHBBHII", 0x45, 0, 28 + len(bth), 0, 0x4000, 64, 17, 0, ipv4, to)
    ip = ip[:10] + checksum(ip) + ip[12:]
    return (to_mac or mac_of(to)) + mac + b"\x08\x00" + ip + udp + bth


def arp_frame(mac, ipv4, to):
    return b"\xff" * 6 + mac + b"\x08\x06" + struct.pack("!HHBBH6sI6sI", 1, 0x800, 6, 4, 1, mac, ipv4, bytes(6), to) + bytes(18)
