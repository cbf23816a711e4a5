#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Instructions of a message over two emulated NICs of a guest, beside those of DPDK's testpmd, which forwards frames between them. The
guest's clock counts instructions (QEMU's -icount), so the load of this machine does not matter; devices cost nothing.

    instructions.py FAULTLINE_RUN [--profile OPERATION]... [KIND...]      default: e1000e virtio

One CPU does both ends of a message, each on a thread that polls, and testpmd's receipt and transmission of one frame. The CPU never
rests, so turns without a frame count too. --profile prints where an operation's instructions are, by samples of the guest's clock: of
each thread, and of each function. A datagram that the receiver loses counts as well; the losses are printed.
"""
import argparse
import glob
import os
import re
import sys
import time

sys.dont_write_bytecode = True
# Before the import: an emulator that counts has one thread.
os.environ["FAULTLINE_PEER_ACCEL"] = "tcg,thread=single,tb-size=256"
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
import nic_guest  # noqa: E402
from rows import SIDES, Lab, tail  # noqa: E402

INSTRUCTIONS_A_SECOND = 500e6  # shift=1
PMDS = {"e1000e": "net_e1000", "igb": "net_e1000", "virtio": "net_virtio", "vmxnet3": "net_vmxnet3"}
OPERATIONS = ("ud_send", "write", "send", "read")
# The time of the program's start, which a profile leaves out.
START_MS = 1500
# A UDP datagram of 64 bytes of payload.
FRAME_BYTES = 126
TIMEOUT_S = 300
# Each number is the best of these reports of testpmd.
REPORTS = 6


def testpmd(guest, kind):
    """The frames that testpmd forwards in a second, between both NICs, on one lcore."""
    folder = sorted(glob.glob("/usr/lib/*/dpdk/pmds-*"))[-1]
    plugins = sum((["-d", f"{folder}/librte_{name}.so"] for name in ("bus_pci", "mempool_ring", "mempool_stack", PMDS[kind])), [])
    command = ["dpdk-testpmd", *plugins, "--in-memory", "-m", "192", "--lcores=0@0,1@0", "--no-telemetry",
               *sum((["-a", address] for address in guest.addresses[kind]), []),
               "--", "--forward-mode=io", f"--txpkts={FRAME_BYTES}", "--nb-cores=1", "--total-num-mbufs=8192", "--rxd=1024", "--txd=1024",
               "--burst=512" if kind == "virtio" else "--burst=32", "--auto-start", "--tx-first", "--stats-period", "1"]
    process = guest.popen(["sh", "-c", 'exec "$0" "$@" </dev/null', *command])
    until = time.monotonic() + TIMEOUT_S
    while process.output.count("Rx-pps") < 2 * REPORTS and process.poll() is None and time.monotonic() < until:
        time.sleep(0.2)
    process.signal(9)
    process.wait(TIMEOUT_S)
    # Two ports a report.
    rates = [int(rate) for rate in re.findall(r"Rx-pps: +(\d+)", process.output)]
    if len(rates) < 2 * REPORTS:
        raise RuntimeError(f"testpmd: {tail(process, 12)}")
    return max(rates[i] + rates[i + 1] for i in range(2, len(rates) - 1, 2))


def both(lab, words, before=()):
    """faultline-perf with both ends in one process; returns the process when it has ended."""
    path = f"{lab.folder}/both.toml"
    devices = "".join(f'[[device]]\nname = "faultline{side}"\nip = "{SIDES[side]}/24"\n[device.port]\nkind = "pci"\n'
                      f'address = "{lab.addresses[side]}"\n' for side in (0, 1))
    lab.guest.write(path, f"[eal]\nhuge_pages = true\nmemory_mib = 384\n{devices}")
    process = lab.popen([f"{lab.apps}/faultline-perf", "--config", path, "--both", "--", *words.split()], before)
    if process.wait(TIMEOUT_S) != 0:
        raise RuntimeError(f"faultline-perf: status {process.returncode}: {tail(process)}")
    return process


# Parts of a message, by object or function. The first match applies.
PARTS = [
    ("start of the program", r"folio_zero_user|clear_page"),
    ("kernel", r"\[k\]"),
    ("PMD", r"\] (eth_|em_|igb_|e1000|virtio|virtqueue|vmxnet3|vq_|rte_)"),
    ("ICRC", r"crc|narrow_ipv"),
    ("transport", r"faultline::transport::"),
    ("frames: parse, address filter", r"faultline::wire::"),
    ("memory access", r"faultline::odp::"),
    ("turns", r"faultline::glue::"),
    ("verbs", r"faultline::verbs::|ibv_"),
    ("the measuring program", r"^faultline-perf"),
]


def profile(lab, operation, rate):
    """Prints the instructions of each part of a message and of each thread, and the functions that have most of them."""
    record = f"{lab.folder}/perf.data"
    both(lab, f"--op {operation} --size 64 --seconds 3", ["perf", "record", "-q", "-D", str(START_MS), "-e", "cpu-clock", "-c", "100000", "-o", record])

    def by(sort):
        return re.findall(r"^ +([\d.]+)% +(.*)", lab.guest.check("perf", "report", "-q", "--stdio", "-i", record, "--sort", sort), re.MULTILINE)

    shares, functions = {}, []
    for percent, text in by("dso,symbol"):
        text = " ".join(text.split()).removesuffix(" - -")
        part = next((name for name, pattern in PARTS if re.search(pattern, text)), "C library, loader")
        shares[part] = shares.get(part, 0) + float(percent)
        functions.append((float(percent), text))
    shares.pop(PARTS[0][0], None)
    each = INSTRUCTIONS_A_SECOND / rate / sum(shares.values())
    for part, share in sorted(shares.items(), key=lambda row: -row[1]):
        print(f"  {part}: {share * each:.0f}")
    for percent, thread in by("pid"):
        if float(percent) > 1:
            print(f"  thread {thread.strip()}: {float(percent) * each:.0f}")
    for percent, text in [row for row in functions if not re.search(PARTS[0][1], row[1])][:25]:
        print(f"    {percent * each:5.0f} {text}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faultline_run")
    parser.add_argument("--profile", metavar="OPERATION", choices=OPERATIONS, action="append", default=[])
    parser.add_argument("kinds", nargs="*", default=["e1000e", "virtio"])
    arguments = parser.parse_intermixed_args()
    nic_guest.image()  # skips before anything is set up
    with nic_guest.NicGuest(arguments.kinds, counts=True) as guest:
        lab = Lab(guest, arguments.faultline_run)
        for kind in arguments.kinds:
            lab.begin(kind)
            frames = testpmd(guest, kind)
            print(f"{kind}: testpmd: {INSTRUCTIONS_A_SECOND / frames:.0f} instructions a frame", flush=True)
            for operation in OPERATIONS:
                output = both(lab, f"--op {operation} --size 64 --seconds 0.5").output
                found = re.search(rf"^{operation} +bw .*", output, re.MULTILINE)
                # op mode size qps depth mtu region touch messages/s
                rate = int(found.group(0).split()[8])
                print(f"{kind}: {operation}: {INSTRUCTIONS_A_SECOND / rate:.0f} instructions a message", *re.findall(r"\d+ of \d+ datagrams arrived", output), flush=True)
                if operation in arguments.profile:
                    profile(lab, operation, rate)


main()
