// SPDX-License-Identifier: BSD-3-Clause
// net_vhost: the back end of a virtio-net device. The front end (a virtual machine, or a port of kind
// virtio_user) passes the memory of its rings and frames over a vhost-user socket. The port maps that memory
// and copies each frame.
#include <rte_ethdev.h>
#include <spdlog/fmt/fmt.h>
#include <sys/socket.h>

#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/ports/driver.hpp"
#include "pmd_glue/ports/socket_file.hpp"

namespace faultline::glue {
namespace {

class Vhost final : public EthdevPort {
 public:
  ~Vhost() override { close_device(); }

 private:
  PortResult prepare(const PortSetup& setup) override {
    const PortConfig& port = setup.device.port;
    if (PortResult fault = check_socket_folder(port.socket)) return fault;
    // A client connects once the server listens: librte_vhost tries again each second.
    return port.is_server ? free_socket_path(port.socket, SOCK_STREAM) : PortResult{};
  }

  [[nodiscard]] std::string vdev_arguments(const PortSetup& setup) const override {
    const PortConfig& port = setup.device.port;
    // iommu-support: a guest may put its card behind an IOMMU of its own, as vfio-pci requires.
    return fmt::format("iface={},queues={},client={},iommu-support=1", port.socket, port.queues,
                       port.is_server ? 0 : 1);
  }

  // All of them, since the front end chooses the queue of each frame. A core without a pair of its own
  // transmits on another's.
  PortResult adjust(const PortSetup& setup, const rte_eth_dev_info& /*info*/,
                    rte_eth_conf& /*conf*/) override {
    queue_pairs_ = static_cast<uint16_t>(setup.device.port.queues);
    return {};
  }

  // librte_vhost creates threads at the first configuration of a port. They inherit the creator's signal
  // mask.
  void run_control(const std::function<void()>& function) override {
    if (on_starter_thread(function) != 0) function();
  }
};

}  // namespace

const PortDriver kVhostDriver{
    .kind = PortKind::vhost,
    .make = [](const PortSetup&) -> std::unique_ptr<DriverPort> { return std::make_unique<Vhost>(); },
    .mtu_bytes = [](const DeviceConfig& device) { return device.mtu_bytes.value_or(kEthernetMtuBytes); },
};

}  // namespace faultline::glue
