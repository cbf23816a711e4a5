# SPDX-License-Identifier: BSD-3-Clause
"""RoCEv2 frames as bytes: the fields that a lane needs, and whether the ICRC is right, computed independently of the stack."""
import struct
import zlib

UDP_PORT = 4791
ACKNOWLEDGE = 0x11


class Roce:
    """The base transport header of a frame, and the offsets after it."""

    def __init__(self, frame, ip, udp):
        self.frame, self.ip, self.udp = frame, ip, udp
        self.bth = udp + 8
        self.opcode = frame[self.bth]
        self.qpn = int.from_bytes(frame[self.bth + 5:self.bth + 8], "big")
        self.psn = int.from_bytes(frame[self.bth + 9:self.bth + 12], "big")
        # The link may have padded the frame.
        self.end = udp + int.from_bytes(frame[udp + 4:udp + 6], "big")

    @property
    def syndrome(self):
        return self.frame[self.bth + 12] if self.opcode == ACKNOWLEDGE else None

    @property
    def payload(self):
        """The payload of a READ response, with its AETH if it has one."""
        return bytes(self.frame[self.bth + 12:self.end - 4])

    @property
    def icrc_is_right(self):
        """IBA A17.3.3: fields that may change on the way count as ones; 8 bytes of ones replace the absent link header."""
        covered = bytearray(self.frame[self.ip:self.end - 4])
        udp = self.udp - self.ip
        if covered[0] >> 4 == 4:
            ones = [1, 8, 10, 11]
        else:
            covered[0] |= 0x0f
            ones = [1, 2, 3, 7]
        for at in [*ones, udp + 6, udp + 7, udp + 8 + 4]:
            covered[at] = 0xff
        return struct.pack("<I", zlib.crc32(b"\xff" * 8 + covered)) == bytes(self.frame[self.end - 4:self.end])


def parse(frame):
    """Returns None unless it is a whole RoCEv2 frame."""
    if len(frame) < 14 + 20:
        return None
    kind = frame[12:14]
    if kind == b"\x08\x00":
        protocol, udp = frame[23], 14 + (frame[14] & 15) * 4
    elif kind == b"\x86\xdd":
        protocol, udp = frame[20], 14 + 40
    else:
        return None
    if protocol != 17 or len(frame) < udp + 8 + 12 + 4 or int.from_bytes(frame[udp + 2:udp + 4], "big") != UDP_PORT:
        return None
    roce = Roce(frame, 14, udp)
    return roce if udp + 24 <= roce.end <= len(frame) else None
