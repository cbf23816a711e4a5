// SPDX-License-Identifier: BSD-3-Clause
// Control calls of a device that is recorded: what is recorded of each, of refused ones too.
#include <optional>
#include <thread>

#include "tests/unit/verbs/fixture.hpp"

namespace faultline::verbs::test::recorded_calls_test {

namespace {

using record::ControlCall;
using record::ControlRow;

class RecordedCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    faults().record_calls = true;
    static_cast<void>(take_recorded_calls());
    a.emplace("mem0");
  }
  void TearDown() override {
    a.reset();
    faults().record_calls = false;
  }
  static ControlRow only_call() {
    const std::vector<ControlRow> rows = take_recorded_calls();
    EXPECT_EQ(rows.size(), 1U);
    return rows.empty() ? ControlRow{} : rows.back();
  }

  std::optional<End> a;
};

TEST_F(RecordedCalls, TheOpeningOfTheDeviceIsTheFirst) {
  const std::vector<ControlRow> rows = take_recorded_calls();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].call, ControlCall::open_device);
  EXPECT_EQ(rows[1].call, ControlCall::create_cq);
  EXPECT_EQ(rows[1].entries, 256U);
  EXPECT_EQ(rows[1].object, a->cq->handle);
  EXPECT_EQ(rows[2].call, ControlCall::create_qp);
  EXPECT_EQ(rows[2].object, a->qp->qp_num);
  EXPECT_EQ(rows[2].qp_type, IBV_QPT_RC);
  uint64_t last_ns = 0;
  for (const ControlRow& row : rows) {
    EXPECT_EQ(row.error, 0);
    EXPECT_GE(row.time_ns - row.duration_ns, last_ns) << "one call after the other";
    last_ns = row.time_ns;
  }
}

TEST_F(RecordedCalls, AChangeOfStateHasBothStatesAndTheResult) {
  static_cast<void>(take_recorded_calls());
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  constexpr int kToInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  ASSERT_EQ(ibv_modify_qp(a->qp, &attr, kToInit), 0);
  const ControlRow done = only_call();
  EXPECT_EQ(done.call, ControlCall::modify_qp);
  EXPECT_EQ(done.object, a->qp->qp_num);
  EXPECT_EQ(done.from_state, IBV_QPS_RESET);
  EXPECT_EQ(done.to_state, IBV_QPS_INIT);
  EXPECT_EQ(done.access, static_cast<uint32_t>(kToInit));
  EXPECT_EQ(done.error, 0);
  attr.qp_state = IBV_QPS_RTS;
  EXPECT_EQ(ibv_modify_qp(a->qp, &attr, IBV_QP_STATE), EINVAL);
  const ControlRow refused = only_call();
  EXPECT_EQ(refused.from_state, IBV_QPS_INIT);
  EXPECT_EQ(refused.to_state, IBV_QPS_RTS);
  EXPECT_EQ(refused.error, EINVAL);
}

TEST_F(RecordedCalls, ARegionHasItsRangeRightsAndKey) {
  static_cast<void>(take_recorded_calls());
  const Pages pages(8192);
  ibv_mr* const mr = ibv_reg_mr(a->pd, pages.data(), pages.size(), kAllRights);
  ASSERT_NE(mr, nullptr);
  const uint32_t lkey = mr->lkey;
  const ControlRow made = only_call();
  EXPECT_EQ(made.call, ControlCall::register_mr);
  EXPECT_EQ(made.address, pages.address());
  EXPECT_EQ(made.length_bytes, pages.size());
  EXPECT_EQ(made.access, static_cast<uint32_t>(kAllRights));
  EXPECT_EQ(made.object, lkey);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
            IBV_REREG_MR_ERR_INPUT);
  const ControlRow refused = only_call();
  EXPECT_EQ(refused.call, ControlCall::reregister_mr);
  EXPECT_EQ(refused.object, lkey);
  EXPECT_EQ(refused.error, EINVAL);
  ASSERT_EQ(ibv_dereg_mr(mr), 0);
  const ControlRow gone = only_call();
  EXPECT_EQ(gone.call, ControlCall::deregister_mr);
  EXPECT_EQ(gone.address, pages.address());
  EXPECT_EQ(gone.object, lkey);
  EXPECT_EQ(gone.error, 0);
  EXPECT_EQ(ibv_reg_mr(a->pd, pages.data(), 0, kAllRights), nullptr);
  const ControlRow empty = only_call();
  EXPECT_EQ(empty.error, EINVAL);
  EXPECT_EQ(empty.object, 0U);
}

TEST_F(RecordedCalls, ADestroyedObjectIsNamedAndABusyOneRefused) {
  static_cast<void>(take_recorded_calls());
  EXPECT_EQ(ibv_destroy_cq(a->cq), EBUSY);
  const ControlRow busy = only_call();
  EXPECT_EQ(busy.call, ControlCall::destroy_cq);
  EXPECT_EQ(busy.object, a->cq->handle);
  EXPECT_EQ(busy.error, EBUSY);
  const uint32_t qpn = a->qp->qp_num;
  ASSERT_EQ(ibv_destroy_qp(a->qp), 0);
  a->qp = nullptr;
  const ControlRow gone = only_call();
  EXPECT_EQ(gone.call, ControlCall::destroy_qp);
  EXPECT_EQ(gone.object, qpn);
  EXPECT_EQ(gone.from_state, IBV_QPS_RESET);
  EXPECT_EQ(ibv_create_cq(a->context, 1 << 30, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(only_call().error, EINVAL);
}

TEST_F(RecordedCalls, CallsOfSeveralThreadsAreAllThere) {
  static_cast<void>(take_recorded_calls());
  constexpr size_t kThreads = 4;
  constexpr size_t kRegions = 50;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([this] {
      const Pages pages(4096);
      for (size_t k = 0; k < kRegions; ++k) {
        ibv_mr* const mr = ibv_reg_mr(a->pd, pages.data(), pages.size(), int{IBV_ACCESS_LOCAL_WRITE});
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
      }
    });
  for (std::thread& thread : threads) thread.join();
  const std::vector<ControlRow> rows = take_recorded_calls();
  EXPECT_EQ(rows.size(), kThreads * kRegions * 2);
  for (const ControlRow& row : rows) EXPECT_EQ(row.length_bytes, 4096U);
}

}  // namespace

}  // namespace faultline::verbs::test::recorded_calls_test
