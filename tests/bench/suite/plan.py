# SPDX-License-Identifier: BSD-3-Clause
"""The table of measurements. Measurements of one block take turns, A B B A, so that their ratio is of one stretch of time."""
import dataclasses
import functools
import os
import re
from collections.abc import Callable

from . import cores, libfabric, perf, stages, swap, testpmd, ucx
from .sizes import bytes_of
from .wires import crowd, mpi, perftest


@dataclasses.dataclass(frozen=True)
class Measurement:
    """`run(context)` returns figures, {name: {metric: number}}, and counters for them."""
    name: str
    run: Callable
    in_quick: bool = False
    on_both_cpus: bool = True  # simultaneously, so that their distance matters


@dataclasses.dataclass(frozen=True)
class Block:
    measurements: tuple
    turns: int = 1

    def in_turns(self, backwards):
        order = list(self.measurements)
        for turn in range(self.turns):
            yield from reversed(order) if (turn % 2 == 1) != backwards else order


SMALL = ("8", "64", "256", "1k", "4k", "16k", "64k")
LARGE = ("256k", "1m", "8m")
SIZES = SMALL + LARGE
PAIR_SIZES = ("64", "4k", "64k")
PUT_SIZES = PAIR_SIZES + ("1m",)
QPS = (1, 4, 64, 256, 1000, 4000)
FEW_QPS, MANY_QPS = 16, 10_000
LARGE_DEPTH = 16
REGIONS = ("odp", "pinned")
MTU = ("--mtu", "4096")
HEADERS_BYTES = 14 + 20 + 8 + 12 + 4  # Ethernet, IPv4, UDP, BTH, ICRC
RETH_BYTES = 16
FRAME_OF_64 = HEADERS_BYTES + RETH_BYTES + 64
FRAME_OF_4096 = HEADERS_BYTES + 4096


def _perf(name, kind, options, prefix=None, in_quick=False, **how):
    return Measurement(name, functools.partial(perf.measure, kind=kind, prefix=prefix or name, options=options, **how), in_quick)


def _raw(kind, frame_bytes, in_quick=True):
    return Measurement(f"raw/{kind}/{frame_bytes}", functools.partial(testpmd.measure, kind=kind, frame_bytes=frame_bytes), in_quick)


def _sizes(labels):
    return ("--size", ",".join(labels))


def _ops(*names):
    return ("--op", ",".join(names))


def _ucx(transport, test, labels, in_quick=False):
    return Measurement(f"ucx/{transport}/{test}", functools.partial(ucx.measure, transport=transport, test=test, sizes=labels), in_quick)


def _small(kind, quick):
    """Rates and bandwidth with warm on-demand memory."""
    return _perf(f"{kind}/small", kind, (*_ops("write", "read", "send"), *_sizes(PAIR_SIZES if quick else SMALL), *MTU), kind, True)


def _latency(kind, *ops, in_quick=True):
    return _perf(f"{kind}/lat", kind, (*_ops(*ops), "--mode", "lat", *_sizes(("64",))), in_quick=in_quick)


def _beside_others(quick):
    """Faultline and its references: the raw port and the usual alternatives."""
    yield Block((_raw("memif", FRAME_OF_64), _small("memif", quick), _ucx("shm", "tag_bw", PAIR_SIZES if quick else SIZES, True)))
    yield Block((*(_raw("af_packet", frame_bytes) for frame_bytes in (FRAME_OF_64, FRAME_OF_4096)),
                 _perf("af_packet/bandwidth", "af_packet", (*_ops("write", "read", "send"), *_sizes(PAIR_SIZES), *MTU), "af_packet", True)))
    yield Block((_ucx("tcp", "tag_lat", ("64",), True), _latency("memif", "write", "read", "send"), _ucx("shm", "tag_lat", ("64",), True)))


def _others():
    """More measurements of the alternatives and of the raw port."""
    for kind, frame_bytes in (("memif", 64), ("memif", FRAME_OF_4096), ("af_packet", 64)):
        yield Block((_raw(kind, frame_bytes, False),))
    yield Block((_ucx("tcp", "tag_bw", SIZES),))
    for transport in ("tcp", "shm"):
        yield Block((_ucx(transport, "put_lat", ("64",)),))
        yield Block((_ucx(transport, "put_bw", PUT_SIZES),))
    yield Block((Measurement("libfabric/tcp", functools.partial(libfabric.measure, sizes=("64", "64k"))),))


def _ports(quick):
    """Each kind of port."""
    yield Block((_small("ring", quick),))
    for kind in ("memif", "ring"):
        yield Block((_perf(f"{kind}/large", kind, (*_ops("write", "read", "send"), *_sizes(LARGE), *MTU, "--depth", str(LARGE_DEPTH)),
                           kind),))
    for kind, mtu in (("af_xdp", "2048"), ("tap", "1024")):
        yield Block((_perf(f"{kind}/bandwidth", kind, (*_ops("write", "read", "send"), *_sizes(PAIR_SIZES), "--mtu", mtu), kind),))
    yield Block((_latency("ring", "write", "read", "send"),))
    yield Block((_latency("af_packet", "write", "read", "send"),))
    for kind in ("af_xdp", "tap"):
        yield Block((_latency(kind, "write", "send", in_quick=False),))
    yield Block((_perf("limits", "memif", (*_ops("write"), *_sizes(("64", "64k")), *MTU, "--limits")),))


def _against_each_other(quick):
    """Figures that are reported as a ratio of consecutive runs."""
    turns = 1 if quick else 2
    # Two kinds of memory differ by less than two runs of a program do, so they take turns within one run.
    regions = ("--region", ",".join(REGIONS))
    yield Block((_perf("memif/regions", "memif", (*_ops("write", "read", "send"), *_sizes(PAIR_SIZES), *MTU, *regions), "memif/{region}",
                       True, lengths=2 * turns),))
    yield Block((_perf("memif/regions/lat", "memif", (*_ops("write", "read", "send"), "--mode", "lat", *_sizes(("64",)), *regions),
                       "memif/{region}/lat", True, lengths=2 * turns),))
    yield Block(tuple(_perf(f"memif/icrc_{'on' if on else 'off'}", "memif", (*_ops("write"), *_sizes(("64", "64k")), *MTU), in_quick=True,
                            settings=f"[transport]\nicrc = {'true' if on else 'false'}\n") for on in (True, False)), turns)
    yield Block(tuple(_qps(count) for count in (FEW_QPS, MANY_QPS)), turns)


def _qps(count):
    return _perf(f"memif/qps/{count}", "memif", (*_ops("write"), *_sizes(("64",)), "--qps", str(count), "--depth", "16"),
                 in_quick=count in (FEW_QPS, MANY_QPS))


def _scaling():
    for count in QPS:
        yield Block((_qps(count),))


def _progress():
    yield Block((_perf("memif/dedicated", "memif", (*_ops("write", "send"), *_sizes(("64",))), dedicated=True),))
    yield Block((_perf("memif/dedicated/lat", "memif", (*_ops("send"), "--mode", "lat", *_sizes(("64",))), dedicated=True),))
    for progress in ("auto", "dedicated"):
        name = f"idle/memif/{progress}"
        yield Block((Measurement(name, functools.partial(perf.measure_idle, kind="memif", name=name, dedicated=progress == "dedicated"),
                                 progress == "auto", on_both_cpus=False),))


    # In the long idle backoff of a device whose port has no RX interrupt, and in the sleep on the descriptor of a port that has one.
    for kind, progress, in_quick in (("memif", "auto", True), ("memif", "dedicated", False), ("af_packet", "auto", False)):
        name = f"wakeup/{kind}/{progress}"
        yield Block((Measurement(name, functools.partial(perf.measure_wakeup, kind=kind, name=name, dedicated=progress == "dedicated"),
                                 in_quick),))


def _cores():
    yield Block((Measurement("lcores", functools.partial(cores.measure), True, on_both_cpus=False),))


def _paging():
    for touch in ("cold", "prefetch"):
        yield Block((_perf(f"memif/{touch}", "memif", (*_ops("write", "read"), "--mode", "lat", "--touch", touch, *_sizes(("64",))),
                           in_quick=touch == "cold"),))
        yield Block((_perf(f"memif/{touch}/large", "memif", (*_ops("write"), "--mode", "lat", "--touch", touch, *_sizes(("4m",))),
                           f"memif/{touch}"),))
        yield Block((_perf(f"memif/{touch}/bandwidth", "memif", (*_ops("write"), "--touch", touch, *_sizes(("64k",)), *MTU)),))
    yield Block((Measurement("swap", functools.partial(swap.measure, laps=4), True, on_both_cpus=False),))


def _perftest(name, program, size, run=perftest.latency, **how):
    figure = f"wire/{name}/{size}"
    return Measurement(figure, functools.partial(run, name=figure, program=program, size=size, **how), True)


def _direct(mode, op, size):
    """faultline-perf as perftest does it, between two devices that memif joins directly."""
    prefix = "wire/direct/lat" if mode == "lat" else "wire/direct"
    return _perf(f"{prefix}/{op}/{size}", "memif", (*_ops(op), "--mode", mode, *_sizes((size,)), *MTU, "--region", "pinned"), prefix, True)


def _ucx_beside_verbs(test, size, transports):
    """UCX over verbs on a wire, and over what it uses without."""
    for transport in transports:
        name = f"wire/ucx_{test}/{transport}"
        yield Measurement(name, functools.partial(ucx.measure, transport=transport, test=test, sizes=(size,), prefix=name, ranks=("p50", "p99")),
                          True)


def _mpi(transport, size):
    name = f"wire/mpi_pingpong/{transport}/{size}"
    return Measurement(name, functools.partial(mpi.measure, name=name, over_wire=transport == "verbs", size=size), True)


def _wires():
    """Unmodified programs over a wire, next to what they are compared with."""
    yield Block((_perftest("send_lat", "ib_send_lat", "64"), _direct("lat", "send", "64"), _perftest("write_lat", "ib_write_lat", "64", moves=True),
                 _perftest("send_lat_event", "ib_send_lat", "64", options=("-e",))))
    for size in ("64", "64k"):
        yield Block((_perftest("write_bw", "ib_write_bw", size, perftest.bandwidth), _direct("bw", "write", size)))
    yield Block(tuple(_ucx_beside_verbs("tag_lat", "64", ("verbs", "tcp", "shm"))))
    yield Block(tuple(_ucx_beside_verbs("tag_bw", "64k", ("verbs", "tcp"))))
    yield Block((_mpi("verbs", "64"), _mpi("tcp", "64")))
    yield Block((Measurement("wire/three_pairs", functools.partial(perftest.pairs, name="wire/three_pairs", program="ib_write_bw",
                                                                   size="64k", count=3), True),))
    yield Block((Measurement("wire/idle", functools.partial(crowd.measure_idle, name="wire/idle"), True, on_both_cpus=False),))
    for processes in crowd.sizes(os.environ):
        name = f"wire/crowd/{processes}"
        yield Block((Measurement(name, functools.partial(crowd.measure, name=name, processes=processes), True, on_both_cpus=False),))


def _stages():
    yield Block((Measurement("stages", functools.partial(stages.measure, min_seconds=0.02), on_both_cpus=False),))


def blocks(quick=False, only=""):
    """The plan, or the part of a quick run; only measurements whose name matches `only`."""
    wanted = re.compile(only)
    plan = []
    parts = (_wires(), _beside_others(quick), _against_each_other(quick), _paging(), _ports(quick), _scaling(), _cores(), _progress(), _others(), _stages())
    for part in parts:
        for block in part:
            chosen = tuple(one for one in block.measurements if (one.in_quick or not quick) and wanted.search(one.name))
            if chosen:
                plan.append(dataclasses.replace(block, measurements=chosen))
    return plan


def in_order(plan, rounds):
    """(round, measurement) in the order of execution. Every second round runs in reverse, so that drift affects all measurements equally.
    `rounds`: their number, or a sequence of round numbers."""
    for number in range(rounds) if isinstance(rounds, int) else rounds:
        backwards = number % 2 == 1
        for block in reversed(plan) if backwards else plan:
            for measurement in block.in_turns(backwards):
                yield number, measurement


def wanting(plan, results, rounds, important):
    """The blocks with a figure that has too few runs with near CPUs: important figures need all rounds, others most of them."""
    def lacks(figure):
        return results.near_runs(figure) < (rounds if figure in important else rounds // 2 + 1)

    measured = {}
    for run in results.runs:
        measured.setdefault(run["measurement"], set()).update(run["windows"])
    return [block for block in plan if any(lacks(figure) for one in block.measurements for figure in measured.get(one.name, ()))]


def packets_of(label, mtu_bytes=4096):
    return -(-bytes_of(label) // mtu_bytes)
