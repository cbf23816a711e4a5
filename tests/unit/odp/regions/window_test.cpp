// SPDX-License-Identifier: BSD-3-Clause
// Memory windows: which requests may bind, use and invalidate them, and destruction during use. IBA 10.6.7.
#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test::window_test {
namespace {

constexpr uint32_t kQpn = 0x1234;

class Windows : public testing::Test {
 protected:
  Windows() {
    region_ = add(kLocalWrite | kMemoryWindowBind);
    type1_ = allocate(WindowType::type1);
    type2_ = allocate(WindowType::type2);
  }
  Key add(uint32_t access, uint64_t iova = 0) {
    const RegionResult result = domain_->register_region({.domain = 1,
                                                          .address = memory_.address(),
                                                          .length_bytes = memory_.size(),
                                                          .iova = iova == 0 ? memory_.address() : iova,
                                                          .access = access});
    EXPECT_EQ(result.error, 0);
    return result.key;
  }
  Key allocate(WindowType type) {
    const RegionResult result = domain_->allocate_window(1, type);
    EXPECT_EQ(result.error, 0);
    return result.key;
  }
  static Key next(Key key) { return (key & ~0xffU) | ((key + 1) & 0xff); }
  [[nodiscard]] WindowBinding binding(Key window, WindowType type) const {
    return {.window = window,
            .new_key = next(window),
            .type = type,
            .domain = 1,
            .qpn = kQpn,
            .region = region_,
            .va = memory_.address() + 100,
            .length_bytes = 1000,
            .access = kRemoteWrite | kRemoteRead};
  }
  Outcome bind(const WindowBinding& binding) {
    session_->enter();
    const Outcome outcome = session_->bind_window(binding);
    session_->leave();
    return outcome;
  }
  Outcome invalidate(Key key, uint32_t qpn = kQpn, ProtectionDomain domain = 1) {
    session_->enter();
    const Outcome outcome = session_->invalidate(key, domain, qpn, true);
    session_->leave();
    return outcome;
  }
  Outcome write(Key key, uint64_t va, size_t bytes, uint32_t qpn = kQpn, ProtectionDomain domain = 1,
                uint32_t need = kRemoteWrite) {
    const std::vector<uint8_t> data(bytes, 0x5a);
    return write_all(*session_, {key, domain, need, qpn}, va, data);
  }
  std::unique_ptr<MemoryDomain> domain_ = make_domain();
  std::unique_ptr<EngineSession> session_ = domain_->attach_engine();
  Mapping memory_{4};
  Key region_ = 0, type1_ = 0, type2_ = 0;
};

TEST_F(Windows, OpenTheirRangeWithTheirRightsAndNothingElse) {
  EXPECT_EQ(write(type2_, memory_.address() + 100, 8), Outcome::violation) << "bound to nothing yet";
  ASSERT_EQ(bind(binding(type2_, WindowType::type2)), Outcome::done);
  const Key key = next(type2_);
  EXPECT_EQ(write(key, memory_.address() + 100, 1000), Outcome::done);
  EXPECT_EQ(memory_.data()[100], 0x5a);
  EXPECT_EQ(memory_.data()[99], 0);
  EXPECT_EQ(write(key, memory_.address() + 99, 8), Outcome::violation);
  EXPECT_EQ(write(key, memory_.address() + 100, 1001), Outcome::violation);
  EXPECT_EQ(write(key, memory_.address() + 1100, 1), Outcome::violation);
  EXPECT_EQ(write(key, memory_.address() + 100, 8, kQpn, 1, kRemoteAtomic), Outcome::violation);
  EXPECT_EQ(write(key, memory_.address() + 100, 8, kQpn, 1, kLocalWrite), Outcome::violation);
  EXPECT_EQ(write(key, memory_.address() + 100, 8, kQpn, 2), Outcome::violation) << "another domain";
  EXPECT_EQ(write(key, memory_.address() + 100, 8, kQpn + 1), Outcome::violation) << "another QP";
}

TEST_F(Windows, GiveNoLocalRight) {
  ASSERT_EQ(bind(binding(type2_, WindowType::type2)), Outcome::done);
  std::array<uint8_t, 8> bytes{};
  const auto read = [&](uint32_t need) {
    return read_all(*session_, {next(type2_), 1, need, kQpn}, memory_.address() + 100, bytes);
  };
  EXPECT_EQ(read(kRemoteRead), Outcome::done);
  EXPECT_EQ(read(kLocalRead), Outcome::violation) << "IBA 10.6.7.1: a window's key is a peer's";
}

TEST_F(Windows, AreOfOneDomainWithTheirRegion) {
  const RegionResult other = domain_->register_region({.domain = 2,
                                                       .address = memory_.address(),
                                                       .length_bytes = memory_.size(),
                                                       .iova = memory_.address(),
                                                       .access = kLocalWrite | kMemoryWindowBind});
  ASSERT_EQ(other.error, 0);
  for (const WindowType type : {WindowType::type1, WindowType::type2}) {
    WindowBinding foreign = binding(type == WindowType::type1 ? type1_ : type2_, type);
    foreign.region = other.key;
    EXPECT_EQ(bind(foreign), Outcome::violation) << "the region is of another domain";
    foreign.domain = 2;
    EXPECT_EQ(bind(foreign), Outcome::violation) << "the window is of another domain";
    foreign.region = region_;
    EXPECT_EQ(bind(foreign), Outcome::violation) << "both are of another domain than the QP";
  }
  EXPECT_EQ(domain_->deregister_region(other.key), 0) << "nothing is bound to it";
}

TEST_F(Windows, EveryOtherVariantOfAKeyIsStale) {
  ASSERT_EQ(bind(binding(type2_, WindowType::type2)), Outcome::done);
  for (uint32_t variant = 0; variant < 256; ++variant) {
    const Key key = (type2_ & ~0xffU) | variant;
    EXPECT_EQ(write(key, memory_.address() + 100, 8),
              key == next(type2_) ? Outcome::done : Outcome::violation);
    const Key other = (region_ & ~0xffU) | variant;
    EXPECT_EQ(write(other, memory_.address() + 100, 8, kQpn, 1, kLocalWrite),
              other == region_ ? Outcome::done : Outcome::violation);
  }
  for (uint32_t variant = 0; variant < 256; ++variant) {
    const Key key = (type2_ & ~0xffU) | variant;
    if (key == next(type2_)) continue;
    EXPECT_EQ(invalidate(key), Outcome::violation);
  }
  EXPECT_EQ(write(next(type2_), memory_.address() + 100, 8), Outcome::done) << "it is still bound";
  EXPECT_EQ(invalidate(next(type2_)), Outcome::done);
}

TEST_F(Windows, Type1IsOfTheDomainIsRebindableAndUnbindable) {
  ASSERT_EQ(bind(binding(type1_, WindowType::type1)), Outcome::done);
  const Key first = next(type1_);
  EXPECT_EQ(write(first, memory_.address() + 100, 8, kQpn + 1), Outcome::done) << "any QP of the domain";
  EXPECT_EQ(invalidate(first), Outcome::violation) << "only type 2 is invalidated";
  WindowBinding again = binding(first, WindowType::type1);
  again.va += 2000;
  ASSERT_EQ(bind(again), Outcome::done);
  EXPECT_EQ(write(first, memory_.address() + 100, 8), Outcome::violation);
  EXPECT_EQ(write(next(first), memory_.address() + 2100, 8), Outcome::done);
  WindowBinding none = binding(next(first), WindowType::type1);
  none.length_bytes = 0;
  ASSERT_EQ(bind(none), Outcome::done);
  EXPECT_EQ(write(next(next(first)), memory_.address() + 2100, 8), Outcome::violation);
  EXPECT_EQ(domain_->deregister_region(region_), 0);
}

TEST_F(Windows, Type2IsBoundOnceUntilItIsInvalidated) {
  ASSERT_EQ(bind(binding(type2_, WindowType::type2)), Outcome::done);
  const Key key = next(type2_);
  EXPECT_EQ(bind(binding(key, WindowType::type2)), Outcome::violation);
  EXPECT_EQ(invalidate(key, kQpn + 1), Outcome::violation);
  EXPECT_EQ(invalidate(key, kQpn, 2), Outcome::violation);
  EXPECT_EQ(invalidate(key), Outcome::done);
  EXPECT_EQ(invalidate(key), Outcome::violation) << "twice: rxe panics";
  EXPECT_EQ(write(key, memory_.address() + 100, 8), Outcome::violation);
  EXPECT_EQ(bind(binding(key, WindowType::type2)), Outcome::done);
}

TEST_F(Windows, ABindIsRefusedWhereItsRegionDoesNotAllowIt) {
  WindowBinding wrong = binding(type2_, WindowType::type2);
  wrong.length_bytes = 4 * 4096;
  EXPECT_EQ(bind(wrong), Outcome::violation) << "beyond the region";
  wrong = binding(type2_, WindowType::type2);
  wrong.region = add(kLocalWrite);
  EXPECT_EQ(bind(wrong), Outcome::violation) << "no right to bind";
  wrong.region = add(kMemoryWindowBind);
  EXPECT_EQ(bind(wrong), Outcome::violation) << "a window for writing over a region that is not written";
  wrong = binding(type2_, WindowType::type1);
  EXPECT_EQ(bind(wrong), Outcome::violation) << "the other type";
  wrong = binding(type2_, WindowType::type2);
  wrong.domain = 2;
  EXPECT_EQ(bind(wrong), Outcome::violation);
  wrong = binding(type2_, WindowType::type2);
  wrong.new_key += 0x100;
  EXPECT_EQ(bind(wrong), Outcome::violation) << "another window's key";
  wrong = binding(type2_, WindowType::type2);
  wrong.length_bytes = 0;
  EXPECT_EQ(bind(wrong), Outcome::violation);
}

TEST_F(Windows, ZeroBasedOnesCountFromTheirStart) {
  WindowBinding zero = binding(type2_, WindowType::type2);
  zero.access |= kZeroBased;
  ASSERT_EQ(bind(zero), Outcome::done);
  EXPECT_EQ(write(next(type2_), 0, 1000), Outcome::done);
  EXPECT_EQ(memory_.data()[100], 0x5a);
  EXPECT_EQ(write(next(type2_), 1, 1000), Outcome::violation);
}

TEST_F(Windows, OverOnDemandMemoryTheyFaultAsItsRegionDoes) {
  WindowBinding paged = binding(type2_, WindowType::type2);
  paged.region = add(kLocalWrite | kMemoryWindowBind | kOnDemand, 0x7000123);
  paged.va = 0x7000123 + 4000;
  ASSERT_EQ(bind(paged), Outcome::done);
  EXPECT_EQ(write(next(type2_), 0x7000123 + 4000, 1000), Outcome::done);
  EXPECT_EQ(memory_.data()[4000], 0x5a);
  EXPECT_EQ(memory_.data()[4999], 0x5a);
  EXPECT_EQ(memory_.data()[5000], 0);
}

TEST_F(Windows, ARegionWithOneBoundStays) {
  ASSERT_EQ(bind(binding(type2_, WindowType::type2)), Outcome::done);
  EXPECT_EQ(domain_->deregister_region(region_), EBUSY);
  EXPECT_EQ(write(next(type2_), memory_.address() + 100, 8), Outcome::done);
  EXPECT_EQ(domain_->deallocate_window(type2_), 0) << "by any of its keys: its owner may not know which";
  EXPECT_EQ(domain_->deallocate_window(next(type2_)), ENOENT);
  EXPECT_EQ(write(next(type2_), memory_.address() + 100, 8), Outcome::violation);
  EXPECT_EQ(domain_->deregister_region(region_), 0);
}

/// An engine that repeatedly binds a window, writes through it and invalidates it.
struct WindowUser {
  std::atomic<uint64_t> uses{0};            ///< bound, written and invalidated
  std::atomic<uint64_t> bound_too_late{0};  ///< binds to a region that was deregistered before
  std::atomic<uint64_t> wrote_too_late{0};  ///< writes through a window that was deallocated before
  std::atomic<bool> region_is_gone{false};
  std::atomic<bool> window_is_gone{false};
  std::atomic<bool> stop{false};
};

TEST_F(Windows, AnEngineUsesThemWhileAnotherThreadTakesAllAway) {
  constexpr size_t kOffset = 100;
  constexpr uint8_t kEngines = 0xee;
  constexpr uint8_t kOwners = 0x11;
  for (int round = 0; round < 200; ++round) {
    const Key region = add(kLocalWrite | kMemoryWindowBind);
    const Key window = allocate(WindowType::type2);
    WindowUser user;
    std::array<uint8_t, 64> data{};
    data.fill(kEngines);
    uint8_t* const place = memory_.data() + kOffset;
    std::fill_n(place, data.size(), uint8_t{0});
    std::thread engine([&] {
      auto session = domain_->attach_engine();
      Key key = window;
      while (!user.stop.load(std::memory_order_acquire)) {
        session->enter();
        WindowBinding wanted = binding(key, WindowType::type2);
        wanted.region = region;
        const bool no_region = user.region_is_gone.load(std::memory_order_acquire);
        const bool bound = session->bind_window(wanted) == Outcome::done;
        if (bound) key = wanted.new_key;
        if (bound && no_region) ++user.bound_too_late;
        const bool no_window = user.window_is_gone.load(std::memory_order_acquire);
        const bool wrote =
            session->write({key, 1, kRemoteWrite, kQpn}, memory_.address() + kOffset, data) == Outcome::done;
        if (wrote && no_window) ++user.wrote_too_late;
        const bool invalidated = session->invalidate(key, 1, kQpn, false) == Outcome::done;
        if (bound && wrote && invalidated) ++user.uses;
      }
      session->leave();
    });
    // The engine has used both before they are destroyed.
    const bool worked = eventually([&] { return user.uses.load() >= 2; });
    EXPECT_EQ(place[0], kEngines);
    int error = EBUSY;
    // EBUSY while a window is bound, which is most of the time.
    for (uint64_t tries = 0; worked && error == EBUSY && tries < 10'000'000; ++tries)
      error = domain_->deregister_region(region);
    user.region_is_gone.store(true, std::memory_order_release);
    // From here on only the program may write to the memory.
    std::fill_n(place, data.size(), kOwners);
    int deallocated = 0;
    for (uint32_t variant = 0; variant < 256; ++variant)
      deallocated += domain_->deallocate_window((window & ~0xffU) | variant) == 0 ? 1 : 0;
    user.window_is_gone.store(true, std::memory_order_release);
    user.stop.store(true, std::memory_order_release);
    engine.join();
    ASSERT_TRUE(worked) << "the engine never bound, wrote and invalidated";
    ASSERT_EQ(error, 0);
    EXPECT_EQ(deallocated, 1) << "one window has one of its keys at a time";
    EXPECT_EQ(user.bound_too_late.load(), 0U);
    EXPECT_EQ(user.wrote_too_late.load(), 0U);
    EXPECT_TRUE(std::all_of(place, place + data.size(), [](uint8_t byte) { return byte == kOwners; }))
        << "an engine stored after the deregistration had returned";
  }
}

}  // namespace
}  // namespace faultline::odp::test::window_test
