// SPDX-License-Identifier: BSD-3-Clause
// The order of service, without threads and without memory: the test itself is the engine and the pager.
#include "odp/pager/fault_scheduler.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace faultline::odp::test::fault_scheduler_test {
namespace {

constexpr uint64_t kBase = 0x10000;

class FaultSchedulerTest : public testing::Test {
 protected:
  /// The waiter is the request's name; the range begins at a page of its own.
  static FaultRequest request_of(uint64_t waiter, bool urgent = false) {
    FaultRequest request;
    request.va = kBase + waiter * 64 * kPageBytes;
    request.length_bytes = 4 * kPageBytes;
    request.waiter = {waiter};
    request.urgent = urgent;
    return request;
  }
  static void push(FaultRings& port, uint64_t waiter, bool urgent = false) {
    ASSERT_TRUE(port.requests.try_push({request_of(waiter, urgent), 0}));
  }
  void push_advice(uint64_t waiter, PrefetchWait* wait = nullptr) {
    ASSERT_TRUE(scheduler_->background().try_push({request_of(waiter), wait}));
  }
  static constexpr uint64_t kNone = ~uint64_t{0};
  /// Returns the waiter of the next service, which stays in the table.
  uint64_t pick() {
    FaultService* const service = scheduler_->next();
    return service == nullptr ? kNone : service->request.waiter.bits;
  }
  /// Picks until no service is ready, and serves each at its first pick.
  std::vector<uint64_t> serve_all() {
    std::vector<uint64_t> order;
    while (FaultService* const service = scheduler_->next()) {
      order.push_back(service->request.waiter.bits);
      scheduler_->finish(*service, Outcome::done);
    }
    return order;
  }
  static std::vector<uint64_t> answers_of(FaultRings& port) {
    std::vector<uint64_t> waiters;
    Resolution resolution;
    while (port.resolutions.try_pop(resolution)) waiters.push_back(resolution.waiter.bits);
    return waiters;
  }

  CounterCells counters_;
  std::unique_ptr<FaultScheduler> scheduler_ = std::make_unique<FaultScheduler>(counters_);
};

TEST_F(FaultSchedulerTest, PortsAreAdmittedInRotation) {
  constexpr uint64_t kPorts = 3;
  constexpr uint64_t kEach = 5;
  for (uint64_t port = 0; port < kPorts; ++port) {
    FaultRings* const rings = scheduler_->open_port();
    ASSERT_NE(rings, nullptr);
    for (uint64_t i = 0; i < kEach; ++i) push(*rings, 100 * port + i);
  }
  scheduler_->admit();
  for (uint64_t i = 0; i < kEach; ++i)
    for (uint64_t port = 0; port < kPorts; ++port) EXPECT_EQ(pick(), 100 * port + i);
}

TEST_F(FaultSchedulerTest, OnePortCannotFillTheTableAlone) {
  FaultRings* const busy = scheduler_->open_port();
  FaultRings* const other = scheduler_->open_port();
  for (uint64_t i = 0; i < 2 * FaultScheduler::kMaxServices; ++i) push(*busy, 1000 + i);
  for (uint64_t i = 0; i < 10; ++i) push(*other, i);
  scheduler_->admit();
  EXPECT_TRUE(other->requests.empty());
  EXPECT_FALSE(busy->requests.empty());
  const std::vector<uint64_t> order = serve_all();
  EXPECT_EQ(order.size(), FaultScheduler::kMaxServices);
  EXPECT_EQ(answers_of(*other).size(), 10U);
  scheduler_->admit();
  EXPECT_NE(pick(), kNone) << "the places are free again";
}

TEST_F(FaultSchedulerTest, AdviceLeavesHalfTheTableToEngines) {
  for (uint64_t i = 0; i < FaultScheduler::kMaxServices; ++i) push_advice(i);
  scheduler_->admit();
  EXPECT_FALSE(scheduler_->background().empty());
  FaultRings* const port = scheduler_->open_port();
  for (uint64_t i = 0; i < FaultScheduler::kMaxServices; ++i) push(*port, 1000 + i);
  scheduler_->admit();
  size_t of_engines = 0;
  for (const uint64_t waiter : serve_all()) of_engines += waiter >= 1000;
  EXPECT_EQ(of_engines, FaultScheduler::kMaxServices - FaultScheduler::kMostAdvice);
}

TEST_F(FaultSchedulerTest, UrgentFaultsAreFirstAndAdviceIsLast) {
  FaultRings* const port = scheduler_->open_port();
  push_advice(1);
  push(*port, 2);
  push(*port, 3, true);
  push(*port, 4);
  push(*port, 5, true);
  scheduler_->admit();
  std::vector<uint64_t> order = serve_all();
  ASSERT_EQ(order.size(), 5U);
  std::sort(order.begin(), order.begin() + 2);
  std::sort(order.begin() + 2, order.begin() + 4);
  EXPECT_EQ(order, (std::vector<uint64_t>{3, 5, 2, 4, 1}));
}

TEST_F(FaultSchedulerTest, EveryEighthPickIsAdvice) {
  FaultRings* const port = scheduler_->open_port();
  push(*port, 7, true);
  push_advice(8);
  scheduler_->admit();
  for (unsigned i = 1; i <= 3 * FaultScheduler::kAdviceTurn; ++i)
    EXPECT_EQ(pick(), i % FaultScheduler::kAdviceTurn == 0 ? 8U : 7U) << "pick " << i;
}

TEST_F(FaultSchedulerTest, RequestsOfOneRankTakeTurns) {
  FaultRings* const port = scheduler_->open_port();
  for (uint64_t i = 0; i < 3; ++i) push(*port, i);
  scheduler_->admit();
  for (uint64_t i = 0; i < 9; ++i) EXPECT_EQ(pick(), i % 3);
}

TEST_F(FaultSchedulerTest, RequestWhosePagesArePresentIsCoalesced) {
  FaultRings* const port = scheduler_->open_port();
  push(*port, 1);
  push(*port, 2);
  scheduler_->admit();
  FaultService* const first = scheduler_->next();
  first->pages_made_resident = 4;
  scheduler_->finish(*first, Outcome::done);
  scheduler_->finish(*scheduler_->next(), Outcome::done);
  EXPECT_EQ(answers_of(*port), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(counters_.num_page_faults.get(), 1U);
  EXPECT_EQ(counters_.num_page_fault_pages.get(), 4U);
  EXPECT_EQ(counters_.faults_coalesced.get(), 1U);
}

TEST_F(FaultSchedulerTest, RequestInARangeThatIsReadAheadNeedsOnlyItsFirstPages) {
  FaultRings* const port = scheduler_->open_port();
  FaultRequest whole = request_of(1);
  whole.length_bytes = 1000 * kPageBytes;
  ASSERT_TRUE(port->requests.try_push({whole, 0}));
  FaultRequest rest = whole;
  rest.waiter = {2};
  rest.va += 100 * kPageBytes;
  rest.length_bytes -= 100 * kPageBytes;
  ASSERT_TRUE(port->requests.try_push({rest, 0}));
  scheduler_->admit();
  EXPECT_EQ(pick(), 1U);
  FaultService* const service = scheduler_->next();
  ASSERT_EQ(service->request.waiter.bits, 2U);
  EXPECT_EQ(service->request.length_bytes, rest.length_bytes) << "the first has no answer yet";
  scheduler_->finish(*service, Outcome::done);
  FaultService* const reader = scheduler_->next();
  reader->pages_made_resident = 64;
  scheduler_->answer(*reader, Outcome::done);
  rest.waiter = {3};
  ASSERT_TRUE(port->requests.try_push({rest, 0}));
  FaultRequest beyond = rest;
  beyond.waiter = {4};
  beyond.length_bytes += kPageBytes;
  ASSERT_TRUE(port->requests.try_push({beyond, 0}));
  scheduler_->admit();
  size_t seen = 0;
  for (int i = 0; i < 3; ++i) {
    const FaultService* const picked = scheduler_->next();
    if (picked->request.waiter.bits == 3) {
      EXPECT_EQ(picked->request.length_bytes, FaultScheduler::kReadAheadPages * kPageBytes);
      ++seen;
    }
    if (picked->request.waiter.bits == 4) {
      EXPECT_EQ(picked->request.length_bytes, beyond.length_bytes);
      ++seen;
    }
  }
  EXPECT_EQ(seen, 2U);
}

TEST_F(FaultSchedulerTest, WaiterIsAnsweredOnce) {
  FaultRings* const port = scheduler_->open_port();
  push(*port, 1);
  scheduler_->admit();
  FaultService* const service = scheduler_->next();
  service->pages_made_resident = 2;
  scheduler_->answer(*service, Outcome::done);
  EXPECT_EQ(answers_of(*port), (std::vector<uint64_t>{1}));
  scheduler_->finish(*service, Outcome::violation);
  EXPECT_TRUE(answers_of(*port).empty());
  EXPECT_EQ(counters_.num_page_faults.get(), 1U);
  EXPECT_EQ(counters_.num_failed_resolutions.get(), 0U);
  EXPECT_EQ(pick(), kNone);
}

TEST_F(FaultSchedulerTest, AdviceReleasesItsCaller) {
  PrefetchWait done;
  PrefetchWait failed;
  push_advice(1, &done);
  push_advice(2, &failed);
  EXPECT_TRUE(scheduler_->has_queued_work());
  scheduler_->admit();
  scheduler_->finish(*scheduler_->next(), Outcome::done);
  scheduler_->finish(*scheduler_->next(), Outcome::violation);
  EXPECT_EQ(done.state.load(), PrefetchWait::State::done);
  EXPECT_EQ(failed.state.load(), PrefetchWait::State::failed);
  EXPECT_EQ(counters_.num_prefetches_handled.get(), 2U);
  EXPECT_FALSE(scheduler_->has_queued_work());
}

TEST_F(FaultSchedulerTest, BlockedServiceIsReadyWhenAThreadReturns) {
  FaultRings* const port = scheduler_->open_port();
  push(*port, 1);
  push(*port, 2);
  scheduler_->admit();
  FaultService* const away = scheduler_->next();
  away->plan.address = kBase;
  away->plan.length_bytes = kPageBytes;
  scheduler_->begin_away(*away);
  EXPECT_EQ(scheduler_->away_count(), 1U);
  const auto has_first_page = [](const ChunkPlan& plan) { return plan.overlaps({kBase, kBase + 1}); };
  EXPECT_TRUE(scheduler_->any_away(has_first_page));
  FaultService* const blocked = scheduler_->next();
  ASSERT_NE(blocked, away);
  FaultScheduler::make_wait(*blocked);
  EXPECT_FALSE(scheduler_->has_ready());
  EXPECT_EQ(scheduler_->next(), nullptr);
  scheduler_->end_away(*away);
  EXPECT_FALSE(scheduler_->any_away(has_first_page));
  EXPECT_EQ(serve_all().size(), 2U);
}

TEST_F(FaultSchedulerTest, BlockedServiceIsReadyWhenACallOfTheProgramEnds) {
  FaultRings* const port = scheduler_->open_port();
  push(*port, 1);
  scheduler_->admit();
  EXPECT_FALSE(scheduler_->note_call_end()) << "no request waits for one";
  scheduler_->expect_call_end();
  FaultScheduler::make_wait(*scheduler_->next());
  scheduler_->look_at_call_ends();
  EXPECT_EQ(pick(), kNone);
  EXPECT_TRUE(scheduler_->note_call_end());
  EXPECT_TRUE(scheduler_->has_queued_work());
  scheduler_->look_at_call_ends();
  EXPECT_EQ(pick(), 1U);
  EXPECT_FALSE(scheduler_->note_call_end());
}

TEST_F(FaultSchedulerTest, ClosedPortTakesItsRequestsAlong) {
  FaultRings* const closing = scheduler_->open_port();
  FaultRings* const other = scheduler_->open_port();
  push(*closing, 1);
  push(*closing, 2);
  push(*other, 3);
  scheduler_->admit();
  push(*closing, 4);
  FaultService* const away = scheduler_->next();
  ASSERT_EQ(away->port, closing);
  scheduler_->begin_away(*away);
  closing->state = FaultRings::State::closing;
  EXPECT_TRUE(scheduler_->has_queued_work());
  scheduler_->release_closing_ports();
  EXPECT_EQ(closing->state.load(), FaultRings::State::unused);
  EXPECT_TRUE(closing->requests.empty());
  EXPECT_TRUE(away->abandoned) << "its thread has not returned";
  EXPECT_EQ(scheduler_->open_port(), closing) << "the port serves the next engine";
  scheduler_->end_away(*away);
  scheduler_->finish(*away, Outcome::violation);
  EXPECT_EQ(serve_all(), (std::vector<uint64_t>{3}));
  EXPECT_TRUE(answers_of(*closing).empty());
  EXPECT_EQ(counters_.num_failed_resolutions.get(), 0U);
}

}  // namespace
}  // namespace faultline::odp::test::fault_scheduler_test
