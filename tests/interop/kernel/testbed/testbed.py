# SPDX-License-Identifier: BSD-3-Clause
"""The network of the kernel peer and a Faultline device: a network namespace with a bridge.

    198.18.0.1  2001:2::1   the bridge itself: TCP of programs at Faultline's end, which exchange the parameters of their QPs
    198.18.0.2  2001:2::2   the peer's eth0 and rxe0
    198.18.0.3  2001:2::3   faultline0, on the other end of a veth pair or on a tap

With kind vhost, faultline0 is the back end of the peer's eth1:

    198.18.1.2  2001:2:0:1::2   the peer's eth1, and rxe0, which moves there
    198.18.1.3  2001:2:0:1::3   faultline0

With kind udp, faultline0 has the addresses of the bridge, by sockets of the host.
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
VHOST_ADDRESSES = dict(ours={4: "198.18.1.3", 6: "2001:2:0:1::3"}, peer={4: "198.18.1.2", 6: "2001:2:0:1::2"})
# Indices of these GIDs in each device's table. 0 of rxe0 is link-local, as is 2 of faultline0.
OUR_GIDS = {4: 0, 6: 1}
PEER_GIDS = {4: 1, 6: 2}
BRIDGE = {4: "198.18.0.1", 6: "2001:2::1"}
# Opens the port of faultline0.
HOLD = """
import time
from pyverbs.device import Context
from pyverbs.pd import PD
pd = PD(Context(name="faultline0"))
print("held", flush=True)
time.sleep(3600)
"""


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

    def wait(self, timeout_s=kernel_peer.HANG_S):
        status = self.process.wait(timeout_s)
        self.reader.join(timeout_s)
        return status

    def await_output(self, text, timeout_s=kernel_peer.HANG_S):
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

    def __init__(self, faultline_run, name="peer", kind="af_packet", with_peer=True, mtu_bytes=LINK_MTU_BYTES,
                 with_vhost=False):
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
        self.addresses = dict(ours=OUR_ADDRESSES, peer=PEER_ADDRESSES)
        self.with_vhost = with_vhost
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
                self._start_peer()
        except BaseException:
            self.close()
            raise
        return self

    def _start_peer(self):
        if not self.with_vhost:
            self.peer.start()
            return
        # QEMU does not boot before it has the features of the back end. Each later program is a back end that comes back.
        self.peer.back_end = f"{self.folder}/vhost.sock"
        holder = self.popen(["/usr/bin/python3", "-B", "-c", HOLD], config=self._vhost_config("hold", "", ""))
        if not holder.await_output("held"):
            raise RuntimeError(f"no vhost port: {holder.output}")
        self.peer.start()
        holder.signal(signal.SIGKILL)
        holder.wait()

    def use_vhost(self, device="rxe0"):
        """From now on, the device of config() is the back end of the peer's second card, which bears that device of the peer."""
        self.kind, self.addresses = "vhost", VHOST_ADDRESSES
        self.peer.use_second_card([f"{VHOST_ADDRESSES['peer'][4]}/24", f"{VHOST_ADDRESSES['peer'][6]}/64"], device)

    def use_udp(self):
        """From now on, the device of config() is on the host's own addresses."""
        self.kind, self.addresses = "udp", dict(ours=BRIDGE, peer=PEER_ADDRESSES)

    def _vhost_config(self, name, device, rest):
        return self._write_config(name, VHOST_ADDRESSES["ours"], device, f'kind = "vhost"\nsocket = "{self.peer.back_end}"', rest)

    def _write_config(self, name, addresses, device, port, rest):
        path = f"{self.folder}/{name}.toml"
        # At once: a program may read the last one.
        with open(f"{path}.new", "w") as file:
            file.write(f'{rest}\n[[device]]\nname = "faultline0"\nip = ["{addresses[4]}/24", "{addresses[6]}/64"]\nmtu = {self.mtu_bytes}\n{device}\n'
                       f'[device.port]\n{port}\n')
        os.replace(f"{path}.new", path)
        return path

    def __exit__(self, *_):
        self.close()

    def config(self, name="device", device="", rest=""):
        """A configuration file of faultline0; device: more lines of its table, rest: more tables."""
        if self.kind == "vhost":
            return self._vhost_config(name, device, rest)
        if self.kind == "udp":
            return self._write_config(name, BRIDGE, device, 'kind = "udp"', rest)
        interface = "fl-port" if self.kind == "af_packet" else "fl-link"
        return self._write_config(name, OUR_ADDRESSES, device, f'kind = "{self.kind}"\ninterface = "{interface}"', rest)

    def popen(self, argv, config=None, variables=None):
        """A program at Faultline's end, over faultline0. One at a time may have the device."""
        return self.inside(self.faultline_run, "--config", config or self.config(), "--", *argv, variables=variables)

    def run(self, argv, timeout_s=kernel_peer.HANG_S, **how):
        process = self.popen(argv, **how)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.signal(signal.SIGKILL)
            process.wait()
            raise
        return process

    def inside(self, *argv, variables=None):
        """A program of the host's own network in the namespace, such as a capture."""
        process = HostProcess(["ip", "netns", "exec", self.namespace, *argv], dict(os.environ, **(variables or {})))
        self.own.append(process)
        return process

    def await_listener(self, port, process, timeout_s=kernel_peer.HANG_S):
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
                process.wait(60)
            except subprocess.TimeoutExpired:
                pass
        self.own = []
        if self.peer:
            self.peer.stop()
        subprocess.run(["ip", "netns", "del", self.namespace], stderr=subprocess.DEVNULL)
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
