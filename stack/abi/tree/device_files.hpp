// SPDX-License-Identifier: BSD-3-Clause
// The entries below /sys/class and /dev that the kernel's RDMA core would have for our devices, as text.
// Pure: builds a table of paths from facts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <infiniband/verbs.h>

#include "stack/abi/interfaces/net_interface.hpp"
#include "stack/abi/tree/standard_counters.hpp"
#include "stack/verbs/objects/backend.hpp"

namespace faultline::abi {

enum class NodeKind : uint8_t {
  directory,
  file,
  empty_row,           ///< a file of a table's row without content: a read fails with EINVAL
  link,                ///< symbolic
  verbs_device,        ///< /dev/infiniband/uverbsN
  connection_manager,  ///< /dev/infiniband/rdma_cm
  socket,              ///< of RDMA netlink; has no path
};

struct Node {
  NodeKind kind = NodeKind::directory;
  std::string text;  ///< content of a file; of a link the absolute path that it refers to
  uint32_t device_major = 0, device_minor = 0;
  std::vector<std::string> names;  ///< entries of a directory, sorted
};

/// Known facts of one device.
struct DeviceFacts {
  const verbs::DeviceDescription* description = nullptr;
  uint64_t guid_be = 0;  ///< byte order of ibv_get_device_guid
  int index = 0;
  std::string verbs_name;  ///< "uverbs0"
  std::string version;     ///< of the firmware: this library's, unless the configuration has another
  ibv_port_attr port{};
  std::string interface;  ///< network interface that has one of the device's addresses, or empty
  uint32_t interface_index = 0;
  std::optional<OwnInterface> own_interface;  ///< if that interface is none of the kernel
  /// Without them, the counters' folders are empty, and the interface has no statistics.
  std::vector<NamedCounter> counters;
};

class DeviceFiles {
 public:
  explicit DeviceFiles(std::span<const DeviceFacts> devices);

  /// Looks up a normalized path; nullptr if there is no such entry. Follows no link.
  [[nodiscard]] const Node* find(std::string_view path) const;
  /// An entry, or why there is none.
  struct Place {
    std::string path;            ///< without links
    const Node* node = nullptr;  ///< no link
    std::string link;            ///< what the path refers to, if it is a link
    int error = 0;
  };
  /// Follows the links of a normalized path, at most 40, as Linux does (path_resolution(7)). The error is
  /// ENOENT, ENOTDIR or ELOOP.
  [[nodiscard]] Place follow(std::string path) const;
  /// All entries by their paths.
  [[nodiscard]] const std::map<std::string, Node, std::less<>>& nodes() const { return nodes_; }

 private:
  void add(const std::string& path, Node node);
  void add_file(const std::string& path, std::string text);
  void add_link(const std::string& path, std::string target);
  /// Adds the folder of a device's hardware, with links to its entries in the classes.
  void add_hardware(const std::string& hardware, const DeviceFacts& device);
  void add_device(const DeviceFacts& device);
  void add_port(const std::string& folder, const DeviceFacts& device);
  /// Adds the file of a row, which has no content if `text` is empty.
  void add_row(const std::string& path, std::string text);
  void add_interface(const DeviceFacts& device);

  std::map<std::string, Node, std::less<>> nodes_;
};

/// Returns an absolute path without doubled slashes, "." and ".."; "" for "/".
[[nodiscard]] std::string normal_path(std::string_view path);
/// Where the kernel has the host's interfaces. Only the entries of our interfaces are ours.
/// Each of them is a symbolic link to a folder of kVirtualInterfaces (sysfs(5)).
inline constexpr std::string_view kInterfaces = "/sys/class/net";
inline constexpr std::string_view kVirtualInterfaces = "/sys/devices/virtual/net";

/// The kernel's table of interfaces and their statistics (proc(5)), to which ours are added.
inline constexpr std::string_view kInterfaceTable = "/proc/net/dev";

/// Returns the normalized path if it lies in one of our trees, in kInterfaces or in kVirtualInterfaces, or is
/// kInterfaceTable by one of its names; `path` must be absolute. Costs a few comparisons for any other path.
[[nodiscard]] std::optional<std::string> own_path(std::string_view path);

inline constexpr uint32_t kVerbsMajor = 231, kFirstVerbsMinor = 192;  // the kernel's, for uverbs
inline constexpr uint32_t kMiscMajor = 10, kConnectionManagerMinor = 58;

}  // namespace faultline::abi
