#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Computes the ICRC of each RoCEv2 packet in a capture, independently of the stack.
  check_icrcs.py PCAP    exit status 1 if one is wrong, or no packet of IPv4 has an identification other than 0"""
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../kernel"))
from testbed import frames  # noqa: E402

IPV4_IDENTIFICATION_AT = 4


def frames_of(path):
    with open(path, "rb") as file:
        data = file.read()
    at = 24
    while at + 16 <= len(data):
        captured_bytes, frame_bytes = struct.unpack_from("<II", data, at + 8)
        if captured_bytes == frame_bytes:
            yield data[at + 16:at + 16 + captured_bytes]
        at += 16 + captured_bytes


def main():
    packets = [roce for roce in map(frames.parse, frames_of(sys.argv[1])) if roce is not None]
    wrong = sum(not roce.icrc_is_right for roce in packets)
    numbers = {int.from_bytes(roce.frame[roce.ip + IPV4_IDENTIFICATION_AT:][:2], "big") for roce in packets
               if roce.frame[roce.ip] >> 4 == 4}
    print(f"{len(packets)} packets, {wrong} with a wrong ICRC, identifications {sorted(numbers)}")
    return 1 if wrong or len(packets) < 100 or (numbers and max(numbers) == 0) else 0


sys.exit(main())
