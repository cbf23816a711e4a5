#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every action of a scenario, met by programs that were not written for it: each ends as it would on a device that does this.
  trouble_test.py FAULTLINE FAULTLINE_RUN [brief]
brief: a few actions under perftest, and what needs no program but a small one."""
import json
import os
import re
import shutil
import sys

from actions import ACTIONS, OF_CM, scenario
from programs import PORT, decisions, lib, start_client, start_server

FAULTLINE, RUN = (os.path.realpath(path) for path in sys.argv[1:3])
PYTHON = "/usr/bin/python3"  # that of pyverbs
failed = []

# Actions from which a program recovers by itself, as from those of a network.
SURVIVED = {"event", "late", "loss", "answers", "duplicates", "damage", "marks", "delay", "link", "reply", "ready", "spurious", "wakes", "change",
            "order", "jitter", "partition", "rate", "slow", "cnps", "not-ready", "sequence", "counter", "few", "shuffle", "not-ready-here"}


class Program:
    """A server without trouble, and a client with it."""

    def __init__(self, name, server, client, survived=frozenset(), hangs=(), brief=(), unmet=(), late=()):
        self.name, self.server, self.client, self.survived, self.hangs = name, server, client, SURVIVED | survived, hangs
        self.late = late  # actions that begin with the first send
        self.all = [action for action in ACTIONS if (name == "rping" or action not in OF_CM) and action not in unmet]
        self.brief = brief or self.all

    def run(self, folder, action):
        path, journal = scenario(folder, f"{self.name}-{action}", action, action in self.late), f"{folder}/{self.name}-{action}.journal"
        wire = f"{self.name}-{action}"
        server = start_server(RUN, wire, self.server)
        client = start_client(RUN, wire, self.client, ["--trouble", path, "--journal", journal])
        if action in self.hangs:
            lib.await_that(lambda: decisions(journal), "a decision", client)
            client.end()
        client.wait()
        server.end()
        made = [one for one in decisions(journal) if action not in self.late or one["rule"] != "begun"]
        self.check(action, client.returncode, made, client.text(), server.text())

    def check(self, action, status, made, output, server_output):
        text = f"{self.name} with {action}: exit status {status}, {len(made)} decisions\n{output}\n-- server:\n{server_output}"
        try:
            assert made, "no decision: " + text
            assert all(one["rule"] == action for one in made), text
            if action in self.survived:
                assert status == 0, "it should survive: " + text
            else:
                assert status != 0, "it should fail: " + text
            assert "faultline:" not in output or action in ("retries", "access"), text
        except AssertionError as error:
            failed.append(str(error))
        else:
            print(f"{self.name} with {action}: {'survives' if status == 0 else f'ends with status {status}'}, {len(made)} decisions")


VERBS = """
import sys
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
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=64, max_recv_wr=4)))
attr = QPAttr(port_num=1)
attr.dest_qp_num, attr.path_mtu, attr.timeout, attr.retry_cnt, attr.rnr_retry = qp.qp_num, e.IBV_MTU_1024, 18, 7, 7
attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0, hop_limit=1), is_global=1, port_num=1)
qp.to_rts(attr)
for number in range(100):
    wr = SendWR(wr_id=number, opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(mr.buf, 64, mr.lkey)], send_flags=e.IBV_SEND_SIGNALED)
    wr.set_wr_rdma(mr.rkey, mr.buf)
    qp.post_send(wr)
    while not (found := cq.poll(1)[1]): pass
    if found[0].status:
        print("completion", number, found[0].status, found[0].vendor_err)
        sys.exit(3)
"""


def verbs_program(folder):
    """A program of one thread and one QP that is connected to itself: what it gets, to the number, and equal journals."""
    script = f"{folder}/verbs.py"
    with open(script, "w", encoding="utf-8") as file:
        file.write(VERBS)
    shutil.copy(os.path.join(os.path.dirname(lib.__file__), "verbs_enums.py"), folder)

    def run(action, *more):
        journal = f"{folder}/verbs-{action}.journal"
        words = [RUN, "--wire", f"verbs{os.getpid()}", *more, "--journal", journal, PYTHON, script]
        result = lib.call(words, status=None)
        with open(journal, "rb") as file:
            return result, file.read()

    expected = {
        "registration": (1, "Failed to register a MR. .*Cannot allocate memory"),
        "creation": (1, "Failed to create QP. .*Cannot allocate memory"),
        "transition": (1, "Failed to modify QP state to RTR. .*Input/output error"),
        "post": (1, "Failed to post send. .*Cannot allocate memory"),
        "poll": (1, "Failed to poll CQ"),
        "retries": (3, "completion 0 12 50"),
        "access": (3, "completion 0 10 50"),
        "qp": (3, "completion [01] 5 50|completion 1 5 50"),
        "fatal": (3, r"completion \d+ 5 49"),
        "absent": (1, "Failed to find device faultline0"),
        "late": (0, "^$"),
        "event": (0, "^$"),
    }
    for action, (status, text) in expected.items():
        path = scenario(folder, f"verbs-{action}", action)
        result, journal = run(action, "--trouble", path)
        output = result.stdout + result.stderr
        assert result.returncode == status and re.search(text, output, re.MULTILINE), f"{action}: exit status {result.returncode}\n{output}"
        # Late completions are counted by polls, whose number depends on time.
        if action != "late":
            again, journal_again = run(action, "--trouble", path)
            assert journal_again == journal and again.returncode == status, f"{action}: {journal!r}\n{journal_again!r}"
        shutil.copy(f"{folder}/verbs-{action}.journal", f"{folder}/first.journal")
        replayed, journal_of_replay = run("replay", "--replay", f"{folder}/first.journal")
        if action != "late":
            assert replayed.returncode == status, f"replay of {action}: {replayed.stdout + replayed.stderr}"
            assert [json.loads(line)["do"] for line in journal_of_replay.splitlines()[1:]] == [json.loads(line)["do"] for line in journal.splitlines()[1:]]
    # Without a scenario nothing happens.
    lib.call([RUN, "--wire", f"verbs{os.getpid()}", PYTHON, script])
    print("a verbs program gets each error as asked; its journals are equal, also of a replay")


LATE = """
import time
import pyverbs.device as d
from pyverbs.pd import PD

lists = 1
while not d.get_device_list():
    lists += 1
    time.sleep(0.05)
print("late" if lists > 1 else "at once")
context = d.Context(name="faultline0")
print("state", context.query_port(1).state)
pd = PD(context)
event = context.get_async_event()
print("event", event.event_type)
event.ack()
print("state", context.query_port(1).state)
"""


def late(folder):
    """A device that appears late, whose port is DOWN when it is opened, and ACTIVE after IBV_EVENT_PORT_ACTIVE. The time is long, so that the
    program sees the port before it is over."""
    path, script = f"{folder}/late.toml", f"{folder}/late.py"
    with open(script, "w", encoding="utf-8") as file:
        file.write(LATE)
    with open(path, "w", encoding="utf-8") as file:
        file.write("""
[[rule]]
when = { list = "*" }
do = { device = "absent" }
times = 3
[[rule]]
when = { call = "ibv_open_device" }
do = { link = "down", for_ms = 5000 }
""")
    words = [RUN, "--wire", f"late{os.getpid()}", "--trouble", path, PYTHON, script]
    result = lib.call(words, status=None)
    assert result.stdout.split("\n")[:4] == ["late", "state 1", "event 9", "state 4"], result
    print("a device appears late, and its port becomes active")


def probabilities(folder):
    """The same seed gives the same journal, another one does not."""
    path = f"{folder}/half.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write('[[rule]]\nwhen = { call = "ibv_post_send" }\ndo = { errno = "ENOMEM" }\nprobability = 0.02\n')
    journals = {}
    for seed in (1, 1, 1, 2, 3, 4, 5, 6):
        journal = f"{folder}/half.journal"
        words = [RUN, "--wire", f"verbs{os.getpid()}", "--trouble", path, "--seed", str(seed), "--journal", journal, PYTHON, f"{folder}/verbs.py"]
        lib.call(words, status=None)
        with open(journal, encoding="utf-8") as file:
            text = file.read()
        assert journals.setdefault(seed, text) == text, f"seed {seed}: {journals[seed]}\n{text}"
    assert len({text.split("\n", 1)[1] for text in journals.values()}) > 2, journals
    print("equal seeds give equal journals")


def hundred(folder):
    """A program of one thread gets the same decisions in the same order, a hundred times of a hundred."""
    path = f"{folder}/hundred.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write('''
[[rule]]
when = { call = "ibv_post_send" }
do = { call = "delay", delay_us = 50 }
probability = 0.1
times = 0
[[rule]]
when = { poll = "*" }
do = { poll = "nothing" }
probability = 0.3
times = 0
[[rule]]
when = { send = "*" }
do = { event = "IBV_EVENT_GID_CHANGE" }
probability = 0.05
times = 0
''')
    journals = set()
    for _ in range(100):
        journal = f"{folder}/hundred.journal"
        words = [RUN, "--wire", f"verbs{os.getpid()}", "--trouble", path, "--journal", journal, PYTHON, f"{folder}/verbs.py"]
        lib.call(words)
        with open(journal, encoding="utf-8") as file:
            journals.add(file.read())
    assert len(journals) == 1, f"{len(journals)} different journals"
    print(f"a hundred runs have the same {len(journals.pop().splitlines()) - 1} decisions in their journals")


def rejections(folder):
    """A listener rejects its first request for each reason; rping prints the event's status."""
    for reason, number in (("consumer", 28), ("no_resources", 3), ("stale_connection", 10)):
        path, journal = f"{folder}/reject.toml", f"{folder}/reject-{number}.journal"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'[[rule]]\nwhen = {{ request = "*" }}\ndo = {{ reject = "{reason}" }}\n')
        wire = f"reject-{number}"
        server = start_server(RUN, wire, RPING.server, ["--trouble", path, "--journal", journal])
        client = start_client(RUN, wire, RPING.client)
        client.wait()
        server.end()
        made, text = decisions(journal), client.text()
        assert [one["event"] for one in made] == ["request"], (made, text)
        assert client.returncode != 0 and re.search(rf"REJECTED|error {number}", text), (reason, text)
    print("a listener rejects with each reason")


def on_demand(folder, name, rules, messages):
    """ib_write_bw with a region on demand: the client, which has ended, and the names of the rules that have decided."""
    path, journal = f"{folder}/{name}.toml", f"{folder}/{name}.journal"
    with open(path, "w", encoding="utf-8") as file:
        file.write(rules)
    words = [*transfer(messages), "--odp"]
    server = start_server(RUN, name, words)
    client = start_client(RUN, name, [*words, "198.18.0.1"], ["--trouble", path, "--journal", journal])
    client.wait()
    server.end()
    return client, [one["rule"] for one in decisions(journal)]


def pages(folder):
    """Pages that are taken away are page faults at their next use: more than the region has pages, which a counter shows."""
    most = 8  # faults of a region of two pages without trouble, and some
    client, made = on_demand(folder, "pages", f"""
[[rule]]
name = "away"
when = {{ send = "*", every = 50 }}
do = {{ memory = "page_out" }}
times = 0
[[rule]]
name = "seen"
when = {{ send = "*", counter = "odp.num_page_faults", least = {most} }}
do = {{ event = "IBV_EVENT_GID_CHANGE" }}
""", 1000)
    assert client.returncode == 0 and made.count("away") >= most and made.count("seen") == 1, (client.text(), made)
    # Several times: the pager may still serve the first fault, and have the page back at once.
    client, made = on_demand(folder, "no-page", """
[[rule]]
name = "away"
when = { send = "*", from = 500, every = 100 }
do = { memory = "page_out" }
times = 0
[[rule]]
name = "none"
when = { fault = "*", after = "away" }
do = { fault = "fail" }
""", 5000)
    assert client.returncode != 0 and made.count("none") == 1 and "Failed status 4" in client.text(), (client.text(), made)
    print("pages that are taken away are page faults, and a page that does not exist is an error")


def counters(folder):
    """A counter that does not exist, or that no engine can read, is one line."""
    for name in ("transport.nothing", "port.rx_missed"):
        path = f"{folder}/counter.toml"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'[[rule]]\nwhen = {{ send = "*", counter = "{name}" }}\ndo = {{ qp = "error" }}\n')
        words = [RUN, "--wire", "counters", "--trouble", path, PYTHON, f"{folder}/verbs.py"]
        result = lib.call(words, status=None)
        lines = [line for line in result.stderr.splitlines() if line.startswith("faultline:")]
        assert result.returncode != 0 and len(lines) == 1 and name in lines[0], result
    print("a counter that a scenario cannot wait for is one line")


def mistakes(folder):
    path = f"{folder}/wrong.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write('[[rule]]\nwhen = { call = "ibv_reg_mr" }\ndo = { errno = "EFOO" }\n')
    for words in (["--trouble", path], ["--trouble", f"{folder}/none.toml"], ["--replay", f"{folder}/none"], ["--seed", "1"]):
        result = lib.call([RUN, "--wire", "w", *words, "true"], status=None)
        assert result.returncode == 2 and not result.stdout and len(result.stderr.splitlines()) <= 2, (words, result)
    lib.call([FAULTLINE, "replay"], status=2)
    print("mistakes are one line, with exit status 2")


def transfer(messages):
    """A long timeout: a server on a busy machine may be late."""
    return ["ib_write_bw", "-F", "-s", "4096", "-n", str(messages), "-u", "18", "-p", PORT]


TRANSFER = transfer(1000)
# It posts no receive and sleeps on no channel; the next one does. Neither looks at the result of ibv_query_device().
PERFTEST = Program("perftest", TRANSFER, [*TRANSFER, "198.18.0.1"], survived={"device"},
                   unmet={"receive", "spurious", "wakes", "few", "shuffle", "not-ready-here", "refusal-here"})
# Four QPs with one completion queue, and a completion for each message.
QUEUES = Program("queues", [*TRANSFER, "-q", "4", "-Q", "1"], [*TRANSFER, "-q", "4", "-Q", "1", "198.18.0.1"], survived={"device"},
                 brief=("few", "shuffle"),
                 unmet={"receive", "spurious", "wakes", "not-ready-here", "refusal-here"})
LATENCY = ["ib_send_lat", "-F", "-e", "-s", "64", "-n", "200", "-u", "18", "-p", PORT]
# An event without a completion, also one that a poll does not find: docs/found/ib-send-lat-wakeup.md. It has one completion at a time.
MESSAGES = Program("messages", LATENCY, [*LATENCY, "198.18.0.1"], survived={"device"},
                   brief=("receive", "wakes", "overflow", "not-ready-here", "refusal-here"), unmet={"spurious", "late", "few", "shuffle"})
# A client that waits for a message does not end when its QP fails: docs/found/rping-flush.md. Nor does it if rdma_connect() fails: docs/found/rping-connect.md.
RPING = Program("rping", ["rping", "-s", "-a", "198.18.0.1", "-C", "20"], ["rping", "-c", "-a", "198.18.0.1", "-C", "20"], survived={"port"},
                hangs={"qp", "connection"},
                # Which of its threads sees the failure first decides its exit status; it has one completion at a time.
                unmet={"receive", "refusal-here", "few", "shuffle"})
UCX_ENVIRONMENT = {"UCX_TLS": "rc_verbs,ud_verbs,self", "UCX_NET_DEVICES": "faultline0:1", "UCX_LOG_LEVEL": "error"}
UCX = Program("ucx", ["ucx_perftest", "-p", PORT], ["ucx_perftest", "-p", PORT, "198.18.0.1", "-t", "tag_bw", "-s", "4096", "-n", "1000"],
              survived={"creation"},  # it has other transports
              late={"spurious"},  # an event before the interface is open ends it: docs/found/ucx-early-event.md
              unmet={"device", "port", "absent", "shuffle", "not-ready-here", "refusal-here"},  # the server ends with its client's failure, before the data
              brief=("registration", "creation", "retries", "loss", "late", "link", "receive", "overflow", "spurious", "gone"))


IN_BRIEF = ("registration", "fatal", "late", "loss", "link")


def main():
    is_brief = sys.argv[3:] == ["brief"]
    lib.need("ib_write_bw", "rping", "ip", "rdma")
    lib.own_network()
    folder = lib.own_runtime_folder()
    os.environ.update(UCX_ENVIRONMENT)
    mistakes(folder)
    verbs_program(folder)
    counters(folder)
    if is_brief:
        for action in IN_BRIEF:
            PERFTEST.run(folder, action)
    else:
        every_program(folder)
    for text in failed:
        print("FAILED: " + text)
    return 1 if failed else 0


def every_program(folder):
    late(folder)
    probabilities(folder)
    if "FAULTLINE_SOAK" in os.environ:
        hundred(folder)
    rejections(folder)
    pages(folder)
    programs = [PERFTEST, QUEUES, MESSAGES, RPING] + ([UCX] if shutil.which("ucx_perftest") else [])
    for program in programs:
        for action in program.all if "FAULTLINE_SOAK" in os.environ else program.brief:
            program.run(folder, action)


sys.exit(main())
