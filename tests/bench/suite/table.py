# SPDX-License-Identifier: BSD-3-Clause
"""The results as Markdown: the targets first, then every figure with its spread."""
from . import targets
from .drawing import plots
from .spread import median
from .units import form_of, rounded

HOW = """Made by `scripts/bench`. `summary.json` has the values of each figure; `results.json`, which is beside them where `scripts/bench` has
run and not in the tree, all numbers of every run. Rounds: {rounds}, with {seconds} s for a figure; one CPU a
side, in turns: each second round goes backwards, and what is held against ICRC off or fewer QPs ran next to it. On-demand and pinned
memory are two connections of the same two processes, in turns of 5 ms, and their ratio is the median of each four turns' ratio. A
figure is the median of its runs, a ratio the median of the rounds' ratios. `scripts/bench --compare JSON` says what differs between a
new file and `summary.json` beyond the noise.
"""

NAMES = """`wire`: unmodified programs under `faultline-run --wire`, each side on one CPU, their switch on both.

- `wire/send_lat`, `wire/write_lat`, `wire/write_bw`: perftest; `send_lat_event` sleeps until each completion (`ib_send_lat -e`). Latencies
  are half round trips; perftest calls the median typical. In `write_lat`, which spins on its memory, both sides may use both CPUs.
- `wire/direct`: faultline-perf with the same messages, pinned memory, two devices joined directly by memif.
- `wire/ucx_tag_lat`, `wire/ucx_tag_bw`: ucx_perftest over `rc_verbs` on a wire, over TCP, and over shared memory without a wire.
- `wire/mpi_pingpong`: half a round trip of two ranks of Open MPI, over UCX with `rc_verbs` on a wire or with TCP.
- `wire/three_pairs`: the sum of three `ib_write_bw` of 64 KiB at once on the same two CPUs; `to_one_pair`: the ratio to one alone.
- `wire/idle`: CPU time of two connected programs and their switch, and the resident memory of one program.
- `wire/crowd/N`: N processes, each connected to each: the time to connect, the time of two messages of 64 B and two of 16 KiB from
  each to each, and the memory of all and the switch, shared pages counted once (PSS).

Any other name is the port, what is special, the operation and the message's bytes: `memif/write/64k`, `memif/pinned/lat/send/64`. Memory is
on-demand and warm where nothing else is said, progress inline, the path MTU 4096 (af_xdp 2048, tap 1024).

- `lat`: half a round trip; a READ's is a whole one.
- `cold`, `prefetch`, `swap`: each message lands on a page that was dropped, dropped and prefetched, or in compressed swap; `added` is what
  that takes more than the same on warm pages of the same run, post to completion.
- `qps/N`: N QPs in turn, 16 messages under way on each.
- `dedicated`: a polling lcore, which shares the one CPU of its side with the program.
- `lcores/N`: N cores of one process, each of which drives both ends of a wire of its own (net_ring) and shares what the process has once.
- `raw`: testpmd, txonly to rxonly, by bytes of a frame; 138 is that of a 64 B WRITE, 4154 that of 4096 B within a long message.
- `limits`: the raw port and copy + CRC as faultline-perf sees them.
- `ucx/shm/put_bw`: the sender copies into memory that both have mapped; nobody takes part at the other end.
- `stage`: a step of the data path alone, in a loop, from warm caches.
"""


def _runs(values):
    """The number of runs; "N of M" if some were taken while the CPUs were apart."""
    if not values.near:
        return f"{values.runs}, all apart"
    return str(values.runs) if len(values) == values.runs else f"{len(values)} of {values.runs}"


def _row(*cells):
    return "| " + " | ".join(cells) + " |"


def _machine(facts):
    pages = f"{facts['huge_pages']} huge pages" if facts["huge_pages"] else "no huge pages"
    flags = " ".join(facts["flags"])
    commit = facts["commit"][:12] + (" and changes" if facts["changed_since"] else "")
    programs = "".join(f", {name} {facts[key]}" for key, name in (("perftest", "perftest"), ("openmpi", "Open MPI")) if facts.get(key))
    return [f"{facts['cpus']} CPUs, {facts['cpu']} ({flags}), governor {facts['governor']}; Linux {facts['kernel']}; "
            f"{facts['memory_mib']} MiB, {pages}; {facts['compiler']}; DPDK {facts['dpdk']}, UCX {facts['ucx']}, "
            f"libfabric {facts['libfabric']}{programs}; commit {commit}."]


def target_rows(samples, measured_alone=False):
    lines = [_row("figure", "median", "the runs' range", "wanted", ""), _row("---", "---", "---", "---", "---")]
    for verdict in targets.verdicts(samples):
        if not verdict.measured:
            if not measured_alone:
                lines.append(_row(verdict.target.what, "", "", verdict.wanted(), "not measured"))
            continue
        values = verdict.values
        lines.append(_row(verdict.target.what, verdict.text(median(values)), f"{verdict.text(min(values))} to {verdict.text(max(values))}",
                          verdict.wanted(), verdict.outcome()))
    return lines


def _place(figure):
    group = figure.partition("/")[0]
    return group != "wire", group


def figure_rows(samples):
    """A table for each first word of the figures' names, that of wires first."""
    lines = []
    group = None
    for figure, metrics in sorted(samples.items(), key=lambda item: _place(item[0])):
        if group != (group := figure.partition("/")[0]):
            lines += ["", f"### {group}", "", _row("figure", "metric", "median", "the runs' range", "runs"),
                      _row("---", "---", "---", "---", "---")]
        for metric, values in metrics.items():
            scale, unit = form_of(metric)
            shown = [rounded(value * scale) for value in (median(values), min(values), max(values))]
            named = ", ".join(filter(None, (metric.removesuffix("_us"), unit)))
            lines.append(_row(figure, named, shown[0], f"{shown[1]} to {shown[2]}", _runs(values)))
    return lines


def _noise(results):
    """How much of the machine other programs used during the measurements."""
    noise = [run["noise"] for run in results.runs]
    if not noise:
        return []
    stolen = [one["stolen_share"] for one in noise]
    return [f"Of the CPUs' time the hypervisor took {100 * median(stolen):.1f} % in the median run and {100 * max(stolen):.1f} % in the "
            "worst."]


def _distance(results):
    """The distance of the two CPUs, and which runs were set aside because of it."""
    distance = results.distance
    if not distance or not distance["looks"]:
        return []
    text = f"A line went from one CPU to the other in {distance['near_ns']:.0f} ns"
    if distance["far_share"] == 0:
        return [text + "."]
    return [f"{text} in most of {distance['looks']:,} looks, and in {distance['far_ns']:.0f} ns in {100 * distance['far_share']:.0f} % of them: the host "
            "had moved them apart. A figure during which more than a fifth of the looks found them apart is set aside (it is in "
            "`results.json`) and was measured again as far as time allowed; \"3 of 5\" runs are such."]


def _left_out(results):
    lines = [f"- skipped: {name}: {why}" for name, why in results.skipped.items()]
    lines += [f"- failed: {one['measurement']}, round {one['round'] + 1}: {one['why']}" for one in results.failed]
    lines += [f"- transport timeouts: {figure}: {count}" for figure, count in results.timeouts().items()]
    return ["", *lines] if lines else []


def page(results):
    samples = results.samples()
    lines = ["# Figures", "", HOW.format(**results.settings), *_machine(results.machine), *_noise(results), *_distance(results), "", *target_rows(samples),
             *_left_out(results), ""]
    lines += [f"![{plot.title}]({plot.name}.svg)" for plot in plots.drawable(samples)]
    lines += ["", "## All figures", "", NAMES, *figure_rows(samples), ""]
    return "\n".join(lines)
