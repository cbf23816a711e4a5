// SPDX-License-Identifier: BSD-3-Clause
// The engine's side. If the pages are resident, an access costs one key lookup, the bounds check, one load
// per page, and the copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "odp/copy/fault_signals.hpp"
#include "odp/copy/quiescence.hpp"
#include "odp/copy/restartable_copy.hpp"
#include "odp/pager/fault_queue.hpp"
#include "odp/pager/pager.hpp"
#include "odp/pins/pin_table.hpp"
#include "odp/regions/child_table.hpp"
#include "odp/regions/counter_cells.hpp"
#include "odp/regions/key_table.hpp"
#include "odp/regions/memory_domain.hpp"

namespace faultline::odp {

class DomainSession final : public EngineSession {
 public:
  struct Parts {
    const KeyTable& keys;
    Quiescence& quiescence;
    Pager& pager;
    const PinTable& pins;
    const ChildPool& children;
    CounterCells& counters;
  };

  DomainSession(const Parts& parts, Quiescence::Slot& slot, FaultRings& port)
      : parts_(parts), slot_(slot), port_(port) {}
  DomainSession(const DomainSession&) = delete;
  DomainSession& operator=(const DomainSession&) = delete;
  ~DomainSession() override;

  void enter() override;
  void leave() override {
    parts_.quiescence.leave(slot_);
    signals_.leave();
  }
  void page_out(Key key, uint64_t va) override;
  [[nodiscard]] bool has_outstanding_faults() const override { return outstanding_ != 0; }
  [[nodiscard]] bool should_yield() const override {
    return outstanding_ != 0 && !parts_.pager.is_realtime();
  }

  [[nodiscard]] Outcome check(const Target& target, uint64_t va, uint64_t length_bytes) override;
  [[nodiscard]] Violation explain(const Target& target, uint64_t va, uint64_t length_bytes) override;
  [[nodiscard]] Outcome probe(const Target& target, uint64_t va, uint64_t length_bytes) override;
  [[nodiscard]] Outcome write(const Target& target, uint64_t va, std::span<const uint8_t> from) override;
  [[nodiscard]] Outcome read(const Target& target, uint64_t va, std::span<uint8_t> to) override;
  [[nodiscard]] Outcome read_with_crc(const Target& target, uint64_t va, std::span<uint8_t> to,
                                      uint32_t& crc) override;
  void offer_beside_write(CrcBeside* sum) override { beside_write_ = sum; }
  [[nodiscard]] Outcome atomic(const Target& target, uint64_t va, const AtomicRequest& request,
                               uint64_t& original) override;
  [[nodiscard]] Outcome flush(const Target& target, uint64_t va, uint64_t length_bytes,
                              FlushKind kind) override;
  [[nodiscard]] bool range_of(Key key, uint64_t& va, uint64_t& length_bytes) override;
  [[nodiscard]] Outcome bind_window(const WindowBinding& binding) override;
  [[nodiscard]] Outcome invalidate(Key key, ProtectionDomain domain, uint32_t qpn, bool remote) override;
  [[nodiscard]] bool serve_fault(const FaultRequest& request) override;
  [[nodiscard]] bool request_fault(const FaultRequest& request) override;
  [[nodiscard]] size_t take_resolutions(std::span<Resolution> out) override;

 private:
  /// An access that was allowed: where the bytes are in this process.
  struct Access {
    Region* region;
    uint64_t address;
    PageRange pages;
  };

  /// A region and an address in the region's address space.
  struct Place {
    Region* region = nullptr;
    uint64_t va = 0;
  };
  /// Checks key, domain, right and range, through the window if the key is a window's. Without a region:
  /// refused.
  [[nodiscard]] Place find(const Target& target, uint64_t va, uint64_t length_bytes) const;
  [[nodiscard]] Place find_in_window(const Target& target, uint64_t va, uint64_t length_bytes) const;
  [[nodiscard]] void* fast_translate(const Target& target, uint64_t va, uint64_t length_bytes,
                                     bool write) const;
  [[nodiscard]] Outcome probe_slow(const Target& target, uint64_t va, uint64_t length_bytes);
  [[nodiscard]] Outcome write_slow(const Target& target, uint64_t va, std::span<const uint8_t> from);
  [[nodiscard]] Outcome read_slow(const Target& target, uint64_t va, std::span<uint8_t> to);
  /// Checks key, domain, right, range and gate of an access.
  [[nodiscard]] Outcome admit(const Target& target, uint64_t va, uint64_t length_bytes, Place& place) const;
  /// Checks the pages of a piece that lies in one region.
  [[nodiscard]] Outcome open(Region& region, uint64_t va, uint64_t length_bytes, bool write, Access& access);
  /// Checks and copies by attempt(), repeated until no revocation intervened (restartable_copy.hpp).
  template <typename Attempt>
  [[nodiscard]] Outcome retry_while_revoked(Attempt attempt);
  /// Opens an admitted access and calls touch(access, first, length_bytes) for each piece: one piece, or in
  /// an implicit region one for each child. touch returns the bytes copied, or kRevoked.
  template <typename Touch>
  [[nodiscard]] Outcome for_each_piece(const Place& place, uint64_t length_bytes, bool write, Touch touch);
  [[nodiscard]] Outcome after_copy_fault(const Access& access);
  /// For memory that cannot be pinned: done if its pages are still in memory.
  [[nodiscard]] Outcome check_reclaimed_pages(const Access& access);
  [[nodiscard]] Outcome forget(const Access& access);
  /// Copies each piece by copy(to, from, length_bytes), which returns the bytes copied, or kRevoked.
  template <typename Copy>
  [[nodiscard]] Outcome read_by(const Target& target, uint64_t va, std::span<uint8_t> to, Copy copy);
  [[nodiscard]] FaultRequest for_pager(const FaultRequest& asked) const;
  /// Moves the start of a request to the first missing page.
  void trim_to_first_miss(FaultRequest& request) const;

  const Parts parts_;
  Quiescence::Slot& slot_;
  FaultRings& port_;
  CopyTicket ticket_;     ///< of the turn, renewed when it is revoked
  bool revoked_ = false;  ///< the copy in progress has to be checked and repeated
  TurnSignals signals_;
  bool gated_ = false;              ///< latched for the turn
  bool tracks_use_ = false;         ///< likewise
  bool reads_files_ = false;        ///< likewise
  bool fast_path_allowed_ = false;  ///< none of these three is set
  CrcBeside* beside_write_ = nullptr;
  size_t outstanding_ = 0;
};

}  // namespace faultline::odp
