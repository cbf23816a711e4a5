#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests programs under the host's address. Two pairs of perftest run at once, and exchange their parameters over TCP
through the exception port, while another TCP connection goes on.

  host_address_test.py FAULTLINE_RUN
"""
import subprocess
import sys

from uplink_lab import EXCEPTION, HOSTS, SPACES, VETHS, lib, run_in_lab, sh

ECHO = """
import socket
with socket.create_server(("{ip}", 7000)) as server:
    peer = server.accept()[0]
    while data := peer.recv(65536):
        peer.sendall(data)
"""

ASK = """
import select, socket, sys
peer = socket.create_connection(("{ip}", 7000))
print("connected", flush=True)
count = 0
message = bytes(range(256)) * 16
# Until the test closes this program's input.
while not select.select([sys.stdin], [], [], 0.005)[0]:
    peer.sendall(message)
    answer = b""
    while len(answer) < len(message):
        answer += peer.recv(65536)
    assert answer == message
    count += 1
print("answers", count)
"""


def run(lab):
    lab.make()
    switches = [lab.start_switch(side) for side in (0, 1)]
    for side in (0, 1):
        macs = [sh("ip", "-n", SPACES[side], "-br", "link", "show", name).stdout.split()[2] for name in (VETHS[side], EXCEPTION)]
        assert macs[0] == macs[1], macs
    print("ok: the exception port has the uplink's MAC address")

    echo = lab.start("echo", 0, sys.executable, "-c", ECHO.format(ip=HOSTS[0]))
    lab.await_listener(7000)
    ask = lab.start("ask", 1, sys.executable, "-c", ASK.format(ip=HOSTS[0]), stdin=subprocess.PIPE)
    lib.await_that(lambda: "connected" in lab.output("ask"), "TCP connects through the exception port", ask, echo)

    # The second pair connects with rdma_cm: its messages are routed by service and communication ID.
    kinds = [["ib_write_bw", "-F", "-s", "65536", "-n", "3000", "-u", "18", "-p", "18600"],
             ["ib_send_bw", "-R", "-F", "-s", "4096", "-n", "20000", "-u", "18", "-p", "18601"]]
    servers = []
    for index, kind in enumerate(kinds):
        servers.append(lab.perftest(f"server{index}", 0, *kind))
    lib.await_port(18600, servers[0])
    lab.await_cm_listener(0, servers[1])
    lib.expect(len(lab.status(0)["seats"]) == 2, "the switch reports both programs")
    clients = [lab.perftest(f"client{index}", 1, *kind, HOSTS[0]) for index, kind in enumerate(kinds)]
    for process, name in zip(servers + clients, ["server0", "server1", "client0", "client1"]):
        assert process.wait(timeout=lib.LIMIT_S) == 0, name + ": " + lab.output(name)
    print("ok: two pairs of programs under one address each")

    for side in (0, 1):
        status = lab.status(side)
        uplink, kernel = status["uplink"], status["exception"]
        assert (uplink["port"], uplink["up"], uplink["vlan"]) == (f"af_packet:{VETHS[side]}", True, 7), status
        # The programs of the test have left, and their frames are in the uplink's sums.
        assert uplink["received_frames"] > 1000 and uplink["received_bytes"] > 60 * uplink["received_frames"], status
        assert kernel["tap"] == EXCEPTION and kernel["sent_frames"] > 10, status
    text = lab.ask(0).stdout
    assert text.startswith("wire up0, process ") and f"uplink af_packet:{VETHS[0]}, up" in text, text
    print("ok: the switch reports its programs and its uplink")

    pinged = sh("ip", "netns", "exec", SPACES[1], "ping", "-c", "3", "-i", "0.2", "-W", "60", HOSTS[0])
    assert "DUP" not in pinged.stdout, pinged.stdout
    print("ok: the kernel answers ping, once")

    ask.stdin.close()
    assert ask.wait(timeout=lib.LIMIT_S) == 0, lab.output("ask")
    echo.wait(timeout=lib.LIMIT_S)
    count = int(lab.output("ask").split()[-1])
    assert count > 0, count
    print(f"ok: TCP went on meanwhile, {count} answers")

    for side, process in enumerate(switches):
        # ip netns exec has become the switch.
        process.terminate()
        assert process.wait(timeout=lib.LIMIT_S) == 0, lab.output(f"switch{side}")
    sh("ip", "-n", SPACES[0], "addr", "show", "dev", EXCEPTION)
    print("ok: the exception port outlives the switch")


if __name__ == "__main__":
    sys.exit(run_in_lab(run, sys.argv[1]))
