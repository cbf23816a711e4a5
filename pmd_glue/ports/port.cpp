// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/ports/port.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>

#include <bpf/libbpf.h>
#include <rte_bus_vdev.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <spdlog/fmt/fmt.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <xdp/libxdp.h>

#include "pmd_glue/eal/eal.hpp"
#include "pmd_glue/eal/frame_pool.hpp"
#include "pmd_glue/eal/interrupt_thread.hpp"
#include "pmd_glue/link/interface.hpp"
#include "pmd_glue/ports/interface_rights.hpp"
#include "pmd_glue/ports/packet_fanout.hpp"
#include "stack/base/log.hpp"
#include "stack/base/process/fork_generation.hpp"

namespace faultline::glue {
namespace {

constexpr uint16_t kDescriptors = 1024;
// So many are eight QPs' windows: what finds no room is lost, and READs by many are answered at once.
constexpr uint32_t kPacketRingFrames = 2048;
constexpr uint32_t kVirtualMtuBytes = 4500;
constexpr uint32_t kEthernetMtuBytes = 1500;

// AF_XDP keeps a frame in one page-sized chunk, behind the mempool's and the kernel's headroom (net_af_xdp's
// eth_dev_info).
constexpr uint32_t kXdpPageBytes = 4096;
// The mempool spreads objects over memory channels: one of a whole page's cache lines would get one more
// (rte_mempool.c, optimize_object_size), and the kernel refuses chunks beyond a page (EINVAL).
constexpr uint32_t kXdpSpreadBytes = 64;
constexpr uint32_t kXdpObjectHeaderBytes = RTE_CACHE_LINE_SIZE;
static_assert(sizeof(rte_mempool_objhdr) <= kXdpObjectHeaderBytes);
constexpr uint32_t kXdpHeadroomBytes = 256;
constexpr uint32_t kXdpBufferBytes = kXdpPageBytes - kXdpSpreadBytes - kXdpObjectHeaderBytes -
                                     sizeof(rte_mbuf) - RTE_PKTMBUF_HEADROOM - kXdpHeadroomBytes;
constexpr uint32_t kXdpMtuBytes = kXdpBufferBytes - RTE_ETHER_HDR_LEN - RTE_ETHER_CRC_LEN - RTE_VLAN_HLEN;

std::string port_error(const Config& config, const DeviceConfig& device, std::string_view key,
                       std::string_view message) {
  return fmt::format("faultline: {}: {}: device.{}: {}", config.path, device.name, key, message);
}

// What an error number of DPDK, of either sign, means.
std::string reason_of(int error) {
  if (error == -1 && rte_errno != 0) error = rte_errno;
  return rte_strerror(std::abs(error));
}

enum class SocketFile : uint8_t { absent, stale, served, not_a_socket };

// A server that was killed leaves its socket file, and bind() would refuse it for ever.
SocketFile examine_socket(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return SocketFile::absent;
  if (!S_ISSOCK(status.st_mode)) return SocketFile::not_a_socket;
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return SocketFile::served;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const bool refused =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno == ECONNREFUSED;
  close(fd);
  return refused ? SocketFile::stale : SocketFile::served;
}

// The reason why memif cannot use the path, or nothing.
std::optional<std::string> prepare_socket(const PortConfig& port) {
  const std::string directory = port.socket.substr(0, std::max<size_t>(port.socket.rfind('/'), 1));
  if (access(directory.c_str(), R_OK | W_OK) != 0)
    return fmt::format("the directory {} must exist and be readable and writable: {}", directory,
                       std::strerror(errno));
  if (!port.memif_server) return std::nullopt;
  switch (examine_socket(port.socket)) {
    case SocketFile::absent:
      break;
    case SocketFile::stale:
      unlink(port.socket.c_str());
      break;
    case SocketFile::served:
      return fmt::format("{} is served by another process; give each server a path of its own", port.socket);
    case SocketFile::not_a_socket:
      return fmt::format("{} exists and is not a socket", port.socket);
  }
  return std::nullopt;
}

/// In a forked child the names of what it has inherited are taken.
std::string own_name(std::string name) {
  const uint32_t generation = fork_generation();
  return generation == 0 ? std::move(name) : fmt::format("{}_{}", name, generation);
}

rte_ring* ring_of(const PortConfig& port, bool towards_b, uint16_t queue) {
  const std::string name = own_name(fmt::format("fl_{}_{}{}", port.wire, towards_b ? "ab" : "ba", queue));
  if (rte_ring* ring = rte_ring_lookup(name.c_str())) return ring;
  return rte_ring_create(name.c_str(), kDescriptors, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
}

// A queue for each core of the end that has more.
uint16_t queues_of_wire(const Config& config, const std::string& wire) {
  uint32_t queues = 1;
  for (const DeviceConfig& device : config.devices)
    if (device.port.kind == PortKind::ring && device.port.wire == wire)
      queues = std::max(queues, core_count_of(device));
  return static_cast<uint16_t>(queues);
}

std::string vdev_arguments(const PortConfig& port, uint16_t queue_pairs, uint32_t ring_frames) {
  switch (port.kind) {
    case PortKind::memif:
      // Buffers of the mempool's size let the PMD allocate and free whole bursts.
      return fmt::format("role={},socket={},socket-abstract=no,zero-copy=no,bsize={},rsize={}",
                         port.memif_server ? "server" : "client", port.socket, kBufferBytes,
                         std::countr_zero(port.ring_size));
    case PortKind::tap:
      return fmt::format("iface={}", port.interface);
    case PortKind::af_packet:
      // The PMD takes frames to lie back to back, so that a block must be a multiple of a frame and of a
      // page.
      return fmt::format("iface={},qpairs={},framesz={},blocksz={},framecnt={}", port.interface, queue_pairs,
                         kBufferBytes, 8 * kBufferBytes, ring_frames);
    case PortKind::af_xdp:
      return fmt::format("iface={}", port.interface);
    case PortKind::ring:
    case PortKind::pci:
    case PortKind::wire:
      break;
  }
  return {};
}
static_assert(8 * kBufferBytes % 4096 == 0);

std::string_view address_key(PortKind kind) {
  switch (kind) {
    case PortKind::memif:
      return "port.socket";
    case PortKind::ring:
      return "port.wire";
    case PortKind::pci:
      return "port.address";
    default:
      return "port.interface";
  }
}

// They print what they try and do without. What matters is in the error of the port.
void quiet_xdp_libraries() {
  libbpf_set_print(nullptr);
  libxdp_set_print(nullptr);
}

bool on_kernel_interface(PortKind kind) {
  return kind == PortKind::af_packet || kind == PortKind::af_xdp;
}

}  // namespace

uint32_t port_mtu_bytes(const DeviceConfig& device) {
  switch (device.port.kind) {
    case PortKind::memif:
    case PortKind::ring:
      return device.mtu_bytes.value_or(kVirtualMtuBytes);
    case PortKind::tap:
      return device.mtu_bytes.value_or(kTapMtuBytes);
    case PortKind::af_packet:
      return device.mtu_bytes.value_or(
          interface_mtu_bytes(device.port.interface).value_or(kEthernetMtuBytes));
    case PortKind::af_xdp:
      return std::min(
          kXdpMtuBytes,
          device.mtu_bytes.value_or(interface_mtu_bytes(device.port.interface).value_or(kEthernetMtuBytes)));
    case PortKind::pci:
    case PortKind::wire:
      break;
  }
  return device.mtu_bytes.value_or(kEthernetMtuBytes);
}

template <typename Function>
void EthernetPort::on_control_thread(Function function) {
  if (memif_ != nullptr)
    run_on_interrupt_thread(function);
  else
    function();
}

std::unique_ptr<EthernetPort> EthernetPort::open(const Config& config, const DeviceConfig& device,
                                                 std::string& error) {
  const PortConfig& wanted = device.port;
  std::unique_ptr<EthernetPort> port(new EthernetPort);
  const auto fail = [&](std::string_view message) {
    error = port_error(config, device, address_key(wanted.kind), message);
    return nullptr;
  };

  if (wanted.kind == PortKind::memif)
    if (const auto problem = prepare_socket(wanted)) return fail(*problem);
  if (on_kernel_interface(wanted.kind)) {
    if (!interface_exists(wanted.interface))
      return fail(fmt::format("there is no interface {}", wanted.interface));
    if (const auto missing = missing_rights(wanted.kind)) return fail(*missing);
    if (!interface_is_running(interface_index(wanted.interface)))
      log().warn(
          "{}: the interface {} is down: nothing is sent or received before it is up (ip link set {} up)",
          device.name, wanted.interface, wanted.interface);
    if (device.mtu_bytes)
      if (const int failed = set_interface_mtu(wanted.interface, *device.mtu_bytes); failed != 0) {
        error = port_error(config, device, "mtu",
                           fmt::format("{} does not take {}: {}", wanted.interface, *device.mtu_bytes,
                                       std::strerror(failed)));
        return nullptr;
      }
  }

  if (wanted.kind == PortKind::memif)
    port->memif_ = std::make_unique<MemifPort>(
        wanted.socket, wanted.memif_server ? MemifPort::Role::server : MemifPort::Role::client);
  port->cores_ = core_count_of(device);
  if (wanted.kind == PortKind::af_packet) port->queue_pairs_ = static_cast<uint16_t>(port->cores_);
  std::string port_name;
  if (wanted.kind == PortKind::ring) {
    port->queue_pairs_ = queues_of_wire(config, wanted.wire);
    std::array<rte_ring*, kMaxCores> out{};
    std::array<rte_ring*, kMaxCores> in{};
    for (uint16_t queue = 0; queue < port->queue_pairs_; ++queue) {
      out[queue] = ring_of(wanted, !wanted.side_b, queue);
      in[queue] = ring_of(wanted, wanted.side_b, queue);
      if (in[queue] == nullptr || out[queue] == nullptr)
        return fail(fmt::format("no memory for the rings: {}", rte_strerror(rte_errno)));
    }
    port_name = own_name(fmt::format("fl_{}", device.name));
    const int created = rte_eth_from_rings(port_name.c_str(), in.data(), port->queue_pairs_, out.data(),
                                           port->queue_pairs_, 0);
    if (created < 0) return fail(fmt::format("cannot create the port: {}", reason_of(created)));
    port->id_ = static_cast<uint16_t>(created);
    port->vdev_ = fmt::format("net_ring_{}", port_name);
    port->created_ = true;
  } else {
    port_name = wanted.address;
    if (wanted.kind != PortKind::pci) {
      port_name = own_name(fmt::format("net_{}_{}", name_of(wanted.kind), device.name));
      uint32_t ring_frames = kPacketRingFrames;
      if (wanted.kind == PortKind::af_packet) {
        ring_frames = packet_ring_frames(kPacketRingFrames, kBufferBytes, port->queue_pairs_);
        const size_t wanted_bytes = size_t{2} * kPacketRingFrames * kBufferBytes * port->queue_pairs_;
        if (ring_frames == 0) return fail(locked_memory_advice(wanted_bytes));
        if (ring_frames < kPacketRingFrames)
          log().warn("{}: rings of {} frames in place of {}, so that bursts may lose packets: {}",
                     device.name, ring_frames, kPacketRingFrames, locked_memory_advice(wanted_bytes));
      }
      if (wanted.kind == PortKind::af_xdp) quiet_xdp_libraries();
      int created = 0;
      port->on_control_thread([&] {
        const MemifPort::Creation creation(port->memif_.get());
        created =
            rte_vdev_init(port_name.c_str(), vdev_arguments(wanted, port->queue_pairs_, ring_frames).c_str());
      });
      if (created != 0)
        return fail(fmt::format("cannot create the {} port: {}", name_of(wanted.kind), reason_of(created)));
      port->vdev_ = port_name;
    }
    if (rte_eth_dev_get_port_by_name(port_name.c_str(), &port->id_) != 0)
      return fail(fmt::format("no port came up on {}; a PCI device must be bound to vfio-pci", port_name));
    port->created_ = true;
  }
  if (!port->configure(config, device, error)) return nullptr;
  return port;
}

bool EthernetPort::configure(const Config& config, const DeviceConfig& device, std::string& error) {
  const PortKind kind = device.port.kind;
  memif_client_ = kind == PortKind::memif && !device.port.memif_server;
  interface_ = device.port.interface;
  const auto fail = [&](std::string_view message) {
    error = port_error(config, device, address_key(kind), message);
    return false;
  };

  pool_ = frame_pool(config);
  if (pool_ == nullptr) {
    error = fmt::format("faultline: {}: eal.memory_mib: {} MiB do not hold the frame buffers; give more",
                        config.path, config.eal.memory_mib);
    return false;
  }
  if (kind == PortKind::af_xdp) {
    // Its chunks are pages: a pool of its own.
    const std::string name = fmt::format("fl_xdp_{}", device.name);
    pool_ = rte_mempool_lookup(name.c_str());
    if (pool_ == nullptr)
      pool_ = rte_pktmbuf_pool_create(
          name.c_str(), 8191, 256, 0,
          static_cast<uint16_t>(kXdpBufferBytes + kXdpHeadroomBytes + RTE_PKTMBUF_HEADROOM), SOCKET_ID_ANY);
    if (pool_ == nullptr) return fail("no memory for AF_XDP's buffers; raise eal.memory_mib");
  }

  rte_eth_dev_info info{};
  int result = rte_eth_dev_info_get(id_, &info);
  if (result != 0) return fail(fmt::format("the port tells nothing of itself: {}", reason_of(result)));

  rte_eth_conf conf{};
  ipv4_checksum_ = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) != 0;
  udp_checksum_ = config.udp_checksum && (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_CKSUM) != 0;
  if (ipv4_checksum_) conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
  if (udp_checksum_) conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
  conf.rxmode.offloads = info.rx_offload_capa & (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM |
                                                 RTE_ETH_RX_OFFLOAD_UDP_CKSUM | RTE_ETH_RX_OFFLOAD_SCATTER);
  conf.rxmode.mtu = kEthernetMtuBytes;
  if (kind == PortKind::pci) {
    conf.rxmode.mtu = port_mtu_bytes(device);
    if (conf.rxmode.mtu > info.max_mtu) {
      error = port_error(config, device, "mtu", fmt::format("the port takes at most {}", info.max_mtu));
      return false;
    }
  }
  if (kind == PortKind::pci) {
    const uint32_t most = std::min(info.max_rx_queues, info.max_tx_queues);
    queue_pairs_ = static_cast<uint16_t>(std::min(cores_, most));
    // A flow stays on one queue: its packets must not overtake each other.
    constexpr uint64_t kByFlow = RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP;
    if (queue_pairs_ > 1 && (info.flow_type_rss_offloads & kByFlow) != 0) {
      conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
      conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & kByFlow;
    }
  }
  shares_transmit_queues_ = queue_pairs_ < cores_;
  // Of the virtual ports some advertise 1518 and carry any length; the kernel's interface holds the real MTU.
  result = rte_eth_dev_configure(id_, queue_pairs_, queue_pairs_, &conf);
  uint16_t rx_descriptors = kDescriptors;
  uint16_t tx_descriptors = kDescriptors;
  if (result == 0) result = rte_eth_dev_adjust_nb_rx_tx_desc(id_, &rx_descriptors, &tx_descriptors);
  for (uint16_t queue = 0; result == 0 && queue < queue_pairs_; ++queue) {
    result = rte_eth_rx_queue_setup(id_, queue, rx_descriptors, SOCKET_ID_ANY, nullptr, pool_);
    const MemifPort::TransmitSetup setup(memif_.get());
    if (result == 0) result = rte_eth_tx_queue_setup(id_, queue, tx_descriptors, SOCKET_ID_ANY, nullptr);
  }
  if (result != 0)
    return fail(fmt::format("cannot configure the {} port: {}", name_of(kind), reason_of(result)));

  on_control_thread([&] { result = rte_eth_dev_start(id_); });
  started_ = result == 0;
  if (!started_ && !memif_client_)
    return fail(fmt::format("cannot start the {} port: {}", name_of(kind), reason_of(result)));

  if (on_kernel_interface(kind)) interface_index_ = interface_index(interface_);
  earlier_drops_ = packet_socket_drops(interface_index_);
  if (kind == PortKind::tap) {
    tap_descriptor_ = find_tap_descriptor(interface_);
    frames_descriptors_ = {find_tap_queue(interface_)};
  }
  if (kind == PortKind::af_packet) {
    frames_descriptors_ = packet_sockets_at(interface_index_);
    // Another port of this process may be at the same interface: ours are the newest.
    const size_t others =
        frames_descriptors_.size() - std::min<size_t>(frames_descriptors_.size(), queue_pairs_);
    frames_descriptors_.erase(frames_descriptors_.begin(),
                              frames_descriptors_.begin() + static_cast<std::ptrdiff_t>(others));
  }
  if (kind == PortKind::tap)
    if (const int failed = set_interface_mtu(interface_, port_mtu_bytes(device)); failed != 0) {
      error = port_error(
          config, device, "mtu",
          fmt::format("{} does not take {}: {}", interface_, port_mtu_bytes(device), std::strerror(failed)));
      return false;
    }
  if (kind == PortKind::pci) {
    rte_ether_addr mac;
    std::copy(device.mac.bytes.begin(), device.mac.bytes.end(), mac.addr_bytes);
    // Neighbour solicitations and groups come to multicast addresses; which of them are ours, the engine
    // knows.
    if (rte_eth_dev_default_mac_addr_set(id_, &mac) == 0 && rte_eth_allmulticast_enable(id_) == 0)
      return true;
  }
  // The interface keeps its own MAC address; the device's is another one on the same wire.
  if (on_kernel_interface(kind) || kind == PortKind::pci) {
    result = rte_eth_promiscuous_enable(id_);
    if (result != 0)
      return fail(fmt::format("cannot receive for the device's MAC address: {}", reason_of(result)));
  }
  return true;
}

size_t EthernetPort::receive(uint16_t queue, std::span<rte_mbuf*> burst) {
  if (memif_ != nullptr) return memif_->receive(pool_, id_, burst);
  return rte_eth_rx_burst(id_, queue, burst.data(), static_cast<uint16_t>(burst.size()));
}

size_t EthernetPort::transmit(uint32_t core, std::span<rte_mbuf*> burst) {
  const auto queue = static_cast<uint16_t>(core % queue_pairs_);
  const auto count = static_cast<uint16_t>(burst.size());
  if (!shares_transmit_queues_)
    return memif_ != nullptr ? memif_->transmit(burst) : rte_eth_tx_burst(id_, queue, burst.data(), count);
  const std::lock_guard guard(transmit_lock_);
  return memif_ != nullptr ? memif_->transmit(burst) : rte_eth_tx_burst(id_, queue, burst.data(), count);
}

EthernetPort::~EthernetPort() {
  on_control_thread([this] {
    if (created_) {
      if (started_) rte_eth_dev_stop(id_);
      rte_eth_dev_close(id_);
    }
    if (!vdev_.empty()) rte_vdev_uninit(vdev_.c_str());
    if (memif_ != nullptr) memif_->free_forgotten();
  });
}

bool EthernetPort::link_up() const {
  if (!started_ || (memif_ != nullptr && memif_->is_broken())) return false;
  rte_eth_link link{};
  if (rte_eth_link_get_nowait(id_, &link) != 0 || link.link_status != RTE_ETH_LINK_UP) return false;
  // net_af_packet and net_af_xdp do not look at the interface again.
  return interface_index_ == 0 || interface_is_running(interface_index_);
}

uint64_t EthernetPort::uncounted_drops() const {
  if (memif_ != nullptr) return memif_->oversized();
  return packet_socket_drops(interface_index_) - earlier_drops_;
}

uint64_t EthernetPort::peer_violations() const {
  return memif_ != nullptr ? memif_->violations() : 0;
}

bool EthernetPort::is_gone() const {
  if (tap_descriptor_ >= 0) return !tap_is_attached(tap_descriptor_);
  if (interface_index_ != 0) return !interface_index_exists(interface_index_);
  return rte_eth_dev_is_removed(id_) == 1;
}

void EthernetPort::reconnect() {
  on_control_thread([this] {
    if (started_) rte_eth_dev_stop(id_);
    started_ = rte_eth_dev_start(id_) == 0;
  });
}

bool expects_link(const PortConfig& config) {
  if (config.kind != PortKind::af_packet && config.kind != PortKind::af_xdp) return true;
  return interface_is_running(interface_index(config.interface));
}

}  // namespace faultline::glue
