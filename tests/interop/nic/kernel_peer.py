# SPDX-License-Identifier: BSD-3-Clause
"""A Linux kernel with Soft-RoCE in a second guest as the peer of Faultline on a NIC: plainly, with large frames, in a VLAN, and with UDP
checksums that the NIC or Faultline computes."""
import os
import re
import signal
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, f"{HERE}/../kernel")
import matrix  # noqa: E402
from nic_guest import TAP_PACKETS, NicGuest  # noqa: E402
from rows import HANG_S  # noqa: E402
from testbed.testbed import BRIDGE, LINK_MTU_BYTES, Testbed  # noqa: E402

# NICs with these properties besides KINDS' own leave UDP checksums to Faultline.
WITHOUT_CHECKSUMS = {"virtio": "csum=off"}
# A PMD that shares rings with the host, and one that drives registers.
FURTHER_KINDS = ("e1000e", "virtio")
LARGE_MTU_BYTES = 9000
VLAN_ID = 7
VLAN_ADDRESSES = dict(ours={4: "198.18.2.3", 6: "2001:2:0:2::3"}, peer={4: "198.18.2.2", 6: "2001:2:0:2::2"})
# Of the further networks: the operations of the cases.
OPERATIONS = "(RC|UD) .* (SEND|WRITE|READ|FAA) "
# UDP checksums of IPv4 and IPv6 packets, for a comparison with 0, which stands for none (RFC 768).
CHECKSUMS = "(udp[6:2] {0} 0 or (ip6 and ip6[6] = 17 and ip6[46:2] {0} 0))"


class Reader:
    """Stands for the thread that reads a program's output here, where the guest's agent does."""

    def __init__(self, process):
        self.process = process

    def is_alive(self):
        return self.process.returncode is None and not self.process.guest.gone


class NicTestbed(Testbed):
    """The kernel lanes' testbed with Faultline's end in a guest: on a NIC there instead of an interface here. properties: of the NIC."""

    def __init__(self, faultline_run, nic, mtu_bytes=LINK_MTU_BYTES, properties=""):
        super().__init__(faultline_run, "nic", "pci", mtu_bytes=mtu_bytes)
        self.nic = nic
        self.guest = NicGuest([nic], bridge=(self.namespace, "fl-bridge"), address=f"{BRIDGE[4]}/24", properties=properties)

    def __enter__(self):
        super().__enter__()
        try:
            # The guest has this address, for the TCP connection of both ends.
            self.ip("addr", "flush", "dev", "fl-bridge")
            # A message of UC has 1024 packets, and a machine that waits for its CPU must not lose one.
            self.ip("link", "set", self.peer.tap, "txqueuelen", str(TAP_PACKETS))
            self.guest.start()
            self.guest.check("mkdir", "-p", "/run/lab")
        except BaseException:
            self.close()
            raise
        return self

    def close(self):
        self.guest.stop()
        super().close()

    def config(self, name="device", device="", rest=""):
        path, ours = f"/run/lab/{name}.toml", self.addresses["ours"]
        self.guest.write(path, f"[eal]\nhuge_pages = true\nmemory_mib = 256\n{rest}\n"
                               f'[[device]]\nname = "faultline0"\nip = ["{ours[4]}/24", "{ours[6]}/64"]\n'
                               f'mtu = {self.mtu_bytes}\n{device}\n'
                               f'[device.port]\nkind = "pci"\naddress = "{self.guest.addresses[self.nic][0]}"\n')
        return path

    def popen(self, argv, config=None, variables=None):
        words = [f"{name}={value}" for name, value in (variables or {}).items()]
        process = self.guest.popen(["env", *words, self.faultline_run, "--config", config or self.config(), "--", *argv])
        process.changed, process.reader = self.guest.changed, Reader(process)
        return process

    def await_listener(self, port, process, timeout_s=HANG_S):
        return self.guest.await_listener(port, process, timeout_s)


def every_operation(tally, faultline_run, kind, wanted):
    """Every operation between the kernel and Faultline on a NIC, both directions, every byte compared; and perftest."""
    lane = matrix.Lane(tally, True, wanted)
    with NicTestbed(faultline_run, kind) as testbed:
        print(f"nic: {kind}: Linux {testbed.peer.release} with Soft-RoCE is the peer", flush=True)
        chosen = [combination for combination in matrix.combinations(False, True) if not combination["peer_odp"]]
        lane.cases(testbed, chosen, testbed.config("device", "", matrix.RXE_FLUSH), prefix=f"{kind}, kernel peer: ")
        for text in ("ib_send_bw -n 200 -s 65536 -x IPv4", "ib_write_bw -n 200 -s 65536 -x IPv4", "ib_read_lat -n 50 -x IPv4"):
            for ours_serves in (True, False):
                if not re.search(wanted, text):
                    continue
                lane.row(testbed, f"{kind}, kernel peer: {text}, server {'ours' if ours_serves else 'the kernel'}", text, ours_serves)


class FrameCheck:
    """A context manager: looks at the frames that the peer receives from Faultline. problem() returns what is wrong: no frame matches
    `right`, or one matches `wrong` if there is such a filter; both are filters of pcap."""

    def __init__(self, testbed, right, wrong=None):
        self.testbed, self.filters = testbed, [words for words in (right, wrong) if words]

    def __enter__(self):
        mac = self.testbed.guest.mac(self.testbed.nic, 0)
        self.programs = [self.testbed.inside("tcpdump", "-i", self.testbed.peer.tap, "-Q", "out", "-n", "-c", "1", "-e", "-Z", "root",
                                             "--immediate-mode", f"ether src {mac} and {words}") for words in self.filters]
        for program in self.programs:
            if not program.await_output("listening on"):
                raise RuntimeError(f"tcpdump: {program.output}")
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.signal(signal.SIGKILL)
            program.wait()

    def problem(self):
        """tcpdump ends with the first frame that its filter accepts."""
        right, *wrong = self.programs
        if wrong and wrong[0].poll() is not None:
            return f"a frame matches {self.filters[1]}: {wrong[0].output}"
        return "" if right.poll() is not None else f"no frame matches {self.filters[0]}"


def combinations(mtus):
    """Reliable connections and datagrams of both address families, each with its path MTU; mtus: of IPv4 and IPv6."""
    return [combination for combination in matrix.combinations(False, False)
            if combination["transport"] != "UC" and not combination["peer_odp"] and not combination["our_odp"] and
            combination["mtu"] == mtus[combination["family"] == 6]]


def further_network(tally, testbed, name, wanted, frames, mtus=(1024, 4096), device="", rest=""):
    """The operations above over this network; frames: FrameCheck's filters."""
    lane = matrix.Lane(tally, True, f"(?=.*({wanted})){OPERATIONS}")
    config = testbed.config("device", device, rest)
    with FrameCheck(testbed, *frames) as check:
        lane.cases(testbed, combinations(mtus), config, prefix=f"{name}: ")
        problem = check.problem()
    if problem:
        tally.fail(f"{name}: the frames", problem)
    else:
        tally.ok(f"{name}: the frames")


def further_networks(tally, faultline_run, kind, is_wanted, wanted):
    """Large frames, a VLAN, and UDP checksums, which the peer's kernel verifies."""
    large, vlan, offloaded, computed = (f"{kind}, kernel peer, {name}" for name in (
        "MTU 9000", f"VLAN {VLAN_ID}", "UDP checksums of the NIC", "UDP checksums of Faultline"))
    checksums = dict(rest="[transport]\nudp_checksum = true\n", frames=[CHECKSUMS.format("!="), CHECKSUMS.format("=")])
    if any(map(is_wanted, (large, vlan, offloaded))):
        with NicTestbed(faultline_run, kind, mtu_bytes=LARGE_MTU_BYTES) as testbed:
            if is_wanted(large):
                further_network(tally, testbed, large, wanted, ["greater 4096"], mtus=(4096, 4096))
            if is_wanted(offloaded):
                further_network(tally, testbed, offloaded, wanted, **checksums)
            if is_wanted(vlan):
                testbed.peer.use_vlan(VLAN_ID, [f"{VLAN_ADDRESSES['peer'][4]}/24", f"{VLAN_ADDRESSES['peer'][6]}/64"])
                testbed.addresses = VLAN_ADDRESSES
                further_network(tally, testbed, vlan, wanted, device=f"vlan = {VLAN_ID}", frames=[f"vlan {VLAN_ID}", "not vlan"])
    if kind in WITHOUT_CHECKSUMS and is_wanted(computed):
        with NicTestbed(faultline_run, kind, properties=WITHOUT_CHECKSUMS[kind]) as testbed:
            further_network(tally, testbed, computed, wanted, **checksums)


def run(tally, faultline_run, kinds, wanted):
    """wanted: a regular expression. "KIND, kernel peer: EXPRESSION" has the cases that match; so has "KIND, kernel peer, NETWORK: ..."."""
    network, _, cases = wanted.partition(": ")

    def is_wanted(name):
        return re.search(network, name) is not None

    for kind in kinds:
        if is_wanted(f"{kind}, kernel peer"):
            every_operation(tally, faultline_run, kind, cases)
        if kind in FURTHER_KINDS:
            further_networks(tally, faultline_run, kind, is_wanted, cases)
