# SPDX-License-Identifier: BSD-3-Clause
"""Differences between two results files that are beyond the noise."""
import dataclasses

from .spread import mann_whitney_p, median, smallest_p
from .units import form_of, more_is_better, rounded, written

ALPHA = 0.01
LEAST_CHANGE = 0.03
# These figures have none of Faultline's code: if they differ, the machines differ.
NOT_OURS = ("raw/", "ucx/", "libfabric/", "wire/ucx_tag_lat/tcp/", "wire/ucx_tag_lat/shm/", "wire/ucx_tag_bw/tcp/",
            "wire/mpi_pingpong/tcp/")
RULE = f"""The rule: a figure differs if both hold.
1. Dealing all runs' values to the two sides by chance would part them this far in at most {ALPHA:.0%} of the ways (Mann-Whitney's U
   test, exact, two-sided). Five runs a side can do it, fewer cannot: all of one side are then beyond all of the other.
2. The medians differ by more than {LEAST_CHANGE:.0%}.
"""


@dataclasses.dataclass(frozen=True)
class Difference:
    figure: str
    metric: str
    before: float
    after: float
    p: float
    enough: bool

    @property
    def change(self):
        return self.after / self.before - 1 if self.before else float("inf")

    @property
    def beyond_noise(self):
        return self.enough and self.p <= ALPHA and abs(self.change) > LEAST_CHANGE

    @property
    def better(self):
        return (self.change > 0) == more_is_better(self.metric)

    @property
    def ours(self):
        return not self.figure.startswith(NOT_OURS)


def differences(before, after):
    """For every figure and metric that both samples have."""
    for figure, metrics in before.items():
        for metric, values in metrics.items():
            others = after.get(figure, {}).get(metric)
            if not others:
                continue
            enough = smallest_p(len(values), len(others)) <= ALPHA
            yield Difference(figure, metric, median(values), median(others), mann_whitney_p(values, others) if enough else 1.0, enough)


def _row(one):
    scale, _ = form_of(one.metric)
    return (f"| {one.figure} | {one.metric.removesuffix('_us')} | {rounded(one.before * scale)} | {written(one.after, one.metric)} | "
            f"{one.change:+.1%} | {'better' if one.better else 'worse'} | {one.p:.4f} |")


def _table(title, rows):
    if not rows:
        return []
    return ["", title, "", "| figure | metric | before | after | change | | p |", "|---|---|---|---|---|---|---|",
            *(_row(one) for one in sorted(rows, key=lambda one: -abs(one.change)))]


def report(before, after):
    """Markdown: compares two Results."""
    found = list(differences(before.samples(), after.samples()))
    beyond = [one for one in found if one.beyond_noise]
    enough = sum(one.enough for one in found)
    lines = [RULE]
    lines += [f"Another {fact}: {before.machine.get(fact)} / {value}" for fact, value in after.machine.items()
              if fact not in ("commit", "changed_since") and before.machine.get(fact) != value]
    lines += [f"{len(found)} figures are in both; {len(found) - enough} of them have too few runs to say anything; {len(beyond)} differ. "
              f"By chance alone about {enough * ALPHA:.0f} would."]
    lines += _table("The machine itself is not as it was: these hold none of our code, and what follows is to be read against them.",
                    [one for one in beyond if not one.ours])
    lines += _table("Beyond the noise:", [one for one in beyond if one.ours])
    return "\n".join(lines)
