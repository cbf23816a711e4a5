# SPDX-License-Identifier: BSD-3-Clause
"""The rows of the NIC lab. A row is a function of the Lab; it returns what is wrong, or nothing."""
import os
import signal
import sys
import time

sys.path.insert(0, f"{os.path.dirname(os.path.realpath(__file__))}/../kernel")
from guest.guest import HANG_S  # noqa: E402

SIDES = ("198.18.1.1", "198.18.1.2")
PERF_PORT, PERFTEST_PORT = 7000, 18515
OPERATIONS = "write,write_imm,read,send"


class Row:
    """reduced: the kinds of NIC for which the short lane has it. kinds: those that it is for; empty: all but the slow one."""

    def __init__(self, name, run, reduced, kinds=()):
        self.name, self.run, self.reduced, self.kinds = name, run, reduced, kinds


ROWS = []


def row(name, reduced=()):
    """Adds a function to the rows."""
    def add(function):
        ROWS.append(Row(name, function, reduced))
        return function
    return add


class Lab:
    """Two ends in the guest, each a device on a NIC of the kind that begin() has set."""

    def __init__(self, guest, faultline_run):
        self.guest = guest
        self.apps = os.path.dirname(os.path.realpath(faultline_run))
        self.folder = "/run/lab"
        self.own = []
        guest.check("sh", "-c", f"mkdir -m 755 -p {self.folder} {self.folder}/user && chown 65534:65534 {self.folder}/user")

    def begin(self, kind):
        self.kind = kind
        self.addresses = self.guest.addresses[kind]

    def end(self):
        for process in self.own:
            if process.poll() is None:
                process.signal(signal.SIGKILL)
        for process in self.own:
            if not self.guest.gone:
                process.wait()
        self.own = []

    def config(self, side, device="", rest="", huge_pages=True):
        path = f"{self.folder}/side{side}.toml"
        # The log's lines are results: a row looks for them.
        self.guest.write(path, f'[eal]\nhuge_pages = {str(huge_pages).lower()}\nmemory_mib = 192\n[log]\nlevel = "info"\n{rest}\n'
                               f'[[device]]\nname = "faultline0"\nip = "{SIDES[side]}/24"\n{device}\n'
                               f'[device.port]\nkind = "pci"\naddress = "{self.addresses[side]}"\n')
        return path

    def configs(self, **how):
        return [self.config(side, **how) for side in (0, 1)]

    def popen(self, argv, before=()):
        process = self.guest.popen([*before, *argv])
        self.own.append(process)
        return process

    def serve(self, config, before=(), more=()):
        server = self.popen([f"{self.apps}/faultline-perf", "--config", config, "--server", "--port", str(PERF_PORT), *more], before)
        if not self.guest.await_listener(PERF_PORT, server, HANG_S):
            raise RuntimeError(f"the server does not listen: {tail(server)}")
        return server

    def client(self, config, words, before=()):
        return self.popen([f"{self.apps}/faultline-perf", "--config", config, "--client", "127.0.0.1", "--port", str(PERF_PORT), "--",
                           *words.split()], before)

    def perf(self, words, configs, before=()):
        """Measures once, verified; returns what is wrong."""
        server = self.serve(configs[0], before)
        client = self.client(configs[1], f"{words} --iters 40 --verify", before)
        status = client.wait(HANG_S)
        if status != 0:
            return f"client: status {status}: {tail(client)}; server: {tail(server)}"
        if server.wait(HANG_S) != 0:
            return f"server: status {server.returncode}: {tail(server)}"
        return ""

    def perftest(self, program, words=""):
        """A program of perftest at both ends."""
        argv = [program, "-d", "faultline0", "-F", "-n", "200", *words.split()]
        run = f"{self.apps}/faultline-run"
        configs = self.configs()
        server = self.popen([run, "--config", configs[0], "--", *argv])
        if not self.guest.await_listener(PERFTEST_PORT, server, HANG_S):
            return f"the server does not listen: {tail(server)}"
        client = self.popen([run, "--config", configs[1], "--", *argv, "127.0.0.1"])
        if client.wait(HANG_S) != 0 or server.wait(HANG_S) != 0:
            return f"client: status {client.returncode}: {tail(client)}; server: {tail(server)}"
        return ""


def tail(process, count=6):
    return " | ".join(process.output.strip().splitlines()[-count:])


@row("every operation, 64 B to 64 KiB", reduced=("e1000e",))
def operations(lab):
    configs = lab.configs()
    return lab.perf(f"--op {OPERATIONS} --size 64,4k,64k", configs) or lab.perf("--op ud_send --size 64,1k", configs)


@row("MTU 9000")
def large_mtu(lab):
    configs = lab.configs(device="mtu = 9000")
    return lab.perf(f"--op {OPERATIONS} --size 4k,64k --mtu 4096", configs) or lab.perf("--op ud_send --size 4k --mtu 4096", configs)


@row("VLAN", reduced=("virtio",))
def vlan(lab):
    return lab.perf("--op write,read,send --size 64,4k", lab.configs(device="vlan = 100"))


@row("UDP checksums", reduced=("virtio",))
def udp_checksum(lab):
    return lab.perf("--op write,read,send --size 64,4k", lab.configs(rest="[transport]\nudp_checksum = true"))


@row("lcore 0")
def one_lcore(lab):
    return lab.perf("--op write,read,send --size 64,4k", [lab.config(side, device=f'progress = "dedicated"\nlcore = {side}') for side in (0, 1)])


@row("lcores 0 and 1, eight QPs", reduced=("e1000e",))
def two_lcores(lab):
    return lab.perf("--op write,read,send --size 64,4k --qps 8", lab.configs(device='progress = "dedicated"\nlcores = [0, 1]'))


@row("no huge pages")
def no_huge_pages(lab):
    return lab.perf("--op write,read,send --size 64,4k", lab.configs(huge_pages=False))


def give_to_user(lab):
    for address in lab.addresses:
        lab.guest.check("chown", "65534", f"/dev/vfio/{lab.guest.vfio_group(address)}")


def as_user(lab, memlock):
    return ["prlimit", f"--memlock={memlock}", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env",
            f"HOME={lab.folder}/user", f"XDG_RUNTIME_DIR={lab.folder}/user"]


@row("an ordinary user who owns the groups")
def ordinary_user(lab):
    give_to_user(lab)
    return lab.perf("--op write,read,send --size 64,4k", lab.configs(huge_pages=False), as_user(lab, "unlimited"))


@row("an ordinary user with a small memlock limit")
def small_memlock(lab):
    give_to_user(lab)
    # The server opens its device before it listens.
    server = lab.popen([f"{lab.apps}/faultline-perf", "--config", lab.config(0, huge_pages=False), "--server", "--port", str(PERF_PORT)],
                       as_user(lab, 8 << 20))
    status = server.wait(HANG_S)
    said = [line for line in server.output.splitlines() if "of locked memory" in line and "ulimit -l" in line]
    if status == 0 or len(said) != 1:
        return f"status {status}, {len(said)} lines that name the limit: {tail(server, 12)}"
    return ""


@row("ib_send_bw", reduced=("e1000e",))
def ib_send_bw(lab):
    return lab.perftest("ib_send_bw", "-s 4096")


@row("ib_write_bw")
def ib_write_bw(lab):
    return lab.perftest("ib_write_bw", "-s 65536")


@row("ib_atomic_bw")
def ib_atomic_bw(lab):
    return lab.perftest("ib_atomic_bw")


@row("link down and up", reduced=("virtio",))
def link(lab):
    """Faultline sees both changes, and goes on with the same server."""
    configs = lab.configs()
    server = lab.serve(configs[0], more=["--keep-serving"])
    words = "--op send --size 1k --iters 40 --verify"
    for step in ("before", "after"):
        client = lab.client(configs[1], words)
        if client.wait(HANG_S) != 0:
            return f"{step}: {tail(client)}; server: {tail(server)}"
        if step == "after":
            return ""
        ups = server.output.count("the link is up")
        lab.guest.qmp("set_link", name=f"{lab.kind}0", up=False)
        down = server.await_output("the link is down", HANG_S)
        lab.guest.qmp("set_link", name=f"{lab.kind}0", up=True)
        if not down or not await_text(server, "the link is up", ups + 1):
            return f"the server does not see the link: {tail(server)}"


def await_text(process, text, count):
    until = time.monotonic() + HANG_S
    while process.output.count(text) < count and process.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    return process.output.count(text) >= count


def wakes(lab, name, seconds):
    """How often the threads of that name wake up in about that time; returns the number and the guest's own seconds between both looks."""
    count = ["sh", "-c", f"cut -d' ' -f1 /proc/uptime; cat $(grep -l '^Name:.{name}$' /proc/[0-9]*/task/*/status 2>/dev/null) | awk '/^voluntary_ctxt/ {{ n += $2 }} END {{ print n }}'"]
    begun, before = map(float, lab.guest.check(*count).split())
    time.sleep(seconds)
    ended, after = map(float, lab.guest.check(*count).split())
    return int(after - before), ended - begun


@row("an idle program sleeps on interrupts")
def idle(lab):
    """Its progress thread wakes up to look at the port, and not to poll the NIC at each nap of 5 ms."""
    configs = lab.configs()
    server = lab.serve(configs[0], more=["--keep-serving"])
    client = lab.client(configs[1], "--op send --size 1k --iters 40 --verify")
    if client.wait(HANG_S) != 0:
        return f"{tail(client)}; server: {tail(server)}"
    # A queue sleeps for long only after its interrupt has brought a frame. So let some frames find it asleep.
    client = lab.client(configs[1], "--op write --mode lat --size 64 --idle-ms 100 --iters 10")
    if client.wait(HANG_S) != 0:
        return f"{tail(client)}; server: {tail(server)}"
    time.sleep(1)
    count, seconds = wakes(lab, "fl-progress", 5)
    print(f"nic: {lab.kind}: {count} wake-ups of an idle program in {seconds:.1f} s", flush=True)
    # A slow machine has fewer. Naps would be 200 a second, and checks of the port at most 50. DPDK's PMD of the 82574 sets no vector for
    # receive interrupts (MSI-X), so this NIC is polled.
    return f"{count} wake-ups in {seconds:.1f} s" if count > 100 * seconds and lab.kind != "e1000e" else ""


def remove(lab, which):
    """Removes a NIC as a host does, and waits until the guest's kernel has its device back; returns what is wrong."""
    lab.guest.qmp("device_del", id=f"{lab.kind}{which}")
    there = ["test", "-e", f"/sys/bus/pci/devices/{lab.addresses[which]}"]
    until = time.monotonic() + HANG_S
    while lab.guest.run(there).returncode == 0:
        if time.monotonic() > until:
            return "the kernel does not get its device back"
        time.sleep(0.2)
    return ""


def await_open(lab):
    """Waits until a process has a NIC; returns what is wrong."""
    until = time.monotonic() + HANG_S
    while lab.guest.run(["sh", "-c", "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q vfio-device"]).returncode != 0:
        if time.monotonic() > until:
            return "no process opens the NIC"
        time.sleep(0.2)
    return ""


@row("NICs removed, under load and at rest")
def unplug(lab):
    """The last row of a kind, which has no NIC then. Each device is lost to its program, and the guest's kernel gets it back."""
    configs = lab.configs()
    server = lab.serve(configs[0])
    client = lab.client(configs[1], "--op write --size 1k --seconds 3600")
    if not client.await_output(" s  ", HANG_S):
        return f"no load: {tail(client)}"
    problem = remove(lab, 0)
    if problem or not server.await_output("the port was removed", HANG_S):
        return f"{problem or 'the server does not see it'}: {tail(server)}"
    # Both programs end: their QPs are in the error state.
    for name, process in (("server", server), ("client", client)):
        if process.wait(HANG_S) == 0:
            return f"{name}: status 0: {tail(process)}"
    watcher = lab.popen([f"{lab.apps}/faultline-run", "--config", configs[1], "--", "ibv_asyncwatch", "-d", "faultline0"])
    problem = await_open(lab) or remove(lab, 1)
    if problem or not watcher.await_output("IBV_EVENT_DEVICE_FATAL", HANG_S):
        return f"ibv_asyncwatch: {problem or 'no IBV_EVENT_DEVICE_FATAL'}: {tail(watcher)}"
    return ""
