// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/tree/interface_statistics.hpp"

#include <array>
#include <bit>
#include <cstring>

#include <spdlog/fmt/fmt.h>

namespace faultline::abi {
namespace {

using Value = decltype(rtnl_link_stats64::rx_packets) rtnl_link_stats64::*;

/// `sources`: as those of a standard counter; none for what cannot happen to our interfaces.
struct Statistic {
  std::string_view name;
  Value value;
  std::string_view sources;
};

constexpr std::string_view kRefused = "parse. port.wrong_address port.wrong_vlan";

constexpr Statistic kStatistics[] = {
    {"collisions", &rtnl_link_stats64::collisions, ""},
    {"multicast", &rtnl_link_stats64::multicast, ""},
    {"rx_bytes", &rtnl_link_stats64::rx_bytes, "transport.rx_bytes"},
    {"rx_compressed", &rtnl_link_stats64::rx_compressed, ""},
    {"rx_crc_errors", &rtnl_link_stats64::rx_crc_errors, ""},
    {"rx_dropped", &rtnl_link_stats64::rx_dropped, "port.rx_no_mbuf"},
    {"rx_errors", &rtnl_link_stats64::rx_errors, kRefused},
    {"rx_fifo_errors", &rtnl_link_stats64::rx_fifo_errors, ""},
    {"rx_frame_errors", &rtnl_link_stats64::rx_frame_errors, ""},
    {"rx_length_errors", &rtnl_link_stats64::rx_length_errors, ""},
    {"rx_missed_errors", &rtnl_link_stats64::rx_missed_errors, "port.rx_missed"},
    {"rx_nohandler", &rtnl_link_stats64::rx_nohandler, ""},
    {"rx_over_errors", &rtnl_link_stats64::rx_over_errors, ""},
    {"rx_packets", &rtnl_link_stats64::rx_packets, "transport.rx_packets"},
    {"tx_aborted_errors", &rtnl_link_stats64::tx_aborted_errors, ""},
    {"tx_bytes", &rtnl_link_stats64::tx_bytes, "transport.tx_bytes"},
    {"tx_carrier_errors", &rtnl_link_stats64::tx_carrier_errors, ""},
    {"tx_compressed", &rtnl_link_stats64::tx_compressed, ""},
    {"tx_dropped", &rtnl_link_stats64::tx_dropped, "port.tx_dropped port.tx_too_long"},
    {"tx_errors", &rtnl_link_stats64::tx_errors, ""},
    {"tx_fifo_errors", &rtnl_link_stats64::tx_fifo_errors, ""},
    {"tx_heartbeat_errors", &rtnl_link_stats64::tx_heartbeat_errors, ""},
    {"tx_packets", &rtnl_link_stats64::tx_packets, "transport.tx_packets"},
    {"tx_window_errors", &rtnl_link_stats64::tx_window_errors, ""},
};

}  // namespace

rtnl_link_stats64 interface_statistics(std::span<const NamedCounter> counters) {
  rtnl_link_stats64 statistics{};
  for (const Statistic& one : kStatistics) statistics.*one.value = sum_of(one.sources, counters);
  return statistics;
}

rtnl_link_stats low_halves(const rtnl_link_stats64& statistics) {
  // The two have the same members in the same order; the longer one has further ones.
  std::array<uint64_t, sizeof statistics / sizeof(uint64_t)> values{};
  std::memcpy(values.data(), &statistics, sizeof statistics);
  std::array<uint32_t, sizeof(rtnl_link_stats) / sizeof(uint32_t)> halves{};
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint32_t>(values[i]);
  return std::bit_cast<rtnl_link_stats>(halves);
}

std::vector<StatisticsFile> statistics_files(const rtnl_link_stats64& statistics) {
  std::vector<StatisticsFile> files;
  for (const Statistic& one : kStatistics) files.push_back({one.name, statistics.*one.value});
  return files;
}

std::string statistics_row(std::string_view interface, const rtnl_link_stats64& statistics) {
  // As dev_seq_printf_stats() of Linux's net/core/net-procfs.c. Its sums have no other parts here.
  return fmt::format(
      "{:>6}: {:7} {:7} {:4} {:4} {:4} {:5} {:10} {:9} {:8} {:7} {:4} {:4} {:4} {:5} {:7} {:10}\n", interface,
      statistics.rx_bytes, statistics.rx_packets, statistics.rx_errors,
      statistics.rx_dropped + statistics.rx_missed_errors, 0, 0, 0, 0, statistics.tx_bytes,
      statistics.tx_packets, statistics.tx_errors, statistics.tx_dropped, 0, 0, 0, 0);
}

}  // namespace faultline::abi
