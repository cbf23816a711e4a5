#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The end of programs on a wire: what they sent last is heard (program_end.cpp), and SIGTERM and Ctrl-C's SIGINT end them soon,
while they poll and while they sleep, and leave the wire as it was.
  program_end_test.py PROGRAM_END FAULTLINE_RUN
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../.."))
from free_port import free_port  # noqa: E402  (tests/)

program_end, run = sys.argv[1:]
folder = tempfile.mkdtemp()
os.chmod(folder, 0o700)
environment = dict(os.environ, XDG_RUNTIME_DIR=folder)
wire = f"last{os.getpid()}"
running = []
port = 0


def fail(what):
    sys.exit(f"FAILED: {what}")


def start(*arguments):
    process = subprocess.Popen([run, "--wire", wire, "--", "stdbuf", "-oL", "ibv_rc_pingpong", "-g", "0", "-p", str(port), *arguments],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, text=True)
    running.append(process)
    return process


def start_pair(*arguments):
    global port
    port = free_port()
    server = start(*arguments)
    wanted = f":{port:04X} "
    for _ in range(200):
        with open("/proc/net/tcp") as v4, open("/proc/net/tcp6") as v6:
            if any(wanted in line and " 0A " in line for line in [*v4, *v6]):
                break
        time.sleep(0.05)
    return server, start(*arguments, "127.0.0.1")


def wait(process, what):
    try:
        return process.wait(20)
    except subprocess.TimeoutExpired:
        fail(f"{what} does not end")


try:
    subprocess.run([program_end, wire], env=environment, timeout=100, check=True)
    if shutil.which("ibv_rc_pingpong") is None:
        print("ibv_rc_pingpong is not installed: signals were not tried")
        sys.exit(0)
    for options in ((), ("-e",)):
        for number in (signal.SIGTERM, signal.SIGINT):
            pair = start_pair("-n", "100000000", *options)
            for process in pair:
                while "remote address" not in (line := process.stdout.readline()):
                    if not line:
                        fail("the pair did not start")
            for process in pair:
                process.send_signal(number)
                if (status := wait(process, f"a program after {number.name}")) != -number:
                    fail(f"{number.name}: status {status}")
            for process in start_pair("-n", "100", "-c"):
                if wait(process, "a program") != 0:
                    fail(f"after {number.name}: {process.stdout.read()}")
            print("ok:", number.name, *options)
finally:
    for process in running:
        if process.poll() is None:
            process.kill()
    found = subprocess.run(["pgrep", "-u", str(os.getuid()), "-f", "--", f"faultline-switch --wire {wire} "],
                           capture_output=True, text=True).stdout.split()
    for pid in found:
        os.kill(int(pid), signal.SIGCONT)
        os.kill(int(pid), signal.SIGTERM)
    # The last switch may be taking its own files away.
    shutil.rmtree(folder, ignore_errors=True)
