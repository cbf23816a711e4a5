#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tools that query devices: infiniband-diags, ibverbs-utils, and MPICH, which finds its transport by libfabric or UCX.
  tools.py FAULTLINE_RUN
"""
import os
import re
import shutil
import subprocess

import harness
from harness import Failure

RUN_SECONDS = 60
HERE = os.path.dirname(os.path.realpath(__file__))
TOOLS = [("ibstat", "CA 'faultline0'"), ("ibstat -l", "faultline0"), ("ibv_devices", "faultline0"),
         ("ibv_devinfo -v", "PORT_ACTIVE"), ("ucx_info -d", "faultline0:1"), ("fi_info -p verbs", "provider: verbs")]


def look(session, command, wanted):
    text = session.finish(session.on_wire("a", *command.split()), RUN_SECONDS)
    if wanted not in text:
        raise Failure(f"does not print {wanted}: {harness.last_line(text)}")


def mpich(session, binary):
    """Debian's MPICH is built with CH4 on UCX."""
    text = session.finish(["mpirun.mpich", "-np", "4", *session.sharing(binary)], RUN_SECONDS, UCX_NET_DEVICES="faultline0:1",
                       UCX_TLS="rc_verbs,ud_verbs,self")
    found = re.search(r".* ranks, 0 wrong", text)
    if not found:
        raise Failure(f"wrong data: {harness.last_line(text)}")
    return found.group(0)


def work(session):
    for command, wanted in TOOLS:
        program = command.split()[0]
        if shutil.which(program):
            session.attempt(command, lambda: look(session, command, wanted))
        else:
            session.row("SKIPPED", command, f"{program} is not installed")
    # ibstatus changes into /sys/class/infiniband, a folder that the kernel may not have.
    if shutil.which("ibstatus"):
        session.attempt("ibstatus", lambda: look(session, "ibstatus", "faultline0"))
    if shutil.which("mpicc.mpich") and harness.networks.quietly("mpicc.mpich", "-o", "/dev/null", f"{HERE}/../mpi_ring.c"):
        binary = f"{session.folder}/home/ring"
        subprocess.run(["mpicc.mpich", "-O1", "-o", binary, f"{HERE}/../mpi_ring.c"], check=True)
        os.chmod(binary, 0o755)
        session.attempt("MPICH, a ring of 4 ranks", lambda: mpich(session, binary))
    else:
        session.row("SKIPPED", "MPICH", "MPICH is not installed")


if __name__ == "__main__":
    harness.main(work)
