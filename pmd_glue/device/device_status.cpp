// SPDX-License-Identifier: BSD-3-Clause
// What the running device states of itself: its link, its status segment, its failures.
#include "pmd_glue/config/port_kinds.hpp"
#include "pmd_glue/device/running_device.hpp"
#include "stack/base/clock.hpp"
#include "stack/base/log.hpp"

namespace faultline::glue {

// Nothing depends on the segment: a device without one works.
void RunningDevice::start_publishing() {
  std::string error;
  const std::string_view kind = attachment_ != nullptr ? "wire" : row_of(config_.port.kind).name;
  publisher_ = DevicePublisher::create(*this, std::string(kind), error);
  if (publisher_ == nullptr) return log().info("{}", error);
  for (CoreUnit& unit : core_units_) unit.engine->publisher().publish_in(&publisher_->segment());
}

status::SegmentWriter* RunningDevice::status() {
  return publisher_ != nullptr ? &publisher_->segment() : nullptr;
}

bool RunningDevice::link_up() {
  bool up = false;
  // In a call(), since the progress thread may be reconnecting the port.
  call_with(*this, 0, [&] { up = !progress_.is_closed() && first_engine().port_link_up(); });
  return up;
}

bool RunningDevice::last_failure(uint32_t core_index, uint32_t qpn, TimeNs since,
                                 status::FailureRecord& record) {
  const status::FailureRecord* found = nullptr;
  call_with(*this, core_index, [&] {
    found = core_units_[core_index].engine->publisher().failures().ring().newest_of(qpn, since);
    if (found != nullptr) record = *found;
  });
  return found != nullptr;
}

void RunningDevice::note_failure(status::FailureRecord record) {
  record.time_ns = monotonic_ns();
  record.count = 1;
  call_with(*this, 0, [&] { first_engine().publisher().failures().add(record); });
}

}  // namespace faultline::glue
