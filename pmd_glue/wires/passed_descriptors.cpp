// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/wires/passed_descriptors.hpp"

#include <array>
#include <cstring>

#include <sys/socket.h>

namespace faultline::glue {
namespace {

using Control = std::array<char, CMSG_SPACE(kMostPassed * sizeof(int))>;

}  // namespace

ssize_t send_with_descriptors(int connection, const void* bytes, size_t size_bytes,
                              std::span<const int> descriptors) {
  iovec part{const_cast<void*>(bytes), size_bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) Control control{};
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  return sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t receive_with_descriptors(int connection, void* bytes, size_t size_bytes,
                                 std::vector<UniqueFd>& descriptors) {
  iovec part{bytes, size_bytes};
  alignas(cmsghdr) Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t received = recvmsg(connection, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT | MSG_TRUNC);
  if (received < 0) return received;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    std::array<int, kMostPassed> fds{};
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::memcpy(fds.data(), CMSG_DATA(header), count * sizeof(int));
    for (size_t i = 0; i < count; ++i) descriptors.emplace_back(fds[i]);
  }
  return received;
}

}  // namespace faultline::glue
