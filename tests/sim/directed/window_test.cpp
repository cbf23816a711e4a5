// SPDX-License-Identifier: BSD-3-Clause
// Memory windows in send-queue order: bind, use by the peer, invalidation from either side. IBA 10.6.7.
#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::window_test {
namespace {

using transport::CompletionOpcode;
using transport::CompletionStatus;
using transport::SendOpcode;

struct Windows : Pair {
  using Pair::Pair;
  /// Binds the window to the start of b's pinned region.
  void bind(odp::Key key, odp::Key new_key, uint64_t length, uint32_t access = odp::kRemoteWrite) {
    SendRequest request;
    request.wr_id = next_wr_id++;
    request.opcode = SendOpcode::bind_mw;
    request.remote_va = pinned_b.base;
    request.rkey = key;
    request.immediate = new_key;
    const odp::Key lkey = pinned_b.key;
    request.fill = [=](transport::SendWqe& wqe) {
      wqe.window_type = 2;
      wqe.bind_lkey = lkey;
      wqe.bind_length_bytes = length;
      wqe.bind_access = access;
    };
    EXPECT_TRUE(b.post_send(request));
  }
  void invalidate_local(odp::Key key) {
    SendRequest request;
    request.wr_id = next_wr_id++;
    request.opcode = SendOpcode::local_inv;
    request.immediate = key;
    EXPECT_TRUE(b.post_send(request));
  }
  void write_to(odp::Key key, uint32_t length) {
    SendRequest request = this->request(SendOpcode::rdma_write, pinned_a, length, &pinned_b);
    request.rkey = key;
    EXPECT_TRUE(a.post_send(request));
  }
  void send_and_invalidate(odp::Key key, uint32_t length) {
    SendRequest request = this->request(SendOpcode::send_with_inv, pinned_a, length);
    request.immediate = key;
    EXPECT_TRUE(a.post_send(request));
  }
  odp::Key window = simulation.b.memory.add_window(1, odp::WindowType::type2).key;
  odp::Key bound = (window & ~0xffU) | ((window + 1) & 0xff);
};

TEST(Window, IsBoundUsedAndInvalidatedByItsOwner) {
  Windows pair;
  pair.bind(pair.window, pair.bound, 4096);
  pair.run();
  pair.write_to(pair.bound, 4096);
  pair.run();
  EXPECT_TRUE(Pair::same(pair.pinned_a, pair.pinned_b, 4096));
  pair.invalidate_local(pair.bound);
  pair.run();
  const auto own = pair.b.poll_sends();
  ASSERT_EQ(own.size(), 2U);
  EXPECT_EQ(own[0].opcode, CompletionOpcode::bind_mw);
  EXPECT_EQ(own[1].opcode, CompletionOpcode::local_inv);
  pair.write_to(pair.bound, 1);
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()),
            (Statuses{CompletionStatus::success, CompletionStatus::remote_access}));
}

TEST(Window, BindsCompleteInTheOrderOfTheSendQueue) {
  SimulationScript script = quiet_fabric();
  script.b_to_a.drop_mask = 1;  // the WRITE before the bind must be retransmitted
  Windows pair(script);
  EXPECT_TRUE(pair.b.post_send(pair.request(SendOpcode::rdma_write, pair.pinned_b, 100, &pair.pinned_a)));
  pair.bind(pair.window, pair.bound, 4096);
  EXPECT_TRUE(pair.b.post_send(pair.request(SendOpcode::rdma_write, pair.pinned_b, 100, &pair.pinned_a)));
  pair.invalidate_local(pair.bound);
  pair.run();
  std::vector<CompletionOpcode> order;
  for (const auto& completion : pair.b.poll_sends()) {
    EXPECT_EQ(completion.status, CompletionStatus::success);
    order.push_back(completion.opcode);
  }
  EXPECT_EQ(order, (std::vector{CompletionOpcode::rdma_write, CompletionOpcode::bind_mw,
                                CompletionOpcode::rdma_write, CompletionOpcode::local_inv}));
}

TEST(Window, ABindThatIsRefusedFailsTheQueueInOrder) {
  Windows pair;
  EXPECT_TRUE(pair.b.post_send(pair.request(SendOpcode::rdma_write, pair.pinned_b, 100, &pair.pinned_a)));
  pair.bind(pair.window, pair.bound, uint64_t{1} << 40);
  EXPECT_TRUE(pair.b.post_send(pair.request(SendOpcode::rdma_write, pair.pinned_b, 100, &pair.pinned_a)));
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.b.poll_sends()),
            (Statuses{CompletionStatus::success, CompletionStatus::mw_bind,
                      CompletionStatus::work_request_flushed}));
}

TEST(Window, ASendInvalidatesItBehindItsDataAndSaysSo) {
  Windows pair;
  pair.bind(pair.window, pair.bound, 4096);
  pair.run();
  pair.receive(3000);
  pair.send_and_invalidate(pair.bound, 3000);
  pair.run();
  const auto received = pair.b.poll_receives();
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0].flags, transport::kWithInvalidate);
  EXPECT_EQ(received[0].immediate_or_rkey, pair.bound);
  EXPECT_EQ(received[0].byte_length, 3000U);
  pair.write_to(pair.bound, 1);
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()),
            (Statuses{CompletionStatus::success, CompletionStatus::remote_access}));
}

// Linux rxe 7.2.12 panics here (rxe_invalidate_mw).
TEST(Window, ASecondSendThatInvalidatesItIsRefusedAndNothingElseHappens) {
  Windows pair;
  pair.bind(pair.window, pair.bound, 4096);
  pair.run();
  for (int i = 0; i < 3; ++i) pair.receive(3000);
  pair.send_and_invalidate(pair.bound, 1500);
  pair.send_and_invalidate(pair.bound, 1500);
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()),
            (Statuses{CompletionStatus::success, CompletionStatus::remote_access}));
  EXPECT_EQ(Pair::statuses(pair.b.poll_receives()),
            (Statuses{CompletionStatus::success, CompletionStatus::remote_invalid_request,
                      CompletionStatus::work_request_flushed}));
  ASSERT_FALSE(pair.simulation.b.events.empty());
  EXPECT_EQ(pair.simulation.b.events.back().event, transport::AsyncEvent::qp_access_error);
}

TEST(Window, OfAnotherQpIsNoUse) {
  Windows pair;
  Endpoint other_a(pair.simulation, pair.simulation.a, {});
  Endpoint other_b(pair.simulation, pair.simulation.b, {});
  ASSERT_TRUE(connect(pair.simulation, other_a, other_b, {}));
  pair.bind(pair.window, pair.bound, 4096);
  pair.run();
  SendRequest request = pair.request(SendOpcode::rdma_write, pair.pinned_a, 8, &pair.pinned_b);
  request.rkey = pair.bound;
  EXPECT_TRUE(other_a.post_send(request));
  pair.run();
  EXPECT_EQ(Pair::statuses(other_a.poll_sends()), (Statuses{CompletionStatus::remote_access}));
}

}  // namespace
}  // namespace faultline::sim::window_test
