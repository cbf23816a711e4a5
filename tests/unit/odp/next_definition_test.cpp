// SPDX-License-Identifier: BSD-3-Clause
// The hooks leave the call to the next definition of its name: a registration cache's, where there is one.
#include "odp/next_definition.hpp"

#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include "tests/unit/odp/counting_calls.hpp"
#include "tests/unit/odp/hooked_program.hpp"

namespace faultline::odp::test {
namespace {

constexpr size_t kPage = 4096;

/// One call of the hook is one of the next definition, and both have seen it.
TEST(NextDefinition, OfShmatAndShmdtRuns) {
  run_program([] {
    HookedProgram program(HookedProgram::without_monitor());
    const int segment = shmget(IPC_PRIVATE, 4 * kPage, IPC_CREAT | 0600);
    void* const memory = shmat(segment, low_address(4 * kPage), 0);
    shmctl(segment, IPC_RMID, nullptr);
    REQUIRE(memory != reinterpret_cast<void*>(-1));
    REQUIRE(counted_calls("shmat") == 1);
    const Key key = program.add_region(memory, 4 * kPage);
    REQUIRE(program.peer_writes(key, memory, 4 * kPage, 1) == Outcome::done);
    REQUIRE(shmdt(memory) == 0);
    REQUIRE(counted_calls("shmdt") == 1);
    REQUIRE(program.is_gone(key, memory, 4 * kPage));
    return 0;
  });
}

TEST(NextDefinition, OfBrkAndSbrkRuns) {
  run_program([] {
    void* const before = sbrk(0);
    REQUIRE(counted_calls("sbrk") == 1);
    REQUIRE(brk(static_cast<char*>(before) + kPage) == 0);
    REQUIRE(counted_calls("brk") == 1);
    REQUIRE(sbrk(-static_cast<intptr_t>(kPage)) != reinterpret_cast<void*>(-1));
    REQUIRE(counted_calls("sbrk") == 2);
    return 0;
  });
}

TEST(NextDefinition, OfMemoryCallsRuns) {
  run_program([] {
    const int before = counted_calls("mmap");
    void* const memory =
        next::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    REQUIRE(counted_calls("mmap") == before + 1);
    const int advised = counted_calls("madvise");
    REQUIRE(next::madvise(memory, kPage, MADV_DONTNEED) == 0);
    REQUIRE(counted_calls("madvise") == advised + 1);
    void* const moved = next::mremap(memory, 4 * kPage, 8 * kPage, MREMAP_MAYMOVE, nullptr);
    REQUIRE(moved != MAP_FAILED);
    REQUIRE(counted_calls("mremap") == 1);
    const int unmapped = counted_calls("munmap");
    REQUIRE(next::munmap(moved, 8 * kPage) == 0);
    REQUIRE(counted_calls("munmap") == unmapped + 1);
    return 0;
  });
}

}  // namespace
}  // namespace faultline::odp::test
