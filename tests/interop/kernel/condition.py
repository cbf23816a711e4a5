# SPDX-License-Identifier: BSD-3-Clause
"""Waits for a condition, at both ends: the peer has the files of this folder, and so tests/lib.py is not there."""
import contextlib
import glob
import os
import signal
import time

# Ends a hang, and is no bound of anything else: the emulated machine may be ten times slower beside other work.
HANG_S = 600


def await_that(condition, limit_s=HANG_S, pause_s=0.01):
    """Waits until the condition is true; returns its value, which is false after a hang."""
    until = time.monotonic() + limit_s
    while not (value := condition()) and time.monotonic() < until:
        time.sleep(pause_s)
    return value


def stop(pid):
    """Stops a process as it is. A thread that SIGSTOP has not reached yet may still answer a packet, so this waits for each of them."""
    def has_stopped():
        states = []
        for path in glob.glob(f"/proc/{pid}/task/*/stat"):
            with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
                states.append(file.read().rpartition(")")[2].split()[0])
        return all(state == "T" for state in states)
    os.kill(pid, signal.SIGSTOP)
    if not await_that(has_stopped, pause_s=0.001):
        raise TimeoutError(f"process {pid} does not stop")
