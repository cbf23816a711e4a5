#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`faultline export` beside two perftest programs on a wire: printed, as a file, and by HTTP. Where Debian's node_exporter and promtool are
installed, they read it too. The dashboard asks for metrics that exist.
  export_test.py FAULTLINE FAULTLINE_RUN DASHBOARD"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

FAULTLINE, RUN = (os.path.realpath(path) for path in sys.argv[1:3])
WAIT_S = 30
ended = []


def start(words, **options):
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True, **options)
    ended.append(process)
    return process


def end_all():
    for process in ended:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def until(what, condition):
    limit = time.monotonic() + WAIT_S
    while time.monotonic() < limit:
        if (value := condition()):
            return value
        time.sleep(0.2)
    raise AssertionError(f"no {what} in {WAIT_S} s")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def samples(text):
    """{metric: {pid: value}} of this test's programs: the user may have others"""
    found = {}
    for name, pid, value in re.findall(r'^(\w+)\{[^}]*pid="(\d+)",program="ib_write_bw"[^}]*\} (\S+)$', text, re.MULTILINE):
        found.setdefault(name, {})[pid] = float(value)
    return found


def export(*words):
    result = subprocess.run([FAULTLINE, "export", *words], capture_output=True, text=True, timeout=WAIT_S, check=False)
    return result.returncode, result.stdout, result.stderr


def fetch(port, path="/metrics", limit_s=5):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=limit_s) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def check_text(text):
    sent = samples(text)["faultline_transport_tx_packets_total"]
    assert len(sent) == 2 and min(sent.values()) > 0, sent
    families = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert len(families) == len(set(families)) > 100, len(families)
    # A help text that the program could not send would be the counter's name.
    assert not re.findall(r"^# HELP \S+ [a-z]+\.\S*$", text, re.MULTILINE), text
    assert "# TYPE faultline_odp_fault_duration_seconds histogram\n" in text


def check_node_exporter(folder):
    program = shutil.which("prometheus-node-exporter")
    if program is None:
        print("node_exporter is not installed: not asked")
        return
    port = free_port()
    start([program, "--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={folder}",
           f"--web.listen-address=127.0.0.1:{port}"])

    def read():
        try:
            return fetch(port)[1]
        except OSError:
            return None
    text = until("answer of node_exporter", read)
    assert "node_textfile_scrape_error 0\n" in text, text
    assert len(samples(text)["faultline_transport_tx_packets_total"]) == 2, text
    print("node_exporter serves the file")


def check_infiniband_collector(folder):
    """node_exporter's own collector finds the device as it finds a NIC in /sys."""
    assert export("--sysfs", folder) == (0, "", "")
    device = f"{folder}/class/infiniband/faultline0"
    with open(f"{device}/ports/1/state", encoding="utf-8") as file:
        assert file.read() == "4: ACTIVE\n"
    program = shutil.which("prometheus-node-exporter")
    if program is None:
        return
    port = free_port()
    start([program, "--collector.disable-defaults", "--collector.infiniband", f"--path.sysfs={folder}", f"--web.listen-address=127.0.0.1:{port}"])

    def read():
        try:
            return fetch(port)[1]
        except OSError:
            return None
    text = until("answer of node_exporter", read)
    assert 'node_scrape_collector_success{collector="infiniband"} 1' in text, text
    values = {name: float(value) for name, value in re.findall(r'^node_infiniband_(\w+)\{device="faultline0",port="1"\} (\S+)$', text, re.MULTILINE)}
    with open(f"{device}/ports/1/counters/port_xmit_packets", encoding="utf-8") as file:
        assert values["port_packets_transmitted_total"] == float(file.read()) > 0, values
    with open(f"{device}/ports/1/counters/port_xmit_data", encoding="utf-8") as file:
        assert values["port_data_transmitted_bytes_total"] == 4 * float(file.read()) > 0, values
    assert values["state_id"] == 4 and values["physical_state_id"] == 5 and values["rate_bytes_per_second"] == 12.5e9, values
    print("node_exporter's collector infiniband reads the device")


def check_promtool(text):
    if shutil.which("promtool") is None:
        print("promtool is not installed: not asked")
        return
    result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert result.returncode == 0 and not result.stderr, result.stderr
    print("promtool finds nothing")


def check_dashboard(text, folder):
    """Each metric that a panel asks for exists, and promtool accepts the expressions."""
    with open(sys.argv[3], encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    names = set(re.findall(r"^(\w+)\{", text, re.MULTILINE))
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    for expression in expressions:
        # An expression that chooses by the name has a pattern there.
        for pattern in re.findall(r'__name__=~"([^"]*)"', expression) + re.findall(r"(faultline_\w+)\{", expression):
            assert any(re.fullmatch(pattern, name) for name in names), f"no metric is {pattern}: {expression}"
    if shutil.which("promtool") is None:
        return
    with open(f"{folder}/rules.yml", "w", encoding="utf-8") as file:
        json.dump({"groups": [{"name": "dashboard", "rules": [
            {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m").replace("$device", ".*").replace("$program", ".*")}
            for number, expression in enumerate(expressions)]}]}, file)
    result = subprocess.run(["promtool", "check", "rules", f"{folder}/rules.yml"], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    print(f"promtool accepts the {len(expressions)} expressions of the dashboard")


def main():
    runtime = tempfile.mkdtemp(prefix="faultline-export-")
    try:
        os.environ.update(XDG_RUNTIME_DIR=runtime, RUNTIME_DIRECTORY=runtime)
        status, text, errors = export()
        assert (status, errors) == (0, "") and re.search(r"\nfaultline_devices \d+\n$", text) and not samples(text), (status, text, errors)
        if shutil.which("ib_write_bw") is None:
            print("SKIPPED: perftest is not installed")
            return 77
        transfer = ["ib_write_bw", "-D", "60"]
        start([RUN, "--wire", "export", "--side", "a", *transfer])
        client = start([RUN, "--wire", "export", "--side", "b", "sh", "-c", f"for i in 1 2 3 4 5; do {' '.join(transfer)} 198.18.0.1 && exit; sleep 1; done"])

        def both():
            text = export()[1]
            sent = samples(text).get("faultline_transport_tx_packets_total", {})
            return text if len(sent) == 2 and min(sent.values()) > 0 else None
        text = until("two devices with packets", both)
        check_text(text)
        check_promtool(text)
        check_dashboard(text, runtime)
        before = samples(text)["faultline_transport_tx_packets_total"]
        until("further packet", lambda: all(value > before[pid] for pid, value in
                                            samples(export()[1])["faultline_transport_tx_packets_total"].items()))

        folder = f"{runtime}/textfiles"
        os.mkdir(folder)
        assert export("--textfile", f"{folder}/faultline.prom") == (0, "", "")
        with open(f"{folder}/faultline.prom", encoding="utf-8") as file:
            check_text(file.read())
        assert os.listdir(folder) == ["faultline.prom"], os.listdir(folder)
        check_node_exporter(folder)
        check_infiniband_collector(f"{runtime}/sys")

        port = free_port()
        server = start([FAULTLINE, "export", "--prometheus", str(port)])
        until("server", lambda: not socket.socket().connect_ex(("127.0.0.1", port)))
        with socket.socket() as slow:  # a client that never ends its request
            slow.connect(("127.0.0.1", port))
            stop = threading.Event()

            def trickle():
                while not stop.wait(0.5):
                    try:
                        slow.send(b"x")
                    except OSError:
                        return
            trickler = threading.Thread(target=trickle)
            trickler.start()
            try:
                kind, text = fetch(port, limit_s=20)  # after the slow one
            finally:
                stop.set()
                trickler.join()
        assert kind.startswith("text/plain; version=0.0.4"), kind
        check_text(text)
        try:
            fetch(port, "/other")
            raise AssertionError("/other is served")
        except urllib.error.HTTPError as error:
            assert error.code == 404, error
        status, out, errors = export("--prometheus", str(port))
        assert status == 2 and out == "" and errors.count("\n") == 1 and "in use" in errors, (status, out, errors)
        assert server.poll() is None and client.poll() is None

        for words in (["--textfile", f"{runtime}/none/file"], ["--prometheus", "host.invalid:1"], ["--seconds", "1"],
                      ["--textfile", "x", "--prometheus", "1"],
                      ["--sysfs", "/proc/none"], ["--sysfs", "x", "--textfile", "y"]):
            status, out, errors = export(*words)
            assert status == 2 and out == "" and errors.count("\n") == 1, (words, status, out, errors)
        print("the counters of two programs: printed, in a file, by HTTP")
        return 0
    finally:
        end_all()
        shutil.rmtree(runtime, ignore_errors=True)


sys.exit(main())
