// SPDX-License-Identifier: BSD-3-Clause
// The parsed configuration file. A configuration error is one line: "faultline: <file>:<line>: <key>: <what
// would be right>".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "odp/regions/memory_domain.hpp"
#include "pmd_glue/link/address_table.hpp"
#include "pmd_glue/wires/wire_request.hpp"
#include "stack/chaos/fault_model.hpp"
#include "stack/chaos/link_model.hpp"
#include "stack/transport/qp/config.hpp"
#include "stack/wire/packet/headers.hpp"

namespace faultline::glue {

/// `what()` is the complete line, without a newline.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct EalConfig {
  bool huge_pages = false;
  uint32_t memory_mib = 256;
  std::vector<unsigned> lcores;  ///< empty: the process's CPU affinity
  std::vector<std::string> extra_args;
  std::vector<std::string>
      module_drivers;  ///< kernel drivers whose NICs a loaded PMD shares; never in a file
};

/// A port of kind `wire` becomes a memif port of the wire's switch before it is opened (wire_config.hpp).
enum class PortKind : uint8_t { memif, ring, tap, af_packet, af_xdp, pci, wire, vhost, virtio_user, udp };
[[nodiscard]] std::string_view name_of(PortKind kind);

struct PortConfig {
  PortKind kind = PortKind::memif;
  bool is_server = false;     ///< memif, vhost, virtio_user: the role
  std::string socket;         ///< memif, vhost, virtio_user
  uint32_t ring_size = 1024;  ///< memif
  uint32_t queues = 1;        ///< vhost, virtio_user: queue pairs
  std::string wire;           ///< ring
  bool side_b = false;        ///< ring
  std::string interface;      ///< tap, af_packet, af_xdp; udp: of the addresses, set by find_host_addresses
  std::string address;        ///< pci, with arguments of the PMD: "0000:01:00.0,key=value"
  WireRequest request;        ///< wire; without a name $FAULTLINE_WIRE applies
};

/// MTU limit of net_tap: it enforces ethdev's MTU limit, and advertises frames of 1522 bytes (DPDK 22.11).
inline constexpr uint32_t kTapMtuBytes = 1500;

/// The smallest L3 MTU: a path MTU of 256, with IPv6 and the longest headers around it
/// (wire::largest_path_mtu_bytes).
inline constexpr uint32_t kLeastMtuBytes = 344;

/// Limit of addresses of a device: with its link-local address, as many as the address filter holds.
inline constexpr size_t kMaxAddresses = 16;
inline constexpr size_t kMaxRoutes = 64;

enum class Progress : uint8_t { automatic, dedicated };

/// [device.chaos]: faults to inject into the device's link and memory.
struct ChaosConfig {
  chaos::LinkModelConfig link;
  bool receive = true;  ///< apply the link model to received frames
  bool transmit = true;
  chaos::FaultModelConfig faults;

  [[nodiscard]] bool harmless() const { return link.harmless() && faults.harmless(); }
};

/// Speed of one lane (IBA 14.2.5.6, PortInfo), by the names in sysfs `rate`.
enum class LinkSpeed : uint8_t { sdr, ddr, qdr, fdr10, fdr, edr, hdr, ndr };

struct DeviceConfig {
  std::string name;
  std::vector<IpNetwork>
      addresses;                    ///< in the file's order; none: the wire assigns one, or the host has them
  bool has_host_addresses = false;  ///< the kernel has them too: kind udp, or a wire's uplink by sockets
  std::vector<Route> routes;
  wire::MacAddress mac;
  bool has_configured_mac = false;  ///< the file sets `mac`; otherwise a NIC keeps its own
  std::optional<uint16_t> vlan_id;
  uint8_t vlan_priority = 0;
  uint8_t dscp = 0;
  std::optional<uint32_t> mtu_bytes;  ///< L3 MTU, if the file sets one
  Progress progress = Progress::automatic;
  std::vector<unsigned> lcores;  ///< one core each; empty: one core, not pinned
  uint32_t vendor_id = 0xffffff;
  uint32_t vendor_part_id = 0;
  std::string firmware;  ///< empty: the library's version
  /// Link attributes for ibv_query_port. They are nominal, since no port here has a speed of its own, but
  /// programs (UCX) choose devices by them.
  uint32_t active_width = 4;
  LinkSpeed active_speed = LinkSpeed::edr;
  uint64_t device_memory_bytes = uint64_t{1} << 20;  ///< ibv_alloc_dm
  std::string capture;                               ///< file name; empty: none
  uint64_t min_ack_timeout_ns = 0;                   ///< 0: a QP's timeout is as the program says
  bool publish = true;  ///< the device's state, for other processes of this user (stack/status)
  PortConfig port;
  ChaosConfig chaos;
};

/// [switch]: what faultline-switch alone reads.
struct SwitchConfig {
  std::string exception;  ///< name of the tap to the kernel; empty: none
  // 0: no limit.
  uint32_t program_rate_mbps = 0;  ///< of each program's frames to the uplink
  uint32_t uplink_rate_mbps = 0;   ///< of all frames to the uplink
};
inline constexpr uint32_t kMostRateMbps = 1'000'000;

struct Config {
  std::string path;
  EalConfig eal;
  odp::DomainConfig domain;
  transport::CoreConfig core;
  bool udp_checksum = false;
  bool icrc = true;  ///< compute and verify the ICRC
  std::string log_level = "warn";
  std::string log_file;  ///< as log_to_file() takes it; empty: stderr
  std::vector<DeviceConfig> devices;
  SwitchConfig wire_switch;
};

/// Returns the number of cores that share the device's QPs.
[[nodiscard]] uint32_t core_count_of(const DeviceConfig& device);
inline constexpr size_t kMaxCores = 16;

/// Returns the VLAN tag of the device's own frames.
[[nodiscard]] wire::VlanTag vlan_tag_of(const DeviceConfig& device);

/// Returns the valid values of [log] level.
[[nodiscard]] std::span<const std::string_view> log_levels();

/// Loads the file at `path`. Throws ConfigError.
[[nodiscard]] Config load_config(const std::string& path);
/// Parses configuration text; `path` is the file name in errors. Throws ConfigError.
[[nodiscard]] Config parse_config(std::string_view text, const std::string& path);

}  // namespace faultline::glue
