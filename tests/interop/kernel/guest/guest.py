# SPDX-License-Identifier: BSD-3-Clause
"""A Linux guest under QEMU, and commands in it through agent.py."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.realpath(f"{os.path.dirname(os.path.realpath(__file__))}/../../.."))  # tests
from lib import LIMIT_S, skip  # noqa: E402,F401  (for the lanes)

# /dev/kvm may exist and not work, as in nested machines: a user whose KVM works can select it.
ACCELERATOR = os.environ.get("FAULTLINE_PEER_ACCEL", "tcg,thread=multi,tb-size=128")
BOOTS = 3  # at most
# Ends a hang, and is no bound of anything else: an emulated machine beside other work is ten times slower than alone.
HANG_S = 4 * LIMIT_S
# (name, end of the console) of each guest of this process that ended before it was stopped.
ended_by_themselves = []


class GuestProcess:
    """A command that runs in the guest."""

    def __init__(self, guest, number, argv):
        self.guest, self.number, self.argv = guest, number, argv
        self.output = ""
        self.returncode = None

    def poll(self):
        return self.returncode

    def wait(self, timeout_s=HANG_S):
        """Its status, negative for a signal; raises TimeoutExpired."""
        with self.guest.changed:
            if not self.guest.changed.wait_for(lambda: self.returncode is not None or self.guest.gone, timeout_s):
                raise subprocess.TimeoutExpired(self.argv, timeout_s)
        if self.returncode is None:
            raise ConnectionError("the guest is gone")
        return self.returncode

    def await_output(self, text, timeout_s=HANG_S):
        """Whether the output has that text in time, and before the command ends."""
        with self.guest.changed:
            self.guest.changed.wait_for(lambda: text in self.output or self.returncode is not None or self.guest.gone, timeout_s)
        return text in self.output

    def signal(self, number=signal.SIGTERM):
        try:
            self.guest.send(id=self.number, signal=int(number))
        except BrokenPipeError:
            if self.guest.machine.poll() is None:
                raise


class Guest:
    """start() boots it; also a context manager. A class of a guest has _boot(), which calls launch() with QEMU's words."""

    program = "qemu-system-x86_64"

    def __init__(self, name):
        self.name = name
        self.machine = None
        self.changed = threading.Condition()
        self.folder = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        self.folder = tempfile.mkdtemp(prefix="fl-guest-")
        self._begin()
        try:
            self._boot()
        except BaseException:
            self.stop()
            raise

    def _begin(self):
        # A thread that still reads from the last machine ends by itself, and reports nothing of this one.
        self.boot = object()
        self.running, self.count, self.gone, self.release, self.fault = {}, 0, False, None, None

    def launch(self, before, words):
        """Boots QEMU with these words and the agent's port; `before`: the words before the program's name. A kernel that panics while it
        boots is booted again: an emulated CPU may execute an int3 that the kernel has replaced already (static_call, jump labels)."""
        for _ in range(BOOTS):
            self._launch(before, words)
            if self.release:
                return
            with open(f"{self.folder}/qemu.out", errors="replace") as file:
                data = file.read()
            fault = f"{self.name} did not come up: {self.fault or ''}\n{data[-1000:]}\n{self.console()[-2000:]}"
            if "Kernel panic" not in self.console():
                break
            print(f"{self.name}: the kernel panicked while it booted", flush=True)
            self._end_machine()
            os.unlink(f"{self.folder}/agent")
            self._begin()
        raise RuntimeError(fault)

    def _launch(self, before, words):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{self.folder}/agent")
        listener.listen(1)
        with open(f"{self.folder}/qemu.out", "wb") as output_file:
            self.machine = subprocess.Popen(
                [*before, self.program, "-name", self.name, "-accel", ACCELERATOR, "-cpu", "max", "-nodefaults", "-no-user-config",
                 "-display", "none", "-no-reboot", "-serial", f"file:{self.folder}/console", "-device", "virtio-rng-pci",
                 "-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,path={self.folder}/agent",
                 "-device", "virtserialport,chardev=agent,name=faultline.agent", *words],
                stdin=subprocess.DEVNULL, stdout=output_file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            self.channel = self._accept(listener)
        finally:
            listener.close()
        threading.Thread(target=self._receive, args=(self.channel, self.boot), daemon=True).start()
        with self.changed:
            self.changed.wait_for(lambda: self.release or self.fault or self.gone, HANG_S)

    def _accept(self, listener):
        """The connection of QEMU; it comes soon, unless QEMU ends or waits for a back end."""
        listener.settimeout(1)
        until = time.monotonic() + HANG_S
        while True:
            try:
                return listener.accept()[0]
            except TimeoutError:
                if self.machine.poll() is not None or time.monotonic() > until:
                    with open(f"{self.folder}/qemu.out", errors="replace") as file:
                        raise RuntimeError(f"{self.name}: QEMU does not start: {file.read()[-1000:]}") from None

    def _receive(self, channel, boot):
        try:
            for line in channel.makefile("rb"):
                words = json.loads(line)
                with self.changed:
                    if boot is not self.boot:
                        return
                    process = self.running.get(words.get("id"))
                    if process and "out" in words:
                        process.output += words["out"]
                    elif process:
                        process.returncode = words["status"]
                        del self.running[process.number]
                    self.release = words.get("ready", self.release)
                    self.fault = words.get("fault", self.fault)
                    self.changed.notify_all()
        except (OSError, ValueError):
            pass
        with self.changed:
            if boot is self.boot:
                self.gone = True
            self.changed.notify_all()

    def send(self, **words):
        with self.changed:
            self.channel.sendall(json.dumps(words).encode() + b"\n")

    def popen(self, argv):
        with self.changed:
            self.count += 1
            process = self.running[self.count] = GuestProcess(self, self.count, argv)
        self.send(id=process.number, argv=argv)
        return process

    def run(self, argv, timeout_s=HANG_S):
        """The ended command. If it takes longer, its session is killed, and TimeoutExpired raised."""
        process = self.popen(argv)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.signal(signal.SIGKILL)
            raise
        return process

    def check(self, *argv):
        """The command's output; the command must succeed."""
        process = self.run(list(argv))
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)}: status {process.returncode}: {process.output}")
        return process.output

    def await_listener(self, port, process=None, timeout_s=HANG_S):
        """Whether a program in the guest accepts TCP connections there; False if the process ends before."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until and not self.gone and (process is None or process.poll() is None):
            if self.run(["grep", "-qih", f":{port:04X} 0*:0000 0A", "/proc/net/tcp", "/proc/net/tcp6"]).returncode == 0:
                return True
        return False

    def console(self):
        try:
            with open(f"{self.folder}/console", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def _end_machine(self):
        if self.machine:
            if self.release and self.machine.poll() is not None:
                ended_by_themselves.append((self.name, self.console()[-1500:]))
            self.machine.kill()
            self.machine.wait()
            self.machine = None

    def stop(self):
        """Like a power cut. A second call has no effect."""
        self._end_machine()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
