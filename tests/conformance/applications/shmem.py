#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""OpenSHMEM of Debian's Open MPI on UCX, with ranks that share one device (shmem_ring.c compares all data).
  shmem.py FAULTLINE_RUN [--brief]
"""
import os
import subprocess

import harness
from harness import Failure

RUN_SECONDS = 90
END_SECONDS = 20
HERE = os.path.dirname(os.path.realpath(__file__))
UCX = {"UCX_NET_DEVICES": "faultline0:1", "UCX_TLS": "rc_verbs,ud_verbs,self"}
TCP = {"UCX_NET_DEVICES": "lo", "UCX_TLS": "tcp,self"}
# Open MPI 4.1.4's UCX component does not remove its release hook when it is unloaded; the next munmap() calls the hook. Without the
# option every OpenSHMEM program ends with signal 11 in shmem_finalize(), without Faultline too: see the last row.
NO_HOOK = ["--mca", "opal_common_ucx_opal_mem_hooks", "0"]
# The address of the symmetric heap if its default address is not to be used.
ELSEWHERE = ["--mca", "sshmem_base_start_address", "0x200000000000"]


def launcher(session, program, ranks, options):
    words = [program, "--oversubscribe", "--mca", "btl", "^openib,uct", "--mca", "pml", "ucx", *options]
    if session.user is None:
        words.append("--allow-run-as-root")
    return words + ["-np", ranks]


def job(session, binary, ranks, options=(), tcp=False):
    """The figure that the program prints after it has compared all data."""
    words = [binary] if tcp else session.sharing(binary)
    if tcp:
        options = [*options, "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]
    process = session.launch(launcher(session, "oshrun", ranks, options) + words, **(TCP if tcp else UCX))
    figure = session.await_text(process, r"figure: (.*)", RUN_SECONDS).group(1)
    if "WRONG" in session.reap(process, END_SECONDS):
        raise Failure(f"wrong data: {figure}")
    return figure


def work(session):
    binary = f"{session.folder}/home/shmem_ring"
    subprocess.run(["oshcc", "-O1", "-o", binary, f"{HERE}/shmem_ring.c"], check=True)
    os.chmod(binary, 0o755)
    for ranks in (2, 4):
        def run(options=(), ranks=ranks):
            figure = job(session, binary, ranks, [*NO_HOOK, *options])
            session.end_all()
            return figure, "TCP " + job(session, binary, ranks, [*NO_HOOK, *options], tcp=True)
        session.attempt(f"oshrun -np {ranks}, heap at its default address", run, "trick")
        session.attempt(f"oshrun -np {ranks}, heap elsewhere", lambda: run(ELSEWHERE), "trick")
    session.fails_by_itself("OpenSHMEM without options, without Faultline", r"status -11", lambda: (session.finish([binary], RUN_SECONDS), ""))


if __name__ == "__main__":
    harness.main(work, needs=["oshrun", "oshcc"])
