# SPDX-License-Identifier: BSD-3-Clause
"""Tests that need RDMA devices, with the fixtures of faultline_pytest.py:
  faultline-run --config ../two_devices.toml pytest -p faultline_pytest"""
import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent


def test_two_programs(faultline_wire):
    """A program writes into the memory of another one. Each has a device of its own."""
    write = [sys.executable, EXAMPLES / "write.py", "--port", faultline_wire.port]
    server = faultline_wire.start("a", write, stdout=subprocess.PIPE)
    faultline_wire.run("b", [*write, faultline_wire.address("a")])
    text, _ = server.communicate(timeout=60)
    assert server.returncode == 0
    assert text == "1048576 bytes arrived, 0 are wrong\n"


def test_devices_of_this_process(faultline_devices):
    """pyverbs, in the test itself: each device has a port that is active, and an address of its own."""
    import pyverbs.enums as e
    from pyverbs.device import Context

    contexts = [Context(name=name) for name in faultline_devices]
    assert [context.query_port(1).state for context in contexts] == [e.IBV_PORT_ACTIVE] * 2
    assert len({str(context.query_gid(1, 0)) for context in contexts}) == 2
