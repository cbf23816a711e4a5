// SPDX-License-Identifier: BSD-3-Clause
// The program's own brk(2) and sbrk(3), when only the hooks report a call.
#include <cerrno>
#include <cstdlib>

#include <malloc.h>

#include "tests/unit/odp/hooks/hooked_program.hpp"

namespace faultline::odp::test::brk_hooks_test {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kBytes = 16 * kPage;

/// Moves the break by `bytes` and returns the first whole page of the new memory. malloc gets its memory
/// first, so that it does not move the break later.
uint8_t* grow(size_t bytes) {
  constexpr int kMallocBytes = 4 << 20;
  mallopt(M_TRIM_THRESHOLD, 2 * kMallocBytes);
  mallopt(M_MMAP_THRESHOLD, 2 * kMallocBytes);
  std::free(std::malloc(kMallocBytes));
  const auto now = reinterpret_cast<uint64_t>(sbrk(0));
  const uint64_t start = (now + kPage - 1) & ~uint64_t{kPage - 1};
  return brk(reinterpret_cast<void*>(start + bytes)) == 0 ? reinterpret_cast<uint8_t*>(start) : nullptr;
}

int lowers(bool by_sbrk, uint32_t access) {
  HookedProgram program(HookedProgram::without_monitor());
  uint8_t* const memory = grow(kBytes);
  REQUIRE(memory != nullptr);
  const Key key = program.add_region(memory, kBytes, access);
  REQUIRE(program.peer_writes(key, memory, kBytes, 1) == Outcome::done);
  REQUIRE(sbrk(0) == memory + kBytes);
  // A change within a page removes no page.
  REQUIRE(sbrk(-100) == memory + kBytes);
  REQUIRE(program.peer_writes(key, memory, kBytes, 2) == Outcome::done);
  uint8_t* const end = memory + 4 * kPage;
  if (by_sbrk) {
    REQUIRE(sbrk(end - (memory + kBytes - 100)) == memory + kBytes - 100);
  } else {
    REQUIRE(brk(end) == 0);
  }
  REQUIRE(sbrk(0) == end);
  REQUIRE(program.is_gone(key, end, kBytes - 4 * kPage));
  REQUIRE(munmap(end, kBytes - 4 * kPage) == 0);
  REQUIRE(program.peer_writes(key, memory, 4 * kPage, 3) == Outcome::done);
  REQUIRE(memory[4 * kPage - 1] == 3);
  // The same addresses now hold other memory, which the old key must not reach.
  REQUIRE(sbrk(static_cast<intptr_t>(kBytes)) == end);
  std::memset(end, 0xaa, kBytes);
  REQUIRE(program.peer_writes(key, end, kPage, 4) == Outcome::violation);
  REQUIRE(end[0] == 0xaa);
  return 0;
}

TEST(Break, LoweredBySbrkTakesItsPagesAway) {
  for (const uint32_t access : {uint32_t{kOnDemand}, uint32_t{0}})
    run_program([access] { return lowers(true, access); });
}
TEST(Break, LoweredByBrkTakesItsPagesAway) {
  for (const uint32_t access : {uint32_t{kOnDemand}, uint32_t{0}})
    run_program([access] { return lowers(false, access); });
}

TEST(Break, RefusedChangesNothing) {
  run_program([] {
    HookedProgram program(HookedProgram::without_monitor());
    uint8_t* const memory = grow(kBytes);
    REQUIRE(memory != nullptr);
    const Key key = program.add_region(memory, kBytes);
    REQUIRE(program.peer_writes(key, memory, kBytes, 1) == Outcome::done);
    // Below the heap: refused, although the C library's brk() reports no error.
    static_cast<void>(brk(reinterpret_cast<void*>(kPage)));
    REQUIRE(program.peer_writes(key, memory, kBytes, 2) == Outcome::done);
    static_cast<void>(sbrk(-(intptr_t{1} << 46)));
    REQUIRE(program.peer_writes(key, memory, kBytes, 3) == Outcome::done);
    REQUIRE(memory[kBytes - 1] == 3);
    REQUIRE(sbrk(0) == memory + kBytes);
    errno = 0;
    REQUIRE(sbrk(intptr_t{1} << 46) == reinterpret_cast<void*>(-1));
    REQUIRE(errno == ENOMEM);
    // The C library continues from the unchanged break.
    REQUIRE(sbrk(static_cast<intptr_t>(kPage)) == memory + kBytes);
    REQUIRE(sbrk(0) == memory + kBytes + kPage);
    return 0;
  });
}

}  // namespace
}  // namespace faultline::odp::test::brk_hooks_test
