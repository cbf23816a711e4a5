// SPDX-License-Identifier: BSD-3-Clause
// An access that an engine has begun before a call stores nothing after the call has returned. The access is
// held in its copy: its source page is on a userfaultfd and is provided when the test serves it.
//
// Built twice: with the library's hooks interposed on the C library's calls and without userfaultfd, so that
// only the hooks guard the memory; and without hooks, so that userfaultfd's events do.
#include <algorithm>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "odp/copy/restartable_copy.hpp"
#include "odp/regions/child_table.hpp"
#include "tests/unit/odp/engine_loop.hpp"
#include "tests/unit/odp/pager/slow_memory.hpp"

namespace faultline::odp::test::access_in_progress_test {
namespace {

constexpr bool kHooked = ODP_HOOKED != 0;
constexpr size_t kPage = 4096;
constexpr uint8_t kOwners = 0xa7;

/// A WRITE on an engine's thread that has passed every check and waits for its source page.
class BegunWrite {
 public:
  BegunWrite(MemoryDomain& domain, const Target& target, uint64_t va, size_t length_bytes = 64)
      : session_(domain.attach_engine()), source_(1), slow_(source_.data(), 1) {
    // Makes the target page resident, so that the copy begins at once.
    const std::vector<uint8_t> zeros(length_bytes);
    if (!slow_.is_slow()) return;
    warm_ = write_all(*session_, target, va, zeros) == Outcome::done;
    thread_ = std::thread([this, target, va, length_bytes] {
      session_->enter();
      outcome_ = session_->write(target, va, {source_.data(), length_bytes});
      session_->leave();
    });
    is_held_ = slow_.wait_for_fault();
  }
  ~BegunWrite() {
    if (thread_.joinable()) end();
  }
  [[nodiscard]] const SlowMemory& slow() const { return slow_; }
  /// Returns true once the write is in its copy.
  [[nodiscard]] bool is_held() const { return warm_ && is_held_; }
  /// Provides the source page and returns when the write has ended.
  Outcome end() {
    static_cast<void>(slow_.deliver());
    thread_.join();
    return outcome_;
  }
  /// The same, but the source page is gone, so that the copy faults.
  Outcome end_by_fault() {
    munmap(source_.data(), source_.size());
    slow_.release();
    thread_.join();
    return outcome_;
  }

 private:
  std::unique_ptr<EngineSession> session_;
  const Mapping source_;
  SlowMemory slow_;
  std::thread thread_;
  Outcome outcome_ = Outcome::miss;
  bool warm_ = false;
  bool is_held_ = false;
};

enum class Call : uint8_t { deregister, munmap, map_fixed, move };

struct Case {
  const char* name;
  Call call;
  uint32_t access;
};

/// Whether an ongoing copy can be restarted, or the call must wait for the end of the engine's turn (kernels
/// and C libraries without restartable sequences).
enum class Copies : uint8_t { restartable, of_turns };

class CopiesAre {
 public:
  explicit CopiesAre(Copies copies) { disable_restartable_copies(copies == Copies::of_turns); }
  CopiesAre(const CopiesAre&) = delete;
  CopiesAre& operator=(const CopiesAre&) = delete;
  ~CopiesAre() { disable_restartable_copies(false); }
};

class BegunAccess : public testing::TestWithParam<std::tuple<Case, Copies>> {
 protected:
  /// Makes the call, and maps memory of the test at the place.
  void take_away() {
    uint8_t* const place = memory_.data();
    void* own = MAP_FAILED;
    constexpr int kRights = PROT_READ | PROT_WRITE;
    constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    switch (the_case_.call) {
      case Call::deregister:
        ASSERT_EQ(domain_->deregister_region(target_.key), 0);
        own = place;
        break;
      case Call::munmap:
        ASSERT_EQ(munmap(place, memory_.size()), 0);
        own = mmap(place, memory_.size(), kRights, kAnonymous | MAP_FIXED_NOREPLACE, -1, 0);
        break;
      case Call::map_fixed:
        own = mmap(place, memory_.size(), kRights, kAnonymous | MAP_FIXED, -1, 0);
        break;
      case Call::move:
        ASSERT_EQ(
            mremap(place, memory_.size(), memory_.size(), MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere_.data()),
            elsewhere_.data());
        own = mmap(place, memory_.size(), kRights, kAnonymous | MAP_FIXED_NOREPLACE, -1, 0);
        break;
    }
    ASSERT_EQ(own, place);
    std::fill_n(place, memory_.size(), kOwners);
  }

  const Case the_case_ = std::get<Case>(GetParam());
  const CopiesAre copies_{std::get<Copies>(GetParam())};
  const std::unique_ptr<MemoryDomain> domain_ = make_domain({.monitor_invalidations = !kHooked});
  const Mapping memory_{2};
  const Mapping elsewhere_{2};
  Target target_;
};

TEST_P(BegunAccess, StoresNothingAfterTheCall) {
  const RegionResult region =
      domain_->register_region({.domain = 1,
                                .address = memory_.address(),
                                .length_bytes = memory_.size(),
                                .iova = memory_.address(),
                                .access = kLocalWrite | kRemoteWrite | the_case_.access});
  ASSERT_EQ(region.error, 0);
  target_ = {region.key, 1, kRemoteWrite};
  BegunWrite write(*domain_, target_, memory_.address() + 128);
  SKIP_WITHOUT_SLOW(write.slow());
  ASSERT_TRUE(write.is_held());
  std::atomic<bool> returned{false};
  std::thread caller([&] {
    take_away();
    returned.store(true, std::memory_order_release);
  });
  // The call may wait for the access, or end it and return. If it does neither, it returns within this time
  // and the access stores afterwards.
  for (int i = 0; i < 200 && !returned.load(std::memory_order_acquire); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  static_cast<void>(write.end());
  caller.join();
  EXPECT_TRUE(std::all_of(memory_.data(), memory_.data() + memory_.size(), [](uint8_t byte) {
    return byte == kOwners;
  })) << "the engine stored after the call had returned";
}

INSTANTIATE_TEST_SUITE_P(
    Calls, BegunAccess,
    testing::Combine(testing::Values(Case{"DeregisterOnDemand", Call::deregister, kOnDemand},
                                     Case{"DeregisterClassic", Call::deregister, 0},
                                     Case{"MunmapOnDemand", Call::munmap, kOnDemand},
                                     Case{"MunmapClassic", Call::munmap, 0},
                                     Case{"MapFixedOnDemand", Call::map_fixed, kOnDemand},
                                     Case{"MapFixedClassic", Call::map_fixed, 0},
                                     Case{"MoveOnDemand", Call::move, kOnDemand},
                                     Case{"MoveClassic", Call::move, 0}),
                     testing::Values(Copies::restartable, Copies::of_turns)),
    [](const auto& one) {
      const bool turns = std::get<Copies>(one.param) == Copies::of_turns;
      return std::string(std::get<Case>(one.param).name) + (turns ? "WithoutRestarts" : "");
    });

/// The pager is resolving a page of a region when the region is deregistered.
TEST(BegunFault, LetsNothingOfADeregisteredRegionStay) {
  const auto domain = make_domain({.monitor_invalidations = false});
  const Mapping memory(1);
  const RegionResult region = domain->register_region({.domain = 1,
                                                       .address = memory.address(),
                                                       .length_bytes = memory.size(),
                                                       .iova = memory.address(),
                                                       .access = kLocalWrite | kOnDemand});
  ASSERT_EQ(region.error, 0);
  // Created after the registration, so that the pager does not expect a slow page.
  const SlowMemory slow(memory.data(), 1);
  SKIP_WITHOUT_SLOW(slow);
  ASSERT_EQ(advise(*domain, {region.key, 1, kLocalWrite}, memory.address(), memory.size(), false), 0);
  ASSERT_TRUE(slow.wait_for_fault());
  std::atomic<bool> returned{false};
  std::thread owner([&] {
    EXPECT_EQ(domain->deregister_region(region.key), 0);
    returned.store(true, std::memory_order_release);
  });
  // Deregistration may wait for the pager, or remove the region from under it.
  for (int i = 0; i < 200 && !returned.load(std::memory_order_acquire); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(slow.deliver());
  owner.join();
  // The pager serves another fault after the one in progress.
  const Mapping another(1);
  const RegionResult next = domain->register_region({.domain = 1,
                                                     .address = another.address(),
                                                     .length_bytes = another.size(),
                                                     .iova = another.address(),
                                                     .access = kLocalWrite | kOnDemand});
  ASSERT_EQ(next.error, 0);
  EXPECT_EQ(advise(*domain, {next.key, 1, kLocalWrite}, another.address(), another.size(), true), 0);
  EXPECT_EQ(domain->deregister_region(next.key), 0);
  EXPECT_EQ(domain->counters().pinned_bytes, 0U);
  EXPECT_EQ(domain->counters().num_odp_mr_pages, 0U);
}

/// The slot of an implicit region's child is reused for another child. An access of the first child that
/// faults afterwards must not be attributed to the second.
TEST(ImplicitChild, IsNotGivenBackUnderAnEngine) {
  constexpr size_t kPages = 2 * kChildBytes / kPage;
  const auto domain = make_domain({.implicit_children = 1});
  const Mapping memory(2 * kPages);
  const RegionResult region = domain->register_region({.domain = 1,
                                                       .address = 0,
                                                       .length_bytes = ~uint64_t{0},
                                                       .iova = 0,
                                                       .access = kLocalWrite | kRemoteWrite | kOnDemand});
  ASSERT_EQ(region.error, 0);
  const Target target{region.key, 1, kRemoteWrite};
  const auto other = domain->attach_engine();
  // The same page offset in each child.
  const uint64_t first = (memory.address() + kChildBytes - 1) / kChildBytes * kChildBytes;
  const uint64_t second = first + kChildBytes;
  BegunWrite write(*domain, target, first);
  SKIP_WITHOUT_SLOW(write.slow());
  ASSERT_TRUE(write.is_held());
  other->enter();
  ASSERT_TRUE(other->request_fault({target, second, 64, {1}}));
  // The pager may wait for the engine. It may also create the second child at once, if the engine does not
  // use the first one's slot.
  std::array<Resolution, 1> resolution;
  size_t resolved = 0;
  for (int i = 0; i < 200 && resolved == 0; ++i) {
    other->leave();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    other->enter();
    resolved = other->take_resolutions(resolution);
  }
  other->leave();
  EXPECT_NE(write.end_by_fault(), Outcome::done);
  if (resolved == 0) {
    EXPECT_EQ(next_resolution(*other).outcome, Outcome::done);
    other->leave();
  }
  other->enter();
  EXPECT_EQ(other->probe(target, second, 64), Outcome::done)
      << "the second child lost its page to the first one's fault";
  other->leave();
}

/// The monitor waits for the end of an engine's turn, so an event stays unread: the mapping is gone, and
/// another one is at its address.
class EventUnderWay : public testing::Test {
 protected:
  void SetUp() override {
    if (kHooked) GTEST_SKIP() << "here the hooks see the call before the kernel does";
    beside_ = add(other_memory_.address(), kPage);
    warm(beside_, other_memory_.address());
  }
  Target add(uint64_t address, uint64_t length_bytes) {
    const RegionResult region = domain_->register_region({.domain = 1,
                                                          .address = address,
                                                          .length_bytes = length_bytes,
                                                          .iova = address,
                                                          .access = kLocalWrite | kRemoteWrite | kOnDemand});
    EXPECT_EQ(region.error, 0);
    return {region.key, 1, kRemoteWrite};
  }
  void warm(const Target& target, uint64_t va) {
    EXPECT_EQ(write_all(*other_, target, va, std::array<uint8_t, 8>{}), Outcome::done);
  }
  /// After the call `held_` is in a turn that began before the event, until wait_until_sent().
  void unmap_and_take(uint8_t* place) {
    held_->enter();
    caller_ = std::thread([place] { EXPECT_EQ(munmap(place, kPage), 0); });
    void* own = MAP_FAILED;
    EXPECT_TRUE(eventually([&] {
      own = mmap(place, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
                 0);
      return own != MAP_FAILED;
    }));
    ASSERT_EQ(own, place);
    std::fill_n(place, kPage, kOwners);
    // The monitor has seen that an event is pending: engines that begin a turn now are stopped, whatever they
    // access.
    EXPECT_TRUE(eventually([&] {
      other_->enter();
      const Outcome outcome = other_->probe(beside_, other_memory_.address(), 8);
      other_->leave();
      return outcome == Outcome::miss;
    })) << "a turn that begins while an event waits is not stopped";
  }
  void wait_until_sent() {
    held_->leave();
    caller_.join();
  }
  static bool is_owners(const uint8_t* place) {
    return std::all_of(place, place + kPage, [](uint8_t byte) { return byte == kOwners; });
  }

  const CopiesAre copies_{Copies::of_turns};
  const std::unique_ptr<MemoryDomain> domain_ = make_domain();
  const Mapping memory_{2};
  const Mapping other_memory_{1};
  const std::unique_ptr<EngineSession> held_ = domain_->attach_engine();
  const std::unique_ptr<EngineSession> other_ = domain_->attach_engine();
  Target beside_;
  std::thread caller_;
};

TEST_F(EventUnderWay, StopsTurnsThatBegin) {
  const Target target = add(memory_.address(), memory_.size());
  warm(target, memory_.address());
  unmap_and_take(memory_.data());
  const std::array<uint8_t, 64> data{};
  other_->enter();
  EXPECT_EQ(other_->write(target, memory_.address(), data), Outcome::miss);
  other_->leave();
  EXPECT_TRUE(is_owners(memory_.data()));
  wait_until_sent();
  EXPECT_EQ(write_all(*other_, target, memory_.address(), data), Outcome::violation);
  EXPECT_TRUE(is_owners(memory_.data()));
}

TEST_F(EventUnderWay, KeepsThePagerFromPublishing) {
  // The test serves the second page. Its region cannot be watched, because the first page is already watched
  // for another region.
  const Target watched = add(memory_.address(), kPage);
  const SlowMemory slow(memory_.data() + kPage, 1);
  SKIP_WITHOUT_SLOW(slow);
  const Target both = add(memory_.address(), 2 * kPage);
  other_->enter();
  ASSERT_TRUE(other_->request_fault({both, memory_.address(), 2 * kPage, {1}}));
  other_->leave();
  ASSERT_TRUE(slow.wait_for_fault());
  // The pager has made the first page resident but has not published it.
  unmap_and_take(memory_.data());
  EXPECT_TRUE(slow.deliver());
  // The pager must wait for the event, which reports that the first page belongs to another mapping. Without
  // waiting it would publish the page at once.
  bool published = false;
  for (int i = 0; i < 200 && !published; ++i) {
    published = held_->probe(both, memory_.address(), 8) == Outcome::done;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(published) << "a page of a mapping that is gone was published";
  wait_until_sent();
  EXPECT_EQ(next_resolution(*other_).outcome, Outcome::violation);
  other_->leave();
  EXPECT_EQ(domain_->deregister_region(watched.key), 0);
  EXPECT_TRUE(is_owners(memory_.data()));
}

}  // namespace
}  // namespace faultline::odp::test::access_in_progress_test
