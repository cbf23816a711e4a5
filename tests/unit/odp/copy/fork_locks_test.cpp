// SPDX-License-Identifier: BSD-3-Clause
// A child that is forked while another thread of the parent starts a domain of memory.
#include <string>

#include <gtest/gtest.h>

#include "odp/copy/fault_handler.hpp"
#include "odp/regions/memory_domain.hpp"
#include "tests/unit/base/held_at_fork.hpp"

namespace faultline::odp::fork_locks_test {
namespace {

bool start_domain() {
  DomainConfig config;
  config.realtime_pager = false;
  config.allow_unguarded = true;
  std::string error;
  return MemoryDomain::create(config, error) != nullptr;
}

TEST(ForkLocks, AChildInstallsTheFaultHandlerWhileAThreadOfTheParentDoes) {
  faultline::test::expect_children_end(install_fault_handler, [] {
    install_fault_handler();
    return true;
  });
}

TEST(ForkLocks, AChildStartsADomainWhileAThreadOfTheParentDoes) {
  faultline::test::expect_children_end([] { start_domain(); }, start_domain);
}

}  // namespace
}  // namespace faultline::odp::fork_locks_test
