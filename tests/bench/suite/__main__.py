# SPDX-License-Identifier: BSD-3-Clause
"""scripts/bench: measures Faultline, the raw port and the usual alternatives, in turns on the same CPUs."""
import argparse
import dataclasses
import os
import re
import signal
import sys
import tempfile
import time

from . import compare, cpu_distance, machine, plan, table, targets
from .drawing import plots
from .outcome import Interrupted, RunFailed, Unavailable
from .processes import side_cpus
from .results import Results, read_for_comparison
from .wires import crowd

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
KEPT = os.path.join(ROOT, "docs", "bench", "summary.json")  # of the last whole run
LIMIT_S = 180  # of one program
MORE_TIME_SHARE = 0.5


@dataclasses.dataclass
class Context:
    root: str
    build: str
    perf: str
    folder: str    # for sockets, configurations and files that programs leave
    tag: str       # begins the name of everything that outlives a process
    seconds: float
    cpus: tuple
    limit_s: float = LIMIT_S
    learnt: dict = dataclasses.field(default_factory=dict)  # how many messages fill the time


def parsed(arguments):
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--rounds", type=int, help="how often each measurement is run; default 5, quick 3")
    parser.add_argument("--seconds", type=float, help="length of each; default 0.5, quick 0.3")
    parser.add_argument("--quick", action="store_true", help="what the targets need, alone")
    parser.add_argument("--only", default="", metavar="REGEX", help="of the measurements those whose name it finds")
    parser.add_argument("--out", metavar="FOLDER", help="for results.json, summary.json, README.md and the plots; default bench/ in the build folder")
    parser.add_argument("--list", action="store_true", help="name the measurements and end")
    parser.add_argument("--table", metavar="JSON", help="write the table and the plots of earlier results anew, beside them")
    parser.add_argument("--compare", nargs="+", metavar="JSON", help="say which differences of two results or summaries are beyond the "
                        "noise; of one: to docs/bench/summary.json")
    parser.add_argument("--build", default="build/plain", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if len(options.compare or ()) > 2:
        parser.error("--compare takes one or two files")
    try:
        crowd.sizes(os.environ)
    except ValueError as error:
        parser.error(str(error))
    options.rounds = options.rounds or (3 if options.quick else 5)
    options.seconds = options.seconds or (0.3 if options.quick else 0.5)
    if options.rounds < 1 or not 0.01 <= options.seconds <= 60:
        parser.error("--rounds must be at least 1, --seconds from 0.01 to 60")
    try:
        re.compile(options.only)
    except re.error as error:
        parser.error(f"--only: {error}")
    return options


def _raise_at_signals():
    signs = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(sign, _):
        # Once: a second signal would interrupt the clean-up.
        for each in signs:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(128 + sign)

    for sign in signs:
        signal.signal(sign, interrupt)


def _noise(times_before, load):
    busy, stolen, total = (now - then for now, then in zip(machine.cpu_times(), times_before))
    share = max(1, total)
    return {"load": load, "busy_share": busy / share, "stolen_share": stolen / share}


def _told(figures):
    return f"{len(figures)} figures" if len(figures) > 1 else "".join(
        f"{metric} {value:.6g}  " for metrics in figures.values() for metric, value in metrics.items()).strip()


def _windows(began, figures, counters):
    """When each figure was measured; by default, from `began` until now."""
    return {figure: counters.get(figure, {}).get("window_s", [began, time.monotonic()]) for figure in figures}


def run_plan(context, chosen, options, results):
    """Runs all rounds. Then repeats measurements during which the CPUs were apart: at most as many rounds again, in half of their time."""
    with cpu_distance.Watch(context) as watch:
        began = time.monotonic()
        run_rounds(context, plan.in_order(chosen, options.rounds), options, results, began)
        results.judge(watch.looks())
        deadline = began + (1 + MORE_TIME_SHARE) * (time.monotonic() - began)
        for number in range(options.rounds, 2 * options.rounds):
            wanting = plan.wanting(chosen, results, options.rounds, targets.figures())
            if not wanting or time.monotonic() > deadline:
                break
            run_rounds(context, plan.in_order(wanting, range(number, number + 1)), options, results, began, deadline)
            results.judge(watch.looks())


def run_rounds(context, order, options, results, start, deadline=float("inf")):
    for number, measurement in order:
        if time.monotonic() > deadline:
            return
        if measurement.name in results.skipped:
            continue
        began, times, load = time.monotonic(), machine.cpu_times(), machine.load()
        head = f"{number + 1}/{options.rounds} {measurement.name:<24}"
        try:
            figures, counters = measurement.run(context)
        except Unavailable as why:
            results.skipped[measurement.name] = str(why)
            print(f"{head} SKIPPED: {why}", flush=True)
            continue
        except RunFailed as why:
            results.failed.append({"measurement": measurement.name, "round": number, "why": str(why)})
            print(f"{head} FAILED: {why}", flush=True)
            continue
        windows = _windows(began, figures, counters) if measurement.on_both_cpus else {}
        results.add(measurement.name, number, round(began - start, 3), _noise(times, load), figures, counters, windows)
        print(f"{head} {time.monotonic() - began:5.1f} s  {_told(figures)}", flush=True)


def write_out(results, folder):
    os.makedirs(folder, exist_ok=True)
    results.write_summary(os.path.join(folder, "summary.json"))
    samples = results.samples()
    with open(os.path.join(folder, "README.md"), "w") as file:
        file.write(table.page(results))
    for plot in plots.drawable(samples):
        with open(os.path.join(folder, f"{plot.name}.svg"), "w") as file:
            file.write(plots.draw(plot, samples))


def measure(options):
    root = ROOT
    build = os.path.abspath(options.build)
    perf = os.path.join(build, "apps", "faultline-perf")
    if not os.access(perf, os.X_OK):
        sys.exit(f"{perf} is not there: scripts/bench builds it")
    chosen = plan.blocks(options.quick, options.only)
    if not chosen:
        sys.exit(f"--only: no measurement's name has \"{options.only}\" in it; --list names them")
    results = Results(machine.facts(root), {"rounds": options.rounds, "seconds": options.seconds, "quick": options.quick,
                                            "only": options.only})
    folder = options.out or os.path.join(os.path.dirname(build), "bench")
    _raise_at_signals()
    tag = os.environ.get("FAULTLINE_BENCH_TAG", f"fl-bench-{os.getpid()}")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"{tag}-") as scratch:
        context = Context(root, build, perf, scratch, tag, options.seconds, side_cpus())
        run_plan(context, chosen, options, results)
    results.settings["lasted_s"] = round(time.monotonic() - started)
    os.makedirs(folder, exist_ok=True)
    results.write(os.path.join(folder, "results.json"))
    write_out(results, folder)
    print("\n".join(["", *table.target_rows(results.samples(), measured_alone=bool(options.only))]))
    print(f"\n{results.settings['lasted_s']} s; {len(results.skipped)} skipped, {len(results.failed)} failed; {folder}/README.md")
    return 1 if results.failed else 0


def main():
    options = parsed(sys.argv[1:])
    if options.list:
        for block in plan.blocks(options.quick, options.only):
            for measurement in block.measurements:
                print(measurement.name)
        return 0
    if options.compare:
        paths = options.compare if len(options.compare) == 2 else [KEPT, *options.compare]
        print(compare.report(*map(read_for_comparison, paths)))
        return 0
    if options.table:
        write_out(Results.read(options.table), os.path.dirname(os.path.abspath(options.table)))
        return 0
    return measure(options)


if __name__ == "__main__":
    sys.exit(main())
