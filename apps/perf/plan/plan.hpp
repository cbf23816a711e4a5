// SPDX-License-Identifier: BSD-3-Clause
// One measurement, as client and server agree on it, and its result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/perf/plan/options.hpp"
#include "apps/perf/plan/resources.hpp"

namespace faultline::perf {

struct Plan {
  Op op = Op::write;
  Mode mode = Mode::bandwidth;
  uint64_t size_bytes = 64;
  uint32_t qps = 1;
  uint32_t depth = 128;
  uint32_t mtu_bytes = 4096;
  uint8_t ack_timeout = kDefaultAckTimeout;
  RegionKind region = RegionKind::odp;
  Touch touch = Touch::warm;
  bool verify = false;
  uint32_t idle_ms = 0;  ///< pause before each message while the server's program sleeps; 0: ping-pong

  /// Bytes under way per QP that stay in a CPU's second-level cache, as the single buffer of other bandwidth
  /// tests does. The test then measures the port, not the memory.
  static constexpr uint64_t kCachedBytes = uint64_t{512} << 10;
  [[nodiscard]] static uint32_t depth_for(uint64_t size_bytes) {
    constexpr uint64_t kFewest = 8, kMost = 128;
    return static_cast<uint32_t>(
        std::clamp(kCachedBytes / std::max<uint64_t>(size_bytes, 1), kFewest, kMost));
  }

  [[nodiscard]] bool datagrams() const { return op == Op::ud_send; }
  [[nodiscard]] bool needs_receives() const {
    return op == Op::send || op == Op::ud_send || op == Op::write_imm;
  }
  /// Messages in the WR chain of one ibv_post_send; divides `depth`.
  static constexpr uint32_t kMaxBatch = 16;
  [[nodiscard]] uint32_t batch() const {
    uint32_t batch = std::min(kMaxBatch, std::max(1U, depth / 4));
    while (depth % batch != 0) --batch;
    return batch;
  }
  /// Outstanding READs per QP (max_rd_atomic): for a READ plan the posted depth, at least 16 and at most 128.
  [[nodiscard]] uint8_t reads_under_way() const {
    constexpr uint32_t kFewest = 16, kMost = 128;
    return static_cast<uint8_t>(op == Op::read ? std::clamp(depth, kFewest, kMost) : kFewest);
  }
  /// Receives per QP: four times the messages under way, to avoid RNR NAKs; twice as many for long messages.
  [[nodiscard]] uint32_t receive_depth() const {
    constexpr uint32_t kMost = 8192;
    const uint32_t spare = 4 * depth * size_bytes <= 2 * kCachedBytes ? 4 : 2;
    return needs_receives() ? std::min(spare * depth, kMost) : 1;
  }
  /// Returns the layout of the message slots. For cold and prefetched runs each slot has its own pages and a
  /// lap has many slots.
  [[nodiscard]] Geometry geometry() const;
};

[[nodiscard]] nlohmann::json to_json(const Plan& plan);
[[nodiscard]] Plan plan_from(const nlohmann::json& text);

/// Number from which a message's pattern is made: unique per QP, slot and lap.
[[nodiscard]] inline uint64_t message_number(uint32_t qp, uint64_t sequence) {
  return uint64_t{qp} << 40 | sequence;
}

struct Percentiles {
  double p50_us = 0, p99_us = 0, p999_us = 0;
  [[nodiscard]] static Percentiles of(std::vector<uint32_t>& samples_ns);
};

/// Performance of one kind of memory relative to the other, per quad of turns: above 1 if this kind is
/// faster.
struct Beside {
  RegionKind region = RegionKind::pinned;
  size_t quads = 0;
  double p10 = 0, p50 = 0, p90 = 0;
  [[nodiscard]] static Beside of(RegionKind region, std::vector<double> ratios);
};

struct Result {
  Plan plan;
  uint64_t messages = 0;
  uint64_t received = 0;  ///< datagrams received
  double seconds = 0;
  double began_s = 0, ended_s = 0;  ///< CLOCK_MONOTONIC, with preparation and cleanup
  bool has_latency = false;
  Percentiles latency;
  bool has_added = false;  ///< cold: latency that a page fault adds to the warm latency of the same run
  double added_p50_us = 0, added_p99_us = 0;
  uint64_t wrong_bytes = 0;
  uint64_t faults = 0;  ///< page faults served on both sides
  uint64_t rnr_naks = 0;
  uint64_t retransmissions = 0;
  uint64_t timeouts = 0;
  std::optional<Beside> beside;
  double raw_port_packets_per_second = 0;  ///< 0: not measured
  double copy_crc_gb_per_second = 0;

  [[nodiscard]] double messages_per_second() const {
    return seconds > 0 ? static_cast<double>(messages) / seconds : 0;
  }
  [[nodiscard]] double gb_per_second() const {
    return messages_per_second() * static_cast<double>(plan.size_bytes) / 1e9;
  }
  [[nodiscard]] double packets_per_second() const {
    const uint64_t packets = (plan.size_bytes + plan.mtu_bytes - 1) / plan.mtu_bytes;
    return messages_per_second() * static_cast<double>(packets);
  }
};

[[nodiscard]] nlohmann::json to_json(const Result& result);
[[nodiscard]] std::string table_header(const std::vector<Result>& results);
[[nodiscard]] std::string table_row(const Result& result);
/// Prints all results as one table, with the ratios to the limits if those were measured.
void print_table(const std::vector<Result>& results);

}  // namespace faultline::perf
