# SPDX-License-Identifier: BSD-3-Clause
"""Faultline: faultline-perf over each kind of port."""
import contextlib
import json
import os
import re
import socket
import time

from . import network_namespaces
from .outcome import RunFailed, Unavailable
from .processes import Child, on_cpu
from .sizes import label_of

LISTENING = re.compile(r"listening on TCP port (\d+)")
VETH_MTU_BYTES = {"af_packet": 4500, "af_xdp": 3000}
SIDES = {"server": (1, "fl-a", "a"), "client": (2, "fl-b", "b")}


def device_text(kind, role, folder, device_lines=()):
    """The TOML of one side's device."""
    host, interface, side = SIDES[role]
    port = {
        "memif": [f'role = "{role}"', f'socket = "{folder}/wire.sock"'],
        "ring": ['wire = "w0"', f'side = "{side}"'],
    }.get(kind, [f'interface = "{interface}"'])
    lines = ["[[device]]", f'name = "faultline-{side}"', f'ip = "198.18.0.{host}/24"', *device_lines, "[device.port]", f'kind = "{kind}"',
             *port]
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def _place(context, kind):
    """Prepares the place of both sides of this kind of port; returns the prefix of their commands."""
    if kind in VETH_MTU_BYTES:
        if kind == "af_xdp":
            _require_xdp_sockets()
        with network_namespaces.veth(context.tag, VETH_MTU_BYTES[kind]) as prefix:
            yield prefix
    elif kind == "tap":
        with network_namespaces.bridged_taps(context.tag) as prefix:
            yield prefix
    else:
        yield []


def _require_xdp_sockets():
    try:
        socket.socket(44, socket.SOCK_RAW, 0).close()
    except OSError as error:
        raise Unavailable(f"no AF_XDP socket can be had: {error.strerror}") from error


def _write(path, text):
    with open(path, "w") as file:
        file.write(text)


def _lcore_lines(cpu, dedicated):
    return ['progress = "dedicated"', f"lcore = {cpu}"] if dedicated else []


@contextlib.contextmanager
def served(context, kind, dedicated=False, settings=""):
    """Writes both configurations and starts a server; returns the prefix of a client's command."""
    with contextlib.ExitStack() as stack:
        prefix = stack.enter_context(_place(context, kind))
        for role, cpu in zip(SIDES, context.cpus):
            _write(f"{context.folder}/{role}.toml", device_text(kind, role, context.folder, _lcore_lines(cpu, dedicated)) + settings)
        server = stack.enter_context(Child(prefix + on_cpu(context.cpus[0], [
            context.perf, "--config", f"{context.folder}/server.toml", "--server", "--listen", "127.0.0.1", "--port", "0"])))
        _await_server(server, settings, context.folder)
        port = LISTENING.search(server.output()).group(1)
        yield server, prefix + on_cpu(context.cpus[1], [
            context.perf, "--config", f"{context.folder}/client.toml", "--client", "127.0.0.1", "--port", port])


def _await_server(server, settings, server_folder):
    try:
        server.wait_for(lambda: LISTENING.search(server.output()), "its port")
    except RunFailed:
        # A setting that this build does not have is not an error of the run.
        if settings and "unknown key" in server.output():
            printed = server.last_words().replace(f"{server_folder}/", "").split(";")[0]
            raise Unavailable(f"this build has no such setting: {printed}") from None
        raise


def _figures(results, prefix):
    """faultline-perf's results as figures, and their page and loss counters. `{region}` in the prefix: the kind of memory."""
    figures = {}
    counters = {}
    for run in results:
        name = f"{prefix.format(region=run['region'])}/{run['op']}/{label_of(run['size'])}"
        if "fault_added_us" in run:
            metrics = {f"added_{rank}_us": run["fault_added_us"][rank] for rank in ("p50", "p99")}
            metrics |= {f"{rank}_us": value for rank, value in run["latency_us"].items()}
        elif run["mode"] == "lat":
            metrics = {f"{rank}_us": value for rank, value in run["latency_us"].items()}
        else:
            metrics = {"messages_per_second": run["messages_per_second"], "gb_per_second": run["gb_per_second"]}
        if "beside" in run:
            metrics[f"to_{run['beside']['region']}"] = run["beside"]["ratio"]["p50"]
        figures[name] = metrics
        counters[name] = {key: run[key] for key in ("window_s", "messages", "seconds", "faults", "rnr_naks", "retransmissions", "timeouts")}
        if "limits" in run:
            figures[f"{prefix}/port/{label_of(run['size'])}"] = {"packets_per_second": run["limits"]["raw_port_packets_per_second"]}
            figures[f"{prefix}/copy_crc/{label_of(run['size'])}"] = {"gb_per_second": run["limits"]["copy_crc_gb_per_second"]}
    return figures, counters


def measure(context, kind, prefix, options, dedicated=False, settings="", lengths=1):
    """One server, one client, with all of `options`; each figure takes `lengths` times context.seconds."""
    out = os.path.join(context.folder, "result.json")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(out)
    asked = ["--json", out, "--seconds", str(lengths * context.seconds), *options]
    if kind == "ring":
        _write(f"{context.folder}/ring.toml", "".join(device_text(kind, role, context.folder) for role in SIDES) + settings)
        with Child(["taskset", "-c", ",".join(str(cpu) for cpu in context.cpus), context.perf, "--config", f"{context.folder}/ring.toml",
                    "--both", "--", *asked]) as both:
            both.finish(context.limit_s)
    else:
        with served(context, kind, dedicated, settings) as (server, client_command):
            with Child(client_command + ["--", *asked]) as client:
                client.finish(context.limit_s)
            server.finish(context.limit_s)
    with open(out) as file:
        return _figures(json.load(file)["results"], prefix)


def cpu_seconds(pid):
    """CPU time of the threads of a process (sched-stats.rst: nanoseconds, first of the three)."""
    total_ns = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/task/{task}/schedstat") as file:
            total_ns += int(file.read().split()[0])
    return total_ns / 1e9


def measure_idle(context, kind, name, dedicated=False):
    """The share of a CPU that each of two joined devices uses while idle."""
    settle_s = 1.0
    with served(context, kind, dedicated) as (server, client_command):
        with Child(client_command + ["--", "-i"], talks=True) as client:
            client.wait_for(lambda: "faultline>" in client.output(), "its prompt")
            time.sleep(settle_s)
            pids = (server.process.pid, client.process.pid)
            before = [cpu_seconds(pid) for pid in pids]
            start = time.monotonic()
            time.sleep(max(1.0, 2 * context.seconds))
            lasted_s = time.monotonic() - start
            shares = [(cpu_seconds(pid) - had) / lasted_s for pid, had in zip(pids, before)]
            client.write_line("quit")
            client.finish(context.limit_s)
        server.finish(context.limit_s)
    return {name: {"cpu_share": max(shares)}}, {}


def measure_wakeup(context, kind, name, dedicated=False):
    """Time from post to completion of a WRITE to a sleeping peer: its program waits for a socket, and its device has been idle."""
    idle_ms, messages = 600, 20
    figures, counters = measure(context, kind, name, ("--op", "write", "--mode", "lat", "--size", "64", "--idle-ms", str(idle_ms),
                                                      "--iters", str(messages)), dedicated)
    (metrics,) = figures.values()
    (counts,) = counters.values()
    return {name: {rank: metrics[rank] for rank in ("p50_us", "p99_us")}}, {name: counts}
