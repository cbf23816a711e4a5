// SPDX-License-Identifier: BSD-3-Clause
// A data path's access to memory that may not be resident. One object per engine, used by its owner thread
// only. No function here blocks, throws or allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "odp/regions/crc_beside.hpp"

namespace faultline::odp {

/// lkey and rkey are the same number: 24-bit index, 8-bit variant.
using Key = uint32_t;
/// Number of a protection domain. 0 is never a valid domain.
using ProtectionDomain = uint32_t;

/// Rights of a region and needs of an access; values are ibv_access_flags' (infiniband/verbs.h).
enum AccessFlag : uint32_t {
  kLocalRead = 0,
  kLocalWrite = 1U << 0,
  kRemoteWrite = 1U << 1,
  kRemoteRead = 1U << 2,
  kRemoteAtomic = 1U << 3,
  kMemoryWindowBind = 1U << 4,
  kZeroBased = 1U << 5,
  kOnDemand = 1U << 6,
  kHugePages = 1U << 7,
  kFlushGlobal = 1U << 8,      ///< IBV_ACCESS_FLUSH_GLOBAL of rdma-core 45 and later
  kFlushPersistent = 1U << 9,  ///< IBV_ACCESS_FLUSH_PERSISTENT
  kRelaxedOrdering = 1U << 20
};

/// A key used on behalf of a protection domain for an access. `need` is one of the AccessFlag rights; write
/// and atomic needs require writable pages. `qpn` is the QP for which a peer's key is used: only its own QP
/// may use a type 2 window (IBA 10.6.7.2.3).
struct Target {
  Key key = 0;
  ProtectionDomain domain = 0;
  uint32_t need = kLocalRead;
  uint32_t qpn = 0;
};

/// An operation on eight aligned bytes, atomically.
enum class AtomicOp : uint8_t {
  compare_swap,  ///< memory and operands in the host's byte order
  fetch_add,
  store  ///< the operand's bytes unchanged (ATOMIC WRITE)
};
struct AtomicRequest {
  AtomicOp op = AtomicOp::store;
  uint64_t compare = 0;
  uint64_t operand = 0;  ///< swap, add or store
};

/// Placement of written bytes (IBA A19.2): globally visible, or persistent across a power loss.
enum class FlushKind : uint8_t { global, persistent };

enum class WindowType : uint8_t { type1 = 1, type2 = 2 };  ///< ibv_mw_type

/// A memory window bind, executed in the order of its QP's send queue.
struct WindowBinding {
  Key window = 0;   ///< any key that the window has had: its owner may not know the result of its last bind
  Key new_key = 0;  ///< same index, another variant
  WindowType type = WindowType::type2;
  ProtectionDomain domain = 0;
  uint32_t qpn = 0;
  Key region = 0;  ///< lkey of the region below
  uint64_t va = 0;
  uint64_t length_bytes = 0;  ///< 0: unbind (type 1)
  uint32_t access = 0;
};

enum class Outcome : uint8_t {
  done,
  miss,      ///< a page is absent or not yet writable, or the gate is up: request the fault, stall, try again
  violation  ///< bad key, domain, right or range, or memory that cannot be made resident: never try again
};

/// Why an access is a violation.
enum class Violation : uint8_t {
  none,    ///< key, domain, right and range are valid: the memory itself cannot be had
  key,     ///< names no region or window
  domain,  ///< of another protection domain
  window,  ///< a window that is not bound, or bound to another QP
  right,
  range
};

/// The caller's name for the access that waits for a page. The pager returns it unread in the Resolution.
struct WaiterToken {
  uint64_t bits = 0;

  friend constexpr bool operator==(WaiterToken, WaiterToken) = default;
};

/// A request to make a range resident.
struct FaultRequest {
  Target target;
  uint64_t va = 0;
  uint64_t length_bytes = 0;  ///< the whole remaining range of the message; the pager clips it to the region
  WaiterToken waiter = {};
  bool urgent = false;    ///< a peer waits for it too: it is served first
  bool no_fault = false;  ///< only pages that are mapped already (IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
};

/// The result of one FaultRequest: done (try again now) or violation (give up).
struct Resolution {
  WaiterToken waiter = {};
  Outcome outcome = Outcome::done;
};

class MemoryAccess {
 public:
  virtual ~MemoryAccess() = default;

  /// Checks only key, domain, right and range: done or violation. A length of 0 is always done (IBA
  /// 9.7.4.1.8: a zero-length request carries no valid key).
  [[nodiscard]] virtual Outcome check(const Target& target, uint64_t va, uint64_t length_bytes) = 0;
  /// Returns why `check` refuses an access, for a message to people. Not for the data path.
  [[nodiscard]] virtual Violation explain(const Target& target, uint64_t va, uint64_t length_bytes) {
    return check(target, va, length_bytes) == Outcome::done ? Violation::none : Violation::key;
  }

  /// As `check`, and requires every page of the range to be resident with the permission that `need`
  /// requires: done, miss or violation.
  [[nodiscard]] virtual Outcome probe(const Target& target, uint64_t va, uint64_t length_bytes) = 0;

  /// Copies `from` to va (write) or from va (read). Copies all bytes, or returns an outcome other than done;
  /// some bytes may then have been copied. `need` is the right that is checked.
  [[nodiscard]] virtual Outcome write(const Target& target, uint64_t va, std::span<const uint8_t> from) = 0;
  [[nodiscard]] virtual Outcome read(const Target& target, uint64_t va, std::span<uint8_t> to) = 0;
  /// As `read`, and extends `crc` over the bytes put into `to`, in the same pass: CRC-32 in zlib's form.
  /// `crc` is undefined after an outcome other than done.
  [[nodiscard]] virtual Outcome read_with_crc(const Target& target, uint64_t va, std::span<uint8_t> to,
                                              uint32_t& crc) = 0;

  /// Until the next call, the first `write` that is long enough may also compute this CRC. The caller keeps
  /// ownership; nullptr withdraws the offer.
  virtual void offer_beside_write(CrcBeside* /*sum*/) {}

  /// Executes one atomic operation on eight bytes at an eight-aligned va. It is atomic to the program's own
  /// threads too. `original` receives the previous value.
  [[nodiscard]] virtual Outcome atomic(const Target& target, uint64_t va, const AtomicRequest& request,
                                       uint64_t& original) = 0;

  /// Flushes earlier writes to the range, to the placement `kind`. `target.need` is the right of that kind.
  [[nodiscard]] virtual Outcome flush(const Target& target, uint64_t va, uint64_t length_bytes,
                                      FlushKind kind) = 0;
  /// Returns the whole range of the region or window of a key, for a FLUSH of a region. False for a key that
  /// is not live.
  [[nodiscard]] virtual bool range_of(Key key, uint64_t& va, uint64_t& length_bytes) = 0;

  /// Binds or rebinds a window: done or violation.
  [[nodiscard]] virtual Outcome bind_window(const WindowBinding& binding) = 0;
  /// Invalidates a type 2 window: done, or violation if the key is not a window bound to this domain and QP.
  /// `remote` is true for a peer's SEND with Invalidate.
  [[nodiscard]] virtual Outcome invalidate(Key key, ProtectionDomain domain, uint32_t qpn, bool remote) = 0;

  /// Serves a short fault on the caller's own thread, without waiting. If true, its pages are resident:
  /// repeat the access now; no Resolution follows. If false, call request_fault().
  [[nodiscard]] virtual bool serve_fault(const FaultRequest& /*request*/) { return false; }

  /// Queues a fault for the pager. False if the queue is full: try again on a later turn.
  [[nodiscard]] virtual bool request_fault(const FaultRequest& request) = 0;

  /// Takes available resolutions; returns their number.
  [[nodiscard]] virtual size_t take_resolutions(std::span<Resolution> out) = 0;
};

}  // namespace faultline::odp
