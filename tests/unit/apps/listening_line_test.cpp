// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/exchange/listening_line.hpp"

#include <gtest/gtest.h>

namespace faultline::perf::listening_line_test {
namespace {

TEST(ListeningLine, GivesThePortBack) {
  for (const uint16_t port : {uint16_t{1}, uint16_t{2026}, uint16_t{65535}})
    EXPECT_EQ(port_of_listening_line(listening_line(port)), port);
  EXPECT_EQ(listening_line(18515), "listening on TCP port 18515");
}

TEST(ListeningLine, NoOtherLineHasAPort) {
  for (const char* line :
       {"", "[2026-11-22 10:00:00.000] [warning] odp: no userfaultfd", "listening on TCP port ",
        "listening on TCP port 0", "listening on TCP port 65536", "listening on TCP port -1",
        "listening on TCP port 1 2", "listening on TCP port 12x", "listening on TCP port  12",
        " listening on TCP port 12", "now listening on TCP port 12", "listening on TCP port 12\r"})
    EXPECT_EQ(port_of_listening_line(line), std::nullopt) << line;
}

}  // namespace
}  // namespace faultline::perf::listening_line_test
