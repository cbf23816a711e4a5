#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every preset once, under a program over a wire: it decides what its file states, and the program ends as it would on such a network or device.
  presets_test.py FAULTLINE_RUN FOLDER_OF_PRESETS [PRESET]..."""
import os
import sys

from programs import PORT, decisions, lib, start_client, start_server

RUN, PRESETS = (os.path.realpath(path) for path in sys.argv[1:3])

# A long timeout of the QP: a server on a busy machine may be late.
BANDWIDTH = ["-F", "-s", "4096", "-u", "18", "-p", PORT, "-n", "3000"]
ADDRESS = "198.18.0.1"
WRITE, READ, SEND = ([f"ib_{kind}_bw", *BANDWIDTH] for kind in ("write", "read", "send"))
# Lasts until the QP gives up, 3 s after the link has gone.
LASTING = ["ib_write_bw", "-F", "-s", "4096", "-u", "15", "-p", PORT, "-D", "3600"]
RPING = ["rping", "-a", ADDRESS, "-C", "20"]
SURVIVES, FAILS, EITHER = "survives", "fails", "either"

# The client's program, how it ends, the decisions that its journal must have, options of faultline-run. "rping" has a server of its own form.
CLIENT = {
    "loss": (WRITE, SURVIVES, [{"packet": "lose"}], ()),
    "link-flap": (LASTING, FAILS, [{"link": "down", "for_ms": 30000}], ()),
    "link-flaps": ([*WRITE[:-1], "10000"], SURVIVES, [{"link": "down", "for_ms": 5}], ()),
    "congestion": (WRITE, SURVIVES, [{"packet": "mark"}, {"packet": "delay", "delay_us": 300}], ()),
    "memlock": (RPING, EITHER, [{"errno": "ENOMEM"}], ("--seed", "3")),
    "slow-registration": (RPING, SURVIVES, [{"call": "delay", "delay_us": 20000}], ()),
    "slow-pages": ([*WRITE, "--odp"], SURVIVES, [{"fault": "delay", "delay_us": 20000}], ()),
    "late-completions": (WRITE, SURVIVES, [{"poll": "nothing"}], ()),
    "unordered-completions": ([*WRITE, "-q", "4", "-Q", "1"], SURVIVES, [{"poll": "nothing"}, {"poll": "few", "most": 2}, {"poll": "shuffle"}], ()),
    "cm-loss": (RPING, SURVIVES, [{"packet": "lose"}, {"packet": "delay", "delay_us": 200000}], ()),
    "half-open": (RPING, SURVIVES, [{"packet": "lose"}], ()),
    "dying-adapter": (WRITE, FAILS, [{"qp": "error"}], ()),
    "removed-adapter": (WRITE, FAILS, [{"device": "gone"}], ()),
    "late-port": (WRITE, EITHER, [{"link": "down", "for_ms": 3000}], ()),
    "late-device": (WRITE, FAILS, [{"device": "absent"}], ()),
    "cq-overflow": (WRITE, FAILS, [{"cq": "overflow"}], ()),
    "one-way-partition": (WRITE, SURVIVES, [{"packet": "partition", "for_ms": 300, "flow": "peer"}], ()),
    "incast": (READ, SURVIVES, [{"packet": "mark"}, {"packet": "rate", "bits_per_second": 1000000000, "queue_bytes": 131072, "flow": "port"}], ()),
    "peer-paused": (WRITE, SURVIVES, [{"packet": "partition", "for_ms": 2000, "flow": "port"}] * 2, ()),
    "rnr-storm": (SEND, SURVIVES, [{"inject": "rnr", "timer": 12}], ()),
    "cnp-storm": (WRITE, SURVIVES, [{"inject": "cnp", "count": 20}], ()),
}


def actions(journal):
    return [one["do"] for one in decisions(journal)]


def of_server(words):
    return [words[0], "-s", *words[1:]] if words[0] == "rping" else words


def of_client(words):
    return [words[0], "-c", *words[1:]] if words[0] == "rping" else [*words, ADDRESS]


def preset(name):
    return f"{PRESETS}/{name}.toml"


def check(name, status, wanted, made, expected, text):
    for one in expected:
        assert made.count(one) >= expected.count(one), f"{name}: no decision {one} of {len(made)}: {made[:5]}\n{text}"
    others = [one for one in made if one not in expected]
    assert not others or name == "dying-adapter", f"{name}: {others[:3]}"
    assert wanted == EITHER or (status == 0) == (wanted == SURVIVES), f"{name}: exit status {status}\n{text}"
    print(f"{name}: {len(made)} decisions, the program {'ends well' if status == 0 else f'ends with status {status}'}", flush=True)


def trouble_at_the_client(folder, name):
    words, wanted, expected, options = CLIENT[name]
    journal = f"{folder}/{name}.journal"
    server = start_server(RUN, name, of_server(words))
    client = start_client(RUN, name, of_client(words), ["--trouble", preset(name), *options, "--journal", journal])
    client.wait()
    server.end()
    check(name, client.returncode, wanted, actions(journal), expected, f"{client.text()}\n-- server:\n{server.text()}")


def trouble_at_the_listener(folder):
    """Clients come until the listener has rejected one and lost a message; each ends."""
    name, expected = "rdma-cm-storm", [{"reject": "no_resources"}, {"packet": "lose"}]
    for seed in range(1, 10):
        journal = f"{folder}/{name}-{seed}.journal"
        wire = f"{name}-{seed}"
        server = start_server(RUN, wire, of_server(RPING), ["--trouble", preset(name), "--seed", seed, "--journal", journal])
        client = start_client(RUN, wire, of_client(RPING))

        def is_met():
            return client.poll() is not None or all(one in actions(journal) for one in expected)
        lib.await_that(is_met, "the client ends, or has met all")
        client.end()
        server.end()
        text = client.text() + server.text()
        made = actions(journal)
        if all(one in made for one in expected):
            return check(name, client.returncode, EITHER, made, expected, text)
    raise AssertionError(f"{name}: {made}\n{text}")


def one_of_four(folder):
    name = "one-of-four-dies"
    config = f"{folder}/four.toml"
    with open(config, "w", encoding="utf-8") as file:
        for number in range(4):
            file.write(f'[[device]]\nname = "faultline{number}"\n[device.port]\nkind = "wire"\nwire = "four"\nip = "198.18.0.{11 + number}"\n')
    for device, wanted, expected in ((2, FAILS, [{"event": "IBV_EVENT_DEVICE_FATAL"}]), (1, SURVIVES, [])):
        journal = f"{folder}/{name}-{device}.journal"
        server = start_server(RUN, "four", WRITE)
        # Without --wire the program's sockets are the kernel's.
        client = lib.start([RUN, "--config", config, "--trouble", preset(name), "--journal", journal, *WRITE, "-d", f"faultline{device}", "127.0.0.1"])
        client.wait()
        server.end()
        check(name, client.returncode, wanted, actions(journal), expected, f"{client.text()}\n-- server:\n{server.text()}")


def main():
    lib.need("ib_write_bw", "rping", "ip", "rdma")
    lib.own_network()
    folder = lib.own_runtime_folder()
    all_presets = {name.removesuffix(".toml") for name in os.listdir(PRESETS)}
    assert {*CLIENT, "rdma-cm-storm", "one-of-four-dies"} == all_presets, "a preset is not tested, or there is none of a tested name"
    for name in sys.argv[3:] or [*CLIENT, "rdma-cm-storm", "one-of-four-dies"]:
        if name == "rdma-cm-storm":
            trouble_at_the_listener(folder)
        elif name == "one-of-four-dies":
            one_of_four(folder)
        else:
            trouble_at_the_client(folder, name)


main()
