#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`faultline top` beside two perftest programs on a wire: as JSON, once, on a terminal, and after a program was killed.
  top_test.py FAULTLINE FAULTLINE_RUN"""
import json
import os
import signal
import sys

from terminal import Terminal, lib, pyte

FAULTLINE, RUN = (os.path.realpath(path) for path in sys.argv[1:3])
QPS = 3


def top(*words):
    result = lib.call([FAULTLINE, "top", *words], status=None)
    return result.returncode, result.stdout, result.stderr


def devices(*words):
    status, text, errors = top("--json", "--interval", "0.2", *words)
    assert (status, errors) == (0, ""), (status, errors)
    return json.loads(text)["devices"]


def check_devices(found):
    for device in found:
        assert device["port"] == "wire" and device["link_up"] and not device["dead"], device
        assert len(device["qps"]) == QPS and len(device["mrs"]) == 1 and device["pds"] == 1, device
        assert device["counters"]["transport.tx_packets"] > 0, device["counters"]
        for qp in device["qps"]:
            assert qp["type"] == "RC" and qp["state"] in ("RTR", "RTS"), qp
    first, second = found
    # Each end names the other's QPs.
    assert {qp["qpn"] for qp in first["qps"]} == {qp["peer_qpn"] for qp in second["qps"]}, found
    assert {qp["qpn"] for qp in second["qps"]} == {qp["peer_qpn"] for qp in first["qps"]}, found


def on_terminal(pid):
    screen = Terminal([FAULTLINE, "top", "--interval", "0.3"])
    screen.shows(r"faultline top: \d+ devices")
    screen.shows("WAITS FOR")
    screen.press("/ib_write_bw\n")
    screen.shows("filter: ib_write_bw")
    screen.press("/no such program\n")
    screen.shows("filter: no such program")
    screen.press(f"/{pid}\n")
    screen.press("\n")  # opens the selected QP
    screen.shows("oldest not acknowledged")
    screen.press("2")
    screen.shows("RESIDENT")
    screen.press("4")
    screen.shows("transport.tx_packets")
    screen.press("?")
    screen.shows("congestion control")
    screen.press("q")
    assert screen.end() == 0
    screen = Terminal([FAULTLINE, "top"])
    screen.shows("devices")
    os.kill(screen.pid, signal.SIGTERM)
    assert screen.end() == 0, "a signal leaves the terminal as it was"


def start_transfer():
    """Starts perftest on a wire; it runs until it is ended, and no stall of the machine ends it. Returns server and client."""
    port = str(lib.free_port())
    words = ["ib_write_bw", "-q", str(QPS), "-u", "20", "-D", "3600", "-p", port]
    server = lib.start([RUN, "--wire", "top", "--side", "a", *words], name="server")
    lib.await_port(port, server)
    return server, lib.start([RUN, "--wire", "top", "--side", "b", *words, "198.18.0.1"], name="client")


def main():
    lib.own_runtime_folder()
    status, out, errors = top()
    assert status == 2 and out == "" and errors.count("\n") == 1 and "--once" in errors, (status, out, errors)
    for words in (["--interval", "0"], ["--pid", "x"]):
        status, out, errors = top(*words)
        assert status == 2 and out == "" and errors.count("\n") == 1, (words, status, out, errors)
    lib.need("ib_write_bw")
    if pyte is None:
        lib.skip("python3-pyte is not installed")
    programs = start_transfer()

    def both():
        """Two devices with traffic in the same interval; the one that sends has it in the rows of its QPs too."""
        found = [device for device in devices() if device["program"] == "ib_write_bw"]
        if len(found) != 2 or not all(device["per_second"].get("transport.tx_packets", 0) > 0 and len(device["qps"]) == QPS and
                                      all("peer_qpn" in qp for qp in device["qps"]) for device in found):
            return None
        sender = max(found, key=lambda device: device["per_second"]["transport.tx_bytes"])
        return (found, sender) if sum(qp["tx_packets_per_s"] for qp in sender["qps"]) > 0 else None
    found, sender = lib.await_that(both, "two devices with traffic of their QPs", *programs)
    check_devices(found)
    # A core's packets are those of its QPs; the rows and the counter are published at the same moment.
    sent = sum(qp["counters"]["tx_packets"] for qp in sender["qps"])
    assert 0 < sent <= devices("--pid", str(sender["pid"]))[0]["counters"]["transport.tx_packets"], sender

    status, text, errors = top("--once")
    assert (status, errors) == (0, "") and text.count(" ib_write_bw ") >= 2 and text.count(" RC ") >= 2 * QPS, text
    assert devices("--pid", "1") == [] and devices("--device", "none") == []
    on_terminal(sender["pid"])

    assert not [device for device in devices("--post-mortem") if device["pid"] == sender["pid"]]
    next(one for one in programs if one.pid == sender["pid"]).end()
    dead = lib.await_that(lambda: [device for device in devices("--post-mortem") if device["pid"] == sender["pid"]], "a dead device")
    assert dead[0]["dead"] and len(dead[0]["qps"]) == QPS, dead
    for qp in dead[0]["qps"]:
        assert qp["state"] == "RTS" and qp["sends_posted"] > 0 and qp["counters"]["tx_packets"] > 0, qp
    status, text, errors = top("--post-mortem", "--pid", str(sender["pid"]))
    assert (status, errors) == (0, "") and text.count("oldest not acknowledged") == QPS and "waits for" in text, text
    assert not [device for device in devices() if device["pid"] == sender["pid"]]
    print("two programs: as JSON, once, on a terminal, after a kill")


main()
