// SPDX-License-Identifier: BSD-3-Clause
// UDP sockets on the host's own addresses: RoCEv2 between hosts without a capability. The kernel has the
// routes, the neighbours and the headers up to UDP.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>
#include <mutex>
#include <vector>

#include <spdlog/fmt/fmt.h>
#include <sys/epoll.h>

#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/eal/mbuf_view.hpp"
#include "pmd_glue/eal/port_identity.hpp"
#include "pmd_glue/link/host_address.hpp"
#include "pmd_glue/link/interface.hpp"
#include "pmd_glue/ports/driver.hpp"
#include "pmd_glue/ports/udp/udp_groups.hpp"
#include "pmd_glue/ports/udp/udp_socket.hpp"
#include "stack/base/spin_lock.hpp"
#include "stack/base/unique_fd.hpp"
#include "stack/wire/link/steering.hpp"

namespace faultline::glue {
namespace {

uint32_t udp_mtu_bytes(const DeviceConfig& device) {
  return device.mtu_bytes.value_or(interface_mtu_bytes(device.port.interface).value_or(kEthernetMtuBytes));
}

bool is_usable(const std::string& interface, const wire::Gid& address) {
  return interface_is_running(interface_index(interface)) && is_host_address(address);
}

class Udp final : public DriverPort {
 public:
  PortResult start(const PortSetup& setup) override;

  [[nodiscard]] size_t receive(uint16_t queue, std::span<rte_mbuf*> burst) override;
  [[nodiscard]] size_t transmit(uint32_t core, std::span<rte_mbuf*> burst) override;

  [[nodiscard]] std::optional<wire::MacAddress> mac_of_peer(const wire::Gid& peer) const override {
    return mac_of(peer);
  }
  [[nodiscard]] bool sends_by_socket() const override { return true; }
  [[nodiscard]] uint32_t most_window_packets() const override { return window_packets_; }
  [[nodiscard]] bool may_rest() const override { return true; }
  [[nodiscard]] bool link_up() const override { return is_usable(interface_, sockets_.front()->own()); }
  [[nodiscard]] PortDrops drops() const override;
  [[nodiscard]] uint64_t transmit_drops() const override;
  [[nodiscard]] PathDrops path_drops() const override;
  // A socket survives its interface and its address, which may both come back.
  [[nodiscard]] bool is_gone() const override { return false; }
  [[nodiscard]] int join_group(const wire::Gid& group) override {
    return groups_->join(group, any_socket_.get());
  }
  void leave_group(const wire::Gid& group) override { groups_->leave(group); }

 private:
  [[nodiscard]] PortResult open_sockets(const PortSetup& setup);
  [[nodiscard]] UdpSocket& socket_of(rte_mbuf* frame);

  std::string interface_;
  wire::MacAddress mac_;
  uint32_t window_packets_ = 0;
  std::vector<std::unique_ptr<UdpSocket>> sockets_;  ///< one for each address, at least one
  std::unique_ptr<UdpGroups> groups_;
  UniqueFd any_socket_;                     ///< epoll descriptor of all sockets
  std::unique_ptr<PortIdentity> identity_;  ///< nullptr: nothing asks for it
  SpinLock transmit_lock_;
};

PortResult Udp::start(const PortSetup& setup) {
  const DeviceConfig& device = setup.device;
  cores_ = core_count_of(device);
  interface_ = device.port.interface;
  mac_ = device.mac;
  pool_ = frame_pool(setup.config);
  if (pool_ == nullptr)
    return PortFault{
        fmt::format("{} MiB do not hold the frame buffers; give more", setup.config.eal.memory_mib),
        std::string(kPoolKey)};
  if (!device.capture.empty() || cores_ > 1) {
    std::string why;
    identity_ = PortIdentity::create(own_name("fl_udp_" + device.name), why);
    if (identity_ == nullptr) return PortFault{fmt::format("cannot create the port: {}", why)};
    id_ = identity_->id();
  }
  if (PortResult fault = open_sockets(setup)) return fault;
  started_ = true;
  return {};
}

PortResult Udp::open_sockets(const PortSetup& setup) {
  // What the kernel counts for a datagram of the device's MTU: a buffer of a power of two, and its own state.
  constexpr uint32_t kStateBytes = 256;
  constexpr uint32_t kLeastWindowPackets = 8;
  const uint32_t datagram_bytes = std::bit_ceil(udp_mtu_bytes(setup.device) + kStateBytes) + kStateBytes;
  window_packets_ = UINT32_MAX;
  for (const IpNetwork& address : setup.device.addresses) {
    std::string why;
    auto socket = UdpSocket::open(address.gid, interface_index(interface_), pool_, why);
    if (socket == nullptr) return PortFault{why, "ip"};
    window_packets_ = std::min(window_packets_, socket->receive_buffer_bytes() / datagram_bytes);
    sockets_.push_back(std::move(socket));
  }
  window_packets_ = std::max(window_packets_, kLeastWindowPackets);
  std::vector<wire::Gid> own;
  for (const IpNetwork& address : setup.device.addresses) own.push_back(address.gid);
  groups_ = std::make_unique<UdpGroups>(interface_, std::move(own), pool_);
  // Of one address too: a group that a program joins later wakes the threads that sleep on it.
  any_socket_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  for (const auto& socket : sockets_) {
    epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
    if (epoll_ctl(any_socket_.get(), EPOLL_CTL_ADD, socket->descriptor(), &event) != 0)
      return PortFault{fmt::format("cannot wait for its sockets: {}", reason_of(errno))};
  }
  frames_descriptors_ = {any_socket_.get()};
  return {};
}

size_t Udp::receive(uint16_t /*queue*/, std::span<rte_mbuf*> burst) {
  // Half of the room, so that a flood to a group does not keep QPs from their acknowledgements.
  size_t received = groups_->empty() ? 0 : groups_->receive(id_, burst.first(burst.size() / 2));
  for (const auto& socket : sockets_)
    if (received < burst.size()) received += socket->receive(mac_, id_, burst.subspan(received));
  return received;
}

/// A frame of another source than the device's addresses has no socket of its own: the first one drops it.
UdpSocket& Udp::socket_of(rte_mbuf* frame) {
  if (sockets_.size() == 1) return *sockets_.front();
  const auto source = wire::peek_source_gid(bytes_of(frame));
  for (const auto& socket : sockets_)
    if (source == socket->own()) return *socket;
  return *sockets_.front();
}

size_t Udp::transmit(uint32_t /*core*/, std::span<rte_mbuf*> burst) {
  std::unique_lock lock(transmit_lock_, std::defer_lock);
  if (cores_ > 1) lock.lock();
  size_t done = 0;
  while (done < burst.size()) {
    UdpSocket& socket = socket_of(burst[done]);
    size_t end = done + 1;
    while (end < burst.size() && &socket_of(burst[end]) == &socket) ++end;
    const size_t sent = socket.transmit(burst.subspan(done, end - done));
    if (sent == 0) break;
    done += sent;
  }
  return done;
}

PortDrops Udp::drops() const {
  PortDrops sum{.missed = groups_->missed(), .no_buffer = groups_->no_buffer()};
  for (const auto& socket : sockets_) {
    sum.missed += socket->missed();
    sum.no_buffer += socket->no_buffer();
  }
  return sum;
}

uint64_t Udp::transmit_drops() const {
  uint64_t sum = 0;
  for (const auto& socket : sockets_) sum += socket->refused();
  return sum;
}

PathDrops Udp::path_drops() const {
  PathDrops sum;
  for (const auto& socket : sockets_) {
    sum.too_long += socket->path_errors().too_long();
    sum.unreachable += socket->path_errors().unreachable();
  }
  return sum;
}

}  // namespace

const PortDriver kUdpDriver{
    .kind = PortKind::udp,
    .make = [](const PortSetup&) -> std::unique_ptr<DriverPort> { return std::make_unique<Udp>(); },
    .mtu_bytes = udp_mtu_bytes,
    .expects_link =
        [](const PortConfig& config) { return interface_is_running(interface_index(config.interface)); },
};

}  // namespace faultline::glue
