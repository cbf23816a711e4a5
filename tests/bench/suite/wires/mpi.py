# SPDX-License-Identifier: BSD-3-Clause
"""Open MPI between two ranks of this machine, over UCX: pingpong.c with verbs on a wire, or with TCP."""
import contextlib
import json
import os
import shutil
import subprocess
import time

from ..outcome import RunFailed, Unavailable
from ..processes import Child, on_cpu
from ..sizes import bytes_of
from .network import wire

LAUNCHER, COMPILER = "mpirun.openmpi", "mpicc.openmpi"
# rc_verbs establishes its connections over ud_verbs.
VERBS = {"UCX_TLS": "rc_verbs,ud_verbs,self", "UCX_NET_DEVICES": "faultline0:1"}
TCP = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}
# Without the last two options Open MPI refuses UCX without an RDMA device.
OPTIONS = ["--oversubscribe", "--bind-to", "none", "--mca", "pml", "ucx", "--mca", "btl", "^openib,uct", "--mca", "pml_ucx_tls", "any",
           "--mca", "pml_ucx_devices", "any"]
FIRST_TRIPS = 1000


def parsed(output):
    """The line of JSON; mpirun may print warnings too."""
    line = next((line for line in output.splitlines() if line.startswith("{")), None)
    if line is None:
        raise RunFailed(f"pingpong printed no figures: {output.strip()[-300:]}")
    return json.loads(line)


def _program(context):
    path = os.path.join(context.folder, "pingpong")
    if not os.path.exists(path):
        for program in (LAUNCHER, COMPILER):
            if shutil.which(program) is None:
                raise Unavailable(f"{program} is not installed")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pingpong.c")
        compiler = subprocess.run([COMPILER, "-O2", "-o", path, source], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  check=False, timeout=context.limit_s)
        if compiler.returncode != 0:
            raise RunFailed(f"{COMPILER}: {compiler.stdout.strip()[-300:]}")
    return path


def _run(context, on, trips, size_bytes):
    words = [_program(context), str(size_bytes), str(trips)]
    # Ranks that share one device, as they do on a host with one adapter.
    words = on.command(words, "--share") if on else words
    command = [LAUNCHER, *OPTIONS, *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    for rank, cpu in enumerate(context.cpus):
        command += [*([":"] if rank else []), "-np", "1", *on_cpu(cpu, words)]
    with Child(command, {**VERBS, **on.environment} if on else TCP) as job:
        return parsed(job.finish(context.limit_s))


def measure(context, name, over_wire, size):
    """Half a round trip. The number of round trips is determined once, and then the same in every round."""
    _program(context)
    size_bytes = bytes_of(size)
    with wire(context) if over_wire else contextlib.nullcontext() as on:
        key = ("mpi", over_wire, size_bytes)
        if key not in context.learnt:
            mean_us = _run(context, on, FIRST_TRIPS, size_bytes)["mean_us"]
            context.learnt[key] = max(FIRST_TRIPS, int(context.seconds * 1e6 / (2 * mean_us)))
        began = time.monotonic()
        metrics = _run(context, on, context.learnt[key], size_bytes)
        window = [began, time.monotonic()]
    return {name: metrics}, {name: {"window_s": window}}
