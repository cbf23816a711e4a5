# SPDX-License-Identifier: BSD-3-Clause
"""The distance of the two CPUs during a measurement. Hosts move virtual CPUs between caches, and then everything that two CPUs do
together
takes several times as long."""
import bisect
import contextlib
import os

from .outcome import Unavailable
from .processes import Child
from .spread import median

EVERY_MS = 50
FAR_FACTOR = 2.0        # times the limit of the nearest fifth of all samples
NEAREST_SHARE = 0.2
SET_ASIDE_SHARE = 0.2   # of the samples during a figure


class Looks:
    """[(seconds of the monotonic clock, nanoseconds for the transfer of a cache line)], in the order of time."""

    def __init__(self, looks):
        self.looks = looks
        self._moments = [when for when, _ in looks]
        ordered = sorted(took for _, took in looks)
        # The upper end of the nearest fifth is the transfer time of near CPUs.
        self._limit_ns = FAR_FACTOR * ordered[int(NEAREST_SHARE * (len(ordered) - 1))] if ordered else 0.0

    def far_share(self, began, ended):
        """The share of samples in the interval that are far; if it has none, of the one before."""
        first, end = bisect.bisect_left(self._moments, began), bisect.bisect_right(self._moments, ended)
        during = self.looks[first:end] or self.looks[max(0, first - 1):first]
        return sum(took > self._limit_ns for _, took in during) / len(during) if during else 0.0

    def summary(self):
        near = [took for _, took in self.looks if took <= self._limit_ns]
        far = [took for _, took in self.looks if took > self._limit_ns]
        return {"looks": len(self.looks), "near_ns": median(near) if near else 0.0, "far_ns": median(far) if far else 0.0,
                "far_share": len(far) / max(1, len(self.looks))}


class Watch:
    """Takes a sample twenty times a second, for some microseconds each, until the end of the block."""

    def __init__(self, context):
        self._program = os.path.join(context.build, "tests", "bench", "core_distance")
        self._cpus = context.cpus
        self._ends = contextlib.ExitStack()
        self._child = None

    def __enter__(self):
        if self._cpus[0] != self._cpus[1]:
            if not os.access(self._program, os.X_OK):
                raise Unavailable(f"{self._program} is not built")
            self._child = self._ends.enter_context(Child([self._program, *map(str, self._cpus), str(EVERY_MS)]))
        return self

    def __exit__(self, *_):
        self._ends.close()

    def looks(self):
        if not self._child:
            return Looks([])
        whole_lines = self._child.output().rpartition("\n")[0].splitlines()
        return Looks([tuple(map(float, line.split())) for line in whole_lines])
