#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# A switch of two ports, one access port of a VLAN and one trunk, for kernels without VLAN devices: tags what comes from the
# access port, and hands it what comes from the trunk with that tag.
#   vlan_switch.py ACCESS_INTERFACE TRUNK_INTERFACE VLAN_ID
import select
import socket
import struct
import sys

ETH_P_ALL = 3
SOL_PACKET, PACKET_AUXDATA, PACKET_OUTGOING = 263, 8, 4
TP_STATUS_VLAN_VALID = 1 << 4

access_name, trunk_name, vlan = sys.argv[1], sys.argv[2], int(sys.argv[3])


def port(name):
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    made.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    made.bind((name, 0))
    return made


def receive(made):
    """The frame and its VLAN id (None: untagged), or None for what this end sent itself."""
    frame, ancillary, _, address = made.recvmsg(65536, socket.CMSG_SPACE(64))
    if address[2] == PACKET_OUTGOING:
        return None
    for level, kind, data in ancillary:
        if level == SOL_PACKET and kind == PACKET_AUXDATA:
            # struct tpacket_auxdata: the kernel takes a tag out of the frame
            status, _, _, _, _, tci = struct.unpack_from("=IIIHHH", data)
            if status & TP_STATUS_VLAN_VALID:
                return frame, tci & 0xFFF
    if frame[12:14] == b"\x81\x00":
        return frame[:12] + frame[16:], struct.unpack("!H", frame[14:16])[0] & 0xFFF
    return frame, None


access, trunk = port(access_name), port(trunk_name)
print("switching", flush=True)
while True:
    for ready in select.select([access, trunk], [], [])[0]:
        try:
            received = receive(ready)
        except OSError:
            sys.exit()  # the interface is gone, or down
        if received is None:
            continue
        frame, tag = received
        try:
            if ready is access and tag is None:
                trunk.send(frame[:12] + struct.pack("!HH", 0x8100, vlan) + frame[12:])
            elif ready is trunk and tag == vlan:
                access.send(frame)
        except OSError:
            pass  # longer than the other port carries
