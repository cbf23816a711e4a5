// SPDX-License-Identifier: BSD-3-Clause
// shmdt(2) has no length, and userfaultfd does not report it. Tests what the hook knows of an attachment if
// /proc/self/maps cannot be opened.
#include <cerrno>
#include <cinttypes>
#include <cstdlib>

#include <fcntl.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include "tests/unit/odp/hooks/hooked_program.hpp"

namespace faultline::odp::test::shm_hooks_test {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kBytes = 16 * kPage;

/// Attaches a segment that is removed after its last detach. Returns nullptr on failure.
uint8_t* attach(void* at, size_t bytes, bool by_hook = true) {
  const int segment = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
  const auto attached =
      by_hook ? reinterpret_cast<long>(shmat(segment, at, 0)) : syscall(SYS_shmat, segment, at, 0);
  shmctl(segment, IPC_RMID, nullptr);
  return attached == -1 ? nullptr : reinterpret_cast<uint8_t*>(attached);
}

/// From here on no file of /proc can be opened.
bool hide_proc() {
  std::string path = testing::TempDir() + "/no-proc-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) return false;
  // Removed before it becomes the root: afterwards nobody has its name.
  const bool hidden = chdir(path.c_str()) == 0 && rmdir(path.c_str()) == 0 && chroot(".") == 0;
  return hidden && access("/proc/self/maps", F_OK) != 0;
}

TEST(ShmDetach, IsSeenWithoutProc) {
  for (const uint32_t access : {uint32_t{kOnDemand}, uint32_t{0}}) {
    run_program([access] {
      HookedProgram program(HookedProgram::without_monitor());
      uint8_t* const memory = attach(low_address(kBytes), kBytes);
      REQUIRE(memory != nullptr);
      const Key key = program.add_region(memory, kBytes, access);
      REQUIRE(program.peer_writes(key, memory, kBytes, 1) == Outcome::done);
      if (!hide_proc()) return kLacks;
      REQUIRE(shmdt(memory) == 0);
      REQUIRE(program.is_gone(key, memory, kBytes));
      return 0;
    });
  }
}

TEST(ShmDetach, IsSeenWithAFullDescriptorTable) {
  for (const uint32_t access : {uint32_t{kOnDemand}, uint32_t{0}}) {
    run_program([access] {
      HookedProgram program(HookedProgram::without_monitor());
      uint8_t* const memory = attach(low_address(kBytes), kBytes);
      REQUIRE(memory != nullptr);
      const Key key = program.add_region(memory, kBytes, access);
      REQUIRE(program.peer_writes(key, memory, kBytes, 1) == Outcome::done);
      use_up_descriptors();
      REQUIRE(shmdt(memory) == 0);
      REQUIRE(program.is_gone(key, memory, kBytes));
      return 0;
    });
  }
}

/// An attachment made before the hooks were active is known through the descriptor that the library keeps.
TEST(ShmDetach, IsSeenOfAnAttachmentThatNoHookSaw) {
  run_program([] {
    uint8_t* const memory = attach(low_address(kBytes), kBytes, false);
    REQUIRE(memory != nullptr);
    HookedProgram program(HookedProgram::without_monitor());
    uint8_t* const neighbour = attach(memory + kBytes, kPage);
    REQUIRE(neighbour == memory + kBytes);
    const Key key = program.add_region(memory, kBytes);
    const Key kept = program.add_region(neighbour, kPage);
    REQUIRE(program.peer_writes(key, memory, kBytes, 1) == Outcome::done);
    use_up_descriptors();
    if (!hide_proc()) return kLacks;
    REQUIRE(shmdt(memory) == 0);
    REQUIRE(program.is_gone(key, memory, kBytes));
    REQUIRE(program.peer_writes(kept, neighbour, kPage, 2) == Outcome::done);
    REQUIRE(neighbour[0] == 2);
    return 0;
  });
}

/// A program may close every descriptor and open other files with the same numbers.
TEST(ShmDetach, IsSeenWhereTheProgramClosedTheLibrarysDescriptors) {
  for (const bool by_hook : {true, false}) {
    run_program([by_hook] {
      uint8_t* const memory = attach(low_address(2 * kBytes), kBytes, by_hook);
      REQUIRE(memory != nullptr);
      uint8_t* const neighbour = memory + kBytes;
      REQUIRE(mmap(neighbour, kPage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == neighbour);
      // A file that looks like the kernel's list and gives the attachment a length of one page.
      std::string path = testing::TempDir() + "/list-XXXXXX";
      const int list = mkstemp(path.data());
      REQUIRE(list >= 0);
      unlink(path.c_str());
      const auto address = reinterpret_cast<uint64_t>(memory);
      dprintf(list, "%" PRIx64 "-%" PRIx64 " rw-s 00000000 00:01 7 /SYSV00000000 (deleted)\n", address,
              address + kPage);

      HookedProgram program(HookedProgram::without_monitor());
      const Key key = program.add_region(memory, kBytes);
      const Key kept = program.add_region(neighbour, kPage);
      REQUIRE(program.peer_writes(key, memory, kBytes, 1) == Outcome::done);
      REQUIRE(program.peer_writes(kept, neighbour, kPage, 1) == Outcome::done);
      if (!hide_proc()) return kLacks;
      rlimit limit{.rlim_cur = 256, .rlim_max = 256};
      REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
      for (int descriptor = STDERR_FILENO + 1; descriptor < 256; ++descriptor)
        if (descriptor != list) dup2(list, descriptor);
      REQUIRE(shmdt(memory) == 0);
      REQUIRE(program.is_gone(key, memory, kBytes));
      neighbour[0] = 3;
      REQUIRE(program.peer_writes(kept, neighbour, kPage, 2) == Outcome::done);
      REQUIRE(neighbour[0] == 2);
      return 0;
    });
  }
}

/// shmdt(2) removes the rest of the attachment and nothing else.
TEST(ShmDetach, TakesWhatIsLeftOfTheAttachment) {
  run_program([] {
    HookedProgram program(HookedProgram::without_monitor());
    uint8_t* const memory = attach(low_address(kBytes), kBytes);
    REQUIRE(memory != nullptr);
    const Key key = program.add_region(memory, kBytes);
    REQUIRE(program.peer_writes(key, memory, kBytes, 1) == Outcome::done);
    REQUIRE(munmap(memory, 2 * kPage) == 0);
    // No longer part of the segment.
    uint8_t* const other = memory + 6 * kPage;
    REQUIRE(mmap(other, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
            other);
    const Key kept = program.add_region(other, kPage);
    REQUIRE(program.peer_writes(kept, other, kPage, 3) == Outcome::done);
    REQUIRE(shmdt(memory) == 0);
    REQUIRE(program.peer_writes(kept, other, kPage, 4) == Outcome::done);
    REQUIRE(other[0] == 4);
    REQUIRE(program.is_gone(key, memory, 6 * kPage));
    REQUIRE(program.is_gone(key, other + kPage, kBytes - 7 * kPage));
    return 0;
  });
}

TEST(ShmDetach, ChangesNothingWhereItFails) {
  run_program([] {
    HookedProgram program(HookedProgram::without_monitor());
    uint8_t* const memory = attach(low_address(kBytes), kBytes);
    REQUIRE(memory != nullptr);
    const Key key = program.add_region(memory, kBytes);
    REQUIRE(program.peer_writes(key, memory, kBytes, 1) == Outcome::done);
    errno = 0;
    REQUIRE(shmdt(memory + kPage) == -1);
    REQUIRE(errno == EINVAL);
    REQUIRE(program.peer_writes(key, memory, kBytes, 2) == Outcome::done);
    REQUIRE(memory[kBytes - 1] == 2);
    REQUIRE(shmdt(memory) == 0);
    REQUIRE(program.is_gone(key, memory, kBytes));
    // After another attach at the same place, the new size counts.
    uint8_t* const smaller = memory + 2 * kBytes;
    REQUIRE(attach(smaller, kBytes) == smaller);
    REQUIRE(shmdt(smaller) == 0);
    REQUIRE(attach(smaller, kPage) == smaller);
    REQUIRE(shmdt(smaller) == 0);
    return 0;
  });
}

}  // namespace
}  // namespace faultline::odp::test::shm_hooks_test
