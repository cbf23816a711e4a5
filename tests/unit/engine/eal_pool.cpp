// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/engine/eal_pool.hpp"

#include <cstdio>
#include <string>

#include <rte_mempool.h>

#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/frame_pool.hpp"

namespace faultline::glue::test {

rte_mempool* pool() {
  static rte_mempool* const instance = []() -> rte_mempool* {
    Config config;
    config.path = "test";
    config.eal.memory_mib = 64;
    std::string error;
    if (start_eal(config, error)) return create_frame_pool("fake_port_frames", kFrames);
    std::fprintf(stderr, "%s\n", error.c_str());
    return nullptr;
  }();
  return instance;
}

WithFrames::~WithFrames() {
  if (pool() == nullptr) return;
  EXPECT_EQ(rte_mempool_avail_count(pool()), kFrames) << "a frame leaked";
}

}  // namespace faultline::glue::test
