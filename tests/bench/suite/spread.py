# SPDX-License-Identifier: BSD-3-Clause
"""Medians, ratios of consecutive runs, and a test whether two sets of runs differ by more than chance."""
import math
import statistics

median = statistics.median


class Values(list):
    """A metric's values in the order of their runs. `moments`: the round and turn of each; `runs`: how many there were; `near`: whether
    the
    two CPUs were near in these runs."""

    def __init__(self, values, moments, runs, near=True):
        super().__init__(values)
        self.moments = moments
        self.runs = runs
        self.near = near


def _pairs(values, others):
    moments, other_moments = getattr(values, "moments", None), getattr(others, "moments", None)
    if moments and other_moments:
        beside = dict(zip(other_moments, others))
        return [(value, beside[moment]) for moment, value in zip(moments, values) if moment in beside]
    return list(zip(values, others)) if len(values) == len(others) else []


def ratios(values, others):
    """The ratio of each run to its pair; of the medians if the runs are not in pairs."""
    if not values or not others:
        return []
    pairs = _pairs(values, others) or [(median(values), median(others))]
    return [value / other for value, other in pairs if other != 0]


def smallest_p(count, other_count):
    """The smallest result of the test below: all values of one side are beyond all values of the other."""
    return min(1.0, 2 / math.comb(count + other_count, count))


def mann_whitney_p(values, others):
    """Two-sided, exact: the share of all partitions of these values into the two sides that separate them at least as far.

    H. B. Mann, D. R. Whitney, 1947; equal values share their ranks' mean.
    """
    ordered = sorted([*values, *others])
    doubled_rank = {}
    for value in set(ordered):
        first = ordered.index(value) + 1
        doubled_rank[value] = 2 * first + ordered.count(value) - 1
    ranks = [doubled_rank[value] for value in ordered]

    # dealt[k][s]: the number of ways in which k of the ranks have the sum s.
    count = len(values)
    dealt = [{0: 1}] + [{} for _ in range(count)]
    for rank in ranks:
        for taken in range(count, 0, -1):
            for total, ways in dealt[taken - 1].items():
                dealt[taken][total + rank] = dealt[taken].get(total + rank, 0) + ways
    middle = count * (len(ordered) + 1)
    distance = abs(sum(doubled_rank[value] for value in values) - middle)
    as_far = sum(ways for total, ways in dealt[count].items() if abs(total - middle) >= distance)
    return as_far / math.comb(len(ordered), count)
