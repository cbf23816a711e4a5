# SPDX-License-Identifier: BSD-3-Clause
"""The cases of the matrix, run at both ends at once: every operation with every size, in both directions, over one pair of QPs for
each combination of transport, address family, path MTU and on-demand memory. Faultline's end listens, and prints a JSON object a line
for each case: its name, and the error if there is one, or the kernel's message if the kernel cannot do it.

    settings: "addresses": of both ends by family; "wanted": a regular expression; "reduced"; "combinations": the combinations
"""
import glob
import itertools
import json
import os
import re
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from condition import await_that  # noqa: E402
from verbs_side import *  # noqa: E402,F403

from pyverbs.mr import MW, MWBindInfo  # noqa: E402
from pyverbs.pyverbs_error import PyverbsError  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
IMMEDIATE = 0x5a0000
# rxe returns the kernel's own flag, which differs from that of libibverbs (there, IBV_WC_IP_CSUM_OK).
RXE_WC_WITH_INV = 1 << 2
# In struct ibv_mw.
MW_RKEY_OFFSET = 16
NOT_ANSWERED_AGAIN = "that comes again is not answered again: IBV_WC_RETRY_EXC_ERR"
AGAIN_WITH_ADDRESS_0 = "again with address 0, which is refused"
DUPLICATES = "/sys/class/infiniband/{}/ports/1/hw_counters/duplicate_request"
# Before and after the memory that a message may touch.
GUARD_BYTES = 64
# A page before the message and two after it.
REGION_BYTES = MIB + 3 * PAGE_BYTES
PATTERN = random.Random(6).randbytes(REGION_BYTES + MIB)
AT_THE_START = PATTERN[-100:]
OTHER = b"\xa5" * REGION_BYTES
# The number of copies of an unacknowledged message, by size.
COPIES = {size: 8 for size in range(0, 5000)} | {64 * KIB: 3, MIB: 1}
SLOT_BYTES = 8 * KIB
OPERATIONS = {
    "RC": ["SEND", "SEND_IMM", "SEND_INV", "WRITE", "WRITE_IMM", "READ", "CAS", "FAA", "ATOMIC_WRITE", "FLUSH"],
    "UC": ["SEND", "SEND_IMM", "WRITE", "WRITE_IMM"],
    "UD": ["SEND", "SEND_IMM"],
}
WORDS = ("CAS", "FAA", "ATOMIC_WRITE")
# Under 5 % loss a message of many packets takes many rounds.
WAIT_S = HANG_S
LOOK_S = 1  # a wait looks this often whether a frame was missed


class Wrong(Exception):
    """A result is not as required."""


class Cannot(Wrong):
    """The kernel cannot do it. The lane searches for this word."""

    def __str__(self):
        return f"CANNOT {self.args[0]}"


def sizes(operation, transport, mtu):
    if operation in WORDS:
        return [8]
    if transport == "UD":
        # No path MTU: a datagram is one packet, limited by the port's MTU.
        return [0, 1, mtu - 1, mtu] + ([mtu + 1] if mtu < 4096 else [])
    return [0, 1, mtu - 1, mtu, mtu + 1, 64 * KIB, MIB]


class Case:
    def __init__(self, combination, number, operation, size, ours_asks, unaligned=False):
        self.combination, self.number, self.operation, self.size, self.ours_asks = combination, number, operation, size, ours_asks
        self.name = f"{combination} {operation} {size} {'to' if ours_asks else 'from'} the kernel{', not aligned to a page' * unaligned}"
        # Offset in memory, at either end; any alignment, but that of a word if the operation needs it.
        anywhere = 128 + (number * 40 if operation in WORDS else number * 37) % 1500
        self.ours, self.peers = anywhere, PAGE_BYTES if combination.peer_odp and not unaligned else anywhere
        self.pattern = PATTERN[number * 4099 % MIB:][:size]

    def words(self):
        """The fields that the lane receives."""
        return dict(case=self.name, group=f"{self.combination.transport} {self.operation}",
                    column=f"{'to' if self.ours_asks else 'from'}, {'lossy' if self.combination.lossy else 'clean'}")


class Combination:
    """One combination. The kernel's on-demand memory is used from the start of a page, except in the cases "not aligned to a page"; see
    moved_to_page_starts() for the reason."""

    def __init__(self, transport, family, mtu, our_odp, peer_odp, lossy):
        self.transport, self.family, self.mtu, self.our_odp, self.peer_odp, self.lossy = transport, family, mtu, our_odp, peer_odp, lossy

    def __str__(self):
        return (f"{self.transport} IPv{self.family} MTU {self.mtu} {'lossy' if self.lossy else 'clean'} ODP "
                f"{'ours' if self.our_odp else ''}{'+' if self.our_odp and self.peer_odp else ''}{'peer' if self.peer_odp else ''}"
                f"{'' if self.our_odp or self.peer_odp else 'none'}")

    def cases(self):
        numbers = itertools.count()
        for operation in OPERATIONS[self.transport]:
            for size in sizes(operation, self.transport, self.mtu):
                for ours_asks in (True, False):
                    yield Case(self, next(numbers), operation, size, ours_asks)
        if self.peer_odp and not self.lossy:
            for operation in ("SEND", "WRITE", "READ"):
                for ours_asks in (True, False):
                    if operation in OPERATIONS[self.transport]:
                        yield Case(self, next(numbers), operation, 100, ours_asks, unaligned=True)


def check(right, what):
    if not right:
        raise Wrong(what)


def differs(found, wanted):
    """A readable description of the first difference."""
    if len(found) != len(wanted):
        return f"{len(found)} bytes instead of {len(wanted)}"
    at = next(i for i in range(len(wanted)) if found[i] != wanted[i])
    return f"byte {at} of {len(wanted)}: {found[at:at + 8].hex()} instead of {wanted[at:at + 8].hex()}"


class Runner:
    def __init__(self, link, device, combination, ours, gid):
        self.link, self.ours = link, ours
        self.combination = combination
        self.odp = combination.our_odp if ours else combination.peer_odp
        self.side = Side(link, device, transport=combination.transport, gid=gid, mtu=combination.mtu, odp=self.odp, size=REGION_BYTES,
                         # If packets are lost, the last one of a message is retransmitted after this time (4.096 us << 17).
                         **dict(timeout=17) if combination.lossy else {})
        # A window needs memory that is not on-demand.
        if combination.transport == "RC":
            self.side.add_region("window", 4 * KIB, REMOTE | e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_MW_BIND)
        self.window = None
        self.missed_before = 0
        self.source, self.target = self.side.regions["source"], self.side.regions["target"]

    # Memory.
    def fill_source(self, data, offset):
        self.source.write(0, AT_THE_START)
        self.source.write(offset, data)
        self.source.drop()

    def clear_target(self):
        """Returns the contents of unwritten memory: zeros after pages are dropped."""
        if self.odp:
            self.target.drop()
            return bytes(1)
        self.target.write(0, OTHER)
        return OTHER[:1]

    def verify_target(self, data, offset, blank):
        found = self.target.read(offset, len(data))
        if self.combination.peer_odp and found != data and self.moved_to_page_starts(data):
            raise Cannot(f"acknowledged as success, but rxe has {'read' if self.ours else 'written'} the bytes of each packet at the start "
                         "of their page of on-demand memory, not at their place in it")
        check(found == data, f"data: {differs(found, data)}" if found != data else "")
        for at, length in ((offset - GUARD_BYTES, GUARD_BYTES), (offset + len(data), GUARD_BYTES)):
            check(self.target.read(at, length) == blank * length, f"bytes beside the message changed at {at - offset}")

    def moved_to_page_starts(self, data):
        """Whether the message differs in exactly this way: rxe of Linux 7.3 ignores the offset within the page."""
        image = bytearray(REGION_BYTES)
        if self.ours:
            image[:len(AT_THE_START)] = AT_THE_START
            image[self.case.peers:self.case.peers + len(data)] = data
        came = b""
        for at in range(0, len(data), self.combination.mtu):
            place, left = self.case.peers + at, min(self.combination.mtu, len(data) - at)
            while left:
                begin, length = place // PAGE_BYTES * PAGE_BYTES, min(left, PAGE_BYTES - place % PAGE_BYTES)
                if self.ours:
                    came += image[begin:begin + length]
                else:
                    image[begin:begin + length] = data[at:at + length]
                    at += length
                place, left = place + length, left - length
        if self.ours:
            return self.target.read(self.case.ours, len(data)) == came
        return self.target.read(0, REGION_BYTES - PAGE_BYTES) == image[:-PAGE_BYTES]

    def done(self, count=1, limit_s=WAIT_S):
        """The completions, in order; all must have succeeded."""
        completions = []
        await_that(lambda: completions.extend(self.side.wait(count - len(completions), min(limit_s, LOOK_S))) or
                   len(completions) == count or self.has_missed(), limit_s)
        check(len(completions) == count and all(each.status == e.IBV_WC_SUCCESS for each in completions),
              f"completions: {describe(completions)}")
        return completions

    def done_unless_forgotten(self, case):
        """Captures show this behaviour of Linux 7.3. The NAK for address 0 may be lost, a QP in error does not answer again, and rxe does
        not give up
        after 7 retries: then nothing completes. The other end checks that this was the cause."""
        forgotten = case.operation in ("FLUSH", "ATOMIC_WRITE") or (case.operation, case.size) == ("READ", 0)
        try:
            # Ours gives up by itself.
            self.done(limit_s=30 if forgotten and not self.ours and case.size != MIB else WAIT_S)
        except Wrong as wrong:
            if not self.combination.lossy:
                raise
            unanswered = case.operation == "FLUSH" or (case.operation, case.size) == ("READ", 0)
            if self.ours and unanswered and "IBV_WC_RETRY_EXC_ERR" in str(wrong):
                raise Cannot(f"a {case.operation}{'' if case.size else ' of no bytes'} {NOT_ANSWERED_AGAIN}") from None
            if not self.ours and forgotten and any(
                    status in str(wrong) for status in ("IBV_WC_REM_ACCESS_ERR", "completions: nothing")):
                raise Cannot(f"it sends {case.operation} {AGAIN_WITH_ADDRESS_0}") from None
            raise

    # A case with an acknowledged message: the responder prepares, the requester posts, the responder verifies.
    def run(self, case):
        asks = case.ours_asks == self.ours
        self.case = case
        self.here, self.there = (case.ours, case.peers) if self.ours else (case.peers, case.ours)
        if self.combination.lossy and self.combination.transport != "RC":
            return self.run_lossy(case, asks)
        problem = ""
        if asks:
            prepared = self.link.receive()
            if not prepared["problem"]:
                try:
                    getattr(self, "ask_" + case.operation.lower())(case, prepared)
                except (Wrong, PyverbsError) as wrong:
                    problem = f"requester: {wrong}"
            self.link.send(problem)
            verdict = self.link.receive()
        else:
            prepared = dict(problem="")
            try:
                prepared |= getattr(self, "prepare_" + case.operation.lower())(case) or {}
            except (Wrong, PyverbsError) as wrong:
                prepared["problem"] = f"responder: {wrong}"
            duplicates = self.duplicates()
            if self.ours:
                self.side.device.events()
            self.link.send(prepared)
            problem = self.link.receive()
            verdict = prepared["problem"]
            if AGAIN_WITH_ADDRESS_0 in problem and e.IBV_EVENT_QP_ACCESS_ERR not in self.side.device.events(5):
                verdict = "responder: it has refused nothing"
            # If one request is lost, it is not counted; but more than one request arrives.
            if NOT_ANSWERED_AGAIN in problem and self.duplicates() < duplicates + 3:
                verdict = "responder: the kernel has not seen the request again and again"
            if not verdict and not problem:
                try:
                    getattr(self, "verify_" + case.operation.lower())(case, prepared)
                except (Wrong, PyverbsError) as wrong:
                    verdict = f"responder: {wrong}"
            self.link.send(verdict)
        if problem or verdict:
            self.renew()
        texts = [text for text in (problem, verdict) if text]
        if not all("CANNOT" in text for text in texts):
            texts = [text.replace("CANNOT", "says that the kernel cannot:") for text in texts]
        return "; ".join(texts)

    def missed(self):
        """The number of frames that this end has dropped for want of room, or that only taught their identification (docs/udp.md)."""
        if self.ours:
            counters = self.side.device.counters()
            return sum(counters.get(name, 0) for name in ("port.rx_missed", "port.tx_dropped", "parse.identification"))
        # The second number of each CPU is that of packets which its backlog had no room for.
        missed = sum(int(line.split()[1], 16) for line in open("/proc/net/softnet_stat"))
        for path in glob.glob("/sys/class/net/*/statistics/rx_[dm]*ed*"):
            with open(path) as file:
                missed += int(file.read())
        return missed

    def has_missed(self):
        """Whether this end has dropped a frame of this case that nobody sends again, and without which the case says nothing."""
        return self.combination.transport != "RC" and not self.combination.lossy and self.missed() != self.missed_before

    def duplicates(self):
        """The duplicates that the kernel's responder has counted."""
        if self.ours:
            return 0
        with open(DUPLICATES.format(self.side.device.context.name)) as file:
            return int(file.read())

    def renew(self):
        if self.window:
            self.window.close()
            self.window = None
        self.side.reconnect()

    @property
    def grh_bytes(self):
        return GRH_BYTES if self.combination.transport == "UD" else 0

    def recv(self, place, size):
        """The GRH is written to the end of the region."""
        more = [("target", REGION_BYTES - PAGE_BYTES, GRH_BYTES)] if self.grh_bytes else []
        self.side.recv_list(more + [("target", place, size)], wr_id=place)

    # SEND
    def prepare_send(self, case):
        self.blank = self.clear_target()
        self.recv(self.here, case.size)

    def ask_send(self, case, prepared, op="send", *args):
        self.fill_source(case.pattern, self.here)
        self.side.post(op, "source", self.here, case.size, *args)
        self.done()

    def verify_send(self, case, prepared, flags=0):
        [completion] = self.done()
        check(completion.byte_len == case.size + self.grh_bytes, f"byte_len {completion.byte_len}")
        wanted = e.IBV_WC_RECV
        check(completion.opcode == wanted, f"opcode {completion.opcode}")
        check(completion.wc_flags & ~e.IBV_WC_GRH == flags, f"wc_flags {completion.wc_flags}")
        self.verify_target(case.pattern, self.here, self.blank)
        return completion

    prepare_send_imm = prepare_send

    def ask_send_imm(self, case, prepared):
        self.ask_send(case, prepared, "send_imm", IMMEDIATE + case.number)

    def verify_send_imm(self, case, prepared):
        completion = self.verify_send(case, prepared, e.IBV_WC_WITH_IMM)
        check(immediate(completion) == IMMEDIATE + case.number, f"immediate {immediate(completion):#x}")

    # The window is bound again for each message: this succeeds only if it was invalidated. No window is invalidated twice.
    def prepare_send_inv(self, case):
        if self.window is None:
            self.window = MW(self.side.device.pd, e.IBV_MW_TYPE_2)
        key = self.window.rkey & ~0xff | (self.window.rkey + 1) & 0xff
        memory = self.side.regions["window"]
        memory.write(0, bytes(256))
        self.side.post("bind_mw", None, 0, 0, self.window, key, MWBindInfo(memory.mr, memory.address, 256, e.IBV_ACCESS_REMOTE_WRITE))
        self.done()
        # As in C programs: its next binding needs the key that it has.
        ctypes.c_uint32.from_address(struct_of(self.window, MW_RKEY_OFFSET, self.window.rkey) + MW_RKEY_OFFSET).value = key
        self.prepare_send(case)
        return dict(key=key, address=memory.address)

    def ask_send_inv(self, case, prepared):
        self.fill_source(case.pattern, self.here)
        self.side.post("rdma_write", "source", 0, len(AT_THE_START), prepared["key"], prepared["address"] + 3)
        self.side.post("send_inv", "source", self.here, case.size, prepared["key"])
        self.done(2)

    def verify_send_inv(self, case, prepared):
        completion = self.verify_send(case, prepared, e.IBV_WC_WITH_INV if self.ours else RXE_WC_WITH_INV)
        key = prepared["key"]
        check(completion.imm_data in (key, socket.htonl(key)), f"invalidated key {completion.imm_data:#x}, not {key:#x}")
        found = self.side.regions["window"].read(0, 256)
        check(found == bytes(3) + AT_THE_START + bytes(153), "data written through the window")

    # WRITE
    def prepare_write(self, case):
        self.blank = self.clear_target()

    def ask_write(self, case, prepared):
        self.fill_source(case.pattern, self.here)
        self.side.post("rdma_write", "source", self.here, case.size, *self.side.remote("target", self.there))
        self.done()

    def verify_write(self, case, prepared):
        if self.combination.transport != "RC":
            # Only its bytes show that it has arrived.
            await_that(lambda: self.side.cq.poll(1) and self.target.read(self.here, case.size) == case.pattern or self.has_missed(), WAIT_S)
        self.verify_target(case.pattern, self.here, self.blank)

    def prepare_write_imm(self, case):
        self.blank = self.clear_target()
        self.side.recv(length=0)

    def ask_write_imm(self, case, prepared):
        self.fill_source(case.pattern, self.here)
        self.side.post("rdma_write_imm", "source", self.here, case.size, *self.side.remote("target", self.there),
                       IMMEDIATE + case.number)
        self.done()

    def verify_write_imm(self, case, prepared):
        [completion] = self.done()
        check(completion.opcode == e.IBV_WC_RECV_RDMA_WITH_IMM, f"opcode {completion.opcode}")
        check(immediate(completion) == IMMEDIATE + case.number, f"immediate {immediate(completion):#x}")
        check(completion.byte_len == case.size, f"byte_len {completion.byte_len}")
        self.verify_target(case.pattern, self.here, self.blank)

    # READ
    def prepare_read(self, case):
        self.fill_source(case.pattern, self.here)

    def ask_read(self, case, prepared):
        blank = self.clear_target()
        self.side.post("rdma_read", "target", self.here, case.size, *self.side.remote("source", self.there))
        self.done_unless_forgotten(case)
        self.verify_target(case.pattern, self.here, blank)

    def verify_read(self, case, prepared):
        check(self.source.read(self.here, case.size) == case.pattern, "what was read has changed")

    # Words: in the responder's shared memory, so that they outlive their pages.
    def prepare_word(self, case):
        self.word = int.from_bytes(PATTERN[case.number:case.number + 8], "little")
        self.fill_source(self.word.to_bytes(8, "little") + bytes(GUARD_BYTES), self.here)
        return dict(word=self.word)

    def fetch(self, case, op, *args):
        self.clear_target()
        self.side.post(op, "target", self.here, 8, *self.side.remote("source", self.there), *args)
        self.done()
        return self.target.word(self.here)

    prepare_cas = prepare_faa = prepare_atomic_write = prepare_word

    def ask_cas(self, case, prepared):
        word = prepared["word"]
        check((found := self.fetch(case, "atomic_cmp_swp", word ^ 1, 0)) == word, f"fetched {found:#x}, not {word:#x}")
        check((found := self.fetch(case, "atomic_cmp_swp", word, word ^ MIB)) == word, f"fetched {found:#x} at the second")
        check((found := self.fetch(case, "atomic_cmp_swp", word, 0)) == word ^ MIB, f"fetched {found:#x} at the third")

    def verify_cas(self, case, prepared):
        check((found := self.source.word(self.here)) == self.word ^ MIB, f"the word is {found:#x}, not {self.word ^ MIB:#x}")

    ADDEND = 0x8000_0000_0000_0001

    def ask_faa(self, case, prepared):
        word = prepared["word"]
        for _ in range(3):
            check((found := self.fetch(case, "atomic_fetch_add", self.ADDEND)) == word, f"fetched {found:#x}, not {word:#x}")
            word = word + self.ADDEND & (1 << 64) - 1

    def verify_faa(self, case, prepared):
        wanted = self.word + 3 * self.ADDEND & (1 << 64) - 1
        check((found := self.source.word(self.here)) == wanted, f"the word is {found:#x}, not {wanted:#x}")

    def ask_atomic_write(self, case, prepared):
        self.side.post("atomic_write", None, 0, 0, *self.side.remote("source", self.there), PATTERN[100:108])
        self.done_unless_forgotten(case)

    def verify_atomic_write(self, case, prepared):
        check((found := self.source.read(self.here, 8)) == PATTERN[100:108], f"the word is {found.hex()}")
        check(self.source.read(self.here + 8, GUARD_BYTES) == bytes(GUARD_BYTES), "bytes behind the word changed")

    def prepare_flush(self, case):
        self.blank = self.clear_target()

    def ask_flush(self, case, prepared):
        self.fill_source(case.pattern, self.here)
        whole = case.size == 0
        self.side.post("rdma_write", "source", self.here, case.size, *self.side.remote("target", self.there), signaled=False)
        self.side.post("flush", None, 0, 0, *self.side.remote("target", 0 if whole else self.there), case.size,
                       FLUSH_TYPE_GLOBAL, FLUSH_MR if whole else FLUSH_RANGE)
        self.done_unless_forgotten(case)

    verify_flush = verify_write

    # A case with messages that may be lost: several copies, and each that arrives must be whole.
    def run_lossy(self, case, asks):
        copies = COPIES[case.size]
        slot = SLOT_BYTES if copies > 3 else MIB // 4 if copies > 1 else 0
        wr_write = case.operation == "WRITE"
        sent = [PATTERN[(case.number * 4099 + copy * 777) % MIB:][:case.size] for copy in range(copies)]
        places = [self.here + copy * slot for copy in range(copies)]
        remote_places = [self.there + copy * slot for copy in range(copies)]
        problem, arrived = "", 0
        if asks:
            self.link.receive()
            try:
                for data, place in zip(sent, places):
                    self.source.write(place, data)
                self.source.drop()
                for copy, place in enumerate(places):
                    remote = self.side.remote("target", remote_places[copy]) if "WRITE" in case.operation else ()
                    immediate = (IMMEDIATE + copy,) if "IMM" in case.operation else ()
                    self.side.post(dict(SEND="send", SEND_IMM="send_imm", WRITE="rdma_write", WRITE_IMM="rdma_write_imm")[case.operation],
                                   "source", place, case.size, *remote, *immediate)
                self.done(copies)
            except (Wrong, PyverbsError) as wrong:
                problem = f"requester: {wrong}"
            self.link.send(problem)
            verdict, arrived = self.link.receive()
        else:
            blank = self.clear_target()
            for place in places:
                if case.operation == "WRITE_IMM":
                    self.side.recv(length=0)
                elif not wr_write:
                    self.recv(place, case.size)
            self.link.send(None)
            problem, verdict = self.link.receive(), ""
            try:
                arrived = self.verify_lossy(case, sent, places, blank)
            except (Wrong, PyverbsError) as wrong:
                verdict = f"responder: {wrong}"
            self.link.send([verdict, arrived])
        # Unused receives remain.
        self.renew()
        self.sent, self.arrived = self.sent + (copies if case.size <= self.combination.mtu and (case.size or not wr_write) else 0), self.arrived + arrived
        return "; ".join(text for text in (problem, verdict) if text)

    sent, arrived = 0, 0

    def verify_lossy(self, case, sent, places, blank):
        """Returns the number of messages of one packet that arrived."""
        completions, idle = [], 0
        while idle < 3 and len(completions) < len(sent):
            more = self.side.wait(1, 0.15)
            idle = 0 if more else idle + 1
            completions += more
        for completion in completions:
            check(completion.status == e.IBV_WC_SUCCESS, f"completions: {describe(completions)}")
            check(completion.byte_len == case.size + self.grh_bytes, f"byte_len {completion.byte_len}")
        if case.operation == "WRITE":
            intact = 0
            for data, place in zip(sent, places):
                # A packet that arrived has written all of its bytes, and no others.
                found = self.target.read(place, case.size)
                for at in range(0, case.size, self.combination.mtu):
                    piece, wanted = found[at:at + self.combination.mtu], data[at:at + self.combination.mtu]
                    check(piece in (wanted, blank * len(wanted)), f"data: {differs(piece, wanted) if piece != wanted else ''}")
                intact += found == data
            # A message of no bytes leaves no trace.
            return intact if 0 < case.size <= self.combination.mtu else 0
        left = list(range(len(sent)))
        for completion in completions:
            if "IMM" in case.operation:
                copy = immediate(completion) - IMMEDIATE
                check(copy in left, f"immediate {immediate(completion):#x}, again or never sent")
            if case.operation == "WRITE_IMM":
                found = self.target.read(places[copy], case.size)
            else:
                found = self.target.read(completion.wr_id, case.size)
                if "IMM" not in case.operation:
                    copy = next((copy for copy in left if sent[copy] == found), None)
                    check(copy is not None, "data: that of no message that was sent, or of one that had come")
            left.remove(copy)
            check(found == sent[copy], f"data: {differs(found, sent[copy]) if found != sent[copy] else ''}")
        return len(completions) if case.size <= self.combination.mtu else 0

    def close(self):
        if self.window:
            self.window.close()
        self.side.close()


def say(**words):
    print(json.dumps(words), flush=True)


def run_combination(link, device, combination, ours, gid, wanted, reduced):
    # A long message under loss takes many seconds: the kernel retransmits all of its window for each lost packet.
    cases = [case for case in combination.cases() if wanted.search(case.name) and not (reduced and combination.lossy and case.size == MIB)]
    if not cases:
        return
    if combination.peer_odp:
        capability = f"{combination.transport.lower()}_odp_caps"
        own = getattr(device.context.query_device_ex().odp_caps, capability)
        others = link.exchange(own)
        if (others if ours else own) == 0:
            for case in cases if ours else ():
                say(problem=str(Cannot(f"ibv_query_device_ex: {capability} 0")), **case.words())
            return
    runner = Runner(link, device, combination, ours, gid)
    runner.side.connect()
    for case in cases:
        began = time.monotonic()
        while True:
            runner.missed_before = runner.missed()
            problem = runner.run(case)
            # A datagram that a machine had no room for is not retransmitted, and says nothing of the case.
            again = bool(problem) and runner.has_missed() and time.monotonic() < began + WAIT_S
            if combination.transport == "RC" or combination.lossy or not (link.exchange(again) or again):
                break
        if ours:
            say(problem=problem, seconds=round(time.monotonic() - began, 2), **case.words())
    if ours and runner.sent > 40:
        few = runner.arrived < runner.sent / 2
        say(case=f"{combination}: most of the messages of one packet arrive",
            problem=f"only {runner.arrived} of {runner.sent}" if few else "")
    runner.close()


def main():
    link, settings = arguments()
    ours = not link.active
    device = Device()
    wanted = re.compile(settings.get("wanted", ""))
    for number, words in enumerate(settings["combinations"]):
        combination = Combination(**words)
        try:
            run_combination(link, device, combination, ours, settings["addresses"]["ours" if ours else "peer"][str(combination.family)], wanted,
                     settings["reduced"])
        except Exception:
            print(f"{combination}", file=sys.stderr)
            traceback.print_exc()
            raise
    if ours:
        say(end=True)


main()
