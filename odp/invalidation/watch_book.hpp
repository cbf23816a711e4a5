// SPDX-License-Identifier: BSD-3-Clause
// Records which memory regions need watched, and what part our userfaultfd watches. The two differ: another
// userfaultfd may hold the memory, a mapping may not be watchable, and many small pieces are watched as one.
//
// A watch on part of a mapping splits it, and a process may have 65,530 mappings (proc(5), vm.max_map_count).
// While there are few pieces each is watched exactly, so that calls on the rest of its mapping cost nothing
// extra. Beyond that the whole mapping is watched, until it contains no region.
//
// A thread of the program may wait for the mutex inside its mremap, holding its allocator's lock. The holder
// of the mutex therefore neither uses malloc nor waits for the program.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <mutex>

#include "odp/regions/range_counts.hpp"
#include "stack/base/mapped_resource.hpp"
#include "stack/base/process/signals_blocked.hpp"

namespace faultline::odp {

struct MappingFacts;

/// The kernel calls that the book uses. Ranges are page-aligned.
class WatchCalls {
 public:
  virtual ~WatchCalls() = default;
  /// UFFDIO_REGISTER of all mappings in the range. Returns 0, or an errno and then watches none of them.
  /// EINVAL: the range begins in a hole, or a mapping cannot be watched; EBUSY: another userfaultfd has it;
  /// EPERM: a shared mapping of a file opened read-only; ENOMEM: too many mappings.
  [[nodiscard]] virtual int watch(uint64_t start, uint64_t end) = 0;
  /// Call before [start, end) is watched. True if the mapping that holds `address` would stay split after
  /// the watch is lifted. Sets `mapping` to that mapping; unchanged if there is none.
  [[nodiscard]] virtual bool would_stay_split(uint64_t address, uint64_t start, uint64_t end,
                                              MappingFacts& mapping) = 0;
  /// Prevents such a split. No part of the mapping is watched; afterwards [start, end) may be.
  virtual void prepare_split(const MappingFacts& mapping, uint64_t start, uint64_t end) = 0;
  /// UFFDIO_UNREGISTER. Before Linux 6.17 it also affects another userfaultfd's range.
  virtual void unwatch(uint64_t start, uint64_t end) = 0;
  /// Finds the mapping that holds `address`, or the next one after it. False if there is none, or the kernel
  /// does not report it.
  [[nodiscard]] virtual bool find_mapping_from(uint64_t address, MappingFacts& facts) = 0;
};

class WatchBook {
 public:
  /// Each piece adds up to two mappings: 2,000 are 3% of a process's limit.
  static constexpr size_t kMostPieces = 1'000;

  explicit WatchBook(WatchCalls& calls)
      : calls_(calls), nodes_(&pages_), users_(&nodes_), watched_(&nodes_) {}
  WatchBook(const WatchBook&) = delete;
  WatchBook& operator=(const WatchBook&) = delete;
  ~WatchBook() = default;

  /// Watches a range for a region. Returns 0, or the gravest errno of WatchCalls::watch over its mappings:
  /// EBUSY, ENOMEM, EPERM, EINVAL (also for a hole). The other mappings are watched all the same, and all of
  /// the range counts as used. Throws std::bad_alloc; then nothing is counted.
  [[nodiscard]] int watch(uint64_t start, uint64_t end);
  /// Call once for each watch of the same range.
  void unwatch(uint64_t start, uint64_t end);
  /// Watches what a used range holds now; `whole`: all of each mapping. Returns an errno as watch() does.
  [[nodiscard]] int watch_again(uint64_t start, uint64_t end, bool whole) {
    return watch_again(start, end, whole, [](int) {});
  }
  /// Calls settled(error) before another thread can change what is watched.
  template <typename Settled>
  [[nodiscard]] int watch_again(uint64_t start, uint64_t end, bool whole, Settled settled) {
    const Hold hold(*this);
    const int error = whole ? cover_mappings(start, end, true) : cover(start, end);
    settled(error);
    return error;
  }

  /// Lifts the watch in a range for a call of the program, until restore().
  void lift(uint64_t start, uint64_t end);
  /// Watches again what regions have there. Returns 0, or the gravest errno.
  [[nodiscard]] int restore(uint64_t start, uint64_t end);

  /// Makes a call that registers the range with the program's own userfaultfd; the call returns 0 or an
  /// errno. No thread can watch the range meanwhile.
  template <typename Call>
  [[nodiscard]] int make_room_for(uint64_t start, uint64_t end, Call call) {
    const Hold hold(*this);
    lift_locked(start, end);
    int error = call();
    if (error == EBUSY) {
      // A range moved by an mremap inside the C library keeps our watch, and the book has no record of it.
      stop(start, end);
      error = call();
    }
    if (error != 0) static_cast<void>(restore_locked(start, end));
    return error;
  }

  /// Mappings may have been removed: what was watched there must be watched again. Any thread; does not
  /// wait.
  void note_unmapping() { unmappings_.fetch_add(1, std::memory_order_seq_cst); }

  /// Number of watched ranges, for tests.
  [[nodiscard]] size_t piece_count();

 private:
  /// Holds the mutex. Blocks signals: a handler that calls mremap on the same thread would wait for itself.
  class Hold {
   public:
    explicit Hold(WatchBook& book) : lock_(book.mutex_) {}

   private:
    const SignalsBlocked blocked_;
    const std::lock_guard<std::mutex> lock_;
  };
  struct Piece {
    uint64_t end;
    uint64_t unmappings;  ///< value of unmappings_ when the kernel last accepted the piece
    bool whole;           ///< covers a whole mapping: stays until no user is left in it
  };
  using Pieces = std::pmr::map<uint64_t, Piece>;

  [[nodiscard]] int cover(uint64_t start, uint64_t end);
  [[nodiscard]] int cover_mappings(uint64_t start, uint64_t end, bool whole);
  uint64_t prepare_split(uint64_t address, uint64_t start, uint64_t end);
  [[nodiscard]] bool is_known_whole(uint64_t start, uint64_t end) const;
  [[nodiscard]] int watch_and_record(uint64_t start, uint64_t end, bool whole);
  void record(uint64_t start, uint64_t end, bool whole, uint64_t unmappings);
  void erase(Pieces::iterator piece, uint64_t start, uint64_t end);
  void release(uint64_t start, uint64_t end);
  void stop(uint64_t start, uint64_t end);
  void lift_locked(uint64_t start, uint64_t end);
  [[nodiscard]] int restore_locked(uint64_t start, uint64_t end);
  [[nodiscard]] Pieces::iterator first_at(uint64_t start);

  WatchCalls& calls_;
  std::atomic<uint64_t> unmappings_{0};
  std::mutex mutex_;  ///< guards the members below
  MappedResource pages_;
  std::pmr::unsynchronized_pool_resource nodes_;
  RangeCounts users_;
  Pieces watched_;  ///< by start; non-overlapping
};

}  // namespace faultline::odp
