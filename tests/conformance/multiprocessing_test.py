#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Python's multiprocessing, which forks, over pyverbs, as an ordinary user. A program whose own engine runs starts ranks on the device
that all share. Each rank has its own QPs and passes its number to the next one, in a ring.
  multiprocessing_test.py FAULTLINE_RUN
"""
import multiprocessing
import multiprocessing.connection
import os
import shutil
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
RANKS = 4
ROUNDS = 50
PYTHON = "/usr/bin/python3"  # Debian's, which has the package
NOBODY = 65534


def be_started(run):
    sys.path[:0] = [HERE, os.path.dirname(HERE)]
    import lib  # not for the copy that the ranks run
    from networks import may_change_user
    if lib.call([PYTHON, "-c", "import pyverbs.device"], None).returncode != 0:
        lib.skip("python3-pyverbs is not installed")
    folder = lib.own_runtime_folder()
    user = {}
    if may_change_user():
        os.chown(folder, NOBODY, NOBODY)
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    # Only as a preloaded library: as a dependency it would be loaded too late for its thread-local data.
    os.environ.pop("LD_LIBRARY_PATH", None)
    here = folder / "ranks.py"  # where that user may read it
    shutil.copyfile(__file__, here)
    shutil.copy(os.path.join(os.path.dirname(HERE), "verbs_enums.py"), folder)
    print(lib.start([run, "--wire", "ranks", "--share", "--", PYTHON, here], "ranks", **user).succeed(), end="")


class Rank:
    def __init__(self, number):
        import verbs_enums as enums
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
        import verbs_enums as enums
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
        barrier.wait()  # a rank that fails ends the others: see main()
        rank.hand_on(to)
        barrier.wait()
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
    for pipe, end in pipes:
        end.close()  # so that a rank that ends is the end of its pipe
        all_parameters.append(pipe.recv())
    for number, (pipe, _) in enumerate(pipes):
        pipe.send((all_parameters[(number + 1) % RANKS][1], all_parameters[number - 1][0]))
    # The others of a rank that fails would wait for it at the barrier.
    codes = [None] * RANKS
    while None in codes and not any(codes):
        # Those that had not ended when the codes were read: without any process this would wait for ever.
        multiprocessing.connection.wait([process.sentinel for process, code in zip(ranks, codes) if code is None])
        codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
    assert codes == [0] * RANKS, codes
    print(f"ok: multiprocessing {RANKS} forked ranks, {ROUNDS} times around")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        be_started(os.path.realpath(sys.argv[1]))
    else:
        main()
