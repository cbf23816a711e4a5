#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The end of programs on a wire: what they sent last is heard (program_end.cpp, last_datagrams.cpp), and SIGTERM and Ctrl-C's SIGINT end them soon,
while they poll and while they sleep, and leave the wire as it was.
  program_end_test.py PROGRAM_END LAST_DATAGRAMS FAULTLINE_RUN
"""
import os
import shutil
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # tests
import lib  # noqa: E402

program_end, last_datagrams, run = sys.argv[1:]
lib.own_runtime_folder()
wire = f"last{os.getpid()}"


def start_pair(*arguments):
    port = lib.free_port()
    words = [run, "--wire", wire, "--", "stdbuf", "-oL", "ibv_rc_pingpong", "-g", "0", "-p", port, *arguments]
    server = lib.start(words, name="server")
    lib.await_port(port, server)
    return server, lib.start([*words, "127.0.0.1"], name="client")


lib.call([program_end, wire])
lib.call([last_datagrams, wire])
print("ok: last words", flush=True)
if shutil.which("ibv_rc_pingpong") is None:
    print("ibv_rc_pingpong is not installed: signals were not tried")
    sys.exit(0)
for options in ((), ("-e",)):
    for number in (signal.SIGTERM, signal.SIGINT):
        pair = start_pair("-n", "100000000", *options)
        for process in pair:
            lib.await_line(process, "remote address")
        for process in pair:
            process.send_signal(number)
            lib.expect(process.wait() == -number, f"{number.name} ends a program")
        for process in start_pair("-n", "100", "-c"):
            process.succeed()
        print("ok:", number.name, *options, flush=True)
