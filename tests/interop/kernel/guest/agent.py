# SPDX-License-Identifier: BSD-3-Clause
"""The kernel peer's end of its command channel: runs commands, any number at a time, and returns their output.

One JSON object a line. In: {"id", "argv"} starts a command in a session of its own, {"id", "signal"} signals that session.
Out: {"id", "out"} is the output of a command, {"id", "status"} its exit status; {"ready"} or {"fault"} once at the start.
"""
import json
import os
import subprocess
import sys
import threading

port = open(sys.argv[1], "r+b", buffering=0)
lock = threading.Lock()
running = {}


def say(**words):
    with lock:
        line = json.dumps(words).encode() + b"\n"
        while line:
            line = line[port.write(line):]


def follow(number, process):
    while data := os.read(process.stdout.fileno(), 65536):
        say(id=number, out=data.decode(errors="replace"))
    status = process.wait()
    running.pop(number)
    say(id=number, status=status)


def take(id, argv=None, signal=None):
    if argv is None:
        if id in running:
            try:
                os.killpg(running[id].pid, signal)
            except ProcessLookupError:
                pass
        return
    try:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True, cwd="/root")
    except OSError as error:
        say(id=id, out=f"{argv[0]}: {error.strerror}\n")
        say(id=id, status=127)
        return
    running[id] = process
    threading.Thread(target=follow, args=(id, process), daemon=True).start()


if fault := os.environ.get("FAULT"):
    say(fault=fault)
else:
    say(ready=os.uname().release)
for line in port:
    take(**json.loads(line))
