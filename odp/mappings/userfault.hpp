// SPDX-License-Identifier: BSD-3-Clause
// userfaultfd(2), used only for its events: ranges are registered write-protect-async and never protected,
// so the program's own faults cost nothing extra.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include <linux/userfaultfd.h>

namespace faultline::odp {

/// What the kernel permits to watch.
enum class UserfaultLevel : uint8_t {
  none,
  without_files,  ///< anonymous and shared memory only: no WP_ASYNC (before Linux 6.7)
  full
};

class Userfault {
 public:
  Userfault() = default;
  Userfault(const Userfault&) = delete;
  Userfault& operator=(const Userfault&) = delete;
  ~Userfault();

  /// Opens with every event that is available to this process, at most at `level`. Returns 0 or an errno.
  [[nodiscard]] int open(UserfaultLevel level);
  [[nodiscard]] UserfaultLevel level() const { return level_; }
  /// Releases all threads that wait.
  void close_descriptor();
  [[nodiscard]] int fd() const { return fd_; }

  /// Watches a page-aligned range. Returns 0 or an errno: EINVAL if the range begins in a hole, EBUSY if
  /// another userfaultfd has it, EPERM for a shared mapping of a file opened read-only.
  [[nodiscard]] int watch(uint64_t start, uint64_t end) const;
  void unwatch(uint64_t start, uint64_t end) const;
  /// UFFDIO_COPY into watched memory; failures are not reported.
  void copy(uint64_t to, uint64_t from, uint64_t length_bytes) const;

  /// Reads events without blocking; reading an event releases the thread that caused it.
  [[nodiscard]] size_t read_events(std::span<uffd_msg> events) const;
  /// True if a thread waits for its event to be read.
  [[nodiscard]] bool has_events() const;
  /// True if a thread is anywhere between the change of a watched mapping and the end of its call: it may
  /// still cause an event. mremap causes two, one after the other, after it has released mmap_lock.
  [[nodiscard]] bool has_calls() const;

 private:
  [[nodiscard]] int note_when_ready();

  std::atomic<int> fd_{-1};
  int ready_fd_ = -1;  ///< an epoll set that contains only fd_ and outlives it
  UserfaultLevel level_ = UserfaultLevel::none;
};

}  // namespace faultline::odp
