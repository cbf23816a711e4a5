# SPDX-License-Identifier: BSD-3-Clause
"""A virtual function (VF) of an igb, whose physical function (PF) stays with the guest's kernel. The other end is a whole igb."""
import os
import re
import time

from nic_guest import NicGuest
from rows import HANG_S, PERFTEST_PORT, Row, tail
from two_hosts import await_true

VF_MAC = "52:54:00:10:f0:00"
REPORT_SECONDS = 5

# The VF's interrupt of its mailbox: the register VTIVAR_MISC of the 82576, with the bit for "valid" and the number of a vector. QEMU 10
# raises the cause `number << 22` instead of `1 << (22 + number)`: none for vector 0, which DPDK 22.11 uses, and that of vector 0 for 1.
SET_MAILBOX_VECTOR = """
import ctypes, mmap, sys
with open(sys.argv[1], "r+b") as file:
    registers = mmap.mmap(file.fileno(), 0)
ctypes.c_uint32.from_buffer(registers, 0x1740).value = 0x81
"""


class VfGuest(NicGuest):
    """The first NIC is the VF; its PF is `physical`, an interface of the guest's kernel."""

    # Root may write a register of a NIC that has a driver (CONFIG_IO_STRICT_DEVMEM).
    kernel_words = "iomem=relaxed"

    def _boot(self):
        super()._boot()
        whole = self.addresses["igb"][0]
        self.bind(whole, "igb")
        device = f"/sys/bus/pci/devices/{whole}"
        self.physical = self.check("ls", f"{device}/net").strip()
        self.check("sh", "-ec", f"ip link set {self.physical} up; echo 1 >{device}/sriov_numvfs; ip link set {self.physical} vf 0 mac {VF_MAC}")
        self.addresses["igb"][0] = os.path.basename(self.check("readlink", f"{device}/virtfn0").strip())
        self.bind(self.addresses["igb"][0], "vfio-pci")
        self.await_carrier(1)

    def await_carrier(self, value):
        """Waits until the PF's link is up (1) or down (0)."""
        self.check("sh", "-c", f"until grep -q {value} /sys/class/net/{self.physical}/carrier; do sleep 0.2; done")


ROWS = [Row("VF: operations", lambda lab: lab.perf("--op write,read,send --size 64,4k", lab.configs()), ())]


def row(name):
    def add(function):
        ROWS.append(Row(name, function, ()))
        return function
    return add


def lose_function(lab, program):
    """Resets the VF's function, after which it moves no frame. The PF's driver then has no VF that is ready: its next message, at a change
    of the link, asks the VF to begin anew. Returns what is wrong."""
    device = f"/sys/bus/pci/devices/{lab.addresses[0]}"
    requests = program.output.count("asks for a reset")
    lab.guest.check("sh", "-c", f"echo 1 >{device}/reset")
    lab.guest.check("python3", "-c", SET_MAILBOX_VECTOR, f"{device}/resource0")
    for up in (False, True):
        lab.guest.qmp("set_link", name="igb0", up=up)
        lab.guest.await_carrier(int(up))
    until = time.monotonic() + HANG_S
    while program.output.count("asks for a reset") == requests:
        if program.poll() is not None or time.monotonic() > until:
            return f"the PMD does not ask for a reset: {tail(program)}"
        time.sleep(0.2)
    return ""


def reports(client):
    """The numbers of messages in the reports so far of ib_write_bw."""
    return [int(number) for number in re.findall(r"^ 16384 +(\d+) +[\d.]+ ", client.output, re.MULTILINE)]


@row("VF: its function is lost under load")
def function_lost(lab):
    """No QP is lost: the time-out is 4.3 s, with seven retries. The client reports at intervals; a failed message would end it."""
    command = ["stdbuf", "-oL", "ib_write_bw", "-d", "faultline0", "-F", "-u", "20", "-s", "16384", "-q", "2", "-t", "8", "--run_infinitely",
               "-D", str(REPORT_SECONDS)]
    run, configs = f"{lab.apps}/faultline-run", lab.configs()
    server = lab.popen([run, "--config", configs[0], "--", *command])
    if not lab.guest.await_listener(PERFTEST_PORT, server, HANG_S):
        return f"the server does not listen: {tail(server)}"
    client = lab.popen([run, "--config", configs[1], "--", *command, "127.0.0.1"])
    await_true(lambda: client.poll() is not None or reports(client), "a report")
    problem = lose_function(lab, server)
    if problem:
        return f"{problem}; client: {tail(client)}"
    # The next report may have messages from before the reset.
    count = len(reports(client)) + 1
    await_true(lambda: client.poll() is not None or any(reports(client)[count:]), "messages after the reset")
    if client.poll() is not None or server.poll() is not None:
        return f"messages {reports(client)}: client: {tail(client)}; server: {tail(server)}"
    print(f"nic: {lab.kind}: messages of each {REPORT_SECONDS} s: {reports(client)}", flush=True)
    return ""
