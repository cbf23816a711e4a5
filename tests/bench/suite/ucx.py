# SPDX-License-Identifier: BSD-3-Clause
"""UCX between two processes of this machine, with its own ucx_perftest."""
import contextlib
import shutil
import time

from .outcome import RunFailed, Unavailable
from .processes import Child, free_port, listens, on_cpu
from .sizes import bytes_of
from .wires.network import wire

TRANSPORTS = {
    "tcp": {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"},
    "shm": {"UCX_TLS": "shm,self"},
    # On a wire. rc_verbs establishes its connections over ud_verbs.
    "verbs": {"UCX_TLS": "rc_verbs,ud_verbs,self", "UCX_NET_DEVICES": "faultline0:1"},
}
TESTS = {"tag_bw": "tag_bw", "tag_lat": "tag_lat", "put_bw": "ucp_put_bw", "put_lat": "ucp_put_lat"}
RANKS = {"p50": 50.0, "p99": 99.0, "p999": 99.9}
MIN_MESSAGES = 100
FIRST_BYTES = 64 << 20


def parsed(output):
    """Parses the line of figures: iterations, the percentile, average and overall latency, average and overall bandwidth, and rate."""
    rows = [line.split(",") for line in output.splitlines() if line.strip()[:1].isdigit() and line.count(",") == 7]
    if not rows:
        raise RunFailed(f"ucx_perftest printed no figures: {output[-300:]}")
    return {"percentile_us": float(rows[-1][1]), "messages_per_second": float(rows[-1][7])}


def _run(context, transport, test, size_bytes, messages, rank, on=None):
    port = free_port()
    environment = {**TRANSPORTS[transport], **(on.environment if on else {})}

    def on_side(side, words):
        return on.on_side(side, words) if on else on_cpu(context.cpus[side], words)

    server_command = on_side(0, ["ucx_perftest", "-p", str(port)])
    client_command = on_side(1, [
        "ucx_perftest", "127.0.0.1", "-p", str(port), "-t", TESTS[test], "-s", str(size_bytes), "-n", str(messages),
        "-w", str(max(10, messages // 10)), "-R", str(rank), "-f", "-v"])
    with Child(server_command, environment) as server:
        server.wait_for(lambda: listens(port), "its port")
        with Child(client_command, environment) as client:
            output = client.finish(context.limit_s)
        server.finish(context.limit_s)
    return parsed(output)


def _messages_for(context, transport, test, size_bytes, on):
    """The number of messages that takes about as long as other measurements: measured once, then the same in every round."""
    key = ("ucx", transport, test, size_bytes)
    if key not in context.learnt:
        first = min(20_000, max(MIN_MESSAGES, FIRST_BYTES // size_bytes))
        rate = _run(context, transport, test, size_bytes, first, RANKS["p50"], on)["messages_per_second"]
        context.learnt[key] = max(MIN_MESSAGES, int(rate * context.seconds))
    return context.learnt[key]


def measure(context, transport, test, sizes, prefix=None, ranks=tuple(RANKS)):
    """Latency is half a round trip, as in ucx_perftest."""
    if shutil.which("ucx_perftest") is None:
        raise Unavailable("ucx_perftest (ucx-utils) is not installed")
    with wire(context) if transport == "verbs" else contextlib.nullcontext() as on:
        return _figures(context, transport, test, sizes, prefix or f"ucx/{transport}/{test}", ranks, on)


def _figures(context, transport, test, sizes, prefix, ranks, on):
    figures = {}
    windows = {}
    for label in sizes:
        size_bytes = bytes_of(label)
        messages = _messages_for(context, transport, test, size_bytes, on)
        name = f"{prefix}/{label}"
        began = time.monotonic()
        if test.endswith("_lat"):
            figures[name] = {f"{rank}_us": _run(context, transport, test, size_bytes, messages, RANKS[rank], on)["percentile_us"]
                             for rank in ranks}
        else:
            rate = _run(context, transport, test, size_bytes, messages, RANKS["p50"], on)["messages_per_second"]
            figures[name] = {"messages_per_second": rate, "gb_per_second": rate * size_bytes / 1e9}
        windows[name] = {"window_s": [began, time.monotonic()]}
    return figures, windows
