# SPDX-License-Identifier: BSD-3-Clause
"""The network of the kernel peer and a Faultline device: a network namespace with a bridge.

    198.18.0.1  2001:2::1   the bridge itself: TCP of programs at Faultline's end, which exchange the parameters of their QPs
    198.18.0.2  2001:2::2   the peer's eth0 and rxe0
    198.18.0.3  2001:2::3   faultline0, on the other end of a veth pair or on a tap
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

# The folder of the lanes and of the programs that they run at both ends.
HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
sys.path.insert(0, f"{HERE}/../../conformance")
from networks import skip  # noqa: E402
from guest import peer as kernel_peer  # noqa: E402

# A path MTU of 4096 needs 4200 on the link.
LINK_MTU_BYTES = 4200
OUR_ADDRESSES = {4: "198.18.0.3", 6: "2001:2::3"}
PEER_ADDRESSES = {4: "198.18.0.2", 6: "2001:2::2"}
# Indices of these GIDs in each device's table. 0 of rxe0 is link-local, as is 2 of faultline0.
OUR_GIDS = {4: 0, 6: 1}
PEER_GIDS = {4: 1, 6: 2}
BRIDGE = {4: "198.18.0.1", 6: "2001:2::1"}


def end(*_):
    """A process that a signal ends still cleans up. A second signal does not prevent this: timeout(1) sends two."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


class HostProcess:
    """A program at Faultline's end; its output is kept. It has the same methods as peer.GuestProcess."""

    def __init__(self, argv, environment):
        self.argv = argv
        self.output = ""
        self.changed = threading.Condition()
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        start_new_session=True, env=environment)
        self.reader = threading.Thread(target=self._read_output, daemon=True)
        self.reader.start()

    def _read_output(self):
        while data := os.read(self.process.stdout.fileno(), 65536):
            with self.changed:
                self.output += data.decode(errors="replace")
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    @property
    def returncode(self):
        return self.process.returncode

    @property
    def pid(self):
        return self.process.pid

    def poll(self):
        return self.process.poll()

    def wait(self, timeout_s=kernel_peer.COMMAND_TIMEOUT_S):
        status = self.process.wait(timeout_s)
        self.reader.join(5)
        return status

    def await_output(self, text, timeout_s=kernel_peer.COMMAND_TIMEOUT_S):
        with self.changed:
            self.changed.wait_for(lambda: text in self.output or not self.reader.is_alive(), timeout_s)
        return text in self.output

    def signal(self, number=signal.SIGTERM):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass


class Testbed:
    """The namespace, the peer (peer: None if it is not wanted), and methods that run programs at both ends. A context manager."""

    def __init__(self, faultline_run, name="peer", kind="af_packet", with_peer=True, mtu_bytes=LINK_MTU_BYTES):
        if os.geteuid() != 0:
            skip("needs root for network namespaces")
        if not shutil.which("ip"):
            skip("ip is not installed")
        self.faultline_run = os.path.realpath(faultline_run)
        self.namespace = f"fl-{name}-{os.getpid()}"
        self.kind = kind
        self.mtu_bytes = mtu_bytes
        self.own = []
        self.peer = None
        self.folder = None
        if with_peer:
            kernel_peer.image()  # skips before anything is set up
            self.peer = kernel_peer.Peer(self.namespace, "fl-bridge", [f"{PEER_ADDRESSES[4]}/24", f"{PEER_ADDRESSES[6]}/64"], mtu_bytes, name)

    def ip(self, *words):
        subprocess.run(["ip", "-n", self.namespace, *words], check=True)

    def __enter__(self):
        signal.signal(signal.SIGTERM, end)
        if subprocess.run(["ip", "netns", "add", self.namespace], stderr=subprocess.DEVNULL).returncode != 0:
            skip("may not create network namespaces")
        try:
            self.folder = tempfile.mkdtemp(prefix="fl-testbed-")
            self.ip("link", "set", "lo", "up")
            self.ip("link", "add", "fl-bridge", "mtu", str(self.mtu_bytes), "type", "bridge", "mcast_snooping", "0")
            for family, length in ((4, 24), (6, 64)):
                self.ip("addr", "add", f"{BRIDGE[family]}/{length}", "dev", "fl-bridge", *(["nodad"] if family == 6 else []))
            self.ip("link", "set", "fl-bridge", "up")
            if self.kind == "af_packet":
                self.ip("link", "add", "fl-link", "mtu", str(self.mtu_bytes), "type", "veth", "peer", "name", "fl-port", "mtu",
                        str(self.mtu_bytes))
                self.ip("link", "set", "fl-link", "master", "fl-bridge", "up")
                self.ip("link", "set", "fl-port", "up")
            if self.peer:
                self.peer.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def config(self, name="device", device="", rest=""):
        """A configuration file of faultline0; device: more lines of its table, rest: more tables."""
        interface = "fl-port" if self.kind == "af_packet" else "fl-link"
        path = f"{self.folder}/{name}.toml"
        with open(path, "w") as file:
            file.write(f'{rest}\n[[device]]\nname = "faultline0"\nip = ["{OUR_ADDRESSES[4]}/24", "{OUR_ADDRESSES[6]}/64"]\nmtu = {self.mtu_bytes}\n{device}\n'
                       f'[device.port]\nkind = "{self.kind}"\ninterface = "{interface}"\n')
        return path

    def popen(self, argv, config=None, variables=None):
        """A program at Faultline's end, over faultline0. One at a time may have the device."""
        words = ["ip", "netns", "exec", self.namespace, self.faultline_run, "--config", config or self.config(), "--", *argv]
        process = HostProcess(words, dict(os.environ, **(variables or {})))
        self.own.append(process)
        return process

    def run(self, argv, timeout_s=kernel_peer.COMMAND_TIMEOUT_S, **how):
        process = self.popen(argv, **how)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.signal(signal.SIGKILL)
            process.wait(10)
            raise
        return process

    def inside(self, *argv):
        """A program of the host's own network in the namespace, such as a capture."""
        process = HostProcess(["ip", "netns", "exec", self.namespace, *argv], dict(os.environ))
        self.own.append(process)
        return process

    def await_listener(self, port, process, timeout_s=kernel_peer.COMMAND_TIMEOUT_S):
        """Whether a program in the namespace accepts TCP connections there; False if the process ends before."""
        until = time.monotonic() + timeout_s
        wanted = f":{port:04X}"
        while time.monotonic() < until and process.poll() is None:
            for table in ("tcp", "tcp6"):
                words = subprocess.run(["ip", "netns", "exec", self.namespace, "cat", f"/proc/net/{table}"], stdout=subprocess.PIPE,
                                       text=True).stdout.splitlines()[1:]
                if any(line.split()[1].endswith(wanted) and line.split()[3] == "0A" for line in words):
                    return True
            time.sleep(0.05)
        return False

    def close(self):
        for process in self.own:
            process.signal(signal.SIGKILL)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                pass
        self.own = []
        if self.peer:
            self.peer.stop()
        subprocess.run(["ip", "netns", "del", self.namespace], stderr=subprocess.DEVNULL)
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
