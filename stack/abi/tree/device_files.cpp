// SPDX-License-Identifier: BSD-3-Clause
#include "stack/abi/tree/device_files.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <netinet/in.h>  // before linux/in6.h, which would define in6_addr without the names of IN6_IS_ADDR_*
#include <rdma/rdma_user_cm.h>
#include <spdlog/fmt/fmt.h>

#include "stack/abi/tree/interface_statistics.hpp"
#include "stack/abi/tree/standard_counters.hpp"
#include "stack/verbs/device/port_speed.hpp"
#include "stack/verbs/objects/limits.hpp"
#include "stack/wire/packet/headers.hpp"

namespace faultline::abi {

namespace {

/// Trees in which every entry is ours, and last those that we share with the kernel.
constexpr auto kTrees = std::to_array<std::string_view>(
    {"/sys/class/infiniband", "/sys/class/infiniband_verbs", "/sys/class/infiniband_cm",
     "/sys/class/misc/rdma_cm", "/dev/infiniband", kInterfaces, kVirtualInterfaces});

/// Formats 16-bit groups, as the kernel prints GUIDs and GIDs.
std::string groups_of(std::span<const uint8_t> bytes) {
  std::string text;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2)
    text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", bytes[i], bytes[i + 1]);
  return text;
}

std::string text_of(const wire::MacAddress& mac) {
  std::string text;
  for (const uint8_t byte : mac.bytes) text += fmt::format("{}{:02x}", text.empty() ? "" : ":", byte);
  return text;
}

std::string line(std::string text) {
  text += '\n';
  return text;
}

std::string rate_text(const ibv_port_attr& port) {
  const verbs::LaneSpeed lane = verbs::lane_speed(port.active_speed);
  const uint32_t lanes = verbs::lanes_of(port.active_width);
  const uint32_t tenths = verbs::tenths_of_gbps(port.active_speed, port.active_width);
  const std::string fraction = tenths % 10 == 0 ? "" : fmt::format(".{}", tenths % 10);
  return fmt::format("{}{} Gb/sec ({}X{})", tenths / 10, fraction, lanes, lane.name);
}

std::string_view state_text(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_NOP:
      return "NOP";
    case IBV_PORT_DOWN:
      return "DOWN";
    case IBV_PORT_INIT:
      return "INIT";
    case IBV_PORT_ARMED:
      return "ARMED";
    case IBV_PORT_ACTIVE:
      return "ACTIVE";
    case IBV_PORT_ACTIVE_DEFER:
      return "ACTIVE_DEFER";
  }
  return "UNKNOWN";
}

std::string_view physical_state_text(uint8_t state) {
  constexpr std::array<std::string_view, 8> kNames{
      "<unknown>",         "Sleep",   "Polling", "Disabled", "PortConfigurationTraining", "LinkUp",
      "LinkErrorRecovery", "Phy Test"};
  return state < kNames.size() ? kNames[state] : kNames[0];
}

}  // namespace

DeviceFiles::DeviceFiles(std::span<const DeviceFacts> devices) {
  for (const std::string_view tree : {kTrees[0], kTrees[1], kTrees[4]}) add(std::string(tree), {});
  constexpr int kVerbsAbi = 6;  // IB_USER_VERBS_ABI_VERSION
  constexpr int kCmAbi = 5;     // of the old ib_ucm
  add_file("/sys/class/infiniband_verbs/abi_version", fmt::format("{}\n", kVerbsAbi));
  add_file("/sys/class/infiniband_cm/abi_version", fmt::format("{}\n", kCmAbi));
  add_file("/sys/class/misc/rdma_cm/abi_version", fmt::format("{}\n", RDMA_USER_CM_ABI_VERSION));
  add_file("/sys/class/misc/rdma_cm/dev", fmt::format("{}:{}\n", kMiscMajor, kConnectionManagerMinor));
  add("/dev/infiniband/rdma_cm", {NodeKind::connection_manager, {}, kMiscMajor, kConnectionManagerMinor, {}});
  for (const DeviceFacts& device : devices) add_device(device);
}

const Node* DeviceFiles::find(std::string_view path) const {
  const auto found = nodes_.find(path);
  return found == nodes_.end() ? nullptr : &found->second;
}

DeviceFiles::Place DeviceFiles::follow(std::string path) const {
  constexpr int kMostLinks = 40;  // MAXSYMLINKS of Linux
  Place place{std::move(path), nullptr, {}, 0};
  int links = 0;
  for (size_t end = 0; end < place.path.size();) {
    end = std::min(place.path.find('/', end + 1), place.path.size());
    const bool is_last = end == place.path.size();
    const Node* const node = find(std::string_view(place.path).substr(0, end));
    if (node != nullptr && node->kind == NodeKind::link) {
      if (++links > kMostLinks) return {std::move(place.path), nullptr, {}, ELOOP};
      if (is_last) place.link = node->text;
      place.path.replace(0, end, node->text);
      end = 0;
    } else if (is_last) {
      place.node = node;
    } else if (node != nullptr && node->kind != NodeKind::directory) {
      place.error = ENOTDIR;
      return place;
    }
  }
  if (place.node == nullptr) place.error = ENOENT;
  return place;
}

void DeviceFiles::add(const std::string& path, Node node) {
  const auto [at, added] = nodes_.try_emplace(path);
  if (!added && node.kind == NodeKind::directory) return;
  at->second = std::move(node);
  // Adds the parent folders, up to the root of the tree.
  const size_t slash = path.rfind('/');
  const std::string parent = path.substr(0, slash);
  if (std::none_of(kTrees.begin(), kTrees.end(),
                   [&](std::string_view tree) { return parent.starts_with(tree); }))
    return;
  add(parent, {});
  auto& names = nodes_[parent].names;
  const std::string name = path.substr(slash + 1);
  const auto place = std::lower_bound(names.begin(), names.end(), name);
  if (place == names.end() || *place != name) names.insert(place, name);
}

void DeviceFiles::add_file(const std::string& path, std::string text) {
  add(path, {NodeKind::file, std::move(text), 0, 0, {}});
}

void DeviceFiles::add_link(const std::string& path, std::string target) {
  add(path, {NodeKind::link, std::move(target), 0, 0, {}});
}

void DeviceFiles::add_hardware(const std::string& hardware, const DeviceFacts& device) {
  const std::string& name = device.description->name;
  add_file(hardware + "/numa_node", "-1\n");  // no NUMA node
  add_file(hardware + "/vendor", fmt::format("0x{:04x}\n", device.description->vendor_id));
  add_file(hardware + "/device", fmt::format("0x{:04x}\n", device.description->vendor_part_id));
  add_link(hardware + "/infiniband/" + name, "/sys/class/infiniband/" + name);
  add_link(hardware + "/infiniband_verbs/" + device.verbs_name,
           "/sys/class/infiniband_verbs/" + device.verbs_name);
  if (device.interface.empty()) return;
  const std::string place = hardware + "/net/" + device.interface;
  // Of the kernel's interfaces only the name is here.
  if (device.own_interface)
    add_link(place, fmt::format("{}/{}", kInterfaces, device.interface));
  else
    add(place, {});
}

void DeviceFiles::add_device(const DeviceFacts& device) {
  const verbs::DeviceDescription& description = *device.description;
  const std::string folder = "/sys/class/infiniband/" + description.name;
  std::array<uint8_t, sizeof device.guid_be> guid{};
  std::memcpy(guid.data(), &device.guid_be, guid.size());
  add_file(folder + "/node_type", "1: CA\n");
  add_file(folder + "/node_guid", line(groups_of(guid)));
  add_file(folder + "/sys_image_guid", line(groups_of(guid)));
  add_file(folder + "/node_desc", line(description.name));
  add_file(folder + "/fw_ver", line(device.version));
  add_file(folder + "/hw_rev", "0\n");
  add_file(folder + "/hca_type", "faultline\n");
  // Of drivers of NICs; node_exporter's collector reads no device without it.
  add_file(folder + "/board_id", "faultline\n");
  add_port(folder + "/ports/1", device);

  const std::string verbs_folder = "/sys/class/infiniband_verbs/" + device.verbs_name;
  const uint32_t minor = kFirstVerbsMinor + static_cast<uint32_t>(device.index);
  add_file(verbs_folder + "/abi_version", "1\n");
  add_file(verbs_folder + "/ibdev", line(description.name));
  add_file(verbs_folder + "/dev", fmt::format("{}:{}\n", kVerbsMajor, minor));
  for (const std::string& entry : {folder, verbs_folder}) add_hardware(entry + "/device", device);
  if (device.own_interface) add_interface(device);
  add("/dev/infiniband/" + device.verbs_name, {NodeKind::verbs_device, {}, kVerbsMajor, minor, {}});
}

void DeviceFiles::add_port(const std::string& folder, const DeviceFacts& device) {
  const ibv_port_attr& port = device.port;
  add_file(folder + "/state", fmt::format("{}: {}\n", static_cast<int>(port.state), state_text(port.state)));
  add_file(folder + "/phys_state",
           fmt::format("{}: {}\n", port.phys_state, physical_state_text(port.phys_state)));
  add_file(folder + "/rate", line(rate_text(port)));
  add_file(folder + "/link_layer", "Ethernet\n");
  add_file(folder + "/cap_mask", fmt::format("0x{:08x}\n", port.port_cap_flags));
  for (const char* name : {"/lid", "/sm_lid"}) add_file(folder + name, "0x0\n");
  for (const char* name : {"/lid_mask_count", "/sm_sl"}) add_file(folder + name, "0\n");
  for (int index = 0; index < verbs::kPkeyTableLength; ++index)
    add_file(fmt::format("{}/pkeys/{}", folder, index), fmt::format("0x{:04x}\n", wire::kDefaultPkey));

  for (const char* name : {"/counters", "/hw_counters"}) add(folder + name, {});
  if (!device.counters.empty())
    for (const CounterFile& counter : counter_files(device.counters))
      add_file(fmt::format("{}/{}", folder, counter.file), fmt::format("{}\n", counter.value));

  const std::vector<wire::Gid>& gids = device.description->gids;
  for (size_t index = 0; index < size_t{verbs::kGidTableLength}; ++index) {
    const bool is_used = index < gids.size();
    const wire::Gid gid = is_used ? gids[index] : wire::Gid{};
    add_file(fmt::format("{}/gids/{}", folder, index), line(groups_of(gid.bytes)));
    add_row(fmt::format("{}/gid_attrs/types/{}", folder, index), is_used ? "RoCE v2" : "");
    add_row(fmt::format("{}/gid_attrs/ndevs/{}", folder, index), is_used ? device.interface : "");
  }
}

void DeviceFiles::add_row(const std::string& path, std::string text) {
  if (text.empty())
    add(path, {NodeKind::empty_row, {}, 0, 0, {}});
  else
    add_file(path, line(std::move(text)));
}

/// The attributes of Documentation/ABI/testing/sysfs-class-net.
void DeviceFiles::add_interface(const DeviceFacts& device) {
  const OwnInterface& own = *device.own_interface;
  const std::string folder = fmt::format("{}/{}", kInterfaces, own.name);
  const auto add_number = [&](const char* name, uint64_t value) {
    add_file(folder + name, fmt::format("{}\n", value));
  };
  constexpr uint64_t kEthernet = 1;  // ARPHRD_ETHER
  add_file(folder + "/address", line(text_of(own.mac)));
  add_file(folder + "/broadcast", line(text_of(kBroadcastMac)));
  add_number("/addr_len", own.mac.bytes.size());
  add_number("/carrier", own.is_up ? 1 : 0);
  add_file(folder + "/dev_id", "0x0\n");
  add_number("/dev_port", 0);
  add_file(folder + "/duplex", "full\n");
  add_file(folder + "/flags", fmt::format("{:#x}\n", flags_of(own) & uint32_t{UINT16_MAX}));
  add_number("/ifindex", own.index);
  add_number("/iflink", own.index);
  add_number("/link_mode", 0);
  add_number("/mtu", own.mtu_bytes);
  add_file(folder + "/operstate", own.is_up ? "up\n" : "down\n");
  add_number("/speed", own.speed_mbps);
  add(folder + "/statistics", {});
  if (!device.counters.empty())
    for (const StatisticsFile& file : statistics_files(interface_statistics(device.counters)))
      add_file(fmt::format("{}/statistics/{}", folder, file.name), fmt::format("{}\n", file.value));
  add_number("/tx_queue_len", kQueueLength);
  add_number("/type", kEthernet);
  add_file(folder + "/uevent", fmt::format("INTERFACE={}\nIFINDEX={}\n", own.name, own.index));
  add_hardware(folder + "/device", device);
}

std::string normal_path(std::string_view path) {
  std::string normal;
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view name = path.substr(at, end - at);
    at = end + 1;
    if (name.empty() || name == ".") continue;
    if (name == "..") {
      normal.resize(normal.empty() ? 0 : normal.rfind('/'));
      continue;
    }
    normal += '/';
    normal += name;
  }
  return normal;
}

namespace {

/// proc(5): "/proc/net" is a link to the folder of the process that reads it.
std::optional<std::string> table_path(std::string_view path) {
  constexpr std::array<std::string_view, 3> kNames{kInterfaceTable, "/proc/self/net/dev",
                                                   "/proc/thread-self/net/dev"};
  if (std::ranges::find(kNames, normal_path(path)) == kNames.end()) return std::nullopt;
  return std::string(kInterfaceTable);
}

}  // namespace

std::optional<std::string> own_path(std::string_view path) {
  // Called for every path of the program: most return after these comparisons.
  if (path.size() < kInterfaceTable.size() || path[0] != '/') return std::nullopt;
  if (path.ends_with("net/dev")) return table_path(path);
  constexpr std::array<std::string_view, 4> kMarks{"infiniband", "rdma_cm", "class/net", "virtual/net"};
  if (std::ranges::none_of(kMarks,
                           [&](std::string_view mark) { return path.find(mark) != std::string_view::npos; }))
    return std::nullopt;
  std::string normal = normal_path(path);
  const bool ours = std::any_of(kTrees.begin(), kTrees.end(), [&](std::string_view tree) {
    return normal.starts_with(tree) && (normal.size() == tree.size() || normal[tree.size()] == '/');
  });
  if (!ours) return std::nullopt;
  return normal;
}

}  // namespace faultline::abi
