// SPDX-License-Identifier: BSD-3-Clause
// Which descriptor a connection to the switch has, also when the program has closed it.
#include "pmd_glue/wires/switch_channel.hpp"

#include <array>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace faultline::glue {
namespace {

struct Pair {
  Pair() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    channel = SwitchChannel(UniqueFd(ends[0]));
    at_switch = UniqueFd(ends[1]);
  }
  [[nodiscard]] bool is_ended() const {
    char byte = 0;
    return recv(at_switch.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }
  [[nodiscard]] bool can_send() {
    return channel.send({}, {}) != 0 && recv(at_switch.get(), &request, sizeof request, MSG_DONTWAIT) > 0;
  }
  SwitchChannel channel;
  UniqueFd at_switch;
  SwitchRequest request;
};

ino_t inode_at(int number) {
  struct stat status {};
  return fstat(number, &status) == 0 ? status.st_ino : 0;
}

TEST(SwitchChannel, TakesTheNumberOfTheFormerConnection) {
  Pair former, next;
  const int former_number = former.channel.descriptor(), next_number = next.channel.descriptor();
  next.channel.take_number_of(former.channel);
  EXPECT_EQ(next.channel.descriptor(), former_number);
  EXPECT_NE(fcntl(former_number, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(fcntl(next_number, F_GETFD), -1);
  EXPECT_TRUE(former.is_ended());
  EXPECT_EQ(former.channel.descriptor(), -1);
  EXPECT_TRUE(next.channel.is_ours());
  EXPECT_TRUE(next.can_send());
}

// Like a daemon that closes all descriptors and then opens other files.
TEST(SwitchChannel, LeavesANumberThatTheProgramHasTaken) {
  const UniqueFd file(memfd_create("program", MFD_CLOEXEC));
  for (const bool takes_former : {true, false}) {
    Pair former, next;
    const int taken = (takes_former ? former : next).channel.descriptor();
    const int other = (takes_former ? next : former).channel.descriptor();
    ASSERT_EQ(dup2(file.get(), taken), taken);
    const ino_t before = inode_at(other);
    next.channel.take_number_of(former.channel);
    EXPECT_EQ(inode_at(taken), inode_at(file.get()));
    EXPECT_EQ(inode_at(other), before);
    close(taken);
  }
}

}  // namespace
}  // namespace faultline::glue
