// SPDX-License-Identifier: BSD-3-Clause
// Loss recovery state of a requester: packets received after a gap, retransmitted packets, and the response
// time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "stack/transport/shared/types.hpp"
#include "stack/wire/packet/headers.hpp"

namespace faultline::transport {

/// A set of PSNs within a window of kPsns from the oldest unacknowledged PSN.
class PsnSet {
 public:
  static constexpr uint32_t kPsns = wire::SackEth::kPackets;

  [[nodiscard]] bool has(wire::Psn psn) const { return (word(psn) >> (psn.value() % 64) & 1) != 0; }
  void add(wire::Psn psn) { word(psn) |= uint64_t{1} << (psn.value() % 64); }
  void remove(wire::Psn psn) { word(psn) &= ~(uint64_t{1} << (psn.value() % 64)); }
  void clear() { words_ = {}; }
  [[nodiscard]] bool empty() const { return words_ == std::array<uint64_t, kPsns / 64>{}; }
  /// Removes the PSNs of [from, to) as the window advances.
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

/// The smoothed round trip and its deviation, as in RFC 6298.
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
  /// Samples a packet that a probe repeated, measured from its first transmission. If the packet was lost,
  /// the sample is longer than the round trip. If the response was only slow, no other sample would show it.
  void sample_repeated(uint64_t rtt_ns) {
    if (smoothed_ns_ == 0) return sample(rtt_ns);
    if (rtt_ns > smoothed_ns_) smoothed_ns_ += (rtt_ns - smoothed_ns_) / 8;
  }
  [[nodiscard]] bool known() const { return smoothed_ns_ != 0; }
  [[nodiscard]] uint64_t smoothed_ns() const { return smoothed_ns_; }  ///< 0: no sample yet
  /// Upper estimate of the response time.
  [[nodiscard]] uint64_t patience_ns() const { return smoothed_ns_ + 4 * deviation_ns_; }

 private:
  uint64_t smoothed_ns_ = 0;
  uint64_t deviation_ns_ = 0;
};

/// Members that every message uses are first.
struct RecoveryState {
  TimeNs probe_deadline_ns = kNever;
  RoundTrip round_trip;
  bool timing = false;          ///< `timed_psn` was sent at `timed_ns` (Karn: no sample from retransmissions)
  bool timed_repeated = false;  ///< the timed packet was repeated by a probe
  bool probe_out = false;
  uint8_t probes = 0;      ///< since the last progress
  bool sets_used = false;  ///< `received` or `resent` may be non-empty
  wire::Psn timed_psn;
  /// With rate control: the last PSN whose answer was requested since the send position last moved back.
  wire::Psn asked_psn;
  TimeNs timed_ns = 0;
  /// T_tr of IBA 9.7.6.1.3: the program's timeout, or CoreConfig::min_ack_timeout_ns if that is longer. 0:
  /// none.
  TimeNs ack_timeout_ns = 0;

  wire::Psn probe_psn;
  wire::Psn probe_sent_end;  ///< the next new PSN when the probe was sent

  wire::Psn lost_end;        ///< packets before it that are in neither set must be retransmitted
  wire::Psn round_end;       ///< the next new PSN when the round's last packet was sent
  wire::Psn gap_psn;         ///< gap PSN of the newest selective acknowledgement
  uint32_t gap_reports = 0;  ///< consecutive selective acknowledgements of that gap

  TimeNs notified_ns = 0;      ///< time of the peer's last stall notification
  TimeNs silent_since_ns = 0;  ///< the peer's last answer, or the first packet; valid once a timeout expired

  uint32_t window_progress_packets = 0;  ///< acknowledged since the window was cut or widened

  PsnSet received;  ///< after the gap, by the peer's last selective acknowledgement
  PsnSet resent;    ///< retransmitted in this round and not known to be lost again

  /// True if moving the window to `to` needs no recovery work: it ends no measurement, answers no probe, and
  /// no set has entries.
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
