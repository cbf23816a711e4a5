#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Strangers at a memif server's socket send it messages of any kind, with descriptors and without, and say nothing at all: it lives,
keeps none of the descriptors, and an honest client has its link afterwards.
  memif_fuzz_test.py DEVICE_HOST
"""
import array
import os
import random
import socket
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests
import lib  # noqa: E402

device_host = sys.argv[1]
folder = lib.own_runtime_folder()
path = f"{folder}/m.sock"
random.seed(3)
connections = 20_000 if os.environ.get("FAULTLINE_SOAK") else 300
ACK, HELLO, INIT, ADD_REGION, ADD_RING, CONNECT, CONNECTED, DISCONNECT = range(1, 9)


def start(role, *options):
    number = 1 if role == "server" else 2
    with open(f"{folder}/{role}.toml", "w") as config:
        config.write(f'[[device]]\nname = "d"\nip = "198.18.0.{number}/24"\n[device.port]\nkind = "memif"\nrole = "{role}"\n'
                     f'socket = "{path}"\n')
    return lib.start([device_host, "--config", config.name, "--device", "d", *options], name=role)


def memory(size, sealed):
    descriptor = os.memfd_create("region", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    if sealed:
        import fcntl
        fcntl.fcntl(descriptor, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK
    os.ftruncate(descriptor, size)
    return descriptor


def body_of(kind):
    pick = random.choice
    if kind == INIT:
        return struct.pack("<HIB", pick((0x200, 0x200, 0x200, 0x100)), pick((0, 0, 0, 1)), pick((0, 0, 0, 1)))
    if kind == ADD_REGION:
        return struct.pack("<HQ", pick((0, 0, 0, 1, 255, 65535)), pick((4096, 1 << 20, 1 << 20, 0, random.getrandbits(64))))
    if kind == ADD_RING:
        return struct.pack("<HHHIBH", pick((0, 1)), pick((0, 0, 0, 1, 65535)), pick((0, 0, 0, 1, 65535)),
                           pick((0, 0, 4096, 1 << 20, random.getrandbits(32))), pick((5, 5, 10, 0, 14, 15, 31, 255)), 0)
    return os.urandom(random.randrange(0, 120))


def stranger():
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.settimeout(5)
    try:
        peer.connect(path)
    except OSError:
        return None
    in_order = [INIT, ADD_REGION, ADD_RING, ADD_RING, CONNECT, CONNECT]
    for step in range(random.randrange(0, 9)):
        kind = in_order[min(step, 5)] if random.random() < 0.8 else random.choice([*range(1, 9), random.getrandbits(16)])
        message = (struct.pack("<H", kind) + body_of(kind))[:128].ljust(128, b"\0")
        if random.random() < 0.05:
            message = message[:random.randrange(1, 128)]
        brings = kind in (ADD_REGION, ADD_RING) if random.random() < 0.9 else random.random() < 0.5
        descriptors = [memory(1 << 20, random.random() < 0.8) for _ in range(random.choice((1, 1, 1, 2)) if brings else 0)]
        try:
            if step != 0 or random.random() < 0.5:
                peer.settimeout(0.02)
                peer.recv(128)
        except OSError:
            pass
        try:
            peer.settimeout(5)
            peer.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else [])
        except OSError:
            break
        finally:
            for descriptor in descriptors:
                # What was shared may be taken away again.
                try:
                    os.ftruncate(descriptor, 0)
                except OSError:
                    pass
                os.close(descriptor)
    return peer


def count(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


server = start("server", "--stay")
lib.await_line(server, "^open")
before = count(server)
silent = []
for _ in range(connections):
    peer = stranger()
    lib.expect(server.poll() is None, "the server lives")
    if peer is None:
        continue
    if random.random() < 0.2:
        silent.append(peer)
    else:
        peer.close()
lib.await_that(lambda: count(server) <= before + 60, lambda: f"{count(server)} descriptors, {before} at first, and {len(silent)} connections", server)
for peer in silent:
    peer.close()
lib.await_that(lambda: count(server) <= before, lambda: f"{count(server)} descriptors are left, {before} at first", server)
client = start("client", "--wait-link", "--resolve", "198.18.0.1")
lib.expect(client.wait() == 0, "an honest client has a link")
lib.expect(server.poll() is None, "the server lives")
print(f"ok: {connections} connections")
