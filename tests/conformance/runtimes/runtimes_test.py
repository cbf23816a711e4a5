#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runtimes that use SIGSEGV, SIGBUS and SIGURG themselves, unmodified, with the library preloaded and a thread in the same process that
transfers RDMA data. The runtime must receive every fault of its own, and none of a copy. Once the device is opened before the runtime
sets its handlers, and once after.
  runtimes_test.py LIBIBVERBS MOVER java|java-interpreted|go|node
"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
WRITES = 1500
EACH = 20
CONFIGURATION = """
[[device]]
name = "faultline0"
ip = "198.18.0.1/24"
[device.port]
kind = "ring"
wire = "w0"
side = "a"
"""


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(77)


def fail(why):
    print(f"FAILED: {why}")
    sys.exit(1)


def needed(program, package):
    path = shutil.which(program)
    if path is None:
        skip(f"{program} is not installed (Debian's {package})")
    return path


def command(kind, folder, report):
    """The command that runs the program of a runtime, built before the library is preloaded."""
    if kind.startswith("java"):
        java = needed("java", "openjdk-17-jdk-headless")
        javac = needed("javac", "openjdk-17-jdk-headless")
        subprocess.run([javac, "-d", folder, os.path.join(HERE, "Faults.java")], check=True, timeout=300)
        options = ["-Xint"] if kind == "java-interpreted" else []
        return [java, *options, "-Xmx256m", "-cp", folder, "Faults", report, os.path.join(folder, "mapped"), str(WRITES), str(EACH)]
    if kind == "go":
        go = needed("go", "golang-go")
        program = os.path.join(folder, "faults")
        environment = dict(os.environ, GOCACHE=os.path.join(folder, "cache"), HOME=folder, CGO_ENABLED="1", GO111MODULE="off")
        subprocess.run([go, "build", "-o", program, os.path.join(HERE, "go", "faults.go")], env=environment, check=True, timeout=300)
        return [program, report, str(WRITES), str(EACH)]
    return [needed("node", "nodejs"), os.path.join(HERE, "faults.js"), report, str(WRITES), str(EACH)]


def run(library, mover, kind, order, folder):
    report = os.path.join(folder, "report")
    with open(report, "wb") as file:
        file.write(bytes(32))
    configuration = os.path.join(folder, "faultline.toml")
    with open(configuration, "w", encoding="ascii") as file:
        file.write(CONFIGURATION)
    arguments = command(kind, folder, report)
    environment = dict(os.environ, LD_PRELOAD=f"{library}:{mover}", FAULTLINE_CONFIG=configuration, RUNTIMES_REPORT=report, RUNTIMES_ORDER=order)
    # Only as a preloaded library: as a dependency it would be loaded too late for its thread-local data.
    environment.pop("LD_LIBRARY_PATH", None)
    done = subprocess.run(arguments, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True, timeout=400)
    with open(report, "rb") as file:
        writes, refused, copy_faults, state = struct.unpack("4Q", file.read())
    print(f"{kind}, {order}: status {done.returncode}, {done.stdout.strip()}, {writes} writes, {refused} refused, {copy_faults} copy faults")
    if done.returncode != 0 or state != 1:
        fail("it ended otherwise than it should")
    words = done.stdout.split()
    if len(words) != 2 or words[0] != "faults" or int(words[1]) < 2 * EACH:
        fail("too few faults of its own")
    if writes < WRITES or refused < WRITES // 64 - 1 or copy_faults < refused:
        fail("too little work, or faults that were not caught")


def main():
    library, mover, kind = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2]), sys.argv[3]
    with tempfile.TemporaryDirectory() as folder:
        for order in ("before", "after"):
            run(library, mover, kind, order, folder)


if __name__ == "__main__":
    main()
