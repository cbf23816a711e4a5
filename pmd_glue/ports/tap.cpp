// SPDX-License-Identifier: BSD-3-Clause
// net_tap: the far end is a kernel interface that the driver creates.
#include <cstring>

#include <spdlog/fmt/fmt.h>

#include "pmd_glue/link/interface.hpp"
#include "pmd_glue/ports/driver.hpp"

namespace faultline::glue {
namespace {

uint32_t tap_mtu_bytes(const DeviceConfig& device) {
  return device.mtu_bytes.value_or(kTapMtuBytes);
}

class Tap final : public EthdevPort {
 public:
  [[nodiscard]] bool is_gone() const override {
    return descriptor_ >= 0 ? !tap_is_attached(descriptor_) : EthdevPort::is_gone();
  }

 private:
  [[nodiscard]] std::string vdev_arguments(const PortSetup& setup) const override {
    return fmt::format("iface={}", setup.device.port.interface);
  }

  PortResult finish(const PortSetup& setup) override {
    const std::string& interface = setup.device.port.interface;
    descriptor_ = find_tap_descriptor(interface);
    frames_descriptors_ = {find_tap_queue(interface)};
    const uint32_t mtu_bytes = tap_mtu_bytes(setup.device);
    if (const int failed = set_interface_mtu(interface, mtu_bytes); failed != 0)
      return PortFault{fmt::format("{} does not take {}: {}", interface, mtu_bytes, std::strerror(failed)),
                       "mtu"};
    return {};
  }

  int descriptor_ = -1;
};

}  // namespace

const PortDriver kTapDriver{
    .kind = PortKind::tap,
    .make = [](const PortSetup&) -> std::unique_ptr<DriverPort> { return std::make_unique<Tap>(); },
    .mtu_bytes = tap_mtu_bytes,
};

}  // namespace faultline::glue
