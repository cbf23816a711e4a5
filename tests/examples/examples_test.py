#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The example programs move data over a wire, C and Python with each other too, and state when a byte is wrong.
  examples_test.py EXAMPLES_FOLDER FAULTLINE_RUN PROGRAM...       PROGRAM is example_NAME, as built from the folder's sources"""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # tests
import lib  # noqa: E402
from lib import free_port  # noqa: E402

FOLDER, RUN = pathlib.Path(sys.argv[1]), sys.argv[2]
PROGRAMS = {pathlib.Path(path).name.removeprefix("example_"): path for path in sys.argv[3:]}
SERVER_ADDRESS = "198.18.0.1"  # of side a
PYTHON = "/usr/bin/python3"  # Debian's, which has pyverbs
ARRIVED, WRITTEN = "1048576 bytes arrived, 0 are wrong\n", "wrote 1048576 bytes\n"


def fail(what, *ended):
    for process, text in ended:
        print(f"status {process.returncode} of {process.args}:\n{text}")
    lib.fail(what)


class Bench:
    def __init__(self):
        # Meson's variable, with which libraries of the build are found; a user does not have it.
        self.environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        self.wire = "examples"

    def start(self, command, **environment):
        process = subprocess.Popen(command, env=self.environment | environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        lib.on_exit(process.kill)
        return process

    def finish(self, process):
        try:
            return process.communicate(timeout=lib.LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()[0] + "no end"

    def at(self, side, command):
        return self.start([RUN, "--wire", self.wire, "--side", side, "--", *command])

    def expect_pair(self, what, server, client, server_text, client_text):
        processes = self.at("a", server), self.at("b", [*client, SERVER_ADDRESS])
        texts = [self.finish(process) for process in reversed(processes)][::-1]
        if [process.returncode for process in processes] != [0, 0] or texts != [server_text, client_text]:
            fail(what, *zip(processes, texts))
        print(f"ok: {what}")

    def expect(self, what, command, text, **environment):
        process = self.start(command, **environment)
        printed = self.finish(process)
        if process.returncode != 0 or not printed.startswith(text):
            fail(what, (process, printed))
        print(f"ok: {what}")


def test_writes(bench):
    # TCP ports are the host's, on whichever wire.
    port = str(free_port())
    programs = {"C": [PROGRAMS["write"], "-p", port]}
    if subprocess.run([PYTHON, "-c", "import pyverbs.device"], capture_output=True, check=False).returncode == 0:
        programs["Python"] = [PYTHON, FOLDER / "write.py", "--port", port]
    else:
        print("not tried: write.py: python3-pyverbs is not installed")
    for server, server_command in programs.items():
        for client, client_command in programs.items():
            bench.expect_pair(f"{client} writes to {server}", server_command, client_command, ARRIVED, WRITTEN)


def test_a_server_that_gets_nothing(bench):
    """A client whose memory has other bytes: write.c's server counts them. The test is the client, over TCP alone."""
    client = "import socket, sys\n" \
             "connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n" \
             "lines = connection.makefile('rw')\n" \
             "print('1 0 0 0 ::ffff:198.18.0.1', 'ready', 'written', sep='\\n', file=lines, flush=True)\n" \
             "lines.read()\n"
    port = str(free_port())
    server = bench.at("a", [PROGRAMS["write"], "-p", port])
    lib.await_port(port, server)
    processes = server, bench.at("b", [PYTHON, "-c", client, SERVER_ADDRESS, port])
    texts = [bench.finish(process) for process in processes]
    # A quarter of a percent of the pattern is zero, as untouched memory is.
    if processes[0].returncode != 1 or "1048576 bytes arrived, 1044480 are wrong" not in texts[0]:
        fail("a server that gets nothing", *zip(processes, texts))
    print("ok: a server counts wrong bytes")


def test_counters(bench):
    """counters.py lists a running program by its process, with the counters that are not 0. The server waits for its client meanwhile."""
    port = str(free_port())
    server = bench.at("a", [PROGRAMS["write"], "-p", port])

    def is_counted():
        counted = bench.finish(bench.start([PYTHON, FOLDER / "counters.py", str(server.pid)]))
        return f"{server.pid} faultline0 odp.pinned_bytes " in counted or f"{server.pid} faultline0 odp.unpinned_bytes " in counted
    # They are there once the server has registered its memory.
    lib.await_that(is_counted, "counters of a running program", server)
    client = bench.at("b", [PROGRAMS["write"], "-p", port, SERVER_ADDRESS])
    for process in (client, server):
        text = bench.finish(process)
        if process.returncode != 0:
            fail("the program that was counted", (process, text))
    print("ok: counters of a running program")


def main():
    lib.own_runtime_folder()
    bench = Bench()
    test_writes(bench)
    test_a_server_that_gets_nothing(bench)
    test_counters(bench)
    bench.expect_pair("echo over rdma_cm", [PROGRAMS["echo"]], [PROGRAMS["echo"]], "answered one client\n",
                      "the server sent: hello over RDMA\n")
    bench.expect("two devices of one process", [RUN, "--config", FOLDER / "two_devices.toml", "--", PROGRAMS["two_devices"]],
                 "side 0 received: a datagram from side 1, device faultline1\nside 1 received: a datagram from side 0, device faultline0\n")
    bench.expect("on-demand memory, with libfaultline", [PROGRAMS["on_demand"]],
                 "100 writes into 4096 MiB, 0 are wrong\nodp.num_page_faults        100\n", FAULTLINE_WIRE=bench.wire)


main()
