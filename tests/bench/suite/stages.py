# SPDX-License-Identifier: BSD-3-Clause
"""The stages of the data path alone: the Google Benchmark programs of tests/bench, on one CPU."""
import glob
import json
import os

from .outcome import Unavailable
from .processes import Child, on_cpu

TO_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def measure(context, min_seconds):
    programs = sorted(path for path in glob.glob(os.path.join(context.build, "tests", "bench", "*_bench")) if os.access(path, os.X_OK))
    if not programs:
        raise Unavailable("the benchmark programs of tests/bench are not built")
    figures = {}
    for program in programs:
        out = os.path.join(context.folder, "stages.json")
        with Child(on_cpu(context.cpus[1], [program, f"--benchmark_min_time={min_seconds}", f"--benchmark_out={out}",
                                            "--benchmark_out_format=json"])) as child:
            child.finish(context.limit_s)
        with open(out) as file:
            runs = json.load(file)["benchmarks"]
        room = os.path.basename(program).removesuffix("_bench")
        for run in runs:
            if not run.get("error_occurred"):
                figures[f"stage/{room}/{run['name']}"] = {"cpu_ns": run["cpu_time"] * TO_NS[run["time_unit"]]}
    return figures, {}
