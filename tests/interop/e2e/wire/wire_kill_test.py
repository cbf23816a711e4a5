#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Kills processes of a wire with SIGKILL at random moments, from their first instructions to full traffic, and checks after
each whether the others go on: a pair that runs all the time, and a pair that starts then. With --switch also the switch: a pair with a
direct link goes on without one.
   wire_kill_test.py FAULTLINE_RUN ROUNDS [--share] [--switch] [--seed N]
"""
import argparse
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # tests
import lib  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("run")
parser.add_argument("rounds", type=int, help="with FAULTLINE_SOAK; a tenth of them without")
parser.add_argument("--share", action="store_true")
parser.add_argument("--switch", action="store_true", help="kill the switch too")
parser.add_argument("--seed", type=int, default=1)
options = parser.parse_args()
if not os.environ.get("FAULTLINE_SOAK"):
    options.rounds = max(1, options.rounds // 10)

lib.need("ibv_rc_pingpong", "ib_send_bw", "stdbuf")
draw = random.Random(options.seed)
folder = lib.own_runtime_folder()
wire = "k%d" % os.getpid()
running = []
outputs = 0


PINGPONG = ("ibv_rc_pingpong", "-g", "0")
# Always has something under way, so that the transport notices a dead peer.
STREAM = ("stdbuf", "-oL", "ib_send_bw", "-F", "-x", "0", "-s", "512", "-D", "1", "--run_infinitely")


def start(program, *arguments):
    share = ["--share"] if options.share else []
    log = open(os.path.join(folder, "out.%d" % outputs), "a+")
    process = subprocess.Popen([options.run, "--wire", wire, *share, "--", *program, *arguments],
                               stdout=log, stderr=subprocess.STDOUT)
    process.log = log
    running.append(process)
    return process


def new_port():
    global outputs
    outputs += 1
    return str(lib.free_port())


def await_that(condition, what, *processes):
    """Waits until the condition is true; a hang ends the test."""
    until = time.monotonic() + lib.LIMIT_S
    while not (value := condition()):
        if time.monotonic() > until:
            fail(what, *processes)
        time.sleep(0.005)
    return value


def await_server(process, port):
    await_that(lambda: lib.listens(port) or process.poll() is not None, "a server does not listen", process)
    if process.poll() is not None:
        fail("a server ended", process)


def await_end(process, what, *others):
    """Its exit status."""
    await_that(lambda: process.poll() is not None, what, process, *others)
    return process.returncode


def fail(why, *processes):
    print("FAILED:", why)
    for process in processes:
        process.log.seek(0)
        print("---", process.args[-8:], process.poll())
        print(process.log.read()[-2000:])
    sys.exit(1)


def end(process):
    if process.poll() is None:
        process.kill()
    process.wait()
    running.remove(process)


def switches():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open("/proc/%s/cmdline" % pid).read().split("\0")
        except OSError:
            continue
        if len(words) > 2 and words[0].endswith("faultline-switch") and words[2] == wire:
            found.append(int(pid))
    return found


def is_linked(process):
    """The program that faultline-run has become has a direct link."""
    try:
        with open("/proc/%d/maps" % process.pid) as maps:
            return "/memfd:faultline-link " in maps.read()
    except OSError:
        return False


class Steady:
    """A pair that is connected when others are killed, and sleeps between its messages so that CPUs are left for those. Each
    byte is compared; when it is done it starts anew."""

    def __init__(self, messages=10_000):
        self.runs = 0
        self.messages = messages
        self.begin()

    def begin(self):
        port = new_port()
        words = ("-e", "-c", "-n", str(self.messages), "-p", port)
        server = start(PINGPONG, *words)
        await_server(server, port)
        self.pair = [start(PINGPONG, *words, "127.0.0.1"), server]

    def is_running(self):
        return all(process.poll() is None for process in self.pair)

    def await_link(self, what):
        """From now on the pair needs no switch: a connection over a switch gives up half a second after that has died."""
        while True:
            linked = lambda: all(is_linked(process) for process in self.pair)  # noqa: E731
            await_that(lambda: not self.is_running() or linked(), "a pair has no direct link: " + what, *self.pair)
            if linked():
                return
            self.finish(what)
            self.begin()

    def finish(self, what):
        for process in self.pair:
            if await_end(process, "the steady pair hangs: " + what, *self.pair) != 0:
                fail("the steady pair failed: " + what, *self.pair)
        for process in self.pair:
            end(process)
        self.runs += 1

    def look(self, what):
        if not self.is_running():
            self.finish(what)
            self.begin()


def seconds_told(process):
    """A line for each second that messages moved in."""
    process.log.flush()
    process.log.seek(0)
    lines = [line.split() for line in process.log.read().splitlines()]
    return sum(1 for words in lines if len(words) == 5 and words[0] == "512" and float(words[3]) > 0)


def await_progress(process, others):
    await_that(lambda: seconds_told(process) > 0, "no message moves", process, *others)


def newcomers():
    """A pair that comes now must do its work."""
    port = new_port()
    server = start(PINGPONG, "-n", "200", "-c", "-p", port)
    await_server(server, port)
    client = start(PINGPONG, "-n", "200", "-c", "-p", port, "127.0.0.1")
    for process in (client, server):
        if await_end(process, "a new pair hangs", client, server) != 0:
            fail("a new pair failed", client, server)
    end(client)
    end(server)


def victims():
    """Kills one of a pair at a random moment."""
    port = new_port()
    informed = draw.random() < 0.2
    program = STREAM if informed else (*PINGPONG, "-n", "1000000000")
    server = start(program, "-p", port)
    moment = draw.choice((0.05, 0.15, 0.6)) * draw.random()
    if draw.random() < 0.3:
        time.sleep(moment)
        end(server)
        return "server alone after %.3f s" % moment
    await_server(server, port)
    client = start(program, "-p", port, "127.0.0.1")
    if informed:
        await_progress(client, [server])
    time.sleep(moment)
    first, second, what = (server, client, "server") if informed or draw.random() < 0.5 else (client, server, "client")
    first.kill()
    first.wait()
    if informed:
        await_end(second, "the %s died, and nobody told its peer" % what)
    end(first)
    end(second)
    return "%s after %.3f s" % (what, moment)


def kill_switch(starting):
    """Kills the switch, and as many as `starting` of those that come in its place, while they start. A program that is there all
    the time has them started."""
    port = new_port()
    holder = start(PINGPONG, "-p", port)
    await_server(holder, port)
    last = switches()
    for pid in last:
        os.kill(pid, signal.SIGKILL)
    killed = len(last) > 0
    for _ in range(starting):
        fresh = await_that(lambda: [pid for pid in switches() if pid not in last], "no program starts another switch", *running)
        time.sleep(0.1 * draw.random())
        # What was seen first leaves at once and its child goes on.
        last += fresh
        for pid in switches():
            last.append(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    newcomers()
    if holder.poll() is not None:
        fail("the program that had the switch started has ended", holder)
    end(holder)
    return killed


def go_on_without_switch():
    """The switch is stopped before the pair has sent much, and killed time and again."""
    linked = Steady(40_000)
    linked.await_link("the start")
    stopped = switches()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    linked.finish("its switch is stopped")
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    print("ok: a pair with a direct link ends while the switch is stopped", flush=True)
    killed = set()
    # A fast pair may have ended before a second switch has started.
    while len(killed) < 2:
        linked = Steady(100_000)
        linked.await_link("the start")
        while linked.is_running():
            for pid in switches():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                killed.add(pid)
            time.sleep(0.05 * draw.random())
        linked.finish("its switch is killed again and again")
    print("ok: a pair with a direct link goes on while %d processes of switches are killed" % len(killed), flush=True)


# Every run, however short, kills a switch, one that starts, and has a pair that comes after that.
EVERY = min(10, max(1, options.rounds // 2))
switches_killed = 0
try:
    if options.switch:
        go_on_without_switch()
    steady = Steady()
    for i in range(options.rounds):
        what = "round %d, %s" % (i, victims())
        switch_dies = options.switch and i % EVERY == EVERY - 1
        if switch_dies:
            starting = switches_killed % 3
            steady.await_link(what)
            switches_killed += kill_switch(starting)
            what += ", and the switch" + (", and %d as they started" % starting if starting else "")
        steady.look(what)
        if i % 5 == 4:
            newcomers()
        if switch_dies or i % 5 == 4:
            print("ok: " + what, flush=True)
    steady.finish("the end")
    if options.switch and switches_killed < 2:
        fail("%d switches were killed" % switches_killed)
    print("ok: %d processes and %d switches killed, %d runs beside them" % (options.rounds, switches_killed, steady.runs))
finally:
    for process in list(running):
        end(process)
