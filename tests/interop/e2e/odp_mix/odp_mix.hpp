// SPDX-License-Identifier: BSD-3-Clause
// What the two sides of odp_mix share: the plan of the arenas, the lines that the peer writes, and the ledger
// of what may stand in memory.
//
// An arena is one mapping that the owner registers on demand. Seven pages of eight hold lines of 64 bytes,
// each zero or written whole by the peer for exactly that place; every eighth page holds 512 cells for
// FETCH_ADD. The ledger keeps, for each line, the counters of the last acknowledged and of the last posted
// WRITE, and for each cell the least and the most that it can hold. The peer has at most one request under
// way for a line or cell, so that "the last" is one.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <infiniband/verbs.h>
#include <sys/types.h>

#include "tests/interop/e2e/odp_mix/odp_mix_work.hpp"

namespace faultline::e2e::mix {

inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kHugeBytes = size_t{2} << 20;
inline constexpr size_t kLineBytes = 64;
inline constexpr size_t kLinesPerPage = kPageBytes / kLineBytes;
inline constexpr size_t kCellsPerPage = kPageBytes / sizeof(uint64_t);
inline constexpr size_t kCellPageEvery = 8;
inline constexpr size_t kLeastPages = 8;  ///< of a shrunk arena: one page of cells stays
inline constexpr size_t kMaxArenas = 12;
inline constexpr size_t kQps = 4;
inline constexpr size_t kThreads = 2;  ///< of the owner, that make calls
inline constexpr uint32_t kDepth = 16;
/// Only a hang takes so long. MADV_COLLAPSE alone has taken 10 s where others kept the CPUs busy: it waits
/// for a worker of the kernel's on each, and all that needs the address space waits for it.
inline constexpr uint64_t kHangNs = 180'000'000'000;

enum class Backing : uint8_t {
  anonymous,
  anonymous_huge,  ///< 2 MiB aligned, for transparent huge pages
  memfd,
  file_private,
  file_shared,
  hugetlb
};

struct Plan {
  Backing backing = Backing::anonymous;
  bool exact = false;  ///< no call that loses contents is made on it
  size_t pages = 0;
};

[[nodiscard]] inline bool is_cell_page(size_t page) {
  return page % kCellPageEvery == kCellPageEvery - 1;
}
[[nodiscard]] const char* name_of(Backing backing);
[[nodiscard]] uint64_t now_ns();

using Line = std::array<uint64_t, kLineBytes / sizeof(uint64_t)>;

/// The line that WRITE number `counter` (from 1) puts at line `line` of arena `arena`.
[[nodiscard]] Line make_line(size_t arena, size_t line, uint64_t counter);

/// What may stand in one line (counters of its WRITEs) or cell (sums).
struct Record {
  std::atomic<uint64_t> least{0};
  std::atomic<uint64_t> most{0};
  /// Of a line: 1 + Posting::holes_over when its pending WRITE was posted; 0 while no WRITE is pending.
  std::atomic<uint64_t> pending_since{0};
  /// Of a line: a hole was made during a WRITE that may have stored, and no later WRITE replaced the line.
  std::atomic<bool> may_be_torn{false};
  /// Of a line: a WRITE has failed, and no later WRITE replaced the line. It may have stored a part.
  std::atomic<bool> has_failed{false};
};

/// A line's record as it was before a look at the line began.
struct Before {
  uint64_t least = 0;
  bool may_be_torn = false;
  bool may_be_cut = false;
};

/// Where the peer finds an arena. Its owner changes it between two steps of `sequence`.
struct alignas(64) Posting {
  std::atomic<uint32_t> sequence{0};
  std::atomic<uint32_t> rkey{0};
  std::atomic<uint64_t> va{0};
  std::atomic<uint64_t> pages{0};
  /// Calls after which an access error is right, from before the call until the memory is good again.
  std::atomic<uint64_t> disturbances_begun{0};
  std::atomic<uint64_t> disturbances_over{0};
  /// Calls that take pages out of the arena's file (ftruncate, hole punching).
  std::atomic<uint64_t> holes_begun{0};
  std::atomic<uint64_t> holes_over{0};
};

enum class Stage : uint32_t { connected, wanted, answered };

/// A connection and how it is made again: the peer wants, the owner has reset its end and answers.
struct alignas(64) Connection {
  std::atomic<Stage> stage{Stage::connected};
  std::atomic<uint32_t> peer_qpn{0};
  std::atomic<uint32_t> peer_psn{0};
  std::atomic<uint32_t> owner_qpn{0};
  std::atomic<uint32_t> owner_psn{0};
};

/// The call that a thread of the owner is in, since when; 0: in none.
struct alignas(64) Doing {
  std::atomic<uint64_t> since_ns{0};
  std::atomic<uint32_t> call{0};
  std::atomic<uint32_t> arena{0};
};

struct SharedHead {
  std::atomic<bool> owner_ready{false};
  std::atomic<bool> peer_ready{false};
  std::atomic<bool> stop{false};
  std::atomic<bool> peer_done{false};
  std::atomic<bool> peer_failed{false};
  std::atomic<bool> timeout_seen{false};  ///< by the peer, for who looks for its cause
  ibv_gid owner_gid{};
  ibv_gid peer_gid{};
  std::array<Posting, kMaxArenas> postings;
  std::array<Connection, kQps> connections;
  std::atomic<uint64_t> driven_at_ns{0};  ///< the owner's engine, last; 0: not yet or no more
  /// For how long the owner's engine was not driven, at most. The kernel may hold a thread for seconds.
  std::atomic<uint64_t> longest_away_ns{0};
  std::array<Doing, kThreads> doing;
  PeerWork peer_work;
};

/// Of every QP, as ibv_modify_qp takes them.
struct Retries {
  uint8_t timeout = 14;
  uint8_t rnr_retry = 3;
};

/// The memory that both processes see, made before the fork.
class Shared {
 public:
  Shared(std::vector<Plan> plans, uint64_t seed, Retries retries, bool may_tear);

  [[nodiscard]] SharedHead& head() const { return *head_; }
  [[nodiscard]] const std::vector<Plan>& plans() const { return plans_; }
  [[nodiscard]] uint64_t seed() const { return seed_; }
  [[nodiscard]] Retries retries() const { return retries_; }
  /// True where hole punching and ftruncate may run during a copy: userfaultfd has no event for them. A line
  /// then is zero in part, as after a program's own memcpy: one half was stored before the hole, one after.
  [[nodiscard]] bool may_tear(size_t arena) const;
  /// Whether a hole was made during a WRITE to the line, so that the line may be torn now. A line without
  /// such a hole is never torn.
  [[nodiscard]] bool may_be_torn(size_t arena, size_t line) const;
  /// Whether a WRITE to the line has failed, or may yet: a call of the owner ends a copy between two stores,
  /// and no WRITE that fails says what it has stored. The line then has words of two WRITEs.
  [[nodiscard]] bool may_be_cut(size_t arena, size_t line) const;
  /// The peer's notes on a WRITE to a line: `posted` first, then `acknowledged` or, once the QP is reset and
  /// the request can no longer be executed, `failed`.
  void note_posted(size_t arena, size_t line) const;
  void note_acknowledged(size_t arena, size_t line) const;
  void note_failed(size_t arena, size_t line) const;
  /// Whether a hole was made since holes_over was `since`.
  [[nodiscard]] bool had_holes(size_t arena, uint64_t since) const {
    return head_->postings[arena].holes_begun.load(std::memory_order_acquire) != since;
  }
  [[nodiscard]] Record& line(size_t arena, size_t line) const {
    return record(arena, line / kLinesPerPage, line % kLinesPerPage);
  }
  [[nodiscard]] Record& cell(size_t arena, size_t cell) const {
    return record(arena, cell / kCellsPerPage, cell % kCellsPerPage);
  }

 private:
  [[nodiscard]] Record& record(size_t arena, size_t page, size_t index) const;

  std::vector<Plan> plans_;
  uint64_t seed_;
  Retries retries_;
  bool may_tear_;
  SharedHead* head_ = nullptr;
  std::vector<Record*> records_;
};

/// Whether one more thing that is wrong shall be said: the first of a process tell enough.
[[nodiscard]] bool may_tell();

/// What a look at an arena found.
struct Look {
  size_t wrong = 0;  ///< lines and cells
  size_t torn = 0;   ///< lines of which a part is zero because a hole was made during their WRITE or READ
  size_t cut = 0;    ///< lines of two WRITEs, of which the later one was not acknowledged
};

/// Compares what a READ or the owner itself found at a line-aligned place of an arena with the ledger.
/// `before`: each line's record before the look; the ledger's `most` is read now. `holes_meanwhile`: a hole
/// was made during the look. Prints what is wrong.
Look look_at(const Shared& shared, size_t arena, size_t first_line, std::span<const uint64_t> words,
             std::span<const Before> before, bool holes_meanwhile, const char* seen_by);

/// The ledger's records of lines; on pages of cells, zero.
void note_before(const Shared& shared, size_t arena, size_t first_line, std::span<Before> before);

/// How long the thread that drives an engine was away from it at most, and how much of that it waited for a
/// CPU (proc(5), /proc/[pid]/schedstat): a timeout may be the machine's.
class Pauses {
 public:
  void note();
  void tell(const char* who) const;
  [[nodiscard]] uint64_t longest_ns() const { return longest_ns_; }

 private:
  uint64_t last_ns_ = 0;
  uint64_t read_at_ns_ = 0;
  uint64_t waited_ns_ = 0;  ///< for a CPU, when last read
  uint64_t longest_ns_ = 0;
  uint64_t of_it_waited_ns_ = 0;
};

/// Every counter of the device that is not zero, for who looks into a failure.
void tell_counters(const char* who, ibv_context* context);

/// RESET, INIT, RTR, RTS.
void connect(ibv_qp* qp, const char* who, uint32_t peer_qpn, const ibv_gid& peer_gid, uint32_t rq_psn,
             uint32_t sq_psn, Retries retries);

struct OwnerOptions {
  double amount = 5;              ///< of work: see Work
  bool fill_descriptors = false;  ///< no descriptor is free while the mix runs
  std::vector<bool> calls;        ///< by number of the call (calls_of_mix); empty: all
};

int run_owner(const std::string& config, const Shared& shared, const OwnerOptions& options);
int run_peer(const std::string& config, const Shared& shared);

/// Until both children have ended, or hang: then, or where one fails, they are ended. 0 where all is well.
int watch(const SharedHead& head, pid_t owner, pid_t peer);

/// Whether one of these calls takes contents away without an event.
[[nodiscard]] bool loses_unseen(const std::vector<bool>& calls);

/// How many of a call a run of the amount 1 has to make.
[[nodiscard]] double least_of(size_t call);

/// The names of the calls that the owner's threads make.
[[nodiscard]] std::span<const char* const> calls_of_mix();

}  // namespace faultline::e2e::mix
