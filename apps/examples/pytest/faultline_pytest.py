# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: fixtures that give a test two RDMA devices without hardware. No module beside pytest and the standard library.

    pytest -p faultline_pytest                           # with this file's folder in PYTHONPATH
    pytest_plugins = ["faultline_pytest"]                # or in the top conftest.py, with this file next to it

faultline_wire: programs at both ends of a wire, each with a device of its own:

    def test_bandwidth(faultline_wire):
        server = faultline_wire.start("a", ["ib_write_bw", "-p", faultline_wire.port])
        faultline_wire.wait_for_server()
        faultline_wire.run("b", ["ib_write_bw", "-p", faultline_wire.port, faultline_wire.address("a")])
        assert server.wait(timeout=30) == 0

A wire keeps RDMA apart from other wires, and not TCP: a port that a server binds is taken on the whole host, unless the server binds its
own address alone. So `port` differs from test to test.

faultline_devices: the names of two devices of the pytest process itself, which are joined, for tests that use pyverbs. A process gets its
devices when it starts, so pytest is started by faultline-run:

    faultline-run --config two_devices.toml pytest

The program faultline-run is that of the variable FAULTLINE_RUN, or of PATH."""
import importlib
import itertools
import os
import pathlib
import random
import shutil
import socket
import subprocess
import time

import pytest

LIMIT_SECONDS = 120  # of a program, for hangs only
_numbers = itertools.count()


def pytest_addoption(parser):
    parser.addoption("--faultline-config", metavar="FILE", help="faultline_wire: further properties of the devices, such as a bad network")


def _faultline_run():
    program = os.environ.get("FAULTLINE_RUN") or shutil.which("faultline-run")
    if program is None:
        pytest.skip("faultline-run is neither in PATH nor named by FAULTLINE_RUN")
    return program


def _free_port():
    """A TCP port below those that the kernel assigns, so that no connection takes it before the server."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        try:
            with socket.create_server(("", port)):
                return port
        except OSError:  # it is taken
            continue


class Wire:
    """A local network of its own. Programs at side "a" and "b" (to "z") have a device faultline0 each."""

    def __init__(self, name, config):
        self.name, self.config = name, config
        self.faultline_run = _faultline_run()
        self.port = _free_port()
        self.started = []

    def address(self, side):
        """The address of a side, for RDMA, TCP and UDP."""
        return f"198.18.0.{ord(side) - ord('a') + 1}"

    def command(self, side, command):
        """The command that starts `command` at `side`, for callers that start it themselves."""
        config = ["--config", self.config] if self.config else []
        return [self.faultline_run, "--wire", self.name, "--side", side, *config, "--", *map(str, command)]

    def start(self, side, command, **popen):
        """Starts a program at `side`, and returns its subprocess.Popen. It ends with the test."""
        process = subprocess.Popen(self.command(side, command), **{"stdin": subprocess.DEVNULL, "text": True} | popen)
        self.started.append(process)
        return process

    def wait_for_server(self, port=None):
        """Waits until a program listens at a TCP port, by default `port`, for clients that do not try again. It connects to nothing."""
        end = f":{port or self.port:04X}"
        deadline = time.monotonic() + LIMIT_SECONDS
        while not any(line.split()[1].endswith(end) and line.split()[3] == "0A"  # TCP_LISTEN, proc(5)
                      for table in ("/proc/net/tcp", "/proc/net/tcp6") if os.path.exists(table)
                      for line in pathlib.Path(table).read_text().splitlines()[1:]):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no program listens at TCP port {port or self.port}")
            time.sleep(0.02)

    def run(self, side, command, **run):
        """Runs a program at `side` to its end, and returns its subprocess.CompletedProcess. Its failure is an exception."""
        return subprocess.run(self.command(side, command),
                              **{"stdin": subprocess.DEVNULL, "text": True, "check": True, "timeout": LIMIT_SECONDS} | run)

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def faultline_wire(request):
    """A wire for this test alone."""
    wire = Wire(f"pytest-{os.getpid()}-{next(_numbers)}", request.config.getoption("--faultline-config"))
    yield wire
    wire.close()


@pytest.fixture(scope="session")
def faultline_devices():
    """The names of two devices of this process, which are joined."""
    device = pytest.importorskip("pyverbs.device", reason="pyverbs is not installed (Debian: python3-pyverbs)")
    try:
        names = [one.name.decode() for one in device.get_device_list()]
    except importlib.import_module("pyverbs.pyverbs_error").PyverbsRDMAError:  # a process without Faultline, on a host without adapters
        names = []
    if len(names) < 2:
        pytest.skip(f"{len(names)} RDMA devices in this process; start it by: faultline-run --config two_devices.toml pytest")
    return names[:2]
