// SPDX-License-Identifier: BSD-3-Clause
// A child that is forked while another thread of the parent is inside a verbs call. That thread does not
// exist in the child, so nothing there may wait for a lock that it held.
#include <cerrno>

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include "tests/unit/base/held_at_fork.hpp"

namespace faultline::verbs::test::fork_locks_test {
namespace {

ibv_context* open_first() {
  ibv_device** const devices = ibv_get_device_list(nullptr);
  if (devices == nullptr) return nullptr;
  ibv_context* const context = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  return context;
}

bool list() {
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  if (devices == nullptr) return false;
  ibv_free_device_list(devices);
  return count > 0;
}

bool open_and_close() {
  ibv_context* const context = open_first();
  return context != nullptr && ibv_close_device(context) == 0;
}

TEST(ForkLocks, AChildListsDevicesWhileAThreadOfTheParentDoes) {
  faultline::test::expect_children_end([] { list(); }, list);
}

TEST(ForkLocks, AChildOpensADeviceWhileAThreadOfTheParentDoes) {
  faultline::test::expect_children_end([] { open_and_close(); }, open_and_close);
}

TEST(ForkLocks, AChildClosesWhatItInheritsWhileAThreadOfTheParentOpens) {
  ibv_context* const inherited = open_first();
  ASSERT_NE(inherited, nullptr);
  faultline::test::expect_children_end([] { open_and_close(); },
                                       [=] { return ibv_close_device(inherited) == 0 && open_and_close(); });
  EXPECT_EQ(ibv_close_device(inherited), 0);
}

TEST(ForkLocks, AChildImportsNoContextOfItsParent) {
  ibv_context* const parents = open_first();
  ASSERT_NE(parents, nullptr);
  faultline::test::expect_children_end([] { open_and_close(); },
                                       [=] {
                                         errno = 0;
                                         return ibv_import_device(parents->cmd_fd) == nullptr &&
                                                errno == EOPNOTSUPP;
                                       });
  EXPECT_EQ(ibv_close_device(parents), 0);
}

}  // namespace
}  // namespace faultline::verbs::test::fork_locks_test
