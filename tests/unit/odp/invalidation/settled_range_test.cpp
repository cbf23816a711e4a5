// SPDX-License-Identifier: BSD-3-Clause
// Ranges for which no further hints are needed, and how long that holds.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "odp/regions/memory_domain.hpp"
#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test::settled_range_test {
namespace {

constexpr uint32_t kPages = 100;
constexpr uint32_t kBlockPages = 64;

class SettledRanges : public testing::Test {
 protected:
  Key register_memory(uint32_t access) {
    return domain_
        ->register_region({.domain = 1,
                           .address = memory_.address(),
                           .length_bytes = memory_.size(),
                           .iova = 0,
                           .access = access})
        .key;
  }
  void hint(Key key, uint64_t va) {
    const std::array hints{WriteHint{va, key, 4096}};
    domain_->hint_will_write(1, hints, settled_);
  }
  [[nodiscard]] bool holds(const WriteHint& hint) const {
    return settled_.losses == domain_->page_losses().load() && settled_.holds(hint);
  }
  [[nodiscard]] bool holds(Key key, uint64_t va) const { return holds({va, key, 4096}); }

  std::unique_ptr<MemoryDomain> domain_ = make_domain();
  const Mapping memory_{kPages};
  SettledRange settled_;
};

TEST_F(SettledRanges, HoldOneBlockOfPagesThatAreAllThere) {
  const Key key = register_memory(kLocalWrite | kOnDemand);
  ASSERT_EQ(advise(*domain_, {key, 1, kLocalWrite}, 0, memory_.size(), true), 0);
  EXPECT_FALSE(holds(key, 0));
  hint(key, 5 * 4096);
  EXPECT_TRUE(holds(key, 0));
  EXPECT_TRUE(holds(key, (kBlockPages - 1) * 4096));
  EXPECT_FALSE(holds(key, (kBlockPages - 1) * 4096 + 1));
  EXPECT_FALSE(holds(key ^ 1, 0));
  hint(key, kBlockPages * 4096);
  EXPECT_TRUE(holds(key, (kPages - 1) * 4096));
  EXPECT_FALSE(holds(key, (kPages - 1) * 4096 + 1));
  EXPECT_FALSE(holds(key, 0));
}

TEST_F(SettledRanges, ReachToTheNextPageThatIsMissing) {
  const Key key = register_memory(kLocalWrite | kOnDemand);
  ASSERT_EQ(advise(*domain_, {key, 1, kLocalWrite}, 16 * 4096, 16 * 4096, true), 0);
  hint(key, 20 * 4096);
  EXPECT_TRUE(holds(key, 16 * 4096));
  EXPECT_FALSE(holds(key, 16 * 4096 - 1));
  EXPECT_TRUE(holds(key, 31 * 4096));
  EXPECT_FALSE(holds(key, 31 * 4096 + 1));
}

TEST_F(SettledRanges, HoldWhatAHintThatIsLongerThanABlockFound) {
  const Key key = register_memory(kLocalWrite | kOnDemand);
  ASSERT_EQ(advise(*domain_, {key, 1, kLocalWrite}, 0, memory_.size(), true), 0);
  const std::array hints{WriteHint{100, key, (kPages - 10) * 4096}};
  domain_->hint_will_write(1, hints, settled_);
  EXPECT_TRUE(holds(hints[0]));
}

TEST_F(SettledRanges, AreNoneForAHintThatIsRefused) {
  const Key key = register_memory(kLocalWrite | kOnDemand);
  const std::array beyond{WriteHint{(kPages - 1) * 4096 + 1, key, 4096}};
  domain_->hint_will_write(1, beyond, settled_);
  EXPECT_FALSE(holds(beyond[0]));
  const Key pinned = register_memory(kLocalWrite);
  const std::array foreign{WriteHint{0, pinned, 4096}};
  domain_->hint_will_write(2, foreign, settled_);
  EXPECT_FALSE(holds(foreign[0]));
}

TEST_F(SettledRanges, EndWhenAPageIsLost) {
  const Key key = register_memory(kLocalWrite | kOnDemand);
  const Target target{key, 1, kLocalWrite};
  ASSERT_EQ(advise(*domain_, target, 0, memory_.size(), true), 0);
  hint(key, 0);
  ASSERT_TRUE(holds(key, 0));
  ASSERT_EQ(madvise(memory_.data() + 7 * 4096, 4096, MADV_DONTNEED), 0);
  while (holds(key, 0)) std::this_thread::yield();
  // The page is requested again.
  const uint64_t handled = domain_->counters().num_prefetches_handled;
  hint(key, 7 * 4096);
  EXPECT_FALSE(holds(key, 0));
  while (domain_->counters().num_prefetches_handled == handled) std::this_thread::yield();
}

TEST_F(SettledRanges, EndWithTheirRegion) {
  const Key key = register_memory(kLocalWrite | kOnDemand);
  ASSERT_EQ(advise(*domain_, {key, 1, kLocalWrite}, 0, memory_.size(), true), 0);
  hint(key, 0);
  ASSERT_TRUE(holds(key, 0));
  ASSERT_EQ(domain_->replace_region(key, {.domain = 1,
                                          .address = memory_.address(),
                                          .length_bytes = memory_.size(),
                                          .iova = 0,
                                          .access = kLocalWrite | kOnDemand}),
            0);
  EXPECT_FALSE(holds(key, 0));
}

TEST_F(SettledRanges, OfPinnedMemoryAreTheWholeRegion) {
  const Key key = register_memory(kLocalWrite);
  hint(key, 4096);
  EXPECT_TRUE(holds(key, 0));
  EXPECT_TRUE(holds(key, (kPages - 1) * 4096));
  EXPECT_FALSE(holds(key, (kPages - 1) * 4096 + 1));
  ASSERT_EQ(domain_->deregister_region(key), 0);
  EXPECT_FALSE(holds(key, 0));
}

}  // namespace
}  // namespace faultline::odp::test::settled_range_test
