// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/export/sysfs_tree.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "stack/abi/tree/device_files.hpp"
#include "stack/base/counter_row.hpp"
#include "stack/status/segment_reader.hpp"
#include "stack/wire/packet/headers.hpp"

namespace faultline::cli {
namespace {

using status::SegmentReader;

constexpr std::string_view kSys = "/sys/";
constexpr std::string_view kDevices = "class/infiniband";

/// A device, of all programs that have one of its name.
struct Device {
  verbs::DeviceDescription description;
  ibv_port_attr port{};
  std::vector<abi::NamedCounter> counters;
};

uint64_t guid_of(const wire::MacAddress& mac) {
  // EUI-64 (RFC 4291, appendix A), in network byte order.
  const std::array<uint8_t, 8> bytes{static_cast<uint8_t>(mac.bytes[0] ^ 2),
                                     mac.bytes[1],
                                     mac.bytes[2],
                                     0xff,
                                     0xfe,
                                     mac.bytes[3],
                                     mac.bytes[4],
                                     mac.bytes[5]};
  uint64_t guid = 0;
  std::memcpy(&guid, bytes.data(), sizeof guid);
  return guid;
}

void describe(const SegmentReader& segment, Device& device) {
  const status::SegmentHeader& header = segment.header();
  verbs::DeviceDescription& description = device.description;
  description.name = segment.device();
  std::copy_n(header.mac.begin(), description.mac.bytes.size(), description.mac.bytes.begin());
  for (uint32_t i = 0; i < header.gid_count; ++i) description.gids.push_back(wire::Gid{header.gids[i]});
  constexpr uint8_t kLinkUp = 5;
  constexpr uint8_t kDisabled = 3;
  const bool up = segment.device_row().link_up != 0;
  device.port.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  device.port.phys_state = up ? kLinkUp : kDisabled;
  device.port.active_width = header.active_width_code;
  device.port.active_speed = header.active_speed_code;
}

void add_counters(const SegmentReader& segment, Device& device) {
  for (const SegmentReader::Counter& counter : segment.counters()) {
    const std::string name = SegmentReader::text(counter.text.name);
    const auto found = std::ranges::find(device.counters, name, &abi::NamedCounter::name);
    if (found == device.counters.end())
      device.counters.push_back({name, counter.value});
    else if (counter.text.kind == static_cast<uint32_t>(CounterKind::maximum))
      found->value = std::max(found->value, counter.value);
    else
      found->value += counter.value;
  }
}

std::map<std::string, Device> running_devices() {
  std::map<std::string, Device> devices;
  for (const auto& segment : status::open_segments()) {
    if (segment->is_dead() || segment->is_closed()) continue;
    const auto [at, is_new] = devices.try_emplace(segment->device());
    if (is_new) describe(*segment, at->second);
    add_counters(*segment, at->second);
  }
  return devices;
}

/// A reader finds the old text or the new one.
bool write_file(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path whole = path.string() + ".new";
  std::ofstream file(whole, std::ios::trunc);
  file << text;
  file.close();
  return file && std::rename(whole.c_str(), path.c_str()) == 0;
}

/// The tree may be anywhere: its links are relative. A former version had a folder in a link's place.
bool write_link(const std::filesystem::path& place, const std::filesystem::path& path,
                const std::string& target) {
  const std::filesystem::path text = std::filesystem::path(target).lexically_relative(path.parent_path());
  std::error_code failed;
  if (std::filesystem::read_symlink(place, failed) == text) return true;
  std::filesystem::remove_all(place, failed);
  if (!failed) std::filesystem::create_symlink(text, place, failed);
  errno = failed.value();
  return !failed;
}

}  // namespace

bool write_sysfs_tree(const std::string& folder, std::string& error) {
  const std::map<std::string, Device> devices = running_devices();
  std::vector<abi::DeviceFacts> facts;
  for (const auto& [name, device] : devices) {
    abi::DeviceFacts fact;
    fact.description = &device.description;
    fact.guid_be = guid_of(device.description.mac);
    fact.index = static_cast<int>(facts.size());
    fact.verbs_name = fmt::format("uverbs{}", facts.size());
    fact.version = FAULTLINE_VERSION;
    fact.port = device.port;
    fact.counters = device.counters;
    facts.push_back(std::move(fact));
  }
  const auto refuse = [&](const std::filesystem::path& path, int number) {
    error = fmt::format("cannot write {}: {}; give --sysfs a folder that this user may write", path.string(),
                        std::strerror(number));
    return false;
  };
  std::error_code failed;
  const std::filesystem::path top = std::filesystem::path(folder) / kDevices;
  std::filesystem::create_directories(top, failed);
  if (failed) return refuse(top, failed.value());
  for (const auto& entry : std::filesystem::directory_iterator(top, failed))
    if (!devices.contains(entry.path().filename().string()))
      std::filesystem::remove_all(entry.path(), failed);
  const abi::DeviceFiles files(facts);
  for (const auto& [path, node] : files.nodes()) {
    if (!path.starts_with(kSys)) continue;  // /dev
    const std::filesystem::path place = std::filesystem::path(folder) / path.substr(kSys.size());
    std::filesystem::create_directories(node.kind == abi::NodeKind::directory ? place : place.parent_path(),
                                        failed);
    if (failed) return refuse(place, failed.value());
    if (node.kind == abi::NodeKind::file && !write_file(place, node.text)) return refuse(place, errno);
    if (node.kind == abi::NodeKind::link && !write_link(place, path, node.text)) return refuse(place, errno);
  }
  return true;
}

}  // namespace faultline::cli
