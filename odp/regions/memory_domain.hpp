// SPDX-License-Identifier: BSD-3-Clause
// The memory layer of one device context: regions and keys, the pager and invalidation threads, the pin
// budget. Any thread makes control calls; each engine makes data-path calls through its own EngineSession.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "odp/regions/counters.hpp"
#include "odp/regions/memory_access.hpp"

namespace faultline::odp {

/// Hears of pages that the program or the kernel took away from on-demand regions.
class PageLossSink {
 public:
  virtual ~PageLossSink() = default;
  /// Any thread, also within a program's munmap(2) in a signal handler: must neither wait nor allocate.
  virtual void on_pages_lost(uint64_t pages) = 0;
};

struct DomainConfig {
  uint64_t pin_budget_bytes = uint64_t{1}
                              << 30;  ///< 0: never pin; also limited by RLIMIT_MEMLOCK if that applies
  bool monitor_invalidations = true;  ///< userfaultfd; without it only the tolerant copy protects
  /// Linux 6.7's WP_ASYNC, without which mappings of files cannot be watched.
  bool userfault_async = true;
  bool realtime_pager = true;  ///< SCHED_FIFO for the pager where allowed
  unsigned pager_threads = 4;  ///< one for quick faults, the others each for a slow page (swap, files)
  /// Permits on-demand regions even if neither the library's hooks nor userfaultfd would report an
  /// unmapping.
  bool allow_unguarded = false;
  /// Returns ENOMEM for a classic region that cannot be pinned; otherwise it is registered unpinned, and
  /// logged.
  bool refuse_unpinned_classic = false;
  /// Most 2 MiB pieces of implicit regions at a time: 900 bytes each.
  uint32_t implicit_children = 16'384;
  PageLossSink* page_losses = nullptr;  ///< outlives the domain; nullptr: none
};

/// One range of a prefetch.
struct PrefetchRange {
  Key key = 0;
  uint64_t va = 0;
  uint64_t length_bytes = 0;
};
enum class PrefetchKind : uint8_t { read, write, no_fault };

/// A range that the region's owner will write soon.
struct WriteHint {
  uint64_t va;
  Key key;
  uint32_t length_bytes;
};

/// The range around a hint that found nothing to do. No hint is needed there while `losses` equals
/// MemoryDomain::page_losses(). The caller of hint_will_write keeps one and passes it each time; for one
/// thread at a time.
struct SettledRange {
  uint64_t va = 0;
  uint64_t length_bytes = 0;
  uint64_t losses = 0;
  Key key = 0;

  [[nodiscard]] bool holds(const WriteHint& hint) const {
    const uint64_t offset = hint.va - va;
    return hint.key == key && offset <= length_bytes && hint.length_bytes <= length_bytes - offset;
  }
};

/// Address 0, iova 0, length UINT64_MAX and kOnDemand request the implicit region: the whole address space
/// as it is at each moment.
struct RegionRequest {
  ProtectionDomain domain = 0;
  uint64_t address = 0;  ///< in this process
  uint64_t length_bytes = 0;
  uint64_t iova = 0;    ///< the address that accesses by key use
  uint32_t access = 0;  ///< AccessFlag bits
  /// Memory of another device that the library has mapped for this region alone: neither pinned nor watched.
  /// Its pages may have no struct page, so a copy's own page fault maps them. Not on demand.
  bool is_of_other_device = false;
};

struct RegionResult {
  int error = 0;  ///< 0 or an errno as ibv_reg_mr documents it: EINVAL bad length or access, ENOMEM, EFAULT
                  ///< not mapped (classic), ENOTSUP on demand and unguarded
  Key key = 0;
};

/// One engine's access to memory. Between `leave` and `enter` the engine is offline: no thread waits for it.
/// A thread must leave before it runs program code or makes a control call of the domain. Otherwise its
/// munmap or free of registered memory, its register, deregister or waiting prefetch would wait for its own
/// session.
class EngineSession : public MemoryAccess {
 public:
  /// Starts a turn: reports the token that the engine has seen and latches the gate for the turn.
  virtual void enter() = 0;
  /// Ends a turn after which the engine may block or may not return soon.
  virtual void leave() = 0;
  /// Takes the pages of an on-demand region or of the region of a window from the process, as reclaim does
  /// (MADV_PAGEOUT): the next access to each is a miss. Of an implicit region the 2 MiB around `va`. Nothing
  /// happens to a classic region, whose pages are pinned, or with a key that is not live. Not for the data
  /// path: it takes system calls.
  virtual void page_out(Key key, uint64_t va) = 0;
  /// True while fault requests of this engine are unanswered.
  [[nodiscard]] virtual bool has_outstanding_faults() const = 0;
  /// True if an idle engine with outstanding faults should yield its CPU to the pager (a pager without
  /// SCHED_FIFO).
  [[nodiscard]] virtual bool should_yield() const = 0;
};

class MemoryDomain {
 public:
  /// Starts the pager and the monitor. On failure returns nullptr and sets `error` to the reason.
  static std::unique_ptr<MemoryDomain> create(const DomainConfig& config, std::string& error);
  virtual ~MemoryDomain() = default;

  /// With kOnDemand touches nothing; without it makes the range resident and pins it before it returns.
  [[nodiscard]] virtual RegionResult register_region(const RegionRequest& request) = 0;
  /// After it returns no engine touches the region's memory. ENOENT for a key that is not live, EBUSY while
  /// memory windows are bound to the region.
  [[nodiscard]] virtual int deregister_region(Key key) = 0;
  /// Replaces the region of a live key by that of the request; the key is valid throughout (ibv_rereg_mr).
  /// After it returns no engine touches memory that belonged only to the old region. On an errno of
  /// register_region or deregister_region the old region is unchanged.
  [[nodiscard]] virtual int replace_region(Key key, const RegionRequest& request) = 0;

  /// Allocates a memory window, initially unbound. `error` is 0 or ENOMEM.
  [[nodiscard]] virtual RegionResult allocate_window(ProtectionDomain domain, WindowType type) = 0;
  /// Unbinds the window if it is bound. After it returns no engine uses its key; any variant of the key
  /// matches. ENOENT for a key that is not live.
  [[nodiscard]] virtual int deallocate_window(Key key) = 0;

  /// Returns nullptr if all sessions are taken or memory is short.
  [[nodiscard]] virtual std::unique_ptr<EngineSession> attach_engine() = 0;

  /// Queues pages of ODP ranges that will be written soon (posted receives). A hint: it may be dropped. Cheap
  /// if the pages are already resident; the cost per call exceeds the cost per range. Any thread. Sets
  /// `settled` to the range around the last hint, or to an empty range.
  virtual void hint_will_write(ProtectionDomain domain, std::span<const WriteHint> hints,
                               SettledRange& settled) = 0;
  /// Advances whenever memory of any on-demand region loses its writable state, or a key changes its
  /// meaning.
  [[nodiscard]] virtual const std::atomic<uint64_t>& page_losses() const = 0;

  /// Makes ranges resident; `wait` blocks until they are. Returns an errno as ibv_advise_mr documents it;
  /// nothing was begun then, unless it is EFAULT after waiting. Any thread.
  [[nodiscard]] virtual int prefetch(ProtectionDomain domain, std::span<const PrefetchRange> ranges,
                                     PrefetchKind kind, bool wait) = 0;

  [[nodiscard]] virtual Counters counters() const = 0;
  /// Returns false if the key is not a live region's.
  [[nodiscard]] virtual bool region_counters(Key key, RegionCounters& counters) = 0;
};

}  // namespace faultline::odp
