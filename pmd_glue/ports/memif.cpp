// SPDX-License-Identifier: BSD-3-Clause
// net_memif: shared memory between two processes of a host. MemifPort carries the frames instead of the PMD.
#include <bit>
#include <mutex>

#include <rte_ethdev.h>
#include <spdlog/fmt/fmt.h>
#include <sys/socket.h>

#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/eal/interrupt_thread.hpp"
#include "pmd_glue/memif/memif_port.hpp"
#include "pmd_glue/ports/driver.hpp"
#include "pmd_glue/ports/socket_file.hpp"

namespace faultline::glue {
namespace {

class Memif final : public EthdevPort {
 public:
  explicit Memif(const PortConfig& port)
      : is_client_(!port.is_server),
        memif_(port.socket, port.is_server ? MemifPort::Role::server : MemifPort::Role::client) {}
  ~Memif() override { close_device(); }

  [[nodiscard]] size_t receive(uint16_t /*queue*/, std::span<rte_mbuf*> burst) override {
    return memif_.receive(pool_, id_, burst);
  }
  [[nodiscard]] size_t transmit(uint32_t /*core*/, std::span<rte_mbuf*> burst) override {
    if (cores_ == 1) return memif_.transmit(burst);
    const std::lock_guard guard(transmit_lock_);
    return memif_.transmit(burst);
  }
  [[nodiscard]] bool link_up() const override { return !memif_.is_broken() && EthdevPort::link_up(); }
  [[nodiscard]] bool link_holds_frames() const override { return true; }
  [[nodiscard]] uint64_t peer_violations() const override { return memif_.violations(); }
  [[nodiscard]] bool needs_reconnect() const override { return is_client_; }

 private:
  PortResult prepare(const PortSetup& setup) override {
    const PortConfig& port = setup.device.port;
    if (PortResult fault = check_socket_folder(port.socket)) return fault;
    if (is_client_) return {};
    return free_socket_path(port.socket, SOCK_SEQPACKET);
  }

  [[nodiscard]] std::string vdev_arguments(const PortSetup& setup) const override {
    const PortConfig& port = setup.device.port;
    // Buffers of the mempool's size let the PMD allocate and free whole bursts.
    return fmt::format("role={},socket={},socket-abstract=no,zero-copy=no,bsize={},rsize={}",
                       is_client_ ? "client" : "server", port.socket, kBufferBytes,
                       std::countr_zero(port.ring_size));
  }

  PortResult create(const PortSetup& setup) override {
    is_creating_ = true;
    PortResult fault = EthdevPort::create(setup);
    is_creating_ = false;
    return fault;
  }

  [[nodiscard]] int set_up_transmit_queue(uint16_t queue, uint16_t descriptors) override {
    const MemifPort::TransmitSetup mark(&memif_);
    return EthdevPort::set_up_transmit_queue(queue, descriptors);
  }

  // net_memif listens, connects and disconnects on EAL's interrupt thread.
  void run_control(const std::function<void()>& function) override {
    run_on_interrupt_thread([&] {
      const MemifPort::Creation mark(is_creating_ ? &memif_ : nullptr);
      function();
    });
  }
  void after_close() override { memif_.free_forgotten(); }
  // The server may not be there yet.
  [[nodiscard]] bool may_start_later() const override { return is_client_; }
  [[nodiscard]] uint64_t uncounted_drops() const override { return memif_.oversized(); }

  const bool is_client_;
  bool is_creating_ = false;
  MemifPort memif_;
  SpinLock transmit_lock_;
};

}  // namespace

const PortDriver kMemifDriver{
    .kind = PortKind::memif,
    .make = [](const PortSetup& setup) -> std::unique_ptr<DriverPort> {
      return std::make_unique<Memif>(setup.device.port);
    },
    .mtu_bytes = [](const DeviceConfig& device) { return device.mtu_bytes.value_or(kMemoryMtuBytes); },
};

}  // namespace faultline::glue
