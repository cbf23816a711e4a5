// SPDX-License-Identifier: BSD-3-Clause
// Counters of a running device: of its port, and those that a scenario may wait for.
#include "pmd_glue/device/device_counters.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <unordered_map>

#include "pmd_glue/device/running_device.hpp"
#include "stack/trouble/director.hpp"
#include "stack/verbs/objects/counter_list.hpp"

namespace faultline::glue {
namespace {

/// Counters of the port that its driver or another thread keeps: no engine can read them within its turn.
constexpr auto kKeptElsewhere = std::to_array<std::string_view>(
    {"port.nic_resets", "port.capture_missed", "port.rx_missed", "port.rx_no_mbuf", "port.peer_violations",
     "port.tx_too_long", "port.tx_unreachable"});

uint64_t odp_counter(const odp::Counters& counters, size_t index) {
  constexpr size_t kRows = std::size(odp::kCounterRows<uint64_t>);
  if (index < kRows) return counters.*odp::kCounterRows<uint64_t>[index].member;
  const size_t bucket = index - kRows;
  return counters.fault_latency[bucket / odp::kLatencyBuckets][bucket % odp::kLatencyBuckets];
}

/// Index of each counter in verbs::counter_texts().
std::unordered_map<std::string, size_t> counter_indices() {
  std::unordered_map<std::string, size_t> indices;
  for (const verbs::CounterText& text : verbs::counter_texts()) indices.emplace(text.name, indices.size());
  return indices;
}

}  // namespace

bool can_be_waited_for(std::string_view counter) {
  return !counter.starts_with("cm.") && std::ranges::find(kKeptElsewhere, counter) == kKeptElsewhere.end() &&
         std::ranges::find(verbs::counter_texts(), counter, &verbs::CounterText::name) !=
             verbs::counter_texts().end();
}

verbs::PortCounters RunningDevice::port_counters() {
  verbs::PortCounters counters;
  for (const CoreUnit& unit : core_units_) {
    const PortCounts& live = unit.engine->counts();
    for (size_t i = 0; i < std::size(verbs::kPortCounterRows<Count>); ++i)
      counters.*verbs::kPortCounterRows<uint64_t>[i].member +=
          (live.*verbs::kPortCounterRows<Count>[i].member).get();
  }
  // In a call, since another thread may close or reconnect the port.
  call_with(*this, 0, [&] {
    if (progress_.is_closed()) return;
    counters.nic_resets = nic_resets_;
    if (capture_ != nullptr) counters.capture_missed = capture_->missed();
    counters.rx_missed = earlier_drops_.missed;
    counters.rx_no_mbuf = earlier_drops_.no_buffer;
    if (is_port_away_) return;
    const PortDrops drops = port_->drops();
    counters.rx_missed += drops.missed;
    counters.rx_no_mbuf += drops.no_buffer;
    counters.tx_dropped += port_->transmit_drops();
    counters.peer_violations = port_->peer_violations();
    const PathDrops path_drops = port_->path_drops();
    counters.tx_too_long = path_drops.too_long;
    counters.tx_unreachable = path_drops.unreachable;
  });
  return counters;
}

// Takes no lock: an engine asks within its turn.
uint64_t RunningDevice::counter_now(size_t index) {
  const verbs::CoreCounterRange of_cores = verbs::core_counter_range();
  if (index < of_cores.first) return odp_counter(memory_->counters(), index);
  uint64_t sum = 0;
  for (const CoreUnit& unit : core_units_)
    if (index - of_cores.first < of_cores.count) {
      std::array<uint64_t, transport::kFlatCounters> values;
      transport::flatten(unit.engine->core().counters(), values);
      sum += values[index - of_cores.first];
    } else {
      const auto& row = verbs::kPortCounterRows<Count>[index - of_cores.first - of_cores.count];
      sum += (unit.engine->counts().*row.member).get();
    }
  return sum;
}

void RunningDevice::offer_counters() {
  trouble::Director* const director = trouble::director();
  if (director == nullptr || director->counter_names().empty()) return;
  director->set_counter_reader(director->device(config_.name),
                               [this, indices = counter_indices()](const std::string& name) {
                                 const auto found = indices.find(name);
                                 return found == indices.end() ? 0 : counter_now(found->second);
                               });
}

void RunningDevice::withdraw_counters() {
  if (trouble::Director* const director = trouble::director())
    director->set_counter_reader(director->device(config_.name), {});
}

}  // namespace faultline::glue
