// SPDX-License-Identifier: BSD-3-Clause
// CVE-2026-46325: an address was translated wrongly if the iova was unaligned or the page size differed. Here
// every access of random regions is compared with a plain copy of the memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/huge_pages.hpp"
#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test::translation_test {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr uint32_t kRights = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic | kMemoryWindowBind;
constexpr uint32_t kQpn = 0x77;

enum class Backing : uint8_t { small_pages, transparent_huge_pages, hugetlb, shared_file };

class Memory {
 public:
  Memory(Backing backing, size_t bytes) : bytes_(bytes) {
    switch (backing) {
      case Backing::small_pages:
        data_ = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        if (data_ != nullptr) madvise(data_, bytes, MADV_NOHUGEPAGE);
        return;
      case Backing::transparent_huge_pages: {
        whole_bytes_ = bytes + kHugePage;
        whole_ = map(whole_bytes_, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        const uint64_t aligned = (reinterpret_cast<uint64_t>(whole_) + kHugePage - 1) / kHugePage * kHugePage;
        data_ = reinterpret_cast<uint8_t*>(aligned);
        madvise(data_, bytes, MADV_HUGEPAGE);
        return;
      }
      case Backing::hugetlb:
        if (faultline::test::has_huge_pages_alone())
          data_ = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
        return;
      case Backing::shared_file: {
        const int file = memfd_create("translation", MFD_CLOEXEC);
        if (ftruncate(file, static_cast<off_t>(bytes)) == 0) data_ = map(bytes, MAP_SHARED, file);
        close(file);
        return;
      }
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (whole_ != nullptr) {
      munmap(whole_, whole_bytes_);
    } else if (data_ != nullptr) {
      munmap(data_, bytes_);
    }
  }
  /// Returns nullptr if the machine has no such pages.
  [[nodiscard]] uint8_t* data() const { return data_; }

 private:
  static uint8_t* map(size_t bytes, int flags, int file) {
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<uint8_t*>(memory);
  }
  size_t bytes_;
  uint8_t* data_ = nullptr;
  uint8_t* whole_ = nullptr;
  size_t whole_bytes_ = 0;
};

/// One region over [start, start + length) of the memory, and optionally a window over a part of it.
struct View {
  Target target;
  uint64_t va = 0;  ///< iova of its first byte
  size_t start = 0;
  size_t length = 0;
};

class Cve202646325 : public testing::TestWithParam<Backing> {
 protected:
  static constexpr size_t kBytes = 2 * kHugePage;

  /// Returns an offset that is likely to touch a page boundary of either size.
  size_t place(size_t limit) {
    switch (random_() % 4) {
      case 0:
        return random_() % limit;
      case 1:
        return std::min(limit - 1, random_() % (limit / kPage + 1) * kPage + random_() % 3);
      case 2:
        return std::min(limit - 1, kHugePage - 1 + random_() % 3);
      default:
        return limit - 1 - random_() % std::min<size_t>(limit, 9);
    }
  }
  uint64_t iova(size_t length, uint8_t* first) {
    switch (random_() % 5) {
      case 0:
        return 0;
      case 1:
        return reinterpret_cast<uint64_t>(first);
      case 2:
        return (random_() % 1000) * kPage + random_() % kPage;
      case 3:
        return ~uint64_t{0} - length + 1;  // ends with the highest address
      default:
        return (uint64_t{random_()} << 20) + random_();
    }
  }
  View add_region(uint8_t* data, uint32_t access) {
    View view;
    view.start = place(kBytes);
    view.length = 1 + place(kBytes - view.start);
    view.length = std::min(view.length, kBytes - view.start);
    view.va = iova(view.length, data + view.start);
    const RegionResult result =
        domain_->register_region({.domain = 1,
                                  .address = reinterpret_cast<uint64_t>(data) + view.start,
                                  .length_bytes = view.length,
                                  .iova = view.va,
                                  .access = access});
    EXPECT_EQ(result.error, 0);
    view.target = {result.key, 1, kRemoteWrite, kQpn};
    return view;
  }
  View add_window(const View& region, Key& window) {
    const RegionResult result = domain_->allocate_window(1, WindowType::type2);
    EXPECT_EQ(result.error, 0);
    window = result.key;
    View view;
    const size_t offset = place(region.length);
    view.length = std::min(1 + place(region.length - offset), region.length - offset);
    view.start = region.start + offset;
    const bool zero_based = random_() % 2 == 0;
    view.va = zero_based ? 0 : region.va + offset;
    WindowBinding binding{.window = result.key,
                          .new_key = result.key ^ 1,
                          .type = WindowType::type2,
                          .domain = 1,
                          .qpn = kQpn,
                          .region = region.target.key,
                          .va = region.va + offset,
                          .length_bytes = view.length,
                          .access = kRemoteWrite | kRemoteRead | kRemoteAtomic};
    if (zero_based) binding.access |= kZeroBased;
    session_->enter();
    EXPECT_EQ(session_->bind_window(binding), Outcome::done);
    session_->leave();
    view.target = {binding.new_key, 1, kRemoteWrite, kQpn};
    return view;
  }
  /// Writes, reads and an atomic inside the view; then accesses that begin before it or end after it.
  void use(const View& view, uint8_t* data, std::vector<uint8_t>& model) {
    for (int turn = 0; turn < 6; ++turn) {
      const size_t offset = place(view.length);
      const size_t length = 1 + random_() % std::min<size_t>(view.length - offset, 3 * kPage);
      std::vector<uint8_t> bytes(length);
      std::generate(bytes.begin(), bytes.end(), [this] { return static_cast<uint8_t>(random_()); });
      Target target = view.target;
      ASSERT_EQ(write_all(*session_, target, view.va + offset, bytes), Outcome::done);
      std::copy(bytes.begin(), bytes.end(), model.begin() + static_cast<std::ptrdiff_t>(view.start + offset));
      const size_t from = place(view.length);
      std::vector<uint8_t> seen(1 + random_() % std::min<size_t>(view.length - from, 3 * kPage));
      target.need = kRemoteRead;
      ASSERT_EQ(read_all(*session_, target, view.va + from, seen), Outcome::done);
      ASSERT_EQ(std::memcmp(seen.data(), model.data() + view.start + from, seen.size()), 0);
    }
    use_atomic(view, data, model);
    expect_refused(view);
  }
  void use_atomic(const View& view, const uint8_t* data, std::vector<uint8_t>& model) {
    constexpr size_t kOperand = sizeof(uint64_t);
    if (view.length < kOperand) return;
    const size_t offset = random_() % (view.length - kOperand + 1);
    Target target = view.target;
    target.need = kRemoteAtomic;
    uint64_t original = 0;
    const uint64_t add = (uint64_t{random_()} << 32) | random_();
    const Outcome outcome = until_settled(*session_, {target, view.va + offset, kOperand, {9}}, [&] {
      return session_->atomic(target, view.va + offset, {AtomicOp::fetch_add, 0, add}, original);
    });
    if (reinterpret_cast<uint64_t>(data + view.start + offset) % kOperand != 0) {
      ASSERT_EQ(outcome, Outcome::violation) << "aligned by its va or not, it is memory that counts";
      return;
    }
    ASSERT_EQ(outcome, Outcome::done);
    uint64_t before = 0;
    std::memcpy(&before, model.data() + view.start + offset, kOperand);
    ASSERT_EQ(original, before);
    before += add;
    std::memcpy(model.data() + view.start + offset, &before, kOperand);
  }
  void expect_refused(const View& view) {
    session_->enter();
    const uint64_t end = view.va + view.length;
    EXPECT_EQ(session_->check(view.target, view.va, view.length), Outcome::done);
    EXPECT_EQ(session_->check(view.target, view.va, view.length + 1), Outcome::violation);
    EXPECT_EQ(session_->check(view.target, view.va - 1, 1), Outcome::violation);
    EXPECT_EQ(session_->check(view.target, view.va - 1, view.length), Outcome::violation);
    EXPECT_EQ(session_->check(view.target, end, 1), Outcome::violation);
    EXPECT_EQ(session_->check(view.target, end - 1, 2), Outcome::violation);
    EXPECT_EQ(session_->check(view.target, view.va, ~uint64_t{0}), Outcome::violation);
    EXPECT_EQ(session_->check(view.target, end - 1, ~uint64_t{0}), Outcome::violation);
    uint64_t va = ~uint64_t{0};
    uint64_t length_bytes = 0;
    EXPECT_TRUE(session_->range_of(view.target.key, va, length_bytes));
    EXPECT_EQ(va, view.va);
    EXPECT_EQ(length_bytes, view.length);
    session_->leave();
  }

  std::mt19937 random_{46325};
  std::unique_ptr<MemoryDomain> domain_ = make_domain();
  std::unique_ptr<EngineSession> session_ = domain_->attach_engine();
};

TEST_P(Cve202646325, EveryByteLandsWhereItsAddressSays) {
  const Memory memory(GetParam(), kBytes);
  if (memory.data() == nullptr) GTEST_SKIP() << "this machine has no such pages";
  std::vector<uint8_t> model(kBytes, 0);
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const View region = add_region(memory.data(), kRights | (round % 2 == 0 ? uint32_t{kOnDemand} : 0U));
    use(region, memory.data(), model);
    Key window = 0;
    const View part = add_window(region, window);
    use(part, memory.data(), model);
    EXPECT_EQ(domain_->deallocate_window(window), 0);
    EXPECT_EQ(domain_->deregister_region(region.target.key), 0);
  }
  EXPECT_EQ(std::memcmp(memory.data(), model.data(), kBytes), 0) << "a byte outside was touched";
}

std::string name_of(const testing::TestParamInfo<Backing>& backing) {
  constexpr std::array kNames{"SmallPages", "TransparentHugePages", "Hugetlb", "SharedFile"};
  return kNames.at(static_cast<size_t>(backing.param));
}
INSTANTIATE_TEST_SUITE_P(Backings, Cve202646325,
                         testing::Values(Backing::small_pages, Backing::transparent_huge_pages,
                                         Backing::hugetlb, Backing::shared_file),
                         name_of);

}  // namespace
}  // namespace faultline::odp::test::translation_test
