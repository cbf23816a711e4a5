#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each packet is counted once: what the QPs of two ends counted, what tshark finds in the two captures, what the two recordings have, and what the
devices counted agree to the packet, with 1 % loss, reordering, page faults and RNR NAKs.
  conservation_test.py CONVERSATION FAULTLINE memif|wire|ring|veth
What counts is the same over each medium; the data path of the port is not. So only one run is long, that over the ring."""
import collections
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402

CONVERSATION, FAULTLINE = (os.path.realpath(path) for path in sys.argv[1:3])
MEDIUM = sys.argv[3]
ROUNDS = 150 if MEDIUM == "ring" else 50
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


def published(qpns_at_least, program):
    """{device number: its state}, once no packet is under way: each that one end has sent the other has received, or lost on purpose."""
    found = {}

    def at_rest():
        found.clear()
        devices = json.loads(lib.call([FAULTLINE, "top", "--json", "--interval", "0.2"]).stdout)["devices"]
        found.update({int(one["device"][4:]): one for one in devices if one["device"].startswith("seen")})
        if len(found) != 2:
            return False
        for number, one in found.items():
            here, there = one["counters"], found[1 - number]["counters"]
            if len(one["qps"]) < qpns_at_least or here["transport.tx_packets"] != there["transport.rx_packets"] + there["port.chaos_lost"] \
                    or sum(qp["counters"]["tx_packets"] for qp in one["qps"]) != here["transport.tx_packets"] \
                    or sum(qp["counters"]["rx_packets"] for qp in one["qps"]) != here["transport.rx_packets"]:
                return False
        return True
    lib.await_that(at_rest, lambda: f"the devices come to rest: {found}", program)
    return found


def captured(path, counter):
    """{(direction, destination QPN): packets}, and the frames whose comment names the counter that counted them as dropped; of tshark."""
    fields = [word for name in ("frame.packet_flags_direction", "infiniband.bth.destqp", "frame.comment") for word in ("-e", name)]
    result = lib.call(["tshark", "-r", path, "-T", "fields", *fields])
    counts, commented = collections.Counter(), 0
    for line in result.stdout.splitlines():
        direction, qpn, comment = line.split("\t", 2)
        if qpn:
            counts[{"1": "in", "0x00000001": "in", "2": "out", "0x00000002": "out"}[direction], int(qpn, 16)] += 1
        commented += f"{counter}:" in comment
    return counts, commented


def recorded(folder):
    """{device number: {QPN: (packets sent, packets received)}}, of `faultline story`."""
    counts = {}
    for name in sorted(os.listdir(folder)):
        if not name.startswith("recording"):
            continue
        result = lib.call([FAULTLINE, "story", "--json", f"{folder}/{name}"])
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
    lib.need("tshark")
    if MEDIUM == "veth":
        lib.need_root("for a veth pair")
        if not lib.own_network():
            lib.skip("may not make a network namespace")
        # The kernel's own frames of IPv6 would be among those that a device loses on purpose.
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1", encoding="ascii")
        for words in ("link add fl-seen-a mtu 4500 type veth peer name fl-seen-b mtu 4500", "link set fl-seen-a up", "link set fl-seen-b up"):
            lib.call(["ip", *words.split()])
    folder = lib.own_runtime_folder()
    os.environ["FAULTLINE_RECORD"] = f"{folder}/recording"
    program = lib.start([CONVERSATION, "--rounds", ROUNDS, *configurations(folder)], stdin=subprocess.PIPE)
    lib.await_line(program, r"^complete \d+$", "both ends complete", count=2)
    states = published(4, program)
    program.stdin.close()
    program.succeed()
    captures = [captured(f"{folder}/{number}.pcapng", "port.chaos_lost") for number in (0, 1)]
    for number, state in states.items():
        assert state["counters"]["port.capture_missed"] == 0, state["counters"]
        lost, found = state["counters"]["port.chaos_lost"], captures[number][1]
        assert lost == found, (MEDIUM, number, "comments in the capture", lost, found)
    checked = compare(states, [counts for counts, _ in captures])
    compare_recordings(states, recorded(folder))
    packets = sum(state["counters"]["transport.tx_packets"] for state in states.values())
    print(f"{MEDIUM}: {checked} QPs, {packets} packets: counters, captures and recordings agree")


main()
