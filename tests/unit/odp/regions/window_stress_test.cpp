// SPDX-License-Identifier: BSD-3-Clause
// CVE-2025-21829: destroying an object waited for a reference that was never dropped. One engine binds and
// invalidates a window, another uses its key, and the program deregisters region and window under both
// repeatedly. Afterwards only the program may write to the memory.
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test::window_stress_test {
namespace {

constexpr size_t kPages = 4;
constexpr uint32_t kQpn = 0x99;
constexpr int kRounds = 150;

class Cve202521829 : public testing::TestWithParam<std::tuple<WindowType, uint32_t>> {
 protected:
  [[nodiscard]] static WindowType type() { return std::get<0>(GetParam()); }

  void create() {
    const RegionResult region =
        domain_->register_region({.domain = 1,
                                  .address = memory_.address(),
                                  .length_bytes = memory_.size(),
                                  .iova = memory_.address(),
                                  .access = kLocalWrite | kMemoryWindowBind | std::get<1>(GetParam())});
    RegionResult window = domain_->allocate_window(1, type());
    // The binder tells windows apart by the index, and an index may come back at once.
    if (const Key same = window.key; same >> 8 == window_ >> 8) {
      window = domain_->allocate_window(1, type());
      ASSERT_EQ(domain_->deallocate_window(same), 0);
    }
    ASSERT_EQ(region.error + window.error, 0);
    region_ = region.key;
    window_ = window.key;
  }

  /// The send queue of a QP: bind, unbind later, and so on.
  void bind_until_stopped() {
    auto session = domain_->attach_engine();
    Key key = 0;
    bool is_bound = false;
    for (uint64_t turn = 0; !stop_; ++turn) {
      session->enter();
      if (const Key fresh = window_; fresh >> 8 != key >> 8) {
        key = fresh;
        is_bound = false;
      }
      if (turn % 8 == 0) {
        WindowBinding binding{.window = key,
                              .new_key = (key & ~0xffU) | ((key + 1) & 0xff),
                              .type = type(),
                              .domain = 1,
                              .qpn = kQpn,
                              .region = region_,
                              .va = memory_.address() + 64,
                              .length_bytes = memory_.size() - 128,
                              .access = kRemoteWrite | kRemoteAtomic};
        if (!is_bound && session->bind_window(binding) == Outcome::done) {
          key = binding.new_key;
          is_bound = true;
          bound_key_ = key;
          ++binds_;
        }
      } else if (turn % 8 == 4 && is_bound) {
        if (type() == WindowType::type2) {
          is_bound = session->invalidate(key, 1, kQpn, turn % 16 == 4) != Outcome::done;
        } else {
          const WindowBinding none{.window = key,
                                   .new_key = (key & ~0xffU) | ((key + 1) & 0xff),
                                   .type = type(),
                                   .domain = 1,
                                   .qpn = kQpn};
          if (session->bind_window(none) == Outcome::done) {
            key = none.new_key;
            is_bound = false;
          }
        }
      }
      // The window is bound about half of the time, so that both its user and a deregistration find the state
      // that they wait for.
      std::this_thread::yield();
    }
    session->leave();
  }

  /// Requests of the peer: they arrive whether the window is bound or not.
  void use_until_stopped() {
    auto session = domain_->attach_engine();
    const std::vector<uint8_t> bytes(512, 0xee);
    std::array<Resolution, 32> resolutions;
    for (uint64_t turn = 0; !stop_; ++turn) {
      session->enter();
      static_cast<void>(session->take_resolutions(resolutions));
      const Target target{bound_key_, 1, turn % 4 == 0 ? uint32_t{kRemoteAtomic} : uint32_t{kRemoteWrite},
                          kQpn};
      const uint64_t va = memory_.address() + 64 + (turn * 520) % (memory_.size() - 1024);
      uint64_t original = 0;
      uint64_t length_bytes = 0;
      const Outcome outcome = turn % 4 == 0
                                  ? session->atomic(target, va, {AtomicOp::store, 0, ~uint64_t{0}}, original)
                                  : session->write(target, va, bytes);
      if (outcome == Outcome::done) ++uses_;
      if (const FaultRequest fault{target, va, bytes.size(), {turn}};
          outcome == Outcome::miss && !session->serve_fault(fault))
        static_cast<void>(session->request_fault(fault));
      static_cast<void>(session->range_of(target.key, original, length_bytes));
      if (turn % 16 == 0 || session->should_yield()) std::this_thread::yield();
    }
    session->leave();
  }

  /// After deregistration only this thread may write here.
  void expect_own_memory(uint8_t mine) {
    std::memset(memory_.data(), mine, memory_.size());
    for (int look = 0; look < 3; ++look) {
      for (size_t i = 0; i < memory_.size(); ++i)
        stale_writes_ += static_cast<const volatile uint8_t*>(memory_.data())[i] != mine ? 1 : 0;
      std::this_thread::yield();
    }
  }

  std::unique_ptr<MemoryDomain> domain_ = make_domain();
  Mapping memory_{kPages};
  std::atomic<Key> region_{0}, window_{0}, bound_key_{0};
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> binds_{0}, uses_{0};
  uint64_t stale_writes_ = 0;
};

TEST_P(Cve202521829, RegionsAndWindowsGoWhileEnginesUseThem) {
  create();
  std::thread binder([this] { bind_until_stopped(); });
  std::thread user([this] { use_until_stopped(); });
  uint64_t busy = 0;
  for (int round = 0; round < kRounds && !HasFatalFailure(); ++round) {
    const uint64_t enough_uses = uses_ + 20;
    const uint64_t enough_binds = binds_ + 2;
    while (uses_ < enough_uses || binds_ < enough_binds) std::this_thread::yield();
    // Either order: the window first; or the region, at a moment when nothing is bound to it.
    const bool window_first = round % 2 == 0;
    if (window_first) {
      ASSERT_EQ(domain_->deallocate_window(window_), 0);
      ASSERT_EQ(domain_->deallocate_window(window_), ENOENT);
    }
    int error = 0;
    while ((error = domain_->deregister_region(region_)) == EBUSY) {
      ++busy;
      std::this_thread::yield();
    }
    ASSERT_EQ(error, 0);
    expect_own_memory(static_cast<uint8_t>(round % 128));
    if (!window_first) {
      ASSERT_EQ(domain_->deallocate_window(window_), 0);
    }
    create();
  }
  stop_ = true;
  binder.join();
  user.join();
  EXPECT_EQ(stale_writes_, 0U);
  static_cast<void>(domain_->deallocate_window(window_));
  EXPECT_EQ(domain_->deregister_region(region_), 0) << "every bind was taken back";
  EXPECT_EQ(domain_->counters().num_odp_mr_pages, 0U);
  EXPECT_EQ(domain_->counters().pinned_bytes, 0U);
  std::printf("%lu binds, %lu uses, %lu times busy\n", binds_.load(), uses_.load(), busy);
}

std::string name_of(const testing::TestParamInfo<std::tuple<WindowType, uint32_t>>& kind) {
  const bool is_type1 = std::get<0>(kind.param) == WindowType::type1;
  const bool is_classic = std::get<1>(kind.param) == 0;
  return std::string(is_type1 ? "Type1" : "Type2") + (is_classic ? "Classic" : "OnDemand");
}
INSTANTIATE_TEST_SUITE_P(Kinds, Cve202521829,
                         testing::Combine(testing::Values(WindowType::type1, WindowType::type2),
                                          testing::Values(0U, uint32_t{kOnDemand})),
                         name_of);

}  // namespace
}  // namespace faultline::odp::test::window_stress_test
