#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the programs of matrix.txt, as Debian ships them, on one network: over a wire as an ordinary user, or over veth pairs in
network namespaces as root.

    matrix.py FAULTLINE_RUN wire|veth [REGULAR EXPRESSION]

Prints "ok: PROGRAM ARGUMENTS" or "FAILED: ..." for each row. Slots of the network work at the same time, because the programs mostly
wait. With an expression, only matching rows run. With FAULTLINE_BRIEF=1 in the environment, every third row runs over veth, and the
others over the wire.
"""
import filecmp
import glob
import itertools
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import networks  # noqa: E402

HERE = os.path.dirname(os.path.realpath(__file__))
SLOTS = 3
# Time limit of a program on a busy machine, and the addition for each second of its minimum duration.
PATIENCE_S = 90
PATIENCE_EACH_S = 60
FIRST_PORT = 20000
RSPRELOAD = next(iter(glob.glob("/usr/lib/*/rsocket/librspreload.so")), "librspreload.so")


class Failure(Exception):
    pass


class Row:
    def __init__(self, text):
        text, _, wanted = text.partition(" ?? ")
        text, _, self.ready = text.partition(" !! ")
        self.how, part, commands = text.split(None, 2)
        self.part = 0 if part == "-" else int(part)
        self.wanted = wanted.strip()
        self.server, _, self.client = (each.strip() for each in commands.partition(" | "))

    @property
    def name(self):
        """A readable name: program, arguments, and other properties."""
        words = re.sub(r" -\w <port>| <host>|stdbuf -oL ", "", self.client or self.server).split()
        extra = [word for word in words if "=" in word and not word.startswith("UCX_NET")]
        extra = ["librspreload" if "rspreload" in word else word for word in extra]
        words = [word for word in words if "=" not in word]
        if self.how in ("mpi", "mpi6"):
            words = ["mpirun", "-np", *words, "--mca pml ucx"]
        if self.part:
            extra.append(f"vendor part {self.part}")
        named = " ".join(words).replace("<folder>/", "").replace("<ip>", "SERVER").replace("<own>", "CLIENT")
        if self.how == "mpi6":
            extra.append("IPv6")
        return named + (f" ({', '.join(extra)})" if extra else "")

    @property
    def patience_s(self):
        return PATIENCE_S + PATIENCE_EACH_S * self.seconds

    @property
    def seconds(self):
        """Its minimum duration."""
        duration = re.search(r" -D (\d+)", self.server)
        return int(duration.group(1)) if duration else 6 if self.server.endswith(" -a") else 0


GROUPS = {"both": "wire,veth", "all": "wire,veth,udp"}


def read_table(network):
    rows = []
    with open(f"{HERE}/matrix.txt") as file:
        for line in file:
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            only, line = line.split(None, 1)
            if network in GROUPS.get(only, only).split(","):
                rows += [Row(text) for text in networks.expand(line)]
    return rows


class Run:
    """One row in one slot."""

    ports = itertools.count(FIRST_PORT)
    lock = threading.Lock()
    all_running = []  # None: no more are to be started

    def __init__(self, network, slot, row):
        self.network, self.slot, self.row = network, slot, row
        self.port = next(Run.ports)
        self.outputs = {side: f"{network.folder}/{slot}{side}.out" for side in "ab"}
        self.running = []

    def start(self, side, text, command=None):
        values = dict(self.network.addresses, port=str(self.port), folder=f"{self.network.folder}/home", rspreload=RSPRELOAD)
        words = [re.sub(r"<(\w+)>", lambda found: values[found.group(1)], word) for word in shlex.split(text)]
        variables = {}
        while words and "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        prefix = self.network.command(self.slot, side, self.row.part) if command is None else command
        with Run.lock:
            if Run.all_running is None:
                raise Failure("interrupted")
            process = self.network.start(prefix + words, self.outputs[side], variables)
            Run.all_running.append(process)
        self.running.append(process)
        return process

    @classmethod
    def end_all(cls):
        with cls.lock:
            running, cls.all_running = cls.all_running, None
        for process in running:
            cls.end(process, signal.SIGKILL)

    def finish(self, process, what):
        try:
            status = process.wait(self.row.patience_s)
        except subprocess.TimeoutExpired:
            raise Failure(f"the {what} did not end") from None
        return status

    @staticmethod
    def end(process, signal_number):
        # faultline-run becomes the program itself; but mpirun and some servers have children.
        if process.poll() is None:
            try:
                os.killpg(process.pid, signal_number)
            except ProcessLookupError:
                pass
        process.wait()

    def output(self, side):
        if not os.path.exists(self.outputs[side]):
            return ""
        with open(self.outputs[side], errors="replace") as file:
            return file.read()

    def await_output(self, side, text, process):
        until = time.monotonic() + PATIENCE_S
        while text not in self.output(side):
            if process.poll() is not None or time.monotonic() > until:
                raise Failure(f"it did not say {text!r}")
            time.sleep(0.05)

    def await_listener(self, process):
        """Waits until the server listens: its client tries to connect only once."""
        wanted = f":{self.port:04X} "
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and process.poll() is None:
            for table in ("tcp", "tcp6"):
                try:
                    with open(f"/proc/{process.pid}/net/{table}") as file:
                        if any(wanted in line.split(None, 2)[1] + " " and line.split()[3] == "0A" for line in list(file)[1:]):
                            return
                except OSError:
                    pass
            time.sleep(0.05)
        raise Failure("the server does not listen")

    def both_ended(self, server, status):
        server_status = self.finish(server, "server") if status == 0 else server.poll()
        # rping's server closes its channel while its own thread may request the next event from it; also over the kernel's devices.
        if server_status == 255 and re.search(r"rdma_get_cm_event: (Bad file descriptor|Invalid argument)", self.output("a")):
            server_status = 0
        if status != 0 or server_status != 0:
            raise Failure(f"client {status}, server {server_status}")

    # One function for each kind of row.
    def once(self):
        if (status := self.finish(self.start("a", self.row.server), "program")) != 0:
            raise Failure(f"status {status}")

    def tcp(self):
        """Two programs that exchange the parameters of their QPs over TCP."""
        server, client = self.row.server, self.row.client
        if not client:
            server, client = f"{server} -p <port>", f"{server} -p <port> <host>"
        process = self.start("a", server)
        self.await_listener(process)
        self.both_ended(process, self.finish(self.start("b", client), "client"))

    def ask(self, server):
        """The client of a server that listens by rdma_cm: repeated until it is answered, because no other sign shows that the server
        listens."""
        until = time.monotonic() + 10
        while True:
            began = time.monotonic()
            status = self.finish(self.start("b", self.row.client), "client")
            if status == 0 or server.poll() is not None or time.monotonic() > until:
                return status
            # A client that was answered and then failed takes longer.
            if time.monotonic() - began > 5:
                return status
            time.sleep(0.3)

    def cm(self):
        server = self.start("a", self.row.server)
        if self.row.ready:
            self.await_output("a", self.row.ready.strip(), server)
        self.both_ended(server, self.ask(server))

    def serve(self):
        """A server that does not end by itself."""
        server = self.start("a", self.row.server)
        status = self.ask(server)
        if status != 0 or server.poll() is not None:
            raise Failure(f"client {status}, server {server.poll()}")
        self.end(server, signal.SIGTERM)

    def copy(self):
        """A server that does not end by itself, and that must have the data that was sent to it."""
        self.serve()
        folder = f"{self.network.folder}/home"
        if not filecmp.cmp(f"{folder}/sent", f"{folder}/copied", shallow=False):
            raise Failure("the copy differs")

    def watch(self):
        """A program that only listens receives the events of the device's link."""
        program = self.start("a", self.row.server)
        self.await_output("a", "async event FD", program)
        until = time.monotonic() + PATIENCE_S

        def reports(event, before):
            """Waits for one more event than before, with a time limit."""
            for _ in range(60):
                if self.output("a").count(event) > before:
                    return True
                time.sleep(0.1)
            return False

        # Events from before it watched are not delivered.
        reported = False
        while not reported:
            if program.poll() is not None or time.monotonic() > until:
                raise Failure("it does not tell that the link went down and came up")
            downs, ups = (self.output("a").count(event) for event in ("IBV_EVENT_PORT_ERR", "IBV_EVENT_PORT_ACTIVE"))
            self.network.cut(self.slot)
            reported = reports("IBV_EVENT_PORT_ERR", downs)
            self.network.mend(self.slot)
            reported = reports("IBV_EVENT_PORT_ACTIVE", ups) and reported
        self.end(program, signal.SIGTERM)

    def mpi(self, ipv6=False):
        """Ranks that share a device: on a wire one, over veth one at each end. Over udp each has its own, on two hosts."""
        ranks = int(self.row.server.split()[0])
        program = self.row.server.split(None, 1)[1]
        words = self.network.launcher(self.slot) + ["mpirun", "--oversubscribe", "--mca", "pml", "ucx", "--mca", "btl", "^openib,uct"]
        if os.geteuid() == 0 and self.network.user is None:
            words.append("--allow-run-as-root")
        for rank in range(ranks):
            words += ([":"] if rank else []) + ["-np", "1", *self.network.shared(self.slot, rank, ipv6)]
            words += [word.replace("<folder>", f"{self.network.folder}/home") for word in shlex.split(program)]
        if (status := self.finish(self.start("a", "UCX_NET_DEVICES=faultline0:1 UCX_TLS=rc_verbs,ud_verbs,self", words), "job")) != 0:
            raise Failure(f"status {status}")

    def mpi6(self):
        self.mpi(ipv6=True)

    def run(self):
        """A line that describes the error, or None."""
        try:
            getattr(self, self.row.how)()
            if self.row.wanted and not re.search(self.row.wanted, self.output("a") + self.output("b"), re.MULTILINE):
                raise Failure(f"nobody said {self.row.wanted}")
            return None
        except Failure as failure:
            return str(failure)
        finally:
            for process in self.running:
                self.end(process, signal.SIGKILL)
            with Run.lock:
                if Run.all_running is not None:
                    Run.all_running = [process for process in Run.all_running if process not in self.running]

    def last_words(self):
        # Lines of stderr precede, because a program writes its stdout to a file at its end.
        words = []
        for side in "ab":
            lines = self.output(side).splitlines()
            words += [f"{side}: {line}" for line in (lines if len(lines) <= 40 else lines[:15] + ["..."] + lines[-25:])]
        return "\n".join(words + self.network.last_words(self.slot))


def work(network, slot, rows, print_lock, failed):
    while Run.all_running is not None:
        try:
            row = rows.get_nowait()
        except queue.Empty:
            return
        began = time.monotonic()
        run = Run(network, slot, row)
        problem = run.run()
        with print_lock:
            if problem is None:
                print(f"ok: {row.name}")
            else:
                failed.append(row)
                print(f"FAILED ({problem}): {row.name}\n{run.last_words()}")
            if os.environ.get("MATRIX_TIMES"):
                print(f"  {time.monotonic() - began:.1f} s")
            sys.stdout.flush()
        for output in run.outputs.values():
            if os.path.exists(output):
                os.remove(output)


def main():
    faultline_run, name = sys.argv[1:3]
    wanted = re.compile(sys.argv[3] if len(sys.argv) > 3 else "")
    rows = [row for row in read_table(name) if wanted.search(row.name)]
    row_count = len(rows)
    if os.environ.get("FAULTLINE_BRIEF"):
        rows = rows[::3] if name == "veth" else rows[1::3] if name == "udp" else [row for number, row in enumerate(rows) if number % 3]
    missing = {word for row in rows for command in (row.server, row.client) for word in program_of(command) if not shutil.which(word)}
    missing |= {word for row in rows if row.how in ("mpi", "mpi6") for word in ("mpicc", "mpirun") if not shutil.which(word)}
    if missing:
        networks.skip(f"not installed: {', '.join(sorted(missing))}")
    # Only noted: an exception in a handler may leave the lock that it interrupts held for ever.
    signals = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    network = {"wire": networks.Wire, "veth": networks.Veth, "udp": networks.Udp}[name](faultline_run, SLOTS)
    failed, threads = [], []
    try:
        prepare(network)
        pending = queue.Queue()
        for row in sorted(rows, key=lambda row: -row.seconds):
            pending.put(row)
        lock = threading.Lock()
        threads += [threading.Thread(target=work, args=(network, slot, pending, lock, failed)) for slot in network.slots]
        for thread in threads:
            thread.start()
        while not signals and any(thread.is_alive() for thread in threads):
            time.sleep(0.1)
    finally:
        Run.end_all()
        for thread in threads:
            thread.join()
        network.close()
    if signals:
        sys.exit(128 + signals[0])
    print(f"{len(rows)} rows over {name}{f' of {row_count}' if len(rows) != row_count else ''}, {len(failed)} failed")
    sys.exit(1 if failed or not rows else 0)


def program_of(command):
    words = [word for word in command.split() if "=" not in word and not word.isdigit()]
    return [word for word in words[:1] if "/" not in word]


def prepare(network):
    """The requirements of the rows besides Debian's programs."""
    folder = f"{network.folder}/home"
    subprocess.run(["mpicc", "-o", f"{folder}/ring", f"{HERE}/mpi_ring.c"], check=True)
    with open(f"{folder}/sent", "wb") as file:
        file.write(os.urandom(3_000_000))
    for name in ("ring", "sent"):
        os.chmod(f"{folder}/{name}", 0o755)


main()
