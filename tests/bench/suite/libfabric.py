# SPDX-License-Identifier: BSD-3-Clause
"""libfabric's TCP provider between two processes of this machine, with its own fi_pingpong."""
import shutil

from .outcome import RunFailed, Unavailable
from .processes import Child, free_port, listens, on_cpu
from .sizes import bytes_of

ENVIRONMENT = {"FI_TCP_IFACE": "lo"}
FIRST_MESSAGES = 1000


def parsed(output):
    """Microseconds of a transfer, from the column with that name."""
    lines = output.splitlines()
    titles = next((at for at, line in enumerate(lines) if "usec/xfer" in line), None)
    if titles is None or titles + 1 >= len(lines):
        raise RunFailed(f"fi_pingpong printed no figures: {output[-300:]}")
    return float(lines[titles + 1].split()[lines[titles].split().index("usec/xfer")])


def _run(context, size_bytes, messages):
    """Half a round trip in microseconds, on average."""
    port = free_port()
    command = ["fi_pingpong", "-p", "tcp", "-e", "rdm", "-I", str(messages), "-S", str(size_bytes)]
    with Child(on_cpu(context.cpus[0], [*command, "-B", str(port)]), ENVIRONMENT) as server:
        server.wait_for(lambda: listens(port), "its port")
        with Child(on_cpu(context.cpus[1], [*command, "-P", str(port), "127.0.0.1"]), ENVIRONMENT) as client:
            output = client.finish(context.limit_s)
        server.finish(context.limit_s)
    return parsed(output)


def measure(context, sizes):
    if shutil.which("fi_pingpong") is None:
        raise Unavailable("fi_pingpong (libfabric-bin) is not installed")
    figures = {}
    for label in sizes:
        key = ("libfabric", label)
        if key not in context.learnt:
            trip_s = 2 * _run(context, bytes_of(label), FIRST_MESSAGES) / 1e6
            context.learnt[key] = max(FIRST_MESSAGES, int(context.seconds / trip_s))
        figures[f"libfabric/tcp/pingpong/{label}"] = {"mean_us": _run(context, bytes_of(label), context.learnt[key])}
    return figures, {}
