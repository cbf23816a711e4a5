# SPDX-License-Identifier: BSD-3-Clause
"""Two network namespaces, joined by a veth pair, are two hosts. In each, a switch owns the veth (af_packet) in a VLAN, and
the kernel has the host's address on the exception port."""
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402

SPACES = [f"fl-up-{os.getpid()}-{side}" for side in "ab"]
VETHS = [f"v{os.getpid()}{side}" for side in "ab"]
HOSTS = ["198.18.9.1", "198.18.9.2"]
EXCEPTION = "fl0"

CONFIG = """[switch]
exception = "{tap}"
[[device]]
name = "nic"
ip = "{ip}/24"
vlan = 7
[device.port]
kind = "af_packet"
interface = "{veth}"
"""


def sh(*command, check=True):
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=lib.LIMIT_S)


def has_sent(status, process):
    """Whether the process is in the midst of a run: its own seat, of the switch with this status, has sent frames. Other programs' frames say
    nothing about it."""
    return any(seat["pid"] == process.pid and seat["sent_frames"] > 1000 for seat in status["seats"])


def end_run(client):
    """Ends a run of perftest's option -D as its time does: by SIGALRM, which ends the start, the measured part and the rest.
    Before its run has begun, the signal kills perftest: see has_sent()."""
    def ended():
        client.send_signal(signal.SIGALRM)
        return client.poll() is not None
    lib.await_that(ended, "a run of perftest ends")


class Lab:
    def __init__(self, folder, faultline_run):
        self.folder = folder
        self.faultline_run = faultline_run
        self.switch = os.path.join(os.path.dirname(faultline_run), "faultline-switch")
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=folder)
        self.spaces = list(SPACES)
        self.started = []
        lib.on_exit(self.end)

    def make(self):
        for space in SPACES:
            sh("ip", "netns", "add", space)
        sh("ip", "link", "add", VETHS[0], "netns", SPACES[0], "type", "veth", "peer", "name", VETHS[1], "netns", SPACES[1])
        for space, veth in zip(SPACES, VETHS):
            # af_packet leaves the interface to the kernel too, which must not take part.
            sh("ip", "netns", "exec", space, "sysctl", "-qw", f"net.ipv6.conf.{veth}.disable_ipv6=1")
            sh("ip", "-n", space, "link", "set", veth, "up", "mtu", "4000")
            sh("ip", "-n", space, "link", "set", "lo", "up")

    def start(self, name, side, *command, **options):
        with open(os.path.join(self.folder, name + ".out"), "a", encoding="utf-8") as file:
            process = subprocess.Popen(["ip", "netns", "exec", SPACES[side], *command], env=self.environment, stdout=file,
                                       stderr=subprocess.STDOUT, **options)
        self.started.append(process)
        return process

    def output(self, name):
        with open(os.path.join(self.folder, name + ".out"), encoding="utf-8") as file:
            return file.read()

    def start_switch(self, side, *arguments):
        """Starts the switch with the host's address on the exception port."""
        path = os.path.join(self.folder, f"{side}.toml")
        with open(path, "w", encoding="ascii") as file:
            file.write(CONFIG.format(tap=EXCEPTION, ip=HOSTS[side], veth=VETHS[side]))
        process = self.start(f"switch{side}", side, self.switch, "--wire", f"up{side}", "--config", path, "--log", "info",
                             *arguments)
        # The socket of a switch that was killed is there before.
        lib.await_that(lambda: self.ask(side).returncode == 0, "the switch starts", process)
        sh("ip", "-n", SPACES[side], "addr", "replace", HOSTS[side] + "/24", "dev", EXCEPTION)
        return process

    def ask(self, side, *arguments):
        return sh("env", f"XDG_RUNTIME_DIR={self.folder}", self.switch, "--status", f"up{side}", *arguments, check=False)

    def status(self, side):
        return json.loads(self.ask(side, "--json").stdout)

    def perftest(self, name, side, *arguments):
        return self.start(name, side, self.faultline_run, "--wire", f"up{side}", "--no-wire-sockets", "--", *arguments)

    def await_listener(self, port):
        """Waits until the program that was started last listens at the TCP port."""
        lib.await_port(port, self.started[-1])

    def await_cm_listener(self, side, process):
        """Waits until a program of the side's wire listens for connections of rdma_cm. The program lists its own device, so it runs in the
        side's namespace and runtime folder."""
        def listening():
            asked = sh("ip", "netns", "exec", SPACES[side], "env", f"XDG_RUNTIME_DIR={self.folder}", self.faultline_run, "--wire", f"up{side}",
                       "--no-wire-sockets", "--", "rdma", "-j", "res", "show", "cm_id", check=False)
            return asked.returncode == 0 and asked.stdout.strip() and \
                any(one.get("pid") == process.pid and one.get("state") == "LISTEN" for one in json.loads(asked.stdout))
        lib.await_that(listening, "a program listens for rdma_cm", process)

    def end(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
        for space in self.spaces:
            sh("ip", "netns", "del", space, check=False)
        self.started, self.spaces = [], []


def run_in_lab(run, faultline_run):
    """Calls run(lab); returns the exit status."""
    lib.need_root("for network namespaces")
    lib.need("ib_write_bw", "ip", "ping", "rdma")
    if not os.path.exists("/dev/net/tun"):
        lib.skip("there is no /dev/net/tun")
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(folder, faultline_run)
        try:
            run(lab)
        except BaseException as error:
            if not isinstance(error, SystemExit) or error.code:
                print(f"FAILED: {error}", getattr(error, "stderr", ""))
                for name in sorted(os.listdir(folder)):
                    if name.endswith(".out"):
                        print(f"--- {name}: {lab.output(name[:-4])[-600:]}", flush=True)
            raise
        finally:
            lab.end()
    return 0
