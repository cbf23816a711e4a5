// SPDX-License-Identifier: BSD-3-Clause
// post_send and post_recv: bad_wr and errno as in ibv_post_send(3) and ibv_post_recv(3).
#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::post_test {

namespace {

class PostTest : public ::testing::Test {
 protected:
  PostTest() { mr = a.add_region(pages); }
  ibv_send_wr write_wr(uint32_t bytes = 64) {
    sge = sge_of(mr, 0, bytes);
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = pages.address();
    wr.wr.rdma.rkey = mr->rkey;
    return wr;
  }
  static EndOptions options() {
    EndOptions result;
    result.depth = 8;
    result.sges = 2;
    result.inline_bytes = 32;
    return result;
  }
  const Pages pages{4096};
  End a{"mem0", options()};
  const End b{"mem1"};
  ibv_mr* mr = nullptr;
  ibv_sge sge{};
};

TEST_F(PostTest, StatesDecideWhatMayBePosted) {
  EXPECT_EQ(a.post_receive(1, {}), EINVAL) << "reset";
  EXPECT_EQ(a.post_send(write_wr()), EINVAL) << "reset";
  ASSERT_EQ(a.to_init(), 0);
  EXPECT_EQ(a.post_receive(1, {}), 0);
  EXPECT_EQ(a.post_send(write_wr()), EINVAL) << "init";
  ASSERT_EQ(a.to_rtr(b.gid(), b.qp->qp_num), 0);
  EXPECT_EQ(a.post_send(write_wr()), EINVAL) << "ready to receive";
  ASSERT_EQ(a.to_rts(), 0);
  EXPECT_EQ(a.post_send(write_wr()), 0);
}

TEST_F(PostTest, WorkPostedInErrorIsFlushed) {
  connect(a, b);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
  ibv_send_wr wr = write_wr();
  wr.wr_id = 71;
  EXPECT_EQ(a.post_send(wr), 0);
  EXPECT_EQ(a.post_receive(72, {}), 0);
  const std::vector<ibv_wc> flushed = completions(a, b, 2);
  for (const ibv_wc& wc : flushed) EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed[0].wr_id + flushed[1].wr_id, 71U + 72U);
}

TEST_F(PostTest, AFullQueueIsENOMEMAtTheFirstThatDoesNotFit) {
  connect(a, b);
  std::array<ibv_send_wr, 12> chain{};
  for (size_t i = 0; i < chain.size(); ++i) {
    chain[i] = write_wr();
    chain[i].wr_id = i;
    chain[i].next = i + 1 < chain.size() ? &chain[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(a.qp, chain.data(), &bad), ENOMEM);
  EXPECT_EQ(bad, &chain[8]);

  std::array<ibv_recv_wr, 12> receives{};
  for (size_t i = 0; i + 1 < receives.size(); ++i) receives[i].next = &receives[i + 1];
  ibv_recv_wr* bad_receive = nullptr;
  EXPECT_EQ(ibv_post_recv(a.qp, receives.data(), &bad_receive), ENOMEM);
  EXPECT_EQ(bad_receive, &receives[8]);
}

TEST_F(PostTest, ABadRequestStopsTheChainAndWhatWentBeforeRuns) {
  connect(a, b);
  const Pages target(4096);
  ibv_pd* const pd = b.pd;
  ibv_mr* const remote = ibv_reg_mr(pd, target.data(), target.size(), kAllRights);
  pages.fill(3);
  ibv_send_wr first = write_wr();
  first.wr.rdma.remote_addr = target.address();
  first.wr.rdma.rkey = remote->rkey;
  ibv_send_wr second = write_wr();
  second.num_sge = 3;
  first.next = &second;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(a.qp, &first, &bad), EINVAL);
  EXPECT_EQ(bad, &second);
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(target.data(), pages.data(), 64), 0);
  EXPECT_EQ(ibv_dereg_mr(remote), 0);
}

TEST_F(PostTest, RequestsAreValidated) {
  connect(a, b);
  const auto error_with = [&](auto change) {
    ibv_send_wr wr = write_wr();
    change(wr);
    return a.post_send(wr);
  };
  EXPECT_EQ(error_with([](auto& wr) { wr.num_sge = 3; }), EINVAL);
  EXPECT_EQ(error_with([](auto& wr) { wr.num_sge = -1; }), EINVAL);
  EXPECT_EQ(error_with([](auto& wr) { wr.num_sge = 0x10001; }), EINVAL) << "more than fits a byte";
  EXPECT_EQ(error_with([](auto& wr) { wr.send_flags |= IBV_SEND_IP_CSUM; }), EINVAL);
  EXPECT_EQ(error_with([](auto& wr) { wr.send_flags |= 1U << 20; }), EINVAL);
  EXPECT_EQ(error_with([](auto& wr) { wr.opcode = static_cast<ibv_wr_opcode>(14); }), EINVAL)
      << "FLUSH has fields that ibv_send_wr lacks";
  EXPECT_EQ(error_with([](auto& wr) { wr.opcode = IBV_WR_TSO; }), EINVAL);
  for (const ibv_wr_opcode atomic :
       {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE})
    EXPECT_EQ(error_with([&](auto& wr) { wr.opcode = atomic; }), EINVAL) << "64 bytes, not 8: " << atomic;
  EXPECT_EQ(error_with([](auto& wr) { wr.opcode = IBV_WR_BIND_MW; }), EINVAL) << "no window";
  const auto send_inline = [&](uint32_t bytes, ibv_wr_opcode opcode) {
    ibv_send_wr wr = write_wr(bytes);
    wr.opcode = opcode;
    wr.send_flags |= IBV_SEND_INLINE;
    return a.post_send(wr);
  };
  EXPECT_EQ(send_inline(33, IBV_WR_RDMA_WRITE), EINVAL);
  EXPECT_EQ(send_inline(0xffffffffU, IBV_WR_RDMA_WRITE), EINVAL);
  EXPECT_EQ(send_inline(8, IBV_WR_RDMA_READ), EINVAL);
  EXPECT_EQ(send_inline(32, IBV_WR_RDMA_WRITE), 0);

  std::array<ibv_sge, 2> halves{sge_of(mr, 0, 1U << 31), sge_of(mr, 0, 1)};
  EXPECT_EQ(error_with([&](auto& wr) {
              wr.sg_list = halves.data();
              wr.num_sge = 2;
            }),
            EINVAL)
      << "a message is at most 2^31 bytes";
  EXPECT_EQ(a.post_receive(1, {sge, sge, sge}), EINVAL);
}

/// A message has at most 2^31 bytes; the elements of a receive may offer more room than that.
TEST(LargeReceive, MayHaveRoomForMoreThanAMessage) {
  constexpr size_t kLarge = size_t{5} << 30;
  auto* const memory = static_cast<uint8_t*>(
      mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  const Pages from(4096);
  from.fill(5);
  {
    End a("mem0");
    End b("mem1");
    ibv_mr* const local = a.add_region(from);
    ibv_mr* const large = ibv_reg_mr(b.pd, memory, kLarge, kAllRights | IBV_ACCESS_ON_DEMAND);
    ASSERT_NE(large, nullptr);
    b.regions.push_back(large);
    connect(a, b);
    const auto room = [&](size_t offset, uint32_t bytes) { return sge_of(large, offset, bytes); };
    constexpr uint32_t kGiB = 1U << 30;
    const std::array<std::vector<ibv_sge>, 4> receives{{
        {room(0, kGiB + kGiB / 2), room(kGiB + kGiB / 2, kGiB + kGiB / 2)},
        {room(0, 0x8000'0001U)},
        {room(0, 0xffff'ffffU)},
        {room(0, 100), room(kGiB, 0xffff'ffffU), room(kGiB, 0xffff'ffffU), room(0, 0x8000'0000U)},
    }};
    for (size_t i = 0; i < receives.size(); ++i) {
      SCOPED_TRACE(i);
      std::memset(memory, 0, 4096);
      ASSERT_EQ(b.post_receive(i, receives[i]), 0);
      ibv_sge sge = sge_of(local, 0, 4000);
      ibv_send_wr wr{};
      wr.opcode = IBV_WR_SEND;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      ASSERT_EQ(a.post_send(wr), 0);
      EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
      const ibv_wc wc = completion(b, a);
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      EXPECT_EQ(wc.byte_len, 4000U);
      const size_t first = std::min<size_t>(4000, receives[i][0].length);
      EXPECT_EQ(std::memcmp(memory, from.data(), first), 0);
      if (first != 4000) {
        EXPECT_EQ(std::memcmp(memory + kGiB, from.data() + first, 4000 - first), 0);
      }
    }
  }
  munmap(memory, kLarge);
}

TEST_F(PostTest, InlineDataIsCopiedAtPost) {
  connect(a, b);
  const Pages target(4096);
  ibv_mr* const remote = ibv_reg_mr(b.pd, target.data(), target.size(), kAllRights);
  // Unregistered memory in two pieces, freed before the engine runs.
  std::array<char, 16> first{};
  std::array<char, 16> second{};
  first.fill('x');
  second.fill('y');
  std::array<ibv_sge, 2> pieces{{{reinterpret_cast<uint64_t>(first.data()), 16, 0},
                                 {reinterpret_cast<uint64_t>(second.data()), 15, 0}}};
  ibv_send_wr wr = write_wr();
  wr.sg_list = pieces.data();
  wr.num_sge = 2;
  wr.send_flags |= IBV_SEND_INLINE;
  wr.wr.rdma.remote_addr = target.address();
  wr.wr.rdma.rkey = remote->rkey;
  ASSERT_EQ(a.post_send(wr), 0);
  first.fill('!');
  second.fill('!');
  EXPECT_EQ(completion(a, b).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::string(reinterpret_cast<char*>(target.data()), 31),
            std::string(16, 'x') + std::string(15, 'y'));
  EXPECT_EQ(target.data()[31], 0);
  EXPECT_EQ(ibv_dereg_mr(remote), 0);
}

TEST(UdPost, DestinationsAreChecked) {
  EndOptions options;
  options.type = IBV_QPT_UD;
  const End a("mem0", options);
  const End b("mem1", options);
  connect(a, b);
  ibv_ah_attr attr = End::rtr_attributes(b.gid(), 0).ah_attr;
  ibv_ah* const ah = ibv_create_ah(a.pd, &attr);
  ibv_pd* const foreign_pd = ibv_alloc_pd(a.context);
  ibv_ah* const foreign = ibv_create_ah(foreign_pd, &attr);
  const auto error_with = [&](auto change) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = b.qp->qp_num;
    wr.wr.ud.remote_qkey = kQkey;
    change(wr);
    return a.post_send(wr);
  };
  EXPECT_EQ(error_with([](auto&) {}), 0);
  EXPECT_EQ(error_with([](auto& wr) { wr.wr.ud.ah = nullptr; }), EINVAL);
  EXPECT_EQ(error_with([&](auto& wr) { wr.wr.ud.ah = foreign; }), EINVAL) << "of another protection domain";
  EXPECT_EQ(error_with([](auto& wr) { wr.wr.ud.remote_qpn = 1U << 24; }), EINVAL);
  EXPECT_EQ(error_with([](auto& wr) { wr.opcode = IBV_WR_RDMA_WRITE; }), EINVAL);
  EXPECT_EQ(error_with([](auto& wr) { wr.opcode = IBV_WR_RDMA_READ; }), EINVAL);
  EXPECT_EQ(ibv_destroy_ah(foreign), 0);
  EXPECT_EQ(ibv_dealloc_pd(foreign_pd), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

}  // namespace

}  // namespace faultline::verbs::test::post_test
