# SPDX-License-Identifier: BSD-3-Clause
"""What needs a bridge of this machine, and so root: NICs with several queues, and the kernel as the peer (kernel_peer.py)."""
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, f"{HERE}/../kernel")
import kernel_peer  # noqa: E402
from nic_guest import NicGuest  # noqa: E402
from rows import HANG_S, PERF_PORT, Lab, tail  # noqa: E402
from testbed.testbed import Testbed  # noqa: E402

# Of the frames that a NIC with two queues receives, those that must come to the core that owns their QP. It is half without steering.
# Two QPs of different cores that share an entry of the NIC's table (of 128) cost some of the rest.
RIGHT_CORE = 0.9
WARM_UP_FRAMES, COUNTED_FRAMES = 8000, 4000
# A NIC on a hub has one queue, unless it is a whole NIC that the emulator models.
KINDS_WITH_QUEUES = ("virtio", "igb")


def frames_of(output):
    """At each "show stats": the frames that the device received, and those of them that it handed to another core."""
    blocks = re.split("messages (?:so far|of the last run)", output)[1:]

    def number(name, block):
        found = re.search(rf"{re.escape(name)} +(\d+)", block)
        return int(found.group(1)) if found else 0

    return [(number("port.rx_frames", block), number("port.handed_over", block)) for block in blocks]


def two_queues(guest, kind, faultline_run):
    """16 QPs of a device with two lcores. Counts frames after the first thousands, by which the NIC's redirection table has changed. Few
    messages are under way: four threads poll on the CPUs of a busy machine, and longer queues would end in retransmissions."""
    lab = Lab(guest, faultline_run)
    lab.begin(kind)
    commands = f"{lab.folder}/commands"
    try:
        configs = [lab.config(side, device=f'progress = "dedicated"\nlcores = [{2 * side}, {2 * side + 1}]') for side in (0, 1)]
        server = lab.serve(configs[0])
        guest.write(commands, "start\n")
        client = lab.popen(["sh", "-c", f'tail -n +1 -f {commands} | "$0" "$@"', f"{lab.apps}/faultline-perf", "--config", configs[1],
                            "--client", "127.0.0.1", "--port", str(PERF_PORT), "--", "--op", "write", "--size", "64", "--qps", "16",
                            "--depth", "2", "-i"])
        until = time.monotonic() + HANG_S
        stats = [(0, 0)]
        first = None
        while time.monotonic() < until and "the run failed" not in client.output:
            time.sleep(3)
            guest.check("sh", "-c", f"echo show stats >>{commands}")
            stats = frames_of(client.output) or stats
            if first is None and stats[-1][0] >= WARM_UP_FRAMES:
                first = stats[-1]
            if first and stats[-1][0] >= first[0] + COUNTED_FRAMES:
                break
        else:
            return f"{stats[-1][0]} frames in {HANG_S} s: {tail(client, 20)}; server: {tail(server)}", ""
        received, handed_over = (after - before for before, after in zip(first, stats[-1]))
        right = f"{1 - handed_over / received:.1%} of {received} frames come to the right core"
        return ("" if handed_over <= received * (1 - RIGHT_CORE) else right), right
    finally:
        lab.end()


def run(tally, faultline_run, kinds, wanted):
    if os.geteuid() != 0:
        print("nic: the rows on a bridge need root: left out", flush=True)
        return
    for kind in kinds:
        name = f"{kind} two queues, 16 QPs"
        if kind in KINDS_WITH_QUEUES and re.search(wanted, name):
            try:
                with Testbed(faultline_run, "nic", "pci", with_peer=False) as testbed:
                    with NicGuest([kind], bridge=(testbed.namespace, "fl-bridge"), queues=2) as guest:
                        problem, note = two_queues(guest, kind, faultline_run)
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                problem, note = f"the guest did not start or end: {error}", ""
            if problem:
                tally.fail(name, problem)
            else:
                tally.ok(name, note)
    kernel_peer.run(tally, faultline_run, kinds, wanted)
