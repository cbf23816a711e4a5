# SPDX-License-Identifier: BSD-3-Clause
"""One end of a stream between Faultline and the kernel. Every byte is compared, in both directions; the same file at both ends
(verbs_side.py). Faultline's end prints the facts that a spoofer needs to know. Then it prints its progress and its device's counters
at intervals, until the file `stop` exists.
"""
import json
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import verbs_side  # noqa: E402

WRITE_BYTES = 8192
SEND_BYTES = 4096
REPORT_EVERY_S = 0.3


def pattern(number, active, length):
    word = (number * 2 + active + 1).to_bytes(4, "little")
    return (word * (length // 4 + 1))[:length]


def difference(what, found, expected):
    """Describes the first difference; "" if there is none."""
    if found == expected:
        return ""
    wrong = [at for at in range(len(expected)) if found[at] != expected[at]]
    return (f"{what}: {len(wrong)} bytes are wrong, from {wrong[0]} to {wrong[-1]}: {found[wrong[0]:wrong[0] + 8].hex()} for "
            f"{expected[wrong[0]:wrong[0] + 8].hex()}")


def play_round(side, number):
    """Both ends write and send at once. Returns the error, or nothing."""
    active = side.link.active
    side.regions["source"].write(0, pattern(number, active, WRITE_BYTES))
    side.regions["source"].write(WRITE_BYTES, pattern(~number & 0xFFFF, active, SEND_BYTES))
    side.recv("target", WRITE_BYTES, SEND_BYTES)
    side.barrier()
    side.post("rdma_write", "source", 0, WRITE_BYTES, *side.remote("target"))
    side.post("send", "source", WRITE_BYTES, SEND_BYTES)
    done = side.wait(3, verbs_side.HANG_S)
    if len(done) != 3 or any(completion.status for completion in done):
        return f"completions: {verbs_side.describe(done)}"
    side.barrier()  # the other's WRITE has been acknowledged
    return difference("WRITE", side.regions["target"].read(0, WRITE_BYTES), pattern(number, not active, WRITE_BYTES)) or difference(
        "SEND", side.regions["target"].read(WRITE_BYTES, SEND_BYTES), pattern(~number & 0xFFFF, not active, SEND_BYTES))


def main():
    link, settings = verbs_side.arguments()
    # On-demand memory at Faultline's end only: Linux 7.3.4 acknowledges a WRITE of several packets to its own fresh on-demand pages, but
    # only
    # the first packet of each page arrives there, although all were right on the wire. This happens without hostile frames.
    side = verbs_side.Side(link, verbs_side.Device(), gid=settings["addresses"]["peer" if link.active else "ours"],
                           odp=settings["odp"] and not link.active)
    side.connect()
    ours = not link.active
    if ours:
        rkey, address, length = side.about()["regions"]["target"]
        print(json.dumps(dict(qpn=side.qp.qp_num, peer_qpn=side.peer["qpn"], request_psn=side.peer["psn"], answer_psn=side.psn,
                              rkey=rkey, va=address, bytes=length)), flush=True)
    number, reported_s = 0, 0.0
    while True:
        wrong = play_round(side, number)
        number += 1
        if wrong:
            print(json.dumps(dict(wrong=f"round {number}: {wrong}")), flush=True)
            sys.exit(1)
        if ours and time.monotonic() - reported_s > REPORT_EVERY_S:
            reported_s = time.monotonic()
            print(json.dumps(dict(rounds=number, counters=side.device.counters())), flush=True)
        stop = ours and os.path.exists(settings["stop"])
        if side.exchange(stop) or stop:
            break
    print(json.dumps(dict(ended=number)), flush=True)


main()
