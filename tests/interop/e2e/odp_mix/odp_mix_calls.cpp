// SPDX-License-Identifier: BSD-3-Clause
#include "tests/interop/e2e/odp_mix/odp_mix_calls.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

#include <fcntl.h>
#include <linux/falloc.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/interop/e2e/side.hpp"

// Linux 6.1 and 5.4; older headers lack them.
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace faultline::e2e::mix {
namespace {

constexpr const char* kCallsRole = "owner";

struct CallRule {
  const char* name;
  uint32_t weight;
  bool loses_contents;
  bool rare;   ///< ends connections, or takes long
  bool alone;  ///< nothing else is done to the arena meanwhile
  int advice;
};

constexpr std::array<CallRule, kCalls> kRules{{
    {"DONTNEED", 20, true, false, false, MADV_DONTNEED},
    {"FREE", 12, true, false, false, MADV_FREE},
    {"REMOVE", 12, true, false, false, MADV_REMOVE},
    {"PAGEOUT", 8, false, false, false, MADV_PAGEOUT},
    {"COLD", 8, false, false, false, MADV_COLD},
    {"munmap+mmap", 4, true, true, true, 0},
    {"munmap-taken", 4, true, true, true, 0},
    {"MAP_FIXED", 4, true, true, true, 0},
    {"mremap-resize", 3, true, true, true, 0},
    {"mremap-move", 3, true, true, true, 0},
    {"mprotect", 4, false, true, false, 0},
    {"fork", 3, false, true, false, 0},
    {"ftruncate", 3, true, true, false, 0},
    {"punch-hole", 12, true, false, false, 0},
    {"HUGEPAGE", 2, false, false, false, MADV_HUGEPAGE},
    {"COLLAPSE", 2, false, false, false, MADV_COLLAPSE},
    {"NOHUGEPAGE", 2, false, false, false, MADV_NOHUGEPAGE},
    {"rereg", 2, false, true, true, 0},
}};

const CallRule& rule_of(Call call) {
  return kRules[static_cast<size_t>(call)];
}

/// Whether the kernel has the call for such memory at all (madvise(2), mremap(2)).
bool exists_for(Call call, Backing backing) {
  const bool anonymous = backing == Backing::anonymous || backing == Backing::anonymous_huge;
  const bool file_backed = backing == Backing::memfd || backing == Backing::file_shared;
  switch (call) {
    case Call::free:
      return anonymous;
    case Call::collapse:
      return backing == Backing::anonymous_huge;
    case Call::remove:
      return file_backed;
    case Call::truncate:
    case Call::punch_hole:
      return file_backed || backing == Backing::file_private;
    case Call::page_out:
    case Call::cold:
    case Call::resize:
    case Call::unmap_for_another:  // the other maps small pages there
    case Call::huge_page:
    case Call::no_huge_page:
      return backing != Backing::hugetlb;
    default:
      return true;
  }
}

/// The kernel may say no to a collapse, and to advice on huge pages where it has none.
bool may_refuse(Call call, int error) {
  if (call == Call::collapse) return error == EINVAL || error == EAGAIN || error == EBUSY || error == ENOMEM;
  return (call == Call::huge_page || call == Call::no_huge_page) && error == EINVAL;
}

[[noreturn]] void fail_call(Call call, const Arena& arena) {
  fail(name_of(arena.plan().backing), rule_of(call).name);
}

size_t count_mappings(const uint8_t* memory, size_t length_bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    char* rest = nullptr;
    const uintptr_t from = std::strtoull(line.c_str(), &rest, 16);
    const uintptr_t to = std::strtoull(rest + 1, nullptr, 16);
    if (from < begin + length_bytes && to > begin) ++count;
  }
  return count;
}

/// In a child of fork: reads without a signal where the memory is protected or beyond its file's end.
size_t read_tolerantly(const void* from, void* to, size_t length_bytes) {
  const iovec local{to, length_bytes};
  const iovec remote{const_cast<void*>(from), length_bytes};
  const ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
  return got < 0 ? 0 : static_cast<size_t>(got);
}

/// The child's life. 0, or 3 where it sees the parent's peer writing into its own private memory.
int live_as_child(const Arena& arena, bool alone) {
  alignas(64) static thread_local std::array<uint64_t, kCellsPerPage> first;
  alignas(64) static thread_local std::array<uint64_t, kCellsPerPage> second;
  const bool own = !arena.is_shared() && arena.plan().backing != Backing::hugetlb;
  const size_t pages = std::min<size_t>(arena.page_count(), 64);
  for (size_t page = 0; page < pages; ++page) {
    if (read_tolerantly(arena.at(page), first.data(), kPageBytes) != kPageBytes) continue;
    if (own && alone) {
      for (int i = 0; i < 200; ++i) __builtin_ia32_pause();
      if (read_tolerantly(arena.at(page), second.data(), kPageBytes) == kPageBytes &&
          std::memcmp(first.data(), second.data(), kPageBytes) != 0)
        return 3;
    }
  }
  // Nothing else touches the mapping now, so that it can be written directly; the parent must not see it.
  if (own && alone) {
    for (size_t page = 0; page < pages; ++page) std::memset(arena.at(page), 0xee, kPageBytes);
  }
  return 0;
}

}  // namespace

std::span<const char* const> calls_of_mix() {
  static const std::array<const char*, kCalls> names = [] {
    std::array<const char*, kCalls> all{};
    for (size_t i = 0; i < kCalls; ++i) all[i] = kRules[i].name;
    return all;
  }();
  return names;
}

double least_of(size_t call) {
  // COLLAPSE waits for a worker of the kernel on each CPU, 0.2 s at a time where those are busy.
  const bool slow = kRules[call].rare || kRules[call].advice == MADV_COLLAPSE;
  return slow ? 0.5 : 10;
}

bool loses_unseen(const std::vector<bool>& calls) {
  return calls[static_cast<size_t>(Call::punch_hole)] || calls[static_cast<size_t>(Call::truncate)];
}

void Caller::run(const std::atomic<bool>& stop) {
  uint32_t total = 0;
  for (size_t i = 0; i < kCalls; ++i) total += allowed_[i] ? kRules[i].weight : 0;
  while (!stop.load(std::memory_order_acquire)) {
    take_offer();
    Arena& arena = *arenas_[random_() % arenas_.size()];
    uint64_t dice = random_() % total;
    size_t number = 0;
    for (;; ++number) {
      const uint64_t weight = allowed_[number] ? kRules[number].weight : 0;
      if (dice < weight) break;
      dice -= weight;
    }
    const Call call = static_cast<Call>(number);
    const CallRule& rule = kRules[number];
    if ((rule.loses_contents && arena.plan().exact) || !exists_for(call, arena.plan().backing)) continue;
    if (rule.rare) {
      // Connections end with these: the peer shall get at speed in between.
      const uint64_t now = now_ns();
      if (now < next_rare_ns_) continue;
      next_rare_ns_ = now + 1'000'000 + random_() % 12'000'000;
    }
    make(call, arena);
    if (random_() % 2 != 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 150));
  }
}

void Caller::make(Call call, Arena& arena) {
  const bool alone =
      rule_of(call).alone || ((call == Call::protect || call == Call::fork) && random_() % 2 == 0);
  std::unique_lock writer(arena.lock, std::defer_lock);
  std::shared_lock reader(arena.lock, std::defer_lock);
  if (alone) {
    writer.lock();
  } else {
    reader.lock();
  }
  doing_.call.store(static_cast<uint32_t>(call), std::memory_order_relaxed);
  doing_.arena.store(static_cast<uint32_t>(arena.number()), std::memory_order_relaxed);
  doing_.since_ns.store(now_ns(), std::memory_order_release);
  switch (call) {
    case Call::unmap_and_map:
      unmap_and_map(arena);
      break;
    case Call::unmap_for_another:
      unmap_for_another(arena);
      break;
    case Call::map_over:
      map_over(arena);
      break;
    case Call::resize:
      resize(arena);
      break;
    case Call::move:
      move(arena);
      break;
    case Call::protect:
      protect(arena, alone);
      break;
    case Call::fork:
      fork_child(arena, alone);
      break;
    case Call::truncate:
      truncate(arena);
      break;
    case Call::punch_hole:
      punch_hole(arena);
      break;
    case Call::register_again:
      arena.begin_disturbance();
      arena.deregister_and_check(arena.page_count());
      arena.register_and_post(arena.page_count());
      arena.end_disturbance();
      break;
    default:
      advise(call, arena);
  }
  doing_.since_ns.store(0, std::memory_order_release);
  // An offer counts where it was accepted.
  if (call != Call::unmap_for_another)
    counts_.made[static_cast<size_t>(call)].fetch_add(1, std::memory_order_relaxed);
}

Pages Caller::some_pages(const Arena& arena) {
  const size_t unit = arena.unit_pages();
  const size_t units = arena.page_count() / unit;
  const size_t first = random_() % units;
  const size_t most = random_() % 8 == 0 ? units - first : std::min<size_t>(units - first, 16);
  return {first * unit, (1 + random_() % most) * unit};
}

/// A pause of nothing, some microseconds or some milliseconds.
void Caller::hold() {
  const uint64_t dice = random_() % 10;
  if (dice < 4) return;
  const uint64_t microseconds = dice < 9 ? random_() % 200 : random_() % 2000;
  if (dice < 7) {
    const uint64_t end = now_ns() + microseconds * 1000;
    while (now_ns() < end) __builtin_ia32_pause();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  }
}

void Caller::advise(Call call, Arena& arena) {
  Pages pages = some_pages(arena);
  // Only whole huge pages can be collapsed.
  if (call == Call::collapse) pages = {0, arena.page_count()};
  if (madvise(arena.at(pages.first), arena.bytes_of(pages), rule_of(call).advice) == 0) return;
  if (!may_refuse(call, errno)) fail_call(call, arena);
  counts_.refused[static_cast<size_t>(call)].fetch_add(1, std::memory_order_relaxed);
}

/// The program's own memory stands where the peer wrote: it must keep what the program puts there, until the
/// region is deregistered, and after.
void Caller::watch_and_clear(Arena& arena, Pages pages, const char* call) {
  uint8_t* const memory = arena.at(pages.first);
  const Watched watched(memory, arena.bytes_of(pages), Watched::Contents::fill);
  hold();
  const size_t changed = watched.changed();
  arena.tell_stale(call, changed);
  std::memset(memory, 0, arena.bytes_of(pages));
  const Watched cleared(memory, arena.bytes_of(pages), Watched::Contents::keep);
  arena.deregister_and_check(arena.page_count());
  if (changed == 0) arena.tell_stale(call, cleared.changed());
}

/// Where an arena has been, as long as nobody else of the process takes the place.
void Caller::watch_old_place(Arena& arena, uint8_t* place, size_t length_bytes, const char* call) {
  void* const memory = mmap(place, length_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (memory == MAP_FAILED) {
    if (errno != EEXIST) fail(kCallsRole, "mmap at an arena's old place");
    counts_.taken_places.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const Watched watched(place, length_bytes, Watched::Contents::fill);
  hold();
  arena.tell_stale(call, watched.changed());
  if (munmap(place, length_bytes) != 0) fail(kCallsRole, "munmap of an arena's old place");
}

void Caller::unmap_and_map(Arena& arena) {
  const size_t units = arena.page_count() / arena.unit_pages();
  const Pages pages = random_() % 2 == 0 || units == 1 ? Pages{0, arena.page_count()} : some_pages(arena);
  arena.begin_disturbance();
  if (munmap(arena.at(pages.first), arena.bytes_of(pages)) != 0) fail_call(Call::unmap_and_map, arena);
  if (random_() % 2 == 0) hold();
  void* const again = arena.map(arena.at(pages.first), pages, MAP_FIXED_NOREPLACE);
  if (again == MAP_FAILED) {
    if (errno != EEXIST) fail(kCallsRole, "mmap at the same place");
    // Another mapping of this process was faster: the arena goes elsewhere.
    counts_.taken_places.fetch_add(1, std::memory_order_relaxed);
    arena.deregister_and_check(0);
    const size_t end = pages.first + pages.count;
    if (pages.first != 0) munmap(arena.base(), pages.first * kPageBytes);
    if (end != arena.page_count()) munmap(arena.at(end), (arena.page_count() - end) * kPageBytes);
    void* const elsewhere = arena.map(nullptr, {0, arena.page_count()}, 0);
    if (elsewhere == MAP_FAILED) fail(kCallsRole, "mmap");
    arena.move_to(static_cast<uint8_t*>(elsewhere));
    std::memset(arena.base(), 0, arena.length_bytes());
  } else {
    watch_and_clear(arena, pages, "munmap");
  }
  arena.register_and_post(arena.page_count());
  arena.end_disturbance();
}

void Caller::unmap_for_another(Arena& arena) {
  Offer::State free = Offer::State::none;
  if (!offer_.state.compare_exchange_strong(free, Offer::State::being_made, std::memory_order_acq_rel))
    return;
  offer_.arena = &arena;
  offer_.state.store(Offer::State::offered, std::memory_order_release);
  const uint64_t end = now_ns() + 3'000'000;
  while (offer_.state.load(std::memory_order_acquire) == Offer::State::offered && now_ns() < end)
    sched_yield();
  Offer::State offered = Offer::State::offered;
  if (offer_.state.compare_exchange_strong(offered, Offer::State::none, std::memory_order_acq_rel)) return;
  uint8_t* const place = arena.base();
  const Pages all{0, arena.page_count()};
  arena.begin_disturbance();
  if (munmap(place, arena.length_bytes()) != 0) fail_call(Call::unmap_for_another, arena);
  while (offer_.state.load(std::memory_order_acquire) != Offer::State::done) sched_yield();
  offer_.state.store(Offer::State::none, std::memory_order_release);
  arena.deregister_and_check(0);
  void* again = arena.map(place, all, MAP_FIXED_NOREPLACE);
  if (again == MAP_FAILED && errno == EEXIST) {
    counts_.taken_places.fetch_add(1, std::memory_order_relaxed);
    again = arena.map(nullptr, all, 0);
  }
  if (again == MAP_FAILED) fail(kCallsRole, "mmap");
  arena.move_to(static_cast<uint8_t*>(again));
  std::memset(arena.base(), 0, arena.length_bytes());
  arena.register_and_post(arena.page_count());
  arena.end_disturbance();
  counts_.made[static_cast<size_t>(Call::unmap_for_another)].fetch_add(1, std::memory_order_relaxed);
}

/// The other thread of unmap_for_another: what it maps at the place is its own from the first moment on.
void Caller::take_offer() {
  Offer::State offered = Offer::State::offered;
  if (!offer_.state.compare_exchange_strong(offered, Offer::State::accepted, std::memory_order_acq_rel))
    return;
  Arena& arena = *offer_.arena;
  uint8_t* const place = arena.base();
  const uint64_t end = now_ns() + 20'000'000;
  void* memory = MAP_FAILED;
  while (memory == MAP_FAILED && now_ns() < end)
    memory = mmap(place, arena.length_bytes(), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (memory != MAP_FAILED) {
    const Watched watched(place, arena.length_bytes(), Watched::Contents::fill);
    hold();
    arena.tell_stale("another thread's munmap", watched.changed());
    if (munmap(place, arena.length_bytes()) != 0) fail(kCallsRole, "munmap of a taken place");
  }
  offer_.state.store(Offer::State::done, std::memory_order_release);
}

void Caller::map_over(Arena& arena) {
  const Pages pages = some_pages(arena);
  arena.begin_disturbance();
  if (arena.map(arena.at(pages.first), pages, MAP_FIXED) == MAP_FAILED) fail_call(Call::map_over, arena);
  watch_and_clear(arena, pages, "mmap(MAP_FIXED)");
  arena.register_and_post(arena.page_count());
  arena.end_disturbance();
}

/// mremap(2) takes one mapping; calls on parts of an arena have left several perhaps.
void Caller::make_one_mapping(Arena& arena) {
  if (count_mappings(arena.base(), arena.length_bytes()) == 1) return;
  arena.begin_disturbance();
  const Pages all{0, arena.page_count()};
  if (arena.map(arena.base(), all, MAP_FIXED) == MAP_FAILED) fail(kCallsRole, "mmap of a whole arena");
  watch_and_clear(arena, all, "mmap(MAP_FIXED)");
  arena.register_and_post(arena.page_count());
  arena.end_disturbance();
  // Time to fault some of it in, or there is little to lose.
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Caller::resize(Arena& arena) {
  make_one_mapping(arena);
  const size_t pages = arena.page_count();
  const size_t fewer = kLeastPages + random_() % (pages - kLeastPages);
  arena.begin_disturbance();
  if (mremap(arena.base(), arena.length_bytes(), fewer * kPageBytes, 0) != arena.base())
    fail_call(Call::resize, arena);
  if (random_() % 2 == 0)
    watch_old_place(arena, arena.at(fewer), (pages - fewer) * kPageBytes, "mremap (shrink)");
  const bool use_shrunk = random_() % 2 == 0;
  if (use_shrunk) {
    arena.deregister_and_check(fewer);
    arena.register_and_post(fewer);
    arena.end_disturbance();
    hold();
    arena.begin_disturbance();
  }
  void* const base = mremap(arena.base(), fewer * kPageBytes, arena.length_bytes(), MREMAP_MAYMOVE);
  if (base == MAP_FAILED) fail_call(Call::resize, arena);
  arena.move_to(static_cast<uint8_t*>(base));
  {
    const Watched grown(arena.at(fewer), (pages - fewer) * kPageBytes, Watched::Contents::keep);
    hold();
    arena.tell_stale("mremap (grow)", grown.changed());
  }
  arena.deregister_and_check(pages);
  arena.register_and_post(pages);
  arena.end_disturbance();
}

void Caller::move(Arena& arena) {
  make_one_mapping(arena);
  const size_t bytes = arena.length_bytes();
  const size_t align =
      arena.plan().backing == Backing::hugetlb || arena.plan().backing == Backing::anonymous_huge
          ? kHugeBytes
          : kPageBytes;
  auto* const room = static_cast<uint8_t*>(
      mmap(nullptr, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (room == MAP_FAILED) fail(kCallsRole, "mmap");
  uint8_t* const place = room + (align - reinterpret_cast<uintptr_t>(room) % align) % align;
  uint8_t* const old = arena.base();
  arena.begin_disturbance();
  if (mremap(old, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) != place) fail_call(Call::move, arena);
  arena.move_to(place);
  if (place != room) munmap(room, static_cast<size_t>(place - room));
  munmap(place + bytes, static_cast<size_t>(room + align - place));
  {
    const Watched moved(place, bytes, Watched::Contents::keep);
    watch_old_place(arena, old, bytes, "mremap (move)");
    arena.tell_stale("mremap (move), at the new place", moved.changed());
  }
  arena.deregister_and_check(arena.page_count());
  arena.register_and_post(arena.page_count());
  arena.end_disturbance();
}

void Caller::protect(Arena& arena, bool alone) {
  const Pages pages = some_pages(arena);
  const int rights = random_() % 2 == 0 ? PROT_READ : PROT_NONE;
  uint8_t* const memory = arena.at(pages.first);
  arena.begin_disturbance();
  if (mprotect(memory, arena.bytes_of(pages), rights) != 0) fail_call(Call::protect, arena);
  if (alone && rights == PROT_READ) {
    const Watched watched(memory, arena.bytes_of(pages), Watched::Contents::keep);
    hold();
    arena.tell_stale("mprotect(PROT_READ)", watched.changed());
  } else {
    hold();
  }
  if (mprotect(memory, arena.bytes_of(pages), PROT_READ | PROT_WRITE) != 0) fail_call(Call::protect, arena);
  arena.end_disturbance();
}

void Caller::fork_child(Arena& arena, bool alone) {
  const pid_t child = fork();
  if (child < 0) fail(kCallsRole, "fork");
  if (child == 0) _exit(live_as_child(arena, alone));
  const uint64_t end = now_ns() + kHangNs;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (now_ns() > end) {
      kill(child, SIGKILL);
      fail(kCallsRole, "the child of fork hangs");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  std::fprintf(stderr, "odp_mix: arena %zu (%s): the child of fork %s %d\n", arena.number(),
               name_of(arena.plan().backing),
               WIFSIGNALED(status) ? "died of signal" : "saw the parent's writes:",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  std::_Exit(1);
}

/// At whole pages: the kernel clears the rest of a page by memset, beside any writer.
void Caller::truncate(Arena& arena) {
  const size_t fewer = random_() % arena.page_count();
  arena.begin_disturbance();
  arena.begin_hole();
  if (ftruncate(arena.fd(), static_cast<off_t>(fewer * kPageBytes)) != 0) fail_call(Call::truncate, arena);
  arena.end_hole();
  hold();
  if (ftruncate(arena.fd(), static_cast<off_t>(arena.length_bytes())) != 0) fail_call(Call::truncate, arena);
  arena.end_disturbance();
}

void Caller::punch_hole(Arena& arena) {
  const Pages pages = some_pages(arena);
  arena.begin_hole();
  if (fallocate(arena.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(pages.first * kPageBytes), static_cast<off_t>(arena.bytes_of(pages))) != 0)
    fail_call(Call::punch_hole, arena);
  arena.end_hole();
}

}  // namespace faultline::e2e::mix
