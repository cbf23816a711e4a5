# SPDX-License-Identifier: BSD-3-Clause
"""Connections between the kernel peer and Faultline that are refused, carry private data, are ended by either side or by both at once, or
lose one of their ends: cases of cm_side.py at both ends."""
import itertools
import json
import os
import signal

from guest.guest import HANG_S
from program_pair import Failure, Place, end

HERE = os.path.dirname(os.path.realpath(__file__))
PATIENCE_S = HANG_S
# The largest private data of the program in each message: the IP addressing takes 36 of a REQ's 92 bytes.
REQ_BYTES, REP_BYTES, REJ_BYTES, SIDR_REQ_BYTES, SIDR_REP_BYTES = 56, 196, 148, 180, 136
NO_LISTENER, CONSUMER, STALE = 8, 28, 10
SIDR_UNSUPPORTED, SIDR_REJECTED = 1, 2
ports = itertools.count(7500)


class CmProgram:
    """cm_side.py at one end."""

    def __init__(self, place, role, other, family, port, steps, datagram=False):
        self.place, self.role = place, role
        argv = ["/usr/bin/python3", "-B", f"{HERE}/cm_side.py" if place.ours else "/mnt/share/cm_side.py", role,
                place.addresses[family], other.addresses[family], str(port), *(["--ud"] if datagram else []), *steps.split()]
        self.process = place.popen(argv)

    def lines(self):
        found = []
        for line in self.process.output.splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
        return found

    def await_step(self, step, what="step"):
        if not self.process.await_output(f'"{what}": "{step}"', PATIENCE_S):
            raise Failure(f"{self} says nothing of {step}: {self.process.output}")

    def await_event(self, event):
        self.await_step(event, "event")

    def ended(self):
        """Waits until it has done all steps; returns its output."""
        status = end(self.process, PATIENCE_S)
        if status != 0:
            raise Failure(f"{self}: status {status}: {self.process.output}")
        return self.lines()

    def kill(self):
        self.process.signal(signal.SIGKILL)
        end(self.process, 20)

    def __str__(self):
        return f"{self.place.name}, {self.role}"


class Cases:
    def __init__(self, testbed):
        self.testbed = testbed
        self.ours, self.kernel = Place(testbed, "faultline"), Place(testbed, "kernel")
        self.running = []

    def start(self, place, role, family, port, steps, datagram=False):
        other = self.kernel if place is self.ours else self.ours
        talker = CmProgram(place, role, other, family, port, steps, datagram)
        self.running.append(talker)
        if role == "listen":
            talker.await_step("listening")
        return talker

    def pair(self, ours_listens, family, listen, connect, datagram=False):
        """Starts listener and connector."""
        port = next(ports)
        places = (self.ours, self.kernel) if ours_listens else (self.kernel, self.ours)
        return (self.start(places[0], "listen", family, port, listen, datagram),
                self.start(places[1], "connect", family, port, connect, datagram))

    def open(self, ours_listens, family, ours_then, kernels_then):
        """Starts Faultline's end and the kernel's, which connect and then do these steps."""
        listen, connect = (ours_then, kernels_then)[:: 1 if ours_listens else -1]
        programs = self.pair(ours_listens, family, f"{OPEN_LISTENER} {listen}", f"{OPEN_CONNECTOR} {connect}")
        return programs[:: 1 if ours_listens else -1]

    def clean(self):
        for talker in self.running:
            if talker.process.poll() is None:
                talker.kill()
        self.running = []


def need(condition, what, *programs):
    if not condition:
        raise Failure(f"{what}: " + " // ".join(f"{talker}: {talker.process.output}" for talker in programs))


def event(talker, name):
    return next((line for line in talker.lines() if line.get("event") == name), {})


def need_data(talker, name, length):
    """The event's private data are the peer's pattern of that length, followed by zeros."""
    got = event(talker, name)
    need(got.get("pattern_bytes") == length and got.get("bytes", 0) >= length and got.get("rest_is_zero"),
         f"private data of {length} bytes with {name}", talker)


def need_ping(*programs):
    for talker in programs:
        pings = [line for line in talker.lines() if line.get("step") == "ping"]
        need(pings and all(line["right"] and line["statuses"] == ["success", "success"] for line in pings), "ping", talker)


def need_step(talker, step, **words):
    found = [line for line in talker.lines() if line.get("step") == step]
    need(found and all(found[-1].get(name) == value for name, value in words.items()), f"{step}: {words}", talker)


# ---- ended in order ----

OPEN_LISTENER = f"request accept:{REP_BYTES} expect:ESTABLISHED ping"
OPEN_CONNECTOR = f"connect:{REQ_BYTES} expect:ESTABLISHED ping"
LAST = "disconnect expect:DISCONNECTED flushed destroy"
FIRST_TOLD = "expect:DISCONNECTED disconnect flushed destroy"


def need_open(listener, connector):
    need_data(listener, "CONNECT_REQUEST", REQ_BYTES)
    need_data(connector, "ESTABLISHED", REP_BYTES)
    need_ping(listener, connector)


def disconnect(cases, ours_listens, family, listener_ends, connector_ends):
    programs = cases.pair(ours_listens, family, f"{OPEN_LISTENER} {listener_ends}", f"{OPEN_CONNECTOR} {connector_ends}")
    for talker in programs:
        talker.ended()
    need_open(*programs)
    for talker in programs:
        need_step(talker, "flushed", request=1, status="flushed")


def connector_disconnects(cases, ours_listens, family):
    disconnect(cases, ours_listens, family, FIRST_TOLD, LAST)


def listener_disconnects(cases, ours_listens, family):
    disconnect(cases, ours_listens, family, LAST, FIRST_TOLD)


def both_disconnect(cases, ours_listens, family):
    disconnect(cases, ours_listens, family, LAST, LAST)


def rejected(cases, ours_listens, family):
    listener, connector = cases.pair(ours_listens, family, f"request reject:{REJ_BYTES} destroy",
                                     f"connect:{REQ_BYTES} expect:REJECTED destroy")
    listener.ended(), connector.ended()
    need_data(listener, "CONNECT_REQUEST", REQ_BYTES)
    need_data(connector, "REJECTED", REJ_BYTES)
    need(event(connector, "REJECTED").get("status") == CONSUMER, "reason of the rejection", connector)


def nobody_listens(cases, ours_listens, family):
    places = (cases.ours, cases.kernel) if ours_listens else (cases.kernel, cases.ours)
    # At another port, so that there is a device.
    cases.start(places[0], "listen", family, next(ports), "request")
    connector = cases.start(places[1], "connect", family, next(ports), "connect expect:REJECTED destroy")
    connector.ended()
    need(event(connector, "REJECTED").get("status") == NO_LISTENER, "reason of the rejection", connector)


def datagram_service(cases, ours_listens, family):
    """SIDR: the client learns the QP of a service."""
    listener, connector = cases.pair(ours_listens, family, f"request accept:{SIDR_REP_BYTES} await:/tmp/over destroy",
                                     f"connect:{SIDR_REQ_BYTES} expect:ESTABLISHED destroy", datagram=True)
    connector.ended()
    need_data(listener, "CONNECT_REQUEST", SIDR_REQ_BYTES)
    need_data(connector, "ESTABLISHED", SIDR_REP_BYTES)


def datagram_service_refused(cases, ours_listens, family):
    listener, connector = cases.pair(ours_listens, family, f"request reject:{SIDR_REP_BYTES} destroy",
                                     f"connect:{SIDR_REQ_BYTES} expect:UNREACHABLE destroy", datagram=True)
    listener.ended(), connector.ended()
    need_data(listener, "CONNECT_REQUEST", SIDR_REQ_BYTES)
    need(event(connector, "UNREACHABLE").get("status") == SIDR_REJECTED, "SIDR status", connector)


def no_datagram_service(cases, ours_listens, family):
    places = (cases.ours, cases.kernel) if ours_listens else (cases.kernel, cases.ours)
    cases.start(places[0], "listen", family, next(ports), "request", datagram=True)
    connector = cases.start(places[1], "connect", family, next(ports), "connect expect:UNREACHABLE destroy", datagram=True)
    connector.ended()
    need(event(connector, "UNREACHABLE").get("status") == SIDR_UNSUPPORTED, "SIDR status", connector)


# ---- ends that vanish ----

# The remaining end: its write fails, its posted requests complete in error, the connection ends, all objects can be destroyed.
STREAM = "stream flushed disconnect expect:DISCONNECTED destroy"
IDLE = "await:/tmp/never"


def need_stream_lost(talker):
    need_step(talker, "stream", written=True, status="retries exceeded")
    need_step(talker, "flushed", request=1, status="flushed")
    need_step(talker, "destroyed")


def kernels_process_killed(cases, ours_listens, family):
    """The kernel ends the connection on behalf of the process."""
    ours, theirs = cases.open(ours_listens, family, "stream expect:DISCONNECTED disconnect flushed destroy", IDLE)
    ours.await_step("streaming")
    theirs.await_step("waiting")
    theirs.kill()
    ours.ended()
    need_stream_lost(ours)


def kernel_frozen(cases, ours_listens, family):
    ours, theirs = cases.open(ours_listens, family, STREAM, IDLE)
    ours.await_step("streaming")
    theirs.await_step("waiting")
    cases.testbed.peer.freeze()
    try:
        ours.ended()
        need_stream_lost(ours)
    finally:
        cases.testbed.peer.thaw()
    theirs.kill()


def kernel_frozen_at_connect(cases, ours_listens, family):
    """The kernel is thawed in time: the connection is established, although its first messages were lost or late."""
    go = f"{cases.testbed.folder}/go"
    listen, connect = f"{OPEN_LISTENER} {FIRST_TOLD}", f"{OPEN_CONNECTOR} {LAST}"
    if ours_listens:
        listen = listen.replace("request", f"request await:{go}", 1)
    else:
        connect = f"await:{go} {connect}"
    listener, connector = cases.pair(ours_listens, family, listen, connect)
    ours = listener if ours_listens else connector
    ours.await_step("waiting")
    cases.testbed.peer.freeze()
    try:
        open(go, "w").close()
        if not ours_listens:
            ours.await_step("connecting")
        # Long enough for a retransmission of the message.
        ours.process.await_output("ESTABLISHED", 3)
        need("ESTABLISHED" not in ours.process.output, "a connection with what is frozen", ours)
    finally:
        cases.testbed.peer.thaw()
        os.unlink(go)
    listener.ended(), connector.ended()
    need_open(listener, connector)


def kernel_frozen_for_good(cases, ours_listens, family):
    """A REQ or REP that receives no response."""
    go = f"{cases.testbed.folder}/go"
    # The kernel then resolves Faultline's address again, and so the new process learns the kernel's: a frozen kernel does not answer.
    cases.testbed.peer.check("ip", "neigh", "flush", "dev", "eth0")
    steps = ("request", f"await:{go} connect expect:UNREACHABLE destroy")
    if ours_listens:
        steps = (f"request await:{go} accept expect:UNREACHABLE destroy", f"{OPEN_CONNECTOR} {IDLE}")
    listener, connector = cases.pair(ours_listens, family, *steps)
    ours, theirs = (listener, connector)[:: 1 if ours_listens else -1]
    ours.await_step("waiting")
    cases.testbed.peer.freeze()
    try:
        open(go, "w").close()
        ours.ended()
    finally:
        cases.testbed.peer.thaw()
        os.unlink(go)
    need_step(ours, "destroyed")
    theirs.kill()


def our_process_killed(cases, ours_listens, family):
    """The process ends together with its stack, so nothing ends the connection. The kernel must keep its own time limits; later
    connections are
    not affected."""
    ours, theirs = cases.open(ours_listens, family, IDLE, "stream flushed destroy")
    theirs.await_step("streaming")
    ours.await_step("waiting")
    ours.kill()
    theirs.ended()
    need_stream_lost(theirs)
    connector_disconnects(cases, ours_listens, family)


def our_process_reborn(cases, ours_listens, family):
    """The kernel's old connection still exists, idle, when a new process of Faultline starts. Then the kernel ends the old connection."""
    ours, theirs = cases.open(ours_listens, family, IDLE, f"await:/tmp/go {LAST}")
    theirs.await_step("waiting")
    ours.await_step("waiting")
    ours.kill()
    connector_disconnects(cases, ours_listens, family)
    # A process of Faultline must be there to answer.
    cases.start(cases.ours, "listen", family, next(ports), "request")
    cases.testbed.peer.check("touch", "/tmp/go")
    try:
        theirs.ended()
    finally:
        cases.testbed.peer.check("rm", "/tmp/go")
    need_step(theirs, "flushed", request=1, status="flushed")


def power_cut(cases, ours_listens, family):
    ours, theirs = cases.open(ours_listens, family, STREAM, IDLE)
    ours.await_step("streaming")
    theirs.await_step("waiting")
    cases.testbed.peer.stop()
    cases.running.remove(theirs)
    try:
        ours.ended()
    finally:
        cases.testbed.peer.start()
    need_stream_lost(ours)
    connector_disconnects(cases, ours_listens, family)


def rebooted_with_the_same_qpn(cases, _, family):
    """Faultline's listener has a connection with a kernel that has been rebooted. The kernel sends a REQ with the QPN of the old
    connection. The
    old connection is then stale and ends, and the kernel's next request is a new connection (IBA 12.9.8.3.1)."""
    # Rebooted both times, so that either QP is the first one.
    cases.testbed.peer.reboot()
    port = next(ports)
    ours = cases.start(cases.ours, "listen", family, port,
                      f"{OPEN_LISTENER} expect:DISCONNECTED disconnect flushed release {OPEN_LISTENER} {FIRST_TOLD}")
    theirs = cases.start(cases.kernel, "connect", family, port, f"{OPEN_CONNECTOR} {IDLE}")
    ours.await_step("ping")
    theirs.await_step("waiting")
    cases.running.remove(theirs)
    cases.testbed.peer.reboot()
    first = cases.start(cases.kernel, "connect", family, port, f"connect:{REQ_BYTES} expect:REJECTED destroy")
    first.ended()
    need(event(first, "REJECTED").get("status") == STALE, "reason of the rejection", first)
    ours.await_step("released")
    second = cases.start(cases.kernel, "connect", family, port, f"{OPEN_CONNECTOR} {LAST}")
    second.ended(), ours.ended()
    need_open(ours, second)
    need_step(ours, "flushed", request=1, status="flushed")


# Case, the families and listeners (Faultline?) of the reduced run, and those of the full one
BOTH = (True, False)
TABLE = (
    ("private data, the client disconnects", connector_disconnects, ((4, True),), (4, 6), BOTH),
    ("private data, the server disconnects", listener_disconnects, ((6, False),), (4, 6), BOTH),
    ("both disconnect", both_disconnect, (), (4, 6), BOTH),
    ("rejected with private data", rejected, ((4, False), (6, True)), (4, 6), BOTH),
    ("no listener", nobody_listens, ((4, True),), (4, 6), BOTH),
    ("datagram service", datagram_service, ((6, True),), (4, 6), BOTH),
    ("datagram service refused", datagram_service_refused, (), (4, 6), BOTH),
    ("no datagram service", no_datagram_service, (), (4, 6), BOTH),
    ("the kernel's process is killed", kernels_process_killed, ((4, False),), (4,), BOTH),
    ("Faultline's process is killed", our_process_killed, (), (4,), BOTH),
    ("Faultline's process is killed and another comes", our_process_reborn, (), (4,), BOTH),
    ("the kernel is frozen", kernel_frozen, (), (4,), BOTH),
    ("the kernel is frozen for a while at connecting", kernel_frozen_at_connect, (), (4,), BOTH),
    ("the kernel is frozen for good at connecting", kernel_frozen_for_good, (), (4,), BOTH),
    ("the kernel's power is cut", power_cut, (), (4,), BOTH),
    ("the kernel is booted anew and has the same QPN", rebooted_with_the_same_qpn, (), (4,), (True,)),
)


def run(testbed, tally, reduced, wanted):
    cases = Cases(testbed)
    for name, case, few, families, places in TABLE:
        for family, ours_listens in itertools.product(families, places):
            title = f"{name}, IPv{family}, {'Faultline' if ours_listens else 'the kernel'} listens"
            if not wanted.search(title) or (reduced and (family, ours_listens) not in few):
                continue
            try:
                case(cases, ours_listens, family)
                tally.ok(title)
            except Failure as failure:
                tally.fail(title, failure)
            finally:
                cases.clean()
