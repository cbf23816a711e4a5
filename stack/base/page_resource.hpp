// SPDX-License-Identifier: BSD-3-Clause
// A memory resource that maps whole pages, for pools and arenas above it. Large pieces use transparent huge
// pages if the kernel has some (madvise(2), no reservation).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>

#include <sys/mman.h>

namespace faultline {

class PageResource final : public std::pmr::memory_resource {
 private:
  static constexpr size_t kPageBytes = 4096;
  static constexpr size_t kHugePageBytes = size_t{2} << 20;

  static constexpr size_t rounded_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

  /// Throws std::bad_alloc.
  void* do_allocate(size_t bytes, size_t alignment) override {
    const bool huge = bytes >= kHugePageBytes;
    const size_t wanted_alignment = std::max(alignment, huge ? kHugePageBytes : kPageBytes);
    const size_t used = rounded_up(bytes, kPageBytes);
    // Extra space so that an aligned block of the size fits; the rest is unmapped.
    const size_t slack = wanted_alignment - kPageBytes;
    void* const memory =
        mmap(nullptr, used + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    auto* const begin = static_cast<std::byte*>(memory);
    const auto address = reinterpret_cast<uintptr_t>(begin);
    const size_t before = rounded_up(address, wanted_alignment) - address;
    if (before != 0) munmap(begin, before);
    if (before != slack) munmap(begin + before + used, slack - before);
    if (huge) madvise(begin + before, used, MADV_HUGEPAGE);  // best effort: failure is harmless
    return begin + before;
  }
  void do_deallocate(void* memory, size_t bytes, size_t /*alignment*/) override {
    munmap(memory, rounded_up(bytes, kPageBytes));
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }
};

}  // namespace faultline
