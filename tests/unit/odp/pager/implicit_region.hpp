// SPDX-License-Identifier: BSD-3-Clause
// The implicit region, and memory at the borders of its children, for tests.
#pragma once

#include <gtest/gtest.h>

#include "odp/regions/child_table.hpp"
#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test {

inline constexpr uint64_t kEverywhere = ~uint64_t{0};
inline constexpr uint32_t kImplicitAccess =
    kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic | kMemoryWindowBind | kFlushGlobal | kOnDemand;

inline RegionRequest implicit_request(uint32_t access = kImplicitAccess) {
  return {.domain = 1, .address = 0, .length_bytes = kEverywhere, .iova = 0, .access = access};
}

inline Key add_implicit(MemoryDomain& domain, uint32_t access = kImplicitAccess) {
  const RegionResult result = domain.register_region(implicit_request(access));
  EXPECT_EQ(result.error, 0);
  return result.key;
}

/// Anonymous memory that begins and ends at borders of children, with nothing else in these children.
class Pieces {
 public:
  explicit Pieces(size_t count, int protection = PROT_READ | PROT_WRITE)
      : count_(count), memory_((count + 1) * kChildPages, PROT_NONE) {
    munmap(memory_.data(), memory_.size());
    data_ = reinterpret_cast<uint8_t*>((memory_.address() + kChildBytes - 1) & ~(kChildBytes - 1));
    map(0, size(), protection);
  }

  [[nodiscard]] uint8_t* data() const { return data_; }
  [[nodiscard]] uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }
  [[nodiscard]] size_t size() const { return count_ * kChildBytes; }
  [[nodiscard]] uint8_t* piece(size_t i) const { return data_ + i * kChildBytes; }

  void map(size_t offset, size_t bytes, int protection = PROT_READ | PROT_WRITE) const {
    ASSERT_EQ(mmap(data_ + offset, bytes, protection,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0),
              data_ + offset);
  }

 private:
  const size_t count_;
  const Mapping memory_;
  uint8_t* data_ = nullptr;
};

}  // namespace faultline::odp::test
