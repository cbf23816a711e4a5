#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Python's multiprocessing, which forks, over pyverbs, as an ordinary user. A program whose own engine runs starts ranks on the device
that all share. Each rank has its own QPs and passes its number to the next one, in a ring.
  multiprocessing_test.py FAULTLINE_RUN
"""
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile

RANKS = 4
ROUNDS = 50
PYTHON = "/usr/bin/python3"  # Debian's, which has the package
NOBODY = 65534


def be_started(run):
    if subprocess.run([PYTHON, "-c", "import pyverbs.device"], stderr=subprocess.DEVNULL).returncode != 0:
        print("SKIPPED: python3-pyverbs is not installed")
        sys.exit(77)
    folder = tempfile.mkdtemp()
    wire = f"ranks{os.getpid()}"
    user = {}
    from networks import may_change_user  # not for the copy that the ranks run
    if may_change_user():
        os.chown(folder, NOBODY, NOBODY)
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    environment = dict(os.environ, XDG_RUNTIME_DIR=folder)
    # Only as a preloaded library: as a dependency it would be loaded too late for its thread-local data.
    environment.pop("LD_LIBRARY_PATH", None)
    try:
        here = os.path.join(folder, "ranks.py")  # where that user may read it
        shutil.copyfile(__file__, here)
        return subprocess.run([run, "--wire", wire, "--share", "--", PYTHON, here], env=environment, timeout=100, **user).returncode
    finally:
        subprocess.run(["pkill", "-f", "--", f"faultline-switch --wire {wire} --listener"])
        shutil.rmtree(folder)


class Rank:
    def __init__(self, number):
        from pyverbs import enums
        from pyverbs.addr import GID, AHAttr, GlobalRoute
        from pyverbs.cq import CQ
        from pyverbs.device import Context
        from pyverbs.mr import MR
        from pyverbs.pd import PD
        from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
        self.context = Context(name="faultline0")
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 16)
        self.gid = self.context.query_gid(1, 0)
        access = enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE
        self.mr = MR(self.pd, 16, access)
        self.mr.write(bytes([255] * 8 + [number] + [0] * 7), 16)
        # To the next rank, and from the previous one.
        init = QPInitAttr(qp_type=enums.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(8, 8, 1, 1, 0))
        self.qps = [QP(self.pd, init) for _ in range(2)]

        def connect(qp, to):
            route = GlobalRoute(dgid=GID(to["gid"]), sgid_index=0)
            attr = QPAttr(path_mtu=enums.IBV_MTU_1024, port_num=1)
            attr.dest_qp_num, attr.qp_access_flags = to["qpn"], access
            attr.max_dest_rd_atomic = attr.max_rd_atomic = 1
            attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 1, 17, 7, 7
            attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
            qp.to_rts(attr)
        self.connect = connect

    def parameters(self, qp):
        return {"qpn": qp.qp_num, "gid": str(self.gid), "rkey": self.mr.rkey, "address": self.mr.buf}

    def hand_on(self, to):
        from pyverbs import enums
        from pyverbs.wr import SGE, SendWR
        send = SendWR(opcode=enums.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(self.mr.buf + 8, 8, self.mr.lkey)])
        send.set_wr_rdma(to["rkey"], to["address"])
        self.qps[0].post_send(send)
        count = 0
        while count == 0:
            count, completions = self.cq.poll(1)
        assert completions[0].status == enums.IBV_WC_SUCCESS, completions[0]


def be_rank(number, pipe, barrier):
    rank = Rank(number)
    pipe.send([rank.parameters(qp) for qp in rank.qps])
    to, source = pipe.recv()
    rank.connect(rank.qps[0], to)
    rank.connect(rank.qps[1], source)
    for step in range(ROUNDS):
        barrier.wait(30)
        rank.hand_on(to)
        barrier.wait(30)
        heard = rank.mr.read(1, 0)[0]
        assert heard == (number - step - 1) % RANKS, f"rank {number}, step {step}: {heard}"
        rank.mr.write(bytes([heard]), 1, 8)


def main():
    rank = Rank(0)  # this process's own engine runs, and is not one of the ranks'
    assert rank.qps
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(RANKS)
    pipes = [fork.Pipe() for _ in range(RANKS)]
    ranks = [fork.Process(target=be_rank, args=(number, pipes[number][1], barrier)) for number in range(RANKS)]
    for process in ranks:
        process.start()
    all_parameters = []
    for pipe, _ in pipes:
        assert pipe.poll(30), "a rank does not start"
        all_parameters.append(pipe.recv())
    for number, (pipe, _) in enumerate(pipes):
        pipe.send((all_parameters[(number + 1) % RANKS][1], all_parameters[number - 1][0]))
    for process in ranks:
        process.join(60)
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
    assert codes == [0] * RANKS, codes
    print(f"ok: multiprocessing {RANKS} forked ranks, {ROUNDS} times around")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        sys.exit(be_started(os.path.realpath(sys.argv[1])))
    main()
