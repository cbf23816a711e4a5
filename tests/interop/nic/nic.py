#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The NIC lab: Faultline on emulated PCI NICs by vfio-pci, behind an emulated IOMMU, in a guest. Two processes of the guest meet over
two NICs of a kind; every transfer is verified. In some rows faultline-switch owns the NICs. Without --reduced, and as root: a NIC with two
queues; the Linux kernel's Soft-RoCE as the peer, in a second guest.

    nic.py FAULTLINE_RUN [--reduced] [REGULAR EXPRESSION]
"""
import os
import re
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, f"{HERE}/../kernel")
import bridged  # noqa: E402
import nic_guest  # noqa: E402
import vf  # noqa: E402
from rows import ROWS, Lab  # noqa: E402
from switch_rows import SWITCH_ROWS  # noqa: E402
from guest.lane import run_lane  # noqa: E402
from tally import Tally, lane_parser  # noqa: E402

# One kind whose PMD drives registers, one whose PMD shares rings with the host.
REDUCED_KINDS = ("e1000e", "virtio")


def main():
    parser = lane_parser(__doc__)
    arguments = parser.parse_intermixed_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tally = Tally("nic")
    kinds = [kind for kind in nic_guest.KINDS if not arguments.reduced or kind in REDUCED_KINDS]
    nic_guest.image()  # skips before anything is set up
    for kind in kinds[:]:
        if not nic_guest.program_for(kind, may_fetch=not arguments.reduced):
            kinds.remove(kind)
            print(f"nic: no QEMU with {kind}: its rows are left out", flush=True)
    # The last of ROWS removes the NICs.
    wanted = [(kind, row) for kind in [*kinds, nic_guest.SLOW] for row in [*ROWS[:-1], *SWITCH_ROWS, ROWS[-1]]
              if kind in (row.kinds or kinds) and (not arguments.reduced or kind in row.reduced)
              and re.search(arguments.wanted, f"{kind} {row.name}")]
    # igb, the last kind, may need another QEMU.
    for some in ([*(kind for kind in kinds if kind != "igb"), nic_guest.SLOW], [kind for kind in kinds if kind == "igb"]):
        rows = [pair for pair in wanted if pair[0] in some]
        if rows:
            run_rows(tally, nic_guest.NicGuest([kind for kind in some if kind in {kind for kind, _ in rows}]), rows, arguments.faultline_run)
    rows = [("igb", row) for row in vf.ROWS if "igb" in kinds and re.search(arguments.wanted, f"igb {row.name}")]
    if rows:
        run_rows(tally, vf.VfGuest(["igb"]), rows, arguments.faultline_run)
    if not arguments.reduced:
        bridged.run(tally, arguments.faultline_run, kinds, arguments.wanted.pattern)
    tally.finish()


def run_rows(tally, guest, wanted, faultline_run):
    with guest:
        print(f"nic: Linux {guest.release}, {guest.addresses}", flush=True)
        lab = Lab(guest, faultline_run)
        for kind, row in wanted:
            name = f"{kind} {row.name}"
            try:
                lab.begin(kind)
                problem = row.run(lab)
            except subprocess.TimeoutExpired as error:
                problem = f"no end after {error.timeout:.0f} s: {error.cmd}"
            except (RuntimeError, OSError) as error:
                problem = str(error)
            finally:
                lab.end()
            if problem:
                tally.fail(name, problem)
            else:
                tally.ok(name)
            if guest.gone:
                tally.fail(name, "the guest is gone")
                break


run_lane(main)
