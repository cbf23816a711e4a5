# SPDX-License-Identifier: BSD-3-Clause
"""One end of a pair of pyverbs programs, the same file at both ends: in the kernel peer over rxe0, and here under faultline-run.

A program is run as FILE listen|ADDRESS PORT JSON. The listening and the connecting program then exchange data over a TCP link, a JSON
value a line, such as the parameters of their QPs. Runs on rdma-core 44 (Faultline's end) and newer ones (the peer's).

    link, settings = verbs_side.arguments()
    side = verbs_side.Side(link, verbs_side.Device(), gid=settings["gid"])
    side.connect()
    side.recv("target", 0, 4096)                      # the one
    side.barrier()
    side.post("send", "source", 0, 4096); side.wait() # the other
"""
import ctypes
import json
import mmap
import os
import random
import select
import socket
import struct
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QPAttr, QPCap, QPEx, QPInitAttrEx
from pyverbs.wr import SGE, RecvWR

from condition import HANG_S

PAGE_BYTES = mmap.PAGESIZE
# Constants that rdma-core 44 does not name; the numbers of later versions.
FLUSH_GLOBAL = 1 << 8  # of a region's and a QP's access rights
QP_EX_WITH_FLUSH = 1 << 11
FLUSH_TYPE_GLOBAL, FLUSH_RANGE, FLUSH_MR = 1, 0, 1
MTUS = {256: e.IBV_MTU_256, 512: e.IBV_MTU_512, 1024: e.IBV_MTU_1024, 2048: e.IBV_MTU_2048, 4096: e.IBV_MTU_4096}
TYPES = {"RC": e.IBV_QPT_RC, "UC": e.IBV_QPT_UC, "UD": e.IBV_QPT_UD}
SENDS = ["SEND", "SEND_WITH_IMM"]
WRITES = ["RDMA_WRITE", "RDMA_WRITE_WITH_IMM"]
OPERATIONS = {"RC": SENDS + WRITES + ["SEND_WITH_INV", "RDMA_READ", "ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD", "LOCAL_INV",
                                      "BIND_MW", "ATOMIC_WRITE"],
              "UC": SENDS + WRITES, "UD": SENDS}
# These have no scatter-gather list.
WITHOUT_SGE = ("atomic_write", "flush", "bind_mw", "local_inv")
REMOTE = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC | FLUSH_GLOBAL
# Either UD buffer begins with room for the GRH.
GRH_BYTES = 40
QKEY = 0x11111111
STATUSES = {getattr(e, name): name for name in dir(e) if name.startswith("IBV_WC_") and name.endswith(("_ERR", "SUCCESS"))}
# The other end's own limits must end first.
LINK_TIMEOUT_S = 2 * HANG_S


class Link:
    """TCP to the other end: a JSON value a line."""

    def __init__(self, connection, active):
        self.active = active
        connection.settimeout(LINK_TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection
        self.file = connection.makefile("r")

    @classmethod
    def listen(cls, port):
        with socket.create_server(("", port)) as listener:
            listener.settimeout(LINK_TIMEOUT_S)
            return cls(listener.accept()[0], False)

    @classmethod
    def connect(cls, address, port):
        return cls(socket.create_connection((address, port), LINK_TIMEOUT_S), True)

    def send(self, value):
        self.connection.sendall(json.dumps(value).encode() + b"\n")

    def receive(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("the other end is gone")
        return json.loads(line)

    def exchange(self, value):
        self.send(value)
        return self.receive()

    def barrier(self):
        self.exchange(None)


def arguments():
    """The link, and the settings in the program's arguments."""
    how, port = sys.argv[1], int(sys.argv[2])
    link = Link.listen(port) if how == "listen" else Link.connect(how, port)
    return link, json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}


def struct_of(thing, offset, value):
    """Finds the C struct of a pyverbs object. pyverbs does not return its address, but the object has a pointer to it, and the struct has
    that
    32-bit value at that offset."""
    words = ctypes.string_at(id(thing), sys.getsizeof(thing) & ~7)
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for (pointer,) in struct.iter_unpack("=Q", words):
            if pointer == 0 or pointer % 8 or pointer >= 1 << 47:
                continue
            try:
                memory.seek(pointer + offset)
                found = memory.read(4)
            except OSError:
                continue
            if found == struct.pack("=I", value):
                return pointer
    raise LookupError("no pointer to such a struct")


class Counter(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_uint64)]


class Device:
    """The first device, and a protection domain."""

    # Of struct ibv_qp and ibv_context; they are part of the ABI.
    QP_NUM_OFFSET, CMD_FD_OFFSET, ASYNC_FD_OFFSET = 52, 264, 268

    def __init__(self, name=None):
        self.context = Context(name=name or get_device_list()[0].name.decode())
        self.pd = PD(self.context)
        self.async_fd = None

    def gid_index(self, address):
        """The GID index of an address in text form."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        wanted = socket.inet_pton(family, address)
        wanted = wanted if len(wanted) == 16 else bytes(10) + b"\xff\xff" + wanted
        for index in range(16):
            gid = self.context.query_gid(1, index).gid
            if bytes.fromhex(gid.replace(":", "")) == wanted:
                return index
        raise LookupError(f"no GID {address}")

    def events(self, limit_s=0.0):
        """The pending asynchronous events, as numbers of ibv_event_type; waits that long for the first."""
        if self.async_fd is None:
            with open("/proc/self/mem", "rb", buffering=0) as memory:
                context = struct_of(self.context, self.CMD_FD_OFFSET, self.context.cmd_fd)
                memory.seek(context + self.ASYNC_FD_OFFSET)
                self.async_fd = struct.unpack("=i", memory.read(4))[0]
        found = []
        while select.select([self.async_fd], [], [], 0 if found else limit_s)[0]:
            event = self.context.get_async_event()
            found.append(event.event_type)
            event.ack()
        return found

    def counters(self):
        """The counters of Faultline's device, by name: the result of faultline_query_counters."""
        context = struct_of(self.context, self.CMD_FD_OFFSET, self.context.cmd_fd)
        query = ctypes.CDLL(None).faultline_query_counters
        query.argtypes = [ctypes.c_void_p, ctypes.POINTER(Counter), ctypes.c_size_t]
        room = (Counter * 1024)()
        count = query(context, room, len(room))
        return {room[i].name.decode(): room[i].value for i in range(min(count, len(room)))}


class Region:
    """Registered memory. shared: of a file in memory, so that dropped pages keep their bytes; otherwise anonymous."""

    def __init__(self, device, length, access, odp=False, shared=False):
        self.length, self.odp = length, odp
        self.mapped = -(-length // PAGE_BYTES) * PAGE_BYTES
        if shared:
            self.file = os.memfd_create("region")
            os.ftruncate(self.file, self.mapped)
            self.memory = mmap.mmap(self.file, self.mapped, mmap.MAP_SHARED)
        else:
            self.memory = mmap.mmap(-1, self.mapped, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.mr = MR(device.pd, length, access | (e.IBV_ACCESS_ON_DEMAND if odp else 0), address=self.address)

    def write(self, offset, data):
        self.memory[offset:offset + len(data)] = data

    def read(self, offset, length):
        return self.memory[offset:offset + length]

    def word(self, offset):
        return int.from_bytes(self.read(offset, 8), "little")

    def drop(self):
        """Drops its pages; anonymous memory loses its bytes as well. Pinned ones are left alone: the device would continue to use the old
        pages."""
        if self.odp:
            self.memory.madvise(mmap.MADV_DONTNEED)

    def _mapped_pages(self, offset, length):
        """For each page of a part, 1 if this process has mapped it."""
        first, end = (self.address + offset) // PAGE_BYTES, -(-(self.address + offset + length) // PAGE_BYTES)
        with open("/proc/self/pagemap", "rb", buffering=0) as pages:
            pages.seek(first * 8)
            return [byte >> 7 for byte in pages.read((end - first) * 8)[7::8]]

    def resident(self):
        """The number of its pages that this process has mapped."""
        return sum(self._mapped_pages(0, self.mapped))

    def is_resident(self, offset, length):
        """Whether this process has mapped all pages of a part."""
        return all(self._mapped_pages(offset, length))


class Side:
    """A QP, its CQ, and two regions: "source" is shared memory, "target" anonymous. connect() sends their keys to the other end.

    access: of both regions. odp: whether they are on-demand. gid: an index, or an address. Any other argument is an attribute of the QP,
    by its name in struct ibv_qp_attr."""

    # A busy machine may leave the emulated one without a processor for seconds: seven retries of 2.1 s (4.096 us << 19).
    ATTRIBUTES = dict(min_rnr_timer=1, rnr_retry=7, retry_cnt=7, timeout=19, max_rd_atomic=4, max_dest_rd_atomic=4)

    def __init__(self, link, device, transport="RC", gid=0, mtu=1024, odp=False, size=65536,
                 access=REMOTE | e.IBV_ACCESS_LOCAL_WRITE, max_wr=64, inline=0, psn=None, **attributes):
        self.link, self.device, self.transport, self.mtu = link, device, transport, mtu
        self.gid = device.gid_index(gid) if isinstance(gid, str) else gid
        self.attributes = dict(self.ATTRIBUTES, **attributes)
        self.regions = {}
        self.add_region("source", size, access, odp, True)
        self.add_region("target", size, access, odp, False)
        self.max_wr, self.inline = max_wr, inline
        self.cq = CQ(device.context, 4 * max_wr)
        self.make_qp(psn)

    def add_region(self, name, length, access, odp=False, shared=False):
        self.regions[name] = Region(self.device, length, access, odp, shared)

    def make_qp(self, psn=None):
        operations = QP_EX_WITH_FLUSH if self.transport == "RC" else 0
        for name in OPERATIONS[self.transport]:
            operations |= getattr(e, "IBV_QP_EX_WITH_" + name)
        self.qp = QPEx(self.device.context, QPInitAttrEx(
            qp_type=TYPES[self.transport], scq=self.cq, rcq=self.cq, pd=self.device.pd, sq_sig_all=0, send_ops_flags=operations,
            cap=QPCap(max_send_wr=self.max_wr, max_recv_wr=self.max_wr, max_send_sge=2, max_recv_sge=2, max_inline_data=self.inline),
            comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
        self.psn = random.getrandbits(24) if psn is None else psn

    def about(self):
        """The parameters that the other end needs."""
        regions = {name: (region.mr.rkey, region.address, region.length) for name, region in self.regions.items()}
        return dict(qpn=self.qp.qp_num, psn=self.psn, gid=self.device.context.query_gid(1, self.gid).gid, regions=regions)

    def path(self):
        return AHAttr(port_num=1, is_global=1, gr=GlobalRoute(dgid=GID(self.peer["gid"]), sgid_index=self.gid, hop_limit=64))

    def connect(self, peer=None):
        """Moves the QP to RTS, with the other end, or with the given peer."""
        self.peer = peer or self.link.exchange(self.about())
        attr = QPAttr(port_num=1)
        if self.transport == "UD":
            attr.qkey = QKEY
            attr.sq_psn = self.psn
            self.qp.to_rts(attr)
            self.ah = AH(self.device.pd, attr=self.path())
        else:
            attr.qp_access_flags = REMOTE if self.transport == "RC" else e.IBV_ACCESS_REMOTE_WRITE
            attr.path_mtu = MTUS[self.mtu]
            attr.dest_qp_num = self.peer["qpn"]
            attr.rq_psn, attr.sq_psn = self.peer["psn"], self.psn
            attr.ah_attr = self.path()
            if self.transport == "RC":
                for name, value in self.attributes.items():
                    setattr(attr, name, value)
            self.qp.to_rts(attr)
        if peer is None:
            self.link.barrier()

    def reconnect(self):
        """Connects a new QP, after an error of the old one. Both ends must call it."""
        self.close_qp()
        self.make_qp()
        self.connect()

    def close_qp(self):
        self.qp.close()
        while self.cq.poll(16)[0]:
            pass

    def close(self):
        self.qp.close()
        if self.transport == "UD" and hasattr(self, "ah"):
            self.ah.close()
        self.cq.close()
        for region in self.regions.values():
            region.mr.close()

    def barrier(self):
        self.link.barrier()

    def exchange(self, value):
        return self.link.exchange(value)

    def recv(self, region="target", offset=0, length=16384, wr_id=0):
        self.recv_list([(region, offset, length)], wr_id)

    def recv_list(self, pieces, wr_id=0):
        """Posts a receive of pieces (region, offset, length), two at most."""
        elements = [SGE(self.regions[name].address + offset, length, self.regions[name].mr.lkey) for name, offset, length in pieces]
        self.qp.post_recv(RecvWR(wr_id=wr_id, num_sge=len(elements), sg=elements))

    def post(self, op, region=None, offset=0, length=0, *args, flags=0, wr_id=1, signaled=True):
        """Posts a request by its name in ibv_wr_*; args: the arguments of that function."""
        self.qp.wr_start()
        self.qp.wr_id = wr_id
        self.qp.wr_flags = (e.IBV_SEND_SIGNALED if signaled else 0) | flags
        if op == "flush" and not hasattr(self.qp, "wr_flush"):
            own = ctypes.CDLL(None).faultline_wr_flush
            own.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_uint8, ctypes.c_uint8]
            own.restype = None
            own(struct_of(self.qp, self.device.QP_NUM_OFFSET, self.qp.qp_num), *args)
        else:
            getattr(self.qp, "wr_" + op)(*args)
        if self.transport == "UD":
            self.qp.wr_set_ud_addr(self.ah, self.peer["qpn"], QKEY)
        if op not in WITHOUT_SGE:
            memory = self.regions[region]
            self.qp.wr_set_sge(SGE(memory.address + offset, length, memory.mr.lkey))
        self.qp.wr_complete()

    def remote(self, region="target", offset=0):
        """rkey and address of the other end's region, as requests need them."""
        rkey, address, _ = self.peer["regions"][region]
        return rkey, address + offset

    def wait(self, count=1, limit_s=HANG_S):
        """That many completions, or those that arrived in time."""
        done = []
        until = time.monotonic() + limit_s
        idle = 0
        while len(done) < count:
            number, some = self.cq.poll(count - len(done))
            done += some
            if number:
                idle = 0
                continue
            if time.monotonic() > until:
                break
            # The peer has one processor, which its kernel needs for the packets.
            idle += 1
            time.sleep(0 if idle < 3 else 0.0002 if idle < 200 else 0.002)
        return done


def immediate(completion):
    """The immediate as passed to wr_*_imm: pyverbs returns it in network byte order."""
    return socket.ntohl(completion.imm_data)


def describe(completions):
    """A readable form of completions."""
    return ", ".join(f"{STATUSES.get(done.status, done.status)} opcode {done.opcode} {done.byte_len} bytes" for done in completions) or "nothing"
