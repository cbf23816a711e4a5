# SPDX-License-Identifier: BSD-3-Clause
"""A Linux kernel with Soft-RoCE in a virtual machine, whose network card is a tap in a network namespace of this machine."""
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
import zlib

HERE = os.path.dirname(os.path.realpath(__file__))
# The folder of the programs that run at both ends.
SHARED = os.path.dirname(HERE)
MEMORY_MIB = 1024
# /dev/kvm may exist and not work, as in nested machines: a user whose KVM works can select it.
ACCELERATOR = os.environ.get("FAULTLINE_PEER_ACCEL", "tcg,thread=multi,tb-size=128")
BOOT_TIMEOUT_S = 240
# Under software emulation a command takes at least a tenth of a second, and this machine may be busy.
COMMAND_TIMEOUT_S = 120


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


def image():
    """The directory of its boot image; skips the test if there is none."""
    if not shutil.which("qemu-system-x86_64"):
        skip("no kernel peer: qemu-system-x86_64 is not installed")
    built = subprocess.run(["bash", f"{HERE}/image.sh"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if built.returncode != 0:
        if built.returncode == 77:
            print(built.stderr.strip().splitlines()[-1])
            sys.exit(77)
        raise RuntimeError(f"image.sh: {built.stderr}")
    return built.stdout.strip()


class GuestProcess:
    """A command that runs in the guest."""

    def __init__(self, peer, number, argv):
        self.peer, self.number, self.argv = peer, number, argv
        self.output = ""
        self.returncode = None

    def poll(self):
        return self.returncode

    def wait(self, timeout_s=COMMAND_TIMEOUT_S):
        """Its status, negative for a signal; raises TimeoutExpired."""
        with self.peer.changed:
            if not self.peer.changed.wait_for(lambda: self.returncode is not None or self.peer.gone, timeout_s):
                raise subprocess.TimeoutExpired(self.argv, timeout_s)
        if self.returncode is None:
            raise ConnectionError("the kernel peer is gone")
        return self.returncode

    def await_output(self, text, timeout_s=COMMAND_TIMEOUT_S):
        """Whether the output has that text in time, and before the command ends."""
        with self.peer.changed:
            self.peer.changed.wait_for(lambda: text in self.output or self.returncode is not None or self.peer.gone, timeout_s)
        return text in self.output

    def signal(self, number=signal.SIGTERM):
        self.peer.send(id=self.number, signal=int(number))


class Peer:
    """start() boots it; also a context manager. addresses: of its eth0, with their prefix lengths. The folder of the lanes is on /mnt/share."""

    def __init__(self, namespace, bridge, addresses, mtu_bytes, name="peer"):
        self.namespace, self.bridge, self.addresses, self.mtu_bytes, self.name = namespace, bridge, addresses, mtu_bytes, name
        self.tap = f"fl-{name}"[:15]
        number = zlib.crc32(name.encode())
        self.mac = "52:54:00:" + ":".join(f"{number >> shift & 255:02x}" for shift in (16, 8, 0))
        self.machine = None
        self.changed = threading.Condition()
        self.folder = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        files = image()
        self.folder = tempfile.mkdtemp(prefix="fl-peer-")
        # A thread that still reads from the last machine ends by itself, and reports nothing of this one.
        self.boot = object()
        self.running, self.count, self.gone, self.release, self.fault = {}, 0, False, None, None
        try:
            self._start(files)
        except BaseException:
            self.stop()
            raise

    def _start(self, files):
        ip = ["ip", "-n", self.namespace]
        subprocess.run([*ip, "tuntap", "add", "dev", self.tap, "mode", "tap"], check=True)
        subprocess.run([*ip, "link", "set", self.tap, "mtu", str(self.mtu_bytes), "master", self.bridge, "up"], check=True)
        kernel_parameters = f"peer.addresses={','.join(self.addresses)} peer.mtu={self.mtu_bytes}"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{self.folder}/agent")
        listener.listen(1)
        with open(f"{self.folder}/qemu.out", "wb") as output_file:
            self.machine = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, "qemu-system-x86_64", "-name", self.name, "-machine", "pc",
                 "-accel", ACCELERATOR, "-cpu", "max", "-m", str(MEMORY_MIB), "-smp", "1",
                 "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-kernel", f"{files}/vmlinuz",
                 "-initrd", f"{files}/initrd",
                 "-append", f"console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on {kernel_parameters}",
                 "-serial", f"file:{self.folder}/console", "-device", "virtio-rng-pci",
                 "-netdev", f"tap,id=net0,ifname={self.tap},script=no,downscript=no",
                 # Offloads off: checksums must arrive as they were sent.
                 "-device", f"virtio-net-pci,netdev=net0,mac={self.mac},romfile=,csum=off,gso=off,guest_csum=off,guest_tso4=off,"
                            "guest_tso6=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ufo=off,mrg_rxbuf=on",
                 "-virtfs", f"local,path={SHARED},mount_tag=share,security_model=none,readonly=on",
                 "-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,path={self.folder}/agent",
                 "-device", "virtserialport,chardev=agent,name=faultline.agent"],
                stdin=subprocess.DEVNULL, stdout=output_file, stderr=subprocess.STDOUT, start_new_session=True)
        listener.settimeout(BOOT_TIMEOUT_S)
        self.channel, _ = listener.accept()
        listener.close()
        threading.Thread(target=self._receive, args=(self.channel, self.boot), daemon=True).start()
        with self.changed:
            self.changed.wait_for(lambda: self.release or self.fault or self.gone, BOOT_TIMEOUT_S)
        if not self.release:
            with open(f"{self.folder}/qemu.out", errors="replace") as file:
                data = file.read()
            raise RuntimeError(f"the kernel peer did not come up: {self.fault or ''}\n{data[-1000:]}\n{self.console()[-2000:]}")

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

    def run(self, argv, timeout_s=COMMAND_TIMEOUT_S):
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

    def await_listener(self, port, process=None, timeout_s=COMMAND_TIMEOUT_S):
        """Whether a program in the guest accepts TCP connections there; False if the process ends before."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until and (process is None or process.poll() is None):
            if self.run(["grep", "-qih", f":{port:04X} 0*:0000 0A", "/proc/net/tcp", "/proc/net/tcp6"]).returncode == 0:
                return True
        return False

    def gid_index(self, text):
        """The index of the GID that contains this text in the notation of sysfs: an IPv6 address's last group, or IPv4's four bytes in
        hexadecimal."""
        return int(self.check("sh", "-c", f"cd /sys/class/infiniband/rxe0/ports/1/gids && grep -l '{text}' * | sort -n | head -n 1"))

    def counters(self):
        """rxe's own counters, by name."""
        words = self.check("rdma", "-j", "statistic", "show", "link", "rxe0/1")
        return json.loads(words)[0]

    def console(self):
        try:
            with open(f"{self.folder}/console", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def freeze(self):
        """Freezes it as it is: no answer, no clock."""
        os.kill(self.machine.pid, signal.SIGSTOP)

    def thaw(self):
        os.kill(self.machine.pid, signal.SIGCONT)

    def stop(self):
        """Like a power cut. A second call has no effect."""
        if self.machine:
            self.machine.kill()
            self.machine.wait()
            self.machine = None
        subprocess.run(["ip", "-n", self.namespace, "link", "del", self.tap], stderr=subprocess.DEVNULL)
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def reboot(self):
        self.stop()
        self.start()
