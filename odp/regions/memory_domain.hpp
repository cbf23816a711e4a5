// SPDX-License-Identifier: BSD-3-Clause
// The memory layer of one device context: regions and keys, the pager and invalidation threads, the pin
// budget. Control calls come from any thread; data-path calls go through one EngineSession per engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "odp/regions/counters.hpp"
#include "odp/regions/memory_access.hpp"

namespace faultline::odp {

struct DomainConfig {
  uint64_t pin_budget_bytes = uint64_t{1}
                              << 30;  ///< 0: never pin; also held to RLIMIT_MEMLOCK where that binds
  bool monitor_invalidations = true;  ///< userfaultfd; without it the tolerant copy alone stands guard
  /// Linux 6.7's WP_ASYNC, without which mappings of files cannot be watched.
  bool userfault_async = true;
  bool realtime_pager = true;  ///< SCHED_FIFO for the pager where allowed
  unsigned pager_threads = 4;  ///< one for what is quick, the others each for a slow page (swap, files)
  /// On-demand regions also where neither the library's hooks nor userfaultfd would report an unmapping.
  bool allow_unguarded = false;
  /// ENOMEM for a classic region that cannot be pinned; otherwise it is registered unpinned, and logged.
  bool refuse_unpinned_classic = false;
  /// 2 MiB pieces of implicit regions that are known at a time: 900 bytes each.
  uint32_t implicit_children = 16'384;
};

/// One range of a prefetch.
struct PrefetchRange {
  Key key = 0;
  uint64_t va = 0;
  uint64_t length_bytes = 0;
};
enum class PrefetchKind : uint8_t { read, write, no_fault };

/// What will be written soon, by the region's owner.
struct WriteHint {
  uint64_t va;
  Key key;
  uint32_t length_bytes;
};

/// Around a hint that found nothing to do: until `losses` is no more MemoryDomain::page_losses(), no hint is
/// needed there. Whoever gives hints keeps one and hands it in each time; for one thread at a time.
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

/// Address 0, iova 0, the length UINT64_MAX and kOnDemand: the implicit region, which is the whole address
/// space as it is at each moment.
struct RegionRequest {
  ProtectionDomain domain = 0;
  uint64_t address = 0;  ///< in this process
  uint64_t length_bytes = 0;
  uint64_t iova = 0;    ///< the address that keys are used with
  uint32_t access = 0;  ///< AccessFlag bits
};

struct RegionResult {
  int error = 0;  ///< 0 or an errno as ibv_reg_mr documents it: EINVAL bad length or access, ENOMEM, EFAULT
                  ///< not mapped (classic), ENOTSUP on demand and unguarded
  Key key = 0;
};

/// One engine's door to memory. Between `leave` and `enter` the engine is offline: nobody waits for it.
/// A thread must leave before it runs program code or makes a control call of the domain: its munmap or free
/// of registered memory, its register, deregister or waiting prefetch would wait for its own session.
class EngineSession : public MemoryAccess {
 public:
  /// Start of a turn: reports the token that the engine has seen and latches the gate for the turn.
  virtual void enter() = 0;
  /// End of a turn after which the engine may block or not come back soon.
  virtual void leave() = 0;
  /// True while fault requests of this engine are unanswered.
  [[nodiscard]] virtual bool has_outstanding_faults() const = 0;
  /// True where an idle engine with outstanding faults should yield its CPU to the pager (pager without
  /// SCHED_FIFO).
  [[nodiscard]] virtual bool should_yield() const = 0;
};

class MemoryDomain {
 public:
  /// Starts the pager and the monitor. Returns nullptr and says why in `error`.
  static std::unique_ptr<MemoryDomain> create(const DomainConfig& config, std::string& error);
  virtual ~MemoryDomain() = default;

  /// With kOnDemand nothing is touched; without it the range is made resident and pinned before it returns.
  [[nodiscard]] virtual RegionResult register_region(const RegionRequest& request) = 0;
  /// After it returns no engine touches the region's memory. ENOENT for a key that is not live, EBUSY while
  /// memory windows are bound to it.
  [[nodiscard]] virtual int deregister_region(Key key) = 0;
  /// The key stands for what the request says from now on, and never for nothing (ibv_rereg_mr). After it
  /// returns no engine touches memory that was only the old region's. An errno of either of the two above,
  /// and then the old region is as it was.
  [[nodiscard]] virtual int replace_region(Key key, const RegionRequest& request) = 0;

  /// A memory window that is bound to nothing yet. 0 in `error`, or ENOMEM.
  [[nodiscard]] virtual RegionResult allocate_window(ProtectionDomain domain, WindowType type) = 0;
  /// Unbinds it where it is bound; after it returns no engine uses its key, of which any variant will do.
  /// ENOENT for one that is not live.
  [[nodiscard]] virtual int deallocate_window(Key key) = 0;

  /// nullptr where all sessions are taken or there is no memory for one.
  [[nodiscard]] virtual std::unique_ptr<EngineSession> attach_engine() = 0;

  /// Queues pages of ODP ranges that will be written soon (posted receives). A hint: it may be dropped.
  /// Cheap where the pages are already there; dearer by the call than by the range. Any thread.
  /// `settled` becomes the range around the last hint, or none.
  virtual void hint_will_write(ProtectionDomain domain, std::span<const WriteHint> hints,
                               SettledRange& settled) = 0;
  /// Moves on whenever memory of any on-demand region may no more be written without asking, or a key no
  /// longer stands for what it did.
  [[nodiscard]] virtual const std::atomic<uint64_t>& page_losses() const = 0;

  /// Makes ranges resident; `wait` blocks until they are. errno as ibv_advise_mr documents it, and then
  /// nothing was begun unless it is EFAULT after waiting. Any thread.
  [[nodiscard]] virtual int prefetch(ProtectionDomain domain, std::span<const PrefetchRange> ranges,
                                     PrefetchKind kind, bool wait) = 0;

  [[nodiscard]] virtual Counters counters() const = 0;
  /// False for a key that is not a live region's.
  [[nodiscard]] virtual bool region_counters(Key key, RegionCounters& counters) = 0;
};

}  // namespace faultline::odp
