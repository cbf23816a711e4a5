// SPDX-License-Identifier: BSD-3-Clause
// Every kind of memory under every call that takes memory away, with explicit and implicit regions.
// Afterwards an engine reads and writes what the program sees at the address, or gets a violation if nothing
// is mapped.
//
// Built twice: with the library's hooks interposed on the C library's names (ODP_HOOKED); and without them,
// when only userfaultfd and the tolerant copy guard the memory.
#include "tests/unit/odp/invalidation/memory_kinds.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/odp/memory_trial.hpp"

namespace faultline::odp::test::memory_kinds_test {
namespace {

constexpr int kMadvCollapse = 25;  // Linux 6.1

/// The calls.
class Trial final : public MemoryTrial {
 public:
  using MemoryTrial::MemoryTrial;

  void run() {
    begin();
    if (testing::Test::HasFatalFailure()) return;
    make_call();
    if (testing::Test::HasFatalFailure()) return;
    finish();
  }

 private:
  void make_call() {
    switch (case_.call) {
      case Call::dontneed:
        return dontneed();
      case Call::free:
        return advise_free();
      case Call::remove:
        return remove();
      case Call::pageout:
        return advise_and_keep(MADV_PAGEOUT);
      case Call::cold:
        return advise_and_keep(MADV_COLD);
      case Call::unmap:
        return unmap();
      case Call::map_over:
        return map_over();
      case Call::shrink:
        return shrink();
      case Call::grow_in_place:
        return grow_in_place();
      case Call::grow_and_move:
        return grow_and_move();
      case Call::move:
        return move();
      case Call::move_and_leave:
        return move_and_leave();
      case Call::protect_read_only:
        return protect_read_only();
      case Call::protect_none:
        return protect_none();
      case Call::fork_parent_writes:
        return fork_parent_writes();
      case Call::fork_child_writes:
        return fork_child_writes();
      case Call::truncate:
        return truncate();
      case Call::punch:
        return punch();
      case Call::detach:
        return detach();
      case Call::attach_over:
        return attach_over();
      case Call::split:
        return split();
      case Call::collapse:
        return collapse();
    }
  }

  void dontneed() {
    ASSERT_EQ(madvise(part_, part_bytes_, MADV_DONTNEED), 0);
    expect_thrown_away(part_, part_bytes_);
    expect_rest_kept();
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
    // The opposite order: the first access after the call is a write.
    ASSERT_EQ(madvise(part_, part_bytes_, MADV_DONTNEED), 0);
    if (!facts().is_writable) return;
    const std::array<uint8_t, 16> few{1, 2, 3};
    ASSERT_EQ(engine_writes(region_, part_ + 100, few), Outcome::done);
    expect_bytes(region_, part_ + 100, few);
    expect_one_memory(part_, part_bytes_, Rights::write);
  }

  void advise_free() {
    const int result = madvise(part_, part_bytes_, MADV_FREE);
    if (refused()) {
      ASSERT_EQ(result, -1);
      return expect_all_kept();
    }
    ASSERT_EQ(result, 0);
    // Each page has its old bytes or zeros until it is written; from then on it is kept.
    for (uint8_t* page = part_; page != part_end(); page += kPage) {
      std::vector<uint8_t> seen(kPage);
      ASSERT_EQ(engine_reads(region_, page, seen), Outcome::done);
      if (seen == std::vector<uint8_t>(kPage)) continue;
      EXPECT_EQ(difference(seen, pattern(kPage, first_seed_, offset_of(page)).data()), -1);
    }
    const std::vector<uint8_t> written = pattern(part_bytes_, next_seed());
    ASSERT_EQ(engine_writes(region_, part_, written), Outcome::done);
    // No byte written since is discarded.
    ASSERT_EQ(madvise(memory_.data(), offset_of(part_), MADV_PAGEOUT), 0);
    ASSERT_EQ(madvise(part_, part_bytes_, MADV_PAGEOUT), 0);
    expect_bytes(region_, part_, written);
    expect_rest_kept();
    expect_one_memory(part_, part_bytes_, Rights::write);
  }

  void remove() {
    const int result = madvise(part_, part_bytes_, MADV_REMOVE);
    if (refused()) {
      ASSERT_EQ(result, -1);
      return expect_all_kept();
    }
    ASSERT_EQ(result, 0);
    expect_zeros(part_, part_bytes_);
    expect_rest_kept();
    expect_one_memory(part_, part_bytes_, Rights::write);
    expect_file_follows();
  }

  void advise_and_keep(int advice) {
    const int result = madvise(part_, part_bytes_, advice);
    ASSERT_EQ(result, refused() ? -1 : 0);
    expect_all_kept();
    expect_file_follows();
    ASSERT_EQ(madvise(memory_.data(), memory_.size(), advice), refused() ? -1 : 0);
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
  }

  void unmap() {
    ASSERT_EQ(munmap(part_, part_bytes_), 0);
    // An access that begins in mapped memory and ends in unmapped memory, and the reverse.
    std::array<uint8_t, 16> few{};
    EXPECT_EQ(engine_reads(region_, part_ - 8, few), Outcome::violation);
    EXPECT_EQ(engine_reads(region_, part_end() - 8, few), Outcome::violation);
    expect_gone(part_, part_bytes_);
    // A failed call takes nothing away, and restores nothing that was gone before it.
    ASSERT_EQ(mremap(memory_.data(), memory_.size(), size_t{1} << 62, MREMAP_MAYMOVE), MAP_FAILED);
    if (!case_.is_implicit && is_watched()) expect_nothing(part_, part_bytes_);
    expect_rest_kept();
    ASSERT_EQ(munmap(memory_.data(), memory_.size()), 0);
    expect_gone(memory_.data(), memory_.size());
  }

  void map_over() {
    void* const over =
        mmap(part_, part_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    ASSERT_EQ(over, part_);
    expect_other_mapping(part_, part_bytes_);
    expect_rest_kept();
  }

  void shrink() {
    const size_t left = memory_.size() / 2;
    ASSERT_EQ(mremap(memory_.data(), memory_.size(), left, 0), memory_.data());
    expect_pattern(memory_.data(), left, first_seed_);
    expect_gone(memory_.data() + left, memory_.size() - left);
    expect_one_memory(memory_.data(), left, full_rights());
  }

  /// An implicit region reaches the added part of the mapping, which holds zeros. Beyond an explicit region
  /// or a SysV segment every access is a violation.
  void expect_grown(uint8_t* at, size_t bytes, Rights rights) {
    if (!case_.is_implicit || case_.kind == Kind::sysv) return expect_nothing(at, bytes);
    expect_zeros(at, bytes);
    expect_one_memory(at, bytes, rights);
  }
  void make_file_larger() {
    if (!facts().is_file) return;
    ASSERT_EQ(ftruncate(memory_.file(), static_cast<off_t>(2 * memory_.size())), 0);
  }

  void grow_in_place() {
    make_file_larger();
    void* const result = mremap(memory_.data(), memory_.size(), 2 * memory_.size(), MREMAP_MAYMOVE);
    if (refused()) {
      ASSERT_EQ(result, MAP_FAILED);
      return expect_all_kept();
    }
    ASSERT_EQ(result, memory_.data()) << "there is room behind it";
    expect_all_kept();
    expect_grown(memory_.behind(), memory_.size(), full_rights());
    if (case_.is_implicit && case_.kind != Kind::sysv)
      expect_one_memory(memory_.data(), 2 * memory_.size(), full_rights());
  }

  void grow_and_move() {
    make_file_larger();
    // Blocks growth with a mapping after it.
    ASSERT_EQ(mmap(memory_.behind(), kHugeBytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0),
              memory_.behind());
    auto* const moved =
        static_cast<uint8_t*>(mremap(memory_.data(), memory_.size(), 2 * memory_.size(), MREMAP_MAYMOVE));
    if (refused()) {
      ASSERT_EQ(moved, MAP_FAILED);
      return expect_all_kept();
    }
    ASSERT_NE(moved, MAP_FAILED);
    ASSERT_NE(moved, memory_.data());
    expect_moved_to(moved);
    if (case_.is_implicit) expect_grown(moved + memory_.size(), memory_.size(), full_rights());
    ASSERT_EQ(munmap(moved, 2 * memory_.size()), 0);
    if (case_.is_implicit) expect_nothing(moved, memory_.size());
  }

  void move() {
    void* const moved = mremap(memory_.data(), memory_.size(), memory_.size(), MREMAP_MAYMOVE | MREMAP_FIXED,
                               memory_.elsewhere());
    ASSERT_EQ(moved, memory_.elsewhere());
    expect_moved_to(memory_.elsewhere());
  }

  /// MREMAP_DONTUNMAP: the pages move, and their mapping stays.
  void move_and_leave() {
    void* const moved = mremap(memory_.data(), memory_.size(), memory_.size(),
                               MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, memory_.elsewhere());
    ASSERT_EQ(moved, memory_.elsewhere());
    // userfaultfd's event is the same as for an ordinary move.
    if (kHooked || case_.is_implicit) {
      expect_thrown_away(memory_.data(), memory_.size());
      expect_one_memory(memory_.data(), memory_.size(), Rights::write);
    }
    if (case_.is_implicit) expect_one_memory(memory_.elsewhere(), memory_.size(), Rights::write);
  }

  /// The bytes are at the new address, and nothing is at the old one.
  void expect_moved_to(uint8_t* to) {
    View there = region_;
    if (!case_.is_implicit) {
      ASSERT_EQ(difference(pattern(memory_.size(), first_seed_), to), -1);
      expect_nothing(memory_.data(), memory_.size());
      ASSERT_EQ(difference(pattern(memory_.size(), first_seed_), to), -1);
      there = View{reinterpret_cast<uint64_t>(to)};
      there.key = register_range(there.address, memory_.size());
    }
    expect_bytes(there, to, pattern(memory_.size(), first_seed_));
    expect_one_memory(there, to, memory_.size(), full_rights());
    expect_gone(memory_.data(), memory_.size());
    expect_one_memory(there, to, memory_.size(), full_rights());
    if (case_.is_implicit) return;
    EXPECT_EQ(domain_->deregister_region(there.key), 0);
  }

  void protect_read_only() {
    ASSERT_EQ(mprotect(part_, part_bytes_, PROT_READ), 0);
    expect_pattern(part_, part_bytes_, first_seed_);
    expect_one_memory(part_, part_bytes_, Rights::read);
    expect_rest_kept();
    ASSERT_EQ(mprotect(part_, part_bytes_, memory_.protection()), 0);
    expect_pattern(part_, part_bytes_, first_seed_);
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
    // The first access after the call is a write.
    ASSERT_EQ(mprotect(part_, part_bytes_, PROT_READ), 0);
    EXPECT_EQ(engine_writes(region_, part_, pattern(64, next_seed())), Outcome::violation);
    ASSERT_EQ(mprotect(part_, part_bytes_, memory_.protection()), 0);
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
  }

  void protect_none() {
    ASSERT_EQ(mprotect(part_, part_bytes_, PROT_NONE), 0);
    expect_nothing(part_, part_bytes_);
    expect_rest_kept();
    ASSERT_EQ(mprotect(part_, part_bytes_, memory_.protection()), 0);
    expect_pattern(part_, part_bytes_, first_seed_);
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
  }

  void fork_parent_writes() {
    const ForkedChild child(memory_.data(), memory_.size());
    ASSERT_TRUE(child.is_there());
    if (!facts().is_writable) {
      expect_all_kept();
      EXPECT_TRUE(child.sees(first_seed_));
      return;
    }
    const auto child_sees = [&](unsigned written) {
      return child.sees(facts().is_shared ? written : first_seed_);
    };
    const unsigned by_engine = next_seed();
    ASSERT_EQ(engine_writes(region_, memory_.data(), pattern(memory_.size(), by_engine)), Outcome::done);
    expect_pattern(memory_.data(), memory_.size(), by_engine);
    EXPECT_TRUE(child_sees(by_engine)) << "the engine has written";
    const unsigned by_program = next_seed();
    fill_pattern(memory_.data(), memory_.size(), by_program);
    expect_pattern(memory_.data(), memory_.size(), by_program);
    EXPECT_TRUE(child_sees(by_program)) << "the program has written";
  }

  void fork_child_writes() {
    const ForkedChild child(memory_.data(), memory_.size());
    ASSERT_TRUE(child.is_there());
    const unsigned by_child = next_seed();
    ASSERT_TRUE(child.writes(by_child));
    expect_pattern(memory_.data(), memory_.size(), facts().is_shared ? by_child : first_seed_);
    const unsigned by_engine = next_seed();
    ASSERT_EQ(engine_writes(region_, memory_.data(), pattern(memory_.size(), by_engine)), Outcome::done);
    EXPECT_TRUE(child.sees(facts().is_shared ? by_engine : by_child));
    const unsigned again = next_seed();
    ASSERT_TRUE(child.writes(again));
    expect_pattern(memory_.data(), memory_.size(), facts().is_shared ? again : by_engine);
  }

  void truncate() {
    // Truncates within a page, which stays: the page after it is removed.
    const size_t left = offset_of(part_) + 100;
    const size_t kept = offset_of(part_) + kPage;
    ASSERT_EQ(ftruncate(memory_.file(), static_cast<off_t>(left)), 0);
    expect_nothing(memory_.data() + kept, memory_.size() - kept);
    expect_pattern(memory_.data(), left, first_seed_);
    if (facts().is_shared) expect_zeros(memory_.data() + left, kept - left);
    expect_one_memory(memory_.data(), kept, full_rights());
    // The mapping still exists: when the file grows again, the region has its bytes again.
    ASSERT_EQ(ftruncate(memory_.file(), static_cast<off_t>(memory_.size())), 0);
    expect_zeros(memory_.data() + kept, memory_.size() - kept);
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
    expect_file_follows();
  }

  void punch() {
    ASSERT_EQ(fallocate(memory_.file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        static_cast<off_t>(offset_of(part_)), static_cast<off_t>(part_bytes_)),
              0);
    // A written page of a private mapping is a copy and keeps its bytes.
    if (facts().is_shared) {
      expect_zeros(part_, part_bytes_);
    } else {
      expect_pattern(part_, part_bytes_, first_seed_);
    }
    expect_rest_kept();
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
    expect_file_follows();
  }

  void detach() {
    // Attaches the same segment again, right after the first: only the file offset, not the address,
    // separates it from the rest of the first attachment.
    uint8_t* const twin = memory_.behind();
    ASSERT_EQ(shmat(memory_.segment(), twin, 0), twin);
    View second{reinterpret_cast<uint64_t>(twin)};
    second.key = register_range(second.address, memory_.size());
    expect_bytes(second, twin, pattern(memory_.size(), first_seed_));
    // The first attachment now consists of several mappings.
    ASSERT_EQ(mprotect(part_, part_bytes_, PROT_READ), 0);
    ASSERT_EQ(shmdt(memory_.data()), 0);
    expect_gone(memory_.data(), memory_.size());
    expect_bytes(second, twin, pattern(memory_.size(), first_seed_));
    expect_one_memory(second, twin, memory_.size(), Rights::write);
    ASSERT_EQ(shmdt(twin), 0);
    expect_nothing(second, twin, memory_.size());
    EXPECT_EQ(domain_->deregister_region(second.key), 0);
  }

  /// SHM_REMAP: attaches a segment over a part of the mapping.
  void attach_over() {
    const int segment = shmget(IPC_PRIVATE, part_bytes_, IPC_CREAT | 0600);
    ASSERT_GE(segment, 0);
    void* const over = shmat(segment, part_, SHM_REMAP);
    shmctl(segment, IPC_RMID, nullptr);
    ASSERT_EQ(over, part_);
    expect_other_mapping(part_, part_bytes_);
    expect_rest_kept();
    // A refused call removes nothing.
    ASSERT_EQ(shmat(-1, memory_.data(), SHM_REMAP), MAP_FAILED);
    expect_one_memory(memory_.data(), offset_of(part_), full_rights());
  }

  /// Splits huge pages: discards one small page, and moves another one in the kernel's LRU lists.
  void split() {
    uint8_t* const second = memory_.data() + kHugeBytes;
    uint8_t* const gone = memory_.data() + 5 * kPage;
    uint8_t* const cold = second + 7 * kPage;
    ASSERT_EQ(madvise(gone, kPage, MADV_DONTNEED), 0);
    ASSERT_EQ(madvise(cold, kPage, MADV_COLD), 0);
    ASSERT_EQ(madvise(cold + kPage, kPage, MADV_PAGEOUT), 0);
    expect_thrown_away(gone, kPage);
    expect_pattern(memory_.data(), 5 * kPage, first_seed_);
    expect_pattern(gone + kPage, memory_.size() - 6 * kPage, first_seed_);
    expect_one_memory(memory_.data(), memory_.size(), full_rights());
  }

  void collapse() {
    const int result = madvise(memory_.data(), memory_.size(), kMadvCollapse);
    const int error = result == 0 ? 0 : errno;
    if (error != 0)
      std::printf("[   NOTE   ] %s: MADV_COLLAPSE: %s\n", name_of(case_).c_str(), std::strerror(error));
    // MADV_COLLAPSE fails for pages pinned by an engine (the hooks release these pins). It also fails for
    // lack of a huge page, and for memory that cannot have huge pages.
    if (kHooked && (case_.kind == Kind::anonymous || case_.kind == Kind::huge)) {
      EXPECT_TRUE(error == 0 || error == ENOMEM) << std::strerror(error);
    }
    expect_all_kept();
  }
};

DomainConfig config_for(Mode mode) {
  DomainConfig config;
  config.realtime_pager = false;
  config.userfault_async = mode != Mode::without_async;
  config.monitor_invalidations = mode != Mode::without_monitor;
  return config;
}

/// Returns why the case was skipped; empty if it ran.
std::string run_case(const Case& c) {
  Trial trial(c, config_for(c.mode));
  const std::string& missing = trial.memory().missing();
  if (missing.empty()) {
    trial.run();
  } else if (!trial.memory().is_excused()) {
    ADD_FAILURE() << missing;
  } else {
    return missing;
  }
  return {};
}

constexpr int kSkipped = 77;

/// Runs in a child process, so that no later test runs as an ordinary user.
int run_as_ordinary_user(const Case& c) {
  constexpr uid_t kNobody = 65534;
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{rlim_t{8} << 20, rlim_t{8} << 20};
    // EPERM: a container whose limit is lower, without CAP_SYS_RESOURCE.
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) _exit(errno == EPERM ? kSkipped : 2);
    if (geteuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) {
      // EPERM: root of a container without CAP_SETUID.
      const int error = errno;
      std::printf("[   NOTE   ] root may not become another user here: %s\n", std::strerror(error));
      std::fflush(nullptr);
      _exit(error == EPERM ? kSkipped : 2);
    }
    // The change of user makes the process undumpable and /proc/self/pagemap inaccessible, unlike a program
    // started by an ordinary user.
    if (prctl(PR_SET_DUMPABLE, 1) != 0) _exit(2);
    const std::string skipped = run_case(c);
    if (!skipped.empty()) std::printf("[   NOTE   ] %s\n", skipped.c_str());
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : skipped.empty() ? 0 : kSkipped);
  }
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

class MemoryKinds : public testing::TestWithParam<Case> {};

TEST_P(MemoryKinds, EngineAndProgramSeeTheSame) {
  const Case& c = GetParam();
  if (c.mode == Mode::ordinary_user) {
    const int status = run_as_ordinary_user(c);
    if (status == kSkipped)
      GTEST_SKIP() << "this machine lacks what the case needs, or does not let it become an ordinary user";
    EXPECT_EQ(status, 0);
    return;
  }
  if (const std::string skipped = run_case(c); !skipped.empty()) GTEST_SKIP() << skipped;
}

constexpr std::array kKinds{Kind::anonymous,    Kind::huge,           Kind::hugetlb,
                            Kind::memfd,        Kind::tmpfs,          Kind::file_shared,
                            Kind::file_private, Kind::file_read_only, Kind::sysv};
/// One kind for each way to hold a mapping, for the modes in which less is known.
constexpr std::array kSomeKinds{Kind::anonymous, Kind::memfd, Kind::file_shared, Kind::file_private,
                                Kind::sysv};
constexpr std::array kSomeCalls{Call::dontneed,
                                Call::unmap,
                                Call::map_over,
                                Call::move,
                                Call::protect_read_only,
                                Call::protect_none,
                                Call::fork_parent_writes,
                                Call::fork_child_writes,
                                Call::truncate,
                                Call::punch,
                                Call::detach};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Kind kind : kKinds)
    for (size_t call = 0; call < kCallNames.size(); ++call)
      for (const bool is_implicit : {false, true})
        if (applies(kind, static_cast<Call>(call)))
          cases.push_back({kind, static_cast<Call>(call), is_implicit, Mode::usual});
  for (const Mode mode : {Mode::ordinary_user, Mode::without_async, Mode::without_monitor})
    for (const Kind kind : kSomeKinds)
      for (const Call call : kSomeCalls)
        for (const bool is_implicit : {false, true})
          if (applies(kind, call)) cases.push_back({kind, call, is_implicit, mode});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Each, MemoryKinds, testing::ValuesIn(all_cases()),
                         [](const auto& test) { return name_of(test.param); });

/// The kernel may move a growing mapping. Only after its decision is it known that the old place stays. An
/// access of an engine meanwhile must not end in a violation.
TEST(MemoryGrowing, InPlaceIsNeverAViolation) {
  const auto domain = make_domain(config_for(Mode::usual));
  const KindMemory memory(Kind::anonymous, 32 * kPage);
  ASSERT_EQ(memory.missing(), "");
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  const RegionResult region = domain->register_region({.domain = 1,
                                                       .address = address,
                                                       .length_bytes = memory.size(),
                                                       .iova = 0,
                                                       .access = kLocalWrite | kRemoteWrite | kOnDemand});
  ASSERT_EQ(region.error, 0);
  std::atomic<bool> over{false};
  std::atomic<unsigned> violations{0};
  std::thread engine([&] {
    const auto session = domain->attach_engine();
    const std::vector<uint8_t> bytes(64, 1);
    for (size_t page = 0; !over; page = (page + 5) % 32)
      if (write_all(*session, {region.key, 1, kRemoteWrite}, page * kPage, bytes) == Outcome::violation)
        ++violations;
  });
  constexpr int kTimes = 3000;
  int times = 0;
  for (; times < kTimes; ++times) {
    madvise(memory.data(), memory.size(), MADV_DONTNEED);
    if (mremap(memory.data(), memory.size(), 2 * memory.size(), MREMAP_MAYMOVE) != memory.data() ||
        mremap(memory.data(), 2 * memory.size(), memory.size(), 0) != memory.data())
      break;
  }
  over = true;
  engine.join();
  EXPECT_EQ(times, kTimes) << std::strerror(errno);
  EXPECT_EQ(violations, 0U);
  EXPECT_GT(domain->counters().num_page_faults, 0U);
  EXPECT_EQ(domain->deregister_region(region.key), 0);
}

}  // namespace
}  // namespace faultline::odp::test::memory_kinds_test
