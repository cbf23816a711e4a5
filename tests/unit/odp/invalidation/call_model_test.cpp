// SPDX-License-Identifier: BSD-3-Clause
// Searches the interleavings of calls, events, faults and copies (call_model.hpp), by seeds. FAULTLINE_SOAK=1
// runs a million of each kind.
#include "tests/unit/odp/invalidation/call_model.hpp"

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace faultline::odp::test::call_model_test {
namespace {

uint64_t interleavings() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  // One thread: a sanitizer has little to find here, and takes twenty times as long.
  return 2'000;
#endif
  return std::getenv("FAULTLINE_SOAK") != nullptr ? 1'000'000 : 20'000;
}

class CallSearch : public testing::TestWithParam<ModelChoice> {};

TEST_P(CallSearch, NothingIsStoredOutsideTheRegionAndNobodyWaitsForEver) {
  uint64_t stores = 0;
  uint64_t calls = 0;
  for (uint64_t seed = 0; seed < interleavings(); ++seed) {
    CallModel model(GetParam(), seed);
    ASSERT_EQ(model.run(), "") << "seed " << seed;
    stores += model.stores();
    calls += model.calls();
  }
  // The search must have had stores to check.
  EXPECT_GT(stores, interleavings() * 2);
  EXPECT_GT(calls, interleavings() * 8);
}

INSTANTIATE_TEST_SUITE_P(Ways, CallSearch,
                         testing::Values(ModelChoice{true, true}, ModelChoice{true, false},
                                         ModelChoice{false, true}, ModelChoice{false, false}),
                         [](const auto& way) {
                           return std::string(way.param.events ? "events" : "no_events") +
                                  (way.param.restartable ? "_restartable" : "_waiting");
                         });

struct Gap {
  Omission omission;
  bool events;
  const char* name;
};
class CallSearchWithout : public testing::TestWithParam<Gap> {};

/// The search detects each omitted guard, so it is not blind to it.
TEST_P(CallSearchWithout, FindsTheGap) {
  for (uint64_t seed = 0; seed < 50'000; ++seed) {
    CallModel model({.events = GetParam().events, .omission = GetParam().omission}, seed);
    if (!model.run().empty()) return;
  }
  FAIL() << "50,000 interleavings have found nothing";
}

INSTANTIATE_TEST_SUITE_P(Guards, CallSearchWithout,
                         testing::Values(Gap{Omission::marks, false, "marks"},
                                         Gap{Omission::wait_for_engine, false, "wait_for_engine"},
                                         Gap{Omission::ticket, false, "ticket"},
                                         Gap{Omission::settle_by_kernel, false, "settle_by_kernel"},
                                         Gap{Omission::overlap_on_revive, false, "overlap_on_revive"},
                                         Gap{Omission::gate_before_read, true, "gate_before_read"},
                                         Gap{Omission::publish_asks_monitor, true, "publish_asks_monitor"},
                                         Gap{Omission::register_outlasts_calls, false,
                                             "register_outlasts_calls"}),
                         [](const auto& gap) { return gap.param.name; });

TEST(CallLedger, LeavesToEachCallWhatOthersAreStillIn) {
  auto ledger = std::make_unique<CallLedger>();
  EXPECT_FALSE(ledger->has({0, ~uint64_t{0}}));
  CallLedger::Entry* const first = ledger->begin({0x2000, 0x5000});
  CallLedger::Entry* const second = ledger->begin({0x4000, 0x8000});
  EXPECT_TRUE(ledger->has({0x2000, 0x3000}));
  EXPECT_FALSE(ledger->has({0x8000, 0x9000}));
  std::string settled;
  const auto note = [&](const AddressRange& part, PageEvent event) {
    settled += (event == PageEvent::revive ? "revive " : "bury ") + std::to_string(part.start >> 12) + "-" +
               std::to_string(part.end >> 12) + " ";
  };
  const auto holes = [&](const AddressRange&) { settled += "holes "; };
  ledger->note_unmapped({0x3000, 0x4000});
  ledger->settle(first, {0x2000, 0x5000}, true, CallEnd::failed, note, holes);
  EXPECT_EQ(settled, "bury 3-4 holes revive 2-4 ");
  settled.clear();
  ledger->settle(second, {0x4000, 0x8000}, false, CallEnd::done, note, holes);
  EXPECT_EQ(settled, "revive 4-8 ");
  EXPECT_FALSE(ledger->has({0, ~uint64_t{0}}));
}

TEST(CallLedger, ForestallsWhatAMarkedCallHasDoneAlready) {
  auto ledger = std::make_unique<CallLedger>();
  const AddressRange range{0x2000, 0x5000};
  const auto nothing = [](auto&&...) {};
  EXPECT_FALSE(ledger->already_marks(PageEvent::kill, range));
  CallLedger::Entry* const unmapping = ledger->begin(range);
  EXPECT_FALSE(ledger->already_marks(PageEvent::kill, range)) << "its pages are not marked yet";
  unmapping->note_marked(PageEvent::doom);
  EXPECT_TRUE(ledger->already_marks(PageEvent::kill, range));
  EXPECT_TRUE(ledger->already_marks(PageEvent::drop, {0x3000, 0x4000}));
  EXPECT_FALSE(ledger->already_marks(PageEvent::kill, {0x1000, 0x5000}));
  EXPECT_FALSE(ledger->already_marks(PageEvent::kill, {0x2000, 0x6000}));
  ledger->settle(unmapping, range, true, CallEnd::done, nothing, nothing);
  EXPECT_FALSE(ledger->already_marks(PageEvent::kill, range)) << "the call has ended";

  CallLedger::Entry* const emptying = ledger->begin(range);
  ASSERT_EQ(emptying, unmapping);
  EXPECT_FALSE(ledger->already_marks(PageEvent::drop, range)) << "the mark of the entry's last call";
  emptying->note_marked(PageEvent::suspend);
  EXPECT_TRUE(ledger->already_marks(PageEvent::drop, range));
  EXPECT_FALSE(ledger->already_marks(PageEvent::kill, range))
      << "classic regions keep their pages at a suspend";
  ledger->settle(emptying, range, false, CallEnd::done, nothing, nothing);
}

TEST(CallLedger, BeyondItsEntriesEveryRangeIsInACall) {
  auto ledger = std::make_unique<CallLedger>();
  std::vector<CallLedger::Entry*> entries;
  for (size_t i = 0; i < CallLedger::kEntries; ++i) entries.push_back(ledger->begin({0x1000, 0x2000}));
  EXPECT_FALSE(ledger->has({0x5000, 0x6000}));
  CallLedger::Entry* const unlisted = ledger->begin({0x1000, 0x2000});
  EXPECT_EQ(unlisted, nullptr);
  EXPECT_TRUE(ledger->has({0x5000, 0x6000}));
  const auto nothing = [](auto&&...) {};
  ledger->settle(unlisted, {0x1000, 0x2000}, true, CallEnd::done, nothing, nothing);
  EXPECT_FALSE(ledger->has({0x5000, 0x6000}));
  for (CallLedger::Entry* entry : entries)
    ledger->settle(entry, {0x1000, 0x2000}, true, CallEnd::done, nothing, nothing);
  EXPECT_FALSE(ledger->has({0x1000, 0x2000}));
}

}  // namespace
}  // namespace faultline::odp::test::call_model_test
