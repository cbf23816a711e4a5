#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What Wireshark finds in a capture: the device's name, and why a received packet was dropped. A device on UDP sockets in a network of its own gets
packets by hand: to a QP that does not exist, with a wrong ICRC, and one that ends too early.
  capture_comments_test.py FAULTLINE_RUN COUNTERS_PAGE"""
import os
import pathlib
import re
import socket
import struct
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402

RUN, COUNTERS = (os.path.realpath(path) for path in sys.argv[1:3])
DEVICE, SENDER, PORT = "198.18.0.1", "198.18.0.2", 4791
NO_QPN = 0x777777
CONFIG = f"""[[device]]
name = "named7"
ip = "{DEVICE}"
capture = "{{0}}"
[device.port]
kind = "udp"
"""
UD_SEND_ONLY, DEFAULT_PKEY = 0x64, 0xffff


def datagram(source_port):
    """The payload of UDP: BTH, DETH and the ICRC (IBA A17.3.3), with the headers that the kernel puts before it."""
    body = struct.pack(">BBHII", UD_SEND_ONLY, 0, DEFAULT_PKEY, NO_QPN, 1) + struct.pack(">II", 0x11111111, 0x55)
    udp = struct.pack(">HHHH", source_port, PORT, 8 + len(body) + 4, 0xffff)
    dont_fragment = 0x4000
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0xff, 20 + 8 + len(body) + 4, 0, dont_fragment, 0xff, socket.IPPROTO_UDP, 0xffff,
                     socket.inet_aton(SENDER), socket.inet_aton(DEVICE))
    covered = bytearray(b"\xff" * 8 + ip + udp + body)
    covered[8 + 20 + 8 + 4] = 0xff  # FECN, BECN and reserved bits
    return body + struct.pack("<I", zlib.crc32(covered))


def send_by_hand():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind((SENDER, 0))
        # The kernel sets DF, and the identification of a datagram is 0 then.
        made.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
        right = datagram(made.getsockname()[1])
        for payload in (right, right[:-1] + bytes([right[-1] ^ 1]), right[:9]):
            made.sendto(payload, (DEVICE, PORT))


def fields_of(file, condition, *fields):
    words = [word for field in fields for word in ("-e", field)]
    result = lib.call(["tshark", "-r", file, "-Y", condition, "-T", "fields", *words], status=None)
    return [line.split("\t") for line in result.stdout.splitlines()]


def text_of_counter(name):
    """The counter and its text, as the reference has it."""
    row = re.search(rf"^\| `{re.escape(name)}` \|[^|]*\|[^|]*\| (.*) \|$", pathlib.Path(COUNTERS).read_text(encoding="utf-8"), re.MULTILINE)
    return f"{name}: {row.group(1)}"


def check(folder):
    file = f"{folder}/run.pcapng"
    config = pathlib.Path(folder, "udp.toml")
    config.write_text(CONFIG.format(file), encoding="utf-8")
    server = lib.start([RUN, "--config", config, "ibv_rc_pingpong", "-g", "0"])
    # The device has its socket: packets that come before would be the kernel's.
    lib.await_port(PORT, server, "udp")
    send_by_hand()
    from_sender = f"ip.src == {SENDER}"

    def three():
        rows = fields_of(file, from_sender, "frame.interface_name", "frame.comment")
        return rows if len(rows) == 3 else None
    found = lib.await_that(three, "three packets in the capture", server)
    expected = [["named7", text_of_counter(name)] for name in ("drop.unknown_qpn", "parse.icrc", "parse.header_length")]
    assert found == expected, f"{found}, and not {expected}"
    descriptions = {row[0] for row in fields_of(file, "frame", "frame.interface_description")}
    assert descriptions == {"port 1 of the RoCEv2 device named7, of kind udp"}, descriptions
    directions = {row[0] for row in fields_of(file, from_sender, "frame.packet_flags_direction")}
    assert directions <= {"1", "0x00000001"}, directions
    print("tshark names the device, and says why each packet was dropped")


def main():
    lib.need_root("for addresses of its own")
    lib.need("tshark", "ibv_rc_pingpong", "ip")
    if not lib.own_network():
        lib.skip("may not make a network namespace")
    for address in (DEVICE, SENDER):
        lib.call(["ip", "address", "add", f"{address}/32", "dev", "lo"])
    check(lib.own_runtime_folder())


main()
