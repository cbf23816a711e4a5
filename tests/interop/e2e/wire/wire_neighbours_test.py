#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Neighbours on a wire that are silent, stopped or gone, and a switch that is stopped: the others go on, and nothing is left.
  wire_neighbours_test.py FAULTLINE_RUN WIRE_STOPPED_RECEIVERS
With FAULTLINE_SOAK as many stopped receivers as a wire can have beside a pair; half of them without."""
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # tests
import lib  # noqa: E402

run, receivers_program = sys.argv[1:]
lib.need("ibv_rc_pingpong")
folder = lib.own_runtime_folder()
wire = f"n{os.getpid()}"
control = f"{folder}/faultline/{wire}.control"
SILENT = 1000
SINKS = 29 if os.environ.get("FAULTLINE_SOAK") else 17
running = []
port = lib.free_port()


def fail(what):
    print("FAILED:", what)
    for name in sorted(os.listdir(folder)):
        if name.endswith(".out"):
            print("---", name, open(f"{folder}/{name}").read()[-500:])
    log = f"{folder}/faultline/{wire}.log"
    if os.path.exists(log):
        print("--- the switch", open(log).read()[-2000:])
    sys.exit(1)


def start(name, *program, side=None):
    with open(f"{folder}/{name}.out", "w") as out:
        options = ["--side", side] if side else []
        process = subprocess.Popen([run, "--wire", wire, *options, "--", *program], stdout=out, stderr=subprocess.STDOUT)
    running.append(process)
    return process


def end(process):
    if process.poll() is None:
        process.kill()
    process.wait()
    running.remove(process)


def await_true(condition, what):
    until = time.monotonic() + 2 * lib.LIMIT_S
    while not (value := condition()):
        if time.monotonic() > until:
            fail(what)
        time.sleep(0.02)
    return value


def listens():
    return lib.listens(port)


def pair(what):
    """Two that come now do their work."""
    global port
    port = lib.free_port()
    program = ("ibv_rc_pingpong", "-g", "0", "-n", "200", "-c", "-p", str(port))
    server = start("server", *program)
    await_true(lambda: listens() or server.poll() is not None, f"{what}: no server")
    client = start("client", *program, "127.0.0.1")
    for process in (client, server):
        await_true(lambda: process.poll() is not None, f"{what}: a pair hangs")  # noqa: B023
        if process.returncode != 0:
            fail(f"{what}: a pair failed")
    end(client)
    end(server)
    print(f"ok: a pair, {what}", flush=True)


def switch():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{pid}/cmdline").read().split("\0")
        except OSError:
            continue
        if len(words) > 2 and words[0].endswith("faultline-switch") and words[2] == wire:
            return int(pid)
    return None


def figures(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
    status = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
    return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")), "threads": int(status["Threads"]),
            "kB": int(status["VmRSS"].split()[0]), "cpu": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")}


def knock():
    """A connection, or None where as many as may wait do so."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.setblocking(False)
    try:
        connection.connect(control)
        return connection
    except BlockingIOError:
        connection.close()
        return None


def silent_neighbours(pid):
    before = figures(pid)
    silent = []
    while len(silent) < SILENT:
        silent.append(await_true(knock, f"the switch accepts no more than {len(silent)} connections"))
    await_true(lambda: figures(pid)["descriptors"] <= before["descriptors"] + 200, "silent connections keep descriptors")

    def is_calm():
        """It looks after them, but does not spin."""
        first = figures(pid)
        time.sleep(2)
        return figures(pid)["cpu"] - first["cpu"] < 1
    await_true(is_calm, "silent connections keep the switch busy")
    print(f"{len(silent)} silent connections: before {before}, with them {figures(pid)}", flush=True)
    pair("beside silent neighbours")
    for connection in silent:
        connection.close()
    await_true(lambda: figures(pid)["descriptors"] <= before["descriptors"] + 8, "descriptors of silent connections stay")
    after = figures(pid)
    if after["threads"] != before["threads"]:
        fail(f"threads: {before}, {after}")
    print("ok: silent neighbours", after, flush=True)


def stopped_switch(pid):
    os.kill(pid, signal.SIGSTOP)
    waiting = []
    # As many as the backlog takes, and a newcomer behind them.
    while len(waiting) < 1000:
        connection = knock()
        if connection is None:
            break
        waiting.append(connection)
    newcomers = [start(f"newcomer{i}", "ibv_devinfo") for i in range(2)]
    for newcomer in newcomers:
        await_true(lambda: newcomer.poll() is not None, "a newcomer hangs at a stopped switch")  # noqa: B023
        end(newcomer)
    os.kill(pid, signal.SIGCONT)
    for i in range(2):
        output = open(f"{folder}/newcomer{i}.out").read()
        if f"process {pid} is stopped: continue it with kill -CONT {pid}" not in output:
            fail(f"a newcomer at a stopped switch is told: {output}")
    for connection in waiting:
        connection.close()
    pair("after the switch was stopped")


def stopped_receivers(pid):
    before = figures(pid)
    files = [f"{folder}/sink{i}.at" for i in range(SINKS)]
    sinks = [start(f"sink{i}", receivers_program, "sink", file) for i, file in enumerate(files)]
    await_true(lambda: all(os.path.exists(file) for file in files) or any(sink.poll() is not None for sink in sinks),
               "the receivers do not start")
    if any(sink.poll() is not None for sink in sinks):
        fail("a receiver ended")
    for sink in sinks:
        sink.send_signal(signal.SIGSTOP)
    # More than memif's ring and what may wait for a port.
    flood = start("flood", receivers_program, "flood", "2500", *files)
    await_true(lambda: flood.poll() is not None, f"beside {SINKS} stopped receivers a sender hangs")
    if flood.returncode != 0:
        fail(f"beside {SINKS} stopped receivers a sender does not get through")
    end(flood)
    pair(f"beside {SINKS} stopped receivers")
    for sink in sinks:
        sink.send_signal(signal.SIGCONT)
    pair("after they went on")
    for sink in sinks:
        end(sink)
    await_true(lambda: figures(pid)["descriptors"] <= before["descriptors"] + 2 * SINKS + 8, "their descriptors stay")
    print(f"ok: stopped receivers: before {before}, after {figures(pid)}", flush=True)


def nothing_left():
    await_true(lambda: switch() is None, "the switch goes on without programs")
    left = [name for name in os.listdir(f"{folder}/faultline") if name.startswith(wire)]
    if left:
        fail(f"the wire left {left}")
    print("ok: nothing is left of the wire", flush=True)


try:
    holder = start("holder", "ibv_rc_pingpong", "-g", "0", "-p", str(port), side="z")
    await_true(lambda: listens() or holder.poll() is not None, "the first program does not start")
    # Its first pair made ports, which it keeps.
    pair("before")
    silent_neighbours(switch())
    stopped_switch(switch())
    stopped_receivers(switch())
    end(holder)
    nothing_left()
finally:
    for process in list(running):
        end(process)
