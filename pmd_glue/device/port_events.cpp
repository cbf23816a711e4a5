// SPDX-License-Identifier: BSD-3-Clause
// What a device does when its port is removed, or when the NIC asks for a reset.
#include "pmd_glue/device/running_device.hpp"
#include "stack/base/log.hpp"

namespace faultline::glue {
namespace {

// A reset can fail while the host of a virtual function is not ready. And a NIC that asks again and again
// must not occupy the progress thread.
constexpr TimeNs kResetNs = 1'000'000'000;

}  // namespace

/// Takes the port from the engines and from port_counters().
void RunningDevice::take_port_away() {
  use_port(false);
  call_with(*this, 0, [this] {
    if (is_port_away_) return;
    const PortDrops drops = port_->drops();
    earlier_drops_.missed += drops.missed;
    earlier_drops_.no_buffer += drops.no_buffer;
    is_port_away_ = true;
  });
}

// The kernel waits for its device, and a program may wait for a receive that cannot come any more. So the
// device gives the port back at once, and completes what is posted.
void RunningDevice::lose_port() {
  note_port_state(PortState::gone);
  log().error("{}: the port was removed; the device is lost", config_.name);
  take_port_away();
  raise(transport::AsyncEvent::device_fatal);
  for (uint32_t i = 0; i < core_count(); ++i)
    call_with(*this, i, [&] { core_units_[i].engine->core().fail_qps(monotonic_ns()); });
  port_->release();
}

// QPs survive: the transport sees lost frames.
void RunningDevice::reset_port(TimeNs now) {
  log().warn("{}: the NIC asks for a reset", config_.name);
  take_port_away();
  port_->reset();
  next_reset_ = now + kResetNs;
  if (!port_->started()) return;
  call_with(*this, 0, [this] {
    is_port_away_ = false;
    ++nic_resets_;
  });
  use_port(true);
}

}  // namespace faultline::glue
