// SPDX-License-Identifier: BSD-3-Clause
// EAL without huge pages and privileges, and one pool of frames for all tests of the program.
#pragma once

#include <gtest/gtest.h>

struct rte_mempool;

namespace faultline::glue::test {

inline constexpr unsigned kFrames = 2047;

/// Starts EAL in the first call. Returns nullptr if that failed.
[[nodiscard]] rte_mempool* pool();

/// A test with frames of pool(). Its destructor, which runs after those of the stations in derived fixtures,
/// fails the test if a frame has not come back.
class WithFrames : public testing::Test {
 protected:
  ~WithFrames() override;
  void SetUp() override { ASSERT_NE(pool(), nullptr); }
};

}  // namespace faultline::glue::test
