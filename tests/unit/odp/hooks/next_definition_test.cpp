// SPDX-License-Identifier: BSD-3-Clause
// The hooks forward each call to the next definition of its name: that of a registration cache, if there is
// one.
#include "stack/abi/interpose/next_definition.hpp"

#include <array>

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include "tests/unit/odp/hooks/counting_calls.hpp"
#include "tests/unit/odp/hooks/hooked_program.hpp"

namespace faultline::odp::test::next_definition_test {
namespace {

constexpr size_t kPage = 4096;

/// One call of the hook is one call of the next definition, and both have seen it.
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

/// Near a region the hook first requests the range with MAP_FIXED_NOREPLACE. Elsewhere it forwards the
/// program's call unchanged.
TEST(NextDefinition, OfMmapRunsOnceWhereNoRegionIs) {
  run_program([] {
    HookedProgram program(HookedProgram::without_monitor());
    const Mapping memory(4);
    REQUIRE(memory.data() != MAP_FAILED);
    const Key key = program.add_region(memory.data(), memory.size());
    REQUIRE(program.peer_writes(key, memory.data(), memory.size(), 1) == Outcome::done);
    // Far from the region: the region filter has a granularity of 16 MiB.
    void* const elsewhere = mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const auto map_fixed = [](void* place) {
      return mmap(place, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == place;
    };
    REQUIRE(elsewhere != MAP_FAILED);
    const int before = counted_calls("mmap");
    REQUIRE(map_fixed(elsewhere));
    REQUIRE(counted_calls("mmap") == before + 1);
    REQUIRE(map_fixed(memory.data()));
    REQUIRE(program.peer_writes(key, memory.data(), kPage, 2) == Outcome::violation);
    return 0;
  });
}

TEST(NextDefinition, OfIoctlRuns) {
  run_program([] {
    std::array<int, 2> ends{};
    REQUIRE(pipe(ends.data()) == 0);
    int waiting = -1;
    const int before = counted_calls("ioctl");
    REQUIRE(ioctl(ends[0], FIONREAD, &waiting) == 0);
    REQUIRE(waiting == 0);
    REQUIRE(counted_calls("ioctl") == before + 1);
    return 0;
  });
}

TEST(NextDefinition, OfMemoryCallsRuns) {
  run_program([] {
    HookedProgram program(HookedProgram::without_monitor());
    constexpr size_t kBytes = 8 * kPage;
    uint8_t* const place = static_cast<uint8_t*>(low_address(4 * kBytes));
    const auto map = [](void* at) {
      const int before = counted_calls("mmap");
      void* const memory =
          mmap(at, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
      return memory == at && counted_calls("mmap") == before + 1;
    };
    REQUIRE(map(place));
    const Key key = program.add_region(place, kBytes);
    REQUIRE(program.peer_writes(key, place, kBytes, 1) == Outcome::done);

    int before = counted_calls("madvise");
    REQUIRE(madvise(place, kPage, MADV_DONTNEED) == 0);
    REQUIRE(counted_calls("madvise") == before + 1);
    REQUIRE(place[0] == 0);

    uint8_t* const moved = place + 2 * kBytes;
    before = counted_calls("mremap");
    REQUIRE(mremap(place, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, moved) == moved);
    REQUIRE(counted_calls("mremap") == before + 1);
    REQUIRE(moved[kPage] == 1);
    REQUIRE(program.is_gone(key, place, kBytes));

    const Key second = program.add_region(moved, kBytes);
    REQUIRE(program.peer_writes(second, moved, kBytes, 2) == Outcome::done);
    before = counted_calls("munmap");
    REQUIRE(munmap(moved, kBytes) == 0);
    REQUIRE(counted_calls("munmap") == before + 1);
    REQUIRE(program.is_gone(second, moved, kBytes));
    return 0;
  });
}

}  // namespace
}  // namespace faultline::odp::test::next_definition_test
