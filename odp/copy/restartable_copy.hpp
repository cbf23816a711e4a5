// SPDX-License-Identifier: BSD-3-Clause
// Restartable copies: how a call of the program stops an engine's copy without waiting for the engine.
//
// An engine checks that a page may be touched, and copies. Between the two, or during the copy, its thread
// may be preempted, or a signal handler may run on it, for any time. A guarded copy is therefore a
// restartable sequence (Linux, rseq; glibc 2.35 registers each thread).
// If the thread is preempted or takes a signal before the last store, the kernel resumes it at an abort
// address, and the copy returns kRevoked. The sequence begins with a check that `revocations` has not
// changed since before the engine's own checks.
//
// A thread that removes pages marks them and advances `revocations`. Then it either sees each engine begin a
// new turn (Quiescence), or restarts every copy of the process by membarrier(2),
// MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ (Linux 5.10). After either, no engine touches the pages by an old
// check.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace faultline::odp {

/// What a guarded copy checks. One per engine session, filled at the start of a turn. The assembly depends
/// on its layout.
struct CopyTicket {
  /// Value of `revocations` before the checks that allow the copy.
  uint64_t seen = 0;
  /// rseq_cs of the thread's rseq area, or `unused` below if the thread has none.
  void* sequence = nullptr;
  void* unused = nullptr;
};

/// Result of a guarded copy that has to be checked and repeated: the contents of the destination are
/// undefined.
inline constexpr size_t kRevoked = ~size_t{0};

/// Advances whenever memory may no longer be touched by checks made before. On its own cache line: engines
/// read it for each copy.
extern "C" {
__attribute__((visibility("hidden"))) extern std::atomic<uint64_t> faultline_odp_revocations;
}

/// Detects, once, whether this process has restartable copies. Any thread; idempotent.
void prepare_restartable_copies();
/// True if restart_copies() works. Otherwise a thread that removes pages waits for the engines' turns.
[[nodiscard]] bool has_restartable_copies();
/// For tests: `disabled` makes the process behave as if restartable copies were unavailable. Requires that
/// no engine is attached.
void disable_restartable_copies(bool disabled);

/// Invalidates all tickets. Call after the pages are marked.
inline void revoke_tickets() {
  faultline_odp_revocations.fetch_add(1, std::memory_order_seq_cst);
}

/// Restarts every guarded copy in progress in this process. Call after revoke_tickets(). When it returns no
/// copy uses an older ticket. False if restarts are unavailable (has_restartable_copies()). Takes about 10
/// us; async-signal-safe.
[[nodiscard]] bool restart_copies();

/// Returns the calling thread's thread pointer. It identifies a thread without thread-local storage, for
/// which a library that is opened late has no room.
[[nodiscard]] inline void* thread_pointer() {
  return __builtin_thread_pointer();
}

/// Offset of rseq_cs from the thread pointer; 0 if threads have no rseq area.
__attribute__((visibility("hidden"))) extern std::atomic<ptrdiff_t> restart_offset_bytes;

/// Prepares a ticket for copies of this thread: call before the checks that allow them.
inline void prepare_ticket(CopyTicket& ticket) {
  const ptrdiff_t offset = restart_offset_bytes.load(std::memory_order_relaxed);
  ticket.sequence = offset != 0 ? static_cast<void*>(static_cast<char*>(thread_pointer()) + offset)
                                : static_cast<void*>(&ticket.unused);
  ticket.seen = faultline_odp_revocations.load(std::memory_order_seq_cst);
}

}  // namespace faultline::odp
