// SPDX-License-Identifier: BSD-3-Clause
// The record of watched memory, compared with a model. The model is a kernel before Linux 6.17, which removes
// any userfaultfd registration on request, with a limit on the mappings of a process.
#include "odp/invalidation/watch_book.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "odp/mappings/mapping_list.hpp"

namespace faultline::odp::watch_book_test {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kPages = 64;

enum class Owner : uint8_t { nobody, ours, programs };

/// An address space of 64 pages.
class ModelKernel final : public WatchCalls {
 public:
  struct Page {
    int mapping = 0;  ///< 0: a hole
    Owner owner = Owner::nobody;
    bool refuses = false;  ///< like a shared file opened read-only
  };

  [[nodiscard]] int watch(uint64_t start, uint64_t end) override {
    if (page(start).mapping == 0) return EINVAL;
    for (uint64_t at = start; at < end; at += kPage) {
      if (page(at).mapping != 0 && page(at).owner == Owner::programs) return EBUSY;
      if (page(at).mapping != 0 && page(at).refuses) return EPERM;
    }
    for (uint64_t at = start; at < end; at += kPage)
      if (page(at).mapping != 0) page(at).owner = Owner::ours;
    return 0;
  }
  [[nodiscard]] bool would_stay_split(uint64_t address, uint64_t start, uint64_t end,
                                      MappingFacts& mapping) override {
    return page(address).mapping != 0 && find_mapping_from(address, mapping) &&
           (mapping.start < start || mapping.end > end);
  }
  void prepare_split(const MappingFacts& mapping, uint64_t start, uint64_t end) override {
    if (watch(mapping.start, mapping.end) != 0) return;
    if (mapping.start < start) unwatch(mapping.start, std::min(start, mapping.end));
    if (mapping.end > end) unwatch(std::max(end, mapping.start), mapping.end);
  }
  void unwatch(uint64_t start, uint64_t end) override {
    if (page(start).mapping == 0) return;
    for (uint64_t at = start; at < end; at += kPage) {
      taken_from_program |= page(at).owner == Owner::programs;
      page(at).owner = Owner::nobody;
    }
  }
  [[nodiscard]] bool find_mapping_from(uint64_t address, MappingFacts& facts) override {
    uint64_t first = address / kPage;
    while (first < kPages && pages[first].mapping == 0) ++first;
    if (first == kPages) return false;
    uint64_t end = first + 1;
    while (first > 0 && is_one(first - 1, first)) --first;
    while (end < kPages && is_one(end - 1, end)) ++end;
    facts.start = first * kPage;
    facts.end = end * kPage;
    return true;
  }
  [[nodiscard]] Page& page(uint64_t address) { return pages[address / kPage]; }

  std::vector<Page> pages = std::vector<Page>(kPages);
  bool taken_from_program = false;

 private:
  [[nodiscard]] bool is_one(uint64_t one, uint64_t next) const {
    return pages[one].mapping == pages[next].mapping && pages[one].owner == pages[next].owner &&
           pages[one].refuses == pages[next].refuses;
  }
};

class Book : public testing::Test {
 protected:
  void map(uint64_t first, uint64_t end, int mapping) {
    for (uint64_t i = first; i < end; ++i) kernel_.pages[i] = {mapping, Owner::nobody, false};
  }
  [[nodiscard]] uint64_t count(Owner owner) const {
    uint64_t pages = 0;
    for (const ModelKernel::Page& page : kernel_.pages) pages += page.mapping != 0 && page.owner == owner;
    return pages;
  }
  int watch(uint64_t first, uint64_t end) { return book_.watch(first * kPage, end * kPage); }
  void unwatch(uint64_t first, uint64_t end) { book_.unwatch(first * kPage, end * kPage); }
  void give_to_program(uint64_t first, uint64_t end) {
    for (uint64_t i = first; i < end; ++i) kernel_.pages[i].owner = Owner::programs;
  }

  ModelKernel kernel_;
  WatchBook book_{kernel_};
};

TEST_F(Book, LeavesWhatTheProgramHadFirst) {
  map(0, 8, 1);
  give_to_program(2, 4);
  EXPECT_EQ(watch(0, 8), EBUSY);
  EXPECT_EQ(count(Owner::ours), 6U);
  unwatch(0, 8);
  EXPECT_FALSE(kernel_.taken_from_program);
  EXPECT_EQ(count(Owner::programs), 2U);
  EXPECT_EQ(count(Owner::ours), 0U);
}

TEST_F(Book, LeavesWhatTheProgramHasMappedAndTakenSince) {
  map(0, 8, 1);
  EXPECT_EQ(watch(0, 8), 0);
  map(2, 4, 2);
  give_to_program(2, 4);
  unwatch(0, 8);
  EXPECT_FALSE(kernel_.taken_from_program);
  EXPECT_EQ(count(Owner::programs), 2U);
  EXPECT_EQ(count(Owner::ours), 0U);
}

TEST_F(Book, WatchesAroundWhatCannotBe) {
  map(0, 4, 1);
  map(4, 6, 2);
  map(8, 10, 3);
  kernel_.pages[4].refuses = kernel_.pages[5].refuses = true;
  EXPECT_EQ(watch(0, 10), EPERM);
  EXPECT_EQ(count(Owner::ours), 6U);
  EXPECT_EQ(watch(6, 10), EINVAL) << "a hole";
  unwatch(0, 10);
  EXPECT_EQ(count(Owner::ours), 2U);
  unwatch(6, 10);
  EXPECT_EQ(count(Owner::ours), 0U);
}

TEST_F(Book, MakesRoomForTheProgramAndTakesItBack) {
  map(0, 8, 1);
  EXPECT_EQ(watch(1, 3), 0);
  EXPECT_EQ(book_.make_room_for(0, 4 * kPage, [&] { return count(Owner::ours) == 0 ? 0 : EBUSY; }), 0);
  EXPECT_EQ(count(Owner::ours), 0U);
  EXPECT_EQ(book_.restore(0, 4 * kPage), 0);
  EXPECT_EQ(count(Owner::ours), 2U);
  EXPECT_EQ(book_.make_room_for(0, 4 * kPage, [] { return EINVAL; }), EINVAL);
  EXPECT_EQ(count(Owner::ours), 2U) << "its call has failed";
  // Memory moved by an mremap that no hook saw: on our userfaultfd in the kernel, unknown to the record.
  EXPECT_EQ(kernel_.watch(5 * kPage, 7 * kPage), 0);
  int tries = 0;
  EXPECT_EQ(book_.make_room_for(5 * kPage, 7 * kPage, [&] { return ++tries == 1 ? EBUSY : 0; }), 0);
  EXPECT_EQ(count(Owner::ours), 2U);
}

/// Compared with a plain model: at any time exactly the memory that has a user and can be watched is watched.
TEST_F(Book, AgreesWithAPlainModel) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    for (uint64_t i = 0; i < kPages; ++i)
      kernel_.pages[i] = {static_cast<int>(random() % 5 / 4 == 0), Owner::nobody, false};
    std::vector<std::pair<uint64_t, uint64_t>> live;
    for (int step = 0; step < 60; ++step) {
      const uint64_t first = random() % (kPages - 1);
      const uint64_t end = first + 1 + random() % std::min<uint64_t>(12, kPages - first - 1 + 1);
      switch (random() % 4) {
        case 0:
        case 1:
          static_cast<void>(watch(first, std::min(end, kPages - 1)));
          live.emplace_back(first, std::min(end, kPages - 1));
          break;
        case 2:
          if (live.empty()) break;
          unwatch(live.back().first, live.back().second);
          live.pop_back();
          break;
        default:
          book_.lift(first * kPage, end * kPage);
          for (uint64_t i = first; i < std::min(end, kPages); ++i)
            ASSERT_NE(kernel_.pages[i].owner, Owner::ours) << "lifted";
          static_cast<void>(book_.restore(first * kPage, end * kPage));
      }
      for (uint64_t i = 0; i < kPages; ++i) {
        if (kernel_.pages[i].mapping == 0) continue;
        bool used = false;
        for (const auto& [from, to] : live) used |= i >= from && i < to;
        ASSERT_EQ(kernel_.pages[i].owner == Owner::ours, used) << round << ' ' << step << " page " << i;
      }
    }
    for (const auto& [from, to] : live) unwatch(from, to);
    ASSERT_EQ(book_.piece_count(), 0U);
  }
}

}  // namespace
}  // namespace faultline::odp::watch_book_test
