# SPDX-License-Identifier: BSD-3-Clause
"""A program on a terminal, for tests of screens and prompts. pyte is None where python3-pyte is not installed."""
import os
import pty
import re
import select
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402

try:
    import pyte
except ImportError:
    pyte = None

COLUMNS = 160


class Terminal:
    """Starts the words of a command on a terminal of so many lines. The child's HOME is empty: no settings of the user apply."""

    def __init__(self, words, lines=40):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="linux", LC_ALL="C.UTF-8", LINES=str(lines), COLUMNS=str(COLUMNS), HOME="/nonexistent")
            os.execv(words[0], words)
        lib.on_exit(self.kill)
        self.ended = None
        self.screen = pyte.Screen(COLUMNS, lines)
        self.stream = pyte.ByteStream(self.screen)

    def read(self):
        """Takes what is there; waits for it at most a moment."""
        while select.select([self.fd], [], [], 0.05)[0]:
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
        def found():
            self.read()
            return re.search(pattern, self.text(), re.M)
        lib.await_that(found, lambda: f"{pattern!r} is on the screen, which has:\n{self.text()}\n")

    def press(self, keys, pattern=None):
        os.write(self.fd, keys.encode())
        if pattern is not None:
            self.shows(pattern)

    def poll(self):
        """The exit status, or None while the program runs."""
        if self.ended is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                self.ended = os.waitstatus_to_exitcode(status)
        return self.ended

    def end(self):
        """Waits for the program's end, and returns its status."""
        def ended():
            if self.ended is None:
                self.read()
            return self.poll() is not None
        lib.await_that(ended, lambda: f"the program ends; the screen has:\n{self.text()}\n")
        return self.ended

    def kill(self):
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
