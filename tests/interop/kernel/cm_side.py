# SPDX-License-Identifier: BSD-3-Clause
"""One end of a connection of rdma_cm's. It executes the steps of its arguments in turn and prints the result of each as JSON.

    cm_side.py listen|connect OWN_ADDRESS PEER_ADDRESS PORT [--ud] STEP...

Steps: expect:EVENT, request (waits for a connection request), accept[:BYTES], reject[:BYTES], connect[:BYTES] (of private data,
a pattern), ping (a message each way, checked), stream (writes until one fails), disconnect, flushed (the posted receive completes
in error), release (the connection's objects), destroy (all), await:PATH (waits until that file exists).

The same file runs at both ends, over librdmacm and libibverbs by their ABI: pyverbs does not return an event's status, and has no
private data for a rejection.
"""
import ctypes
import json
import os
import select
import socket
import struct
import sys
from ctypes import POINTER, Structure, byref, c_int, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p, cast

from condition import await_that

# Time limit: the connection manager sends a request 16 times, with 4 s and more for each.
PATIENCE_S = 900  # ends a hang
TCP, UDP = 0x0106, 0x0111  # rdma_port_space
RC, UD = 2, 4  # ibv_qp_type
LOCAL_WRITE, REMOTE_WRITE = 1, 2
OP_WRITE, OP_SEND = 0, 2
SIGNALED = 2
EVENTS = ("ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE", "CONNECT_ERROR",
          "UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL", "MULTICAST_JOIN", "MULTICAST_ERROR",
          "ADDR_CHANGE", "TIMEWAIT_EXIT")
STATUSES = {0: "success", 5: "flushed", 10: "remote access error", 11: "remote operation error", 12: "retries exceeded",
            13: "RNR retries exceeded"}
BLOCK_BYTES = 4096


class Id(Structure):
    _fields_ = [("verbs", c_void_p), ("channel", c_void_p), ("context", c_void_p), ("qp", c_void_p)]


class Connection(Structure):
    _fields_ = [("private_data", c_void_p), ("private_data_len", c_uint8), ("responder_resources", c_uint8),
                ("initiator_depth", c_uint8), ("flow_control", c_uint8), ("retry_count", c_uint8), ("rnr_retry_count", c_uint8),
                ("srq", c_uint8), ("qp_num", c_uint32)]


class Event(Structure):
    _fields_ = [("id", POINTER(Id)), ("listen_id", POINTER(Id)), ("event", c_int), ("status", c_int), ("connection", Connection)]


class Channel(Structure):
    _fields_ = [("fd", c_int)]


class QpInit(Structure):
    _fields_ = [("qp_context", c_void_p), ("send_cq", c_void_p), ("recv_cq", c_void_p), ("srq", c_void_p),
                ("max_send_wr", c_uint32), ("max_recv_wr", c_uint32), ("max_send_sge", c_uint32), ("max_recv_sge", c_uint32),
                ("max_inline_data", c_uint32), ("qp_type", c_int), ("sq_sig_all", c_int)]


class Region(Structure):
    _fields_ = [("context", c_void_p), ("pd", c_void_p), ("addr", c_void_p), ("length", c_size_t), ("handle", c_uint32),
                ("lkey", c_uint32), ("rkey", c_uint32)]


class Sge(Structure):
    _fields_ = [("addr", c_uint64), ("length", c_uint32), ("lkey", c_uint32)]


class SendRequest(Structure):
    _fields_ = [("wr_id", c_uint64), ("next", c_void_p), ("sg_list", POINTER(Sge)), ("num_sge", c_int), ("opcode", c_int),
                ("send_flags", c_uint32), ("imm_data", c_uint32), ("remote_addr", c_uint64), ("rkey", c_uint32),
                ("rest", c_uint8 * 76)]


class ReceiveRequest(Structure):
    _fields_ = [("wr_id", c_uint64), ("next", c_void_p), ("sg_list", POINTER(Sge)), ("num_sge", c_int)]


class Completion(Structure):
    _fields_ = [("wr_id", c_uint64), ("status", c_int), ("opcode", c_int), ("vendor_err", c_uint32), ("byte_len", c_uint32),
                ("imm_data", c_uint32), ("qp_num", c_uint32), ("src_qp", c_uint32), ("wc_flags", c_uint32), ("rest", c_uint8 * 8)]


class ContextOps(Structure):
    """The calls of struct ibv_context that the headers' inline functions make; its first members, up to post_recv."""
    _fields_ = [("device", c_void_p), ("before", c_void_p * 11),
                ("poll_cq", ctypes.CFUNCTYPE(c_int, c_void_p, c_int, POINTER(Completion))), ("between", c_void_p * 13),
                ("post_send", ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(SendRequest), POINTER(c_void_p))),
                ("post_recv", ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(ReceiveRequest), POINTER(c_void_p)))]


def library(name, **calls):
    found = ctypes.CDLL(name, use_errno=True)
    for call, result in calls.items():
        getattr(found, call).restype = result
    return found


verbs = library("libibverbs.so.1", ibv_alloc_pd=c_void_p, ibv_create_cq=c_void_p, ibv_reg_mr=POINTER(Region))
cm = library("librdmacm.so.1", rdma_create_event_channel=POINTER(Channel))


def say(**words):
    print(json.dumps(words), flush=True)


def check(result, what):
    if result is None or not isinstance(result, int) and not result or isinstance(result, int) and result < 0:
        raise OSError(ctypes.get_errno(), what)
    return result


def pattern(salt, length):
    return bytes((salt + 7 * i) & 255 for i in range(length))


def socket_address(address, port):
    """struct sockaddr_in or sockaddr_in6"""
    if ":" in address:
        return struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", port, 0) + socket.inet_pton(socket.AF_INET6, address) + bytes(4)
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(address) + bytes(8)


class Side:
    def __init__(self, passive, own, peer, port, datagram):
        self.passive, self.datagram = passive, datagram
        self.salt = 1 if passive else 2
        self.channel = check(cm.rdma_create_event_channel(), "rdma_create_event_channel")
        self.id = POINTER(Id)()
        self.listener = None
        self.remote = None
        self.qp = False
        space = UDP if datagram else TCP
        check(cm.rdma_create_id(self.channel, byref(self.id), None, space), "rdma_create_id")
        if passive:
            check(cm.rdma_bind_addr(self.id, socket_address(own, port)), "rdma_bind_addr")
            check(cm.rdma_listen(self.id, 8), "rdma_listen")
            self.listener = self.id
            self.id = POINTER(Id)()
            say(step="listening")
        else:
            check(cm.rdma_resolve_addr(self.id, socket_address(own, 0), socket_address(peer, port), 120000), "rdma_resolve_addr")
            self.expect("ADDR_RESOLVED")
            check(cm.rdma_resolve_route(self.id, 120000), "rdma_resolve_route")
            self.expect("ROUTE_RESOLVED")
            self.create()

    def next_event(self, limit_s=PATIENCE_S):
        """Name, status, private data, identifier; acknowledged already."""
        if not select.select([self.channel.contents.fd], [], [], limit_s)[0]:
            raise TimeoutError("no event")
        event = POINTER(Event)()
        check(cm.rdma_get_cm_event(self.channel, byref(event)), "rdma_get_cm_event")
        got = event.contents
        connection = got.connection
        data = ctypes.string_at(connection.private_data, connection.private_data_len) if connection.private_data else b""
        result = EVENTS[got.event], got.status, data, cast(got.id, POINTER(Id))
        check(cm.rdma_ack_cm_event(event), "rdma_ack_cm_event")
        return result

    def expect(self, wanted):
        name, status, data, self.last_id = self.next_event()
        # The length is not on the wire: the event has the whole field.
        own = len(data)
        other = pattern(3 - self.salt, own)
        same = next((i for i in range(own) if data[i] != other[i]), own)
        say(step="event", event=name, status=status, bytes=own, pattern_bytes=same, rest_is_zero=not any(data[same:]))
        if name != wanted:
            raise ValueError(f"{name} instead of {wanted}")

    def create(self):
        """Region, completion queue and QP, and a posted receive."""
        context = self.id.contents.verbs
        self.ops = cast(context, POINTER(ContextOps)).contents
        # Two blocks: received data does not overwrite sent data.
        self.memory = ctypes.create_string_buffer(3 * BLOCK_BYTES)
        self.base = -(-ctypes.addressof(self.memory) // BLOCK_BYTES) * BLOCK_BYTES
        self.pd = c_void_p(check(verbs.ibv_alloc_pd(c_void_p(context)), "ibv_alloc_pd"))
        self.cq = c_void_p(check(verbs.ibv_create_cq(c_void_p(context), 16, None, None, 0), "ibv_create_cq"))
        self.region = check(verbs.ibv_reg_mr(self.pd, c_void_p(self.base), c_size_t(2 * BLOCK_BYTES), LOCAL_WRITE | REMOTE_WRITE),
                            "ibv_reg_mr")
        init = QpInit(send_cq=self.cq, recv_cq=self.cq, max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1,
                      qp_type=UD if self.datagram else RC)
        check(cm.rdma_create_qp(self.id, self.pd, byref(init)), "rdma_create_qp")
        self.qp = True
        if not self.datagram:
            sge = Sge(self.base + BLOCK_BYTES, BLOCK_BYTES, self.region.contents.lkey)
            request = ReceiveRequest(1, None, ctypes.pointer(sge), 1)
            check(-self.ops.post_recv(self.id.contents.qp, byref(request), byref(c_void_p())), "ibv_post_recv")

    def answer(self, length):
        self.data = ctypes.create_string_buffer(pattern(self.salt, length), max(length, 1))
        return Connection(private_data=cast(self.data, c_void_p), private_data_len=length, responder_resources=1, initiator_depth=1,
                          retry_count=3, rnr_retry_count=7, qp_num=self.qp_number() if self.datagram else 0)

    def qp_number(self):
        # struct ibv_qp: six pointers, the handle, the number.
        return c_uint32.from_address(self.id.contents.qp + 52).value

    def request(self):
        self.expect("CONNECT_REQUEST")
        self.id = self.last_id

    def connect(self, length=0):
        check(cm.rdma_connect(self.id, byref(self.answer(length))), "rdma_connect")
        say(step="connecting")

    def accept(self, length=0):
        self.create()
        check(cm.rdma_accept(self.id, byref(self.answer(length))), "rdma_accept")

    def reject(self, length=0):
        check(cm.rdma_reject(self.id, pattern(self.salt, length), c_uint8(length)), "rdma_reject")
        check(cm.rdma_destroy_id(self.id), "rdma_destroy_id")
        self.id = POINTER(Id)()
        say(step="rejected")

    def post(self, opcode, length, remote=(0, 0)):
        sge = Sge(self.base, length, self.region.contents.lkey)
        request = SendRequest(2, None, ctypes.pointer(sge), 1, opcode, SIGNALED, 0, *remote)
        check(-self.ops.post_send(self.id.contents.qp, byref(request), byref(c_void_p())), "ibv_post_send")

    def completion(self):
        """The request of a completion, and its status."""
        done = Completion()
        if not await_that(lambda: check(self.ops.poll_cq(self.cq, 1, byref(done)), "ibv_poll_cq"), PATIENCE_S, 0.0005):
            raise TimeoutError("no completion")
        return done.wr_id, STATUSES.get(done.status, done.status)

    def ping(self):
        header = struct.pack("<QI", self.base + BLOCK_BYTES, self.region.contents.rkey)
        ctypes.memmove(self.base, header + pattern(self.salt, BLOCK_BYTES - len(header)), BLOCK_BYTES)
        self.post(OP_SEND, BLOCK_BYTES)
        ended = dict(self.completion() for _ in range(2))
        got = ctypes.string_at(self.base + BLOCK_BYTES, BLOCK_BYTES)
        self.remote = struct.unpack_from("<QI", got)
        right = got[12:] == pattern(3 - self.salt, BLOCK_BYTES - 12)
        say(step="ping", statuses=sorted(ended.values()), right=right)
        # One extra receive, for the end of the connection.
        sge = Sge(self.base + BLOCK_BYTES, BLOCK_BYTES, self.region.contents.lkey)
        request = ReceiveRequest(1, None, ctypes.pointer(sge), 1)
        check(-self.ops.post_recv(self.id.contents.qp, byref(request), byref(c_void_p())), "ibv_post_recv")

    def stream(self):
        count, number, status = 0, 2, "success"
        while status == "success":
            self.post(OP_WRITE, BLOCK_BYTES, self.remote)
            number, status = self.completion()
            count += status == "success"
            if count == 5:
                say(step="streaming")
        # The posted receive may be flushed before the sends.
        if number == 1:
            number, status = self.completion()
        say(step="stream", written=count > 0, status=status)

    def flushed(self):
        number, status = self.completion()
        say(step="flushed", request=number, status=status)

    def disconnect(self):
        check(cm.rdma_disconnect(self.id), "rdma_disconnect")
        say(step="disconnecting")

    def wait_for(self, path):
        say(step="waiting")
        if not await_that(lambda: os.path.exists(path), PATIENCE_S):
            raise TimeoutError(path)

    def release(self):
        if self.qp:
            cm.rdma_destroy_qp(self.id)
            check(-verbs.ibv_dereg_mr(self.region), "ibv_dereg_mr")
            check(-verbs.ibv_destroy_cq(self.cq), "ibv_destroy_cq")
            check(-verbs.ibv_dealloc_pd(self.pd), "ibv_dealloc_pd")
            self.qp = False
        if self.id:
            check(cm.rdma_destroy_id(self.id), "rdma_destroy_id")
            self.id = POINTER(Id)()
        say(step="released")

    def destroy(self):
        self.release()
        if self.listener:
            check(cm.rdma_destroy_id(self.listener), "rdma_destroy_id")
        cm.rdma_destroy_event_channel(self.channel)
        say(step="destroyed")


def main():
    words = sys.argv[1:]
    datagram = "--ud" in words
    if datagram:
        words.remove("--ud")
    role, own, peer, port, *steps = words
    try:
        side = Side(role == "listen", own, peer, int(port), datagram)
        for step in steps:
            name, _, argument = step.partition(":")
            if name == "expect":
                side.expect(argument)
            elif name == "await":
                side.wait_for(argument)
            else:
                getattr(side, name)(*([int(argument)] if argument else []))
    except (OSError, ValueError) as error:
        say(step="failed", why=f"{type(error).__name__}: {error}")
        sys.exit(1)


main()
