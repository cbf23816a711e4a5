// SPDX-License-Identifier: BSD-3-Clause
// Rate control of a QP. Each QP has one object if congestion control is configured, created when the QP is
// connected. Without one, a QP sends as fast as the port accepts packets. Owner: the core's thread.
#pragma once

#include <cstdint>
#include <memory>

#include "stack/transport/shared/types.hpp"

namespace faultline::transport {

enum class CongestionAlgorithm : uint8_t { none, dcqcn, swift };

/// DCQCN parameters (Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015), with the
/// published values.
struct DcqcnConfig {
  double gain = 1.0 / 256;                    ///< g
  uint64_t alpha_timer_ns = 55'000;           ///< period of the decay of alpha, counted from the last CNP
  uint64_t increase_timer_ns = 55'000;        ///< T
  uint64_t increase_bytes = 10 << 20;         ///< B
  uint32_t fast_recovery_rounds = 5;          ///< F
  uint64_t additive_bytes_per_s = 5'000'000;  ///< R_AI, 40 Mb/s
  uint64_t hyper_bytes_per_s = 50'000'000;    ///< R_HAI
  uint64_t min_bytes_per_s = 1'250'000;
  /// At this rate a flow is no longer limited.
  uint64_t line_bytes_per_s = 12'500'000'000;
};

/// Parameters of a Swift-like algorithm (Kumar et al., SIGCOMM 2020). It steers the delay towards a target by
/// additive increase and multiplicative decrease.
struct SwiftConfig {
  uint64_t target_delay_ns = 50'000;
  /// Added to the target of a flow with a window of 0.1 packets or less. Larger windows have less of it,
  /// those of 100 packets nothing. 0: one target for all.
  uint64_t scaling_range_ns = 50'000;
  double additive_packets = 1.0;  ///< per round trip
  double beta = 0.8;
  double max_decrease = 0.5;
  double initial_window_packets = 16;
  double min_window_packets = 0.01;
  double max_window_packets = 256;
  /// Minimum rate, whatever the round trip: each packet is sent well before the peer's timeout, which would
  /// retransmit needlessly.
  uint64_t min_bytes_per_s = 1'250'000;
};

struct CongestionConfig {
  CongestionAlgorithm algorithm = CongestionAlgorithm::none;
  uint64_t cnp_interval_ns = 50'000;  ///< minimum interval between a receiver's CNPs, for each QP
  DcqcnConfig dcqcn;
  SwiftConfig swift;
};

class RateControl {
 public:
  static constexpr uint64_t kUnlimited = 0;
  static constexpr uint32_t kUnlimitedPackets = UINT32_MAX;

  virtual ~RateControl() = default;
  virtual void on_sent(uint32_t bytes, TimeNs now) = 0;
  virtual void on_round_trip(uint64_t rtt_ns, TimeNs now) = 0;
  virtual void on_notification(TimeNs now) = 0;  ///< a CNP
  virtual void on_loss(TimeNs now) = 0;
  /// Maximum number of packets in flight, at least 1.
  [[nodiscard]] virtual uint32_t most_in_flight_packets() const { return kUnlimitedPackets; }
  /// Requested interval between acknowledgements, in packets.
  [[nodiscard]] virtual uint32_t ack_every_packets() const { return ~0U; }
  /// Returns the allowed rate in bytes per second, or kUnlimited.
  [[nodiscard]] virtual uint64_t rate(TimeNs now) = 0;
};

/// Creates the object of the configured algorithm; nullptr for `none`. May throw std::bad_alloc.
[[nodiscard]] std::unique_ptr<RateControl> make_rate_control(const CongestionConfig& config,
                                                             uint32_t mtu_bytes);

}  // namespace faultline::transport
