// SPDX-License-Identifier: BSD-3-Clause
// What a data path asks of memory that may not be there. One object per engine, used by its owner thread
// only. Nothing here blocks, throws or allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "odp/regions/crc_beside.hpp"

namespace faultline::odp {

/// lkey and rkey are one number: 24-bit index, 8-bit variant.
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
/// and atomic needs ask for pages that are writable. `qpn` is the QP for which a peer's key is used: a type 2
/// window is open to its own QP alone (IBA 10.6.7.2.3).
struct Target {
  Key key = 0;
  ProtectionDomain domain = 0;
  uint32_t need = kLocalRead;
  uint32_t qpn = 0;
};

/// What is done to eight aligned bytes at once.
enum class AtomicOp : uint8_t {
  compare_swap,  ///< memory and operands in the host's byte order
  fetch_add,
  store  ///< the operand's bytes as they stand (ATOMIC WRITE)
};
struct AtomicRequest {
  AtomicOp op = AtomicOp::store;
  uint64_t compare = 0;
  uint64_t operand = 0;  ///< swap, add or store
};

/// How far written bytes have to have got (IBA A19.2): seen by everyone, or kept across a power loss.
enum class FlushKind : uint8_t { global, persistent };

enum class WindowType : uint8_t { type1 = 1, type2 = 2 };  ///< ibv_mw_type

/// A bind of a memory window, in the order of its QP's send queue.
struct WindowBinding {
  Key window = 0;   ///< any key that the window has had: its owner may not know which bind was its last
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
  miss,  ///< a page is not there, or not writable yet, or the gate is up: request the fault, stall, try again
  violation  ///< bad key, domain, right or range, or memory that cannot be had: never try again
};

/// "Make this resident." `waiter` is the caller's own token, given back in the Resolution.
struct FaultRequest {
  Target target;
  uint64_t va = 0;
  uint64_t length_bytes =
      0;  ///< the whole remaining range of the message; clipped to the region by the pager
  uint64_t waiter = 0;
  bool urgent = false;    ///< a peer waits for it too: it goes first
  bool no_fault = false;  ///< only pages that are mapped already (IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
};

/// The answer to one FaultRequest: done (try again now) or violation (give up).
struct Resolution {
  uint64_t waiter = 0;
  Outcome outcome = Outcome::done;
};

class MemoryAccess {
 public:
  virtual ~MemoryAccess() = default;

  /// Key, domain, right and range alone: done or violation. A length of 0 is always done (IBA 9.7.4.1.8: a
  /// zero-length request carries no valid key).
  [[nodiscard]] virtual Outcome check(const Target& target, uint64_t va, uint64_t length_bytes) = 0;

  /// As `check`, and every page of the range is resident with the permission that `need` asks for: done, miss
  /// or violation.
  [[nodiscard]] virtual Outcome probe(const Target& target, uint64_t va, uint64_t length_bytes) = 0;

  /// Copies `from` to va (write) or from va (read). All bytes or an outcome that is not done, after which
  /// some bytes may already have been copied. `need` decides the right that is checked.
  [[nodiscard]] virtual Outcome write(const Target& target, uint64_t va, std::span<const uint8_t> from) = 0;
  [[nodiscard]] virtual Outcome read(const Target& target, uint64_t va, std::span<uint8_t> to) = 0;
  /// As `read`, and `crc` goes on over the bytes that were put into `to`, in the same pass: CRC-32 in zlib's
  /// form. After an outcome that is not done it is worth nothing.
  [[nodiscard]] virtual Outcome read_with_crc(const Target& target, uint64_t va, std::span<uint8_t> to,
                                              uint32_t& crc) = 0;

  /// Until the next call the first `write` that is long enough may take this sum along, which stays the
  /// caller's; nullptr: no more.
  virtual void offer_beside_write(CrcBeside* /*sum*/) {}

  /// One atomic operation on eight bytes at an eight-aligned va, indivisible for the program's own threads
  /// too. `original` gets what was there before.
  [[nodiscard]] virtual Outcome atomic(const Target& target, uint64_t va, const AtomicRequest& request,
                                       uint64_t& original) = 0;

  /// Makes what was written to the range reach as far as `kind` says. `target.need` is the right of that
  /// kind.
  [[nodiscard]] virtual Outcome flush(const Target& target, uint64_t va, uint64_t length_bytes,
                                      FlushKind kind) = 0;
  /// The whole range of the region or window that a key stands for, for a FLUSH of a region. False for a key
  /// that is not live.
  [[nodiscard]] virtual bool range_of(Key key, uint64_t& va, uint64_t& length_bytes) = 0;

  /// Binds or rebinds a window: done or violation.
  [[nodiscard]] virtual Outcome bind_window(const WindowBinding& binding) = 0;
  /// Invalidates a type 2 window: done, or violation where the key is not one bound to this domain and QP. A
  /// peer's SEND with invalidate says `remote`.
  [[nodiscard]] virtual Outcome invalidate(Key key, ProtectionDomain domain, uint32_t qpn, bool remote) = 0;

  /// Queues a fault for the pager. False where the queue is full: try again on a later turn.
  [[nodiscard]] virtual bool request_fault(const FaultRequest& request) = 0;

  /// Takes answers that have come; returns how many.
  [[nodiscard]] virtual size_t take_resolutions(std::span<Resolution> out) = 0;
};

}  // namespace faultline::odp
