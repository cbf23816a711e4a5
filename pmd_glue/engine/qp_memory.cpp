// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/engine/qp_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <new>

#include <sys/mman.h>

namespace faultline::glue {

namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t rounded_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

void* PageResource::do_allocate(size_t bytes, size_t alignment) {
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

void PageResource::do_deallocate(void* memory, size_t bytes, size_t /*alignment*/) {
  munmap(memory, rounded_up(bytes, kPageBytes));
}

}  // namespace faultline::glue
