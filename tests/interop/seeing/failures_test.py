#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Why perftest fails: the log names the cause once, perftest prints it as its syndrome, and faultline top lists what the other end dropped.
  failures_test.py FAULTLINE FAULTLINE_RUN"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

FAULTLINE, RUN = (os.path.realpath(path) for path in sys.argv[1:3])
WAIT_S = 60
TRANSFER = ["ib_write_bw", "-F", "-q", "4", "-D", "60"]
started = []


def start(words, level="info"):
    environment = {**os.environ, "FAULTLINE_LOG": level} if level else {name: value for name, value in os.environ.items() if name != "FAULTLINE_LOG"}
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    started.append(process)
    return process


def devices(*words):
    result = subprocess.run([FAULTLINE, "top", "--json", "--interval", "0.3", *words], capture_output=True, text=True, timeout=WAIT_S, check=True)
    return json.loads(result.stdout)["devices"]


def until(what, condition):
    limit = time.monotonic() + WAIT_S
    while time.monotonic() < limit:
        if (value := condition()):
            return value
        time.sleep(0.1)
    raise AssertionError(f"no {what} in {WAIT_S} s")


def sending(client):
    return [one for one in devices("--pid", str(client.pid)) if one["per_second"].get("transport.tx_packets", 0) > 1000]


def pair(server_words, client_words, address, level="info"):
    server = start([*server_words, *TRANSFER])
    # The server opens its device with the client's first message. Either ends with the other.
    limit = time.monotonic() + WAIT_S
    ended = []
    while time.monotonic() < limit:
        client = start([*client_words, *TRANSFER, address], level)
        while client.poll() is None and time.monotonic() < limit:
            if sending(client):
                return server, client
        if server.poll() is not None:
            ended.append((server.communicate(), client.communicate()))
            server = start([*server_words, *TRANSFER])
    raise AssertionError(f"no traffic in {WAIT_S} s: {ended}")


def lines_of(client, cause):
    out, errors = client.communicate(timeout=WAIT_S)
    assert client.returncode != 0
    lines = [line for line in errors.splitlines() if cause in line]
    return out + errors, lines


def killed_peer():
    wire = [RUN, "--wire", f"failures{os.getpid()}"]
    server, client = pair([*wire, "--side", "a"], [*wire, "--side", "b"], "198.18.0.1")
    server.kill()
    text, lines = lines_of(client, "stopped_answering")
    assert len(lines) == 1, text  # four QPs, one peer, one cause
    assert re.search(r"peer 198\.18\.0\.1 QP 0x[0-9a-f]{6}: fails at PSN \d+: the peer has stopped answering", lines[0]), lines
    assert re.search(r"no answer for \d+(\.\d+)? ms: 7 of 7 retries are used, the ACK timeout is 67.1 ms; ", lines[0]), lines
    assert "WRITE of 65536 bytes" in lines[0] and "the next hop" in lines[0], lines
    # The completion's vendor_err: "Failed status 12: wr_id 0 syndrom 0x2".
    assert re.search(r"status 12: wr_id \d+ syndrom 0x2\b", text), text
    print("a killed peer: " + lines[0])

    # At the default level nothing is added.
    server, client = pair([*wire, "--side", "a"], [*wire, "--side", "b"], "198.18.0.1", level=None)
    server.kill()
    text, lines = lines_of(client, "faultline:")
    assert not lines, text


CONFIG = '[[device]]\nname = "fail{0}"\nip = "198.18.0.{0}/24"\n[device.port]\nkind = "af_packet"\ninterface = "fl-fail-{0}"\n'


def link_down(folder):
    if os.geteuid() != 0:
        print("not root: no link to take down")
        return
    for words in ("link add fl-fail-1 mtu 4500 type veth peer name fl-fail-2 mtu 4500", "link set lo up", "link set fl-fail-1 up", "link set fl-fail-2 up"):
        subprocess.run(["ip", *words.split()], check=True)
    for number in (1, 2):
        with open(f"{folder}/{number}.toml", "w", encoding="utf-8") as file:
            file.write(CONFIG.format(number))
    # The control connection of perftest goes over the loopback interface.
    server, client = pair([RUN, "--config", f"{folder}/1.toml"], [RUN, "--config", f"{folder}/2.toml"], "127.0.0.1")
    subprocess.run(["ip", "link", "set", "fl-fail-2", "down"], check=True)
    text, lines = lines_of(client, "link_down")
    assert len(lines) == 1 and "the port's link is down" in lines[0], text
    assert re.search(r"status 12: wr_id \d+ syndrom 0x3\b", text), text
    assert server.poll() is None
    server.kill()
    server.wait(WAIT_S)
    print("a link that went down: " + lines[0])


def stopped_switch(folder):
    """The programs of a wire start no other switch for an uplink. After link_down(): both ends are up again."""
    if os.geteuid() != 0:
        return
    subprocess.run(["ip", "link", "set", "fl-fail-2", "up"], check=True)
    name = f"uplink{os.getpid()}"
    switch = start([os.path.join(os.path.dirname(RUN), "faultline-switch"), "--wire", name, "--uplink", "af_packet:fl-fail-2"])
    # A program that comes before the switch would start one without an uplink.
    until("switch", lambda: os.path.exists(f"{folder}/faultline/{name}.uplink"))
    client_words = [RUN, "--wire", name, "--ip", "198.18.0.2"]
    server, client = pair([RUN, "--config", f"{folder}/1.toml"], client_words, "127.0.0.1")
    switch.kill()
    text, lines = lines_of(client, "link_down")
    assert len(lines) == 1 and "peer 198.18.0.1" in lines[0] and "the port's link is down" in lines[0], text
    assert server.poll() is None
    print("a switch that was stopped: " + lines[0])


def dropped_packets(folder):
    """The server's program is stopped and its QP destroyed: what the client sends on is counted as dropped there."""
    script = f"{folder}/pair.py"
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
import pyverbs.enums as e
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
    program = subprocess.Popen([RUN, "--wire", f"failures{os.getpid()}", "/usr/bin/python3", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    started.append(program)
    line = program.stdout.readline()
    assert line.split() == [str(12), "1"], f"IBV_WC_RETRY_EXC_ERR, never_answered: {line!r}"
    names = until("failures in faultline top", lambda: {failure["name"] for device in devices("--pid", str(program.pid)) for failure in device["failures"]}
                  >= {"never_answered", "dropped_unknown_qpn"} and True)
    assert names
    status = subprocess.run([FAULTLINE, "top", "--once", "--interval", "0.1", "--pid", str(program.pid)], capture_output=True, text=True, check=True)
    assert "no QP has their destination QPN" in status.stdout, status.stdout
    program.stdin.close()
    assert program.wait(WAIT_S) == 0
    print("packets to a QP that is gone are named at both ends")


def refused_connections(folder):
    """A connection to a port on which nobody listens, and one to an address that nobody has."""
    script = f"{folder}/connect.py"
    with open(script, "w", encoding="utf-8") as file:
        file.write("""
import sys
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.qp import QPInitAttr, QPCap
import pyverbs.cm_enums as c
context = Context(name="faultline0")
pd = PD(context)  # the device stays open
for host in ("198.18.0.1", "198.18.0.200"):
    try:
        address = AddrInfo(src="198.18.0.2", dst=host, dst_service="4444", port_space=c.RDMA_PS_TCP)
        CMID(creator=address, qp_init_attr=QPInitAttr(cap=QPCap(max_recv_wr=1, max_send_wr=1))).connect()
    except Exception as error:
        print(host, error, file=sys.stderr, flush=True)
print("done", flush=True)
sys.stdin.read()
""")
    wire = [RUN, "--wire", f"failures{os.getpid()}"]
    listener = start([*wire, "--side", "a", "rping", "-s", "-a", "198.18.0.1"])
    until("listener", lambda: devices("--pid", str(listener.pid)))
    program = subprocess.Popen([*wire, "--side", "b", "/usr/bin/python3", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    started.append(program)
    assert program.stdout.readline() == "done\n"
    failures = {failure["name"]: failure["text"] for device in devices("--pid", str(program.pid)) for failure in device["failures"]}
    assert "198.18.0.1: " in failures["connection_rejected"] and "reason 8" in failures["connection_rejected"], failures
    assert "198.18.0.200: " in failures["no_neighbour"], failures
    program.stdin.close()
    program.wait(WAIT_S)
    # Its side of the wire is free once the process is gone.
    listener.kill()
    listener.wait(WAIT_S)
    print("a refused connection: " + failures["connection_rejected"])


def main():
    if not all(shutil.which(program) for program in ("ib_write_bw", "ip", "rping")):
        print("SKIPPED: perftest, iproute2 or rping is not installed")
        return 77
    if os.geteuid() == 0 and "FAULTLINE_OWN_NETWORK" not in os.environ:
        os.environ["FAULTLINE_OWN_NETWORK"] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    folder = tempfile.mkdtemp(prefix="faultline-failures-")
    try:
        os.environ.update(XDG_RUNTIME_DIR=folder)
        if os.geteuid() == 0:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        dropped_packets(folder)
        refused_connections(folder)
        killed_peer()
        link_down(folder)
        stopped_switch(folder)
        return 0
    finally:
        for process in started:
            if process.poll() is None:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


sys.exit(main())
