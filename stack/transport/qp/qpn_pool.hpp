// SPDX-License-Identifier: BSD-3-Clause
// QPN allocator of a core. It reuses each QPN as late as possible. A peer may still know its previous QP
// (TIME_WAIT, IBA 12.9.8.4), and packets to that QP may still be in flight.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "stack/transport/qp/config.hpp"

namespace faultline::transport {

/// A QPN consists of a slot of the core's table (low bits) and a generation (kQpnBlock). Unused slots are
/// allocated first, then the slot that has been free for longest, with its next generation. A number is thus
/// reused only after all others, except those of live QPs.
class QpnPool {
 public:
  QpnPool(const CoreConfig& config, uint32_t table_slots)
      : first_qpn_(config.first_qpn),
        last_qpn_(config.last_qpn),
        slots_(slots_of_core(config, table_slots)),
        core_count_(config.core_count),
        core_index_(config.core_index) {
    // The seed selects both: with few generations alone, successive processes would often start with the same
    // QPNs.
    const uint32_t generations = (last_qpn_ + 1 - first_qpn_) / kQpnBlock;
    first_generation_ = first_qpn_ + config.qpn_seed % generations * kQpnBlock;
    first_slot_ = slots_ == 0 ? 0 : config.qpn_seed / generations % slots_;
  }

  /// Reserves memory for give_back(). Throws std::bad_alloc; take() and give_back() do not.
  void reserve() {
    if (is_fresh() && used_slots_ == ring_.size()) grow();
  }
  /// Returns the QPN for the next QP; nullopt if all slots are in use. Call after reserve().
  [[nodiscard]] std::optional<uint32_t> peek() const {
    if (is_fresh())
      return first_generation_ + (first_slot_ + used_slots_) % slots_ * core_count_ + core_index_;
    if (quarantined_ == 0) return std::nullopt;
    const uint32_t next = ring_[head_ & mask()] + kQpnBlock;
    return next <= last_qpn_ ? next : next - (last_qpn_ + 1 - first_qpn_);
  }
  /// Allocates the QPN that peek() returned.
  void take() {
    if (is_fresh()) {
      ++used_slots_;
      return;
    }
    ++head_;
    --quarantined_;
  }
  void give_back(uint32_t qpn) { ring_[(head_ + quarantined_++) & mask()] = qpn; }

 private:
  static uint32_t slots_of_core(const CoreConfig& config, uint32_t table_slots) {
    return table_slots <= config.core_index ? 0
                                            : (table_slots - config.core_index - 1) / config.core_count + 1;
  }
  [[nodiscard]] bool is_fresh() const { return used_slots_ < slots_; }
  [[nodiscard]] uint32_t mask() const { return static_cast<uint32_t>(ring_.size()) - 1; }
  void grow() {
    std::vector<uint32_t> larger(ring_.empty() ? 16 : ring_.size() * 2);
    for (uint32_t i = 0; i < quarantined_; ++i) larger[i] = ring_[(head_ + i) & mask()];
    ring_.swap(larger);
    head_ = 0;
  }

  const uint32_t first_qpn_, last_qpn_, slots_, core_count_, core_index_;
  uint32_t first_generation_ = 0;
  uint32_t first_slot_ = 0;
  uint32_t used_slots_ = 0;  ///< slots used so far
  uint32_t head_ = 0;        ///< ring index of the QPN that has been free for longest
  uint32_t quarantined_ = 0;
  std::vector<uint32_t> ring_;  ///< size is a power of two, with room for every used slot
};

}  // namespace faultline::transport
