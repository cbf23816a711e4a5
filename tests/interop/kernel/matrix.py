#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The matrix: every operation of every transport between Faultline and the kernel, in both directions, by matrix_cases.py at both
ends; and the rows of matrix_rows.txt, of programs of other projects.

    matrix.py FAULTLINE_RUN [--reduced] [REGULAR EXPRESSION]
"""
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from testbed.testbed import BRIDGE, HERE, OUR_GIDS, PEER_ADDRESSES, PEER_GIDS, Testbed  # noqa: E402
from condition import await_that  # noqa: E402
from networks import expand  # noqa: E402
from guest.guest import HANG_S  # noqa: E402
from guest.lane import run_lane  # noqa: E402
from tally import Tally, lane_parser  # noqa: E402

# Each pair of programs has another port, because the previous one's may still be in use.
PORTS = itertools.count(18600)
LOSS = 0.05
# Only the guest's RoCEv2 packets are affected: the TCP connection of the ends is not part of the matrix.
NETEM = f"""
tc qdisc add dev eth0 root handle 1: prio bands 4 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
tc qdisc add dev eth0 parent 1:4 handle 40: netem loss {LOSS * 100:.0f}% delay 1ms reorder 2%
tc filter add dev eth0 parent 1: protocol ip u32 match ip protocol 17 0xff match ip dport 4791 0xffff flowid 1:4
tc filter add dev eth0 parent 1: protocol ipv6 u32 match ip6 protocol 17 0xff match ip6 dport 4791 0xffff flowid 1:4
"""
# Faultline's packets are lost and overtaken at the device.
CHAOS = f'[device.chaos]\ndirection = "tx"\nloss = {LOSS}\nreorder = 0.02\nseed = 6\n'
# FLUSH: the kernel accepts only its own ICRC, and sends no other.
RXE_FLUSH = "[transport]\nrxe_flush_icrc = true\n"


def combinations(lossy, reduced):
    choices = itertools.product(("RC", "UC", "UD"), (4, 6), (1024, 4096), (False, True), (False, True))
    all_of_them = [dict(transport=transport, family=family, mtu=mtu, our_odp=our_odp, peer_odp=peer_odp, lossy=lossy)
                   for transport, family, mtu, our_odp, peer_odp in choices]
    if not reduced:
        return all_of_them
    # For each transport, one combination with each family, MTU and kind of memory.
    return [combination for combination in all_of_them if (combination["family"] == 4) == (combination["mtu"] == 1024) and
            combination["our_odp"] == (combination["family"] == 6) and combination["peer_odp"] == (combination["our_odp"] and combination["transport"] != "UC")]


class Lane:
    def __init__(self, tally, reduced, wanted):
        self.tally, self.reduced, self.wanted = tally, reduced, wanted
        self.counts = {}

    def take(self, name, problem, group=None, column=None, seconds=0):
        cannot = re.search("CANNOT (.*)", problem)
        if not problem:
            self.tally.ok(name, f"{seconds} s" if seconds > 10 else "")
        elif cannot:
            self.tally.refused(name, cannot.group(1))
        else:
            self.tally.fail(name, problem)
        if group:
            key = "cannot" if cannot else "failed" if problem else column
            counts = self.counts.setdefault(group, {})
            counts[key] = counts.get(key, 0) + 1

    def table(self):
        """The number of passed cases by operation, with Faultline as requester (to) and as responder (from)."""
        columns = ["to, clean", "from, clean", "to, lossy", "from, lossy", "failed", "cannot"]
        print(f"{'':20}" + "".join(f"{column:>13}" for column in columns))
        for group, counts in self.counts.items():
            print(f"{group:20}" + "".join(f"{counts.get(column, 0):13}" for column in columns))

    def cases(self, testbed, combinations, config, take=None, wanted=None, prefix=""):
        take = take or self.take
        settings = json.dumps(dict(addresses=testbed.addresses, wanted=self.wanted if wanted is None else wanted, combinations=combinations,
                                   reduced=self.reduced))
        port = str(next(PORTS))
        ours = testbed.popen(["/usr/bin/python3", "-B", f"{HERE}/matrix_cases.py", "listen", port, settings], config=config)
        if testbed.kind == "tap":
            # At the same time: Faultline's program has its device, and with it the tap, once the peer's program has connected.
            threading.Thread(target=adopt, args=(testbed, ours), daemon=True).start()
        if not testbed.await_listener(int(port), ours):
            self.tally.fail("our end of the cases", ours.output[-2000:])
            return
        peer = testbed.peer.popen(["python3", "-B", "/mnt/share/matrix_cases.py", BRIDGE[4], port, settings])
        taken, ended = 0, False
        while not ended:
            with ours.changed:
                ours.changed.wait_for(lambda: ours.output.count("\n", taken) or not ours.reader.is_alive(), 2 * HANG_S)
                whole = ours.output.rfind("\n") + 1
                output, taken, silent = ours.output[taken:whole], whole, whole <= taken
            for line in output.splitlines():
                if not line.startswith("{"):
                    continue
                words = json.loads(line)
                ended = ended or "end" in words
                if "case" in words:
                    take(prefix + words.pop("case"), **words)
            if silent and not ended:
                self.tally.fail("the ends of the cases", f"ours: {ours.output[-2000:]}\npeer: {peer.output[-3000:]}\n"
                                                         f"{testbed.peer.console()[-2000:]}")
                break
        for process in (ours, peer):
            process.signal(signal.SIGKILL)
            try:
                process.wait(30)
            except (subprocess.TimeoutExpired, ConnectionError):
                pass

    def flush_as_specified(self, testbed):
        """The kernel's reaction to a FLUSH with the ICRC of the specification."""
        name = "FLUSH with the specification's ICRC, to the kernel"
        if not re.search(self.wanted, name):
            return

        def take(_, problem, **words):
            if not problem:
                self.tally.ok(name)
            elif "IBV_WC_RETRY_EXC_ERR" in problem:
                self.tally.refused(name, f"no answer to any of its transmissions ({problem})")
            else:
                self.tally.fail(name, problem)

        self.cases(testbed, combinations(False, True)[:1], testbed.config(), take, "FLUSH 1 to")

    def rows(self, testbed):
        with open(f"{HERE}/matrix_rows.txt") as file:
            for line in file:
                line = line.strip()
                if not line or line.startswith("#"):
                    continue
                only_full = not line.startswith("* ")
                if only_full and self.reduced:
                    continue
                for text in expand(line.removeprefix("* ")):
                    for ours_serves in (True, False):
                        name = f"{text}, server {'ours' if ours_serves else 'the kernel'}"
                        if re.search(self.wanted, name):
                            self.row(testbed, name, text, ours_serves)

    def row(self, testbed, name, text, ours_serves):
        if problem := self.run_row(testbed, text, ours_serves):
            self.tally.fail(name, problem)
        else:
            self.tally.ok(name)

    def run_row(self, testbed, text, ours_serves):
        """Returns the error. perftest's time-out is set to 4.3 s: on a busy machine the emulated one answers later than the usual 67 ms."""
        port = next(PORTS)

        def words(gids):
            return re.sub(r"(-[gx]) IPv([46])", lambda found: f"{found.group(1)} {gids[int(found.group(2))]}", text).split() + [
                "-p", str(port), *(["-u", "20"] if text.startswith("ib_") else [])]

        ends = {True: (testbed, words(OUR_GIDS), BRIDGE[4]), False: (testbed.peer, words(PEER_GIDS), PEER_ADDRESSES[4])}
        machine, server_words, address = ends[ours_serves]
        server = machine.popen(server_words)
        client = None
        try:
            if not machine.await_listener(port, server, HANG_S):
                raise TimeoutError("the server does not listen")
            machine, client_words, _ = ends[not ours_serves]
            client = machine.popen(client_words + [address])
            statuses = client.wait(HANG_S), server.wait(HANG_S if client.returncode == 0 else 5)
            problem = "" if statuses == (0, 0) else f"client {statuses[0]}, server {statuses[1]}"
        except (subprocess.TimeoutExpired, TimeoutError) as timeout:
            problem = str(timeout)
        for process in (server, client):
            if process and process.poll() is None:
                process.signal(signal.SIGKILL)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    pass
        if not problem:
            return ""
        return f"{problem}\nserver: {server.output[-1500:]}\nclient: {client.output[-1500:] if client else ''}"

    def tap(self, testbed):
        """The same over net_tap, which carries 1500 bytes at most; so no datagram is longer than 1024. The interface exists while
        Faultline's program
        runs; then it becomes a port of the bridge."""
        if self.wanted and "tap" not in self.wanted:
            return
        testbed.ip("link", "del", "fl-link")
        testbed.kind, testbed.mtu_bytes = "tap", 1500
        chosen = [combination for combination in combinations(False, False) if combination["mtu"] == 1024 and combination["transport"] != "UC" and
                  not combination["peer_odp"] and combination["our_odp"] == (combination["family"] == 6)]
        wanted = self.wanted.removeprefix("tap: ") or "^(?!UD.* 1025 )"
        self.cases(testbed, chosen, testbed.config("tap", "", RXE_FLUSH), wanted=wanted, prefix="tap: ")

    def udp(self, testbed):
        """The same by sockets of the host. Over IPv4 a socket hides the identification that the ICRC of the kernel's packets covers. So
        these cases are the first ones, those of RC before the others: a lost packet of theirs is retransmitted, and Faultline learns
        the identifications."""
        if self.wanted and "udp" not in self.wanted:
            return
        link = testbed.kind, testbed.addresses
        testbed.use_udp()
        chosen = [combination for combination in combinations(False, False) if not combination["peer_odp"]]
        if self.reduced:
            chosen = [combination for combination in chosen if combination["our_odp"] == (combination["mtu"] == 4096) and
                      (combination["family"] == 6 or combination["mtu"] == 4096)]
        chosen.sort(key=lambda combination: combination["family"])
        self.cases(testbed, chosen, testbed.config("udp", "", RXE_FLUSH), wanted=self.wanted.removeprefix("udp: "), prefix="udp: ")
        testbed.kind, testbed.addresses = link

    def vhost(self, testbed):
        """The same over the peer's second card, whose back end is Faultline: frames pass by the peer's memory."""
        if self.wanted and "vhost" not in self.wanted:
            return
        testbed.use_vhost()
        chosen = [combination for combination in combinations(False, False) if not combination["peer_odp"]]
        if self.reduced:
            # For each transport, one combination with each family, MTU and kind of memory.
            chosen = [combination for combination in chosen if combination["our_odp"] == (combination["family"] == 6) == (combination["mtu"] == 4096)]
        self.cases(testbed, chosen, testbed.config("vhost", "", RXE_FLUSH), wanted=self.wanted.removeprefix("vhost: "), prefix="vhost: ")


def adopt(testbed, process):
    """Makes the tap of Faultline's program a port of the bridge as soon as it exists."""
    words = ["ip", "-n", testbed.namespace, "link", "set", "fl-link", "master", "fl-bridge", "up"]
    await_that(lambda: process.poll() is not None or subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode == 0, HANG_S)


def main():
    asked = lane_parser(__doc__).parse_intermixed_args()
    reduced = asked.reduced
    tally = Tally("matrix")
    lane = Lane(tally, reduced, asked.wanted.pattern)
    with Testbed(asked.faultline_run, "matrix", with_vhost=True) as testbed:
        lane.cases(testbed, combinations(False, reduced), testbed.config("clean", "", RXE_FLUSH))
        lane.flush_as_specified(testbed)
        lane.rows(testbed)
        lane.udp(testbed)
        testbed.peer.check("sh", "-ec", NETEM)
        lane.cases(testbed, combinations(True, reduced), testbed.config("lossy", CHAOS, RXE_FLUSH))
        if not reduced:
            testbed.peer.check("tc", "qdisc", "del", "dev", "eth0", "root")
            lane.tap(testbed)
        lane.vhost(testbed)
    lane.table()
    tally.finish()


if __name__ == "__main__":  # the NIC lab imports the lane
    run_lane(main)
