#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the programs of matrix.txt, as Debian ships them, on one network: over a wire as an ordinary user, or over veth pairs in
network namespaces as root.

    matrix.py FAULTLINE_RUN wire|veth|udp [--chosen] [REGULAR EXPRESSION]

Prints "ok: PROGRAM ARGUMENTS" or "FAILED: ..." for each row. Slots of the network work at the same time, because the programs mostly
wait. With an expression, only matching rows run. With --chosen, only those that matrix.txt marks, one of each program. With
FAULTLINE_BRIEF=1 in the environment, every third row runs over veth, and the others over the wire.
"""
import argparse
import filecmp
import functools
import glob
import itertools
import json
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
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import lib  # noqa: E402
import networks  # noqa: E402

SLOTS = 3
FIRST_PORT = 20000
RSPRELOAD = next(iter(glob.glob("/usr/lib/*/rsocket/librspreload.so")), "librspreload.so")
# What a client prints when it has waited two seconds, its own limit, for an address or a route. Its connection has not begun then.
GAVE_UP = re.compile(r"(ADDR|ROUTE)_ERROR, error:? -110")
MOST_CLIENTS = 5
# perftest's own ACK time-out is 67 ms; eight of 1.07 s (4.096 us * 2^18) outlive a scheduler that stalls the peer.
LONG_TIMEOUT = ["-u", "18"]


class Failure(Exception):
    pass


class Row:
    is_chosen = False

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
            is_chosen, only = only.endswith("*"), only.rstrip("*")
            if network in GROUPS.get(only, only).split(","):
                rows += rows_of(line, is_chosen)
    return rows


def rows_of(line, is_chosen):
    """The rows of a line. If it is marked, the first one of each program is chosen."""
    seen = set()
    for text in networks.expand(line):
        row = Row(text)
        program = tuple(program_of(row.server))
        row.is_chosen = is_chosen and program not in seen
        seen.add(program)
        yield row


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
        if words and words[0].startswith("ib_") and not re.search(r" -c U[CD]\b", text):
            words[1:1] = LONG_TIMEOUT
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
            return process.wait(lib.LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Failure(f"the {what} did not end") from None

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

    @staticmethod
    def await_that(condition, what, process):
        """lib.await_that() for one of many rows: a row that fails does not end the others."""
        until, pause = time.monotonic() + lib.LIMIT_S, 0.02
        while not (value := condition()):
            if process.poll() is not None or time.monotonic() > until:
                raise Failure(what)
            time.sleep(pause)
            pause = min(2 * pause, 0.3)
        return value

    def await_output(self, side, text, process):
        self.await_that(lambda: text in self.output(side), f"it did not say {text!r}", process)

    def await_listener(self, process):
        """Waits until the server listens: its client tries to connect only once."""
        self.await_that(lambda: lib.listens(self.port, process.pid), "the server does not listen", process)

    def await_cm_listener(self, server):
        """The same for rdma_cm, of which rdma(8) tells."""
        shown = f"{self.network.folder}/{self.slot}-listeners.json"
        words = [*self.network.command(self.slot, "b", self.row.part), "rdma", "-j", "res", "show", "cm_id"]

        def listens():
            asked = self.network.start(words, shown, {})
            self.running.append(asked)
            if self.finish(asked, "program rdma") != 0:
                return False
            with open(shown) as file:
                text = file.read()
            text = text[max(text.find("["), 0):]
            return any(one.get("pid") == server.pid and one.get("state") == "LISTEN" for one in json.loads(text or "[]"))
        self.await_that(listens, "the server does not listen", server)

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

    def ask(self, server, is_ready=lambda: True):
        """The client of a server that listens by rdma_cm; returns the client's status."""
        if self.row.ready:
            self.await_output("a", self.row.ready.strip(), server)
        else:
            self.await_cm_listener(server)
        self.await_that(is_ready, "the server does not wait for a client", server)
        for _ in range(MOST_CLIENTS):
            status = self.finish(self.start("b", self.row.client), "client")
            if status == 0 or server.poll() is not None or not GAVE_UP.search(self.output("b")):
                break
        return status

    def cm(self):
        server = self.start("a", self.row.server)
        self.both_ended(server, self.ask(server))

    def serve(self):
        """A server that does not end by itself."""
        server = self.start("a", self.row.server)
        self.served(server, self.ask(server), (None,))

    def served(self, server, status, may_end):
        ended = server.poll()
        if status != 0 or ended not in may_end:
            raise Failure(f"client {status}, server {ended}")
        self.end(server, signal.SIGTERM)

    def either(self):
        """A server that in some versions of the program listens by TCP as soon as it does by rdma_cm, and ends with its client."""
        server = self.start("a", self.row.server)
        self.served(server, self.ask(server, lambda: lib.awaits_client(server.pid)), (None, 0))

    def copy(self):
        """A server that does not end by itself, and that must have the data that was sent to it."""
        self.serve()
        folder = f"{self.network.folder}/home"
        if not filecmp.cmp(f"{folder}/sent", f"{folder}/copied", shallow=False):
            raise Failure("the copy differs")

    def watch(self):
        """A program that only listens receives the events of the device's link."""
        program = self.start("a", self.row.server)
        # It names its descriptor before it watches. What it does not watch is not reported.
        named = self.await_that(lambda: re.search(r"async event FD (\d+)\n", self.output("a")), "it names no descriptor", program)
        self.await_that(lambda: lib.polls(program.pid, named.group(1)), "it does not wait for events", program)
        for change, event in ((self.network.cut, "IBV_EVENT_PORT_ERR"), (self.network.mend, "IBV_EVENT_PORT_ACTIVE")):
            change(self.slot)
            self.await_output("a", event, program)
        self.end(program, signal.SIGTERM)

    def mpi(self, ipv6=False):
        """Ranks that share a device: on a wire one, over veth one at each end. Over udp each has its own, on two hosts."""
        ranks = int(self.row.server.split()[0])
        program = self.row.server.split(None, 1)[1]
        words = self.network.launcher(self.slot) + ["mpirun", "--oversubscribe", "--mca", "pml", "ucx", "--mca", "btl", "^openib,uct"]
        if os.geteuid() == 0 and self.network.user is None:
            words.append("--allow-run-as-root")
        program = [word.replace("<folder>", f"{self.network.folder}/home") for word in shlex.split(program)]
        before = [self.network.shared(self.slot, rank, ipv6) for rank in range(ranks)]
        if all(each == before[0] for each in before):
            words += ["-np", str(ranks), *before[0], *program]
        else:
            for rank in range(ranks):
                words += ([":"] if rank else []) + ["-np", "1", *before[rank], *program]
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


def work(network, slot, rows, print_lock, ended, failed):
    while Run.all_running is not None:
        try:
            row = rows.get_nowait()
        except queue.Empty:
            return
        began = time.monotonic()
        run = Run(network, slot, row)
        problem = run.run()
        with print_lock:
            ended.append(row)
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faultline_run")
    parser.add_argument("network", choices=["wire", "veth", "udp"])
    parser.add_argument("--chosen", action="store_true")
    parser.add_argument("expression", nargs="?", default="")
    arguments = parser.parse_intermixed_args()
    faultline_run, name, wanted = arguments.faultline_run, arguments.network, re.compile(arguments.expression)
    rows = [row for row in read_table(name) if wanted.search(row.name) and (row.is_chosen or not arguments.chosen)]
    row_count = len(rows)
    if os.environ.get("FAULTLINE_BRIEF") and not arguments.chosen:
        rows = rows[::3] if name == "veth" else rows[1::3] if name == "udp" else [row for number, row in enumerate(rows) if number % 3]
    missing = {word for row in rows for command in (row.server, row.client) for word in program_of(command) if not shutil.which(word)}
    missing |= {word for row in rows if row.how in ("mpi", "mpi6") for word in ("mpicc", "mpirun") if not shutil.which(word)}
    if not shutil.which("rdma") and any(row.how in ("cm", "serve", "either", "copy") and not row.ready for row in rows):
        missing.add("rdma")
    if missing:
        lib.skip(f"not installed: {', '.join(sorted(missing))}")
    # Only noted: an exception in a handler may leave the lock that it interrupts held for ever.
    signals = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    reasons = [(row, why_not(row, name)) for row in rows]
    for row, reason in reasons:
        if reason:
            print(f"SKIPPED ({reason}): {row.name}")
    rows = [row for row, reason in reasons if not reason]
    network = {"wire": networks.Wire, "veth": networks.Veth, "udp": networks.Udp}[name](faultline_run, SLOTS)
    ended, failed, threads = [], [], []
    try:
        prepare(network)
        pending = queue.Queue()
        for row in sorted(rows, key=lambda row: -row.seconds):
            pending.put(row)
        lock = threading.Lock()
        threads += [threading.Thread(target=work, args=(network, slot, pending, lock, ended, failed)) for slot in network.slots]
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
    print(f"{len(rows)} rows over {name}{f' of {row_count}' if len(rows) != row_count else ''}, {len(failed)} failed" +
          (f", {len(rows) - len(ended)} did not end" if len(ended) != len(rows) else ""))
    sys.exit(1 if failed or not rows or len(ended) != len(rows) else 0)


def program_of(command):
    words = [word for word in command.split() if "=" not in word and not word.isdigit()]
    return [word for word in words[:1] if "/" not in word]


@functools.cache
def has_bytes(program, text):
    with open(shutil.which(program), "rb") as file:
        return text in file.read()


@functools.cache
def usage_of(program):
    asked = subprocess.run([program, "-h"], capture_output=True, text=True, check=False, timeout=lib.LIMIT_S)
    return asked.stdout + asked.stderr


@functools.cache
def takes_two_programs():
    """Whether mpirun starts a job of two programs. That of Open MPI 5.0.7 crashes."""
    words = ["mpirun", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "-np", "1", "true", ":", "-np", "1", "true"]
    return lib.call(words, None).returncode == 0


def why_not(row, network):
    """Why this system's version of a row's program cannot run the row; None if it can."""
    program = program_of(row.server)[0] if program_of(row.server) else ""
    if row.part and program.startswith("ib_") and has_bytes(program, b"mlx5dv_query_device"):
        return "it asks the driver of that part, mlx5dv"
    if (row.how in ("mpi", "mpi6") or program.startswith("ucx_")) and not glob.glob("/usr/lib/*/ucx/libuct_ib.so*"):
        return "this UCX has no module for verbs"
    if row.how in ("mpi", "mpi6") and network != "wire" and not takes_two_programs():
        return "this mpirun starts no job of two programs"
    if program == "cmtime" and (" -C " in row.server) != ("controller" in usage_of(program)):
        return "its options are others"
    # rdma-core 56: the kernel has the addresses of the other networks.
    if program == "cmtime" and network == "veth" and " -C " not in row.server and "[-S]" in usage_of(program):
        return "its ends meet by TCP at the device's address, which the kernel has not"
    return None


def prepare(network):
    """The requirements of the rows besides Debian's programs."""
    folder = f"{network.folder}/home"
    subprocess.run(["mpicc", "-o", f"{folder}/ring", f"{HERE}/mpi_ring.c"], check=True)
    with open(f"{folder}/sent", "wb") as file:
        file.write(os.urandom(3_000_000))
    for name in ("ring", "sent"):
        os.chmod(f"{folder}/{name}", 0o755)


main()
