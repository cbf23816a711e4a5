// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/status/device_publisher.hpp"

#include <algorithm>
#include <utility>

#include "stack/verbs/objects/counter_list.hpp"

namespace faultline::glue {
namespace {

template <size_t size>
void copy_text(std::array<char, size>& to, std::string_view from) {
  std::copy_n(from.begin(), std::min(from.size(), size - 1), to.begin());
}

std::vector<status::CounterRow> counter_rows() {
  std::vector<status::CounterRow> rows;
  for (const verbs::CounterText& text : verbs::counter_texts()) {
    status::CounterRow row;
    copy_text(row.name, text.name);
    copy_text(row.unit, text.unit);
    row.kind = static_cast<uint32_t>(text.kind);
    copy_text(row.help, text.help);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

std::unique_ptr<DevicePublisher> DevicePublisher::create(verbs::DeviceBackend& device,
                                                         const std::string& port_kind, std::string& error) {
  const verbs::DeviceDescription& description = device.description();
  status::DeviceFacts facts;
  facts.name = description.name;
  facts.port_kind = port_kind;
  facts.mac = description.mac.bytes;
  for (const wire::Gid& gid : description.gids) facts.gids.push_back(gid.bytes);
  facts.cores = device.core_count();
  facts.max_path_mtu_bytes = description.max_path_mtu_bytes;
  facts.active_width_code = description.active_width_code;
  facts.active_speed_code = description.active_speed_code;
  facts.counters = counter_rows();
  facts.first_core_counter = static_cast<uint32_t>(verbs::core_counter_range().first);
  facts.core_counters = static_cast<uint32_t>(verbs::core_counter_range().count);
  auto segment = status::SegmentWriter::create(facts, error);
  if (segment == nullptr) return nullptr;
  return std::unique_ptr<DevicePublisher>(new DevicePublisher(device, std::move(segment)));
}

void DevicePublisher::publish_if_due(bool link_up, TimeNs now) {
  if (now < next_ns_ || segment_->is_of_parent_process()) return;
  next_ns_ = now + kIntervalNs;
  segment_->write_device_counters(verbs::counter_values(device_));
  segment_->write_device({.updated_ns = now, .link_up = link_up ? 1U : 0U});
  publish_regions();
}

void DevicePublisher::publish_regions() {
  const status::RowIndex end = segment_->end<status::MrRow>();
  for (status::RowIndex visited = 0; visited < std::min(end, kRegions); ++visited) {
    if (next_region_ >= end) next_region_ = 0;
    segment_->update<status::MrRow>(next_region_++, [this](status::MrRow& row) {
      odp::RegionCounters counters;
      if (!device_.memory().region_counters(row.lkey, counters)) return;
      row.page_faults = counters.page_faults;
      row.page_invalidations = counters.page_invalidations;
      row.page_prefetch = counters.page_prefetch;
      row.resident_pages = counters.resident_pages;
    });
  }
}

}  // namespace faultline::glue
