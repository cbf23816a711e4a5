# SPDX-License-Identifier: BSD-3-Clause
"""Rate over cores: 64 B WRITEs of one process; each of its cores drives both ends of a wire of its own (tests/bench/ring_bench)."""
import json
import os

from .outcome import Unavailable
from .processes import Child


def parsed(report):
    """Google Benchmark's runs by their number of threads; the last one if several have the same number."""
    return {f"lcores/{run['threads']}": {"messages_per_second": run["items_per_second"]}
            for run in report["benchmarks"] if not run.get("error_occurred")}


def measure(context):
    program = os.path.join(context.build, "tests", "bench", "ring_bench")
    if not os.access(program, os.X_OK):
        raise Unavailable("ring_bench is not built")
    out = os.path.join(context.folder, "cores.json")
    with Child(["taskset", "-c", ",".join(str(cpu) for cpu in context.cpus), program, "--benchmark_filter=^cores_write",
                f"--benchmark_min_time={context.seconds}", f"--benchmark_out={out}", "--benchmark_out_format=json"]) as child:
        child.finish(context.limit_s)
    with open(out) as file:
        return parsed(json.load(file)), {}
