#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs tests of meson again and again on a machine that is busy: four loops that compute, a process that dirties memory, and reclaim of
the tests' own pages by their memory cgroup (only as root).
  stress.py BUILD TIMES LOGBASE TEST...
The load ends with this process, however it ends. Exit status: that of meson."""
import ctypes
import mmap
import os
import pathlib
import signal
import subprocess
import sys
import time

BUSY_LOOPS = 4
DIRTY_BYTES = 256 << 20
RECLAIM_BYTES, RECLAIM_EVERY_S = 64 << 20, 1
# For hangs only: of a round, beside the limits of the tests.
ROUND_LIMIT_S = 2 * 3600
# A limit of a test ends a hang. Six processes on two CPUs leave a test less than a third of the time.
TIMEOUT_MULTIPLIER = 2
PR_SET_PDEATHSIG = 1
CGROUPS = pathlib.Path("/sys/fs/cgroup")


def busy():
    while True:
        pass


def dirty_memory():
    memory = mmap.mmap(-1, DIRTY_BYTES)
    number = 0
    while True:
        number += 1
        for page in range(0, DIRTY_BYTES, mmap.PAGESIZE):
            memory[page] = number & 0xff


class MemoryGroup:
    """A memory cgroup for the tests, of version 2 or 1. Its reclaim takes clean pages of files, and with swap others too."""

    def __init__(self):
        self.folder = self.file = self.text = None
        if os.geteuid() != 0:
            raise OSError("only root has a memory cgroup")
        name = f"faultline-stress-{os.getpid()}"
        if (CGROUPS / "cgroup.controllers").is_file():
            if "memory" not in (CGROUPS / "cgroup.subtree_control").read_text().split():
                (CGROUPS / "cgroup.subtree_control").write_text("+memory")
            self.folder, file, self.text = CGROUPS / name, "memory.reclaim", str(RECLAIM_BYTES)
        else:
            self.folder, file, self.text = CGROUPS / "memory" / name, "memory.force_empty", "0"
        self.folder.mkdir()
        self.file = self.folder / file
        if not self.file.exists():
            self.folder.rmdir()
            raise OSError(f"the kernel has no {file}")

    def add(self, process):
        (self.folder / "cgroup.procs").write_text(str(process))

    def reclaim(self):
        while True:
            try:
                self.file.write_text(self.text)
            except OSError:
                pass  # EAGAIN: there was less to take
            time.sleep(RECLAIM_EVERY_S)

    def remove(self):
        for _ in range(50):
            try:
                self.folder.rmdir()
                return
            except OSError:  # a process of a test is still ending
                time.sleep(0.2)
        print(f"stress: {self.folder} still has the processes {(self.folder / 'cgroup.procs').read_text().split()}", flush=True)


def start(function, limit_s):
    """A child that ends with this process, and after the limit."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == parent:
        signal.alarm(limit_s)
        function()
    os._exit(0)


def end(children):
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def run_all(build, times, log_base, names, group):
    """Round by round: with --repeat, meson would end at the first failure. LOGBASE.json has all results."""
    logs = pathlib.Path(build) / "meson-logs"
    failed = 0
    with (logs / f"{log_base}.json").open("w", encoding="utf-8") as results:
        for number in range(1, times + 1):
            print(f"== round {number} of {times}", flush=True)
            failed |= run(build, f"{log_base}-{number}", names, ROUND_LIMIT_S, group)
            results.write((logs / f"{log_base}-{number}.json").read_text(encoding="utf-8"))
            results.flush()
    return failed


def run(build, log_base, names, limit_s, group):
    command = ["meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", "--num-processes", str(2 * os.cpu_count()), "--logbase", log_base,
               "--timeout-multiplier", str(TIMEOUT_MULTIPLIER), *names]
    tests = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=(lambda: group.add(os.getpid())) if group else None)
    try:
        return tests.wait(limit_s)
    except subprocess.TimeoutExpired:
        print(f"stress: no end in {limit_s} s", flush=True)
        return 1
    finally:
        if tests.poll() is None:
            os.killpg(tests.pid, signal.SIGTERM)  # meson ends its tests
            try:
                tests.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(tests.pid, signal.SIGKILL)
                tests.wait()


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    build, times, log_base, *names = sys.argv[1:]
    limit_s = int(times) * ROUND_LIMIT_S
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    group, children = None, []
    try:
        group = MemoryGroup()
    except OSError as error:
        print(f"stress: no reclaim by a memory cgroup: {error}", flush=True)
    try:
        children += [start(busy, limit_s) for _ in range(BUSY_LOOPS)]
        children.append(start(dirty_memory, limit_s))
        if group:
            children.append(start(group.reclaim, limit_s))
        print(f"== {len(names)} tests {times} times beside {BUSY_LOOPS} busy loops, a process that dirties {DIRTY_BYTES >> 20} MiB"
              + (", and reclaim" if group else ""), flush=True)
        return run_all(build, int(times), log_base, names, group)
    finally:
        end(children)
        if group:
            group.remove()


sys.exit(main())
