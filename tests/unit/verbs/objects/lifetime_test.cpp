// SPDX-License-Identifier: BSD-3-Clause
// Objects created and destroyed while others are in use, and many times over.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include <malloc.h>
#include <unistd.h>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::lifetime_test {

namespace {

ibv_send_wr write_of(ibv_sge& sge, uint64_t remote_va, uint32_t rkey) {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma = {remote_va, rkey};
  return wr;
}

/// The process's current resources. A sanitizer's allocator reports none here and checks for leaks itself.
struct Held {
  ptrdiff_t descriptors = entries("/proc/self/fd");
  ptrdiff_t threads = entries("/proc/self/task");
  ptrdiff_t mappings = lines("/proc/self/maps");
  ptrdiff_t heap_bytes = static_cast<ptrdiff_t>(mallinfo2().uordblks);

  static ptrdiff_t entries(const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator{});
  }
  static ptrdiff_t lines(const char* file) {
    std::ifstream in(file);
    return std::count(std::istreambuf_iterator<char>(in), {}, '\n');
  }
};

/// Opens the device, creates and destroys an object of every kind, and closes the device, which ends its
/// engine.
void run_one_life(const Pages& pages, int cycle) {
  ibv_context* const context = open("mem0");
  ASSERT_NE(context, nullptr);
  ibv_pd* const pd = ibv_alloc_pd(context);
  ibv_comp_channel* const channel = ibv_create_comp_channel(context);
  ibv_cq* const cq = ibv_create_cq(context, 16, nullptr, channel, 0);
  ibv_mr* const mr =
      ibv_reg_mr(pd, pages.data(), pages.size(), kAllRights | (cycle % 2 == 0 ? IBV_ACCESS_ON_DEMAND : 0));
  ASSERT_NE(mr, nullptr);
  ibv_mw* const mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  ibv_srq_init_attr srq_init{nullptr, {16, 1, 0}};
  ibv_srq* const srq = ibv_create_srq(pd, &srq_init);
  ASSERT_NE(srq, nullptr);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.srq = cycle % 4 == 1 ? srq : nullptr;
  init.qp_type = cycle % 3 == 0 ? IBV_QPT_UD : IBV_QPT_RC;
  init.cap = {4, 4, 1, 1, 0};
  ibv_qp* const qp = ibv_create_qp(pd, &init);
  ASSERT_NE(qp, nullptr);
  ibv_gid gid{};
  EXPECT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
  ibv_ah_attr attr = End::rtr_attributes(gid, 0).ah_attr;
  ibv_ah* const ah = ibv_create_ah(pd, &attr);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(running_devices(), 1);
  EXPECT_EQ(ibv_destroy_cq(cq), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  ASSERT_EQ(ibv_destroy_cq(cq), 0);
  ASSERT_EQ(ibv_destroy_comp_channel(channel), 0);
  ASSERT_EQ(ibv_dealloc_pd(pd), 0);
  ASSERT_EQ(ibv_close_device(context), 0);
  ASSERT_EQ(running_devices(), 0) << "the last context of the device";
}

/// In a thread that has ended afterwards: malloc counts the free blocks that a thread keeps for itself as
/// used, up to a hundred kilobytes, and takes them back at its end.
void run_lives(int cycles) {
  pid_t id = 0;
  std::thread([cycles, &id] {
    id = gettid();
    const Pages pages(8192);
    for (int cycle = 0; cycle < cycles; ++cycle) {
      SCOPED_TRACE(cycle);
      ASSERT_NO_FATAL_FAILURE(run_one_life(pages, cycle));
    }
  }).join();
  // A thread that has been joined may still be on its way out.
  while (std::filesystem::exists("/proc/self/task/" + std::to_string(id))) std::this_thread::yield();
}

TEST(Life, AThousandCyclesLeaveNothing) {
  constexpr int kFirstCycles = 50;  // one-time allocations are made by then
  constexpr int kCycles = 1000;
  run_lives(kFirstCycles);
  const Held before;
  run_lives(kCycles);
  const Held after;
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  // Fewer than one per cycle, regardless of an allocator's temporary mappings.
  EXPECT_LT(after.mappings - before.mappings, kCycles / 10);
  // malloc's smallest block has 32 bytes.
  EXPECT_LT(after.heap_bytes - before.heap_bytes, ptrdiff_t{kCycles} * 16);
}

/// A region deregistered during its peer's WRITEs. They succeed or are refused; after dereg_mr returns, none
/// changes a byte.
TEST(Life, ARegionIsDeregisteredUnderWrites) {
  constexpr int kRounds = 40;
  const Pages from(1 << 16);
  const Pages to(1 << 16);
  End a("mem0");
  End b("mem1");
  ibv_mr* const local = a.add_region(from);
  from.fill(1);
  std::atomic<bool> stop{false};
  std::thread peer([&] {
    while (!stop) {
      faultline_progress(b.context);
      faultline_progress(a.context);
      std::this_thread::yield();
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    ibv_mr* const remote =
        ibv_reg_mr(b.pd, to.data(), to.size(), kAllRights | (round % 2 == 0 ? IBV_ACCESS_ON_DEMAND : 0));
    ASSERT_NE(remote, nullptr);
    connect(a, b);
    ibv_sge sge = sge_of(local, 0, from.size());
    constexpr size_t kWrites = 8;
    for (size_t i = 0; i < kWrites; ++i) ASSERT_EQ(a.post_send(write_of(sge, to.address(), remote->rkey)), 0);
    for (int turn = 0; turn < round; ++turn) faultline_progress(b.context);
    ASSERT_EQ(ibv_dereg_mr(remote), 0);
    std::memset(to.data(), 0x5a, to.size());
    bool refused = false;
    for (const ibv_wc& wc : completions(a, b, kWrites)) {
      if (refused) {
        EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
      } else {
        EXPECT_TRUE(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_REM_ACCESS_ERR) << wc.status;
        refused = wc.status != IBV_WC_SUCCESS;
      }
    }
    EXPECT_EQ(std::count(to.data(), to.data() + to.size(), 0x5a), static_cast<ptrdiff_t>(to.size()));
    for (End* end : {&a, &b}) {
      EXPECT_EQ(ibv_destroy_qp(end->qp), 0);
      end->make_qp({});
      ASSERT_NE(end->qp, nullptr);
    }
  }
  stop = true;
  peer.join();
}

/// A CQ without remaining QPs is destroyed while another thread drives the engine and polls another CQ.
TEST(Life, CqsComeAndGoWhileTheEngineWorks) {
  constexpr int kRounds = 200;
  const Pages from(4096);
  const Pages to(4096);
  End a("mem0");
  End b("mem1");
  ibv_mr* const local = a.add_region(from);
  ibv_mr* const remote = b.add_region(to);
  connect(a, b);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> written{0};
  std::thread worker([&] {
    ibv_sge sge = sge_of(local, 0, 64);
    while (!stop) {
      ASSERT_EQ(a.post_send(write_of(sge, to.address(), remote->rkey)), 0);
      ASSERT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
      ++written;
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    ibv_cq* const cq = ibv_create_cq(a.context, 8, nullptr, nullptr, 0);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_UD;
    init.cap = {4, 4, 1, 1, 0};
    ibv_qp* const qp = ibv_create_qp(a.pd, &init);
    ASSERT_NE(qp, nullptr);
    ibv_qp_attr attr{};
    attr.port_num = 1;
    attr.qp_state = IBV_QPS_INIT;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    attr.qp_state = IBV_QPS_ERR;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(qp, &wr, &bad), 0);  // its flush completion may or may not be in the CQ yet
    ASSERT_EQ(ibv_destroy_qp(qp), 0);
    ASSERT_EQ(ibv_destroy_cq(cq), 0);
  }
  while (written == 0) std::this_thread::yield();
  stop = true;
  worker.join();
}

}  // namespace

}  // namespace faultline::verbs::test::lifetime_test
