#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""iproute2's `rdma` under faultline-run shows what programs on a wire have: a program of pyverbs states its objects, and rping has
identifiers of rdma_cm. A file of sysfs, read by another process, has the programs' counters.
  rdma_tool_test.py FAULTLINE_RUN
  rdma_tool_test.py --program        the program of pyverbs; ends with its standard input"""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests
import lib  # noqa: E402

DEVICE = "faultline0"
SENDS = 40
SEND_BYTES = 5000


def program():
    import verbs_enums as e
    from pyverbs.addr import AHAttr, GID, GlobalRoute
    from pyverbs.cq import CQ
    from pyverbs.device import Context
    from pyverbs.mr import MR
    from pyverbs.pd import PD
    from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
    from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
    from pyverbs.wr import SGE, RecvWR, SendWR

    context = Context(name=DEVICE)
    pds = [PD(context), PD(context)]
    cqs = [CQ(context, 100), CQ(context, 10)]
    mrs = [MR(pds[0], 12288, e.IBV_ACCESS_LOCAL_WRITE), MR(pds[0], 100, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ),
           MR(pds[1], 1 << 20, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_ON_DEMAND)]
    srq = SRQ(pds[1], SrqInitAttr(SrqAttr(max_wr=10)))
    capacity = QPCap(max_send_wr=SENDS, max_recv_wr=SENDS)

    def make(kind, pd=pds[0], **more):
        return QP(pd, QPInitAttr(qp_type=kind, scq=cqs[0], rcq=cqs[0], cap=capacity, **more))

    qps = {"left": make(e.IBV_QPT_RC), "right": make(e.IBV_QPT_RC), "unused": make(e.IBV_QPT_UC, pds[1]),
           "datagrams": make(e.IBV_QPT_UD), "shared": make(e.IBV_QPT_RC, pds[1], srq=srq)}
    gid = context.query_gid(1, 0)
    for own, peer, psn, peer_psn in (("left", "right", 1000, 2000), ("right", "left", 2000, 1000)):
        attr = QPAttr(port_num=1)
        attr.dest_qp_num, attr.rq_psn, attr.sq_psn = qps[peer].qp_num, peer_psn, psn
        attr.path_mtu = context.query_port(1).active_mtu
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 1
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 20, 7, 7
        attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=GID(str(gid)), sgid_index=0), is_global=1, port_num=1)
        qps[own].to_rts(attr)
    attr = QPAttr(port_num=1)
    attr.qkey = 0x1111
    qps["datagrams"].to_init(attr)

    where = [SGE(mrs[0].buf, SEND_BYTES, mrs[0].lkey)]
    for _ in range(SENDS):
        qps["right"].post_recv(RecvWR(num_sge=1, sg=where))
    for _ in range(SENDS):
        qps["left"].post_send(SendWR(num_sge=1, sg=where))
    done = 0
    while done < 2 * SENDS:
        count, completions = cqs[0].poll(8)
        assert all(one.status == e.IBV_WC_SUCCESS for one in completions or []), completions
        done += count

    def describe(qp, pd):
        now, _ = qp.query(e.IBV_QP_STATE | e.IBV_QP_SQ_PSN | e.IBV_QP_RQ_PSN | e.IBV_QP_DEST_QPN)
        return {"lqpn": qp.qp_num, "state": now.qp_state, "sq": now.sq_psn, "rq": now.rq_psn, "peer": now.dest_qp_num, "pd": pd.handle}

    print(json.dumps({
        "pid": os.getpid(),
        "pds": [pd.handle for pd in pds],
        "cqs": [cq.cqe for cq in cqs],
        "mrs": [[mr.handle, mr.lkey, mr.rkey, mr.buf, mr.length, pd.handle] for mr, pd in zip(mrs, (pds[0], pds[0], pds[1]))],
        "qps": {name: describe(qp, pds[1] if name in ("unused", "shared") else pds[0]) for name, qp in qps.items()},
    }), flush=True)
    sys.stdin.read()
    for one in (*qps.values(), srq, *mrs, *cqs, *pds, context):
        one.close()


if sys.argv[1:] == ["--program"]:
    sys.exit(program())

RUN = os.path.realpath(sys.argv[1])
PYTHON = "/usr/bin/python3"  # Debian's pyverbs is of Debian's Python
lib.need("rdma", "rping")
if not os.path.exists(os.path.join(os.path.dirname(RUN), "../stack/abi/libibverbs.so.1")) or \
        subprocess.run([PYTHON, "-c", "import pyverbs.qp"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
    lib.skip("there is no drop-in library, or no pyverbs")

lib.own_runtime_folder()
WIRE = "rdma"


def on_wire(*words, **options):
    """Runs a command on the wire; returns subprocess.CompletedProcess."""
    return lib.call([RUN, "--wire", WIRE, "--", *words], **options)


def start(*words, **options):
    return lib.start([RUN, "--wire", WIRE, *words], errors_apart=True, **options)


def rdma(*words):
    """The JSON of rdma(8), which prints "[ ]" or nothing for nothing."""
    shown = on_wire("rdma", "-d", "-j", *words)
    assert shown.stderr == "", shown.stderr
    # Version 6.1 prints an array for each port.
    return [entry for line in shown.stdout.splitlines() for entry in json.loads(line or "[]") if entry]


def of(pid, entries):
    return [entry for entry in entries if entry.get("pid") == pid]


def same(what, shown, expected):
    lib.expect(shown == expected, f"{what}: rdma shows {shown}, expected {expected}")
    print(f"ok: {what}", flush=True)


def becomes(what, shown, expected):
    """Waits until rdma shows what is expected: a program publishes its objects a moment after the call that makes them."""
    lib.await_that(lambda: shown() == expected, lambda: f"{what}: rdma shows {shown()}, expected {expected}")
    print(f"ok: {what}", flush=True)


def until(what, condition):
    lib.await_that(condition, what)
    print(f"ok: {what}", flush=True)


def sysfs(file):
    return int(on_wire("cat", f"/sys/class/infiniband/{DEVICE}/ports/1/{file}").stdout)


def check_device():
    [device] = rdma("dev", "show", DEVICE)
    info = on_wire("ibv_devinfo").stdout
    same("the GUID of ibv_devinfo", device["node_guid"], re.search(r"node_guid:\s+(\S+)", info).group(1))
    same("the version", device["fw"], re.search(r"fw_ver:\s+(\S+)", info).group(1))
    [link] = rdma("link", "show", f"{DEVICE}/1")
    same("the port", (link["ifname"], link["port"], link["state"], link["physical_state"]), (DEVICE, 1, "ACTIVE", "LINK_UP"))
    assert "PORT_ACTIVE (4)" in info, info
    system = on_wire("rdma", "system").stdout
    same("the system", ("netns shared" in system, "copy-on-fork on" in system), (True, True))


def check_objects(has):
    pid = has["pid"]
    becomes("PDs", lambda: {(pd["pdn"], pd["users"]) for pd in of(pid, rdma("res", "show", "pd"))},
            {(has["pds"][0], 5), (has["pds"][1], 4)})  # 2 MRs, 3 QPs; 1 MR, 2 QPs, 1 SRQ
    becomes("CQs", lambda: {(cq["cqe"], cq["users"]) for cq in of(pid, rdma("res", "show", "cq"))},
            set(zip(has["cqs"], (10, 0))))  # each of five QPs sends and receives by the first

    def number(key):
        """A key is printed as text or as a number; version 6.1 prints 32 bits of an IOVA."""
        return (key if isinstance(key, int) else int(key, 16)) & 0xffffffff
    becomes("MRs", lambda: sorted([mr["mrn"], number(mr["lkey"]), number(mr["rkey"]), number(mr["iova"]), mr["mrlen"], mr["pdn"]]
                                  for mr in of(pid, rdma("res", "show", "mr"))),
            sorted([mrn, lkey, rkey, number(iova), length, pdn] for mrn, lkey, rkey, iova, length, pdn in has["mrs"]))
    becomes("SRQ", lambda: [(srq["type"], [int(qpn) for qpn in srq["lqpn"]], srq["pdn"]) for srq in of(pid, rdma("res", "show", "srq"))],
            [("BASIC", [has["qps"]["shared"]["lqpn"]], has["pds"][1])])
    same("context", [context["ctxn"] for context in of(pid, rdma("res", "show", "ctx"))], [pid])

    states = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"]
    types = {"left": "RC", "right": "RC", "unused": "UC", "datagrams": "UD", "shared": "RC"}

    def shown():
        return {qp["lqpn"]: (qp["type"], qp["state"], qp["pdn"]) for qp in of(pid, rdma("res", "show", "qp"))}
    until("QPs with type, state and PD", lambda: shown() == {
        qp["lqpn"]: (types[name], states[qp["state"]], qp["pd"]) for name, qp in has["qps"].items()})
    left = has["qps"]["left"]

    def connection():
        [qp] = rdma("res", "show", "qp", "lqpn", str(left["lqpn"]))
        return qp["rqpn"], qp["sq-psn"], qp["rq-psn"], qp["path-mig-state"], qp["comm"], qp["pid"]
    with open(f"/proc/{pid}/comm", encoding="ascii") as file:
        comm = file.read().strip()
    until("one QP by its number", lambda: connection() == (left["peer"], left["sq"], left["rq"], "MIGRATED", comm, pid))
    same("QPs of a state", {qp["lqpn"] for qp in of(pid, rdma("res", "show", "qp", "link", f"{DEVICE}/1", "state", "RTS"))},
         {left["lqpn"], left["peer"]})
    [summary] = rdma("res", "show", DEVICE)
    # Other programs of this user may run.
    for name, least in {"pd": 2, "cq": 2, "qp": 5, "cm_id": 0, "mr": 3, "ctx": 1, "srq": 1}.items():
        same(f"the summary's {name}", summary[name] >= least, True)


def check_counters(has):
    left = has["qps"]["left"]

    def of_qp():
        [qp] = [qp for qp in rdma("statistic", "qp", "show") if qp["lqpn"] == [left["lqpn"]]]
        return qp
    until("a QP's counters", lambda: of_qp()["sends_completed"] == SENDS and of_qp()["pid"] == has["pid"])
    regions = {mr["mrn"]: mr for mr in rdma("statistic", "show", "mr")}
    same("regions with counters", [regions[mr[0]]["page_invalidations"] for mr in has["mrs"]], [0, 0, 0])
    until("the port's counters", lambda: rdma("statistic", "show", "link", f"{DEVICE}/1")[0]["rdma_sends"] >= SENDS)
    [port] = rdma("statistic", "show", "link", f"{DEVICE}/1")
    packets = sysfs("hw_counters/sent_pkts")
    assert packets >= port["sent_pkts"] >= SENDS, (packets, port)
    words = sysfs("counters/port_xmit_data")
    assert words >= SENDS * SEND_BYTES // 4, words


def check_refusals():
    for words in (("dev", "set", DEVICE, "name", "other"), ("statistic", "qp", "set", "link", f"{DEVICE}/1", "auto", "type", "on"),
                  ("link", "add", "x", "type", "rxe", "netdev", "lo")):
        result = on_wire("rdma", *words, status=None)
        same(f"rdma {' '.join(words)}: refused", (result.returncode != 0, "Faultline's devices do not have this command" in result.stderr), (True, True))


def check_connections():
    server = start("--side", "a", "--", "rping", "-s", "-P", "-a", "198.18.0.1", "-p", "7174")
    until("a listener", lambda: any(cm["state"] == "LISTEN" and cm["src-addr"] == "198.18.0.1:7174" and cm["ps"] == "TCP"
                                    for cm in of(server.pid, rdma("res", "show", "cm_id"))))
    client = start("--side", "b", "--", "rping", "-c", "-C", "100000000", "-a", "198.18.0.1", "-p", "7174")

    def connected(pid):
        found = [cm for cm in of(pid, rdma("res", "show", "cm_id")) if cm["state"] == "CONNECT"]
        return found[0] if len(found) == 1 and "lqpn" in found[0] else None
    until("a connection of both", lambda: connected(server.pid) and connected(client.pid))
    ours, theirs = connected(client.pid), connected(server.pid)
    same("the addresses of both ends", (ours["src-addr"], ours["dst-addr"]), (theirs["dst-addr"], theirs["src-addr"]))
    same("the listener's address", ours["dst-addr"], "198.18.0.1:7174")
    becomes("the QPs of the identifiers", lambda: [qp["rqpn"] for qp in rdma("res", "show", "qp") if qp["lqpn"] == ours["lqpn"]], [theirs["lqpn"]])
    before = sysfs("counters/port_rcv_packets")
    until("traffic in sysfs", lambda: sysfs("counters/port_rcv_packets") > before)
    client.end()
    until("the end of a killed client's objects", lambda: not of(client.pid, rdma("res", "show", "cm_id")))
    server.terminate()
    server.wait()
    same("no identifier of it", of(server.pid, rdma("res", "show", "cm_id")), [])


one = start("--", PYTHON, os.path.realpath(__file__), "--program", stdin=subprocess.PIPE)
objects = json.loads(lib.await_line(one, "^{.*}$", "the program of pyverbs has its objects").group())
check_device()
check_objects(objects)
check_counters(objects)
check_refusals()
one.stdin.close()
same("the program's end", one.wait(), 0)
same("no object after it", [of(one.pid, rdma("res", "show", kind)) for kind in ("qp", "mr", "ctx")], [[], [], []])
check_connections()
print("passed")
