#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Milliseconds until the story of a capture of so many packets is drawn in headless Chromium. The capture has four QPs that send WRITEs, with
losses and pauses.
  opening_time.py FAULTLINE [PACKETS]"""
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import chromium

FAULTLINE = sys.argv[1]
PACKETS = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
CLIENT, SERVER = 0xC6120001, 0xC6120002
WRITE_ONLY, ACKNOWLEDGE = 0x0A, 0x11
PAYLOAD_BYTES, WINDOW = 1024, 16
SEQUENCE_NAK, NO_CREDIT_LIMIT = 0x60000001, 0x1F000001
RETH = struct.pack(">QII", 0, 1, PAYLOAD_BYTES)


class Capture:
    def __init__(self):
        self.bytes = bytearray(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 101))
        self.time_ns = self.packets = 0

    def put(self, source, destination, opcode, qpn, psn, extended, payload_bytes=0):
        """Headers alone, as with a snapshot length."""
        bth = bytes([opcode, 0x40, 0xFF, 0xFF]) + struct.pack(">II", qpn, psn & 0xFFFFFF) + extended
        udp_bytes = 8 + len(bth) + payload_bytes + 4
        ip = struct.pack(">BBHHHBBHII", 0x45, 2, 20 + udp_bytes, 0, 0x4000, 64, 17, 0, source, destination)
        packet = ip + struct.pack(">HHHH", 50000, 4791, udp_bytes, 0) + bth
        self.bytes += struct.pack("<IIII", self.time_ns // 10**9, self.time_ns % 10**9, len(packet), 20 + udp_bytes) + packet
        self.packets += 1

    def write(self, qp, psn):
        self.time_ns += random.randrange(150, 250)
        self.put(CLIENT, SERVER, WRITE_ONLY, 0x100 + qp, psn, RETH, PAYLOAD_BYTES)

    def answer(self, qp, psn, aeth):
        self.time_ns += 2000
        self.put(SERVER, CLIENT, ACKNOWLEDGE, 0x200 + qp, psn, struct.pack(">I", aeth))


def make_capture(path):
    random.seed(5)
    capture, psns = Capture(), [random.randrange(1 << 24) for _ in range(4)]
    while capture.packets < PACKETS:
        qp = random.randrange(len(psns))
        if random.random() < 0.00005:
            capture.time_ns += random.randrange(10**5, 3 * 10**6)
        first, psns[qp] = psns[qp], psns[qp] + WINDOW
        for psn in range(first, first + WINDOW):
            capture.write(qp, psn)
        if random.random() < 0.001:
            capture.answer(qp, first + 3, SEQUENCE_NAK)
            for psn in range(first + 3, first + WINDOW):
                capture.write(qp, psn)
        capture.answer(qp, psns[qp] - 1, NO_CREDIT_LIMIT)
    path.write_bytes(capture.bytes)


with tempfile.TemporaryDirectory() as folder:
    source, page = pathlib.Path(folder) / "capture.pcap", pathlib.Path(folder) / "page.html"
    make_capture(source)
    subprocess.run([FAULTLINE, "story", source, "-o", page], check=True)
    for _ in range(3):
        with chromium.Browser() as browser:
            print(f"{browser.open(page)} ms, a page of {page.stat().st_size / 1e6:.1f} MB")
