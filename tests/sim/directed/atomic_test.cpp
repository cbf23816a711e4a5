// SPDX-License-Identifier: BSD-3-Clause
// Compare-and-swap, fetch-and-add, ATOMIC WRITE and FLUSH: each is executed exactly once under loss,
// duplication and reordering. IBA 9.4.5, A19.
#include <cstring>

#include "tests/sim/directed/pair.hpp"

namespace faultline::sim::atomic_test {
namespace {

using transport::CompletionOpcode;
using transport::CompletionStatus;
using transport::SendOpcode;

constexpr uint64_t bit(unsigned packet) {
  return uint64_t{1} << packet;
}

uint64_t aligned(const Region& region) {
  return (region.base + 7) & ~uint64_t{7};
}
uint64_t load(Region& region, uint64_t va) {
  uint64_t value = 0;
  std::memcpy(&value, region.at(va), sizeof value);
  return value;
}
void store(Region& region, uint64_t va, uint64_t value) {
  std::memcpy(region.at(va), &value, sizeof value);
}

struct Atomics : Pair {
  using Pair::Pair;
  void add(uint64_t add, Region& remote, uint64_t offset = 0, uint8_t flags = transport::kSignaled) {
    SendRequest request = make(SendOpcode::atomic_fetch_and_add, remote, offset, flags);
    request.fill = [add](transport::SendWqe& wqe) { wqe.swap_or_add = add; };
    EXPECT_TRUE(a.post_send(request));
  }
  void swap(uint64_t compare, uint64_t swap, Region& remote) {
    SendRequest request = make(SendOpcode::atomic_cmp_and_swp, remote, 0, transport::kSignaled);
    request.fill = [=](transport::SendWqe& wqe) {
      wqe.compare = compare;
      wqe.swap_or_add = swap;
    };
    EXPECT_TRUE(a.post_send(request));
  }
  void flush(Region& remote, uint8_t placement, uint8_t selectivity) {
    SendRequest request;
    request.wr_id = next_wr_id++;
    request.opcode = SendOpcode::flush;
    request.remote_va = remote.base;
    request.rkey = remote.key;
    request.fill = [=](transport::SendWqe& wqe) {
      wqe.flush_placement = placement;
      wqe.flush_selectivity = selectivity;
      wqe.length_bytes = 100;
    };
    EXPECT_TRUE(a.post_send(request));
  }
  SendRequest make(SendOpcode opcode, Region& remote, uint64_t offset, uint8_t flags) {
    SendRequest request;
    request.wr_id = next_wr_id++;
    request.opcode = opcode;
    request.flags = flags;
    request.sges = {{results_at, 8, pinned_a.key}};
    request.remote_va = aligned(remote) + offset;
    request.rkey = remote.key;
    results_at += 8;
    return request;
  }
  uint64_t result(unsigned index) { return load(pinned_a, pinned_a.base + 1024 + 8 * index); }
  uint64_t results_at = pinned_a.base + 1024;
};

TEST(Atomic, AddsAndSwapsInTheHostsByteOrder) {
  Atomics pair;
  store(pair.pinned_b, aligned(pair.pinned_b), 40);
  pair.add(2, pair.pinned_b);
  pair.swap(42, 0x0102030405060708, pair.pinned_b);
  pair.swap(42, 1, pair.pinned_b);
  pair.run();
  EXPECT_EQ(pair.result(0), 40U);
  EXPECT_EQ(pair.result(1), 42U);
  EXPECT_EQ(pair.result(2), 0x0102030405060708U);
  EXPECT_EQ(load(pair.pinned_b, aligned(pair.pinned_b)), 0x0102030405060708U);
  const auto sends = pair.a.poll_sends();
  ASSERT_EQ(sends.size(), 3U);
  EXPECT_EQ(sends[0].opcode, CompletionOpcode::fetch_add);
  EXPECT_EQ(sends[1].opcode, CompletionOpcode::comp_swap);
  EXPECT_EQ(sends[0].byte_length, 8U);
}

// Loses every packet of the exchange once, in either direction. The final sum shows whether an atomic was
// executed twice.
TEST(Atomic, IsExecutedOnceWhicheverPacketIsLost) {
  constexpr uint64_t kBehindWrites = 8192;
  for (const bool selective : {false, true}) {
    for (unsigned lost = 0; lost < 12; ++lost) {
      for (const bool request : {true, false}) {
        SimulationScript script = selective ? selective_fabric() : quiet_fabric();
        (request ? script.a_to_b : script.b_to_a).drop_mask = bit(lost);
        Atomics pair(script);
        store(pair.pinned_b, aligned(pair.pinned_b) + kBehindWrites, 0);
        for (unsigned i = 0; i < 9; ++i) {
          pair.add(uint64_t{1} << (4 * i), pair.pinned_b, kBehindWrites);
          if (i % 3 == 0) pair.write(3000);
        }
        pair.run();
        EXPECT_EQ(load(pair.pinned_b, aligned(pair.pinned_b) + kBehindWrites), 0x111111111U)
            << lost << request << selective;
        EXPECT_EQ(pair.simulation.b.memory.atomics, 9U);
        EXPECT_EQ(pair.a.poll_sends().size(), 12U) << pair.simulation.trace.text(60);
        uint64_t sum = 0;
        for (unsigned i = 0; i < 9; ++i) {
          EXPECT_EQ(pair.result(i), sum) << i;
          sum += uint64_t{1} << (4 * i);
        }
      }
    }
  }
}

TEST(Atomic, ARepeatedOneThatIsTooOldToBeKnownIsDropped) {
  SimulationScript script = quiet_fabric();
  script.a_to_b.duplicate_mask = 0;
  script.a_to_b.late_mask = 0;
  Atomics pair(script);
  store(pair.pinned_b, aligned(pair.pinned_b), 0);
  pair.add(1, pair.pinned_b);
  pair.run();
  Frame first = pair.simulation.trace.entries().at(0).frame;
  for (unsigned i = 0; i < 8; ++i) pair.add(1, pair.pinned_b);
  pair.run();
  const auto before = pair.simulation.trace.entries().size();
  pair.simulation.a_to_b.inject(pair.simulation.now(), first);
  pair.run();
  EXPECT_EQ(pair.simulation.b.memory.atomics, 9U);
  EXPECT_LE(pair.simulation.trace.entries().size(), before + 1);
}

TEST(Atomic, AMisalignedAddressIsAnInvalidRequest) {
  Atomics pair;
  pair.add(1, pair.pinned_b, 4);
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), (Statuses{CompletionStatus::remote_invalid_request}));
  EXPECT_EQ(pair.simulation.b.memory.atomics, 0U);
}

TEST(Atomic, WithoutTheRightItIsAnInvalidRequestAndRaisesTheEvent) {
  ConnectionScript connection;
  connection.access_flags = odp::kRemoteRead | odp::kRemoteWrite;
  Atomics pair(quiet_fabric(), connection);
  pair.add(1, pair.pinned_b);
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), (Statuses{CompletionStatus::remote_invalid_request}));
  ASSERT_FALSE(pair.simulation.b.events.empty());
  EXPECT_EQ(pair.simulation.b.events.back().event, transport::AsyncEvent::qp_request_error);
}

TEST(Atomic, OnAPageThatIsNotThereItWaitsAndIsExecutedOnce) {
  Atomics pair;
  store(pair.paged_b, aligned(pair.paged_b), 5);
  pair.add(1, pair.paged_b);
  pair.add(1, pair.paged_b);
  pair.run();
  EXPECT_EQ(load(pair.paged_b, aligned(pair.paged_b)), 7U);
  EXPECT_EQ(pair.simulation.b.memory.atomics, 2U);
  EXPECT_EQ(pair.result(1), 6U);
  EXPECT_EQ(pair.counters_a().timeouts, 0U);
}

TEST(Atomic, CountsAgainstMaxRdAtomicWithReads) {
  ConnectionScript connection;
  connection.max_rd_atomic = 2;
  Atomics pair(quiet_fabric(), connection);
  for (unsigned i = 0; i < 3; ++i) {
    pair.add(1, pair.pinned_b);
    pair.read(100);
  }
  pair.run();
  EXPECT_EQ(pair.a.poll_sends().size(), 6U);
  EXPECT_EQ(pair.counters_b().naks_sent, 0U);
}

TEST(Atomic, AsManyAreUnderWayAsTheQueueHolds) {
  ConnectionScript connection;
  connection.max_rd_atomic = 128;
  SimulationScript script = quiet_fabric();
  script.b_to_a.drop_mask = bit(0);
  Atomics pair(script, connection);
  constexpr uint64_t kRequests = 64;
  for (uint64_t i = 0; i < kRequests; ++i) pair.add(1, pair.pinned_b);
  pair.run();
  EXPECT_EQ(pair.a.poll_sends().size(), kRequests);
  EXPECT_EQ(pair.simulation.b.memory.atomics, kRequests)
      << "the answer that was lost comes out of what is kept";
  EXPECT_EQ(pair.counters_b().naks_sent, 0U);
}

TEST(Atomic, AFenceWaitsForItsAnswer) {
  Atomics pair;
  pair.add(1, pair.pinned_b);
  SendRequest write = pair.request(SendOpcode::rdma_write, pair.pinned_a, 8, &pair.pinned_b);
  write.flags |= transport::kFence;
  EXPECT_TRUE(pair.a.post_send(write));
  pair.run();
  EXPECT_EQ(pair.lines(),
            (Lines{"a> FETCH_ADD 100!", "b> ATOMIC_ACK 100", "a> WRITE_ONLY 101!", "b> ACK 101"}));
}

TEST(AtomicWrite, PutsEightBytesAtOnceAndIsAnsweredByAnEmptyReadResponse) {
  Atomics pair;
  store(pair.pinned_a, pair.results_at, 0x1122334455667788);
  EXPECT_TRUE(pair.a.post_send(pair.make(SendOpcode::atomic_write, pair.pinned_b, 8, transport::kSignaled)));
  pair.run();
  EXPECT_EQ(pair.lines(), (Lines{"a> ATOMIC_WRITE 100!", "b> READ_RESP_ONLY 100"}));
  EXPECT_EQ(load(pair.pinned_b, aligned(pair.pinned_b) + 8), 0x1122334455667788U);
  EXPECT_EQ(pair.a.poll_sends().at(0).opcode, CompletionOpcode::atomic_write);
}

TEST(AtomicWrite, IsNotExecutedAgainWhenItsAnswerIsLost) {
  SimulationScript script = quiet_fabric();
  script.b_to_a.drop_mask = bit(0);
  Atomics pair(script);
  EXPECT_TRUE(pair.a.post_send(pair.make(SendOpcode::atomic_write, pair.pinned_b, 8, transport::kSignaled)));
  pair.run();
  EXPECT_EQ(pair.simulation.b.memory.atomics, 1U);
  EXPECT_EQ(pair.a.poll_sends().size(), 1U);
}

TEST(Flush, IsAnsweredOnceItIsDone) {
  Atomics pair;
  pair.write(2000);
  pair.flush(pair.pinned_b, 1, 0);
  pair.flush(pair.pinned_b, 2, 1);
  pair.run();
  EXPECT_EQ(pair.simulation.b.memory.flushes, 2U);
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()),
            (Statuses{CompletionStatus::success, CompletionStatus::success, CompletionStatus::success}));
}

TEST(Flush, WithoutTheRightOfTheQpItIsAnInvalidRequest) {
  ConnectionScript connection;
  connection.access_flags = odp::kRemoteWrite | odp::kFlushGlobal;
  Atomics pair(quiet_fabric(), connection);
  pair.flush(pair.pinned_b, 2, 0);
  pair.run();
  EXPECT_EQ(Pair::statuses(pair.a.poll_sends()), (Statuses{CompletionStatus::remote_invalid_request}));
  EXPECT_EQ(pair.simulation.b.memory.flushes, 0U);
}

// Linux rxe computes the ICRC of its FLUSH packets in a non-standard way and rejects the standard one.
TEST(Flush, RxesIcrcIsDroppedUnlessTheConfigurationTakesIt) {
  for (const bool taken : {false, true}) {
    SimulationScript script = quiet_fabric();
    script.a.core.rxe_flush_icrc = true;
    script.b.core.rxe_flush_icrc = taken;
    Atomics pair(script);
    pair.flush(pair.pinned_b, 1, 0);
    pair.run();
    EXPECT_EQ(pair.simulation.b.memory.flushes, taken ? 1U : 0U);
    EXPECT_EQ(pair.counters_b().parse_errors[static_cast<size_t>(wire::ParseError::icrc)] > 0, !taken);
    EXPECT_EQ(Pair::statuses(pair.a.poll_sends()),
              (Statuses{taken ? CompletionStatus::success : CompletionStatus::retry_exceeded}));
  }
}

TEST(Flush, WhoTakesRxesIcrcTakesTheSpecificationsToo) {
  SimulationScript script = quiet_fabric();
  script.b.core.rxe_flush_icrc = true;
  Atomics pair(script);
  pair.flush(pair.pinned_b, 1, 0);
  pair.run();
  EXPECT_EQ(pair.simulation.b.memory.flushes, 1U);
}

}  // namespace
}  // namespace faultline::sim::atomic_test
