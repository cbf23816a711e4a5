// SPDX-License-Identifier: BSD-3-Clause
// A hook makes additional system calls. errno must be that of the program's call: the reason after a failure,
// and unchanged after a success.
#include <cerrno>

#include <fcntl.h>
#include <sys/shm.h>

#include "tests/unit/odp/hooks/hooked_program.hpp"

namespace faultline::odp::test::errno_hooks_test {
namespace {

constexpr size_t kPage = 4096;

/// A region with a hole, which the hooks examine after a failed call.
TEST(HookErrno, IsThatOfTheCall) {
  run_program([] {
    HookedProgram program(HookedProgram::without_monitor());
    const Mapping memory(8);
    REQUIRE(memory.data() != MAP_FAILED);
    const Key key = program.add_region(memory.data(), memory.size());
    REQUIRE(program.peer_writes(key, memory.data(), memory.size(), 1) == Outcome::done);
    constexpr int kBefore = 1234;
    errno = kBefore;
    REQUIRE(munmap(memory.data() + 2 * kPage, kPage) == 0);
    REQUIRE(errno == kBefore);
    REQUIRE(madvise(memory.data(), kPage, MADV_DONTNEED) == 0);
    REQUIRE(errno == kBefore);
    REQUIRE(mprotect(memory.data(), kPage, PROT_READ) == 0);
    REQUIRE(errno == kBefore);
    REQUIRE(mmap(memory.data() + 4 * kPage, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                 0) != MAP_FAILED);
    REQUIRE(errno == kBefore);
    REQUIRE(munmap(memory.data() + 1, 4 * kPage) == -1);
    REQUIRE(errno == EINVAL);
    errno = kBefore;
    REQUIRE(mmap(memory.data(), 4 * kPage, PROT_READ, MAP_SHARED | MAP_FIXED, -1, 0) == MAP_FAILED);
    REQUIRE(errno == EBADF);
    errno = kBefore;
    REQUIRE(mremap(memory.data() + 1, 4 * kPage, kPage, 0) == MAP_FAILED);
    REQUIRE(errno == EINVAL);
    errno = kBefore;
    REQUIRE(madvise(memory.data() + 1, 4 * kPage, MADV_DONTNEED) == -1);
    REQUIRE(errno == EINVAL);
    errno = kBefore;
    REQUIRE(shmdt(memory.data()) == -1);
    REQUIRE(errno == EINVAL);
    errno = kBefore;
    REQUIRE(shmat(-1, memory.data(), SHM_REMAP) == reinterpret_cast<void*>(-1));
    REQUIRE(errno == EINVAL);
    return 0;
  });
}

}  // namespace
}  // namespace faultline::odp::test::errno_hooks_test
