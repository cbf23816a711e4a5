// SPDX-License-Identifier: BSD-3-Clause
// EAL and forks. Its log, in a child that is forked while another thread of the parent writes a line: there
// EAL does not start, so that the program has no other thread of EAL's. Its memory, which a child must not
// share, in a process of its own.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <rte_log.h>
#include <rte_malloc.h>

#include "pmd_glue/eal/eal.hpp"
#include "tests/unit/base/held_at_fork.hpp"

namespace faultline::glue::eal_fork_locks_test {
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

/// Returns the line of /proc/self/maps that has the address.
std::string mapping_of(const void* address) {
  const auto place = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    uintptr_t first = 0;
    uintptr_t past = 0;
    char dash = 0;
    words >> std::hex >> first >> dash >> past;
    if (place >= first && place < past) return line;
  }
  return {};
}

/// Starts EAL for a port of that kind, and ends the process: 0 if EAL's memory is a shared file as expected.
[[noreturn]] void start_and_exit(PortKind kind, bool shares_memory) {
  Config config;
  config.path = "test";
  config.eal.memory_mib = 64;
  config.devices.resize(1);
  config.devices[0].port.kind = kind;
  std::string error;
  if (!start_eal(config, error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
    std::_Exit(2);
  }
  const std::string mapping = mapping_of(rte_malloc(nullptr, 64, 0));
  std::fprintf(stderr, "%s\n", mapping.c_str());
  std::_Exit(mapping.find(shares_memory ? " rw-s " : " rw-p ") == std::string::npos ? 1 : 0);
}

// A peer of kind virtio_user maps EAL's memory. Otherwise a forked child has a copy.
TEST(EalMemory, IsSharedWithAPeerAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the process begins without EAL
  EXPECT_EXIT(start_and_exit(PortKind::virtio_user, true), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(start_and_exit(PortKind::ring, false), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace faultline::glue::eal_fork_locks_test
