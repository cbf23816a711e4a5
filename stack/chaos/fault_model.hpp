// SPDX-License-Identifier: BSD-3-Clause
// A memory whose pages come late, or never: stands between a core and its memory.
#pragma once

#include <array>
#include <cstdint>

#include "odp/memory_access.hpp"
#include "stack/chaos/random.hpp"

namespace faultline::chaos {

struct FaultModelConfig {
  uint64_t delay_ns = 0;  ///< added to each fault's service
  double failure = 0;     ///< probability that a fault that was served is answered as one that cannot be
  uint64_t seed = 1;

  [[nodiscard]] bool harmless() const { return delay_ns == 0 && failure <= 0; }
};

class FaultModel final : public odp::MemoryAccess {
 public:
  /// `memory` outlives it.
  FaultModel(const FaultModelConfig& config, odp::MemoryAccess& memory)
      : config_(config), memory_(memory), random_(config.seed) {}

  /// Once a turn, before the core looks for answers.
  void advance(uint64_t now_ns);
  /// When the next answer that is held back is due; ~0 if none is.
  [[nodiscard]] uint64_t next_deadline() const { return held_ == 0 ? ~uint64_t{0} : at(first_).due_ns; }

  [[nodiscard]] odp::Outcome check(const odp::Target& target, uint64_t va, uint64_t length_bytes) override {
    return memory_.check(target, va, length_bytes);
  }
  [[nodiscard]] odp::Outcome probe(const odp::Target& target, uint64_t va, uint64_t length_bytes) override {
    return memory_.probe(target, va, length_bytes);
  }
  [[nodiscard]] odp::Outcome write(const odp::Target& target, uint64_t va,
                                   std::span<const uint8_t> from) override {
    return memory_.write(target, va, from);
  }
  [[nodiscard]] odp::Outcome read(const odp::Target& target, uint64_t va, std::span<uint8_t> to) override {
    return memory_.read(target, va, to);
  }
  [[nodiscard]] odp::Outcome atomic(const odp::Target& target, uint64_t va, const odp::AtomicRequest& request,
                                    uint64_t& original) override {
    return memory_.atomic(target, va, request, original);
  }
  [[nodiscard]] odp::Outcome flush(const odp::Target& target, uint64_t va, uint64_t length_bytes,
                                   odp::FlushKind kind) override {
    return memory_.flush(target, va, length_bytes, kind);
  }
  [[nodiscard]] bool range_of(odp::Key key, uint64_t& va, uint64_t& length_bytes) override {
    return memory_.range_of(key, va, length_bytes);
  }
  [[nodiscard]] odp::Outcome bind_window(const odp::WindowBinding& binding) override {
    return memory_.bind_window(binding);
  }
  [[nodiscard]] odp::Outcome invalidate(odp::Key key, odp::ProtectionDomain domain, uint32_t qpn,
                                        bool remote) override {
    return memory_.invalidate(key, domain, qpn, remote);
  }
  [[nodiscard]] bool request_fault(const odp::FaultRequest& request) override;
  [[nodiscard]] size_t take_resolutions(std::span<odp::Resolution> out) override;

 private:
  static constexpr uint32_t kHeld = 4096;  // a power of two; no more faults than that are asked for at once
  struct Held {
    odp::Resolution resolution;
    uint64_t due_ns = 0;
  };
  [[nodiscard]] Held& at(uint32_t position) { return ring_[position % kHeld]; }
  [[nodiscard]] const Held& at(uint32_t position) const { return ring_[position % kHeld]; }

  const FaultModelConfig config_;
  odp::MemoryAccess& memory_;
  Random random_;
  uint64_t now_ns_ = 0;
  uint32_t asked_ = 0;  ///< faults whose answers have not been given
  uint32_t first_ = 0;
  uint32_t held_ = 0;
  std::array<Held, kHeld> ring_;
};

}  // namespace faultline::chaos
