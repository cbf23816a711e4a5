// SPDX-License-Identifier: BSD-3-Clause
// A child that is forked while another thread of the parent uses the drop-in's process-wide state.
#include <dirent.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>

#include "stack/abi/rdma_cm/core.hpp"
#include "stack/abi/tree/descriptor_table.hpp"
#include "tests/unit/base/held_at_fork.hpp"

namespace faultline::abi {
namespace {

constexpr const char* kDevices = "/sys/class/infiniband";
/// ".", "..", and the two devices of the memory backend.
constexpr int kEntries = 4;

int count_entries(DIR* directory) {
  int entries = 0;
  while (readdir(directory) != nullptr) ++entries;
  return entries;
}

bool read_directory() {
  DIR* const directory = opendir(kDevices);
  if (directory == nullptr) return false;
  const int entries = count_entries(directory);
  return closedir(directory) == 0 && entries == kEntries;
}

bool list_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  freeifaddrs(list);
  return true;
}

TEST(ForkLocks, AChildReadsADirectoryWhileAThreadOfTheParentDoes) {
  test::expect_children_end([] { read_directory(); }, read_directory);
}

TEST(ForkLocks, AChildReadsAStreamOfItsParent) {
  DIR* const parents = opendir(kDevices);
  ASSERT_NE(parents, nullptr);
  test::expect_children_end([] { read_directory(); },
                            [=] {
                              return find_descriptor(dirfd(parents)) == nullptr &&
                                     count_entries(parents) == kEntries && closedir(parents) == 0 &&
                                     read_directory();
                            });
  EXPECT_EQ(count_entries(parents), kEntries);
  EXPECT_EQ(closedir(parents), 0);
}

TEST(ForkLocks, AChildListsInterfacesWhileAThreadOfTheParentDoes) {
  test::expect_children_end([] { list_interfaces(); }, list_interfaces);
}

TEST(ForkLocks, AChildHasAConnectionManagerOfItsOwn) {
  const CmCore* const parents = &CmCore::instance();
  const auto use = [] { const std::lock_guard lock(CmCore::instance().mutex); };
  test::expect_children_end(use, [=] {
    use();
    return &CmCore::instance() != parents;
  });
}

}  // namespace
}  // namespace faultline::abi
