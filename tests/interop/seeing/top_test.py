#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`faultline top` beside two perftest programs on a wire: as JSON, once, on a terminal, and after a program was killed.
  top_test.py FAULTLINE FAULTLINE_RUN"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from terminal import Terminal, pyte

FAULTLINE, RUN = (os.path.realpath(path) for path in sys.argv[1:3])
WAIT_S = 30
QPS = 3
ended = []


def start(words):
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    ended.append(process)
    return process


def end_all():
    for process in ended:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until(what, condition):
    limit = time.monotonic() + WAIT_S
    while time.monotonic() < limit:
        if (value := condition()):
            return value
        time.sleep(0.2)
    raise AssertionError(f"no {what} in {WAIT_S} s")


def top(*words):
    result = subprocess.run([FAULTLINE, "top", *words], capture_output=True, text=True, timeout=WAIT_S, check=False)
    return result.returncode, result.stdout, result.stderr


def devices(*words):
    status, text, errors = top("--json", "--interval", "0.5", *words)
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


def main():
    runtime = tempfile.mkdtemp(prefix="faultline-top-")
    try:
        os.environ.update(XDG_RUNTIME_DIR=runtime)
        status, out, errors = top()
        assert status == 2 and out == "" and errors.count("\n") == 1 and "--once" in errors, (status, out, errors)
        for words in (["--interval", "0"], ["--pid", "x"]):
            status, out, errors = top(*words)
            assert status == 2 and out == "" and errors.count("\n") == 1, (words, status, out, errors)
        if shutil.which("ib_write_bw") is None or pyte is None:
            print("SKIPPED: perftest or python3-pyte is not installed")
            return 77
        transfer = f"ib_write_bw -q {QPS} -D 60"
        start([RUN, "--wire", "top", "--side", "a", *transfer.split()])
        start([RUN, "--wire", "top", "--side", "b", "sh", "-c", f"for i in 1 2 3 4 5; do {transfer} 198.18.0.1 && exit; sleep 1; done"])

        def both():
            found = [device for device in devices() if device["program"] == "ib_write_bw"]
            return found if len(found) == 2 and all(device["per_second"].get("transport.tx_packets", 0) > 0 and
                                                    len(device["qps"]) == QPS and all("peer_qpn" in qp for qp in device["qps"])
                                                    for device in found) else None
        found = until("two devices with traffic", both)
        check_devices(found)
        sender = max(found, key=lambda device: device["per_second"]["transport.tx_bytes"])
        assert sum(qp["tx_packets_per_s"] for qp in sender["qps"]) > 0, sender["qps"]
        # A core's packets are those of its QPs; the rows and the counter are published at the same moment.
        sent = sum(qp["counters"]["tx_packets"] for qp in sender["qps"])
        assert 0 < sent <= devices("--pid", str(sender["pid"]))[0]["counters"]["transport.tx_packets"], sender

        status, text, errors = top("--once")
        assert (status, errors) == (0, "") and text.count(" ib_write_bw ") >= 2 and text.count(" RC ") >= 2 * QPS, text
        assert devices("--pid", "1") == [] and devices("--device", "none") == []
        on_terminal(sender["pid"])

        assert not [device for device in devices("--post-mortem") if device["pid"] == sender["pid"]]
        os.kill(sender["pid"], signal.SIGKILL)
        dead = until("dead device", lambda: [device for device in devices("--post-mortem") if device["pid"] == sender["pid"]])
        assert dead[0]["dead"] and len(dead[0]["qps"]) == QPS, dead
        for qp in dead[0]["qps"]:
            assert qp["state"] == "RTS" and qp["sends_posted"] > 0 and qp["counters"]["tx_packets"] > 0, qp
        status, text, errors = top("--post-mortem", "--pid", str(sender["pid"]))
        assert (status, errors) == (0, "") and text.count("oldest not acknowledged") == QPS and "waits for" in text, text
        assert not [device for device in devices() if device["pid"] == sender["pid"]]
        print("two programs: as JSON, once, on a terminal, after a kill")
        return 0
    finally:
        end_all()
        shutil.rmtree(runtime, ignore_errors=True)


sys.exit(main())
