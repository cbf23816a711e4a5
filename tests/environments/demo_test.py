#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""faultline-perf --demo ends, and leaves no process behind, whatever output its server writes and however its client ends.
  demo_test.py FAULTLINE_PERF REFUSE_SYSCALLS NOISE_LIBRARY"""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # tests
import lib  # noqa: E402

perf, refuse, noise = sys.argv[1:]
lib.own_runtime_folder()
CONNECT = "42"  # the x86-64 number of connect(2)


def processes_of_session(session):
    """Processes that still run in a session, except zombies: the fields of stat after the name are state, parent, group, session."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(stat.parent.name)
    return found


def end_session(session):
    for process in processes_of_session(session):
        os.kill(int(process), 9)


def start_demo(wrapper, environment):
    started = subprocess.Popen([*wrapper, perf, "--demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=dict(os.environ, **environment), start_new_session=True)
    lib.on_exit(end_session, started.pid)
    return started


def run_demo(name, wrapper, environment):
    process = start_demo(wrapper, environment)
    try:
        output, errors = process.communicate(timeout=lib.LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        lib.fail(f"{name}: no end")
    if process.returncode == 77:
        lib.skip("the kernel refuses the filter")
    if left := processes_of_session(process.pid):
        lib.fail(f"{name}: still runs: {left}")
    return process.returncode, output, errors


# Digits, the form with text before and after it, and an invalid port: none of these lines is the server's.
lines = ["[2026-11-22 10:00:00.000] [warning] no userfaultfd", "x listening on TCP port 1", "listening on TCP port 1 2",
         "listening on TCP port 70000", "listening on TCP port 0"]
status, output, errors = run_demo("noise", [], {"LD_PRELOAD": noise, "NOISE": "\n".join(lines) + "\n"})
if status != 0 or output.count(" yes") != 9:
    lib.fail(f"noise: status {status}\n{output}{errors}")
if missing := [line for line in lines if line not in errors.splitlines()]:
    lib.fail(f"noise: not on stderr: {missing}\n{errors}")
print("ok: lines of others before the server's")

status, output, errors = run_demo("no connection", [refuse, "EPERM", CONNECT, "--"], {})
if status == 0 or "cannot connect to 127.0.0.1" not in errors:
    lib.fail(f"no connection: status {status}\n{output}{errors}")
print("ok: a client that cannot connect")

# The client tries to connect, and the server waits for it without a limit: both end with the demo. The demo, its server and its client:
process = start_demo([refuse, "EPERM", CONNECT, "--"], {})
lib.await_that(lambda: len(processes_of_session(process.pid)) >= 3, "a demo of three processes", process)
process.kill()
process.wait()
lib.await_that(lambda: not processes_of_session(process.pid), lambda: f"killed: still runs: {processes_of_session(process.pid)}")
print("ok: a demo that is killed")
