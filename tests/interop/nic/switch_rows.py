# SPDX-License-Identifier: BSD-3-Clause
"""Rows of the NIC lab in which faultline-switch owns the NIC: programs and the kernel share it and the host's address."""
import signal

from nic_guest import SLOW
from rows import HANG_S, Row, tail
from two_hosts import TwoHosts, await_true, is_true, pid_of

# Bytes of all programs between two looks: the slow NIC takes about ten seconds for them.
WINDOW_BYTES = 16 << 20
# Of half of the link.
FAIR, BESIDE_FLOOD = 0.9, 0.85

SWITCH_ROWS = []


def row(name, reduced=(), kinds=()):
    def add(function):
        SWITCH_ROWS.append(Row(name, function, reduced, kinds))
        return function
    return add


def sent_bytes(status, pids):
    by_pid = {seat["pid"]: seat["sent_bytes"] for seat in status["seats"]}
    return [by_pid.get(pid, 0) for pid in pids]


def shares(lab, queue_pairs):
    """Programs of host 1 write to host 0 at once, with so many QPs each. Returns the bytes that each sends while all do."""
    with TwoHosts(lab) as hosts:
        hosts.begin_talk()
        pairs = [hosts.writes(index, f"-s 65536 -q {count} -t 16 -D 5 --run_infinitely") for index, count in enumerate(queue_pairs)]
        pids = [pid_of(client) for _, client in pairs]
        await_true(lambda: min(sent_bytes(hosts.status(1), pids)) > 1 << 20, "every program sends")
        before, answers = sent_bytes(hosts.status(1), pids), hosts.answers()
        await_true(lambda: hosts.answers() >= answers + 10, "answers over TCP")

        def bytes_since():
            # A message in error ends its program.
            for client in (client for pair in pairs for client in pair if client.poll() is not None):
                raise RuntimeError(f"ib_write_bw: status {client.returncode}: {tail(client)}")
            return [late - early for early, late in zip(before, sent_bytes(hosts.status(1), pids))]

        await_true(lambda: sum(bytes_since()) >= WINDOW_BYTES, f"{WINDOW_BYTES} bytes on the link")
        sent = bytes_since()
        for client in (client for pair in pairs for client in pair):
            client.signal(signal.SIGKILL)
        total = hosts.end_talk()
        print(f"nic: {lab.kind}: programs with {queue_pairs} QPs send {sent} bytes; {total} right answers over TCP", flush=True)
        return sent


@row("a switch: two programs share the NIC fairly", kinds=(SLOW,))
def fair(lab):
    sent = shares(lab, [1, 1])
    least = min(sent) / (sum(sent) / 2)
    return "" if least >= FAIR else f"one has {least:.0%} of its share: {sent}"


@row("a switch: a flood leaves a program its share", kinds=(SLOW,))
def flood(lab):
    sent = shares(lab, [1, 8])
    least = sent[0] / (sum(sent) / 2)
    return "" if least >= BESIDE_FLOOD else f"next to a flood it has {least:.0%} of its share: {sent}"


def replace(hosts, side, number, writes):
    """Replaces a switch while ib_write_bw runs; returns what is wrong."""
    server, client = writes
    pid = pid_of(client)
    await_true(lambda: sent_bytes(hosts.status(1), [pid])[0] > 1 << 18, "traffic")
    before = hosts.seats(side)
    if client.poll() is not None:
        return "ib_write_bw ended before the switch"
    hosts.replace_switch(side, number)
    switch = hosts.switches[side]
    if not is_true(lambda: all(f"process {process} has port {seat}" in switch.output for process, seat, _, _ in before)):
        return f"not all of {before} have their seats again: {tail(switch)}; ib_write_bw: {tail(client)}"
    seats = hosts.seats(side)
    if seats != before:
        return f"seats {seats} instead of {before}"
    answers = hosts.answers()
    if not is_true(lambda: hosts.answers() > answers + 10):
        return f"{hosts.answers() - answers} answers over TCP afterwards"
    sent = sent_bytes(hosts.status(1), [pid])[0]
    ended = [process for process in (client, server) if not is_true(
        lambda: process.poll() is not None or sent_bytes(hosts.status(1), [pid])[0] > sent + (1 << 18)) or process.poll() is not None]
    for process in (client, server):
        process.signal(signal.SIGKILL)
        process.wait()
    if ended:
        return f"ib_write_bw does not go on: status {ended[0].returncode}: {tail(ended[0])}"
    print(f"nic: {hosts.lab.kind}: signal {int(number)}: the programs have their seats again", flush=True)
    return ""


@row("a switch: killed and replaced under load")
def replaced(lab):
    """No QP is lost: ib_write_bw sends on, and a message in error would end it. Its QPs have a time-out of 4.3 s and seven retries, since
    an emulated machine starts a switch slowly. TCP of the kernels goes on too."""
    with TwoHosts(lab) as hosts:
        hosts.begin_talk()
        for index, (side, number) in enumerate(((1, signal.SIGKILL), (0, signal.SIGTERM))):
            problem = replace(hosts, side, number, hosts.writes(index, f"-s 16384 -q 2 -t 8 -D 5 --run_infinitely"))
            if problem:
                return f"signal {int(number)} to the switch of host {side}: {problem}"
        print(f"nic: {lab.kind}: {hosts.end_talk()} right answers over TCP", flush=True)
        return ""


@row("a switch waits for the NIC of one that ends", reduced=("virtio",))
def waits_for_nic(lab):
    """The kernel may still release the VFIO group of a killed switch when the next one starts."""
    with TwoHosts(lab) as hosts:
        hosts.switches[1].signal(signal.SIGKILL)
        hosts.switches[1].wait(HANG_S)
        group = lab.guest.vfio_group(lab.addresses[1])
        holder = lab.popen(["sh", "-c", f"exec 9<>/dev/vfio/{group}; echo holds; exec sleep 1000"])
        if not holder.await_output("holds", HANG_S):
            return f"no process holds the group: {tail(holder)}"
        refused = lab.popen(hosts.switch_words(1))
        line = f"another process has /dev/vfio/{group}, the VFIO group of {lab.addresses[1]}: end that one"
        if refused.wait(HANG_S) != 2 or line not in refused.output:
            return f"a switch whose NIC another process keeps: status {refused.returncode}: {tail(refused)}"
        switch = hosts.switches[1] = lab.popen(hosts.switch_words(1))
        if not switch.await_output("waits for", HANG_S):
            return f"the switch does not wait: status {switch.returncode}: {tail(switch)}"
        holder.signal(signal.SIGKILL)
        hosts.await_switch(1)
        return ""
