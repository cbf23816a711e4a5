// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/export/running_programs.hpp"

#include "stack/base/counter_row.hpp"
#include "stack/status/segment_reader.hpp"

namespace faultline::cli {

using status::SegmentReader;

std::vector<DeviceSamples> read_running_programs() {
  std::vector<DeviceSamples> devices;
  for (const auto& segment : status::open_segments()) {
    if (segment->is_dead() || segment->is_closed()) continue;
    DeviceSamples device{static_cast<pid_t>(segment->pid()), segment->program(), segment->device(), {}};
    for (const SegmentReader::Counter& counter : segment->counters())
      device.counters.push_back({SegmentReader::text(counter.text.name),
                                 SegmentReader::text(counter.text.unit),
                                 std::string(name_of(static_cast<CounterKind>(counter.text.kind))),
                                 SegmentReader::text(counter.text.help), counter.value});
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace faultline::cli
