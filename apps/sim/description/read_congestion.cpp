// SPDX-License-Identifier: BSD-3-Clause
#include "apps/sim/description/read_congestion.hpp"

#include <array>
#include <cmath>
#include <string_view>

namespace faultline::fabric {
namespace {

constexpr uint64_t kBytesPerMbit = 125'000;

void read_rate(CheckedTable& reader, std::string_view key, uint64_t& bytes_per_s) {
  reader.read(key, bytes_per_s, 1, 10'000'000, kBytesPerMbit);
}

void read_us(CheckedTable& reader, std::string_view key, uint64_t& time_ns, uint64_t least) {
  reader.read(key, time_ns, least, 10'000'000, 1000);
}

void read_dcqcn(CheckedTable reader, transport::DcqcnConfig& dcqcn) {
  dcqcn.gain = 1.0 / static_cast<double>(reader.number("gain_divisor", 256, 1, 1U << 20));
  read_us(reader, "alpha_timer_us", dcqcn.alpha_timer_ns, 1);
  read_us(reader, "increase_timer_us", dcqcn.increase_timer_ns, 1);
  reader.read("increase_bytes", dcqcn.increase_bytes, 1, uint64_t{1} << 40);
  reader.read("fast_recovery_rounds", dcqcn.fast_recovery_rounds, 1, 1000);
  read_rate(reader, "additive_mbit_per_s", dcqcn.additive_bytes_per_s);
  read_rate(reader, "hyper_mbit_per_s", dcqcn.hyper_bytes_per_s);
  read_rate(reader, "min_mbit_per_s", dcqcn.min_bytes_per_s);
  read_rate(reader, "line_mbit_per_s", dcqcn.line_bytes_per_s);
  reader.finish();
}

void read_swift(CheckedTable reader, transport::SwiftConfig& swift) {
  constexpr double kMostPackets = 65'536;
  read_us(reader, "target_delay_us", swift.target_delay_ns, 1);
  read_us(reader, "scaling_range_us", swift.scaling_range_ns, 0);
  const auto packets = [&](std::string_view key, double& value) {
    value = reader.real(key, value, 0.001, kMostPackets);
  };
  packets("initial_window_packets", swift.initial_window_packets);
  packets("max_window_packets", swift.max_window_packets);
  packets("additive_packets", swift.additive_packets);
  read_rate(reader, "min_mbit_per_s", swift.min_bytes_per_s);
  const auto percent = [&](std::string_view key, double& value) {
    value =
        static_cast<double>(reader.number(key, static_cast<uint64_t>(std::lround(value * 100)), 1, 99)) / 100;
  };
  percent("beta_percent", swift.beta);
  percent("max_decrease_percent", swift.max_decrease);
  reader.finish();
}

}  // namespace

transport::CongestionConfig read_congestion(CheckedTable& root, uint64_t line_bytes_per_s) {
  CheckedTable reader = root.table("congestion");
  transport::CongestionConfig congestion;
  constexpr std::array<std::string_view, 3> kAlgorithms{"none", "dcqcn", "swift"};
  reader.read("algorithm", congestion.algorithm, kAlgorithms);
  read_us(reader, "cnp_interval_us", congestion.cnp_interval_ns, 0);
  congestion.dcqcn.line_bytes_per_s = line_bytes_per_s;
  read_dcqcn(reader.table("dcqcn"), congestion.dcqcn);
  read_swift(reader.table("swift"), congestion.swift);
  reader.finish();
  return congestion;
}

}  // namespace faultline::fabric
