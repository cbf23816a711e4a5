// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/top/tables.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <tuple>

#include <spdlog/fmt/fmt.h>

#include "apps/faultline/top/names.hpp"
#include "stack/status/failure_text.hpp"

namespace faultline::cli {
namespace {

constexpr uint64_t kPageBytes = 4096;

bool holds(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

double key_of(const QpState& qp, QpOrder order) {
  const status::QpLive& live = qp.row.live;
  switch (order) {
    case QpOrder::sent:
      return qp.tx_packets_per_s;
    case QpOrder::received:
      return qp.rx_packets_per_s;
    case QpOrder::retransmitted:
      return static_cast<double>(live.counters.retransmitted_packets);
    case QpOrder::in_flight:
      return live.in_flight_packets;
    case QpOrder::round_trip:
      return static_cast<double>(live.round_trip_ns);
    case QpOrder::wait:
      return static_cast<double>(live.waits_for);
    case QpOrder::number:
      return -static_cast<double>(qp.row.qpn);
    case QpOrder::count_:
      break;
  }
  return 0;
}

std::string qp_line(const QpReference& at) {
  const status::QpRow& row = at.qp->row;
  const status::QpLive& live = row.live;
  return fmt::format(
      "{:<12} {:>7} 0x{:06x} {:<8} {:<5} {:<26} {:>8} {:>8} {:>5}/{:<5} {:>8} {:>4} {:>5} {:>7} {:<9}",
      at.device->device, at.device->pid, row.qpn, qp_type_name(row.type), qp_state_name(live.state),
      peer_text(live), short_number(at.qp->tx_packets_per_s), short_number(at.qp->rx_packets_per_s),
      live.in_flight_packets, live.window_packets, duration_text(live.round_trip_ns),
      fmt::format("{}/{}", live.retry_count - live.retries_left, live.retry_count), live.counters.timeouts,
      live.counters.retransmitted_packets, status::name_of(live.waits_for));
}

std::vector<std::pair<const DeviceState*, const RegionState*>> hottest_regions(const TopState& state) {
  std::vector<std::pair<const DeviceState*, const RegionState*>> regions;
  for (const DeviceState& device : state.devices)
    for (const RegionState& region : device.regions) regions.emplace_back(&device, &region);
  std::ranges::stable_sort(regions, std::ranges::greater(), [](const auto& at) {
    return std::tuple(at.second->faults_per_s, at.second->row.page_faults);
  });
  return regions;
}

template <typename Item, typename Line>
void add_rows(Table& table, const std::vector<Item>& items, Range range, Line line) {
  table.total = items.size();
  for (size_t i = range.first; i < items.size() && table.rows.size() < range.most; ++i)
    table.rows.push_back(line(items[i]));
}

std::string device_line(const DeviceState& device) {
  constexpr double kMegabyte = 1e6;
  uint64_t drops = 0;
  for (const CounterState& counter : device.counters)
    if (counter.name.starts_with("drop.") || counter.name.starts_with("parse.")) drops += counter.value;
  return fmt::format(
      "{:<12} {:>7} {:<15} {:<9} {:<4} {:>6} {:>6} {:>8} {:>8} {:>8.1f} {:>8.1f} {:>8} {:>7} {:>8} {:>7}",
      device.device, device.pid, device.program, device.port_kind, device.link_up ? "up" : "down",
      device.qps.size(), device.regions.size(), short_number(device.per_second("transport.tx_packets")),
      short_number(device.per_second("transport.rx_packets")),
      device.per_second("transport.tx_bytes") / kMegabyte,
      device.per_second("transport.rx_bytes") / kMegabyte,
      short_number(device.per_second("odp.num_page_faults")),
      short_number(static_cast<double>(device.value("transport.retransmitted_packets"))),
      short_number(static_cast<double>(device.value("transport.timeouts"))),
      short_number(static_cast<double>(drops)));
}

/// Returns a bar of the parts of a distribution, one character for each bucket.
std::string bar_of(const std::vector<status::LatencyBucket>& buckets) {
  constexpr std::string_view kLevels = " .:-=+*#%@";
  uint64_t most = 0;
  for (const status::LatencyBucket& bucket : buckets) most = std::max(most, bucket.count);
  std::string bar;
  for (const status::LatencyBucket& bucket : buckets) {
    const size_t level =
        bucket.count == 0 ? 0 : 1 + bucket.count * (kLevels.size() - 2) / std::max<uint64_t>(most, 1);
    bar += kLevels[std::min(level, kLevels.size() - 1)];
  }
  return bar;
}

}  // namespace

std::string_view name_of(QpOrder order) {
  constexpr std::array<std::string_view, static_cast<size_t>(QpOrder::count_)> kNames{
      "sent", "received", "retransmitted", "in flight", "round trip", "wait", "QPN"};
  return kNames[static_cast<size_t>(order)];
}

std::vector<QpReference> select_qps(const TopState& state, const QpSelection& selection) {
  std::vector<QpReference> qps;
  for (const DeviceState& device : state.devices)
    for (const QpState& qp : device.qps)
      if (selection.filter.empty() || holds(qp_line({&device, &qp}), selection.filter) ||
          holds(device.program, selection.filter))
        qps.push_back({&device, &qp});
  std::ranges::stable_sort(qps, [&](const QpReference& a, const QpReference& b) {
    const double first = key_of(*a.qp, selection.order);
    const double second = key_of(*b.qp, selection.order);
    return selection.reversed ? first < second : first > second;
  });
  return qps;
}

Table device_table(const TopState& state, Range range) {
  Table table;
  table.header = fmt::format(
      "{:<12} {:>7} {:<15} {:<9} {:<4} {:>6} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>8} {:>7}", "DEVICE",
      "PID", "PROGRAM", "PORT", "LINK", "QPS", "MRS", "TX/s", "RX/s", "TX MB/s", "RX MB/s", "FAULTS/s",
      "RETRANS", "TIMEOUTS", "DROPS");
  add_rows(table, state.devices, range, device_line);
  return table;
}

Table qp_table(const std::vector<QpReference>& qps, Range range) {
  Table table;
  table.header = fmt::format(
      "{:<12} {:>7} {:<8} {:<8} {:<5} {:<26} {:>8} {:>8} {:>5}/{:<5} {:>8} {:>4} {:>5} {:>7} {:<9}", "DEVICE",
      "PID", "QPN", "TYPE", "STATE", "PEER", "TX/s", "RX/s", "SENT", "WIN", "RTT", "TRY", "TIMEO", "RETRANS",
      "WAITS FOR");
  add_rows(table, qps, range, qp_line);
  return table;
}

Table region_table(const TopState& state, Range range) {
  Table table;
  table.header =
      fmt::format("{:<12} {:>7} {:>10} {:>18} {:>8} {:>9} {:>9} {:>9} {:>10} {:>9}", "DEVICE", "PID", "LKEY",
                  "ADDRESS", "LENGTH", "RESIDENT", "FAULTS/s", "FAULTS", "INVALIDAT.", "PREFETCH");
  add_rows(table, hottest_regions(state), range, [](const auto& at) {
    const status::MrRow& row = at.second->row;
    constexpr uint32_t kOnDemand = 1U << 6;  // IBV_ACCESS_ON_DEMAND
    const std::string length = row.length_bytes == UINT64_MAX ? "all" : short_bytes(row.length_bytes);
    const std::string resident =
        (row.access & kOnDemand) != 0 ? short_bytes(row.resident_pages * kPageBytes) : "pinned";
    return fmt::format("{:<12} {:>7} {:>10} {:>18} {:>8} {:>9} {:>9} {:>9} {:>10} {:>9}", at.first->device,
                       at.first->pid, fmt::format("0x{:x}", row.lkey), fmt::format("0x{:x}", row.address),
                       length, resident, short_number(at.second->faults_per_s),
                       short_number(static_cast<double>(row.page_faults)),
                       short_number(static_cast<double>(row.page_invalidations)),
                       short_number(static_cast<double>(row.page_prefetch)));
  });
  return table;
}

Table fault_table(const TopState& state, Range range) {
  struct Kind {
    const DeviceState* device;
    std::string name;
    std::vector<status::LatencyBucket> buckets;
    uint64_t total;
  };
  std::vector<Kind> kinds;
  for (const DeviceState& device : state.devices)
    for (auto& [name, buckets] : status::fault_latencies(device.counters)) {
      uint64_t total = 0;
      for (const status::LatencyBucket& bucket : buckets) total += bucket.count;
      if (total != 0) kinds.push_back({&device, name, buckets, total});
    }
  Table table;
  table.header = fmt::format("{:<12} {:>7} {:<16} {:>9} {:>9} {:>9} {:>9}  {}", "DEVICE", "PID", "FAULT",
                             "SERVICES", "MEDIAN", "99 %", "99.9 %", "1 us to >16 ms");
  add_rows(table, kinds, range, [](const Kind& kind) {
    constexpr double kMedian = 0.5;
    constexpr double kPercentile = 0.99;
    constexpr double kPermille = 0.999;
    return fmt::format("{:<12} {:>7} {:<16} {:>9} {:>9} {:>9} {:>9} [{}]", kind.device->device,
                       kind.device->pid, kind.name, kind.total,
                       bound_text(latency_quantile_us(kind.buckets, kMedian)),
                       bound_text(latency_quantile_us(kind.buckets, kPercentile)),
                       bound_text(latency_quantile_us(kind.buckets, kPermille)), bar_of(kind.buckets));
  });
  return table;
}

Table failure_table(const TopState& state, Range range) {
  std::vector<std::pair<const DeviceState*, const status::FailureRecord*>> failures;
  for (const DeviceState& device : state.devices)
    for (const status::FailureRecord& failure : device.failures) failures.emplace_back(&device, &failure);
  Table table;
  table.header = fmt::format("{:<12} {:>7} {:>12}  {}", "DEVICE", "PID", "AGO", "FAILURE");
  add_rows(table, failures, range, [&state](const auto& at) {
    const uint64_t then_ns = at.second->time_ns;
    return fmt::format("{:<12} {:>7} {:>12}  {}", at.first->device, at.first->pid,
                       then_ns < state.now_ns ? duration_text(state.now_ns - then_ns) : "-",
                       status::text_of(*at.second));
  });
  return table;
}

Table counter_table(const TopState& state, Range range) {
  std::vector<std::pair<const DeviceState*, const CounterState*>> counters;
  for (const DeviceState& device : state.devices)
    for (const CounterState& counter : device.counters)
      if (counter.value != 0) counters.emplace_back(&device, &counter);
  Table table;
  table.header = fmt::format("{:<12} {:>7} {:<40} {:>16} {:>10}  {}", "DEVICE", "PID", "COUNTER", "VALUE",
                             "PER SECOND", "MEANING");
  add_rows(table, counters, range, [](const auto& at) {
    return fmt::format("{:<12} {:>7} {:<40} {:>16} {:>10}  {}", at.first->device, at.first->pid,
                       at.second->name, at.second->value,
                       at.second->kind == "count" ? short_number(at.second->per_second) : "-",
                       at.second->help);
  });
  return table;
}

std::vector<std::string> qp_page(const TopState& state, const QpReference& at) {
  const DeviceState& device = *at.device;
  const status::QpRow& row = at.qp->row;
  const status::QpLive& live = row.live;
  const auto since = [&](uint64_t then_ns) {
    return then_ns == 0 || then_ns > state.now_ns ? "-" : duration_text(state.now_ns - then_ns) + " ago";
  };
  constexpr uint64_t kTimeoutUnitNs = 4096;
  std::vector<std::string> lines{
      fmt::format("QP 0x{:06x}, {}, {} of {} (process {}, {})", row.qpn, qp_type_name(row.type),
                  qp_state_name(live.state), device.device, device.pid, device.program),
      fmt::format("  peer             {}", peer_text(live)),
      fmt::format("  waits for        {}{}", status::name_of(live.waits_for),
                  live.wait_ends_ns > state.now_ns
                      ? fmt::format(", at most {} more", duration_text(live.wait_ends_ns - state.now_ns))
                      : ""),
      fmt::format("  PSN              next {}, oldest not acknowledged {}, expected from the peer {}",
                  live.next_psn, live.unacked_psn, live.expected_psn),
      fmt::format("  in flight        {} packets of a window of {}", live.in_flight_packets,
                  live.window_packets),
      fmt::format("  round trip       {}", duration_text(live.round_trip_ns)),
      fmt::format("  rate             {}",
                  live.rate_bytes_per_s == 0
                      ? "not limited"
                      : fmt::format("{:.1f} MB/s", static_cast<double>(live.rate_bytes_per_s) / 1e6)),
      fmt::format("  retries          {} of {} used; timeout {}", live.retry_count - live.retries_left,
                  live.retry_count,
                  live.timeout == 0 ? "none" : duration_text(kTimeoutUnitNs << live.timeout)),
      fmt::format("  RNR retries      {}",
                  live.rnr_retry == 7
                      ? "without limit"
                      : fmt::format("{} of {} used", live.rnr_retry - live.rnr_retries_left, live.rnr_retry)),
      fmt::format("  work requests    {} sends and {} receives are not complete", live.sends_posted,
                  live.receives_posted),
      fmt::format("  parked           {} packets wait for a page", live.parked_packets),
      fmt::format("  path MTU         {} bytes", live.mtu_bytes),
      fmt::format("  objects          PD {}, send CQ {}, receive CQ {}, SRQ {}; core {}", row.pd_handle,
                  row.send_cq_handle, row.receive_cq_handle, row.srq_number, row.core),
      fmt::format("  made             {}; state as of {}", since(row.created_ns), since(live.updated_ns))};
  for (const status::QpCounterRow& counter : status::kQpCounterRows)
    lines.push_back(
        fmt::format("  {:<24} {:>16}  {}", counter.name, live.counters.*counter.member, counter.help));
  return lines;
}

}  // namespace faultline::cli
