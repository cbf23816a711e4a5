# SPDX-License-Identifier: BSD-3-Clause
"""Processes on one wire, each connected to each (tests/interop/crowd): their memory, and what they cost while idle."""
import json
import os
import re
import time

from ..outcome import RunFailed, Unavailable
from ..perf import cpu_seconds
from ..processes import Child, on_cpu
from .network import both_cpus, wire

USUAL, LEAST, MOST = 24, 2, 1000
LAPS = 2
SETTLE_S = 1.0
IDLE_S = 10  # CPU time while idle is reported for this duration


def sizes(variables):
    """The usual crowd, and the one that FAULTLINE_CROWD names. Raises ValueError if that is no size."""
    text = variables.get("FAULTLINE_CROWD")
    if text is None:
        return (USUAL,)
    if not text.isdecimal() or not LEAST <= int(text) <= MOST:
        raise ValueError(f"FAULTLINE_CROWD must be a number from {LEAST} to {MOST}, not {text!r}")
    return tuple(sorted({USUAL, int(text)}))


def parsed(output):
    """The program's line of JSON."""
    line = next((line for line in output.splitlines() if line.startswith("{")), None)
    if line is None:
        raise RunFailed(f"crowd printed no report: {output.strip()[-300:]}")
    return json.loads(line)


def reason_of(output):
    """The first line of the library, or None."""
    return next((line for line in output.splitlines() if line.startswith("faultline: ")), None)


def kib_of(text, key):
    """A value of /proc/PID/status or smaps_rollup."""
    found = re.search(rf"^{key}:\s+(\d+) kB$", text, re.MULTILINE)
    if found is None:
        raise RunFailed(f"the kernel reports no {key} of a process")
    return int(found.group(1))


def _mib(pid, file, key):
    with open(f"/proc/{pid}/{file}") as text:
        return kib_of(text.read(), key) / 1024


def _assembled(context, on, processes, limit_s):
    program = os.path.join(context.build, "tests", "interop", "crowd", "crowd")
    if not os.access(program, os.X_OK):
        raise Unavailable("crowd is not built")
    command = on.command([program, str(processes), str(LAPS), str(int(limit_s)), "hold"])
    return Child(on_cpu(both_cpus(context), command), on.environment, talks=True)


def _await_report(child, limit_s):
    try:
        child.wait_for(lambda: "]}" in child.output(), "its report", limit_s)
    except RunFailed:
        # The library's reason precedes the program's own lines.
        if reason := reason_of(child.output()):
            raise RunFailed(reason) from None
        raise
    return parsed(child.output())


def _dismiss(child, limit_s):
    child.process.stdin.close()
    child.finish(limit_s)


def measure(context, name, processes):
    """The time of the connections and of the messages, and the memory of all processes and the switch, shared pages counted once."""
    with wire(context) as on, _assembled(context, on, processes, context.limit_s) as child:
        report = _await_report(child, context.limit_s)
        memory_mib = sum(_mib(pid, "smaps_rollup", "Pss") for pid in (*report["pids"], on.switch.process.pid))
        _dismiss(child, context.limit_s)
    return ({name: {"connect_seconds": report["connect_seconds"], "seconds": report["seconds"], "pss_mib": memory_mib}},
            {name: {"messages": report["messages"], "timeouts": report["timeouts"]}})


def measure_idle(context, name):
    """Two programs that are connected and do nothing, with their switch."""
    with wire(context) as on, _assembled(context, on, 2, context.limit_s) as child:
        pids = _await_report(child, context.limit_s)["pids"]
        time.sleep(SETTLE_S)
        every = (*pids, on.switch.process.pid)
        before, start = sum(map(cpu_seconds, every)), time.monotonic()
        time.sleep(max(1.0, 2 * IDLE_S * context.seconds))
        used, lasted = sum(map(cpu_seconds, every)) - before, time.monotonic() - start
        resident_mib = max(_mib(pid, "status", "VmRSS") for pid in pids)
        _dismiss(child, context.limit_s)
    return {name: {"cpu_ms": 1000 * used * IDLE_S / lasted, "resident_mib": resident_mib}}, {}
