#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Two Faultline devices on a bridge exchange data of which every byte is compared, and a third station on it sends what no honest
one does (docs/security.md).

    hostile_test.py LIVE_STREAM HOSTILE_SENDER [--frames N] [--seed N] [--rate N] [--switch FAULTLINE_SWITCH | --udp]

With --switch each device is on a wire, whose switch has the port on the bridge as its uplink. The switch must count each frame, and stay.
With --udp the devices have the addresses of the kernel's interfaces, by UDP sockets; the kernel drops frames that no socket has to get.

No byte may be wrong, nothing may end, every frame has to be counted under the reason that its sender foresaw, memory and the
connection manager's state have to stay as they are, and afterwards all goes on as before.
"""
import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402
from lib import fail  # noqa: E402

LINK_MTU_BYTES = 9000
DEVICE_MTU_BYTES = 4500
# What messages under way and the threads' own stores have, more or less.
HEAP_SLACK_BYTES = 2 * 1024 * 1024
MEMORY_SLACK_KIB = 4 * 1024
# EAL's memory, all of which is the device's from the start: buffers that are used for the first time show in it.
EAL_MEMORY_AT = "100000000"
HELD_REQUESTS = 64  # connections.hpp: kBacklog


# The device has polled its port, and so has a switch between, once so many rounds have begun and ended.
ROUNDS_AFTER = 20


class Link:
    """A namespace with a bridge, and on it a port for each device and one for whoever is hostile."""

    PORTS = ("fl-a", "fl-b", "fl-hostile")

    def __init__(self, has_addresses):
        lib.need_root("network namespaces")
        lib.need("ip")
        self.space = lib.Namespace("hostile")
        self.ip, self.inside = self.space.ip, self.space.words
        # The kernel's own neighbour discovery would be counted, too; and where it filters what goes over bridges, it drops broken
        # packets before they come to anybody.
        self.run("sh", "-c", f"echo {int(not has_addresses)} | tee /proc/sys/net/ipv6/conf/*/disable_ipv6 >/dev/null; "
                 "if [ -d /proc/sys/net/bridge ]; then echo 0 | tee /proc/sys/net/bridge/bridge-nf-call-*tables >/dev/null; fi")
        self.ip("link", "add", "fl-br", "mtu", str(LINK_MTU_BYTES), "type", "bridge", "mcast_snooping", "0")
        self.ip("link", "set", "fl-br", "up")
        for port in self.PORTS:
            self.ip("link", "add", port, "mtu", str(LINK_MTU_BYTES), "type", "veth", "peer", "name", f"{port}-br", "mtu",
                    str(LINK_MTU_BYTES))
            self.ip("link", "set", f"{port}-br", "master", "fl-br", "up")
            self.ip("link", "set", port, "up")
        if has_addresses:
            self.add_addresses()

    def add_addresses(self):
        """Both devices' addresses are this host's. It takes frames from outside that have one of them as their source."""
        self.run("sh", "-c", "echo 1 | tee /proc/sys/net/ipv4/conf/*/accept_local >/dev/null; "
                 "echo 0 | tee /proc/sys/net/ipv4/conf/*/rp_filter >/dev/null")
        for number, port in ((1, "fl-a"), (2, "fl-b")):
            self.ip("addr", "add", f"198.18.0.{number}/24", "dev", port)
            self.ip("addr", "add", f"2001:2::{number}/64", "dev", port, "nodad")

    def run(self, *words):
        lib.call(self.inside(*words))


class Switches:
    """The wires ha and hb, whose switches have the bridge's ports as uplinks."""

    def __init__(self, link, program):
        self.program = program
        self.processes = [lib.start_switch(program, f"h{side}", "--uplink", f"af_packet:fl-{side}", prefix=link.inside())
                          for side in "ab"]

    def are_alive(self):
        return all(process.poll() is None for process in self.processes)

    def uplink(self):
        """What the target's switch counted: frames of its uplink, and its reasons to drop."""
        status = lib.status_of_switch(self.program, "ha")
        uplink = status["uplink"]
        return uplink["sent_frames"] + uplink["dropped"] + uplink["missed"], status["counters"]

    def resident_kib(self):
        kib = 0
        for process in self.processes:
            with open(f"/proc/{process.pid}/smaps_rollup") as file:
                kib += sum(int(line.split()[1]) for line in file if line.startswith("Rss:"))
        return kib


class Stream:
    """live_stream: answers, one line each. What it says without being asked is an end."""

    PORT = 'ip = ["198.18.0.{number}/24", "2001:2::{number}/64"]\nmtu = {mtu}\n[device.port]\nkind = "af_packet"\n' \
           'interface = "fl-{side}"\n'
    UDP = 'ip = ["198.18.0.{number}", "2001:2::{number}"]\nmtu = {mtu}\n[device.port]\nkind = "udp"\n'
    WIRE = 'mtu = {mtu}\n[device.port]\nkind = "wire"\nwire = "h{side}"\nside = "{side}"\n'

    def __init__(self, link, program, folder, port):
        config = f"{folder}/devices.toml"
        with open(config, "w") as file:
            for number, side in enumerate("ab"):
                file.write(f'[[device]]\nname = "faultline{number}"\n' +
                           port.format(number=number + 1, side=side, mtu=DEVICE_MTU_BYTES))
        self.process = subprocess.Popen(link.inside(program, config), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        start_new_session=True)
        lib.on_exit(self.close)
        self.lines = queue.Queue()
        threading.Thread(target=self._read_answers, daemon=True).start()
        self.facts = self._answer()

    def _read_answers(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def _answer(self):
        try:
            line = self.lines.get(timeout=lib.LIMIT_S)
        except queue.Empty:
            fail("the stream says nothing")
        if line is None:
            fail(f"the stream ended with status {self.process.wait()}")
        if not line.startswith("{"):
            fail(line.strip())
        return json.loads(line)

    def ask(self, what):
        if self.process.poll() is None:
            try:
                self.process.stdin.write(what + "\n")
                self.process.stdin.flush()
            except BrokenPipeError:
                pass
        return self._answer()

    def await_rounds(self, count):
        """Waits until so many more rounds are done."""
        first = self.ask("report")["rounds"]
        lib.await_that(lambda: self.ask("report")["rounds"] >= first + count, f"{count} more rounds")

    def end(self):
        self.process.stdin.write("quit\n")
        self.process.stdin.flush()
        return self.process.wait(lib.LIMIT_S)

    def resident_kib(self):
        """The process's memory but for EAL's."""
        kib, counts = 0, True
        with open(f"/proc/{self.facts['pid']}/smaps") as file:
            for line in file:
                words = line.split()
                if "-" in words[0] and not words[0].endswith(":"):
                    counts = words[0].split("-")[0] != EAL_MEMORY_AT
                elif words[0] == "Rss:" and counts:
                    kib += int(words[1])
        return kib

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class Attack:
    """A run of the sender: what it sent, what the stream's counters were before and after."""

    def __init__(self, link, stream, sender, facts_file, *options):
        self.before = stream.ask("report")
        words = link.inside(sender, "--interface", "fl-hostile", "--facts", facts_file, *map(str, options))
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            fail(f"the sender: {done.stderr}")
        self.sent = json.loads(done.stdout)
        stream.await_rounds(ROUNDS_AFTER)  # what is under way arrives
        self.after = stream.ask("report")
        self.resident_kib = stream.resident_kib()

    def grown(self, name):
        return self.after["target"][name] - self.before["target"][name]

    def seconds(self):
        return self.after["seconds"] - self.before["seconds"]

    def arrived(self):
        """Of the hostile frames: all that came but the peer's."""
        frames = self.grown("port.rx_frames") + self.grown("port.rx_missed")
        return frames - (self.after["peer_tx_frames"] - self.before["peer_tx_frames"])


# Whoever claims the peer's address has it asked whether it is still there, at most once a second: its answers.
NEIGHBOURS = ("port.arp_in", "port.nd_in")
PEERS_ANSWERS = 16  # and one a second


def check_counts(attack):
    """Each frame turns up once at each level, and under the counter that was foreseen."""
    target = attack.after["target"]
    frames, missed = attack.sent["frames"], attack.grown("port.rx_missed")
    # The last frames of the peer may be on the way while the counters are read.
    if abs(attack.arrived() - frames) > 64:
        fail(f"{frames} frames were sent, {attack.arrived()} came")
    levels = ["port.wrong_vlan", "port.wrong_address", "port.arp_in", "port.nd_in", "port.icmp_in", "port.other_dropped",
              "transport.rx_packets"]
    if sum(map(attack.grown, levels)) != attack.grown("port.rx_frames"):
        fail(f"{attack.grown('port.rx_frames')} frames came in, but {({name: attack.grown(name) for name in levels})}")
    drops = [name for name in target if name.startswith("drop.")]
    expected = dict(attack.sent["expected"])
    reached = expected.pop("reached", 0)
    wrong = []
    for name in sorted(expected):
        # What reached a QP may have been dropped there for any reason, and the peer's own packets are dropped where one came twice;
        # what the packet socket's ring had no room for is missing.
        most = expected[name] + (reached if name.startswith("drop.") else PEERS_ANSWERS + attack.seconds() if name in NEIGHBOURS else 0)
        if not expected[name] - missed <= attack.grown(name) <= most:
            wrong.append(f"{name}: foreseen {expected[name]}, counted {attack.grown(name)}")
    for name in target:
        if name.startswith("parse.") and name not in expected and attack.grown(name) != 0:
            wrong.append(f"{name}: foreseen 0, counted {attack.grown(name)}")
    at_qps = sum(count for name, count in expected.items() if name.startswith("drop.")) + reached
    dropped = sum(map(attack.grown, drops))
    if dropped < at_qps - missed - 16:  # one packet of the victim's may have been executed
        wrong.append(f"{at_qps} frames came as far as QPs, {dropped} were dropped there")
    if wrong:
        fail("counters: " + "; ".join(wrong))
    return missed


def check_state(attack, first):
    grown = attack.resident_kib - first.resident_kib
    heap = attack.after["heap_bytes"] - first.after["heap_bytes"]
    if grown > MEMORY_SLACK_KIB or heap > HEAP_SLACK_BYTES:
        fail(f"the process has {grown} KiB and {heap} allocated bytes more than after the first frames")
    if attack.after["cm"]["most_held"] > HELD_REQUESTS:
        fail(f"{attack.after['cm']['most_held']} requests wait for the program")
    answers = attack.grown("port.arp_out") + attack.grown("port.nd_out") + attack.grown("port.icmp_out")
    print(f"    answers {answers}, NAKs {attack.grown('transport.naks_sent')}, CM messages "
          f"{attack.after['cm']['sent'] - attack.before['cm']['sent']}, memory {grown:+} KiB, allocated {heap:+} bytes", flush=True)


def attack_all(link, stream, options, facts_file):
    # Once all kinds, for what is allocated at the first one of each; then as many as are wanted.
    warm = Attack(link, stream, options.sender, facts_file, "--count", 4000, "--seed", options.seed + 1000, "--rate", options.rate)
    check_counts(warm)
    pieces = max(1, options.frames // 100_000)
    for piece in range(pieces):
        attack = Attack(link, stream, options.sender, facts_file, "--count", options.frames // pieces, "--seed", options.seed + piece,
                        "--rate", options.rate)
        missed = check_counts(attack)
        print(f"ok: {attack.sent['frames']} hostile frames of {len(attack.sent['sent'])} kinds in {attack.sent['seconds']:.1f} s, "
              f"{missed} of them not taken by the packet socket, {attack.after['rounds'] - attack.before['rounds']} rounds meanwhile",
              flush=True)
        check_state(attack, warm)
    # As fast as they go: nothing is promised of what does not fit.
    flood = Attack(link, stream, options.sender, facts_file, "--count", min(options.frames, 200_000) // 2, "--seed", options.seed + 500,
                   "--rate", 0)
    print(f"ok: {flood.sent['frames']} more in {flood.sent['seconds']:.1f} s, {flood.grown('port.rx_missed')} not taken by the packet "
          f"socket, {flood.after['rounds'] - flood.before['rounds']} rounds meanwhile", flush=True)
    check_state(flood, warm)
    if flood.after["victim"] != "error":
        fail("a bad rkey in the peer's name, at the right PSN, did not end the connection")
    check_limits(link, stream, options, facts_file)
    check_that_all_goes_on(stream)
    print("ok: a connection is made, and the QP that was idle is used", flush=True)


def attack_over_switches(link, stream, switches, options, facts_file):
    Attack(link, stream, options.sender, facts_file, "--count", 4000, "--seed", options.seed + 1000, "--rate", options.rate)
    kib = switches.resident_kib()
    before, reasons_before = switches.uplink()
    attack = Attack(link, stream, options.sender, facts_file, "--count", options.frames, "--seed", options.seed, "--rate",
                    options.rate)
    after, reasons = switches.uplink()
    if after - before < attack.sent["frames"]:
        fail(f"{attack.sent['frames']} frames were sent, and the switch counted {after - before}")
    grown = {name: reasons[name] - reasons_before[name] for name in reasons if reasons[name] != reasons_before[name]}
    for reason in ("foreign_address", "unknown_address"):
        if reason not in grown:
            fail(f"the switch dropped nothing as {reason}: {grown}")
    print(f"ok: {attack.sent['frames']} hostile frames of {len(attack.sent['sent'])} kinds in {attack.sent['seconds']:.1f} s, "
          f"{attack.after['rounds'] - attack.before['rounds']} rounds meanwhile; the switch counted {grown}", flush=True)
    flood = Attack(link, stream, options.sender, facts_file, "--count", options.frames, "--seed", options.seed + 500, "--rate", 0)
    print(f"ok: {flood.sent['frames']} more in {flood.sent['seconds']:.1f} s, "
          f"{flood.after['rounds'] - flood.before['rounds']} rounds meanwhile", flush=True)
    more = switches.resident_kib() - kib
    # Frames that wait for the program use buffers for the first time, at most half of the pool.
    print(f"    memory of the switches {more:+} KiB", flush=True)
    check_that_all_goes_on(stream)
    if not switches.are_alive():
        fail("a switch has ended")
    print("ok: a connection is made, the QP that was idle is used, and both switches are there", flush=True)


# Of the frames, what the kernel passes to the sockets: the others are no datagrams for port 4791 of these addresses.
LEAST_SHARE = 0.2


def attack_over_sockets(link, stream, options, facts_file):
    link.ip("link", "set", "fl-a", "address", stream.facts["target"]["mac"])
    warm = Attack(link, stream, options.sender, facts_file, "--count", 4000, "--seed", options.seed + 1000, "--rate", options.rate)
    attack = Attack(link, stream, options.sender, facts_file, "--count", options.frames, "--seed", options.seed, "--rate", options.rate)
    frames, arrived = attack.sent["frames"], attack.arrived()
    dropped = {name: attack.grown(name) for name in attack.after["target"] if name.startswith(("parse.", "drop.")) and attack.grown(name)}
    print(f"ok: {frames} hostile frames of {len(attack.sent['sent'])} kinds in {attack.sent['seconds']:.1f} s, {arrived} came, "
          f"{attack.grown('port.rx_missed')} of them not taken by the sockets, {attack.after['rounds'] - attack.before['rounds']} rounds "
          f"meanwhile; dropped: {dropped}", flush=True)
    # A socket that a busy machine leaves alone takes fewer.
    if arrived < LEAST_SHARE * frames or sum(dropped.values()) + attack.grown("port.rx_missed") < LEAST_SHARE * frames:
        fail("the attack does not reach the device")
    check_state(attack, warm)
    flood = Attack(link, stream, options.sender, facts_file, "--count", options.frames, "--seed", options.seed + 500, "--rate", 0)
    print(f"ok: {flood.sent['frames']} more in {flood.sent['seconds']:.1f} s, {flood.grown('port.rx_missed')} not taken by the sockets, "
          f"{flood.after['rounds'] - flood.before['rounds']} rounds meanwhile", flush=True)
    check_state(flood, warm)
    check_that_all_goes_on(stream)
    print("ok: a connection is made, and the QP that was idle is used", flush=True)


# What is answered, and how often at most: a second, and at once (poll_engine.hpp, manager.hpp).
LIMITS = {"echo": ("port.icmp_out", 1_000, 1_000), "arp-request": ("port.arp_out", 10_000, 1_000), "cm-answer": (None, 5_000, 1_024)}


def check_limits(link, stream, options, facts_file):
    for kind, (name, per_second, at_once) in LIMITS.items():
        flood = Attack(link, stream, options.sender, facts_file, "--count", 20_000, "--seed", options.seed, "--rate", 0, "--kind", kind)
        seconds = flood.seconds()
        answers = flood.grown(name) if name else flood.after["cm"]["sent"] - flood.before["cm"]["sent"]
        if not 0 < answers <= at_once + per_second * seconds:
            fail(f"{answers} answers to {kind} in {seconds:.1f} s")
        print(f"ok: {answers} answers to {flood.sent['frames']} frames of kind {kind} in {seconds:.1f} s", flush=True)


def check_that_all_goes_on(stream):
    stream.await_rounds(10 * ROUNDS_AFTER)
    for what in ("connect", "resume"):
        if not all(stream.ask(what).values()):
            fail(f"{what}: it does not work any more")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("stream")
    parser.add_argument("sender")
    parser.add_argument("--frames", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=20_000)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--switch")
    way.add_argument("--udp", action="store_true")
    options = parser.parse_args()
    folder = lib.own_runtime_folder("fl-hostile-")
    link = Link(has_addresses=options.udp)
    switches = Switches(link, os.path.realpath(options.switch)) if options.switch else None
    port = Stream.WIRE if switches else Stream.UDP if options.udp else Stream.PORT
    stream = Stream(link, os.path.realpath(options.stream), folder, port)
    facts_file = folder / "facts.json"
    facts_file.write_text(json.dumps(stream.facts))
    if switches:
        attack_over_switches(link, stream, switches, options, facts_file)
    elif options.udp:
        attack_over_sockets(link, stream, options, facts_file)
    else:
        attack_all(link, stream, options, facts_file)
    if stream.end() != 0:
        fail("the stream did not end well")
    print("ok: every byte was right")


main()
