// SPDX-License-Identifier: BSD-3-Clause
// Page fault injection: delays or fails page faults. Interposes on a core's memory. It delays the requests,
// not the resolutions: a resident page would be found by the next access.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "odp/regions/memory_access.hpp"
#include "stack/chaos/random.hpp"

namespace faultline::chaos {

/// What happens to one fault.
struct FaultFate {
  uint64_t delay_ns = 0;
  bool fails = false;
};

struct FaultModelConfig {
  uint64_t delay_ns = 0;  ///< added to the service time of each fault
  double failure = 0;     ///< probability that a fault is resolved, after the delay, as a violation
  uint64_t seed = 1;
  /// Decides each fault, instead of the values above; may be empty.
  std::function<FaultFate(const odp::FaultRequest&)> decide = {};

  [[nodiscard]] bool harmless() const { return delay_ns == 0 && failure <= 0 && !decide; }
};

class FaultModel final : public odp::MemoryAccess {
 public:
  /// `memory` must outlive this object.
  FaultModel(const FaultModelConfig& config, odp::MemoryAccess& memory)
      : config_(config), memory_(memory), random_(config.seed) {
    held_.reserve(kHeld);
    failed_waiters_.reserve(kHeld);
  }

  /// Call once per turn, before the core runs.
  void advance(uint64_t now_ns);
  /// Time at which the next delayed request is due, or the present if an injected failure waits; ~0 if there
  /// is none.
  [[nodiscard]] uint64_t next_deadline() const {
    if (!failed_waiters_.empty()) return now_ns_;
    return held_.empty() ? ~uint64_t{0} : held_.front().due_ns;
  }

  [[nodiscard]] odp::Outcome check(const odp::Target& target, uint64_t va, uint64_t length_bytes) override {
    return memory_.check(target, va, length_bytes);
  }
  [[nodiscard]] odp::Violation explain(const odp::Target& target, uint64_t va,
                                       uint64_t length_bytes) override {
    return memory_.explain(target, va, length_bytes);
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
  [[nodiscard]] odp::Outcome read_with_crc(const odp::Target& target, uint64_t va, std::span<uint8_t> to,
                                           uint32_t& crc) override {
    return memory_.read_with_crc(target, va, to, crc);
  }
  void offer_beside_write(odp::CrcBeside* sum) override { memory_.offer_beside_write(sum); }
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
  // Every fault is delayed, so none is served at once (serve_fault).
  [[nodiscard]] bool request_fault(const odp::FaultRequest& request) override;
  [[nodiscard]] size_t take_resolutions(std::span<odp::Resolution> out) override;

 private:
  static constexpr size_t kHeld = 4096;  // maximum number of delayed faults
  struct Held {
    odp::FaultRequest request;
    uint64_t due_ns = 0;
    uint64_t order = 0;  ///< orders faults with equal `due_ns`
    bool fails = false;
  };
  [[nodiscard]] static bool is_later(const Held& a, const Held& b);
  [[nodiscard]] FaultFate fate_of(const odp::FaultRequest& request);

  const FaultModelConfig config_;
  odp::MemoryAccess& memory_;
  Random random_;
  uint64_t now_ns_ = 0;
  std::vector<Held> held_;  // a min-heap by (due_ns, order); its capacity is reserved once
  uint64_t next_order_ = 0;
  std::vector<odp::WaiterToken> failed_waiters_;  ///< of injected failures that are not taken yet
};

}  // namespace faultline::chaos
