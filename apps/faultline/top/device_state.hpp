// SPDX-License-Identifier: BSD-3-Clause
// The state of the devices of this user's programs at one moment, with rates since an earlier one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stack/status/fault_latencies.hpp"
#include "stack/status/segment_reader.hpp"

namespace faultline::cli {

struct CounterState {
  std::string name;
  std::string unit;
  std::string kind;  ///< "count", "gauge" or "maximum"
  std::string help;
  uint64_t value = 0;
  double per_second = 0;
};

struct QpState {
  status::RowIndex index = 0;
  status::QpRow row;
  double tx_packets_per_s = 0;
  double rx_packets_per_s = 0;
  double retransmitted_per_s = 0;
};

struct RegionState {
  status::RowIndex index = 0;
  status::MrRow row;
  double faults_per_s = 0;
};

struct DeviceState {
  std::string path;  ///< of the segment
  std::string device;
  std::string program;
  std::string port_kind;
  uint32_t pid = 0;
  uint32_t cores = 0;
  bool is_dead = false;
  bool link_up = false;
  uint64_t created_ns = 0;
  uint64_t created_realtime_ns = 0;
  uint64_t updated_ns = 0;  ///< newest of the device's and its QPs' states
  uint64_t pds = 0;
  uint64_t cqs = 0;
  uint64_t srqs = 0;
  uint64_t cm_ids = 0;
  std::vector<std::string> addresses;
  std::vector<CounterState> counters;
  std::vector<QpState> qps;
  std::vector<RegionState> regions;
  std::vector<status::FailureRecord> failures;  ///< newest first

  /// Returns nullptr if the program's version has no such counter.
  [[nodiscard]] const CounterState* counter(std::string_view name) const;
  [[nodiscard]] uint64_t value(std::string_view name) const;
  [[nodiscard]] double per_second(std::string_view name) const;
};

struct TopState {
  uint64_t now_ns = 0;  ///< CLOCK_MONOTONIC
  std::vector<DeviceState> devices;
};

/// Which devices read_state() returns.
struct Choice {
  std::string device;  ///< "": all
  uint32_t pid = 0;    ///< 0: all
  bool dead = false;   ///< those of programs that ended without closing them, instead of the running ones
};

/// Reads all segments of this user; dead ones begin with the newest.
[[nodiscard]] TopState read_state(const Choice& choice);
/// Sets the rates of `state` by the differences from an earlier one.
void set_rates(TopState& state, const TopState& before);

/// Returns the upper bound of the bucket that holds the given part of all services, in us; 0 without one.
[[nodiscard]] uint64_t latency_quantile_us(const std::vector<status::LatencyBucket>& buckets, double part);

}  // namespace faultline::cli
