# SPDX-License-Identifier: BSD-3-Clause
"""Networks between the two ends of a program. Each network has slots, which are used at the same time. Each slot has two sides that reach
each other by RoCEv2, and by TCP for the exchange of connection parameters."""
import glob
import itertools
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests
import lib  # noqa: E402
from lib import skip  # noqa: E402

# Debian's system user without a special purpose.
NOBODY = 65534
# Programs fix the ACK timeout at 67 ms; on a busy machine a peer may have no processor for longer than the retries last.
PATIENT = "min_ack_timeout_ms = 500\n"
# The amount that Debian's login allows an ordinary user to lock.
MEMLOCK_BYTES = 8 << 20


def expand(text):
    """Expands braces as a shell does; equal results appear once."""
    groups = list(dict.fromkeys(re.findall(r"\{[^{}]*,[^{}]*\}", text)))
    for choice in itertools.product(*(group[1:-1].split(",") for group in groups)):
        expanded = text
        for group, chosen in zip(groups, choice):
            expanded = expanded.replace(group, chosen)
        yield expanded


def quietly(*command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def may_change_user():
    """Root of a container without capabilities may not do this, nor may it mount or change the owner of files (capabilities(7))."""
    return os.geteuid() == 0 and quietly("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "true") and \
        quietly("unshare", "--mount", "true")


class Network:
    """folder: the programs' own; device: the TOML of each device, with a vendor part id that is not the default."""

    user = None

    def __init__(self, faultline_run):
        self.terminal = os.openpty()
        self.folder = tempfile.mkdtemp(prefix="fl-", dir="/var/tmp")  # the programs get another /tmp
        os.chmod(self.folder, 0o755)
        # In a folder that any user may read, as in the folder of a build: faultline-run looks there first.
        built = os.path.dirname(os.path.realpath(faultline_run))
        for source, target in (("faultline-run", "bin"), ("faultline-switch", "bin"),
                               ("../stack/abi/libibverbs.so.1", "stack/abi")):
            os.makedirs(f"{self.folder}/{target}", exist_ok=True)
            if not os.path.exists(f"{built}/{source}"):
                skip(f"{source} is not built")
            shutil.copy(f"{built}/{source}", f"{self.folder}/{target}/")
        self.run = f"{self.folder}/bin/faultline-run"
        for name in ("run", "home"):
            os.mkdir(f"{self.folder}/{name}", 0o700)
            if self.user is not None:
                os.chown(f"{self.folder}/{name}", self.user, self.user)
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=f"{self.folder}/run", HOME=f"{self.folder}/home",
                                TMPDIR=f"{self.folder}/home")
        self.environment.pop("LD_LIBRARY_PATH", None)

    def start(self, command, output, variables):
        """The command, in a session of its own, and with a /tmp of its own if that is allowed: perftest has files of fixed names there,
        which
        another user may have left."""
        # Where ucx_perftest has been built with MPI, it is a rank of a job unless its standard input is a terminal.
        stdin = self.terminal[1] if "ucx_perftest" in command else subprocess.DEVNULL
        words = ["env", *(f"{name}={value}" for name, value in variables.items()), *command]
        limit = None
        if self.user is not None:
            words = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "--", *words]
            limit = lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (MEMLOCK_BYTES, MEMLOCK_BYTES))
        if may_change_user():
            own_tmp = 'mount --bind "$0" /tmp && exec "$@"'
            words = ["unshare", "--mount", "sh", "-c", own_tmp, f"{self.folder}/home", *words]
        with open(output, "wb") as file:
            return subprocess.Popen(words, stdin=stdin, stdout=file, stderr=subprocess.STDOUT, preexec_fn=limit,
                                    start_new_session=True, cwd=f"{self.folder}/home", env=self.environment)

    def last_words(self, slot):
        """The last output of processes that the network itself runs there."""
        return []

    def end_switches(self, number, wire=None):
        """Ends the switches of this network's wires: programs have started them, from its folder."""
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    words = file.read().decode(errors="replace").split("\0")
                if words[0] == f"{self.folder}/bin/faultline-switch" and (wire is None or wire in words):
                    os.kill(int(entry), number)
            except OSError:
                pass

    def close(self):
        self.end_switches(signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)


class Wire(Network):
    """A wire for each slot, as an ordinary user without huge pages."""

    user = NOBODY if may_change_user() else None
    addresses = {"ip": "198.18.0.1", "own": "198.18.0.2", "host": "127.0.0.1"}

    def __init__(self, faultline_run, slots):
        super().__init__(faultline_run)
        self.slots = list(range(slots))

    def command(self, slot, side, part):
        path = f"{self.folder}/{slot}{side}-{part}.toml"
        with open(path, "w") as file:
            file.write(f'[[device]]\nname = "faultline0"\nvendor_part_id = {part}\n{PATIENT}[device.port]\nkind = "wire"\n')
        return [self.run, "--wire", f"slot{slot}", "--side", side, "--config", path, "--"]

    def cut(self, slot):
        self.end_switches(signal.SIGKILL, f"slot{slot}")

    def mend(self, slot):
        """Does nothing: a program on the wire starts another switch."""

    def shared(self, slot, number, ipv6=False):
        """What precedes a rank's program: mpirun's options for it, and a device. On a wire all ranks have one device."""
        return [self.run, "--wire", f"shared{slot}", "--share", "--"]

    def launcher(self, slot):
        """What precedes mpirun."""
        return []


class Veth(Network):
    """A pair of network namespaces for each slot, joined by a veth pair that carries RoCEv2 by packet sockets, and TCP by the kernel. A
    third namespace has both ends of another pair, for devices that several processes share: a switch at each end."""

    addresses = {"ip": "198.18.0.1", "own": "198.18.0.2", "host": "198.19.0.1"}

    def __init__(self, faultline_run, slots):
        if os.geteuid() != 0:
            skip("needs root for network namespaces")
        if not shutil.which("ip"):
            skip("ip is not installed")
        super().__init__(faultline_run)
        self.spaces = []
        self.switches = []
        self.slots = list(range(slots))
        for slot in self.slots:
            self.join(self.space(slot, "a"), self.space(slot, "b"))
            for side, host in (("a", 1), ("b", 2)):
                self.ip("-n", self.space(slot, side), "addr", "add", f"198.19.0.{host}/24", "dev", f"fl-{side}")

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    def space(self, slot, side):
        return f"fl-matrix-{os.getpid()}-{slot}{side}"

    def join(self, one, other):
        for space in {one, other}:
            if not quietly("ip", "netns", "add", space):
                self.close()
                skip("may not create network namespaces")
            self.spaces.append(space)
            self.ip("-n", space, "link", "set", "lo", "up")
        self.ip("-n", one, "link", "add", "fl-a", "mtu", "4500", "type", "veth", "peer", "name", "fl-b", "mtu", "4500", "netns", other)
        self.ip("-n", one, "link", "set", "fl-a", "up")
        self.ip("-n", other, "link", "set", "fl-b", "up")

    def command(self, slot, side, part):
        path = f"{self.folder}/{slot}{side}-{part}.toml"
        host = 1 if side == "a" else 2
        with open(path, "w") as file:
            file.write(f'[[device]]\nname = "faultline0"\nip = ["198.18.0.{host}/24", "2001:2::{host}/64"]\n'
                       f'vendor_part_id = {part}\n{PATIENT}[device.port]\nkind = "af_packet"\ninterface = "fl-{side}"\n')
        return ["ip", "netns", "exec", self.space(slot, side), self.run, "--config", path, "--"]

    def cut(self, slot):
        self.ip("-n", self.space(slot, "b"), "link", "set", "fl-b", "down")

    def mend(self, slot):
        self.ip("-n", self.space(slot, "b"), "link", "set", "fl-b", "up")

    def shared(self, slot, number, ipv6=False):
        space = self.space(slot, "shared")
        if space not in self.spaces:
            self.join(space, space)
            for side in "ab":
                with open(f"{self.folder}/switch-{slot}{side}.out", "wb") as file:
                    self.switches.append(subprocess.Popen(
                        ["ip", "netns", "exec", space, f"{self.folder}/bin/faultline-switch", "--wire", f"up{slot}{side}",
                         "--uplink", f"af_packet:fl-{side}", "--log", "info"], stdout=file, stderr=subprocess.STDOUT, env=self.environment))
                # A rank that started first would start a switch without an uplink.
                lib.await_file(f"{self.folder}/run/faultline/up{slot}{side}.control", self.switches[-1])
        side = "ab"[number % 2]
        return [self.run, "--wire", f"up{slot}{side}", "--share", "--ip", f"198.18.0.{1 + number % 2}", "--"]

    def launcher(self, slot):
        return ["ip", "netns", "exec", self.space(slot, "shared")]

    def last_words(self, slot):
        """A switch prints its counters when it ends; new ones are started for the next row."""
        space = self.space(slot, "shared")
        if space not in self.spaces:
            return []
        ending = [switch for switch in self.switches if switch.args[3] == space]
        words = [f"switches that run: {[switch.args[6] for switch in ending if switch.poll() is None]}"]
        for switch in ending:
            switch.terminate()
            switch.wait()
            self.switches.remove(switch)
        for path in sorted(glob.glob(f"{self.folder}/switch-{slot}?.out")):
            with open(path, errors="replace") as file:
                words += [f"{os.path.basename(path)}: {line.rstrip()}" for line in file]
        quietly("ip", "netns", "del", space)
        self.spaces.remove(space)
        return words

    def close(self):
        for switch in self.switches:
            switch.terminate()
            switch.wait()
        for space in self.spaces:
            quietly("ip", "netns", "del", space)
        super().close()


class Udp(Veth):
    """The same namespaces. The devices have the addresses of the veth interfaces by UDP sockets, and the programs are an ordinary user's,
    without a capability."""

    def __init__(self, faultline_run, slots):
        super().__init__(faultline_run, slots)
        for name in ("run", "home"):
            os.chown(f"{self.folder}/{name}", NOBODY, NOBODY)
        for slot in self.slots:
            for side, host in (("a", 1), ("b", 2)):
                # An interface that goes down loses its addresses of IPv6 otherwise (Linux, ip-sysctl).
                subprocess.run(["ip", "netns", "exec", self.space(slot, side), "sh", "-c",
                                f"echo 1 >/proc/sys/net/ipv6/conf/fl-{side}/keep_addr_on_down"], check=True)
                add = ["-n", self.space(slot, side), "addr", "add", "dev", f"fl-{side}"]
                self.ip(*add, f"198.18.0.{host}/24")
                self.ip(*add, f"2001:2::{host}/64", "nodad")

    def command(self, slot, side, part):
        path = f"{self.folder}/{slot}{side}-{part}.toml"
        host = 1 if side == "a" else 2
        with open(path, "w") as file:
            file.write(f'[[device]]\nname = "faultline0"\nip = ["198.18.0.{host}", "2001:2::{host}"]\n'
                       f'vendor_part_id = {part}\n{PATIENT}[device.port]\nkind = "udp"\n')
        return ["ip", "netns", "exec", self.space(slot, side), "prlimit", f"--memlock={MEMLOCK_BYTES}", "setpriv", f"--reuid={NOBODY}",
                f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--", self.run, "--config", path, "--"]

    def shared(self, slot, number, ipv6=False):
        """A host for each rank by turns, with an address for each: a process has its address alone."""
        side, host = "ab"[number % 2], 1 + number
        space, address = self.space(slot, side), f"2001:2::{host}" if ipv6 else f"198.18.0.{host}"
        if number > 1:
            bits = "64" if ipv6 else "24"
            self.ip("-n", space, "addr", "replace", f"{address}/{bits}", "dev", f"fl-{side}", *(["nodad"] if ipv6 else []))
        return ["--host", f"198.19.0.{1 + number % 2}", "setpriv", "--inh-caps=-all", "--ambient-caps=-all", "--", self.run, "--udp", "--ip",
                address, "--"]

    def launcher(self, slot):
        """mpirun runs on one host and starts its daemon on the other, as it does by ssh: for that it has the right to change namespaces,
        which the ranks have not."""
        agent = f"{self.folder}/{slot}-agent"
        with open(agent, "w") as file:
            file.write(f'#!/bin/sh\nshift\nexec nsenter --net=/run/netns/{self.space(slot, "b")} unshare --uts sh -c "hostname b; $*"\n')
        os.chmod(agent, 0o755)
        return ["ip", "netns", "exec", self.space(slot, "a"), "prlimit", f"--memlock={MEMLOCK_BYTES}", "setpriv", f"--reuid={NOBODY}",
                f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all,+sys_admin", "--inh-caps=-all,+sys_admin",
                "--ambient-caps=-all,+sys_admin", "--", "env", f"OMPI_MCA_plm_rsh_agent={agent}", "OMPI_MCA_oob_tcp_if_include=198.19.0.0/24"]

    def last_words(self, slot):
        return []
