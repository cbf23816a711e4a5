// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/top/device_state.hpp"

#include <algorithm>
#include <unordered_map>

#include "stack/base/clock.hpp"
#include "stack/base/counter_row.hpp"
#include "stack/wire/link/address_text.hpp"

namespace faultline::cli {
namespace {

using status::SegmentReader;

DeviceState device_of(const SegmentReader& segment, bool is_dead) {
  DeviceState device;
  device.path = segment.path();
  device.device = segment.device();
  device.program = segment.program();
  device.port_kind = segment.port_kind();
  device.pid = segment.pid();
  device.cores = segment.header().cores;
  device.is_dead = is_dead;
  device.created_ns = segment.header().created_ns;
  device.created_realtime_ns = segment.header().created_realtime_ns;
  const status::DeviceRow row = segment.device_row();
  device.link_up = row.link_up != 0;
  device.updated_ns = row.updated_ns;
  for (uint32_t i = 0; i < segment.header().gid_count; ++i)
    device.addresses.push_back(wire::text_of(wire::Gid{segment.header().gids[i]}));
  for (const SegmentReader::Counter& counter : segment.counters())
    device.counters.push_back({SegmentReader::text(counter.text.name), SegmentReader::text(counter.text.unit),
                               std::string(name_of(static_cast<CounterKind>(counter.text.kind))),
                               SegmentReader::text(counter.text.help), counter.value, 0});
  for (const auto& [index, qp] : segment.rows<status::QpRow>()) {
    device.qps.push_back({index, qp});
    device.updated_ns = std::max(device.updated_ns, qp.live.updated_ns);
  }
  for (const auto& [index, region] : segment.rows<status::MrRow>()) device.regions.push_back({index, region});
  for (const auto& [index, failure] : segment.rows<status::FailureRecord>())
    if (failure.cause != status::FailureCause::none) device.failures.push_back(failure);
  std::ranges::stable_sort(device.failures, std::ranges::greater(), &status::FailureRecord::time_ns);
  device.pds = segment.rows<status::PdRow>().size();
  device.cqs = segment.rows<status::CqRow>().size();
  device.srqs = segment.rows<status::SrqRow>().size();
  device.cm_ids = segment.rows<status::CmRow>().size();
  return device;
}

double rate(uint64_t now, uint64_t before, double seconds) {
  return now > before && seconds > 0 ? static_cast<double>(now - before) / seconds : 0;
}

void set_rates(DeviceState& device, const DeviceState& before, double seconds) {
  for (size_t i = 0; i < device.counters.size() && i < before.counters.size(); ++i)
    device.counters[i].per_second = rate(device.counters[i].value, before.counters[i].value, seconds);
  std::unordered_map<status::RowIndex, const QpState*> qps;
  for (const QpState& qp : before.qps) qps[qp.index] = &qp;
  for (QpState& qp : device.qps) {
    const auto found = qps.find(qp.index);
    // Another QP may have taken the row.
    if (found == qps.end() || found->second->row.created_ns != qp.row.created_ns) continue;
    const status::QpCounters& now = qp.row.live.counters;
    const status::QpCounters& then = found->second->row.live.counters;
    // A QP's row has its own time, since a core does not publish all of many QPs at once.
    const uint64_t now_ns = qp.row.live.updated_ns;
    const uint64_t then_ns = found->second->row.live.updated_ns;
    constexpr double kNsPerSecond = 1e9;
    const double passed = now_ns > then_ns ? static_cast<double>(now_ns - then_ns) / kNsPerSecond : 0;
    qp.tx_packets_per_s = rate(now.tx_packets, then.tx_packets, passed);
    qp.rx_packets_per_s = rate(now.rx_packets, then.rx_packets, passed);
    qp.retransmitted_per_s = rate(now.retransmitted_packets, then.retransmitted_packets, passed);
  }
  std::unordered_map<status::RowIndex, const RegionState*> regions;
  for (const RegionState& region : before.regions) regions[region.index] = &region;
  for (RegionState& region : device.regions) {
    const auto found = regions.find(region.index);
    if (found == regions.end() || found->second->row.created_ns != region.row.created_ns) continue;
    region.faults_per_s = rate(region.row.page_faults, found->second->row.page_faults, seconds);
  }
}

}  // namespace

const CounterState* DeviceState::counter(std::string_view name) const {
  const auto found = std::ranges::find(counters, name, &CounterState::name);
  return found != counters.end() ? &*found : nullptr;
}

uint64_t DeviceState::value(std::string_view name) const {
  const CounterState* const found = counter(name);
  return found != nullptr ? found->value : 0;
}

double DeviceState::per_second(std::string_view name) const {
  const CounterState* const found = counter(name);
  return found != nullptr ? found->per_second : 0;
}

TopState read_state(const Choice& choice) {
  TopState state;
  state.now_ns = monotonic_ns();
  for (const auto& segment : status::open_segments()) {
    if (!choice.device.empty() && segment->device() != choice.device) continue;
    if (choice.pid != 0 && segment->pid() != choice.pid) continue;
    const bool is_dead = segment->is_dead();
    if (is_dead == choice.dead && !segment->is_closed())
      state.devices.push_back(device_of(*segment, is_dead));
  }
  if (choice.dead)
    std::ranges::stable_sort(state.devices, std::ranges::greater(), &DeviceState::created_realtime_ns);
  return state;
}

void set_rates(TopState& state, const TopState& before) {
  constexpr double kNsPerSecond = 1e9;
  const double seconds =
      state.now_ns > before.now_ns ? static_cast<double>(state.now_ns - before.now_ns) / kNsPerSecond : 0;
  for (DeviceState& device : state.devices)
    for (const DeviceState& earlier : before.devices)
      if (earlier.path == device.path && earlier.created_ns == device.created_ns)
        set_rates(device, earlier, seconds);
}

uint64_t latency_quantile_us(const std::vector<status::LatencyBucket>& buckets, double part) {
  uint64_t total = 0;
  for (const status::LatencyBucket& bucket : buckets) total += bucket.count;
  if (total == 0) return 0;
  double sum = 0;
  for (const status::LatencyBucket& bucket : buckets) {
    sum += static_cast<double>(bucket.count);
    if (sum >= part * static_cast<double>(total)) return bucket.bound_us;
  }
  return buckets.back().bound_us;
}

}  // namespace faultline::cli
