# SPDX-License-Identifier: BSD-3-Clause
"""Starts the two sides of a measurement, one CPU each, and ends them in every case."""
import contextlib
import os
import pathlib
import select
import signal
import socket
import subprocess
import tempfile
import time

from .outcome import RunFailed

START_LIMIT_S = 20
END_LIMIT_S = 10


def side_cpus():
    """The CPUs of the two sides: the first two that this process may use, or one for both."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[1 if len(allowed) > 1 else 0]


def on_cpu(cpu, command):
    return ["taskset", "-c", str(cpu), *command]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port):
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in pathlib.Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[1].endswith(wanted) and fields[3] == "0A":
                    return True
    return False


class Child:
    """A program, ended with the block at the latest. Its output is kept in a file, so that it never waits for a reader."""

    def __init__(self, command, environment=None, talks=False):
        self.command = command
        self._said = tempfile.TemporaryFile()
        # A process group of its own, so that a script ends with all its children; not a session of its own, which Linux would schedule as
        # a
        # separate group.
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "--", *command], stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=self._said, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}, process_group=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        self._said.close()

    def output(self):
        return os.pread(self._said.fileno(), 1 << 24, 0).decode(errors="replace")

    def write_line(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise RunFailed(f"{self.name()} ended with {self.process.wait()} before it was told {line}: {self.last_words()}") from None

    def wait_for(self, seen, what, limit_s=START_LIMIT_S):
        """Waits until seen() holds."""
        deadline = time.monotonic() + limit_s
        while not seen():
            if self.process.poll() is not None:
                raise RunFailed(f"{self.name()} ended before {what}: {self.last_words()}")
            if time.monotonic() > deadline:
                raise RunFailed(f"{self.name()}: no sign of {what} for {limit_s} s: {self.last_words()}")
            time.sleep(0.01)

    def finish(self, limit_s):
        """Waits for its end; returns its output. Raises RunFailed if the status is not 0."""
        if not self._ends_within(limit_s):
            raise RunFailed(f"{self.name()} has not ended after {limit_s:.0f} s: {self.last_words()}")
        status = self.process.wait()
        if status != 0:
            raise RunFailed(f"{self.name()} ended with {status}: {self.last_words()}")
        return self.output()

    def _ends_within(self, limit_s):
        """Sleeps until the process ends. Popen.wait polls twenty times a second, which the 99.9th percentile of a latency would show."""
        handle = os.pidfd_open(self.process.pid)
        try:
            return bool(select.select([handle], [], [], limit_s)[0])
        finally:
            os.close(handle)

    def end(self):
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        for sign in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=END_LIMIT_S)

    def name(self):
        named = [word for word in self.command if word in NAMES] or [word for word in self.command if "/" in word]
        return os.path.basename((named or self.command)[0])

    def last_words(self):
        lines = [line for line in self.output().splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else "it said nothing"


# Programs that taskset, ip and faultline-run start by name.
NAMES = ("dpdk-testpmd", "ucx_perftest", "fi_pingpong", "mpirun.openmpi", "ib_send_lat", "ib_write_lat", "ib_write_bw")
