#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tgt's iSER target with libiscsi's initiator: its tools, and qemu-img and qemu-io on a disk whose data is compared.
tgt admits an initiator only if the target is bound to an initiator's address (-I) and name (-Q). Requests stay within 256 KiB:
libiscsi 1.19 has data buffers of that size (DATA_BUFFER_SIZE), and drops the error of a larger request.
  iser.py FAULTLINE_RUN
"""
import filecmp
import os
import re
import time

import harness
from harness import Failure

RUN_SECONDS = 120
TARGET = "iqn.2026-11.test.faultline:disk"
INITIATOR = "iqn.2026-11.test.faultline:host"
DISK_MIB = 64
REQUEST_BYTES = 128 << 10


def administer(session, *words):
    # Also on the wire: tgtadm reaches tgtd only through a socket in /var/run.
    return session.finish(["tgtadm", "--lld", session.lld, *words], 30)


def serve(session, lld):
    """A tgtd with one disk; the disk's URL."""
    session.lld = lld
    disk = f"{session.folder}/home/disk"
    with open(disk, "wb") as file:
        file.truncate(DISK_MIB << 20)
    words = ["tgtd", "-f", "--iscsi", f"portal={harness.SERVER_IP if lld == 'iser' else '127.0.0.1'}:3260"]
    session.tgtd = session.launch(session.on_wire("a", *words) if lld == "iser" else words)
    until = time.monotonic() + 30
    while True:
        try:
            administer(session, "--op", "new", "--mode", "target", "--tid", 1, "-T", TARGET)
            break
        except Failure:
            if session.tgtd.poll() is not None or time.monotonic() > until:
                raise Failure(f"tgtd is not ready: {harness.last_line(session.output_of(session.tgtd))}") from None
            time.sleep(0.2)
    administer(session, "--op", "new", "--mode", "logicalunit", "--tid", 1, "--lun", 1, "-b", disk)
    administer(session, "--op", "bind", "--mode", "target", "--tid", 1, "-I", "ALL")
    administer(session, "--op", "bind", "--mode", "target", "--tid", 1, "-Q", INITIATOR)
    host = harness.SERVER_IP if lld == "iser" else "127.0.0.1"
    return f"{'iser' if lld == 'iser' else 'iscsi'}://{host}:3260/{TARGET}/1"


def client(session, *words, good=(0,)):
    return session.finish(session.on_wire("b", *words) if session.lld == "iser" else words, RUN_SECONDS, good)


def options_of(url):
    """QEMU's options for such a disk."""
    kind, host = re.match(r"(\w+)://([\d.]+)", url).groups()
    return (f"driver=iscsi,transport={'iser' if kind == 'iser' else 'tcp'},portal={host}:3260,target={TARGET},lun=1,"
            f"initiator-name={INITIATOR}")


def limited(url):
    """The same with no request of more than REQUEST_BYTES."""
    return f"driver=blkdebug,max-transfer={REQUEST_BYTES}," + ",".join("image." + option for option in options_of(url).split(","))


def inquire(session, url):
    text = client(session, "iscsi-inq", "-i", INITIATOR, url)
    if "Vendor:IET" not in text:
        raise Failure(f"iscsi-inq: {harness.last_line(text)}")
    text = client(session, "iscsi-readcapacity16", "-i", INITIATOR, url)
    blocks = re.search(r"RETURNED LOGICAL BLOCK ADDRESS:(\d+)", text)
    if not blocks or (int(blocks.group(1)) + 1) * 512 != DISK_MIB << 20:
        raise Failure(f"iscsi-readcapacity16: {harness.last_line(text)}")
    return f"{DISK_MIB} MiB"


def copy(session, url):
    """Copies a random image to the disk and back; compares it on the server's side and on the client's."""
    folder = f"{session.folder}/home"
    with open(f"{folder}/sent", "wb") as file:
        file.write(os.urandom(DISK_MIB << 20))
    began = time.monotonic()
    client(session, "qemu-img", "convert", "-n", "-S", "0", "-m", 1, "-f", "raw", "--target-image-opts", f"{folder}/sent", limited(url))
    written = time.monotonic()
    client(session, "qemu-img", "convert", "-m", 1, "-O", "raw", "--image-opts", limited(url), f"{folder}/copied")
    read = time.monotonic()
    for name in ("disk", "copied"):
        if not filecmp.cmp(f"{folder}/sent", f"{folder}/{name}", shallow=False):
            raise Failure(f"{name} differs from what was sent")
    return f"write {written - began:.1f} s, read {read - written:.1f} s"


def patterns(session, url):
    text = client(session, "qemu-io", "--image-opts", options_of(url), "-c", "write -P 0x5a 0 256k", "-c", "write -P 0xa5 1M 64k",
                  "-c", "read -P 0x5a 0 256k", "-c", "read -P 0xa5 1M 64k", "-c", "flush")
    if "failed" in text.lower() or text.count("read 262144/262144") != 1:
        raise Failure(f"qemu-io: {harness.last_line(text)}")
    return ""


def bench(session, url, *words):
    text = client(session, "qemu-img", "bench", "-t", "none", "--image-opts", *words, options_of(url))
    return re.search(r"completed in ([\d.]+) seconds", text).group(1) + " s"


def work(session):
    cases = [("iscsi-inq, iscsi-readcapacity16", inquire), ("qemu-io with patterns", patterns),
             ("qemu-img convert, 64 MiB there and back", copy),
             ("qemu-img bench -w -s 64k -d 16 -c 1000", lambda session, url: bench(session, url, "-w", "-s", "64k", "-d", "16", "-c", "1000")),
             ("qemu-img bench -s 64k -d 16 -c 1000", lambda session, url: bench(session, url, "-s", "64k", "-d", "16", "-c", "1000")),
             ("qemu-img bench -s 4k -d 1 -c 1000", lambda session, url: bench(session, url, "-s", "4k", "-d", "1", "-c", "1000"))]
    for name, case in cases:
        def run():
            output = case(session, serve(session, "iser"))
            session.end_all()
            beside = case(session, serve(session, "iscsi"))
            return output, f"iSCSI {beside}" if beside else ""
        session.attempt(f"tgt iSER: {name}", run, "trick")

    def unlimited():
        url = serve(session, "iser")
        image = f"{session.folder}/home/zeros"
        with open(image, "wb") as file:
            file.truncate(4 << 20)
        client(session, "qemu-img", "convert", "-n", "-S", "0", "-m", 1, "-f", "raw", "--target-image-opts", image, options_of(url))
    session.fails_by_itself("tgt iSER: qemu-img convert, requests of 2 MiB", "error while writing.*Cannot allocate memory", unlimited)


if __name__ == "__main__":
    harness.main(work, needs=["tgtd", "tgtadm", "iscsi-inq", "qemu-img", "qemu-io"], privileged=True)
