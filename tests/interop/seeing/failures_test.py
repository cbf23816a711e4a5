#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Why perftest fails: the log names the cause, perftest prints it as its syndrome, and faultline top lists what the other end dropped.
  failures_test.py FAULTLINE FAULTLINE_RUN"""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402

FAULTLINE, RUN = (os.path.realpath(path) for path in sys.argv[1:3])
SWITCH = os.path.join(os.path.dirname(RUN), "faultline-switch")
PYTHON = "/usr/bin/python3"  # Debian's pyverbs is of Debian's Python
# With the ACK timeout of 134 ms the QP fails 3 s after its peer, and not while a busy machine keeps the peer from its CPU. The length of the run
# is no bound: each run is ended.
TRANSFER = ["ib_write_bw", "-F", "-q", "4", "-u", "15", "-D", "3600"]


def start(words, level="info"):
    environment = {name: value for name, value in os.environ.items() if name != "FAULTLINE_LOG"}
    if level:
        environment["FAULTLINE_LOG"] = level
    return lib.start(words, name=words[-1], env=environment, errors_apart=True)


def devices(*words):
    return json.loads(lib.call([FAULTLINE, "top", "--json", "--interval", "0.1", *words]).stdout)["devices"]


def pair(server_words, client_words, address, level="info"):
    """Starts perftest at both ends; returns them once packets flow."""
    port = str(lib.free_port())
    server = start([*server_words, *TRANSFER, "-p", port])
    lib.await_port(port, server)
    client = start([*client_words, *TRANSFER, "-p", port, address], level)
    lib.await_that(lambda: any(one["counters"]["transport.tx_packets"] > 1000 for one in devices("--pid", str(client.pid))), "traffic", server, client)
    return server, client


def lines_of(client, cause):
    """The client's whole output once it has failed, and its lines with the cause."""
    assert client.wait() != 0
    text = client.text() + client.error_text()
    return text, [line for line in client.error_text().splitlines() if cause in line]


def killed_peer():
    wire = [RUN, "--wire", f"failures{os.getpid()}"]
    server, client = pair([*wire, "--side", "a"], [*wire, "--side", "b"], "198.18.0.1")
    server.end()
    text, lines = lines_of(client, "stopped_answering")
    assert lines, text  # one line for four QPs, if they fail within a second: glue_unit, Reasons.ManyQpsOfOnePeerAreOneLine
    assert re.search(r"peer 198\.18\.0\.1 QP 0x[0-9a-f]{6}: fails at PSN \d+: the peer has stopped answering", lines[0]), lines
    assert re.search(r"no answer for [\d.e+]+ ms: 7 of 7 retries are used, the ACK timeout is 134(\.\d+)? ms; ", lines[0]), lines
    assert "WRITE of 65536 bytes" in lines[0] and "the next hop" in lines[0], lines
    # The completion's vendor_err: "Failed status 12: wr_id 0 syndrom 0x2".
    assert re.search(r"status 12: wr_id \d+ syndrom 0x2\b", text), text
    print("a killed peer: " + lines[0])

    # At the default level nothing is added.
    server, client = pair([*wire, "--side", "a"], [*wire, "--side", "b"], "198.18.0.1", level=None)
    server.end()
    text, lines = lines_of(client, "faultline:")
    assert not lines, text


CONFIG = '[[device]]\nname = "fail{0}"\nip = "198.18.0.{0}/24"\n[device.port]\nkind = "af_packet"\ninterface = "fl-fail-{0}"\n'


def link_down(folder):
    if os.geteuid() != 0:
        print("not root: no link to take down")
        return
    for words in ("link add fl-fail-1 mtu 4500 type veth peer name fl-fail-2 mtu 4500", "link set fl-fail-1 up", "link set fl-fail-2 up"):
        lib.call(["ip", *words.split()])
    for number in (1, 2):
        with open(f"{folder}/{number}.toml", "w", encoding="utf-8") as file:
            file.write(CONFIG.format(number))
    # The control connection of perftest goes over the loopback interface.
    server, client = pair([RUN, "--config", f"{folder}/1.toml"], [RUN, "--config", f"{folder}/2.toml"], "127.0.0.1")
    lib.call(["ip", "link", "set", "fl-fail-2", "down"])
    text, lines = lines_of(client, "link_down")
    assert lines and "the port's link is down" in lines[0], text
    assert re.search(r"status 12: wr_id \d+ syndrom 0x3\b", text), text
    server.end()
    print("a link that went down: " + lines[0])


def stopped_switch(folder):
    """The programs of a wire start no other switch for an uplink. After link_down(): both ends are up again."""
    if os.geteuid() != 0:
        return
    lib.call(["ip", "link", "set", "fl-fail-2", "up"])
    name = f"uplink{os.getpid()}"
    # A program that comes before the switch would start one without an uplink.
    switch = lib.start_switch(SWITCH, name, "--uplink", "af_packet:fl-fail-2")
    client_words = [RUN, "--wire", name, "--ip", "198.18.0.2"]
    server, client = pair([RUN, "--config", f"{folder}/1.toml"], client_words, "127.0.0.1")
    switch.end()
    text, lines = lines_of(client, "link_down")
    assert lines and "peer 198.18.0.1" in lines[0] and "the port's link is down" in lines[0], text
    server.end()
    print("a switch that was stopped: " + lines[0])


def dropped_packets(folder):
    """The server's program is stopped and its QP destroyed: what the client sends on is counted as dropped there."""
    script = f"{folder}/pair.py"
    shutil.copy(os.path.join(os.path.dirname(lib.__file__), "verbs_enums.py"), folder)
    with open(script, "w", encoding="utf-8") as file:
        file.write("""
import sys, time
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.cq import CQ
from pyverbs.qp import QP, QPInitAttr, QPCap, QPAttr
from pyverbs.addr import GlobalRoute, AHAttr
from pyverbs.mr import MR
from pyverbs.wr import SendWR, SGE
import verbs_enums as e
context = Context(name="faultline0")
pd, cq = PD(context), CQ(context, 64)
init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=4, max_recv_wr=4))
def make(): return QP(pd, init)
def connect(qp, number):
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.path_mtu, attr.timeout, attr.retry_cnt, attr.rnr_retry = number, e.IBV_MTU_1024, 10, 2, 7
    attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0, hop_limit=1), is_global=1, port_num=1)
    qp.to_rts(attr)
one, two = make(), make()
connect(one, two.qp_num)
connect(two, one.qp_num)
two.close()
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)
one.post_send(SendWR(wr_id=1, opcode=e.IBV_WR_SEND, num_sge=1, sg=[SGE(mr.buf, 64, mr.lkey)]))
while not (found := cq.poll(1)[1]): pass
print(found[0].status, found[0].vendor_err, flush=True)
sys.stdin.read()
""")
    program = lib.start([RUN, "--wire", f"failures{os.getpid()}", PYTHON, script], stdin=subprocess.PIPE)
    line = lib.await_line(program, r"^\d+ \d+$").group()
    assert line == "12 1", f"IBV_WC_RETRY_EXC_ERR, never_answered: {line!r}"
    lib.await_that(lambda: {failure["name"] for device in devices("--pid", str(program.pid)) for failure in device["failures"]}
                   >= {"never_answered", "dropped_unknown_qpn"}, "failures in faultline top", program)
    status = lib.call([FAULTLINE, "top", "--once", "--interval", "0.1", "--pid", str(program.pid)])
    assert "no QP has their destination QPN" in status.stdout, status.stdout
    program.stdin.close()
    program.succeed()
    print("packets to a QP that is gone are named at both ends")


def refused_connections(folder):
    """A connection to a port on which nobody listens, and one to an address that nobody has."""
    script = f"{folder}/connect.py"
    with open(script, "w", encoding="utf-8") as file:
        file.write("""
import resource, sys
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.qp import QPInitAttr, QPCap
import verbs_enums as c
context = Context(name="faultline0")
pd = PD(context)  # the device stays open
for host in ("198.18.0.1", "198.18.0.200"):
    try:
        address = AddrInfo(src="198.18.0.2", dst=host, dst_service="4444", port_space=c.RDMA_PS_TCP)
        CMID(creator=address, qp_init_attr=QPInitAttr(cap=QPCap(max_recv_wr=1, max_send_wr=1))).connect()
    except Exception as error:
        print(host, error, file=sys.stderr, flush=True)
print("switches", resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw, flush=True)
sys.stdin.read()
""")
    name = f"failures{os.getpid()}"
    listener = start([RUN, "--wire", name, "--side", "a", "rping", "-s", "-a", "198.18.0.1"])
    lib.await_cm_listener(RUN, name, listener)
    program = lib.start([RUN, "--wire", name, "--side", "b", PYTHON, script], stdin=subprocess.PIPE)
    switches = int(lib.await_line(program, r"^switches (\d+)$").group(1))

    def failures():
        return {failure["name"]: failure["text"] for device in devices("--pid", str(program.pid)) for failure in device["failures"]}
    found = lib.await_that(lambda: (now := failures()) and now.keys() >= {"connection_rejected", "no_neighbour"} and now, "two failures", program)
    assert "198.18.0.1: " in found["connection_rejected"] and "reason 8" in found["connection_rejected"], found
    assert "198.18.0.200: " in found["no_neighbour"], found
    # A thread that looks each 50 us for the answer sleeps some 100,000 times in the 10 s of its patience.
    assert switches < 30_000, f"{switches} sleeps while an address was resolved"
    program.stdin.close()
    program.wait()
    # Its side of the wire is free once the process is gone.
    listener.end()
    print("a refused connection: " + found["connection_rejected"])


def main():
    lib.need("ib_write_bw", "ip", "rping", "rdma")
    lib.own_network()
    folder = lib.own_runtime_folder()
    dropped_packets(folder)
    refused_connections(folder)
    killed_peer()
    link_down(folder)
    stopped_switch(folder)


main()
