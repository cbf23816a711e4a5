# SPDX-License-Identifier: BSD-3-Clause
"""perftest over a wire: a server and a client, one CPU each or free to move, or several such pairs on the same two CPUs."""
import contextlib
import time

from ..outcome import RunFailed
from ..processes import Child, free_port, listens
from ..sizes import bytes_of
from .network import wire

FIRST_MESSAGES = 500
LEAST_MESSAGES = 200  # enough for a 99th percentile
MOST_MESSAGES = 5_000_000  # perftest has an array with an element for each
# Of several pairs. perftest measures between the margins, so that all pairs are running meanwhile.
PAIRS_SECONDS, PAIRS_MARGIN_SECONDS = 3, 1

LATENCY_TITLES = ("t_typical[usec]", "99% percentile[usec]")
BANDWIDTH_TITLES = ("BW average[MB/sec]", "MsgRate[Mpps]")


def _row(output, titles):
    """The words of the row of figures below its titles."""
    lines = output.splitlines()
    at = next((at for at, line in enumerate(lines) if line.strip().startswith("#bytes")), None)
    if at is None or at + 1 >= len(lines) or any(title not in lines[at] for title in titles):
        raise RunFailed(f"perftest printed no figures: {output.strip()[-300:]}")
    return lines[at + 1].split()


def parsed_latency(output):
    """Half round trips; perftest calls the median typical."""
    words = _row(output, LATENCY_TITLES)
    return {"p50_us": float(words[4]), "mean_us": float(words[5]), "p99_us": float(words[7])}


def parsed_bandwidth(output):
    words = _row(output, BANDWIDTH_TITLES)
    rate = float(words[4]) * 1e6
    return {"messages_per_second": rate, "gb_per_second": rate * int(words[0]) / 1e9}


def _run(context, on, program, options, pairs=1, moves=False):
    """The outputs of the clients of so many pairs that run at the same time."""
    with contextlib.ExitStack() as stack:
        def start(side, *words):
            words = [program, "-F", "-d", "faultline0", *options, *words]
            return stack.enter_context(Child(on.on_both_cpus(words) if moves else on.on_side(side, words), on.environment))

        servers = []
        for _ in range(pairs):
            port = free_port()
            server = start(0, "-p", str(port))
            server.wait_for(lambda: listens(port), "its port")
            servers.append((server, port))
        clients = [start(1, "-p", str(port), "127.0.0.1") for _, port in servers]
        outputs = [client.finish(context.limit_s) for client in clients]
        for server, _ in servers:
            server.finish(context.limit_s)
    return outputs


def _messages_for(context, on, program, options, rate_of, moves):
    """The number of messages that takes about as long as other measurements: measured once, then the same in every round."""
    key = ("perftest", program, moves, *options)
    if key not in context.learnt:
        output, = _run(context, on, program, [*options, "-n", str(FIRST_MESSAGES)], moves=moves)
        context.learnt[key] = max(LEAST_MESSAGES, min(MOST_MESSAGES, int(context.seconds * rate_of(output))))
    return context.learnt[key]


def _measure(context, name, program, label, options, parse, rate_of, moves=False):
    options = ["-s", str(bytes_of(label)), *options]
    with wire(context, program) as on:
        messages = _messages_for(context, on, program, options, rate_of, moves)
        began = time.monotonic()
        output, = _run(context, on, program, [*options, "-n", str(messages)], moves=moves)
        window = [began, time.monotonic()]
    return {name: parse(output)}, {name: {"window_s": window, "messages": messages}}


def latency(context, name, program, size, options=(), moves=False):
    """With `moves`, the threads of both sides may run on either CPU: a progress thread has to leave its program's CPU."""
    return _measure(context, name, program, size, options, parsed_latency, lambda output: 1e6 / (2 * parsed_latency(output)["mean_us"]), moves)


def bandwidth(context, name, program, size):
    return _measure(context, name, program, size, (), parsed_bandwidth, lambda output: parsed_bandwidth(output)["messages_per_second"])


def pairs(context, name, program, size, count):
    """One pair, then `count` pairs at once; the sum of their rates, also as a ratio to that of the one pair."""
    options = ["-s", str(bytes_of(size)), "-D", str(PAIRS_SECONDS), "-f", str(PAIRS_MARGIN_SECONDS)]
    with wire(context, program) as on:
        began = time.monotonic()
        alone, = (parsed_bandwidth(output)["gb_per_second"] for output in _run(context, on, program, options))
        rates = [parsed_bandwidth(output)["gb_per_second"] for output in _run(context, on, program, options, count)]
        window = [began, time.monotonic()]
    if alone == 0:
        raise RunFailed(f"{program} of one pair sent nothing")
    return ({name: {"gb_per_second": sum(rates), "least_gb_per_second": min(rates), "to_one_pair": sum(rates) / alone}},
            {name: {"window_s": window}})
