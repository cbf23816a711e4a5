# SPDX-License-Identifier: BSD-3-Clause
"""One end of a pair. The requests of one end find that the pages of the other are not resident; the same file at both ends.

Settings: gid, requester ("listen" or "connect"), kinds and operations (fault_cases.py), offset (in the region), timeout (of the QP,
as verbs have it).
Prints for each case "ok" or the error, in JSON, at both ends.
"""
import ctypes
import json
import mmap
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import pyverbs.enums as e  # noqa: E402
import verbs_side  # noqa: E402
from condition import await_that  # noqa: E402
from fault_cases import BURST, MISPLACED, PAGE_BYTES, case_name, cases  # noqa: E402

LENGTH = (1 << 20) + 4 * PAGE_BYTES
IMMEDIATE = 0x12345678
MADV_PAGEOUT = 21
RECEIVES = ("send", "send_imm", "write_imm")
ATOMICS = ("cas", "faa", "atomic_write")
# Offset in the region of operations that need alignment; bursts a page apart.
OFFSETS = dict({name: PAGE_BYTES + 8 for name in ATOMICS}, writes=0, reads=0)
MTU = 4096
RIGHTS = verbs_side.REMOTE & ~verbs_side.FLUSH_GLOBAL | e.IBV_ACCESS_LOCAL_WRITE


def content(number, what, length=LENGTH):
    return random.Random(f"{number} {what}").randbytes(length)


def misplacements(offset, length):
    """The errors of rxe at an offset within on-demand pages. It puts each packet's bytes for a page at that page's start, and takes all
    of them
    from the packet's start. Packet's first byte, page's first byte, bytes; in this order."""
    for at in range(0, length, MTU):
        place, left = offset + at, min(MTU, length - at)
        while left:
            room = min(PAGE_BYTES - place % PAGE_BYTES, left)
            yield at, place - place % PAGE_BYTES, room
            place, left = place + room, left - room


def misplace_writes(memory, offset, data):
    for packet, page, room in misplacements(offset, len(data)):
        memory[page:page + room] = data[packet:packet + room]


def is_misplaced_read(got, memory, offset):
    """Pages that received no copy keep their old contents."""
    model, known = bytearray(len(got)), bytearray(len(got))
    for packet, page, room in misplacements(offset, len(got)):
        model[packet:packet + room] = memory[page:page + room]
        known[packet:packet + room] = b"\1" * room
    return all(not sure or found == foreseen for found, foreseen, sure in zip(got, model, known))


def on_each_cpu(call):
    """A page that was just created may be in a batch of the CPU that created it, before the kernel adds it to the lists of reclaimable
    pages.
    MADV_PAGEOUT empties the batch of the CPU that it runs on, and leaves pages in the batches of others."""
    allowed = os.sched_getaffinity(0)
    try:
        for cpu in allowed:
            os.sched_setaffinity(0, {cpu})
            call()
    finally:
        os.sched_setaffinity(0, allowed)


class Pages(verbs_side.Region):
    """A region whose pages can be dropped.

    fresh: anonymous memory that was never touched; shared: of a file in memory, whose pages stay there; file: of a file on a disk,
    which has to be read again; swapped: anonymous memory that was written to swap."""

    def __init__(self, device, kind):
        self.kind = kind
        self.file = None
        if kind == "file":
            with tempfile.NamedTemporaryFile(dir="/var/tmp", prefix="fl-pages-") as file:
                self.file = os.dup(file.fileno())
            os.ftruncate(self.file, LENGTH)
            self.length = self.mapped = LENGTH
            self.memory = mmap.mmap(self.file, LENGTH, mmap.MAP_SHARED)
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
            self.mr = verbs_side.MR(device.pd, LENGTH, RIGHTS | e.IBV_ACCESS_ON_DEMAND, address=self.address)
        else:
            super().__init__(device, LENGTH, RIGHTS, True, kind == "shared")

    def fill(self, data):
        """Its contents after its pages are dropped."""
        if self.kind == "fresh":
            return bytes(LENGTH)
        self.write(0, data)
        return data

    def take_away(self):
        """Waits until none of its pages is resident; returns whether that is so. The kernel may keep a page that is in use, for a while."""
        def are_away():
            if self.kind == "swapped":
                on_each_cpu(lambda: self.memory.madvise(MADV_PAGEOUT))
            else:
                if self.kind == "file":
                    self.memory.flush()
                self.memory.madvise(mmap.MADV_DONTNEED)
                if self.kind == "file":
                    os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)
            return self.resident() == 0
        return await_that(are_away)


class End:
    def __init__(self, link, settings):
        self.offset = settings["offset"]
        self.device = verbs_side.Device()
        self.side = verbs_side.Side(link, self.device, gid=settings["gid"], mtu=MTU, size=LENGTH, timeout=settings["timeout"])
        self.ours = not link.active
        self.requests = link.active == (settings["requester"] == "connect")
        if not self.requests:
            for kind in settings["kinds"]:
                self.side.regions[kind] = Pages(self.device, kind)
        self.side.connect()

    # ---- the requester ----

    def request(self, kind, name, length, number):
        side, offset = self.side, OFFSETS.get(name, self.offset)
        before = bytes(LENGTH) if kind == "fresh" else content(number, "before")
        data = content(number, "new", length)
        side.regions["source"].write(0, data)
        side.regions["target"].write(0, bytes(length))
        side.barrier()
        remote = side.remote(kind, offset)
        old = int.from_bytes(before[offset:offset + 8], "little")
        count = 1
        if name == "send":
            side.post("send", "source", 0, length)
        elif name == "send_imm":
            side.post("send_imm", "source", 0, length, IMMEDIATE)
        elif name == "write":
            side.post("rdma_write", "source", 0, length, *remote)
        elif name == "write_imm":
            side.post("rdma_write_imm", "source", 0, length, *remote, IMMEDIATE)
        elif name == "read":
            side.post("rdma_read", "target", 0, length, *remote)
        elif name == "cas":
            side.post("atomic_cmp_swp", "target", 0, 8, *remote, old, int.from_bytes(data, "little"))
        elif name == "faa":
            side.post("atomic_fetch_add", "target", 0, 8, *remote, int.from_bytes(data, "little"))
        elif name == "atomic_write":
            side.post("atomic_write", None, 0, 8, *remote, data)
        else:
            count = BURST
            for at in range(0, length, PAGE_BYTES):
                there = remote[0], remote[1] + at
                if name == "writes":
                    side.post("rdma_write", "source", at, PAGE_BYTES, *there)
                else:
                    side.post("rdma_read", "target", at, PAGE_BYTES, *there)
        done = side.wait(count)
        if len(done) != count or any(each.status != e.IBV_WC_SUCCESS for each in done):
            return verbs_side.describe(done)
        got = side.regions["target"].read(0, length)
        if name in ("read", "reads", "cas", "faa") and got != before[offset:offset + length]:
            return MISPLACED if is_misplaced_read(got, before, offset) else "what was read is wrong"
        return "ok"

    # ---- the end whose pages are not resident ----

    def respond(self, kind, name, length, number):
        side, pages, offset = self.side, self.side.regions[kind], OFFSETS.get(name, self.offset)
        asked_for = True
        if name in RECEIVES:
            pages.memory.madvise(mmap.MADV_DONTNEED)
            side.recv(kind, offset, length)
            # Faultline asks for the pages of a posted receive at once. They come before this takes them away, not after.
            asked_for = not self.ours or await_that(lambda: pages.is_resident(offset, length))
        expected = bytearray(pages.fill(content(number, "before")))
        away = pages.take_away()
        side.barrier()
        if not asked_for:
            return "the pages of the posted receive do not come"
        if not away:
            return f"{pages.resident()} pages could not be taken away"
        done = side.wait(1) if name in RECEIVES else []
        return dict(kind=kind, expected=expected, done=done, offset=offset)

    def verify(self, name, length, number, kind, expected, done, offset):
        if name in RECEIVES:
            if len(done) != 1 or done[0].status != e.IBV_WC_SUCCESS:
                return verbs_side.describe(done)
            if name != "write_imm" and done[0].byte_len != length:
                return f"received {done[0].byte_len} bytes"
            if name != "send" and verbs_side.immediate(done[0]) != IMMEDIATE:
                return f"immediate {verbs_side.immediate(done[0]):#x}"
        data = content(number, "new", length)
        if name == "faa":
            total = int.from_bytes(expected[offset:offset + 8], "little") + int.from_bytes(data, "little")
            data = (total % (1 << 64)).to_bytes(8, "little")
        before = bytes(expected)
        if name not in ("read", "reads"):
            expected[offset:offset + length] = data
        found = self.side.regions[kind].read(0, LENGTH)
        if found == expected:
            return "ok"
        misplaced = bytearray(before)
        misplace_writes(misplaced, offset, data)
        return MISPLACED if found == misplaced else "what is in memory is wrong"

    def case(self, kind, name, length, number):
        if self.requests:
            result = self.request(kind, name, length, number)
            self.side.barrier()
        else:
            result = self.respond(kind, name, length, number)
            self.side.barrier()
            if isinstance(result, dict):
                result = self.verify(name, length, number, **result)
        return result


def main():
    link, settings = verbs_side.arguments()
    end = End(link, settings)
    for kind, name, length, number in cases(settings["kinds"], settings["operations"]):
        result = end.case(kind, name, length, number)
        print(json.dumps({"case": case_name(kind, name, length), "result": result}), flush=True)
        # After an error a QP is of no use.
        if link.exchange(result != "ok") or result != "ok":
            end.side.reconnect()
    end.side.close()


if __name__ == "__main__":
    main()
