// SPDX-License-Identifier: BSD-3-Clause
// What a requester knows of losses: which packets behind a gap have arrived, which it has sent again, and how
// long an answer takes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "stack/transport/shared/types.hpp"
#include "stack/wire/packet/headers.hpp"

namespace faultline::transport {

/// A set of PSNs of one window: those within kPsns of the oldest one that is not acknowledged.
class PsnSet {
 public:
  static constexpr uint32_t kPsns = wire::SackEth::kPackets;

  [[nodiscard]] bool has(wire::Psn psn) const { return (word(psn) >> (psn.value() % 64) & 1) != 0; }
  void add(wire::Psn psn) { word(psn) |= uint64_t{1} << (psn.value() % 64); }
  void remove(wire::Psn psn) { word(psn) &= ~(uint64_t{1} << (psn.value() % 64)); }
  void clear() { words_ = {}; }
  [[nodiscard]] bool empty() const { return words_ == std::array<uint64_t, kPsns / 64>{}; }
  /// The window moves on: what was of [from, to) makes room.
  void forget(wire::Psn from, wire::Psn to) {
    if (empty()) return;
    if (to.distance_from(from) >= static_cast<int32_t>(kPsns)) return clear();
    for (; from != to; from = from.next()) remove(from);
  }

 private:
  [[nodiscard]] uint64_t& word(wire::Psn psn) { return words_[psn.value() % kPsns / 64]; }
  [[nodiscard]] uint64_t word(wire::Psn psn) const { return words_[psn.value() % kPsns / 64]; }

  std::array<uint64_t, kPsns / 64> words_{};
};

/// The smoothed round trip and its deviation, as RFC 6298 keeps them.
class RoundTrip {
 public:
  void sample(uint64_t rtt_ns) {
    if (smoothed_ns_ == 0) {
      smoothed_ns_ = rtt_ns;
      deviation_ns_ = rtt_ns / 2;
      return;
    }
    const uint64_t error_ns = rtt_ns > smoothed_ns_ ? rtt_ns - smoothed_ns_ : smoothed_ns_ - rtt_ns;
    deviation_ns_ = deviation_ns_ - deviation_ns_ / 4 + error_ns / 4;
    smoothed_ns_ = smoothed_ns_ - smoothed_ns_ / 8 + rtt_ns / 8;
  }
  /// Of a packet that a probe repeated, since it first went out: longer than the round trip where it was
  /// lost, but where the answer was only slow, nothing else would ever tell.
  void sample_repeated(uint64_t rtt_ns) {
    if (smoothed_ns_ == 0) return sample(rtt_ns);
    if (rtt_ns > smoothed_ns_) smoothed_ns_ += (rtt_ns - smoothed_ns_) / 8;
  }
  [[nodiscard]] bool known() const { return smoothed_ns_ != 0; }
  /// Longer than an answer takes.
  [[nodiscard]] uint64_t patience_ns() const { return smoothed_ns_ + 4 * deviation_ns_; }

 private:
  uint64_t smoothed_ns_ = 0;
  uint64_t deviation_ns_ = 0;
};

/// What every message touches comes first.
struct RecoveryState {
  TimeNs probe_deadline_ns = kNever;
  RoundTrip round_trip;
  bool timing = false;  ///< `timed_psn` went out at `timed_ns` (Karn: no sample of what was sent again)
  bool timed_repeated = false;  ///< but by a probe
  bool probe_out = false;
  uint8_t probes = 0;      ///< since the last progress
  bool sets_used = false;  ///< `received` or `resent` may have some
  wire::Psn timed_psn;
  TimeNs timed_ns = 0;

  wire::Psn probe_psn;
  wire::Psn probe_sent_end;  ///< the next new PSN when the probe went out

  wire::Psn lost_end;        ///< packets before it that are in neither set are to be sent again
  wire::Psn round_end;       ///< what was the next new PSN when the round's last packet went out
  wire::Psn gap_psn;         ///< of the newest map
  uint32_t gap_reports = 0;  ///< maps in a row about it

  PsnSet received;  ///< behind the gap, as the peer's last map says
  PsnSet resent;    ///< in this round: sent again and not known to be lost once more

  /// That the window moves to `to` tells nothing but that: it ends no measurement, answers no probe, and
  /// nothing is known of the packets before.
  [[nodiscard]] bool is_quiet_before(wire::Psn to) const {
    return !sets_used && !probe_out && probes == 0 && !(timing && timed_psn < to);
  }
  void note_received(wire::Psn psn) {
    sets_used = true;
    received.add(psn);
  }
  void note_resent(wire::Psn psn) {
    sets_used = true;
    resent.add(psn);
  }
  void forget(wire::Psn from, wire::Psn to) {
    if (!sets_used) return;
    received.forget(from, to);
    resent.forget(from, to);
    sets_used = !received.empty() || !resent.empty();
  }
};

}  // namespace faultline::transport
