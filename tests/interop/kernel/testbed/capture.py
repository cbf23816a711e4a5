# SPDX-License-Identifier: BSD-3-Clause
"""The traffic on the wire: captured by tcpdump in the namespace, decoded by tshark, as records."""
import collections
import os
import shutil
import signal
import socket
import struct
import subprocess

from condition import await_that
from networks import skip
from testbed import frames
from testbed.frame_filter import in_namespace

OPCODES = {
    "send_first": 0x00, "send_middle": 0x01, "send_last": 0x02, "send_last_imm": 0x03, "send": 0x04, "send_imm": 0x05,
    "write_first": 0x06, "write_middle": 0x07, "write_last": 0x08, "write_last_imm": 0x09, "write": 0x0a, "write_imm": 0x0b,
    "read": 0x0c, "response_first": 0x0d, "response_middle": 0x0e, "response_last": 0x0f, "response": 0x10,
    "acknowledge": 0x11, "atomic_acknowledge": 0x12, "compare_swap": 0x13, "fetch_add": 0x14,
    "send_last_inv": 0x16, "send_inv": 0x17, "flush": 0x1c, "atomic_write": 0x1d,
}
NAMES = {number: name for name, number in OPCODES.items()}
RESPONSES = {OPCODES[name] for name in NAMES.values() if name.startswith("response")}
ANSWERS = RESPONSES | {OPCODES["acknowledge"], OPCODES["atomic_acknowledge"]}

FIELDS = {
    "number": "frame.number", "time_s": "frame.time_epoch", "mac": "eth.src", "opcode": "infiniband.bth.opcode",
    "qpn": "infiniband.bth.destqp", "psn": "infiniband.bth.psn", "syndrome": "infiniband.aeth.syndrome",
    "va": "infiniband.reth.va", "length": "infiniband.reth.dmalen", "rkey": "infiniband.reth.r_key",
    "original": "infiniband.atomicacketh.origremdt", "malformed": "_ws.malformed",
}

# A frame of no protocol (IEEE's EtherType for experiments), behind all that a capture is to have.
LAST_WORDS = b"the capture ends here"
LAST_FRAME = b"\xff" * 6 + b"\x02FL\0\0\x99" + b"\x88\xb5" + LAST_WORDS.ljust(50, b".")


class Packet(collections.namedtuple("Packet", [*FIELDS, "roce"])):
    """One RoCEv2 frame. Numbers are as tshark prints them; roce: the frame's own bytes."""
    __slots__ = ()

    @property
    def name(self):
        return NAMES.get(self.opcode, f"{self.opcode:#x}")

    @property
    def is_request(self):
        return self.opcode not in ANSWERS

    @property
    def is_rnr_nak(self):
        return self.opcode == frames.ACKNOWLEDGE and self.syndrome >> 5 == 1

    @property
    def nak(self):
        """The code of a NAK, or None."""
        return self.syndrome & 31 if self.opcode == frames.ACKNOWLEDGE and self.syndrome >> 5 == 3 else None

    def __str__(self):
        answer = f" syndrome {self.syndrome:#x}" if self.syndrome is not None else ""
        reth = f" va {self.va:#x} length {self.length}" if self.va is not None else ""
        return f"{self.time_s:.6f} {self.mac[-2:]} {self.name} QP {self.qpn:#x} PSN {self.psn}{answer}{reth}"


def _number(text):
    return int(text, 0) if text else None


def require():
    """Skips the test if captures are not possible."""
    for tool in ("tcpdump", "tshark"):
        if not shutil.which(tool):
            skip(f"{tool} is not installed")


class Capture:
    """A context manager; read() ends the capture and returns the packets."""

    def __init__(self, testbed, interface="fl-link"):
        self.testbed, self.interface = testbed, interface
        self.path = f"{testbed.folder}/wire.pcap"

    def __enter__(self):
        self.program = self.testbed.inside("tcpdump", "-i", self.interface, "-n", "-s", "0", "-B", "16384", "-U", "-Z", "root",
                                           "--immediate-mode", "--time-stamp-precision=nano", "-w", self.path, "ether proto 0x88b5 or udp port 4791")
        if not self.program.await_output("listening on"):
            raise RuntimeError(f"tcpdump: {self.program.output}")
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.program.poll() is None:
            in_namespace(self.testbed.namespace, self._send_last_frame)
            if not await_that(lambda: self._has_all() or self.program.poll() is not None):
                raise RuntimeError("the last frame is not captured")
            self.program.signal(signal.SIGINT)
            self.program.wait()

    def _send_last_frame(self):
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as end:
            end.bind((self.interface, 0))
            end.send(LAST_FRAME)

    def _has_all(self):
        with open(self.path, "rb") as file:
            return LAST_WORDS in file.read()

    def _frames(self):
        with open(self.path, "rb") as file:
            order = "<" if struct.unpack("<I", file.read(24)[:4])[0] == 0xa1b23c4d else ">"
            while header := file.read(16):
                yield file.read(struct.unpack(f"{order}4I", header)[2])

    def read(self):
        self.stop()
        words = ["tshark", "-n", "-r", self.path, "-T", "fields", "-E", "separator=/t", "-E", "occurrence=f"]
        for field in FIELDS.values():
            words += ["-e", field]
        # Without the user's configuration of tshark.
        read = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=dict(os.environ, HOME=self.testbed.folder))
        if read.returncode != 0:
            raise RuntimeError(f"tshark: {read.stderr}")
        packets = []
        for line, frame in zip(read.stdout.splitlines(), self._frames(), strict=True):
            words = dict(zip(FIELDS, line.split("\t")))
            roce = frames.parse(frame)
            if roce is None or not words["opcode"]:
                continue
            known = {name: _number(words[name]) for name in FIELDS if name not in ("mac", "time_s", "malformed")}
            packets.append(Packet(**known, mac=words["mac"], time_s=float(words["time_s"]), malformed=bool(words["malformed"]),
                                  roce=roce))
        return packets
