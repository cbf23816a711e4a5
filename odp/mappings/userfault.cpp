// SPDX-License-Identifier: BSD-3-Clause
#include "odp/mappings/userfault.hpp"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "odp/regions/address_space.hpp"

namespace faultline::odp {
namespace {

// Newer than the headers of Debian 12 (Linux 6.7, include/uapi/linux/userfaultfd.h).
constexpr uint64_t kFeatureWpUnpopulated = uint64_t{1} << 13;
constexpr uint64_t kFeatureWpAsync = uint64_t{1} << 15;

constexpr uint64_t kEvents = UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP;

/// A direct system call: the library's own hook on ioctl is for the program's userfaultfd.
template <typename Argument>
int control(int fd, unsigned long request, Argument* argument) {
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

int open_with(int flags, uint64_t features) {
  const auto fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags));
  if (fd < 0) return -errno;
  uffdio_api api{.api = UFFD_API, .features = features, .ioctls = 0};
  if (control(fd, UFFDIO_API, &api) != 0) {
    const int error = errno;
    close(fd);
    return -error;
  }
  return fd;
}

}  // namespace

Userfault::~Userfault() {
  close_descriptor();
  if (ready_fd_ >= 0) close(ready_fd_);
}

void Userfault::close_descriptor() {
  const int open_fd = fd_.exchange(-1);
  if (open_fd >= 0) close(open_fd);
}

int Userfault::open(UserfaultLevel level) {
  struct Try {
    UserfaultLevel level;
    uint64_t features;
  };
  // EVENT_FORK is not requested: its reader creates a descriptor for the child's memory, and a full
  // descriptor table blocks fork(2) for ever. Without it a child inherits no watch, and pthread_atfork(3)
  // reports a fork.
  constexpr std::array kTries{
      Try{UserfaultLevel::full, kEvents | kFeatureWpAsync | kFeatureWpUnpopulated},
      Try{UserfaultLevel::without_files, kEvents},
  };
  int error = ENOSYS;
  for (const Try& attempt : kTries) {
    if (attempt.level > level) continue;
    fd_ = open_with(UFFD_USER_MODE_ONLY, attempt.features);
    if (fd_ >= 0) {
      const int watched = note_when_ready();
      if (watched == 0) level_ = attempt.level;
      return watched;
    }
    error = -fd_;
  }
  fd_ = -1;
  return error;
}

int Userfault::watch(uint64_t start, uint64_t end) const {
  uffdio_register request{
      .range = {.start = start, .len = end - start}, .mode = UFFDIO_REGISTER_MODE_WP, .ioctls = 0};
  const AddressSpaceCall call;
  return control(fd_, UFFDIO_REGISTER, &request) == 0 ? 0 : errno;
}

void Userfault::unwatch(uint64_t start, uint64_t end) const {
  uffdio_range range{.start = start, .len = end - start};
  const AddressSpaceCall call;
  // EINVAL if the range begins in a hole: the part after the hole stays watched, and its events find no
  // region.
  (void)control(fd_, UFFDIO_UNREGISTER, &range);
}

void Userfault::copy(uint64_t to, uint64_t from, uint64_t length_bytes) const {
  uffdio_copy request{.dst = to, .src = from, .len = length_bytes, .mode = 0, .copy = 0};
  (void)control(fd_, UFFDIO_COPY, &request);
}

size_t Userfault::read_events(std::span<uffd_msg> events) const {
  const ssize_t bytes = read(fd_, events.data(), events.size_bytes());
  return bytes > 0 ? static_cast<size_t>(bytes) / sizeof(uffd_msg) : 0;
}

int Userfault::note_when_ready() {
  ready_fd_ = epoll_create1(EPOLL_CLOEXEC);
  epoll_event interest{};
  interest.events = EPOLLIN;
  if (ready_fd_ >= 0 && epoll_ctl(ready_fd_, EPOLL_CTL_ADD, fd_, &interest) == 0) return 0;
  const int error = errno;
  close_descriptor();
  return error;
}

bool Userfault::has_events() const {
  // Not poll(2), which has to query the descriptor. A thread that causes an event adds the descriptor to the
  // epoll ready list before it waits, and checking an empty list is cheap.
  // Not epoll_wait(3), a cancellation point: the program's own calls use this function.
  epoll_event ready{};
  return syscall(SYS_epoll_pwait, ready_fd_, &ready, 1, 0, nullptr, 0) > 0;
}

bool Userfault::has_calls() const {
  // ioctl_userfaultfd(2): EAGAIN while the layout of memory is changing; the kernel checks that before the
  // range.
  uffdio_writeprotect nothing{};
  return control(fd_, UFFDIO_WRITEPROTECT, &nothing) != 0 && errno == EAGAIN;
}

}  // namespace faultline::odp
