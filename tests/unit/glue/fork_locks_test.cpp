// SPDX-License-Identifier: BSD-3-Clause
// A child that is forked while another thread of the parent holds a lock of the glue's process-wide state.
#include <gtest/gtest.h>

#include "pmd_glue/engine/reasons.hpp"
#include "pmd_glue/ports/host/packet_fanout.hpp"
#include "stack/base/log.hpp"
#include "tests/unit/base/held_at_fork.hpp"

namespace faultline::glue::fork_locks_test {
namespace {

TEST(ForkLocks, AChildLogsReasonsWhileAThreadOfTheParentDoes) {
  const auto log_one = [] { log_reason("mem0", "a line", 1); };
  test::expect_children_end(log_one, [=] {
    log_one();
    return true;
  });
}

TEST(ForkLocks, AChildAsksForPacketSocketsWhileAThreadOfTheParentDoes) {
  constexpr unsigned kInterface = 1;
  const auto ask = [] {
    return packet_socket_drops(kInterface) == 0 && packet_sockets_at(kInterface).empty();
  };
  test::expect_children_end([=] { ask(); }, ask);
}

TEST(ForkLocks, AChildHasTheLogLevelOfItsParent) {
  log().set_level(spdlog::level::debug);
  test::expect_children_end([] { log_reason("mem0", "a line", 1); }, wants_reasons);
}

}  // namespace
}  // namespace faultline::glue::fork_locks_test
