# SPDX-License-Identifier: BSD-3-Clause
"""Waits for a condition, at both ends: the peer has the files of this folder, and so tests/lib.py is not there."""
import time

# Ends a hang, and is no bound of anything else: the emulated machine may be ten times slower beside other work.
HANG_S = 600


def await_that(condition, limit_s=HANG_S, pause_s=0.01):
    """Waits until the condition is true; returns its value, which is false after a hang."""
    until = time.monotonic() + limit_s
    while not (value := condition()) and time.monotonic() < until:
        time.sleep(pause_s)
    return value
