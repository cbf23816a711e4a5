// SPDX-License-Identifier: BSD-3-Clause
// net_virtio_user: a virtio-net front end in this process. It passes EAL's memory over a vhost-user socket,
// and the back end (a port of kind vhost, a virtual switch) maps that memory.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <mutex>
#include <utility>

#include <rte_alarm.h>
#include <rte_ethdev.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/own_socket.hpp"
#include "pmd_glue/ports/driver.hpp"
#include "pmd_glue/ports/socket_file.hpp"

namespace faultline::glue {
namespace {

using namespace std::chrono_literals;

// For a back end that starts at the same time, as the other end of a perftest does; and for each answer.
constexpr std::chrono::seconds kBackEndPatience = 20s;

uint32_t virtio_mtu_bytes(const DeviceConfig& device) {
  return device.mtu_bytes.value_or(kEthernetMtuBytes);
}

/// Waits until EAL's interrupt thread has called the alarms that are due. The PMD closes a lost connection in
/// an alarm, with a pointer to its device, and does not cancel the alarm with the device (DPDK 22.11). Alarms
/// are called in the order of their time.
void await_alarms() {
  auto called = std::make_unique<std::promise<void>>();
  std::future<void> done = called->get_future();
  const auto call = [](void* promise) {
    const std::unique_ptr<std::promise<void>> own(static_cast<std::promise<void>*>(promise));
    own->set_value();
  };
  if (rte_eal_alarm_set(1, call, called.get()) != 0) return;
  static_cast<void>(called.release());
  done.wait_for(1s);
}

class VirtioUser final : public EthdevPort {
 public:
  explicit VirtioUser(const PortSetup& setup) : config_(setup.config), device_(setup.device) {}
  ~VirtioUser() override {
    const std::lock_guard guard(mutex_);
    close();
  }

  [[nodiscard]] bool link_up() const override {
    const std::lock_guard guard(mutex_);
    return EthdevPort::link_up();
  }
  [[nodiscard]] PortDrops drops() const override {
    const std::lock_guard guard(mutex_);
    return started_ ? EthdevPort::drops() : PortDrops{};
  }
  /// Only the link ends.
  [[nodiscard]] bool is_gone() const override { return false; }

  // As a server, the PMD listens for the next back end.
  [[nodiscard]] bool needs_reconnect() const override { return !device_.port.is_server; }

  /// Opens the device anew once a back end listens: the PMD's client connects only when it is created.
  void reconnect() override {
    const PortSetup setup{config_, device_};
    const std::lock_guard guard(mutex_);
    if (prepare(setup)) return;
    close();
    if (start(setup)) close();
  }

 private:
  PortResult prepare(const PortSetup& setup) override {
    const PortConfig& port = setup.device.port;
    if (PortResult fault = check_socket_folder(port.socket)) return fault;
    if (port.is_server) return free_socket_path(port.socket, SOCK_STREAM);
    const int error = try_to_connect(port.socket, SOCK_STREAM);
    if (error == 0) return {};
    return PortFault{fmt::format("no vhost-user back end listens on {}: {}; start it first", port.socket,
                                 std::strerror(error))};
  }

  PortResult create(const PortSetup& setup) override {
    const PortConfig& port = setup.device.port;
    const auto begun = std::chrono::steady_clock::now();
    PortResult fault = EthdevPort::create(setup);
    if (!fault || std::chrono::steady_clock::now() - begun < kBackEndPatience) return fault;
    if (!port.is_server)
      return PortFault{fmt::format("the vhost-user back end on {} has not answered in {} s; start it again",
                                   port.socket, kBackEndPatience.count())};
    unlink(port.socket.c_str());
    return PortFault{
        fmt::format("no vhost-user back end has connected to {} and answered in {} s; start it, with "
                    "the role of a client, at the same time",
                    port.socket, kBackEndPatience.count())};
  }

  [[nodiscard]] std::string vdev_arguments(const PortSetup& setup) const override {
    const PortConfig& port = setup.device.port;
    return fmt::format("path={},queues={},queue_size={},server={},mac={:02x}", port.socket, port.queues,
                       kPortDescriptors, port.is_server ? 1 : 0, fmt::join(setup.device.mac.bytes, ":"));
  }

  PortResult adjust(const PortSetup& setup, const rte_eth_dev_info& info, rte_eth_conf& conf) override {
    conf.rxmode.mtu = virtio_mtu_bytes(setup.device);
    if (conf.rxmode.mtu > info.max_mtu)
      return PortFault{fmt::format("the port takes at most {}", info.max_mtu), "mtu"};
    // All of them, since the back end chooses the queue of each frame.
    queue_pairs_ = static_cast<uint16_t>(std::min(setup.device.port.queues, uint32_t{info.max_rx_queues}));
    return {};
  }

  // The PMD writes to a socket whose peer may have ended. There the SIGPIPE is pending, and ends with the
  // thread. Its waits for a first connection, and for each answer, have no limit of their own.
  void run_control(const std::function<void()>& function) override {
    const auto limited = [&] {
      const SocketTimeLimit limit(kBackEndPatience);
      function();
    };
    if (on_starter_thread(limited) != 0) limited();
  }

  void close() {
    if (vdev_.empty()) return;
    await_alarms();
    close_device();
    started_ = false;
  }

  const Config config_;
  const DeviceConfig device_;
  /// Held while the device is used or replaced, outside of bursts.
  mutable std::mutex mutex_;
};

}  // namespace

const PortDriver kVirtioUserDriver{
    .kind = PortKind::virtio_user,
    .make = [](const PortSetup& setup) -> std::unique_ptr<DriverPort> {
      return std::make_unique<VirtioUser>(setup);
    },
    .mtu_bytes = virtio_mtu_bytes,
};

}  // namespace faultline::glue
