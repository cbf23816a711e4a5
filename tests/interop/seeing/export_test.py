#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`faultline export` beside two perftest programs on a wire: printed, as a file, and by HTTP. Where Debian's node_exporter and promtool are
installed, they read it too. The dashboard asks for metrics that exist.
  export_test.py FAULTLINE FAULTLINE_RUN DASHBOARD"""
import json
import os
import re
import shutil
import socket
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402

FAULTLINE, RUN = (os.path.realpath(path) for path in sys.argv[1:3])


def samples(text):
    """{metric: {pid: value}} of this test's programs: the user may have others"""
    found = {}
    for name, pid, value in re.findall(r'^(\w+)\{[^}]*pid="(\d+)",program="ib_write_bw"[^}]*\} (\S+)$', text, re.MULTILINE):
        found.setdefault(name, {})[pid] = float(value)
    return found


def export(*words):
    result = lib.call([FAULTLINE, "export", *words], status=None)
    return result.returncode, result.stdout, result.stderr


def fetch(port, path="/metrics"):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=lib.LIMIT_S) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def ask_node_exporter(*words):
    """What node_exporter serves with these options, once it listens."""
    port = lib.free_port()
    process = lib.start([shutil.which("prometheus-node-exporter"), "--collector.disable-defaults", *words, f"--web.listen-address=127.0.0.1:{port}"])
    lib.await_port(port, process)
    return fetch(port)[1]


def check_text(text):
    sent = samples(text)["faultline_transport_tx_packets_total"]
    assert len(sent) == 2 and min(sent.values()) > 0, sent
    families = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert len(families) == len(set(families)) > 100, len(families)
    # A help text that the program could not send would be the counter's name.
    assert not re.findall(r"^# HELP \S+ [a-z]+\.\S*$", text, re.MULTILINE), text
    assert "# TYPE faultline_odp_fault_duration_seconds histogram\n" in text


def check_node_exporter(folder):
    if shutil.which("prometheus-node-exporter") is None:
        print("node_exporter is not installed: not asked")
        return
    text = ask_node_exporter("--collector.textfile", f"--collector.textfile.directory={folder}")
    assert "node_textfile_scrape_error 0\n" in text, text
    assert len(samples(text)["faultline_transport_tx_packets_total"]) == 2, text
    print("node_exporter serves the file")


def check_infiniband_collector(folder):
    """node_exporter's own collector finds the device as it finds a NIC in /sys."""
    assert export("--sysfs", folder) == (0, "", "")
    device = f"{folder}/class/infiniband/faultline0"
    with open(f"{device}/ports/1/state", encoding="utf-8") as file:
        assert file.read() == "4: ACTIVE\n"
    # The tree's links lead to its own entries. A folder of a former version gives way to them.
    link = f"{device}/device/infiniband/faultline0"
    for _ in range(2):
        assert os.path.realpath(link) == os.path.realpath(device) != link, os.readlink(link)
        os.remove(link)
        os.mkdir(link)
        assert export("--sysfs", folder) == (0, "", "")
    assert export("--sysfs", folder) == (0, "", "")
    assert os.path.samefile(f"{link}/ports", f"{device}/ports")
    if shutil.which("prometheus-node-exporter") is None:
        return
    text = ask_node_exporter("--collector.infiniband", f"--path.sysfs={folder}")
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
    result = lib.call(["promtool", "check", "metrics"], status=None, input=text)
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
    lib.call(["promtool", "check", "rules", f"{folder}/rules.yml"])
    print(f"promtool accepts the {len(expressions)} expressions of the dashboard")


def start_transfer():
    """Starts perftest on a wire; it runs until it is ended, and no stall of the machine ends it. Returns server and client."""
    port = str(lib.free_port())
    words = ["ib_write_bw", "-u", "20", "-D", "3600", "-p", port]
    server = lib.start([RUN, "--wire", "export", "--side", "a", *words], name="server")
    lib.await_port(port, server)
    return server, lib.start([RUN, "--wire", "export", "--side", "b", *words, "198.18.0.1"], name="client")


def check_http():
    port = str(lib.free_port())
    server = lib.start([FAULTLINE, "export", "--prometheus", port])
    lib.await_port(port, server)
    with socket.socket() as slow:  # a client that never ends its request
        slow.connect(("127.0.0.1", int(port)))
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
            kind, text = fetch(port)  # after the slow one
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
    status, out, errors = export("--prometheus", port)
    assert status == 2 and out == "" and errors.count("\n") == 1 and "in use" in errors, (status, out, errors)
    assert server.poll() is None


def main():
    runtime = lib.own_runtime_folder()
    os.environ["RUNTIME_DIRECTORY"] = str(runtime)
    status, text, errors = export()
    assert (status, errors) == (0, "") and re.search(r"\nfaultline_devices \d+\n$", text) and not samples(text), (status, text, errors)
    lib.need("ib_write_bw")
    programs = start_transfer()

    def both():
        text = export()[1]
        sent = samples(text).get("faultline_transport_tx_packets_total", {})
        return text if len(sent) == 2 and min(sent.values()) > 0 else None
    text = lib.await_that(both, "two devices with packets", *programs)
    check_text(text)
    check_promtool(text)
    check_dashboard(text, runtime)
    before = samples(text)["faultline_transport_tx_packets_total"]
    lib.await_that(lambda: all(value > before[pid] for pid, value in samples(export()[1])["faultline_transport_tx_packets_total"].items()),
                   "further packets", *programs)

    folder = runtime / "textfiles"
    folder.mkdir()
    assert export("--textfile", f"{folder}/faultline.prom") == (0, "", "")
    check_text((folder / "faultline.prom").read_text(encoding="utf-8"))
    assert os.listdir(folder) == ["faultline.prom"], os.listdir(folder)
    check_node_exporter(folder)
    check_infiniband_collector(f"{runtime}/sys")
    check_http()
    assert all(program.poll() is None for program in programs)

    for words in (["--textfile", f"{runtime}/none/file"], ["--prometheus", "host.invalid:1"], ["--seconds", "1"],
                  ["--textfile", "x", "--prometheus", "1"],
                  ["--sysfs", "/proc/none"], ["--sysfs", "x", "--textfile", "y"]):
        status, out, errors = export(*words)
        assert status == 2 and out == "" and errors.count("\n") == 1, (words, status, out, errors)
    print("the counters of two programs: printed, in a file, by HTTP")


main()
