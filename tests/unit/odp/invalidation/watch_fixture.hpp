// SPDX-License-Identifier: BSD-3-Clause
// One domain, one engine, and calls that bypass the hooks, for tests of userfaultfd's watch.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/odp/engine_loop.hpp"

namespace faultline::odp::test {

inline constexpr size_t kPage = 4096;
inline constexpr uint32_t kWatchAccess = kLocalWrite | kRemoteWrite | kRemoteRead | kOnDemand;

/// Like the C library's internal munmap in free(): no hook sees it.
inline long bare_munmap(const void* address, size_t bytes) {
  return syscall(SYS_munmap, address, bytes);
}
inline void* bare_mmap(void* address, size_t bytes) {
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
}

/// Returns the number of mappings of this process.
inline size_t count_mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t lines = 0;
  for (std::string line; std::getline(maps, line);) ++lines;
  return lines;
}

/// A userfaultfd of the program, closed by the destructor. A negative fd: the kernel refuses it.
class ProgramUserfault {
 public:
  explicit ProgramUserfault(uint64_t features = 0)
      : fd_(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK))) {
    uffdio_api api{.api = UFFD_API, .features = features, .ioctls = 0};
    if (fd_ >= 0 && ioctl(fd_, UFFDIO_API, &api) != 0) close(std::exchange(fd_, -1));
  }
  ProgramUserfault(const ProgramUserfault&) = delete;
  ProgramUserfault& operator=(const ProgramUserfault&) = delete;
  ~ProgramUserfault() {
    if (fd_ >= 0) close(fd_);
  }
  [[nodiscard]] int fd() const { return fd_; }
  /// Returns 0 or an errno.
  [[nodiscard]] int watch(const void* start, size_t bytes, uint64_t mode) const {
    uffdio_register request{{reinterpret_cast<uint64_t>(start), bytes}, mode, 0};
    return ioctl(fd_, UFFDIO_REGISTER, &request) == 0 ? 0 : errno;
  }
  [[nodiscard]] int unwatch(const void* start, size_t bytes) const {
    uffdio_range range{reinterpret_cast<uint64_t>(start), bytes};
    return ioctl(fd_, UFFDIO_UNREGISTER, &range) == 0 ? 0 : errno;
  }
  [[nodiscard]] int write_protect(const void* start, size_t bytes, bool on) const {
    uffdio_writeprotect request{{reinterpret_cast<uint64_t>(start), bytes},
                                on ? uint64_t{UFFDIO_WRITEPROTECT_MODE_WP} : 0};
    return ioctl(fd_, UFFDIO_WRITEPROTECT, &request) == 0 ? 0 : errno;
  }
  [[nodiscard]] int provide(const void* page, const void* contents) const {
    uffdio_copy copy{reinterpret_cast<uint64_t>(page), reinterpret_cast<uint64_t>(contents), kPage, 0, 0};
    return ioctl(fd_, UFFDIO_COPY, &copy) == 0 ? 0 : errno;
  }
  /// Waits for a fault and returns its message. Returns one with `event` 0 after a generous time-out.
  [[nodiscard]] uffd_msg next_fault() const {
    uffd_msg message{};
    static_cast<void>(eventually([&] {
      return read(fd_, &message, sizeof message) == sizeof message && message.event == UFFD_EVENT_PAGEFAULT;
    }));
    return message;
  }

 private:
  int fd_;
};

class Watch : public testing::Test {
 protected:
  void start(const DomainConfig& config = {}) {
    domain_ = make_domain(config);
    session_ = domain_->attach_engine();
    ASSERT_NE(session_, nullptr);
  }
  Target register_memory(const void* address, size_t bytes) {
    const auto at = reinterpret_cast<uint64_t>(address);
    const RegionResult result = domain_->register_region({1, at, bytes, at, kWatchAccess});
    EXPECT_EQ(result.error, 0);
    return {result.key, 1, kRemoteWrite};
  }
  Outcome fill(const Target& target, const void* address, size_t bytes, uint8_t value) {
    const std::vector<uint8_t> data(bytes, value);
    return write_all(*session_, target, reinterpret_cast<uint64_t>(address), data);
  }
  /// Returns true if an munmap inside the C library is detected: a new mapping at the place is not written
  /// to.
  bool is_watched(const Target& target, uint8_t* page) {
    if (bare_munmap(page, kPage) != 0 || bare_mmap(page, kPage) != page) return false;
    std::memset(page, 0xaa, kPage);
    return fill(target, page, kPage, 0x55) == Outcome::violation && page[0] == 0xaa &&
           page[kPage - 1] == 0xaa;
  }

  std::unique_ptr<MemoryDomain> domain_;
  std::unique_ptr<EngineSession> session_;
};

}  // namespace faultline::odp::test
