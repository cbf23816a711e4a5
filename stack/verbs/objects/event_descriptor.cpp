// SPDX-License-Identifier: BSD-3-Clause
#include "stack/verbs/objects/event_descriptor.hpp"

#include <cerrno>
#include <cstdint>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace faultline::verbs {

EventDescriptor::~EventDescriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int EventDescriptor::open() {
  descriptor_ = ::eventfd(0, EFD_CLOEXEC);
  return descriptor_ < 0 ? errno : 0;
}

void EventDescriptor::set() {
  const uint64_t one = 1;
  // The counter is 0, so this write neither blocks nor fails.
  [[maybe_unused]] const ssize_t written = ::write(descriptor_, &one, sizeof one);
}

void EventDescriptor::clear() {
  uint64_t count = 0;
  // The counter is 1 and no other thread reads it, so this read does not block.
  [[maybe_unused]] const ssize_t got = ::read(descriptor_, &count, sizeof count);
}

bool EventDescriptor::blocks() const {
  const int flags = ::fcntl(descriptor_, F_GETFL);
  return flags >= 0 && (flags & O_NONBLOCK) == 0;
}

int EventDescriptor::wait() const {
  const int flags = ::fcntl(descriptor_, F_GETFL);
  if (flags < 0) return errno;
  if ((flags & O_NONBLOCK) != 0) return EAGAIN;
  pollfd readable{descriptor_, POLLIN, 0};
  return ::poll(&readable, 1, -1) < 0 ? errno : 0;
}

}  // namespace faultline::verbs
