// SPDX-License-Identifier: BSD-3-Clause
// The entries that the kernel's RDMA core would have below /sys/class and /dev for our devices, as text.
// Pure: facts in, a table of paths out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <infiniband/verbs.h>

#include "stack/verbs/objects/backend.hpp"

namespace faultline::abi {

enum class NodeKind : uint8_t {
  directory,
  file,
  verbs_device,        ///< /dev/infiniband/uverbsN
  connection_manager,  ///< /dev/infiniband/rdma_cm
};

struct Node {
  NodeKind kind = NodeKind::directory;
  std::string text;  ///< of a file
  uint32_t device_major = 0, device_minor = 0;
  std::vector<std::string> names;  ///< of a directory, sorted
};

/// What is known of one device.
struct DeviceFacts {
  const verbs::DeviceDescription* description = nullptr;
  uint64_t guid_be = 0;  ///< as ibv_get_device_guid has it
  int index = 0;
  std::string verbs_name;  ///< "uverbs0"
  std::string version;     ///< of the firmware: ours
  ibv_port_attr port{};
  std::string interface;  ///< the network interface that has one of the device's addresses, or empty
};

class DeviceFiles {
 public:
  explicit DeviceFiles(std::span<const DeviceFacts> devices);

  /// Of a normalized path; nullptr where there is no such entry.
  [[nodiscard]] const Node* find(std::string_view path) const;

 private:
  void add(const std::string& path, Node node);
  void add_file(const std::string& path, std::string text);
  void add_device(const DeviceFacts& device);
  void add_port(const std::string& folder, const DeviceFacts& device);

  std::map<std::string, Node, std::less<>> nodes_;
};

/// An absolute path without doubled slashes, "." and ".."; "" for "/".
[[nodiscard]] std::string normal_path(std::string_view path);
/// ... if it lies in one of the trees that are ours; an absolute
/// path only. Costs a few comparisons for any other.
[[nodiscard]] std::optional<std::string> own_path(std::string_view path);

inline constexpr uint32_t kVerbsMajor = 231, kFirstVerbsMinor = 192;  // the kernel's, for uverbs
inline constexpr uint32_t kMiscMajor = 10, kConnectionManagerMinor = 58;

}  // namespace faultline::abi
