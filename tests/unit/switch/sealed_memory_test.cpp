// SPDX-License-Identifier: BSD-3-Clause
// What the switch and the processes of a wire accept of each other's descriptors.
#include "pmd_glue/wires/sealed_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace faultline::glue::sealed_memory_test {
namespace {

TEST(PassedDescriptors, AnEventThatMayBlockIsRefused) {
  const UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const UniqueFd blocking(eventfd(0, EFD_CLOEXEC));
  EXPECT_TRUE(is_event(event.get()));
  EXPECT_FALSE(is_event(blocking.get()));
  EXPECT_FALSE(is_event(-1));
}

TEST(PassedDescriptors, NoOtherFileIsAnEvent) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd out(ends[0]);
  const UniqueFd in(ends[1]);
  EXPECT_FALSE(is_event(out.get()));
  EXPECT_FALSE(is_event(in.get()));
  EXPECT_FALSE(is_event(create_sealed_memory("test", 4096).get()));
}

}  // namespace
}  // namespace faultline::glue::sealed_memory_test
