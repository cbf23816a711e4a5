#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A process of a wire writes garbage into all memory that it shares, and sends wrong requests: to the switch, to its direct peers, and as the
switch to a program. Only the link with this process ends. An honest pair goes on beside it, and the switch stays the same process.
With FAULTLINE_SOAK: 10^6 bursts of garbage into the ring with the switch, and as many into direct links.
  hostile_wire_test.py FAULTLINE_RUN
"""
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path[:0] = [os.path.dirname(os.path.realpath(__file__)), os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../..")]
import wire_peer  # noqa: E402
from free_port import free_port  # noqa: E402  (tests/)
from hostile_switch import HostileSwitch  # noqa: E402
from lib import LIMIT_S  # noqa: E402
from wire_peer import TO_SERVER, Process  # noqa: E402

run, = sys.argv[1:]
if shutil.which("ibv_rc_pingpong") is None:
    print("SKIPPED: ibv_rc_pingpong is not installed")
    sys.exit(77)
SOAK = bool(os.environ.get("FAULTLINE_SOAK"))
BURSTS = 1_000_000 if SOAK else 300
chance = random.Random(os.environ.get("FAULTLINE_SEED", 1))
folder = tempfile.mkdtemp()
os.chmod(folder, 0o700)
# The second is where EAL's telemetry sockets are, of the superuser too.
environment = dict(os.environ, XDG_RUNTIME_DIR=folder, RUNTIME_DIRECTORY=folder)
wire = f"hostile{os.getpid()}"
control = f"{folder}/faultline/{wire}.control"
VICTIM = wire_peer.number_of("198.18.0.1")
running = []


def fail(what):
    print("FAILED:", what)
    for process in running:
        print("---", process.args[3:], process.poll())
        print(output_of(process)[-2000:])
    sys.exit(1)


def start(*arguments, on=wire):
    output = open(f"{folder}/{len(os.listdir(folder))}.{time.monotonic_ns()}", "w+")
    process = subprocess.Popen([run, "--wire", on, *arguments], stdout=output, stderr=subprocess.STDOUT, env=environment)
    process.output = output
    running.append(process)
    return process


def end(process):
    if process.poll() is None:
        process.kill()
    process.wait()
    process.output.close()
    running.remove(process)


def output_of(process):
    with open(process.output.name) as output:
        return output.read()


def await_that(what, true):
    until = time.monotonic() + LIMIT_S
    pause = 0.0005
    while not (found := true()):
        if time.monotonic() > until:
            fail(what)
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return found


def listens(port):
    wanted = f":{port:04X} "
    with open("/proc/net/tcp") as v4, open("/proc/net/tcp6") as v6:
        return any(wanted in line and " 0A " in line for line in [*v4, *v6])


def start_server(*arguments, where=(), on=wire):
    port = free_port()
    server = start(*where, "--", "ibv_rc_pingpong", "-g", "0", "-p", str(port), *arguments, on=on)
    await_that("a server does not start", lambda: listens(port) or server.poll() is not None)
    return server, port


class Honest:
    """A pair that runs all the time, and anew when it is done. Each byte is compared."""

    def __init__(self):
        self.runs = 0
        self.begin()

    def begin(self):
        words = "-e", "-c", "-n", "10000"
        server, port = start_server(*words)
        self.pair = server, start("--", "ibv_rc_pingpong", "-g", "0", "-p", str(port), *words, "127.0.0.1")

    def finish(self, what):
        for process in self.pair:
            await_that(f"{what}: the honest pair hangs", lambda: process.poll() is not None)
        if any(process.returncode != 0 for process in self.pair):
            fail(f"{what}: the honest pair ended")
        for process in self.pair:
            end(process)
        self.runs += 1

    def look(self, what):
        if any(process.poll() is not None for process in self.pair):
            self.finish(what)
            self.begin()


def switch():
    found = subprocess.run(["pgrep", "-u", str(os.getuid()), "-f", "--", f"faultline-switch --wire {wire} "], capture_output=True,
                           text=True).stdout.split()
    return int(found[0]) if found else None


def violations(process):
    """What a program counts of it, by DPDK's telemetry."""
    sockets = f"{folder}/dpdk/faultline"
    for name in os.listdir(sockets):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as telemetry:
            try:
                telemetry.settimeout(LIMIT_S)
                telemetry.connect(f"{sockets}/{name}")
                pid, = struct.unpack_from("=i", telemetry.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                if pid != process.pid:
                    continue
                telemetry.recv(4096)
                telemetry.send(b"/faultline/counters,faultline0")
                return json.loads(telemetry.recv(65536))["/faultline/counters"]["port/peer_violations"]
            except OSError:
                continue
    return None


# ---- garbage in a ring ----
# Each writes what the other end must refuse. A client computes places by itself, so only a server reads them from the memory.


def advance(rings, by):
    rings.show(by)
    rings.inbox.ring(rings.own_seat)


def describe_all(rings, flags, region, length, offset):
    for slot in range(rings.size):
        rings.describe(TO_SERVER if rings.side == 0 else rings.to_client, slot, flags, region, length, offset)


def offset_beyond(rings):
    describe_all(rings, 0, 0, rings.shape.buffer_bytes + 1, 0xf0000000)
    advance(rings, 16)


def length_beyond(rings):
    describe_all(rings, 0, 0, 65535, rings.shape.bytes - 100)
    advance(rings, 16)


def length_that_overflows(rings):
    describe_all(rings, 0, 0, 0xffffffff, 1)
    advance(rings, 1)


def other_region(rings):
    describe_all(rings, 0, 77, rings.shape.buffer_bytes + 1, rings.shape.buffers)
    advance(rings, 16)


def index_beyond(rings):
    advance(rings, 40000)


def endless_chain(rings):
    describe_all(rings, 1, 0, 60, rings.shape.buffers)
    advance(rings, rings.size)


def random_bytes(rings):
    rings.fill(chance)
    describe_all(rings, 0, 9, 0xffffffff, 0xffffffff)
    advance(rings, 1)


ATTACKS = (offset_beyond, length_beyond, length_that_overflows, other_region, index_beyond, endless_chain, random_bytes)


def states(rings):
    """The words of both ends: they are hints, so none of them ends a ring."""
    for _ in range(50):
        rings.memory.store(wire_peer.END_BYTES * chance.randrange(2) + 4 * chance.randrange(16), chance.choice((0, 1, 2, 3, 0xffffffff)))
        rings.inbox.ring(rings.own_seat)


def attached(**fields):
    process = Process(control)
    granted = process.attach(**fields)
    if granted.error != 0:
        fail(f"no seat: {granted.line}")
    return process


def log_lines():
    with open(f"{folder}/faultline/{wire}.log") as log:
        return [line for line in log if "the ring of port" in line and "is closed: its process" in line]


def attack_seat_rings(honest):
    for attack in ATTACKS:
        process = attached()
        before = len(log_lines())
        attack(process.rings)
        await_that(f"{attack.__name__}: the switch does not close the ring", process.has_ended)
        if f"port {process.seat} " not in "".join(log_lines()[before:]):
            fail(f"{attack.__name__}: the switch writes no line")
        process.release()
    process = attached()
    states(process.rings)
    process.release()
    bursts = attachments = 0
    while bursts < BURSTS:
        process = attached()
        attachments += 1
        for _ in range(200):
            if process.has_ended():
                break
            process.rings.scribble(chance)
            bursts += 1
        process.release()
        if attachments % 1000 == 0:
            honest.look("garbage for the switch")
    print(f"ok: garbage in {attachments} rings with the switch, {bursts} bursts", flush=True)


def line_of(process):
    return f"the direct link to {wire_peer.text_of(process.ipv4)} is closed: its process"


def introduced(victim):
    process = attached()
    link = process.link_with(VICTIM)
    if link is None:
        fail("the switch makes no direct link")
    await_that("the victim does not take the link", lambda: link.other_state() == wire_peer.ATTACHED)
    process.mark(link)
    return process, link


def has_lost(process, link):
    process.look()
    return link.port in process.ended


def attack_link(victim, attack):
    """Expects one line and one count, and no other link of the pair."""
    process, link = introduced(victim)
    lines, counted = output_of(victim).count(line_of(process)), violations(victim)
    attack(process, link)
    await_that(f"{attack.__name__}: the victim does not close the link", lambda: has_lost(process, link))
    if output_of(victim).count(line_of(process)) != lines + 1:
        fail(f"{attack.__name__}: the victim does not write one line")
    await_that(f"{attack.__name__}: the victim does not count it", lambda: violations(victim) == counted + 1)
    if process.link_with(VICTIM) is not None:
        fail(f"{attack.__name__}: the pair has another link")
    process.release()
    if victim.poll() is not None:
        fail(f"{attack.__name__}: the victim ended")


def foreign_mac(process, link):
    link.send(wire_peer.roce_frame(b"\x02\x46\x01\x02\x03\x04", process.ipv4, VICTIM))


def foreign_address(process, link):
    link.send(wire_peer.roce_frame(process.mac, process.ipv4 ^ 1, VICTIM))


def management_datagram(process, link):
    link.send(process.frame(VICTIM, qpn=1, opcode=0x64, payload=bytes(8 + 256)))


def arp(process, link):
    link.send(wire_peer.arp_frame(process.mac, process.ipv4, VICTIM))


def runt(process, link):
    link.send(b"\x02")


def attack_idle_victim(honest):
    """The victim is the server of its links: the offender lays their rings out."""
    victim, _ = start_server(where=("--side", "a"))
    for attack in (foreign_mac, foreign_address, management_datagram, arp, runt):
        attack_link(victim, attack)
    honest.look("foreign frames")
    for attack in ATTACKS:
        def on_link(_, link, attack=attack):
            attack(link)
        on_link.__name__ = attack.__name__
        attack_link(victim, on_link)
    process, link = introduced(victim)
    states(link)
    process.release()
    honest.look("garbage in direct links")
    bursts = attachments = 0
    while bursts < BURSTS:
        process, link = introduced(victim)
        attachments += 1
        for _ in range(200):
            if has_lost(process, link):
                break
            link.scribble(chance)
            bursts += 1
            time.sleep(0.0002)
        process.release()
        if attachments % 1000 == 0:
            honest.look("garbage in direct links")
    if victim.poll() is not None:
        fail("the victim ended")
    print(f"ok: garbage in {attachments + len(ATTACKS) + 5} direct links, {bursts} bursts", flush=True)
    return victim


def attack_running_victim(attack):
    """A client of ibv_rc_pingpong, whose server the offender only pretends to be. The victim sends first, so it is the client of the link.
    Returns what to do once all of them are under way."""
    process = attached()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        victim = start("--", "ibv_rc_pingpong", "-g", "0", "-p", str(port), "127.0.0.1")
        listener.settimeout(LIMIT_S)
        connection, _ = listener.accept()
    with connection:
        connection.settimeout(LIMIT_S)
        size = len("0000:000000:000000:00000000000000000000000000000000") + 1
        connection.recv(size, socket.MSG_WAITALL)
        gid = bytes(10) + b"\xff\xff" + struct.pack("!I", process.ipv4)
        connection.sendall(f"0000:000123:000456:{gid.hex()}".encode() + b"\0")
        connection.recv(5, socket.MSG_WAITALL)
        await_that("the switch makes no link for a client", lambda: process.look() or process.links)
        link = process.take_link(next(iter(process.links)))
        if link.side != 1:
            fail("the first sender is not side 0 of its link")
        process.mark(link)
        attack(link)
        await_that(f"{attack.__name__}: the client does not close the link", lambda: has_lost(process, link))

    def finish():
        # It gets no answer to its frames, and ends by itself.
        await_that(f"{attack.__name__}: the client hangs", lambda: victim.poll() is not None)
        if victim.returncode != 1 or line_of(process) not in output_of(victim) or "retry counter exceeded" not in output_of(victim):
            fail(f"{attack.__name__}: the client ends with {victim.returncode}")
        process.release()
        end(victim)

    return finish


# ---- garbage in inboxes ----


def scribble_inboxes(victim, first):
    """A pair with a direct link needs neither of the two inboxes. A page that was written to is as before at the next look of its owner."""
    pair = Honest()
    await_that("the honest pair has no direct link",
               lambda: all("faultline-link" in maps_of(process) or process.poll() is not None for process in pair.pair))
    process, link = introduced(victim)
    until = time.monotonic() + (60 if SOAK else 1)
    while time.monotonic() < until:
        for _ in range(100):
            process.switch.scribble(chance)
            link.inbox.scribble(chance)
        pair.look("garbage in inboxes")
    # A doorbell that was lost.
    for rings in (process.rings, link):
        rings.put(process.frame(VICTIM))
        rings.show(0)
    await_that("frames without a doorbell stay in their rings", lambda: process.rings.is_taken() and link.is_taken())
    process.release()
    pair.finish("garbage in inboxes")
    if victim.poll() is not None or switch() != first:
        fail("garbage in an inbox ended its process")
    print("ok: garbage in inboxes", flush=True)


def maps_of(process):
    """The mappings of the program that faultline-run has become."""
    try:
        with open(f"/proc/{process.pid}/maps") as maps:
            return maps.read()
    except OSError:
        return ""


# ---- wrong requests ----


def refused(wanted, files, verb=wire_peer.ATTACH, **fields):
    process = Process(control)
    process.send(verb, files, **fields)
    answer = process.answer()
    if answer.error == 0 or wanted not in answer.line:
        fail(f"not refused with \"{wanted}\": {answer.error} {answer.line}")
    process.close()
    for file in files:
        os.close(file)


def wrong_descriptors():
    inbox, event = (lambda: wire_peer.memory_file(wire_peer.INBOX_BYTES)), wire_peer.event_file
    no_inbox = "gives no inbox"
    refused(no_inbox, ())
    refused(no_inbox, (inbox(),))
    refused(no_inbox, (inbox(), event(), event()))
    refused(no_inbox, (event(), inbox()))
    refused(no_inbox, (inbox(), *os.pipe()))
    refused(no_inbox, os.pipe())
    refused(no_inbox, (inbox(), os.eventfd(0, os.EFD_CLOEXEC)))
    refused(no_inbox, (wire_peer.memory_file(wire_peer.INBOX_BYTES, seals=0), event()))
    refused(no_inbox, (wire_peer.memory_file(wire_peer.INBOX_BYTES - 1), event()))
    refused(no_inbox, (os.open("/dev/zero", os.O_RDWR), event()))
    refused(no_inbox, (os.open(folder, os.O_TMPFILE | os.O_RDWR), event()))
    refused("for one more seat", (wire_peer.memory_file(wire_peer.INBOX_BYTES, seals=wire_peer.SEALS | wire_peer.fcntl.F_SEAL_WRITE), event()))
    writable = inbox()
    read_only = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY)
    os.close(writable)
    refused("for one more seat", (read_only, event()))


def wrong_links(victim):
    """Links of seats that are not there, of this one, and of pairs of others: each request concerns the requester's pairs alone."""
    refused("there is no such seat", (), verb=wire_peer.KEEP_LINK, port=1)
    process, link = introduced(victim)
    for verb in (wire_peer.KEEP_LINK, wire_peer.END_LINK, wire_peer.BAR_LINK, 77):
        for port in (process.seat, 1000, wire_peer.MOST_SEATS, wire_peer.MOST_SEATS + 1, 0x10001, 0xffffffff):
            process.send(verb, port=port)
            process.answer()
    process.send(wire_peer.ATTACH)
    if process.answer().error == 0:
        fail("a connection has two seats")
    for message in (b"", b"x", wire_peer.request_bytes(0, version=4), wire_peer.request_bytes(0) + b"x", wire_peer.request_bytes(0, magic=1)):
        stranger = Process(control)
        stranger.socket.send(message)
        await_that("the switch keeps a connection without sense", stranger.has_ended)
        stranger.close()
    # The switch reads all, and drops answers that nobody reads. Others get links to the victim meanwhile. Without a link there is nothing to
    # end, so the other one hears of one end only.
    listener = attached()
    listener.rings.send(listener.frame(process.ipv4))
    listener.settle()
    process.socket.setblocking(False)
    for number in range(200_000 if SOAK else 20_000):
        try:
            verb = wire_peer.END_LINK if number % 2 else wire_peer.BAR_LINK
            process.socket.send(wire_peer.request_bytes(verb, number, port=(link.port, listener.seat)[number // 2 % 2]))
        except BlockingIOError:
            time.sleep(0.0005)
        if number % 1000 == 0:
            other, other_link = introduced(victim)
            other_link.send(other.frame(VICTIM))
            await_that("the victim does not receive beside a flood of requests", other_link.is_taken)
            other.release()
    await_that("the end of a link is not reported", lambda: listener.look() or listener.ended)
    listener.send(wire_peer.LEAVE, group=bytes(16))
    listener.answer()
    if listener.heard != 1:
        fail(f"{listener.heard} messages on the end of one link")
    listener.release()
    process.release()
    print("ok: wrong requests", flush=True)


# ---- a hostile switch ----


def spread_grants(hostile, count):
    """Programs whose first grant makes no sense: they run or end with a line, and none crashes."""
    grants = ({"prefix_bits": 255}, {"mtu": 0}, {"mtu": 0xffffffff}, {"ipv4": 0}, {"range_": 0xffffffff, "shared": 1}, {"port": 0xffffffff},
              {"error": -1, "line": b"x" * 256}, {"files": ()})[:count]
    programs = [start("--", "ibv_devinfo", "-v", on=f"{wire}h") for _ in grants]
    for fields in grants:
        # A program that has ended may still wait in the queue of the listener.
        while not hostile.next().grant(**fields):
            pass
    for process in programs:
        await_that("a program of a switch without sense hangs", lambda: process.poll() is not None)
        if process.returncode < 0:
            fail(f"a program crashed of a grant: {process.returncode}")
        end(process)


def hostile_switch():
    """A program asks for its seat again at most once a second."""
    hostile = HostileSwitch(f"{folder}/faultline/{wire}h.control", LIMIT_S)
    said = "the ring to the switch is closed: the switch"
    program = start("--", "ibv_rc_pingpong", "-g", "0", "-p", str(free_port()), on=f"{wire}h")
    attachment = hostile.next()
    attachment.grant()
    for number, attack in enumerate(ATTACKS if SOAK else (length_beyond, index_beyond)):
        await_that("the program does not attach", lambda: attachment.rings.other_state() == wire_peer.ATTACHED)
        before = attachment
        attack(attachment.rings)
        await_that("the program does not write one line", lambda: output_of(program).count(said) == number + 1)
        attachment = hostile.next()
        if attachment.port != before.port or attachment.range != 1:
            fail("the program asks for another seat than it had")
        # The memory of the second seat is garbage already.
        attachment.grant(before=lambda rings: rings.fill(chance) if number == 0 else None)
        await_that("the program keeps a broken ring", before.has_ended)
    for fields in ({}, {"port": 0xffffffff}, {"port": 1023}, {"port": attachment.port, "ipv4": attachment.ipv4}, {"side": 0xffffffff}):
        for files in ((), os.pipe(), (*os.pipe(), wire_peer.event_file()),
                      (wire_peer.memory_file(4096), wire_peer.memory_file(4096), wire_peer.event_file()),
                      (wire_peer.memory_file(wire_peer.LINK.bytes), wire_peer.memory_file(4096), wire_peer.event_file())):
            for what in (wire_peer.IS_LINK, wire_peer.IS_LINK_ENDED, 99):
                attachment.send(0, files, what=what, **fields)
            for file in files:
                os.close(file)
    if attachment.has_ended():
        fail("the program leaves a switch for its wrong links")
    attachment.socket.send(b"x")
    await_that("the program keeps a switch without sense", attachment.has_ended)
    if program.poll() is not None:
        fail("a hostile switch ended a program")
    end(program)
    spread_grants(hostile, 8)
    hostile.close()
    print("ok: a hostile switch", flush=True)


try:
    honest = Honest()
    await_that("no switch", lambda: os.path.exists(control) and switch())
    first = switch()
    attack_seat_rings(honest)
    honest.look("garbage for the switch")
    victim = attack_idle_victim(honest)
    honest.look("garbage in direct links")
    for _ in range(20 if SOAK else 1):
        for finish in [attack_running_victim(attack) for attack in (length_beyond, index_beyond, random_bytes)]:
            finish()
    print("ok: garbage for programs that send", flush=True)
    wrong_descriptors()
    wrong_links(victim)
    honest.look("wrong requests")
    scribble_inboxes(victim, first)
    hostile_switch()
    honest.finish("all")
    honest.begin()
    honest.finish("after all")
    if switch() != first:
        fail("another switch at the end")
    print(f"ok: {honest.runs} runs beside it")
finally:
    for process in list(running):
        end(process)
    if (pid := switch()) is not None:
        os.kill(pid, signal.SIGTERM)
    shutil.rmtree(folder, ignore_errors=True)
