# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts in one guest of the NIC lab: two network namespaces. In each, a switch owns a NIC by vfio-pci, programs share the host's
address, and the kernel has it on the exception port."""
import json
import re
import shlex
import time

from rows import HANG_S, tail

HOSTS = ("198.18.9.1", "198.18.9.2")
EXCEPTION = "fl0"
TALK_PORT = 7100
# Between two looks, each of which takes the CPUs of an emulated machine from what it looks at.
PAUSE_S = 0.5

# Answers with what it receives.
ECHO = """
import socket
with socket.create_server(("{ip}", {port})) as server:
    peer = server.accept()[0]
    while data := peer.recv(65536):
        peer.sendall(data)
"""

# Sends messages and compares the answers, until the file named "talk" is gone.
ASK = """
import os, socket, time
peer = socket.create_connection(("{ip}", {port}))
print("connected", flush=True)
count = 0
while os.path.exists("{folder}/talk"):
    message = os.urandom(4096)
    peer.sendall(message)
    answer = b""
    while len(answer) < len(message):
        answer += peer.recv(65536)
    assert answer == message
    count += 1
    if count % 10 == 0:
        print("answers", count, flush=True)
    time.sleep(0.01)
print("answers", count, flush=True)
print("end", flush=True)
"""


class TwoHosts:
    """A context manager. Its processes are the lab's, which ends them."""

    def __init__(self, lab, *switch_arguments):
        self.lab, self.guest = lab, lab.guest
        self.switch_arguments = switch_arguments
        self.switches = [None, None]

    def __enter__(self):
        for side in (0, 1):
            self.guest.check("sh", "-ec", f"ip netns add host{side}; ip -n host{side} link set lo up")
            self.start_switch(side)
        return self

    def __exit__(self, *_):
        if self.guest.gone:
            return
        # The taps of dead switches end with their namespaces.
        self.lab.end()
        self.guest.run(["sh", "-c", f"ip netns del host0; ip netns del host1; rm -f {self.lab.folder}/*.uplink {self.lab.folder}/talk"])

    def within(self, side, *argv):
        return ["ip", "netns", "exec", f"host{side}", "env", f"XDG_RUNTIME_DIR={self.lab.folder}", *argv]

    # ---- the switch ----

    def switch_words(self, side):
        return self.within(side, f"{self.lab.apps}/faultline-switch", "--wire", f"up{side}", "--uplink", f"pci:{self.lab.addresses[side]}", "--ip",
                           f"{HOSTS[side]}/24", "--exception", f"tap:{EXCEPTION}", "--log", "info", *self.switch_arguments)

    def start_switch(self, side, before=""):
        """`before`: words of a shell that run immediately before the switch starts."""
        words = self.switch_words(side)
        self.switches[side] = self.lab.popen(["sh", "-c", f"{before} exec {shlex.join(words)}"])
        self.await_switch(side)

    def await_switch(self, side):
        switch = self.switches[side]
        await_true(lambda: switch.poll() is not None or self.ask(side).returncode == 0, "the switch starts")
        if switch.poll() is not None:
            raise RuntimeError(f"the switch of host {side} ended with status {switch.returncode}: {tail(switch)}")
        self.guest.check(*self.within(side, "ip", "addr", "replace", f"{HOSTS[side]}/24", "dev", EXCEPTION))

    def replace_switch(self, side, number):
        """Sends the signal to the switch, and starts a new one with the same options at once."""
        old, pid = self.switches[side], self.status(side)["pid"]
        self.start_switch(side, before=f"kill -{int(number)} {pid};")
        old.wait(HANG_S)
        if self.status(side)["pid"] == pid:
            raise RuntimeError("the old switch answers")

    def ask(self, side, *arguments):
        return self.guest.run(self.within(side, f"{self.lab.apps}/faultline-switch", "--status", f"up{side}", *arguments))

    def status(self, side):
        asked = self.ask(side, "--json")
        if asked.returncode != 0:
            raise RuntimeError(f"no status: {asked.output}")
        return json.loads(asked.output)

    def seats(self, side):
        return sorted((seat["pid"], seat["seat"], seat["ip"], seat["first_qpn"]) for seat in self.status(side)["seats"])

    # ---- programs ----

    def program(self, side, *argv):
        """A program on the host's wire. Its process id is its first line."""
        words = self.within(side, f"{self.lab.apps}/faultline-run", "--wire", f"up{side}", "--no-wire-sockets", "--", *argv)
        return self.lab.popen(["sh", "-c", f"echo pid $$; exec {shlex.join(words)}"])

    def await_listener(self, side, port, process):
        look = self.within(side, "grep", "-qih", f":{port:04X} 0*:0000 0A", "/proc/net/tcp", "/proc/net/tcp6")
        await_true(lambda: process.poll() is not None or self.guest.run(look).returncode == 0, f"port {port} listens")
        if process.poll() is not None:
            raise RuntimeError(f"no server: {tail(process)}")

    def writes(self, index, words):
        """ib_write_bw from host 1 to host 0; returns server and client."""
        port = 18600 + index
        command = ["ib_write_bw", "-F", "--report_gbits", "-u", "20", "-p", str(port), *words.split()]
        server = self.program(0, *command)
        self.await_listener(0, port, server)
        return server, self.program(1, *command, HOSTS[0])

    # ---- TCP of the two kernels ----

    def begin_talk(self):
        """Starts a TCP connection through both exception ports, whose bytes are compared."""
        for name, text in (("echo", ECHO), ("ask", ASK)):
            self.guest.write(f"{self.lab.folder}/{name}.py", text.format(ip=HOSTS[0], port=TALK_PORT, folder=self.lab.folder))
        self.guest.check("touch", f"{self.lab.folder}/talk")
        echo = self.lab.popen(self.within(0, "python3", f"{self.lab.folder}/echo.py"))
        self.await_listener(0, TALK_PORT, echo)
        self.talk = self.lab.popen(self.within(1, "python3", f"{self.lab.folder}/ask.py"))
        if not self.talk.await_output("connected", HANG_S):
            raise RuntimeError(f"TCP does not connect through the exception port: {tail(self.talk)}")

    def answers(self):
        numbers = re.findall(r"answers (\d+)", self.talk.output)
        return int(numbers[-1]) if numbers else 0

    def end_talk(self):
        """Returns the number of right answers."""
        self.guest.check("rm", "-f", f"{self.lab.folder}/talk")
        if self.talk.wait(HANG_S) != 0 or "end" not in self.talk.output:
            raise RuntimeError(f"TCP: {tail(self.talk)}")
        return self.answers()


def pid_of(process):
    if not process.await_output("\n", HANG_S):
        raise RuntimeError(f"no process: {tail(process)}")
    return int(re.match(r"pid (\d+)", process.output).group(1))


def is_true(condition):
    """Whether the condition becomes true in time."""
    until = time.monotonic() + HANG_S
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(PAUSE_S)
    return True


def await_true(condition, what):
    if not is_true(condition):
        raise RuntimeError(f"waited in vain: {what}")
