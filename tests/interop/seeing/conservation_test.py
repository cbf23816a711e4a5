#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each packet is counted once: what the QPs of two ends counted, what tshark finds in the two captures, what the two recordings have, and what the
devices counted agree to the packet, with 1 % loss, reordering, page faults and RNR NAKs.
  conservation_test.py CONVERSATION FAULTLINE memif|wire|ring|veth"""
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

CONVERSATION, FAULTLINE = (os.path.realpath(path) for path in sys.argv[1:3])
MEDIUM = sys.argv[3]
LIMIT_S = 150
ATTEMPTS = 5
CHAOS = '[device.chaos]\ndirection = "rx"\nloss = 0.01\nreorder = 0.01\nseed = {seed}\n'
ETHERNET_PORTS = {"memif": ['kind = "memif"\nrole = "server"\nsocket = "{folder}/memif.sock"', 'kind = "memif"\nrole = "client"\nsocket = "{folder}/memif.sock"'],
                  "ring": ['kind = "ring"\nwire = "w0"\nside = "a"', 'kind = "ring"\nwire = "w0"\nside = "b"'],
                  "veth": ['kind = "af_packet"\ninterface = "fl-seen-a"', 'kind = "af_packet"\ninterface = "fl-seen-b"'],
                  "wire": ['kind = "wire"\nwire = "seen"', 'kind = "wire"\nwire = "seen"']}


def device(folder, number):
    address = "" if MEDIUM == "wire" else f'ip = "198.18.0.{number + 1}/24"\n'
    return (f'[[device]]\nname = "seen{number}"\n{address}capture = "{folder}/{number}.pcapng"\n[device.port]\n'
            + ETHERNET_PORTS[MEDIUM][number].format(folder=folder) + "\n" + CHAOS.format(seed=number + 1))


def configurations(folder):
    """The paths: one of two devices for a ring, whose ends are in one process."""
    texts = [device(folder, 0), device(folder, 1)]
    if MEDIUM == "ring":
        texts = ["".join(texts)]
    paths = []
    for number, text in enumerate(texts):
        paths.append(f"{folder}/{number}.toml")
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write(text)
    return paths


def published(qpns_at_least):
    """{device number: its state}, once the rows are as of the last packet."""
    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit:
        result = subprocess.run([FAULTLINE, "top", "--json", "--interval", "1"], capture_output=True, text=True, timeout=LIMIT_S, check=True)
        found = {int(one["device"][4:]): one for one in json.loads(result.stdout)["devices"] if one["device"].startswith("seen")}
        if len(found) == 2 and all(len(one["qps"]) >= qpns_at_least and not one["per_second"].get("transport.tx_packets") for one in found.values()):
            return found
    raise AssertionError(f"the devices do not come to rest: {found}")


def captured(path):
    """{(direction, destination QPN): packets}, of tshark."""
    fields = ["-e", "frame.packet_flags_direction", "-e", "infiniband.bth.destqp"]
    result = subprocess.run(["tshark", "-r", path, "-Y", "infiniband.bth", "-T", "fields", *fields], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    counts = collections.Counter()
    for line in result.stdout.splitlines():
        direction, qpn = line.split("\t")
        counts[{"1": "in", "0x00000001": "in", "2": "out", "0x00000002": "out"}[direction], int(qpn, 16)] += 1
    return counts


def commented(path, counter):
    """Packets in the capture whose comment names the counter that counted them as dropped, of tshark."""
    result = subprocess.run(["tshark", "-r", path, "-Y", f'frame.comment contains "{counter}:"', "-T", "fields", "-e", "frame.number"], capture_output=True,
                            text=True, timeout=LIMIT_S, check=True)
    return len(result.stdout.splitlines())


def recorded(folder):
    """{device number: {QPN: (packets sent, packets received)}}, of `faultline story`."""
    counts = {}
    for name in sorted(os.listdir(folder)):
        if not name.startswith("recording"):
            continue
        result = subprocess.run([FAULTLINE, "story", "--json", f"{folder}/{name}"], capture_output=True, text=True, timeout=LIMIT_S, check=True)
        story = json.loads(result.stdout)
        assert story["lost_events"] == 0, f"{name}: the ring is too small"
        number = int(story["origin"].split()[2][len("seen"):])
        counts[number] = {one["ends"][0]["qpn"]: tuple(end["sent_packets"] for end in one["ends"]) for one in story["connections"]}
    return counts


def compare_recordings(states, recordings):
    assert sorted(recordings) == sorted(states), (list(recordings), list(states))
    for number, state in states.items():
        for qp in state["qps"]:
            counters = qp["counters"]
            assert recordings[number][qp["qpn"]] == (counters["tx_packets"], counters["rx_packets"]), (MEDIUM, number, qp, recordings[number])


def compare(states, captures):
    checked = 0
    for number, state in states.items():
        other = 1 - number
        sent = received = arrived = 0
        for qp in state["qps"]:
            counters = qp["counters"]
            out = captures[number]["out", qp["peer_qpn"]]
            came = captures[number]["in", qp["qpn"]]
            assert counters["tx_packets"] == out, (MEDIUM, number, qp, out)
            # No medium here loses a packet: the loss is the receiver's own.
            assert out == captures[other]["in", qp["peer_qpn"]], (MEDIUM, number, qp, out, captures[other])
            assert counters["rx_packets"] <= came, (MEDIUM, number, qp, came)
            sent += counters["tx_packets"]
            received += counters["rx_packets"]
            arrived += came
            checked += 1
        counters = state["counters"]
        assert counters["transport.tx_packets"] == sent, (number, counters["transport.tx_packets"], sent)
        assert counters["transport.rx_packets"] == received, (number, counters["transport.rx_packets"], received)
        assert arrived - received == counters["port.chaos_lost"] > 0, (number, arrived, received, counters["port.chaos_lost"])
        for name, counter in (("retransmitted_packets",) * 2, ("timeouts",) * 2, ("rnr_naks_received",) * 2, ("duplicate_requests",) * 2,
                              ("out_of_sequence",) * 2, ("sequence_naks_received",) * 2):
            total = sum(qp["counters"][counter] for qp in state["qps"])
            assert counters[f"transport.{name}"] == total, (number, name, counters[f"transport.{name}"], total)
        assert counters["odp.num_page_faults"] > 0 and counters["transport.rnr_naks_received"] > 0, counters
        assert counters["transport.retransmitted_packets"] > 0 and counters["port.chaos_delayed"] > 0, counters
    return checked


def main():
    if shutil.which("tshark") is None:
        print("SKIPPED: tshark is not installed")
        return 77
    if MEDIUM == "veth":
        if os.geteuid() != 0:
            print("SKIPPED: needs root")
            return 77
        if "FAULTLINE_OWN_NETWORK" not in os.environ:
            os.environ["FAULTLINE_OWN_NETWORK"] = "1"
            os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
        for words in ("link add fl-seen-a mtu 4500 type veth peer name fl-seen-b mtu 4500", "link set fl-seen-a up", "link set fl-seen-b up"):
            subprocess.run(["ip", *words.split()], check=True)
    # A loaded machine may leave the capture's writer without CPU time for too long: the device states that, and the run is no comparison.
    for attempt in range(1, ATTEMPTS + 1):
        if run():
            return 0
        print(f"attempt {attempt}: the capture lacks frames (port.capture_missed)")
    return 1


def run():
    """Returns False if a capture is not complete."""
    folder = tempfile.mkdtemp(prefix="faultline-seen-")
    program = None
    try:
        os.environ.update(XDG_RUNTIME_DIR=folder, FAULTLINE_RECORD=f"{folder}/recording")
        program = subprocess.Popen([CONVERSATION, *configurations(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2):
            line = program.stdout.readline()
            assert line.startswith("quiet "), f"an end failed: {line!r}"
        states = published(4)
        program.stdin.close()
        assert program.wait(LIMIT_S) == 0
        if any(state["counters"]["port.capture_missed"] for state in states.values()):
            return False
        for number, state in states.items():
            lost, found = state["counters"]["port.chaos_lost"], commented(f"{folder}/{number}.pcapng", "port.chaos_lost")
            assert lost == found, (MEDIUM, number, "comments in the capture", lost, found)
        checked = compare(states, [captured(f"{folder}/{number}.pcapng") for number in (0, 1)])
        compare_recordings(states, recorded(folder))
        packets = sum(state["counters"]["transport.tx_packets"] for state in states.values())
        print(f"{MEDIUM}: {checked} QPs, {packets} packets: counters, captures and recordings agree")
        return True
    finally:
        if program is not None and program.poll() is None:
            program.kill()
            program.wait()
        shutil.rmtree(folder, ignore_errors=True)


sys.exit(main())
