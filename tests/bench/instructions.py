#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Instructions per message, stage by stage: runs ring_bench under callgrind and sorts the counts.

    tests/bench/instructions.py [--build build/plain] [--run 'rc_write/bytes:64/qps:1']
    tests/bench/instructions.py --check tests/bench/instructions.json     (scripts/test does it)

A stage is the functions named below, with all their callees that belong to no other stage. Instruction counts repeat to a few in a
thousand, independent of the machine's load: a machine under load takes more turns, so the poll of the port belongs to the turn. The side "fault" is
the service of a minor fault without the pins, which the pager's threads share with it by turns.
valgrind's CPU has no AVX-512: code that is selected by CPU is counted in its AVX2 form.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

# Of one side of a message.
MOST_CHANGE = {"send": 0.02, "receive": 0.02, "turn": 0.03, "fault": 0.03}
# A loaded machine takes more turns that find nothing, and the engine leaves more services to the pager's threads half-way: both lower the
# mean. Only growth counts.
LOWERED_BY_LOAD = {"turn", "fault"}

# (side, stage, functions that begin it). The first match applies.
STAGES = [
    ("fault", "request and service", r"Requester::hold_for|Responder::miss"),
    ("send", "post_send", r"verbs::post_send\("),
    ("send", "doorbell", r"Core::ring_doorbell|Impl::take_doorbells"),
    ("send", "request: start, fields, bookkeeping", r"Requester::(send|start|prepare|skip_acknowledged|has_work|prefault)|TxBatch::|Datagram::(send|has_work|complete)"),
    ("send", "headers", r"FrameTemplate::write_headers|write_extended"),
    ("send", "gather, memory access, copy", r"transport::gather_list|DomainSession::read(_with_crc)?\("),
    ("send", "seal: pad and ICRC", r"FrameTemplate::seal"),
    ("send", "buffers", r"TxPath::allocate"),
    ("send", "transmit", r"TxPath::(transmit|route|impair|capture|put)"),
    ("receive", "filter", r"PollEngine::(distribute|admit|process)|classify|AddressFilter::"),
    ("receive", "parse", r"wire::parse\(|Impl::parse"),
    ("receive", "prefetch, burst", r"Core::on_packets|Impl::prefetch"),
    ("receive", "ICRC", r"wire::icrc_matches"),
    ("receive", "QP lookup, guard ladder", r"Impl::on_frame|Impl::on_connected"),
    ("receive", "responder", r"Responder::(on_request|execute|finish|queue|may_read|has_room|settle|is_enabled|find_shared)|take_receive|peek_receive|take_peeked|Datagram::(on_packet|deliver)|complete_receive|complete_inbound"),
    ("receive", "scatter, memory access, copy", r"transport::scatter_list|DomainSession::(write|check|probe)\("),
    ("receive", "answer or ACK", r"Responder::(send|ack_syndrome|offer|has_work)"),
    ("receive", "buffers back", r"TxPath::release|rte_pktmbuf_free_bulk"),
    ("send", "acknowledged: completion", r"Requester::(on_|acknowledge|complete|note_|catch_up|take_credits|arm_ack)|CoreContext::(complete_send|push)"),
    ("send", "poll_cq", r"verbs::poll_cq"),
    ("receive", "post_recv", r"verbs::post_recv"),
    ("turn", "turns", r"has_completions|RunningDevice::drive|PollEngine::(turn|receive)|Core::poll|Impl::(serve|run_timers|take_resolutions)|TimerWheel|DomainSession::(enter|leave)|ReadyList::(add|append|pop)"),
]


def profile(program, run):
    """Returns self costs by function, inclusive costs by caller and callee, and the number of calls of each function."""
    own, edges, calls = collections.Counter(), collections.Counter(), collections.Counter()
    names = {}

    def name_of(text):
        number, name = re.match(r"\((\d+)\)(?: (.*))?$", text).groups()
        if name is not None:
            names[number] = name
        return names[number]

    with tempfile.TemporaryDirectory(prefix="fl-") as folder:
        out = os.path.join(folder, "callgrind")
        subprocess.run(
            ["valgrind", "--tool=callgrind", "--toggle-collect=*run_batch*", f"--callgrind-out-file={out}", program,
             f"--benchmark_filter={run}$", "--benchmark_min_time=0.2"],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=1800)
        function = callee = None
        after_calls = False
        with open(out) as file:
            for line in file:
                if line.startswith("fn="):
                    function = name_of(line[3:].rstrip())
                elif line.startswith("cfn="):
                    callee = name_of(line[4:].rstrip())
                elif line.startswith("calls="):
                    calls[callee] += int(line[6:].split()[0])
                    after_calls = True
                elif line[0] in "0123456789+-*":
                    cost = int(line.split()[1])
                    if after_calls:
                        edges[function, callee] += cost
                    else:
                        own[function] += cost
                    after_calls = False
    return own, edges, calls


def measure(program, run):
    """Prints the stages of a run; returns the instructions per message by side, and those of a turn."""
    own, edges, calls = profile(program, run)

    def stage_of(name):
        return next((i for i, stage in enumerate(STAGES) if re.search(stage[2], name)), None)

    def count(pattern):
        return max((n for name, n in calls.items() if re.search(pattern, name)), default=0)

    messages = sum(count(rf"DomainSession::{name}\(") for name in ("read", "read_with_crc"))  # each packet is gathered once
    turns = count(r"PollEngine::turn")
    stages = collections.Counter()
    for name, cost in own.items():
        if (stage := stage_of(name)) is not None:
            stages[stage] += cost
    for (caller, callee), cost in edges.items():
        if (stage := stage_of(caller)) is not None and stage_of(callee) is None:
            stages[stage] += cost
    print(f"{run}: {messages} messages, {turns} turns")
    print("| side | stage | instructions |")
    print("|---|---|---|")
    sums = collections.Counter()
    for i, (side, stage, _) in enumerate(STAGES):
        if not stages[i] or side == "fault" and "fault" not in run:  # of the first round alone
            continue
        if side == "turn":
            print(f"| both | a turn, by itself | {stages[i] / turns:.0f} a turn |")
            continue
        sums[side] += stages[i]
        print(f"| {side} | {stage} | {stages[i] / messages:.0f} |")
    totals = {side: round(total / messages) for side, total in sums.items()}
    for side, total in totals.items():
        print(f"| {side} | together | {total} |")
    if "fault" not in totals:
        turn = sum(stages[i] for i, (side, _, _) in enumerate(STAGES) if side == "turn") / turns
        return totals | {"turn": round(turn), "messages a turn": messages / turns}
    # The engine leaves some faults to the pager's threads: a service that it completes, whatever their number. They also pin its pages
    # later, or it pins what they have released: how often differs from run to run, by half of a service's instructions.
    service, pins = r"ShortFaults::serve\(", r"PinTable::(pin_absent_pages|pin_later)\("

    def inclusive(function):
        return sum(cost for (caller, callee), cost in edges.items() if re.search(function, callee) and not re.search(function, caller))

    per_service = round((inclusive(service) - inclusive(pins)) / count(service))
    print(f"| fault | a service on the engine's thread | {per_service} |")
    return {"fault": per_service}


def wanted(side, expected, found):
    """The count in the file. A turn costs by itself, and a little for each of its messages."""
    if side != "turn":
        return expected[side]
    return expected["turn"]["each"] + expected["turn"]["message"] * found["messages a turn"]


def exceeds(side, change):
    return (change if side in LOWERED_BY_LOAD else abs(change)) > MOST_CHANGE[side]


def has_swap():
    return len(pathlib.Path("/proc/swaps").read_text().splitlines()) > 1


def check(program, path):
    """Compares each run of the file with a new one; returns the complaints."""
    complaints = []
    for run, expected in json.loads(pathlib.Path(path).read_text()).items():
        if "fault" in expected and has_swap():
            # Where a page can be swapped out, the service looks for it in swap: a fifth more instructions.
            print(f"{run}: left out, as this machine has swap")
            continue

        def changes():
            found = measure(program, run)
            return {side: found.get(side, 0) / wanted(side, expected, found) - 1 for side in expected}

        change = changes()
        if any(exceeds(side, change[side]) for side in expected):
            # Threads of the process that got a CPU in between have taken a part of the work.
            several = [change] + [changes() for _ in range(4)]
            change = {side: statistics.median(each[side] for each in several) for side in expected}
        for side in expected:
            print(f"{run}, {side}: {change[side]:+.1%} against {expected[side]} expected")
            if exceeds(side, change[side]):
                complaints.append(f"{run}: {side}: {change[side]:+.1%} against {path}, in the median of five; "
                                  "a commit that changes the count writes it there and says why")
    return complaints


def rewritten(program, run, expected):
    """The run's counts anew. A turn's share for a message is kept: it takes runs under different loads to measure it."""
    found = measure(program, run)
    message = expected.get("turn", {}).get("message", 0)
    each = {"turn": {"each": round(found["turn"] - message * found["messages a turn"]), "message": message}} if "turn" in expected else {}
    return {side: found[side] for side in expected if side != "turn"} | each


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/plain")
    parser.add_argument("--run", default="rc_write/bytes:64/qps:1", help="one of ring_bench's benchmarks")
    parser.add_argument("--check", metavar="FILE", help="compare with the counts in this file")
    parser.add_argument("--write", metavar="FILE", help="write the counts of this file's runs anew")
    arguments = parser.parse_args()
    program = os.path.join(arguments.build, "tests", "bench", "ring_bench")
    if not os.access(program, os.X_OK):
        sys.exit(f"{program} is not there: build first, or name the build folder with --build")
    if arguments.write:
        path = pathlib.Path(arguments.write)
        counts = {run: rewritten(program, run, expected) for run, expected in json.loads(path.read_text()).items()}
        path.write_text(json.dumps(counts, indent=2) + "\n")
    elif arguments.check:
        complaints = check(program, arguments.check)
        print("\n".join(complaints))
        sys.exit(1 if complaints else 0)
    else:
        measure(program, arguments.run)


if __name__ == "__main__":
    main()
