# SPDX-License-Identifier: BSD-3-Clause
"""Faultline's targets, and whether a set of runs reached them."""
import dataclasses

from . import plan
from .spread import median, ratios
from .units import rounded, written
from .wires import crowd

RATE, BANDWIDTH, HALF_TRIP, TO_PINNED = "messages_per_second", "gb_per_second", "p50_us", "to_pinned"


@dataclasses.dataclass(frozen=True)
class Target:
    what: str
    figure: str
    metric: str
    bound: float | None = None  # None: only reported
    at_least: bool = True
    against: tuple = ()      # (figure, metric): the bound applies to the ratio to it
    factor: float = 1.0      # packets of a message


@dataclasses.dataclass(frozen=True)
class Verdict:
    target: Target
    values: list

    @property
    def measured(self):
        return bool(self.values)

    @property
    def reached(self):
        return self.target.bound is not None and self.measured and (median(self.values) >= self.target.bound if self.target.at_least else
                                  median(self.values) <= self.target.bound)

    def text(self, value):
        return rounded(value) if self.target.against else written(value, self.target.metric)

    def outcome(self):
        return "" if self.target.bound is None else "reached" if self.reached else "**not reached**"

    def wanted(self):
        return "" if self.target.bound is None else f"{'at least' if self.target.at_least else 'at most'} {self.text(self.target.bound)}"


def _over_wires():
    """Reported, without a bound."""
    yield Target("64 B `ib_send_lat` over a wire, half round trip p50", "wire/send_lat/64", HALF_TRIP)
    yield Target("the same, p99", "wire/send_lat/64", "p99_us")
    yield Target("its p50 to faultline-perf's over memif", "wire/send_lat/64", HALF_TRIP, against=("wire/direct/lat/send/64", HALF_TRIP))
    yield Target("64 B `ib_write_lat` over a wire, half round trip p50", "wire/write_lat/64", HALF_TRIP)
    yield Target("the same, average", "wire/write_lat/64", "mean_us")
    yield Target("the same, p99", "wire/write_lat/64", "p99_us")
    yield Target("64 B `ib_send_lat -e` over a wire, half round trip p50", "wire/send_lat_event/64", HALF_TRIP)
    for label, what, metric in (("64", "64 B", RATE), ("64k", "64 KiB", BANDWIDTH)):
        yield Target(f"{what} `ib_write_bw` over a wire", f"wire/write_bw/{label}", metric)
        yield Target("the same, to faultline-perf's over memif", f"wire/write_bw/{label}", metric,
                     against=(f"wire/direct/write/{label}", metric))
    yield from _beside_tcp("64 B UCX `tag_lat`, half round trip p50", "wire/ucx_tag_lat/{}/64", HALF_TRIP, ("verbs", "tcp", "shm"))
    yield from _beside_tcp("64 KiB UCX `tag_bw`", "wire/ucx_tag_bw/{}/64k", BANDWIDTH, ("verbs", "tcp"))
    yield from _beside_tcp("64 B Open MPI over UCX, half round trip p50", "wire/mpi_pingpong/{}/64", HALF_TRIP, ("verbs", "tcp"))
    yield Target("three pairs of `ib_write_bw` of 64 KiB at once, sum", "wire/three_pairs", BANDWIDTH)
    yield Target("the same, to one pair", "wire/three_pairs", "to_one_pair")
    yield Target("two idle programs and their switch, CPU time", "wire/idle", "cpu_ms")
    yield Target("an idle program on a wire, resident memory", "wire/idle", "resident_mib")
    yield Target(f"{crowd.USUAL} processes, each with each: exchange of all messages", f"wire/crowd/{crowd.USUAL}", "seconds")
    yield Target("the same, memory of all processes and the switch", f"wire/crowd/{crowd.USUAL}", "pss_mib")


def _beside_tcp(what, figure, metric, transports):
    names = {"verbs": "verbs on a wire", "tcp": "TCP", "shm": "shared memory"}
    for transport in transports:
        yield Target(f"{what}, {names[transport]}", figure.format(transport), metric)
    yield Target(f"{what}, verbs to TCP", figure.format("verbs"), metric, against=(figure.format("tcp"), metric))


def _beside_pinned():
    for op in ("write", "read", "send"):
        for label in plan.PAIR_SIZES:
            yield Target(f"warm on-demand against pinned: {op.upper()} of {label}, rate", f"memif/odp/{op}/{label}", TO_PINNED, 0.98)
        what = "round trip" if op == "read" else "half round trip"
        yield Target(f"pinned against warm on-demand: {op.upper()} of 64, {what} p50", f"memif/odp/lat/{op}/64", TO_PINNED, 0.98)


TARGETS = (
    *_over_wires(),
    Target("64 B WRITE, one QP, memif", "memif/write/64", RATE, 12e6),
    Target("the same, to testpmd's packet rate at its frame size", "memif/write/64", RATE, 0.25,
           against=(f"raw/memif/{plan.FRAME_OF_64}", "packets_per_second")),
    Target("64 B SEND, one QP, memif", "memif/send/64", RATE, 8e6),
    Target("64 B READ, one QP, memif", "memif/read/64", RATE, 6e6),
    Target("64 B SEND, half round trip p50, memif, inline progress", "memif/lat/send/64", HALF_TRIP, 0.6, at_least=False),
    Target("the same, to UCX over TCP", "memif/lat/send/64", HALF_TRIP, 1 / 6, at_least=False,
           against=("ucx/tcp/tag_lat/64", HALF_TRIP)),
    Target("64 KiB WRITE, path MTU 4096, memif", "memif/write/64k", BANDWIDTH, 12),
    Target("the same, to UCX over shared memory (tag_bw)", "memif/write/64k", BANDWIDTH, 1, against=("ucx/shm/tag_bw/64k", BANDWIDTH)),
    Target("64 KiB WRITE, path MTU 4096, net_ring in one process", "ring/write/64k", BANDWIDTH, 15),
    Target("64 KiB WRITE's packets over af_packet on veth, to testpmd's rate at their size", "af_packet/write/64k", RATE, 0.85,
           against=(f"raw/af_packet/{plan.FRAME_OF_4096}", "packets_per_second"), factor=plan.packets_of("64k")),
    Target("64 B WRITE's packets over af_packet on veth, to testpmd's rate at their size", "af_packet/write/64", RATE, 0.85,
           against=(f"raw/af_packet/{plan.FRAME_OF_64}", "packets_per_second")),
    Target("ICRC on against off, 64 KiB WRITE", "memif/icrc_on/write/64k", BANDWIDTH, 0.8,
           against=("memif/icrc_off/write/64k", BANDWIDTH)),
    *_beside_pinned(),
    Target("what a minor fault adds to a 64 B WRITE, p50", "memif/cold/write/64", "added_p50_us", 4, at_least=False),
    Target("the same, p99", "memif/cold/write/64", "added_p99_us", 15, at_least=False),
    Target("what a page in compressed swap adds beyond the kernel's own populate, p50", "swap/write/64", "beyond_populate_p50_us", 8,
           at_least=False),
    Target(f"{plan.MANY_QPS:,} QPs against {plan.FEW_QPS}, 64 B WRITE", f"memif/qps/{plan.MANY_QPS}/write/64", RATE, 0.7,
           against=(f"memif/qps/{plan.FEW_QPS}/write/64", RATE)),
    Target("an idle device", "idle/memif/auto", "cpu_share", 0.01, at_least=False),
)


def verdicts(samples):
    def of(figure, metric):
        return samples.get(figure, {}).get(metric, [])

    for target in TARGETS:
        values = of(target.figure, target.metric)
        if target.against:
            values = ratios(values, of(*target.against))
        yield Verdict(target, [value * target.factor for value in values])


def figures():
    """All figures that a target uses."""
    return {target.figure for target in TARGETS} | {target.against[0] for target in TARGETS if target.against}
