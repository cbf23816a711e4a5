#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""fio's rdma engine: write, read and send, with forked jobs (its default) and with threads. Its net engine is the TCP reference.
The engine has no verify path, so a run is checked by its byte count and by the status of both ends.
  fio.py FAULTLINE_RUN [--brief]
"""
import harness
from harness import Failure, json_of, mega

PORT = 21000
# Verb, block size, depth, bytes of a run. fio keeps one READ in flight, whatever the depth.
CASES = [("write", "4k", 1, "16m"), ("write", "64k", 16, "256m"), ("write", "1m", 8, "512m"), ("read", "64k", 16, "64m"),
         ("read", "1m", 8, "256m"), ("send", "4k", 1, "16m"), ("send", "64k", 16, "256m")]
BRIEF_CASES = [("write", "64k", 16, "64m"), ("read", "1m", 8, "64m")]
# The number of runs of a forked pair. A receiver that calls _exit right after its last completion once left its peer without the last
# ACK, in a third of the runs.
FORKED_ROUNDS = 4
RUN_SECONDS = 300  # ends a hang


def command(name, rw, size, block, depth, *options):
    return ["fio", f"--name={name}", f"--rw={rw}", f"--size={size}", f"--bs={block}", f"--iodepth={depth}", "--output-format=json",
            *options, f"--port={PORT}"]


def bytes_of(size):
    return int(size[:-1]) << {"k": 10, "m": 20}[size[-1]]


def bandwidth(client, size):
    job = json_of(client)["jobs"][0]
    if job["error"] != 0 or job["write"]["io_bytes"] != bytes_of(size):
        raise Failure(f"error {job['error']}, {job['write']['io_bytes']} of {bytes_of(size)} bytes")
    return job["write"]["bw_bytes"]


def rdma(session, verb, block, depth, size, options):
    """Bytes a second of one pair."""
    # The receiver of SENDs has more posted receives than SENDs in flight: fio connects with rnr_retry 0.
    receiver_depth = 4 * depth if verb == "send" else depth
    server = session.launch(session.on_wire("a", *command("receiver", "read", size, block, receiver_depth, *options, "--ioengine=rdma")))
    # The end that connects is the writer, whatever the verb.
    words = command("sender", "write", size, block, depth, *options, "--ioengine=rdma", f"--hostname={harness.SERVER_IP}", f"--verb={verb}")
    client = connect(session, server, session.on_wire("b", *words))
    session.reap(server, RUN_SECONDS)
    return bandwidth(client, size)


def connect(session, server, words):
    """Returns the client's output. Nothing shows that a server listens, so a refused client is started again."""
    for _ in range(40):
        process = session.launch(words)
        status = session.wait(process, RUN_SECONDS)
        text = session.output_of(process)
        if status == 0:
            return text
        if server.poll() is not None or "RDMA_CM_EVENT_REJECTED" not in text and "event is 8" not in text:
            break
    raise Failure(f"client: status {status}: {' '.join(text.split())[:300]}")


def tcp(session, block, depth, size):
    server = session.launch(command("receiver", "read", size, block, depth, "--ioengine=net", "--listen"))
    session.await_listener(PORT)
    client = session.finish(command("sender", "write", size, block, depth, "--ioengine=net", "--hostname=127.0.0.1"),
                         RUN_SECONDS)
    session.reap(server, RUN_SECONDS)
    return bandwidth(client, size)


def work(session):
    cases = BRIEF_CASES if session.brief else CASES
    beside = {}
    for verb, block, depth, size in cases:
        if (block, depth) not in beside and not session.brief:
            try:
                beside[block, depth] = f"net engine {mega(tcp(session, block, depth, size))}"
            except Failure as failure:
                # fio's own error, without Faultline: it sometimes aborts with "free(): double free detected".
                beside[block, depth] = f"net engine: {str(failure)[:10]}"
            finally:
                session.end_all()
        for way, options, rounds in (("forked", [], 1 if session.brief else FORKED_ROUNDS), ("threads", ["--thread"], 1)):
            def run():
                speeds = sorted(rdma(session, verb, block, depth, size, options) for _ in range(rounds))
                return mega(speeds[len(speeds) // 2]), beside.get((block, depth), "")
            if verb == "send":
                # A SEND that arrives before its receive is posted is refused at once: rnr_retry 0.
                session.may_fail_by_itself(f"fio {verb} {block} x{depth}, {way}", r"status 13|Flushed Error", run)
            else:
                session.attempt(f"fio {verb} {block} x{depth}, {way}", run)


if __name__ == "__main__":
    harness.main(work, needs=["fio"])
