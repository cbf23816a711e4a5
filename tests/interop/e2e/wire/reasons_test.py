#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""With FAULTLINE_LOG=debug what fails has one line that says why; without it, nothing more than before. On wires of the test's own.
  reasons_test.py FAULTLINE_RUN"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

run = os.path.abspath(sys.argv[1])
failures = []
if not shutil.which("rping") or not shutil.which("ibv_devinfo"):
    print("SKIPPED: rping or ibv_devinfo is not installed")
    sys.exit(77)


def expect(good, what):
    print(("ok: " if good else "FAILED: ") + what, flush=True)
    if not good:
        failures.append(what)


def program(wire, *command, level="debug", limit_s=90):
    variables = {**os.environ, "FAULTLINE_LOG": level}
    if level is None:
        del variables["FAULTLINE_LOG"]
    return subprocess.run([run, *wire, *command], env=variables, capture_output=True, text=True, timeout=limit_s, check=False)


def address_of(wire):
    output = program(["--wire", wire], "ibv_devinfo", "-v", level=None).stdout
    return re.search(r"GID\[\s*0\]:\s+::ffff:([0-9.]+)", output).group(1)


with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
    folder = pathlib.Path(name)
    folder.chmod(0o700)
    os.environ["XDG_RUNTIME_DIR"] = name
    one, two = f"er1{os.getpid()}", f"er2{os.getpid()}"

    first = address_of(one)
    expect(first == address_of(one), f"a wire gives out the same address again: {first}")
    other = address_of(two)
    expect(first != other, f"another wire gives out another one: {other}")

    done = program(["--wire", one], "rping", "-c", "-a", other, "-C", "1")
    expect(f"nobody has {other} on wire {one}" in done.stderr, "a peer on another wire is no neighbour: " + done.stderr.strip())
    quiet = program(["--wire", one], "rping", "-c", "-a", other, "-C", "1", level=None)
    expect("nobody has" not in quiet.stderr, "at the default level there is no line")
    done = program(["--wire", one], "rping", "-c", "-a", "10.1.2.3", "-C", "1")
    expect("no route to 10.1.2.3" in done.stderr, "no route: " + done.stderr.strip())
    bad = program(["--wire", one], "ibv_devinfo", level="loud")
    expect(bad.stderr.count("FAULTLINE_LOG") == 1 and "trace, debug, info, warn, err, critical, off" in bad.stderr
           and bad.returncode == 0, "a level that is none has one line with those there are: " + bad.stderr.strip())
    if shutil.which("ibstatus"):
        done = program(["--wire", one], "ibstatus")
        expect("100 Gb/sec (4X EDR)" in done.stdout and "Infiniband device 'faultline0' port 1" in done.stdout,
               "ibstatus: " + (done.stdout + done.stderr).strip().replace("\n", " "))
sys.exit(1 if failures else 0)
