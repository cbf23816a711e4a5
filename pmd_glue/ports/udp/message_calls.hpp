// SPDX-License-Identifier: BSD-3-Clause
// System calls for messages of a socket. Not those of the C library: they are cancellation points
// (pthreads(7)), and verbs calls, which hold the turn, are none. Each sets errno.
#pragma once

#include <span>

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace faultline::glue {

/// Returns the bytes of a received message, or -1.
inline long receive_message(int fd, msghdr& message, int flags) {
  return syscall(SYS_recvmsg, fd, &message, flags);
}

/// Returns the number of received messages, or -1. A single message takes the cheaper call.
inline int receive_messages(int fd, std::span<mmsghdr> messages, int flags) {
  if (messages.size() != 1)
    return static_cast<int>(syscall(SYS_recvmmsg, fd, messages.data(), messages.size(), flags, nullptr));
  const long bytes = receive_message(fd, messages.front().msg_hdr, flags);
  if (bytes < 0) return -1;
  messages.front().msg_len = static_cast<unsigned>(bytes);
  return 1;
}

/// Returns the number of messages that the kernel took, or -1.
inline int send_messages(int fd, std::span<mmsghdr> messages, int flags) {
  if (messages.size() != 1)
    return static_cast<int>(syscall(SYS_sendmmsg, fd, messages.data(), messages.size(), flags));
  return syscall(SYS_sendmsg, fd, &messages.front().msg_hdr, flags) < 0 ? -1 : 1;
}

}  // namespace faultline::glue
