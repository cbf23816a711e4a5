// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/interpose/next_call.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace faultline::abi {
namespace {

int seven() {
  return 7;
}

TEST(NextCall, CallsTheCLibrarysFunction) {
  NextCall<int()> call("getpid", seven);
  EXPECT_EQ(call(), getpid());
}

TEST(NextCall, CallsTheOtherFunctionWhereTheCLibraryLacksTheName) {
  NextCall<int()> call("faultline_no_such_function", seven);
  EXPECT_EQ(call(), 7);
}

TEST(NextCallDeathTest, EndsTheProcessWithoutAFunction) {
  NextCall<int()> call("faultline_no_such_function");
  EXPECT_DEATH(call(), "");
}

}  // namespace
}  // namespace faultline::abi
