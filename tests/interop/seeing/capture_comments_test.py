#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What Wireshark finds in a capture: the device's name, and why a received packet was dropped. A device on UDP sockets in a network of its own gets
packets by hand: to a QP that does not exist, with a wrong ICRC, and one that ends too early.
  capture_comments_test.py FAULTLINE_RUN COUNTERS_PAGE"""
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib

RUN, COUNTERS = (os.path.realpath(path) for path in sys.argv[1:3])
WAIT_S = 60
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
    result = subprocess.run(["tshark", "-r", file, "-Y", condition, "-T", "fields", *words], capture_output=True, text=True, timeout=WAIT_S, check=False)
    return [line.split("\t") for line in result.stdout.splitlines()]


def until(what, condition):
    limit = time.monotonic() + WAIT_S
    while time.monotonic() < limit:
        if (value := condition()):
            return value
        time.sleep(0.1)
    raise AssertionError(f"no {what} in {WAIT_S} s")


def is_listening():
    address = f"{int.from_bytes(socket.inet_aton(DEVICE), sys.byteorder):08X}:{PORT:04X}"
    return address in pathlib.Path("/proc/net/udp").read_text(encoding="ascii")


def text_of_counter(name):
    """The counter and its text, as the reference has it."""
    row = re.search(rf"^\| `{re.escape(name)}` \|[^|]*\|[^|]*\| (.*) \|$", pathlib.Path(COUNTERS).read_text(encoding="utf-8"), re.MULTILINE)
    return f"{name}: {row.group(1)}"


def check(folder):
    file = f"{folder}/run.pcapng"
    config = pathlib.Path(folder, "udp.toml")
    config.write_text(CONFIG.format(file), encoding="utf-8")
    server = subprocess.Popen([RUN, "--config", str(config), "ibv_rc_pingpong", "-g", "0"], stdout=subprocess.DEVNULL)
    try:
        until("device", is_listening)
        send_by_hand()
        from_sender = f"ip.src == {SENDER}"
        found = until("three packets in the capture", lambda: (rows := fields_of(file, from_sender, "frame.interface_name", "frame.comment")) and len(rows) == 3 and rows)
        expected = [["named7", text_of_counter(name)] for name in ("drop.unknown_qpn", "parse.icrc", "parse.header_length")]
        assert found == expected, f"{found}, and not {expected}"
        descriptions = {row[0] for row in fields_of(file, "frame", "frame.interface_description")}
        assert descriptions == {"port 1 of the RoCEv2 device named7, of kind udp"}, descriptions
        directions = {row[0] for row in fields_of(file, from_sender, "frame.packet_flags_direction")}
        assert directions <= {"1", "0x00000001"}, directions
    finally:
        server.kill()
        server.wait()


def main():
    missing = [name for name in ("tshark", "ibv_rc_pingpong") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        print(f"SKIPPED: needs root, tshark and ibv_rc_pingpong; missing: {missing}")
        return 77
    if "FAULTLINE_OWN_NETWORK" not in os.environ:
        os.environ["FAULTLINE_OWN_NETWORK"] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    for words in ("link set lo up", f"address add {DEVICE}/32 dev lo", f"address add {SENDER}/32 dev lo"):
        subprocess.run(["ip", *words.split()], check=True)
    with tempfile.TemporaryDirectory(prefix="faultline-capture-") as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        check(folder)
    print("tshark names the device, and says why each packet was dropped")
    return 0


sys.exit(main())
