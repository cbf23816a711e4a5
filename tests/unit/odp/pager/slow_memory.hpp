// SPDX-License-Identifier: BSD-3-Clause
// Memory whose pages arrive when the test provides them, as from a slow disk. They are registered with a
// userfaultfd of the test. A thread that makes such a page resident blocks until then.
#pragma once

#include <cstdint>
#include <vector>

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/hang_limit.hpp"
#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test {

/// Declare it after the domain: its destructor releases blocked threads.
class SlowMemory {
 public:
  static constexpr uint8_t kFill = 0x5c;
  /// Enough pages for PageSurveyor to classify their fault as slow: the pager serves other faults meanwhile.
  static constexpr size_t kPages = 32;

  /// The first `slow_pages` of a mapping.
  SlowMemory(uint8_t* data, size_t slow_pages) : data_(data), bytes_(slow_pages * 4096) {
    fd_ = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    uffdio_register request{.range = range(), .mode = UFFDIO_REGISTER_MODE_MISSING, .ioctls = 0};
    is_slow_ = fd_ >= 0 && ioctl(fd_, UFFDIO_API, &api) == 0 && ioctl(fd_, UFFDIO_REGISTER, &request) == 0;
  }
  SlowMemory(const SlowMemory&) = delete;
  SlowMemory& operator=(const SlowMemory&) = delete;
  ~SlowMemory() { release(); }
  /// Releases blocked threads; the memory then behaves as without a userfaultfd.
  void release() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

  /// Returns false for a user whose userfaultfd may not handle faults in the kernel.
  [[nodiscard]] bool is_slow() const { return is_slow_; }
  /// Returns true once a thread is blocked.
  [[nodiscard]] bool wait_for_fault() const {
    pollfd poller{.fd = fd_, .events = POLLIN, .revents = 0};
    uffd_msg message{};
    return poll(&poller, 1, faultline::test::hang_ms()) == 1 &&
           read(fd_, &message, sizeof message) == sizeof message;
  }
  /// Provides all pages, filled with kFill.
  [[nodiscard]] bool deliver() const {
    const std::vector<uint8_t> fill(bytes_, kFill);
    uffdio_copy copy{.dst = reinterpret_cast<uint64_t>(data_),
                     .src = reinterpret_cast<uint64_t>(fill.data()),
                     .len = bytes_,
                     .mode = 0,
                     .copy = 0};
    return ioctl(fd_, UFFDIO_COPY, &copy) == 0;
  }

 private:
  [[nodiscard]] uffdio_range range() const {
    return {.start = reinterpret_cast<uint64_t>(data_), .len = bytes_};
  }

  uint8_t* const data_;
  const size_t bytes_;
  int fd_ = -1;
  bool is_slow_ = false;
};

#define SKIP_WITHOUT_SLOW(memory) \
  if (!(memory).is_slow())        \
  GTEST_SKIP() << "no userfaultfd that sees the kernel's faults (vm.unprivileged_userfaultfd)"

}  // namespace faultline::odp::test
