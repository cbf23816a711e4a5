#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""librpma's examples, built from Debian's source package rpma: each is a server and a client, which compares the transferred data.
  rpma.py FAULTLINE_RUN
"""
import glob
import os
import re

import harness
import source
from harness import Failure

RUN_SECONDS = 60
PORT = 7204
# These examples' servers wait for further clients without a limit.
SERVES_ON = {"06-multiple-connections", "06scch-multiple-connections-shared-completion-channel"}


def librpma():
    return source.build("rpma", "rpma", ["bookworm", "trixie", "sid"], [
        "cmake -S . -B b -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTS=OFF -DBUILD_DOC=OFF -DBUILD_EXAMPLES=ON "
        "-DCMAKE_INSTALL_PREFIX=$out && cmake --build b -j2", "mkdir -p $out && cp -a b/. $out/"], "examples")


def pair(session, folder):
    server = session.launch(session.on_wire("a", f"{folder}/server", harness.SERVER_IP, PORT))
    for _ in range(20):
        client = session.launch(session.on_wire("b", f"{folder}/client", harness.SERVER_IP, PORT))
        status = session.wait(client, RUN_SECONDS)
        if status == 0 or server.poll() is not None:
            break
    if status != 0:
        raise Failure(f"client: status {status}: {harness.last_line(session.output_of(client))}")
    if os.path.basename(folder) not in SERVES_ON:
        session.reap(server, RUN_SECONDS)


def work(session):
    for path in sorted(glob.glob(source.cache("rpma") + "/out/examples/[0-9]*")):
        if os.path.exists(f"{path}/server") and os.path.exists(f"{path}/client"):
            session.attempt(f"librpma {re.sub('^.*/', '', path)}", lambda: pair(session, path))


if __name__ == "__main__":
    harness.main(work, prepare=librpma)
