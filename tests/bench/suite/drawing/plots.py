# SPDX-License-Identifier: BSD-3-Clause
"""The plots, and their figures."""
import dataclasses

from .. import plan
from .chart import Chart, Line
from ..spread import median
from ..units import form_of

RANKS = ("p50", "p99", "p999")


@dataclasses.dataclass(frozen=True)
class Plot:
    name: str
    title: str
    x_title: str
    y_title: str
    labels: tuple
    series: tuple  # (name, one (figure, metric) a label)


def _by_size(metric, names):
    return tuple((name, tuple((figure.format(label), metric) for label in plan.SIZES)) for name, figure in names)


def _by_rank(names):
    return tuple((name, tuple((figure, f"{rank}_us") for rank in RANKS)) for name, figure in names)


_RATES = (
    ("WRITE, ring", "ring/write/{}"), ("WRITE, memif", "memif/write/{}"), ("SEND, memif", "memif/send/{}"),
    ("READ, memif", "memif/read/{}"),
    ("WRITE, af_packet on veth", "af_packet/write/{}"), ("UCX tag, shared memory", "ucx/shm/tag_bw/{}"),
    ("UCX put, shared memory", "ucx/shm/put_bw/{}"), ("UCX tag, TCP", "ucx/tcp/tag_bw/{}"),
)
_QP_COUNTS = tuple(sorted((*plan.QPS, plan.FEW_QPS, plan.MANY_QPS)))

PLOTS = (
    Plot("rate", "Messages a second by size", "message bytes", "M messages/s", plan.SIZES, _by_size("messages_per_second", _RATES)),
    Plot("bandwidth", "Bandwidth by size", "message bytes", "GB/s", plan.SIZES, _by_size("gb_per_second", _RATES)),
    Plot("latency", "Half round trip of 64 B", "percentile", "us", ("p50", "p99", "p99.9"), _by_rank((
        ("SEND, ring", "ring/lat/send/64"), ("SEND, memif", "memif/lat/send/64"), ("SEND, af_packet on veth", "af_packet/lat/send/64"),
        ("SEND, tap", "tap/lat/send/64"), ("UCX tag, shared memory", "ucx/shm/tag_lat/64"), ("UCX tag, TCP", "ucx/tcp/tag_lat/64")))),
    Plot("qps", "64 B WRITE by number of QPs, 16 under way on each", "QPs", "M messages/s", tuple(f"{count:,}" for count in _QP_COUNTS),
         (("WRITE, memif", tuple((f"memif/qps/{count}/write/64", "messages_per_second") for count in _QP_COUNTS)),)),
)


def _lines(plot, samples):
    for name, figures in plot.series:
        points = []
        for place, (figure, metric) in enumerate(figures):
            scale, _ = form_of(metric)
            values = [scale * value for value in samples.get(figure, {}).get(metric, []) if value > 0]
            if values:
                points.append((place, min(values), median(values), max(values)))
        if len(points) > 1:
            yield Line(name, points)


def drawable(samples):
    """The series that have at least two points."""
    return [plot for plot in PLOTS if any(True for _ in _lines(plot, samples))]


def draw(plot, samples):
    return Chart(plot.title, plot.x_title, plot.y_title, plot.labels, list(_lines(plot, samples))).svg()
