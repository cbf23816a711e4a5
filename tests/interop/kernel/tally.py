# SPDX-License-Identifier: BSD-3-Clause
"""The results of the cases of a lane: printed as they end, counted at the end; and the arguments of a lane."""
import argparse
import re
import sys
import threading


class Tally:
    def __init__(self, lane):
        self.lane = lane
        self.passed, self.failed, self.cannot = 0, 0, {}
        self.lock = threading.Lock()

    def ok(self, name, note=""):
        with self.lock:
            self.passed += 1
            print(f"ok: {self.lane}: {name}{': ' + note if note else ''}", flush=True)

    def fail(self, name, why):
        with self.lock:
            self.failed += 1
            print(f"FAILED: {self.lane}: {name}: {why}", flush=True)

    def refused(self, name, reason):
        """The kernel itself cannot do this; has its own message."""
        with self.lock:
            self.cannot.setdefault(reason, []).append(name)
            print(f"cannot: {self.lane}: {name}: {reason}", flush=True)

    def finish(self):
        """Prints the last lines; returns the exit status."""
        for reason, names in self.cannot.items():
            print(f"{self.lane}: {len(names)} cases that the kernel cannot do: {reason}")
        refused = sum(map(len, self.cannot.values()))
        print(f"{self.lane}: {self.passed + self.failed} cases run, {self.passed} passed, {self.failed} failed, {refused} that the "
              f"kernel cannot do")
        sys.exit(1 if self.failed else 0)


def lane_parser(doc):
    """The arguments of every lane: FAULTLINE_RUN [--reduced] [REGULAR EXPRESSION]; only cases that match it run."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faultline_run")
    parser.add_argument("--reduced", action="store_true", help="a few minutes' choice of the cases")
    parser.add_argument("wanted", nargs="?", default="", type=re.compile, metavar="REGULAR EXPRESSION")
    return parser
