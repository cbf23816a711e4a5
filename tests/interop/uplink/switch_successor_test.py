#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A switch that starts while its predecessor ends waits for the wire and for the exception port's tap. A switch without programs
takes its note with it.

  switch_successor_test.py FAULTLINE_SWITCH
"""
import fcntl
import os
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
SPACE = f"fl-next-{os.getpid()}"
TAP = "fl0"


class Lab:
    def __init__(self, switch, folder):
        self.switch, self.folder = switch, folder
        self.started = []
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=folder)
        lib.on_exit(self.end)

    def start(self, *arguments, before=()):
        path = f"{self.folder}/{len(self.started)}.out"
        with open(path, "wb") as file:
            process = subprocess.Popen([*before, self.switch, "--wire", "w0", "--log", "info", *arguments], env=self.environment, stdout=file,
                                       stderr=subprocess.STDOUT)
        process.path = path
        self.started.append(process)
        return process

    def await_serving(self, process):
        """Until this process answers on the wire."""
        def serves():
            asked = subprocess.run([self.switch, "--status", "w0"], env=self.environment, capture_output=True, text=True, timeout=lib.LIMIT_S,
                                   check=False)
            return f"process {process.pid}:" in asked.stdout
        lib.await_that(serves, lambda: f"the switch serves the wire: {output(process)}", process)

    def end(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()


def output(process):
    with open(process.path, encoding="utf-8") as file:
        return file.read()


def await_text(process, text):
    lib.await_that(lambda: text in output(process), lambda: f"{text}: {output(process)}", process)


def replaces_one_that_ends(lab):
    first = lab.start()
    lab.await_serving(first)
    second = lab.start()
    await_text(second, f"waits for the switch of wire w0, process {first.pid}, to end")
    first.terminate()
    assert first.wait(timeout=lib.LIMIT_S) == 0, output(first)
    lab.await_serving(second)
    third = lab.start()
    assert third.wait(timeout=lib.LIMIT_S) == 1, output(third)
    assert "wire w0 has a switch already" in output(third), output(third)
    lab.await_serving(second)
    second.terminate()
    assert second.wait(timeout=lib.LIMIT_S) == 0, output(second)
    return "a new switch waits for one that ends, and gives way to one that stays"


def note_without_programs(lab):
    uplink = ["--uplink", f"vhost:{lab.folder}/vm.sock"]
    note = f"{lab.folder}/faultline/w0.uplink"
    for number in (signal.SIGTERM, signal.SIGINT):
        switch = lab.start(*uplink)
        lab.await_serving(switch)
        assert os.path.exists(note), os.listdir(lab.folder)
        switch.send_signal(number)
        assert switch.wait(timeout=lib.LIMIT_S) == 0, output(switch)
        assert not os.path.exists(note), f"after signal {number}"
    killed = lab.start(*uplink)
    lab.await_serving(killed)
    killed.kill()
    killed.wait()
    assert os.path.exists(note), "after SIGKILL"
    return "without programs, SIGTERM and SIGINT remove the note, and SIGKILL does not"


def hold_tap():
    """Has the tap from now on, as a switch; returns the descriptor."""
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", TAP.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def waits_for_tap(lab):
    holder = subprocess.Popen(["ip", "netns", "exec", SPACE, sys.executable, __file__, "--hold-tap"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "holds\n"
        words = ["--uplink", f"vhost:{lab.folder}/vm.sock", "--ip", "198.18.9.1/24", "--exception", f"tap:{TAP}"]
        switch = lab.start(*words, before=["ip", "netns", "exec", SPACE])
        await_text(switch, f"waits for the tap {TAP}")
    finally:
        holder.communicate("")
    lab.await_serving(switch)
    return "a new switch waits for the tap of one that ends"


def main():
    if sys.argv[1] == "--hold-tap":
        hold_tap()
        print("holds", flush=True)
        sys.stdin.read()
        return 0
    cases = [replaces_one_that_ends, note_without_programs]
    if os.geteuid() == 0 and os.path.exists("/dev/net/tun"):
        lib.call(["ip", "netns", "add", SPACE])
        lib.on_exit(lib.call, ["ip", "netns", "del", SPACE], None)
        cases.append(waits_for_tap)
    else:
        print("left out: the exception port's tap needs root and /dev/net/tun")
    failed = 0
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o700)
            lab = Lab(sys.argv[1], folder)
            try:
                print("ok:", case(lab), flush=True)
            except AssertionError as error:
                failed += 1
                print(f"FAILED: {case.__name__}: {error}", flush=True)
            finally:
                lab.end()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
