// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/config/config_keys.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

namespace faultline::glue {
namespace {

using Key = std::string_view;

constexpr Key kRoot[] = {"eal", "odp", "transport", "log", "switch", "device"};
constexpr Key kEal[] = {"huge_pages", "memory_mib", "lcores", "extra_args"};
constexpr Key kLog[] = {"level", "file"};
constexpr Key kSwitch[] = {"exception", "program_rate_mbps", "uplink_rate_mbps"};
constexpr Key kOdp[] = {"pin_budget_mib",
                        "monitor",
                        "realtime_pager",
                        "watch_files",
                        "allow_unguarded",
                        "unpinned_classic",
                        "pager_threads",
                        "implicit_children",
                        "stall",
                        "answer_deadline_us",
                        "park_deadline_us",
                        "unreliable_deadline_us",
                        "park_packets_per_qp",
                        "park_packets_total",
                        "rnr_timer_code"};
constexpr Key kTransport[] = {
    "window_packets",    "selective_ack",  "early_probe",  "credits", "reorder_packets_per_qp",
    "ack_every_packets", "rxe_flush_icrc", "udp_checksum", "icrc",    "congestion"};
constexpr Key kCongestion[] = {"algorithm", "cnp_interval_us", "dcqcn", "swift"};
constexpr Key kDcqcn[] = {"gain_divisor",     "alpha_timer_us",       "increase_timer_us",
                          "increase_bytes",   "fast_recovery_rounds", "additive_mbit_per_s",
                          "hyper_mbit_per_s", "min_mbit_per_s",       "line_mbit_per_s"};
constexpr Key kSwift[] = {"target_delay_us",    "scaling_range_us",    "initial_window_packets",
                          "max_window_packets", "additive_packets",    "min_mbit_per_s",
                          "beta_percent",       "max_decrease_percent"};
constexpr Key kDevice[] = {"name",
                           "ip",
                           "mac",
                           "mtu",
                           "vlan",
                           "vlan_priority",
                           "dscp",
                           "gateway",
                           "route",
                           "progress",
                           "lcore",
                           "lcores",
                           "vendor_id",
                           "vendor_part_id",
                           "firmware",
                           "active_width",
                           "active_speed",
                           "device_memory_kib",
                           "min_ack_timeout_ms",
                           "capture",
                           "publish",
                           "port",
                           "chaos"};
constexpr Key kRoute[] = {"to", "via"};
constexpr Key kPort[] = {"kind", "role", "socket", "ring_size", "queues", "wire",
                         "side", "ip",   "share",  "interface", "address"};
constexpr Key kChaos[] = {"direction",      "loss",          "reorder",  "duplicate",
                          "corrupt",        "ecn_mark",      "delay_us", "delay_jitter_us",
                          "fault_delay_us", "fault_failure", "seed"};

constexpr std::array<ConfigTable, 13> kTables{{{"", kRoot},
                                               {"eal", kEal},
                                               {"log", kLog},
                                               {"switch", kSwitch},
                                               {"odp", kOdp},
                                               {"transport", kTransport},
                                               {"transport.congestion", kCongestion},
                                               {"transport.congestion.dcqcn", kDcqcn},
                                               {"transport.congestion.swift", kSwift},
                                               {"device", kDevice},
                                               {"device.route", kRoute},
                                               {"device.port", kPort},
                                               {"device.chaos", kChaos}}};

std::string heading_of(std::string_view table) {
  if (table.empty()) return "the top of the file";
  const bool is_list = table == "device" || table == "device.route";
  return fmt::format("{}{}{}", is_list ? "[[" : "[", table, is_list ? "]]" : "]");
}

/// Returns the edit distance: the number of letters to change, add, omit or swap with the next (optimal
/// string alignment).
size_t distance_of(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] = std::min(
          {cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  return cost[a.size()][b.size()];
}

/// Returns the nearest key; "" if none is near.
std::string_view nearest_key(std::span<const std::string_view> keys, std::string_view key) {
  std::string_view nearest;
  size_t least = key.size();
  for (const std::string_view candidate : keys) {
    // A prefix of a name is as good a hint as one wrong letter.
    const bool is_part = key.size() >= 3 && candidate.starts_with(key);
    const size_t distance = is_part ? 1 : distance_of(key, candidate);
    if (distance >= least || distance > std::max<size_t>(key.size() / 3, 1)) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace

std::span<const ConfigTable> config_tables() {
  return kTables;
}

std::span<const std::string_view> keys_of(std::string_view table) {
  const auto* const found =
      std::find_if(kTables.begin(), kTables.end(), [&](const ConfigTable& one) { return one.name == table; });
  return found == kTables.end() ? std::span<const std::string_view>() : found->keys;
}

std::string unknown_key_message(std::string_view table, std::string_view key) {
  const auto keys = keys_of(table);
  for (const ConfigTable& other : kTables)
    if (std::find(other.keys.begin(), other.keys.end(), key) != other.keys.end())
      return fmt::format("unknown key here; it belongs to {}", heading_of(other.name));
  if (const std::string_view nearest = nearest_key(keys, key); !nearest.empty())
    return fmt::format("unknown key; did you mean \"{}\"?", nearest);
  return fmt::format("unknown key; known here: {}", fmt::join(keys, ", "));
}

}  // namespace faultline::glue
