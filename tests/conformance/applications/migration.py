#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""QEMU's live migration over RDMA, with TCG: one Linux guest, which changes its memory all the time, migrates between QEMUs.
After each migration both QEMUs' guest memory is compared byte for byte, and the guest checks its own writes (migration_guest.c).
  migration.py FAULTLINE_RUN
"""
import filecmp
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time

import harness
from harness import Failure

HERE = os.path.dirname(os.path.realpath(__file__))
GUEST_MIB = 192
PORT = 4444
# Ends a hang: emulated machines beside other work are ten times slower than alone.
HANG_SECONDS = 1200
KERNEL = "linux-image-cloud-amd64"


def kernel():
    """Debian's kernel for virtual machines, fetched as a package and unpacked, not installed."""
    root = "/var/cache" if os.environ[harness.INSIDE] == "root" else os.path.expanduser("~/.cache")
    cache = os.environ.get("FAULTLINE_PEER_CACHE", os.environ.get("XDG_CACHE_HOME", root) + "/faultline-peer") + "/linux-6.1"
    path = f"{cache}/vmlinuz"
    if os.path.exists(path):
        return path
    os.makedirs(cache, exist_ok=True)
    shown = subprocess.run(["apt-cache", "show", "--no-all-versions", KERNEL], capture_output=True, text=True).stdout
    real = re.search(r"^Depends:.*?(linux-image-6\.[^ ,]+)", shown, re.MULTILINE)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        if not real or not harness.networks.quietly("sh", "-c", 'cd "$0" && apt-get download "$1" && dpkg-deb -x *.deb tree', folder,
                                                 real.group(1)):
            harness.networks.skip(f"no {KERNEL} can be had")
        os.rename(glob.glob(f"{folder}/tree/boot/vmlinuz-*")[0], path)
    return path


def build_guest(session):
    """The kernel and an initramfs of one static program."""
    root = tempfile.mkdtemp(dir=session.folder)
    subprocess.run(["cc", "-O2", "-static", "-o", f"{root}/init", f"{HERE}/migration_guest.c"], check=True)
    subprocess.run(f"echo init | cpio --quiet -o -H newc > {session.folder}/initrd", shell=True, check=True, cwd=root)
    shutil.copy(kernel(), f"{session.folder}/vmlinuz")
    for name in ("initrd", "vmlinuz"):
        os.chmod(f"{session.folder}/{name}", 0o644)


class Machine:
    """A QEMU, at side a of the wire, or at b if the source of its migration is at a."""

    number = 0

    def __init__(self, session, source=None, incoming=None, shared=False):
        Machine.number += 1
        self.session, self.name = session, f"vm{Machine.number}"
        self.side = "b" if source and source.side == "a" else "a"
        self.address = harness.SERVER_IP if self.side == "a" else harness.CLIENT_IP
        work = f"{session.folder}/home"
        self.console = f"{work}/{self.name}.console"
        self.memory = f"{work}/{self.name}.memory"
        words = ["qemu-system-x86_64", "-machine", "pc,memory-backend=ram", "-accel", "tcg", "-cpu", "max", "-nodefaults", "-display", "none",
                 "-object", f"memory-backend-{'memfd' if shared else 'ram'},id=ram,size={GUEST_MIB}M,share={'on' if shared else 'off'}",
                 "-m", f"{GUEST_MIB}M", "-serial", f"file:{self.console}", "-qmp", f"unix:{work}/{self.name}.qmp,server=on,wait=off",
                 "-kernel", f"{session.folder}/vmlinuz", "-initrd", f"{session.folder}/initrd", "-append", "console=ttyS0 quiet panic=-1"]
        if incoming:
            # Paused at its end, so that its memory can be compared with the source's.
            words += ["-S", "-incoming", incoming.replace("HOST", self.address)]
        self.uri = (incoming or "").replace("HOST", self.address)
        self.process = session.launch(session.on_wire(self.side, *words))
        self.qmp = self.connect(f"{work}/{self.name}.qmp")
        self.lines = self.qmp.makefile("r")
        json.loads(self.lines.readline())
        self.ask("qmp_capabilities")

    def connect(self, path):
        """Connects to QEMU's own protocol as soon as QEMU listens."""
        qmp = socket.socket(socket.AF_UNIX)
        qmp.settimeout(HANG_SECONDS)
        until = time.monotonic() + HANG_SECONDS
        while True:
            try:
                qmp.connect(path)
                return qmp
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise Failure(f"QEMU did not start: {harness.last_line(self.session.output_of(self.process))}") from None
                time.sleep(0.1)

    def ask(self, command, **arguments):
        self.qmp.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
        while True:
            line = self.lines.readline()
            if not line:
                raise Failure(f"{self.name} ended: {harness.last_line(self.session.output_of(self.process))}")
            answer = json.loads(line)
            if "error" in answer:
                raise Failure(f"{command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]

    def passes(self):
        """The number of times that the guest has compared its memory here. Each comparison must have succeeded."""
        if not os.path.exists(self.console):
            return 0
        with open(self.console, errors="replace") as file:
            found = re.findall(r"guest: pass (\d+), (\d+) wrong", file.read())
        if any(wrong != "0" for _, wrong in found):
            raise Failure("the guest's memory is not what it wrote")
        return len(found)

    def await_passes(self, count):
        wanted = self.passes() + count
        until = time.monotonic() + HANG_SECONDS
        while self.passes() < wanted:
            if self.process.poll() is not None or time.monotonic() > until:
                raise Failure(f"the guest does not go on: {harness.last_line(self.session.output_of(self.process))}")
            time.sleep(0.2)

    def await_migration(self, *wanted):
        until = time.monotonic() + HANG_SECONDS
        while True:
            status = self.ask("query-migrate")
            if status.get("status") in wanted:
                return status
            if status.get("status") == "failed" or time.monotonic() > until:
                raise Failure(f"migration: {status.get('status')}: {status.get('error-desc', harness.last_line(self.session.output_of(self.process)))}")
            time.sleep(0.05)

    def save_memory(self):
        self.ask("pmemsave", val=0, size=GUEST_MIB << 20, filename=self.memory)

    def end(self):
        self.session.end(self.process)
        for path in (self.memory, self.console):
            if os.path.exists(path):
                os.remove(path)


def migrate(session, source, uri, pin_all=False, shared=False):
    """Migrates to a new QEMU; returns it and the figure."""
    target = Machine(session, source, uri, shared)
    if pin_all:
        for machine in (source, target):
            machine.ask("migrate-set-capabilities", capabilities=[{"capability": "rdma-pin-all", "state": True}])
    source.ask("migrate-set-parameters", **{"max-bandwidth": 1 << 34, "downtime-limit": 2000})
    source.ask("migrate", uri=target.uri)
    status = source.await_migration("completed")
    until = time.monotonic() + HANG_SECONDS
    while target.ask("query-status")["status"] == "inmigrate" and time.monotonic() < until:
        time.sleep(0.05)
    for machine in (source, target):
        machine.save_memory()
    if not filecmp.cmp(source.memory, target.memory, shallow=False):
        raise Failure("guest memory differs between source and destination")
    source.end()
    target.ask("cont")
    target.await_passes(2)
    return target, f"{status['total-time'] / 1000:.1f} s, downtime {status['downtime']} ms"


def cancel(session, source):
    """Cancels half-way: the destination ends, the source continues and can be migrated later."""
    target = Machine(session, source, f"rdma:HOST:{PORT}")
    source.ask("migrate-set-parameters", **{"max-bandwidth": 2 << 20})
    source.ask("migrate", uri=target.uri)
    until = time.monotonic() + HANG_SECONDS
    while source.ask("query-migrate").get("ram", {}).get("transferred", 0) < 2 << 20:
        if time.monotonic() > until:
            raise Failure("no memory was moved before the cancellation")
        time.sleep(0.05)
    source.ask("migrate_cancel")
    source.await_migration("cancelled")
    source.await_passes(2)
    session.wait(target.process, HANG_SECONDS)
    target.end()
    return "the source goes on, the destination ends"


def work(session):
    build_guest(session)
    chain = {}

    def boot():
        if not chain.get("machine"):
            chain["machine"] = Machine(session)
            chain["machine"].await_passes(3)
        return chain["machine"]

    cases = [("tcp", dict(uri=f"tcp:HOST:{PORT + 1}"), None), ("rdma", dict(uri=f"rdma:HOST:{PORT}"), None),
             ("rdma, memory shared by memfd", dict(uri=f"rdma:HOST:{PORT}", shared=True), None),
             ("rdma, rdma-pin-all", dict(uri=f"rdma:HOST:{PORT}", pin_all=True), None), ("rdma, cancelled half-way", {}, cancel),
             ("rdma, after that", dict(uri=f"rdma:HOST:{PORT}"), None)]
    beside = ""
    for name, options, special in cases:
        result, figure = "ok", ""
        try:
            source = boot()
            if special:
                figure = special(session, source)
            else:
                if options["uri"].startswith("tcp"):
                    options["uri"] = options["uri"].replace("HOST", "127.0.0.1")
                chain["machine"], figure = migrate(session, source, **options)
                if name == "tcp":
                    beside = figure
        except Failure as failure:
            result, figure = "FAILED", str(failure).replace("|", "/")
            for process in session.running[-2:]:
                print("    " + "\n    ".join(session.output_of(process).splitlines()[-10:]))
            chain.clear()
            session.end_all()
        session.row(result, f"QEMU live migration: {name}", figure, beside if special is None and name != "tcp" else "")


if __name__ == "__main__":
    harness.main(work, needs=["qemu-system-x86_64", "cpio", "cc"])
