// SPDX-License-Identifier: BSD-3-Clause
// The machine's huge pages, for tests that run beside others.
#pragma once

#include <fcntl.h>
#include <sys/file.h>

namespace faultline::test {

/// True if no other test uses or frees huge pages until this process ends. A mapping of them gets SIGBUS at
/// its next touch after MADV_DONTNEED, or ENOMEM at its next mmap, if others take them all or free them.
/// tests/conformance/pyverbs_test.sh reserves, uses and frees them under this lock.
inline bool has_huge_pages_alone() {
  static const bool alone = [] {
    const int lock = open("/run/faultline-test-huge-pages", O_RDONLY | O_CREAT | O_CLOEXEC, 0644);
    // Only root makes the file: without it no such script has run.
    return lock < 0 || flock(lock, LOCK_EX | LOCK_NB) == 0;
  }();
  return alone;
}

}  // namespace faultline::test
