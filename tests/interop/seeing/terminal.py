# SPDX-License-Identifier: BSD-3-Clause
"""A program on a terminal, for tests of screens and prompts. pyte is None where python3-pyte is not installed."""
import os
import pty
import re
import select
import signal
import time

try:
    import pyte
except ImportError:
    pyte = None

WAIT_S = 60
COLUMNS = 160


class Terminal:
    """Starts the words of a command on a terminal of so many lines. The child's HOME is empty: no settings of the user apply."""

    def __init__(self, words, lines=40):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="linux", LC_ALL="C.UTF-8", LINES=str(lines), COLUMNS=str(COLUMNS), HOME="/nonexistent")
            os.execv(words[0], words)
        self.screen = pyte.Screen(COLUMNS, lines)
        self.stream = pyte.ByteStream(self.screen)

    def read(self):
        while select.select([self.fd], [], [], 0.1)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                return
            if not data:
                return
            self.stream.feed(data)

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def shows(self, pattern):
        """Waits for the pattern, whose ^ and $ match at each line."""
        limit = time.monotonic() + WAIT_S
        while time.monotonic() < limit:
            self.read()
            if re.search(pattern, self.text(), re.M):
                return
        print(self.text())
        raise AssertionError(f"no {pattern!r} on the screen in {WAIT_S} s")

    def press(self, keys, pattern=None):
        os.write(self.fd, keys.encode())
        if pattern is not None:
            self.shows(pattern)

    def end(self):
        """Waits for the program's end, and returns its status."""
        limit = time.monotonic() + WAIT_S
        while time.monotonic() < limit:
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("the program does not end")
