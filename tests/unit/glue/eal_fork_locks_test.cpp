// SPDX-License-Identifier: BSD-3-Clause
// EAL's log in a child that is forked while another thread of the parent writes a line. EAL does not start
// here, so that the program has no other thread of EAL's.
#include <string>

#include <gtest/gtest.h>
#include <rte_log.h>

#include "pmd_glue/eal/eal.hpp"
#include "tests/unit/base/held_at_fork.hpp"

namespace faultline::glue {
namespace {

TEST(EalForkLocks, AChildUsesEalsLogWhileAThreadOfTheParentDoes) {
  Config config;
  config.path = "test";
  config.eal.memory_mib = 64;
  config.eal.extra_args = {"--no-such-option"};
  std::string parents_error;
  ASSERT_FALSE(start_eal(config, parents_error));
  const auto write_line = [] { rte_log(RTE_LOG_ERR, RTE_LOGTYPE_EAL, "a line\n"); };
  test::expect_children_end(write_line, [&] {
    write_line();
    std::string error;
    return !start_eal(config, error) && error == parents_error;
  });
}

}  // namespace
}  // namespace faultline::glue
